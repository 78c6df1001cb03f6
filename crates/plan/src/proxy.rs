//! One proxy, planned once: the proxy of an MCPServer and of an MCPRemoteProxy, in a pod and in a process.
//!
//! ```text
//!   ProxySpec ─┐                          ┌─▶ ConfigMap and Deployment (children), for the operator
//!   Inputs ────┴─▶ document ─▶ ProxyPlan ─┤
//!                                         └─▶ ProxyProcess, for `skep run`
//! ```
//!
//! A [`ProxyPlan`] is the intent; both renderings read it, and nothing reads a rendering back. A kind adds what only it has: its own
//! members of the RunConfig, its backend, and a row of differences ([`ProxyKind`]).

mod children;
mod document;
mod env;
mod files;
mod inputs;
mod outcome;
mod process;
mod spec;
mod template;

use serde_json::Value;
use skep_api::resource::Resource;
use skep_runconfig::RunConfig;

pub(crate) use self::children::build;
pub(crate) use self::document::add_shared;
pub(crate) use self::env::EnvGroup;
pub(crate) use self::files::{FileGroup, oidc_ca, telemetry_ca};
pub(crate) use self::inputs::Inputs;
pub(crate) use self::outcome::{Outcome, check_template, session_warning};
pub(crate) use self::process::UserContainer;
pub use self::process::{ProxyProcess, SecretFile};
pub(crate) use self::spec::ProxySpec;
use crate::child::Child;
use crate::grants::Role;
use crate::names;
use crate::pod::{Env, Files, pull_secrets};
use crate::world::World;

/// The container of a proxy; a user's pod template reaches it by this name.
const CONTAINER: &str = "toolhive";

/// The plan of one proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyPlan {
    /// The document that the proxy reads.
    pub run_config: RunConfig,
    /// The variables of the proxy, with their sources.
    pub env: Env,
    /// The files of the proxy, with their sources.
    pub files: Files,
    /// The MCP server of the proxy.
    pub backend: Backend,
    pod: ProxyPod,
}

/// The MCP server of a proxy.
#[derive(Clone, Debug, PartialEq)]
pub enum Backend {
    /// A remote one, which runs elsewhere.
    Remote,
    /// One that the proxy runs: as the pods of a StatefulSet, or as a process.
    Server(ServerTemplate),
}

/// How an MCP server is run, beside what the RunConfig says.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerTemplate {
    /// The pod template that the proxy merges into the StatefulSet's.
    pub(crate) pod: Value,
    /// What the same server needs as a process.
    pub(crate) container: UserContainer,
}

/// What only the pods of a proxy have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProxyPod {
    /// The ServiceAccount.
    pub(crate) account: String,
    /// How many pods, where the spec says so.
    pub(crate) replicas: Option<i32>,
    /// The user's pod template for the proxy itself.
    pub(crate) template: Option<Value>,
    /// Annotations beside the checksums and the generation.
    pub(crate) stamps: Vec<(&'static str, String)>,
}

/// What a kind puts into the plan of its proxy.
#[derive(Debug)]
pub(crate) struct ProxyDraft {
    /// The document, but for the generation and the middleware list.
    pub(crate) run_config: RunConfig,
    /// The MCP server of the proxy.
    pub(crate) backend: Backend,
    /// What only the pods have.
    pub(crate) pod: ProxyPod,
    /// ServiceAccounts, Roles and RoleBindings.
    pub(crate) accounts: Vec<Child>,
}

/// How the proxies of one kind differ from those of another.
#[derive(Debug)]
pub(crate) struct ProxyKind {
    /// The last part of the label with the resource's name.
    pub(crate) label: &'static str,
    /// The name of the Service.
    pub(crate) service: fn(&str) -> String,
    /// The name of the ServiceAccount that the operator makes for the pods.
    pub(crate) account: fn(&str) -> String,
    /// What that account may do.
    pub(crate) role: Role,
    /// Where the variables come from, in the order of the contract.
    pub(crate) env: &'static [EnvGroup],
    /// Where the files come from, in the order of the contract.
    pub(crate) files: &'static [FileGroup],
    /// Whether the pods carry the generation, which moves only with what they consume.
    pub(crate) has_generation: bool,
    /// Whether the ConfigMap is applied before the Service.
    pub(crate) config_map_first: bool,
    /// `initialDelaySeconds` of the readiness probe.
    pub(crate) readiness_delay: i32,
    /// `terminationGracePeriodSeconds`; none for the API server's default.
    pub(crate) grace_period: Option<i32>,
}

/// Everything that a proxy is planned from.
#[derive(Debug)]
pub(crate) struct ProxyContext<'a> {
    pub(crate) me: &'a Resource,
    pub(crate) kind: &'static ProxyKind,
    pub(crate) spec: ProxySpec<'a>,
    pub(crate) inputs: Inputs<'a>,
    pub(crate) world: &'a World<'a>,
}

// === impl ProxyKind ===

impl ProxyKind {
    /// The URL of the proxy's Service, without a path.
    pub(crate) fn base_url(&self, me: &Resource, port: i32) -> String {
        format!("http://{}:{port}", names::host(&(self.service)(me.name()), me.namespace()))
    }
}

// === impl ProxyContext ===

impl ProxyContext<'_> {
    /// The Secrets with which the images of the proxy and of the server are pulled.
    pub(crate) fn pull_secrets(&self) -> Vec<Value> {
        let own = self.spec.deployment_overrides().map(|overrides| overrides.image_pull_secrets.as_slice());
        pull_secrets(own.unwrap_or_default(), self.world.settings)
    }

    fn base_url(&self) -> String {
        self.kind.base_url(self.me, self.spec.proxy_port)
    }
}
