//! From nothing to an API server that answers.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use super::{ControlPlane, client, client_config};
use crate::kubeconfig::kubeconfig;
use crate::pki::{Authority, TokenKeys};
use crate::process::Group;
use crate::wait::{Seen, eventually};

pub(super) const ETCD: &str = "etcd";
pub(super) const APISERVER: &str = "kube-apiserver";

/// Another process can take a free port before its owner binds it: then the start is retried on other ports.
const ATTEMPTS: usize = 3;

/// Idle machines need three seconds; a machine that compiles on all cores needs patience.
const READY_WITHIN: Duration = Duration::from_mins(2);

/// How to start the API server, kept for starting it again.
#[derive(Debug)]
pub(super) struct Apiserver {
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// Why an attempt did not lead to a control plane.
enum Failure {
    PortTaken,
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

pub(super) async fn launch(etcd: &Path, apiserver: &Path, audit: bool) -> Result<ControlPlane> {
    for _ in 0..ATTEMPTS {
        match attempt(etcd, apiserver, audit).await {
            Ok(plane) => return Ok(plane),
            Err(Failure::PortTaken) => {}
            Err(Failure::Other(error)) => return Err(error),
        }
    }
    bail!("{ATTEMPTS} times in a row a free port was taken before the control plane could bind it")
}

async fn attempt(etcd: &Path, apiserver: &Path, audit: bool) -> Result<ControlPlane, Failure> {
    let mut group = Group::start()?;
    let directory = group.directory().to_owned();
    let [etcd_port, port] = free_ports()?;

    let authority = Authority::generate()?;
    let serving = authority.issue("kube-apiserver", None, &["localhost", "127.0.0.1"])?;
    let admin = authority.issue("skep-test-admin", Some("system:masters"), &[])?;
    let tokens = TokenKeys::generate()?;
    let file = |name: &str, text: &str| write(&directory.join(name), text);
    file("ca.crt", &authority.certificate())?;
    file("apiserver.crt", &serving.certificate)?;
    file("apiserver.key", &serving.key)?;
    file("tokens.pub", &tokens.public)?;
    file("tokens.key", &tokens.private)?;
    let kubeconfig = kubeconfig(&format!("https://127.0.0.1:{port}"), &authority.certificate(), &admin);
    file("kubeconfig", &kubeconfig.to_string())?;
    let mut arguments = apiserver_arguments(etcd_port, port);
    if audit {
        file("audit-policy.json", &audit_policy())?;
        arguments.extend(["--audit-policy-file=audit-policy.json".into(), "--audit-log-path=audit.log".into()]);
    }

    let mut command = Command::new(etcd);
    command.args(etcd_arguments(etcd_port));
    group.spawn(ETCD, command)?;
    let apiserver = Apiserver { program: apiserver.to_owned(), arguments };
    apiserver.spawn(&mut group)?;
    let config = client_config(&kubeconfig).await?;
    if let Err(error) = wait_until_ready(&mut group, &config).await {
        let taken = [ETCD, APISERVER].iter().any(|name| group.last_output(name).contains("address already in use"));
        return Err(if taken { Failure::PortTaken } else { Failure::Other(error) });
    }
    Ok(ControlPlane {
        group,
        apiserver,
        config,
        kubeconfig: directory.join("kubeconfig"),
        audit_log: audit.then(|| directory.join("audit.log")),
    })
}

impl Apiserver {
    pub(super) fn spawn(&self, group: &mut Group) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        group.spawn(APISERVER, command)
    }
}

/// Waits until the API server says that it is ready and has made the namespaces that every cluster has.
pub(super) async fn wait_until_ready(group: &mut Group, config: &kube::Config) -> Result<()> {
    let mut config = config.clone();
    config.default_retry = false;
    let client = client(config)?;
    let group = std::cell::RefCell::new(group);
    eventually("the control plane to be ready", READY_WITHIN, || {
        let (client, group) = (client.clone(), &group);
        async move {
            for name in [ETCD, APISERVER] {
                let mut group = group.borrow_mut();
                if let Some(status) = group.exited(name)? {
                    bail!("`{name}` ended with {status}; its last output:\n{}", group.last_output(name));
                }
            }
            for (path, name) in [("", "readyz"), ("/api/v1/namespaces", "default")] {
                let request = kube::core::Request::new(path).get(name, &kube::api::GetParams::default());
                let request = request.context("cannot build the readiness request to the API server")?;
                if let Err(error) = client.request_text(request).await {
                    return Ok(Seen::NotYet(format!("`{path}/{name}`: {error}")));
                }
            }
            Ok(Seen::Yes(()))
        }
    })
    .await
}

/// Ports that are free at this moment, all different.
fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let mut listeners = Vec::new();
    let mut ports = [0; COUNT];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free port on loopback")?;
        *port = listener.local_addr().context("cannot read back a port")?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

fn etcd_arguments(port: u16) -> [String; 6] {
    [
        "--data-dir=etcd".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
        // It has no peers, but insists on listening for them.
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
    ]
}

fn apiserver_arguments(etcd_port: u16, port: u16) -> Vec<OsString> {
    let fixed = [
        "--bind-address=127.0.0.1",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--tls-cert-file=apiserver.crt",
        "--tls-private-key-file=apiserver.key",
        "--client-ca-file=ca.crt",
        "--cert-dir=.",
        "--service-account-key-file=tokens.pub",
        "--service-account-signing-key-file=tokens.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        // It waits for a controller to make the service account of every pod, and no controller runs.
        "--disable-admission-plugins=ServiceAccount",
        // It would publish a loopback address as the endpoint of `kubernetes`, which the API refuses.
        "--endpoint-reconciler-type=none",
    ];
    let ports = [format!("--etcd-servers=http://127.0.0.1:{etcd_port}"), format!("--secure-port={port}")];
    fixed.into_iter().map(OsString::from).chain(ports.map(OsString::from)).collect()
}

fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata" }],
    })
    .to_string()
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}
