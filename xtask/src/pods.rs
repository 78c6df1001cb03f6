//! Programs of this machine as servers in pods, behind proxies that the operator made, in the cluster of
//! `cargo xtask cluster up`.
//!
//! The node is this machine, so the pods see its programs and their libraries by `hostPath`: no image has to be made of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use skep_testkit::assets::{Assets, Tool};

use crate::cluster::{self, Layout};
use crate::image::{self, VERSION, binary::Binary};
use crate::program::{capture, wait_until};
use crate::skep::Pod;
use crate::{root, target_dir, ui};

/// The namespace of the operator and of its servers.
const HOME: &str = "skep-xtask";
/// Where the pods find the program's directory.
const MOUNTED: &str = "/program";
/// What a program of this machine needs of it.
const SYSTEM: [(&str, &str); 3] = [("usr", "/usr"), ("lib", "/lib"), ("lib64", "/lib64")];
/// Where the server listens.
const PORT: u16 = 8080;
/// How long pods may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(3);

/// A cluster with an operator in it.
pub(crate) struct Pods {
    layout: Layout,
}

/// Which images the pods have.
#[derive(clap::Args)]
pub(crate) struct Images {
    /// The cargo profile of the image.
    #[arg(long, value_name = "PROFILE", default_value = "release")]
    image_profile: String,
    /// Build no images: those of the last run are in the cluster.
    #[arg(long)]
    no_images: bool,
}

/// A program, to be a server.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'a str,
    /// The directory that it is in, with all that it needs.
    pub(crate) directory: &'a Path,
    /// Its file in there.
    pub(crate) program: &'a Path,
    /// Files in there that are its arguments.
    pub(crate) arguments: &'a [&'a Path],
    pub(crate) is_stdio: bool,
}

// === impl Pods ===

impl Pods {
    pub(crate) fn start(images: &Images) -> Result<Self> {
        let layout = Layout::from_env();
        let (product, fixture) = (format!("localhost/skep:{VERSION}"), fixture());
        let mut archives = Vec::new();
        let wanted = [(Binary::skep(&images.image_profile), &product), (Binary::fixture(), &fixture)];
        for (binary, name) in wanted.into_iter().filter(|_| !images.no_images) {
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
        if !archives.is_empty() {
            // Its image has the name of the one before, so nothing else makes an operator of an earlier run anew.
            let operator = format!("deployment/{HOME}");
            pods.kubectl(&["rollout", "restart", &operator, "--namespace", HOME])?;
            pods.kubectl(&["rollout", "status", &operator, "--namespace", HOME, "--timeout=120s"])?;
        }
        Ok(pods)
    }

    /// A program in the cluster's network.
    pub(crate) fn inside(&self, program: &Path) -> Result<Command> {
        cluster::inside(&self.layout, &program.to_string_lossy())
    }

    /// A server of its own, and the URL of the Service in front of its proxy.
    pub(crate) fn serve(&self, subject: &Subject<'_>) -> Result<String> {
        let Subject { name, arguments, is_stdio, .. } = *subject;
        let arguments: Vec<String> = arguments.iter().map(|argument| mounted(argument)).collect();
        let manifest = json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
            "metadata": { "name": name, "namespace": HOME },
            "spec": {
                "image": fixture(), "transport": if is_stdio { "stdio" } else { "streamable-http" },
                "mcpPort": PORT, "args": arguments, "podTemplateSpec": subject.template()?,
            },
        });
        let file = manifests()?.join(format!("{name}.json"));
        fs::write(&file, manifest.to_string())?;
        // A new one each time: a server on stdio keeps to the era it was opened in.
        let object = format!("mcpserver/{name}");
        // And without the pod of the previous one, which would respond until it terminates.
        for object in [&object, &format!("statefulset/{name}"), &format!("pod/{name}-0")] {
            let options = ["--namespace", HOME, "--ignore-not-found", "--wait", "--grace-period=1"];
            self.kubectl(&[&["delete", object][..], &options].concat())?;
        }
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
        wait_until("the server responds", PATIENCE, || {
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

    /// The process of a server's proxy.
    pub(crate) fn proxy(&self, name: &str) -> Result<u32> {
        let labels = format!("app.kubernetes.io/name=mcpserver,app.kubernetes.io/instance={name}");
        let name = "jsonpath={.items[0].metadata.name}";
        let pod = self.kubectl(&["get", "pods", "--namespace", HOME, "-l", &labels, "-o", name])?;
        // What runs in a container has the name of its pod for that of its machine.
        let variable = format!("HOSTNAME={pod}");
        for entry in fs::read_dir("/proc")? {
            let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let is_skep = fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == "skep");
            if is_skep && environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes()) {
                return Ok(id);
            }
        }
        bail!("no process of pod `{pod}` is to be seen; is the cluster on this machine?")
    }

