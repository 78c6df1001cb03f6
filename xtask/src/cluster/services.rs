//! The programs of the cluster and their arguments.

use std::path::PathBuf;

use anyhow::Result;
use skep_testkit::assets::{Assets, FOR_CLUSTER, Tool};

use super::layout::{ETCD, Layout, NODE, NODE_ADDRESS, PODS, SERVICES};

/// A program to keep running: its name in the records, and its command.
pub(super) struct Service {
    pub(super) name: &'static str,
    pub(super) command: Vec<String>,
}

/// A program's file; all of the cluster's are built when one is missing.
pub(super) fn tool(tool: Tool) -> Result<PathBuf> {
    let assets = Assets::from_env()?;
    assets.ensure(FOR_CLUSTER)?;
    assets.find(tool)
}

/// Every program of the cluster.
pub(super) fn all(layout: &Layout) -> Result<Vec<Service>> {
    let node = [containerd(), kubelet(layout)?, proxy()?, dns()?];
    let mut all = vec![etcd()?, apiserver()?, controller_manager()?, scheduler()?];
    all.extend(node);
    Ok(all)
}

pub(super) fn etcd() -> Result<Service> {
    service(
        Tool::Etcd,
        vec![
            "--data-dir=etcd".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
            format!("--listen-client-urls={ETCD}"),
            format!("--advertise-client-urls={ETCD}"),
        ],
    )
}

pub(super) fn apiserver() -> Result<Service> {
    service(
        Tool::KubeApiserver,
        vec![
            format!("--etcd-servers={ETCD}"),
            "--secure-port=6443".to_owned(),
            format!("--advertise-address={NODE_ADDRESS}"),
            format!("--service-cluster-ip-range={SERVICES}"),
            "--tls-cert-file=pki/apiserver.crt".to_owned(),
            "--tls-private-key-file=pki/apiserver.key".to_owned(),
            "--client-ca-file=pki/ca.crt".to_owned(),
            "--service-account-key-file=pki/tokens.pub".to_owned(),
            "--service-account-signing-key-file=pki/tokens.key".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--allow-privileged".to_owned(),
            "--kubelet-client-certificate=pki/admin.crt".to_owned(),
            "--kubelet-client-key=pki/admin.key".to_owned(),
            "--kubelet-certificate-authority=pki/ca.crt".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ],
    )
}

pub(super) fn controller_manager() -> Result<Service> {
    service(
        Tool::KubeControllerManager,
        vec![
            "--kubeconfig=admin.kubeconfig".to_owned(),
            "--use-service-account-credentials".to_owned(),
            "--service-account-private-key-file=pki/tokens.key".to_owned(),
            "--root-ca-file=pki/ca.crt".to_owned(),
            "--leader-elect=false".to_owned(),
        ],
    )
}

pub(super) fn scheduler() -> Result<Service> {
    service(Tool::KubeScheduler, vec!["--kubeconfig=admin.kubeconfig".to_owned(), "--leader-elect=false".to_owned()])
}

pub(super) fn containerd() -> Service {
    let command = ["containerd", "--config", "containerd.toml"];
    Service { name: "containerd", command: command.map(str::to_owned).to_vec() }
}

pub(super) fn kubelet(layout: &Layout) -> Result<Service> {
    service(
        Tool::Kubelet,
        vec![
            "--config=kubelet.json".to_owned(),
            "--kubeconfig=kubelet.kubeconfig".to_owned(),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={NODE_ADDRESS}"),
            format!("--root-dir={}", layout.text("kubelet")),
            format!("--cert-dir={}", layout.text("pki")),
        ],
    )
}

pub(super) fn proxy() -> Result<Service> {
    service(
        Tool::KubeProxy,
        vec![
            "--kubeconfig=admin.kubeconfig".to_owned(),
            format!("--hostname-override={NODE}"),
            format!("--cluster-cidr={PODS}"),
            "--proxy-mode=iptables".to_owned(),
            // The limits of connection tracking are the host's; a namespace may not set them.
            "--conntrack-max-per-core=0".to_owned(),
            "--conntrack-tcp-timeout-established=0".to_owned(),
            "--conntrack-tcp-timeout-close-wait=0".to_owned(),
        ],
    )
}

pub(super) fn dns() -> Result<Service> {
    service(Tool::CoreDns, vec!["-conf".to_owned(), "Corefile".to_owned()])
}

fn service(program: Tool, arguments: Vec<String>) -> Result<Service> {
    let path = tool(program)?.display().to_string();
    Ok(Service { name: program.name(), command: [vec![path], arguments].concat() })
}
