//! Everything that can influence a plan. What is not in here cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
pub use skep_api::annotation::{UpstreamReport, UpstreamState};
use skep_api::resource::{KindName, Resource};
pub use skep_runconfig::feature::Feature;

use crate::canonical;
use crate::child::ChildKind;
use crate::key::{Key, ObjectKind};
use crate::pod::PodStamps;

/// What surrounds one resource.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// How this operator is set up.
    pub settings: &'a Settings,
    /// What the resource refers to, directly or through what it refers to. What is missing here does not exist.
    pub found: &'a BTreeMap<Key, Found>,
    /// The resources that refer to it.
    pub users: &'a BTreeSet<Key>,
    /// What runs for it.
    pub live: &'a Live,
    /// Validates authorization policies.
    pub policies: &'a dyn Policies,
}

/// How an operator is set up, once per process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Image of the proxy of an MCPServer or MCPRemoteProxy.
    pub runner_image: String,
    /// Image of a virtual server.
    pub vmcp_image: String,
    /// Image of the registry server.
    pub registry_image: String,
    /// The address on which proxies listen.
    pub proxy_host: String,
    /// Secrets with which every image is pulled, beside those that a resource names.
    pub pull_secrets: Vec<String>,
    /// The Redis for sessions where a resource names none.
    pub default_redis: Option<DefaultRedis>,
    /// Whether the cluster assigns user ids by itself.
    pub openshift: bool,
    /// Where what is planned runs.
    pub site: Site,
    /// What proxies of the configured image cannot do. A plan that needs it is refused.
    pub unsupported: BTreeSet<Feature>,
    /// The same of virtual servers, where their image is Skep's own. What another image can do, or reads, is not known.
    pub unsupported_by_vmcp: Option<BTreeSet<Feature>>,
}

/// Where what is planned runs: this decides which images and addresses are possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Site {
    /// In pods of a cluster. Servers are containers, and loopback addresses are the pod's own.
    #[default]
    Cluster,
    /// On one machine, by `skep run`. Servers may be processes of the host, and remote servers may be on this machine.
    Machine,
}

/// The Redis for sessions where a resource names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRedis {
    /// Host and port.
    pub address: String,
    /// The Secret with its password, in the namespace of each workload.
    pub secret: Option<(String, String)>,
}

/// An object that a resource refers to.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// An object of ours.
    Resource(Arc<Resource>),
    /// An object of ours that cannot be read, and why.
    Unreadable(String),
    /// An object of a kind that cannot be listed, and why: it may be there or not.
    Unlisted(String),
    /// A Secret: its keys, and a digest of the value of each. Values never reach a plan.
    Secret(Arc<BTreeMap<String, String>>),
    /// A ConfigMap and what it holds. It is shared: each plan of each resource that refers to it sees it.
    ConfigMap(Arc<BTreeMap<String, ConfigMapValue>>),
}

/// The value of one key of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigMapValue {
    /// The text, for plans that read it.
    Text(String),
    /// SHA-256 of the text in hexadecimal, where only pods read it.
    Digest(String),
}

/// What runs for a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// The workload that the operator applies: a Deployment, or the StatefulSet of an EmbeddingServer.
    pub workload: Option<LiveWorkload>,
    /// The StatefulSet that a proxy runs its server in.
    pub backend: Option<LiveWorkload>,
    /// What a proxy reports of a backend that it cannot make.
    pub unmade: Option<UpstreamReport>,
    /// The pods of the workload.
    pub pods: Vec<LivePod>,
    /// The pods of the backend.
    pub backend_pods: Vec<LivePod>,
    /// The names of the Services that it owns.
    pub services: BTreeSet<String>,
    /// Children whose names objects of other owners have: kind, name, owner.
    pub name_conflicts: BTreeSet<(ChildKind, String, String)>,
    /// What may refer to this resource though it is not among its users, for messages.
    pub possible_users: BTreeSet<String>,
    /// Kinds whose objects the operator cannot list, and why: there may be more of them than are known.
    pub unlisted: BTreeMap<KindName, String>,
    /// Why the API server refused a child, if it did.
    pub refused: Option<String>,
    /// Digest of the key that binds sessions, where the virtual server's Secret holds a good one.
    pub session_key: Option<Result<String, SessionKeyError>>,
}

/// What is known of a Deployment or StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveWorkload {
    /// Its name.
    pub name: String,
    /// Whether its rollout is paused (`kubectl rollout pause`): its controller makes no pod of another template.
    pub is_paused: bool,
    /// How many pods are wanted.
    pub replicas: i32,
    /// How many are ready.
    pub ready: i32,
    /// The generation that its pod template carries.
    pub generation_stamp: Option<i64>,
    /// Digest of what its pods consume, as we noted it when we applied it last.
    pub consumed: Option<String>,
    /// Whether we own it.
    pub ours: bool,
    /// The generation of its spec.
    pub generation: i64,
    /// How far its controller has brought it.
    pub progress: RolloutProgress,
    /// What its proxy reports of the connection to the MCP server, for a backend.
    pub upstream: Option<UpstreamReport>,
    /// Pods that the kubelet rejected or evicted, each with the reason, as far as no pod of the same template was ready since. They
    /// are not counted by the controller, which replaces them.
    pub ended: Vec<LivePod>,
    /// Pods that are still there long after they were to be gone, as when their node is lost.
    pub hanging: Vec<String>,
}

