//! `skep run --demo`: a manifest like any other, whose server is this very program.
//!
//! Its policy permits everything but one tool, so that a newcomer sees authorization work: the tool is in no list, and a call of it is
//! denied.

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use crate::manifests::Manifests;

/// The file name of the demo's manifest in messages.
pub(super) const ORIGIN: &str = "--demo";

/// The tool that the policy of the demo hides.
const HIDDEN: &str = "uuid";

/// The manifest of the demo.
pub(super) fn manifests(port: Option<u16>) -> Result<Manifests> {
    let program = std::env::current_exe().context("cannot find this program on disk")?;
    let program = program.to_str().ok_or_else(|| anyhow!("the path of this program is not text"))?;
    let mut object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1",
        "kind": "MCPServer",
        "metadata": { "name": "demo" },
        "spec": {
            "image": format!("exec://{program}"), "args": ["demo-server"],
            "authzConfig": { "type": "inline", "inline": { "policies": [
                "permit(principal, action, resource);",
                format!("forbid(principal, action, resource == Tool::\"{HIDDEN}\");"),
            ] } },
        },
    });
    if let (Some(port), Some(spec)) = (port, object.get_mut("spec").and_then(|spec| spec.as_object_mut())) {
        spec.insert("proxyPort".to_owned(), json!(port));
    }
    Manifests::of(ORIGIN, &object.to_string())
}

/// An example call, for a shell.
pub(super) fn call(url: &str) -> String {
    curl(url, &json!({ "name": "calculate", "arguments": { "expression": "6 * 7" } }))
}

/// What the policy does, and a call that it denies.
pub(super) fn denied_call(url: &str) -> (String, String) {
    let text = format!("A Cedar policy hides the tool `{HIDDEN}`: it is not in tools/list, and a call of it gets 403:");
    (text, curl(url, &json!({ "name": HIDDEN, "arguments": {} })))
}

fn curl(url: &str, params: &Value) -> String {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    format!("curl -s {url} -H 'Content-Type: application/json' -H 'Accept: application/json' -d '{call}'")
}
