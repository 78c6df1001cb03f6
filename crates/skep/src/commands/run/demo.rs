//! `skep run --demo`: a manifest like any other, whose server is this very program.

use anyhow::{Context as _, Result, anyhow};
use serde_json::json;

use crate::manifests::Manifests;

/// The file name of the demo's manifest in messages.
pub(super) const ORIGIN: &str = "--demo";

/// The manifest of the demo.
pub(super) fn manifests(port: Option<u16>) -> Result<Manifests> {
    let program = std::env::current_exe().context("cannot find this program on disk")?;
    let program = program.to_str().ok_or_else(|| anyhow!("the path of this program is not text"))?;
    let mut object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1",
        "kind": "MCPServer",
        "metadata": { "name": "demo" },
        "spec": { "image": format!("exec://{program}"), "args": ["demo-server"] },
    });
    if let (Some(port), Some(spec)) = (port, object.get_mut("spec").and_then(|spec| spec.as_object_mut())) {
        spec.insert("proxyPort".to_owned(), json!(port));
    }
    Manifests::of(ORIGIN, &object.to_string())
}

/// An example call, for a shell.
pub(super) fn call(url: &str) -> String {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "calculate", "arguments": { "expression": "6 * 7" } },
    });
    format!("curl -s {url} -H 'Content-Type: application/json' -H 'Accept: application/json' -d '{call}'")
}
