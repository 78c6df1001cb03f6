//! Where everything of the cluster is: names, addresses and files, each in one place.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The network namespace.
pub(super) const NAMESPACE: &str = "skep";
/// The node's name.
pub(super) const NODE: &str = "node1";
/// The bridge that the pods are on.
pub(super) const BRIDGE: &str = "br0";
/// The node's address on the bridge. DNS listens there too.
pub(super) const NODE_ADDRESS: &str = "10.88.0.1";
/// The addresses of pods.
pub(super) const PODS: &str = "10.88.0.0/16";
/// The first address that a pod may get.
pub(super) const FIRST_POD: &str = "10.88.0.10";
/// The addresses of Services.
pub(super) const SERVICES: &str = "10.96.0.0/16";
/// The first of them: the API server's own Service.
pub(super) const FIRST_SERVICE: &str = "10.96.0.1";
/// Where the API server listens.
pub(super) const APISERVER: &str = "https://127.0.0.1:6443";
/// Where etcd listens.
pub(super) const ETCD: &str = "http://127.0.0.1:2379";
/// The image that holds a pod's network namespace open.
pub(super) const PAUSE_IMAGE: &str = "localhost/skep-pause:1";

/// The directory of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    directory: PathBuf,
}

impl Layout {
    /// The directory that the environment names, or the usual one.
    pub(crate) fn from_env() -> Self {
        let given = std::env::var_os("SKEP_CLUSTER_DIR").filter(|directory| !directory.is_empty());
        let directory = given.map_or_else(|| std::env::temp_dir().join("skep-cluster"), PathBuf::from);
        // Daemons start in this directory: their arguments must not depend on ours.
        Self { directory: std::path::absolute(&directory).unwrap_or(directory) }
    }

    /// The directory itself.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.file("admin.kubeconfig")
    }

    /// A file in the directory.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file in the directory, as text for a configuration.
    pub(super) fn text(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// A certificate or key.
    pub(super) fn pki(&self, name: &str) -> PathBuf {
        self.directory.join("pki").join(name)
    }

    /// The file that the namespace is bound to.
    pub(super) fn network() -> PathBuf {
        Path::new("/run/netns").join(NAMESPACE)
    }

    /// The argument that makes `nsenter` enter the namespace. Not `ip netns exec`: that mounts another `/sys`, in which
    /// the kubelet finds no control groups.
    pub(super) fn network_argument() -> String {
        format!("--net={}", Self::network().display())
    }

    /// containerd's client, in Kubernetes' corner of it.
    pub(super) fn ctr(&self) -> Command {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(self.file("containerd.sock")).args(["--namespace", "k8s.io"]);
        command
    }
}
