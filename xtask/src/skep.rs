//! A `skep proxy` or `skep vmcp` of our own, started as the operator starts it: a configuration in its directory, a port, a process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::image::archive::ALLOCATOR;
use crate::image::binary::Binary;
use crate::process::{Process, free_port, wait_for, wait_for_port};
use crate::program::{self, cargo};
use crate::target_dir;

/// How long a proxy may take to open its port.
const START: Duration = Duration::from_secs(30);
/// How long a proxy may take to end, with the server that it runs.
const END: Duration = Duration::from_secs(30);

/// The MCP server of a proxy.
pub(crate) enum Behind<'a> {
    /// A server that runs already.
    Url(String),
    /// A program that speaks on stdio.
    Stdio(&'a Program),
    /// A program that serves streamable HTTP on the given port.
    Http(&'a Program),
    /// A pod that the proxy makes and attaches itself to, in the cluster of `cargo xtask cluster up`.
    Pod(&'a Pod),
}

/// A server in a pod of its own.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) image: String,
    /// What its pod has beside the image.
    pub(crate) patch: Value,
    /// The service account of its proxy: the files that Kubernetes gives to a pod.
    pub(crate) account: PathBuf,
    /// Where the API server is: its host and its port.
    pub(crate) server: (String, String),
}

/// A program of this machine.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// A proxy that runs, or a virtual server. Ends with its value, and its server with it.
pub(crate) struct Proxy {
    process: Process,
    port: u16,
    /// Where the server listens that it runs.
    server: Option<u16>,
}

/// The `skep` to run: the one that is named, or else one that is built now, with the profile `release`.
pub(crate) fn binary(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return named.canonicalize().with_context(|| format!("there is no `{}`", named.display()));
    }
    program::build("building skep (release)", cargo().args(["build", "--release", "--package", "skep"]))?;
    Ok(target_dir()?.join("release/skep"))
}

/// The `skep` to measure: the one that is named, or else the one of the image, which is built now. It is to run with
/// [`ALLOCATOR`].
pub(crate) fn shipped(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(_) => binary(named),
        None => Binary::skep("dist").build(),
    }
}

// === impl Proxy ===

impl Proxy {
    /// Starts a proxy in a directory, where its log stays.
    pub(crate) fn start(binary: &Path, directory: &Path, behind: &Behind<'_>) -> Result<Self> {
        Self::start_with(binary, directory, behind, json!({}))
    }

    /// The same with more members of its RunConfig.
    pub(crate) fn start_with(binary: &Path, directory: &Path, behind: &Behind<'_>, members: Value) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let port = free_port()?;
        let mut server = None;
        let mut arguments = vec!["proxy".to_owned(), "run".to_owned()];
        let (image, more) = match behind {
            Behind::Url(url) => ("none".to_owned(), json!({ "transport": "streamable-http", "remote_url": url })),
            Behind::Stdio(program) => (image(program), json!({ "transport": "stdio", "cmd_args": program.arguments })),
            Behind::Http(program) => {
                let port = free_port()?;
                server = Some(port);
                let transport = "streamable-http";
                (image(program), json!({ "transport": transport, "target_port": port, "cmd_args": program.arguments }))
            }
            Behind::Pod(Pod { name, image, patch, .. }) => {
                arguments.push(format!("--k8s-pod-patch={patch}"));
                (image.clone(), json!({ "transport": "stdio", "name": name, "container_name": name }))
            }
        };
        let mut config = json!({
            "schema_version": "v0.1.0", "name": "x", "container_name": "x", "host": "127.0.0.1", "port": port,
        });
        if let (Value::Object(config), Value::Object(more), Value::Object(members)) = (&mut config, more, members) {
            config.extend(more);
            config.extend(members);
        }
        fs::write(directory.join("runconfig.json"), config.to_string())?;
        arguments.push(image);
        let mut command = match behind {
            Behind::Pod(pod) => pod.command(binary),
            _ => Command::new(binary),
        };
        Self::spawn(command.args(arguments), directory, port, server)
    }

    /// Starts a virtual server in front of these backends, each by its name and its URL, with more members of its configuration.
    pub(crate) fn start_virtual(
        binary: &Path,
        directory: &Path,
        backends: &[(String, String)],
        members: Value,
    ) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let port = free_port()?;
        let backend =
            |(name, url): &(String, String)| json!({ "name": name, "url": url, "transport": "streamable-http" });
        let mut config = json!({
            "name": "x", "groupRef": "x",
            "incomingAuth": { "type": "anonymous" },
            "outgoingAuth": { "source": "inline", "default": { "type": "unauthenticated" } },
            "aggregation": { "conflictResolution": "prefix", "conflictResolutionConfig": { "prefixFormat": "{workload}_" } },
            "backends": backends.iter().map(backend).collect::<Vec<_>>(),
        });
        if let (Value::Object(config), Value::Object(members)) = (&mut config, members) {
            config.extend(members);
        }
        // What is JSON is YAML as well.
        fs::write(directory.join("config.yaml"), config.to_string())?;
        let mut command = Command::new(binary);
        command.args(["vmcp", "serve", "--config", "config.yaml", "--port", &port.to_string()]);
        Self::spawn(&mut command, directory, port, None)
    }

    fn spawn(command: &mut Command, directory: &Path, port: u16, server: Option<u16>) -> Result<Self> {
        let log = File::create(directory.join("log.json"))?;
        let process = Process::start(
            command
                .current_dir(directory)
                .env("SKEP_LOG", "warn")
                .env(ALLOCATOR.0, ALLOCATOR.1)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log),
        )?;
        let proxy = Self { process, port, server };
        wait_for(port, "/health", START).with_context(|| format!("see `{}`", directory.join("log.json").display()))?;
        Ok(proxy)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Waits until the server that it runs listens.
    pub(crate) fn wait_for_server(&self, limit: Duration) -> Result<()> {
        match self.server {
            Some(port) => wait_for_port(port, limit),
            None => Ok(()),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Pod {
    /// A program that takes itself for one in a pod, with the account that a proxy has there: what only such a program runs is then
    /// measured, and recorded, as well.
    fn command(&self, binary: &Path) -> Command {
        // For this process alone.
        let script = "mount -t tmpfs none /run && mkdir -p /var/run/secrets/kubernetes.io \
            && cp -r \"$0\" /var/run/secrets/kubernetes.io/serviceaccount && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&self.account).arg(binary).env_remove("KUBECONFIG");
        let (host, port) = &self.server;
        command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
        command.env("POD_NAMESPACE", &self.namespace);
        command
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.process.ask_to_end(END);
    }
}

fn image(program: &Program) -> String {
    format!("exec://{}", program.path.display())
}
