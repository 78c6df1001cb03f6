//! The fixture in pods, behind proxies that the operator made, in the cluster of `cargo xtask cluster up`.
//!
//! The node is this machine, so the pods see its Node.js, its libraries and the fixture by `hostPath`: no image of a quarter of a
//! gigabyte has to be made.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use skep_testkit::assets::{Assets, Tool};

use crate::cluster::{self, Layout};
use crate::image::{self, VERSION, binary::Binary};
use crate::program::{capture, wait_until};
use crate::{root, ui};

/// The namespace of the operator and of its servers.
const HOME: &str = "skep-conformance";
/// Where the pods find the suite's directory.
const MOUNTED: &str = "/conformance";
/// What a program of this machine needs of it.
const SYSTEM: [(&str, &str); 3] = [("usr", "/usr"), ("lib", "/lib"), ("lib64", "/lib64")];
/// Where the server listens.
const PORT: u16 = 8080;

/// A cluster with an operator in it.
pub(super) struct Pods {
    layout: Layout,
}

// === impl Pods ===

impl Pods {
    pub(super) fn start() -> Result<Self> {
        let layout = Layout::from_env();
        let (product, fixture) = (format!("localhost/skep:{VERSION}"), fixture());
        let mut archives = Vec::new();
        for (binary, name) in [(Binary::skep("release"), &product), (Binary::fixture(), &fixture)] {
            let output = image::default_output(name.rsplit('/').next().unwrap_or(name))?;
            ui::progress(&image::build(&binary, name, &output)?);
            archives.push(output);
        }
        cluster::up(&layout)?;
        for archive in &archives {
            cluster::load(&layout, archive)?;
        }
        let pods = Self { layout };
        ui::progress("installing the operator…");
        let (definitions, chart) = (root().join("charts/skep-crds"), root().join("charts/skep"));
        pods.helm(&["upgrade", "--install", "skep-crds", &definitions.to_string_lossy(), "--namespace", "default"])?;
        let mut arguments = vec!["upgrade", "--install", "skep"];
        let chart = chart.to_string_lossy().into_owned();
        let settings = [
            format!("operator.image={product}"),
            format!("operator.toolhiveRunnerImage={product}"),
            format!("operator.vmcpImage={product}"),
            format!("fullnameOverride={HOME}"),
            "operator.rbac.scope=namespace".to_owned(),
            format!("operator.rbac.allowedNamespaces={{{HOME}}}"),
        ];
        arguments.extend([&chart, "--namespace", HOME, "--create-namespace", "--wait", "--timeout", "120s"]);
        for setting in &settings {
            arguments.extend(["--set", setting]);
        }
        pods.helm(&arguments)?;
        Ok(pods)
    }

    /// A program in the cluster's network.
    pub(super) fn inside(&self, program: &Path) -> Result<Command> {
        cluster::inside(&self.layout, &program.to_string_lossy())
    }

    /// A fixture of its own, and the URL of the Service in front of its proxy.
    pub(super) fn serve(&self, suite: &str, directory: &Path, node: &Path, is_stdio: bool) -> Result<String> {
        let name = format!("{suite}-{}", if is_stdio { "stdio" } else { "http" });
        let node = node.strip_prefix(directory).context("Node.js is not beside the suite")?;
        let path = |path: &Path| Path::new(MOUNTED).join(path).to_string_lossy().into_owned();
        let mut volumes = vec![json!({ "name": "suite", "hostPath": { "path": directory } })];
        let mut mounts = vec![json!({ "name": "suite", "mountPath": MOUNTED, "readOnly": true })];
        for (name, place) in SYSTEM {
            // A link of this machine would be a broken one in there.
            volumes.push(json!({ "name": name, "hostPath": { "path": fs::canonicalize(place)? } }));
            mounts.push(json!({ "name": name, "mountPath": place, "readOnly": true }));
        }
        let manifest = json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
            "metadata": { "name": name, "namespace": HOME },
            "spec": {
                "image": fixture(), "transport": if is_stdio { "stdio" } else { "streamable-http" },
                "mcpPort": PORT, "args": [path(Path::new("fixture.mjs"))],
                "podTemplateSpec": { "spec": {
                    "volumes": volumes,
                    "containers": [{ "name": "mcp", "command": [path(node)], "volumeMounts": mounts }],
                }},
            },
        });
        let file = directory.join(format!("{name}.json"));
        fs::write(&file, manifest.to_string())?;
        // A new one each time: a server on stdio keeps to the era it was opened in.
        let object = format!("mcpserver/{name}");
        self.kubectl(&["delete", &object, "--namespace", HOME, "--ignore-not-found", "--wait"])?;
        self.kubectl(&["apply", "-f", &file.to_string_lossy()])?;
        ui::progress(&format!("waiting for the pods of {name}…"));
        let wanted = "--for=jsonpath={.status.phase}=Ready";
        self.kubectl(&["wait", &object, "--namespace", HOME, wanted, "--timeout=180s"])?;
        let service = format!("service/mcp-{name}-proxy");
        let address = "jsonpath={.spec.clusterIP}:{.spec.ports[0].port}";
        let address = self.kubectl(&["get", &service, "--namespace", HOME, "-o", address])?;
        let url = format!("http://{address}/mcp");
        if is_stdio {
            // Calls wait for it, and the first message must be the suite's.
            return Ok(url);
        }
        wait_until("the server answers", super::START * 4, || {
            let message = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
            let mut curl = self.inside(Path::new("curl"))?;
            let headers = ["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream"];
            curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}"]).args(headers).args(["-d", message, &url]);
            match capture(&mut curl)?.as_str() {
                "502" | "503" | "000" => bail!("it is not there yet"),
                _ => Ok(()),
            }
        })?;
        Ok(url)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        capture(self.inside(Path::new("kubectl"))?.args(arguments))
    }

    fn helm(&self, arguments: &[&str]) -> Result<()> {
        let assets = Assets::from_env()?;
        assets.ensure(&[Tool::Helm])?;
        capture(self.inside(&assets.find(Tool::Helm)?)?.args(arguments)).map(drop)
    }
}

/// Something to say as the image: what runs is this machine's.
fn fixture() -> String {
    format!("localhost/skep-fixture:{VERSION}")
}
