//! Everything that can influence a plan. What is not in here cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use skep_api::resource::{KindName, Resource};

use crate::child::ChildKind;
use crate::key::{Key, ObjectKind};

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
    /// Judges authorization policies.
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
}

/// The Redis for sessions where a resource names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRedis {
    /// Host and port.
    pub address: String,
    /// The Secret with its password, in the namespace of each workload.
    pub secret: Option<(String, String)>,
}

/// An object that somebody refers to.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// An object of ours.
    Resource(Arc<Resource>),
    /// An object of ours that cannot be read, and why.
    Unreadable(String),
    /// A Secret: its keys, and a digest of the value of each. Values never reach a plan.
    Secret(BTreeMap<String, String>),
    /// A ConfigMap and what it holds.
    ConfigMap(BTreeMap<String, String>),
}

/// What runs for a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// The workload that the operator applies: a Deployment, or the StatefulSet of an EmbeddingServer.
    pub workload: Option<LiveWorkload>,
    /// The StatefulSet that a proxy runs its server in.
    pub backend: Option<LiveWorkload>,
    /// Their pods.
    pub pods: Vec<LivePod>,
    /// Children whose names are taken: (kind, name, by whom).
    pub taken: BTreeSet<(ChildKind, String, String)>,
    /// Digest of the key that binds sessions, where the virtual server's Secret holds a good one.
    pub session_key: Option<Result<String, String>>,
}

/// What is known of a Deployment or StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveWorkload {
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
}

/// What is known of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LivePod {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: PodState,
}

/// How a pod is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodState {
    /// Running, and every container is ready.
    Ready,
    /// On its way.
    Pending,
    /// It cannot run; the reason.
    Failed(String),
}

/// Judges authorization policies. The engines are not linked into the plan.
pub trait Policies: std::fmt::Debug + Send + Sync {
    /// Whether the engine `engine` (`cedarv1`, `httpv1`) accepts its configuration; if not, what is wrong with it.
    fn check(&self, engine: &str, config: &Value) -> Result<(), String>;
}

// === impl World ===

impl World<'_> {
    /// The object of ours that is named.
    pub fn resource(&self, kind: KindName, namespace: &str, name: &str) -> Option<&Found> {
        self.found.get(&Key::resource(kind, namespace, name))
    }

    /// What a ConfigMap holds, if it exists.
    pub fn config_map(&self, namespace: &str, name: &str) -> Option<&BTreeMap<String, String>> {
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