    /// A server whose pod a proxy makes without an operator, with the account of the proxy that the operator made for it.
    pub(crate) fn alone(&self, subject: &Subject<'_>, name: &str) -> Result<Pod> {
        let account = manifests()?.join(format!("{name}-account"));
        fs::create_dir_all(&account)?;
        let runner = format!("{}-proxy-runner", subject.name);
        let token = self.kubectl(&["create", "token", &runner, "--namespace", HOME, "--duration", "12h"])?;
        let authority =
            ["get", "configmap", "kube-root-ca.crt", "--namespace", HOME, "-o", r"jsonpath={.data.ca\.crt}"];
        let authority = self.kubectl(&authority)?;
        for (file, text) in [("token", token.trim()), ("ca.crt", &authority), ("namespace", HOME)] {
            fs::write(account.join(file), text)?;
        }
        let server = self.kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"])?;
        let server = server.strip_prefix("https://").and_then(|address| address.rsplit_once(':'));
        let (host, port) = server.context("the kubeconfig has no address with a port")?;
        Ok(Pod {
            namespace: HOME.to_owned(),
            name: name.to_owned(),
            image: fixture(),
            patch: subject.template()?,
            account,
            server: (host.to_owned(), port.to_owned()),
        })
    }

    /// Removes what a proxy made without an operator.
    pub(crate) fn remove(&self, pod: &Pod) -> Result<()> {
        let object = format!("statefulset/{}", pod.name);
        self.kubectl(&["delete", &object, "--namespace", &pod.namespace, "--ignore-not-found", "--wait"]).map(drop)
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

// === impl Subject ===

impl Subject<'_> {
    /// What its pod has beside the image.
    fn template(&self) -> Result<Value> {
        let path = fs::canonicalize(self.directory)?;
        let mut volumes = vec![json!({ "name": "program", "hostPath": { "path": path } })];
        let mut mounts = vec![json!({ "name": "program", "mountPath": MOUNTED, "readOnly": true })];
        for (name, place) in SYSTEM {
            // A link of this machine would be a broken one in there.
            volumes.push(json!({ "name": name, "hostPath": { "path": fs::canonicalize(place)? } }));
            mounts.push(json!({ "name": name, "mountPath": place, "readOnly": true }));
        }
        let container = json!({ "name": "mcp", "command": [mounted(self.program)], "volumeMounts": mounts });
        Ok(json!({ "spec": { "volumes": volumes, "containers": [container] } }))
    }
}

/// Where a file of the program's directory is in the pod.
fn mounted(path: &Path) -> String {
    Path::new(MOUNTED).join(path).to_string_lossy().into_owned()
}

fn manifests() -> Result<PathBuf> {
    let place = target_dir()?.join("pods");
    fs::create_dir_all(&place).with_context(|| format!("cannot make `{}`", place.display()))?;
    Ok(place)
}

/// A placeholder for the image: the process runs on this machine.
fn fixture() -> String {
    format!("localhost/skep-fixture:{VERSION}")
}