/// How far the controller of a Deployment or StatefulSet has brought its pods, as its status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutProgress {
    /// The generation of the spec that the counts describe.
    pub observed_generation: i64,
    /// How many pods there are.
    pub total: i32,
    /// How many of them are of the current template.
    pub updated: i32,
    /// The revision of the current template, where the status names it.
    pub revision: Option<String>,
    /// Whether the rollout of the current template completed once, where the status says so.
    pub completed: bool,
    /// Why pods cannot be made, or do not become ready in time.
    pub failure: Option<Failure>,
    /// Whether the rollout has not progressed within the deadline that its workload sets, where it sets one.
    pub is_overdue: bool,
}

/// What is known of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LivePod {
    /// Its name.
    pub name: String,
    /// Its uid, by which it is deleted.
    pub uid: String,
    /// How it is.
    pub state: PodState,
    /// What its template was stamped with.
    pub stamps: PodStamps,
    /// Which revision of its workload's template it was made from, as its controller calls it.
    pub revision: Option<String>,
    /// When it was made, as RFC 3339.
    pub created: String,
}

/// How a pod is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodState {
    /// Running, and every container is ready.
    Ready,
    /// On its way.
    Pending,
    /// It cannot run.
    Failed(Failure),
}

/// Why something cannot run, as a container, the kubelet, the scheduler or a controller reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// A CamelCase reason, such as `CrashLoopBackOff`.
    pub reason: String,
    /// The particulars; empty if there are none.
    pub message: String,
    /// Whether it happened once so far, and is retried at once by what runs it: this alone ends no rollout.
    pub is_first: bool,
}

/// Why an authorization engine does not accept its configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(pub String);

/// Why the Secret with the session key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SessionKeyError(pub String);

/// Validates authorization policies. The engines are not linked into the plan.
pub trait Policies: std::fmt::Debug + Send + Sync {
    /// Whether the engine `engine` (`cedarv1`, `httpv1`) accepts its configuration; if not, what is wrong with it.
    fn check(&self, engine: &str, config: &Value) -> Result<(), PolicyError>;
}

// === impl Failure ===

impl Failure {
    /// A pod that no node has room for. A cluster that grows by itself may help, so this alone ends no rollout.
    pub const UNSCHEDULABLE: &'static str = "Unschedulable";
    /// Pods that do not become ready within the deadline of their Deployment.
    pub const OVERDUE: &'static str = "ProgressDeadlineExceeded";
    /// A StatefulSet whose controller makes no pod.
    pub const NO_PODS: &'static str = "PodsNotCreated";
    /// A pod that does not go, and that no other one can replace meanwhile.
    pub const TERMINATING: &'static str = "PodTerminating";
    /// What only a change of the configuration, of the image or of the program in it can heal.
    const FINAL: &'static [&'static str] =
        &["CrashLoopBackOff", "ErrImageNeverPull", "InvalidImageName", Self::OVERDUE];

    /// Whether waiting does not help. Kubelets and controllers retry everything else, and may succeed: a registry comes back, a Secret
    /// is created, a quota is freed.
    pub fn is_final(&self) -> bool {
        !self.is_first && Self::FINAL.contains(&self.reason.as_str())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.reason)?;
        if self.message.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.message) }
    }
}

// === impl Found, ConfigMapValue ===

impl Found {
    /// A ConfigMap of which all texts are known.
    pub fn config_map(data: BTreeMap<String, String>) -> Self {
        Self::ConfigMap(Arc::new(data.into_iter().map(|(key, text)| (key, ConfigMapValue::Text(text))).collect()))
    }
}

impl ConfigMapValue {
    /// The text, if it is known.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Digest(_) => None,
        }
    }

    /// SHA-256 of the text in hexadecimal.
    pub fn digest(&self) -> String {
        match self {
            Self::Text(text) => canonical::sha256_hex(text.as_bytes()),
            Self::Digest(digest) => digest.clone(),
        }
    }
}

// === impl World ===

impl World<'_> {
    /// The object of ours that is named.
    pub fn resource(&self, kind: KindName, namespace: &str, name: &str) -> Option<&Found> {
        self.found.get(&Key::resource(kind, namespace, name))
    }

    /// What a ConfigMap holds, if it exists.
    pub fn config_map(&self, namespace: &str, name: &str) -> Option<&BTreeMap<String, ConfigMapValue>> {
        match self.found.get(&Key { kind: ObjectKind::ConfigMap, namespace: namespace.into(), name: name.into() }) {
            Some(Found::ConfigMap(data)) => Some(data),
            _ => None,
        }
    }

    /// The keys of a Secret and the digest of each value, if it exists.
    pub fn secret(&self, namespace: &str, name: &str) -> Option<&BTreeMap<String, String>> {
        match self.found.get(&Key { kind: ObjectKind::Secret, namespace: namespace.into(), name: name.into() }) {
            Some(Found::Secret(keys)) => Some(keys),
            _ => None,
        }
    }
}
