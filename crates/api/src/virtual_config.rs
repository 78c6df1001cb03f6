//! The virtual server's own configuration document, as it stands in a VirtualMCPServer under `spec.config`.
//!
//! The operator completes it with what the references say and hands it to the virtual server's process. A field that this
//! crate does not know is kept, so that a newer process can be configured through an older operator.

mod auth;
mod operational;
mod webhooks;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use auth::{
    AwsStsStrategy, AwsStsStrategyRole, CrossAppAccessStrategy, HeaderInjectionStrategy, IncomingAuthz, IncomingOidc,
    OnBehalfOfStrategy, OutgoingStrategy, ResolvedIncomingAuth, ResolvedOutgoingAuth, TokenExchangeStrategy,
    UpstreamInjectStrategy,
};
pub use operational::{
    AuditSettings, CircuitBreaker, CodeMode, EmbeddingProvider, FailureHandling, LogLevel, Operational, Optimizer,
    PartialFailureMode, ResolvedSessionStorage, ResolvedTelemetry, Timeouts,
};
pub use webhooks::{ResolvedWebhook, ResolvedWebhookTls, ResolvedWebhooks};

use crate::kinds::{CompositeTool, ToolOverride};
use crate::reference::NameRef;
use crate::schema::{atomic, is_false, keep_unknown};
use crate::workload::{RateLimiting, RemoteTransport};

/// How many servers are made one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = keep_unknown)]
pub struct VirtualConfig {
    /// Name of the virtual server. Left out, it is the name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The older place of `spec.groupRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_ref: Option<String>,
    /// Servers that are named here instead of being found in the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<StaticBackend>,
    /// The authentication of clients; filled in from `spec.incomingAuth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incoming_auth: Option<ResolvedIncomingAuth>,
    /// The credentials for the backends; filled in from `spec.outgoingAuth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outgoing_auth: Option<ResolvedOutgoingAuth>,
    /// How tools of many servers become one list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
    /// Tools made of steps, written here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub composite_tools: Vec<CompositeTool>,
    /// VirtualMCPCompositeToolDefinitions to serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub composite_tool_refs: Vec<NameRef>,
    /// Timeouts, health checks and what happens when a server fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operational: Option<Operational>,
    /// Further facts about the virtual server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Traces and metrics; filled in from `spec.telemetryConfigRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<ResolvedTelemetry>,
    /// The audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditSettings>,
    /// Shows clients a search over all tools instead of the whole list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<Optimizer>,
    /// Lets clients run a small script that calls several tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_mode: Option<CodeMode>,
    /// Where sessions are kept; filled in from `spec.sessionStorage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_storage: Option<ResolvedSessionStorage>,
    /// How often the virtual server may be called. Needs Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limiting: Option<RateLimiting>,
    /// Headers of a call that are forwarded to the backends; filled in from `spec.passthroughHeaders`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub passthrough_headers: Vec<String>,
    /// The webhooks that see each call; filled in from `spec.webhookConfigRef` alone, so that the definitions do not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub webhooks: Option<ResolvedWebhooks>,
    /// Fields that this crate does not know, kept for a newer process.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, serde_json::Value>,
}

/// A server that is named in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticBackend {
    /// Its name.
    pub name: String,
    /// Its URL.
    #[schemars(regex(pattern = r"^https?://"))]
    pub url: String,
    /// How it speaks MCP.
    pub transport: RemoteTransport,
    /// `entry` for a server that an MCPServerEntry stands for, otherwise empty.
    #[serde(skip_serializing_if = "Option::is_none", rename = "type")]
    pub origin: Option<BackendOrigin>,
    /// A file with certificate authorities to trust for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_path: Option<String>,
    /// Further facts about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// The kind of resource that a backend comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendOrigin {
    /// An MCPServerEntry.
    Entry,
    /// A workload of this cluster.
    #[default]
    #[serde(rename = "")]
    Workload,
}

/// How tools of many servers become one list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Aggregation {
    /// What happens when two servers have a tool of the same name.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// The settings of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict_resolution_config: Option<ConflictResolutionConfig>,
    /// Which tools of single servers are seen, and how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<WorkloadTools>,
    /// Whether no tool of any server is seen; composite tools still are.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exclude_all_tools: bool,
    /// Whether tools are seen that no entry of `tools` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_tool_visibility: Option<ToolVisibility>,
}

/// What happens when two servers have a tool of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConflictResolution {
    /// Every tool's name gets the server's name in front.
    #[default]
    Prefix,
    /// The server that stands first in `priorityOrder` wins.
    Priority,
    /// The overrides must make all names distinct.
    Manual,
    /// Only names of several servers get the server's name in front.
    #[serde(rename = "prefixOnConflict")]
    PrefixOnConflict,
}

/// Settings of conflict resolution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConflictResolutionConfig {
    /// What is put in front of a tool's name; `{workload}` stands for the server's name.
    #[serde(default = "default_prefix_format")]
    pub prefix_format: String,
    /// Names of servers, the most important one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub priority_order: Vec<String>,
}

/// Whether a tool is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolVisibility {
    /// It is.
    #[default]
    Allow,
    /// It is not.
    Deny,
}

/// Which tools of one server are seen, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadTools {
    /// Name of the server.
    pub workload: String,
    /// The MCPToolConfig that says so, instead of what stands here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_config_ref: Option<NameRef>,
    /// The tools that are seen, by the server's names. Left out, all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<String>,
    /// Names and descriptions that clients see instead of the server's, by the server's name of the tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, ToolOverride>,
    /// Whether none of its tools is seen.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exclude_all: bool,
}

// === impl ConflictResolutionConfig ===

impl Default for ConflictResolutionConfig {
    fn default() -> Self {
        Self { prefix_format: default_prefix_format(), priority_order: Vec::new() }
    }
}

fn default_prefix_format() -> String {
    "{workload}_".into()
}
