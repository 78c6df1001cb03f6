//! What the kinds that run pods have in common: environment, resources, sessions, limits, overrides of child objects.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::FailurePolicy;
use crate::reference::{LocalNameRef, References, SecretKeyRef};
use crate::schema::{Rule, atomic, map_by, rules};

const SESSION_STORAGE_RULES: &[Rule] = &[Rule {
    cel: "self.provider != 'redis' || has(self.address)",
    message: "address is missing: provider redis needs sessionStorage.address, such as redis.example:6379",
}];

const RATE_LIMITING_RULES: &[Rule] = &[Rule {
    cel: "has(self.shared) || has(self.perUser) || (has(self.tools) && size(self.tools) > 0) || (has(self.prompts) && size(self.prompts) > 0) || (has(self.resources) && size(self.resources) > 0)",
    message: "rateLimiting limits nothing: set shared, perUser or at least one entry of tools, prompts or resources",
}];

const NAMED_RATE_LIMIT_RULES: &[Rule] = &[Rule {
    cel: "has(self.shared) || has(self.perUser)",
    message: "this entry of rateLimiting limits nothing: set shared or perUser",
}];

const TOOL_RATE_LIMIT_RULES: &[Rule] = &[Rule {
    cel: "has(self.shared) || has(self.perUser)",
    message: "this entry of rateLimiting.tools limits nothing: set shared or perUser",
}];

/// An environment variable with a plain value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvVar {
    /// Name of the variable.
    pub name: String,
    /// Its value. Secrets belong in a Secret, not here.
    pub value: String,
}

/// Compute resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// The most that it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceAmounts>,
    /// What the scheduler sets aside for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceAmounts>,
}

/// An amount of each resource, as Kubernetes quantities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceAmounts {
    /// Processor time, such as `500m` for half a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory, such as `256Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

/// How the Service spreads connections over pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SessionAffinity {
    /// One client address stays with one pod.
    #[default]
    ClientIP,
    /// Any pod may answer; sessions must then be shared.
    None,
}

/// Whether something is recorded about each request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// Whether an audit event is written for each request.
    #[serde(default)]
    pub enabled: bool,
}

/// Where sessions are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(SESSION_STORAGE_RULES))]
pub struct SessionStorage {
    /// The store: in this pod's memory, or in Redis and so shared by all replicas.
    pub provider: StorageProvider,
    /// Host and port of the Redis server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub address: Option<String>,
    /// Number of the Redis database.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub db: i32,
    /// Put in front of every key, so that several users can share one Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
    /// The Secret key that holds the Redis password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_ref: Option<SecretKeyRef>,
}

/// A place for state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StorageProvider {
    /// This process's memory; gone when it ends.
    #[default]
    Memory,
    /// A Redis server; survives restarts and is shared.
    Redis,
}

/// How often a server may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RATE_LIMITING_RULES))]
pub struct RateLimiting {
    /// One bucket for all clients together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<RateLimitBucket>,
    /// One bucket for each client; clients must then be authenticated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_user: Option<RateLimitBucket>,
    /// Further limits for single tools. A call must pass every limit that applies to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub tools: Vec<ToolRateLimit>,
    /// Limits for prompts. `shared` and `perUser` above do not count them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub prompts: Vec<NamedRateLimit>,
    /// Limits for reading resources. `shared` and `perUser` above do not count them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub resources: Vec<NamedRateLimit>,
    /// What happens to a call while Redis is unavailable: `ignore`, the default, lets it pass, and `fail` refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
}

/// How often one tool may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(TOOL_RATE_LIMIT_RULES))]
pub struct ToolRateLimit {
    /// Name of the tool, as the server calls it.
    #[schemars(length(min = 1))]
    pub name: String,
    /// One bucket for all clients of this tool together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<RateLimitBucket>,
    /// One bucket for each client of this tool; clients must then be authenticated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_user: Option<RateLimitBucket>,
}

/// How often one prompt may be requested, or one resource be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(NAMED_RATE_LIMIT_RULES))]
pub struct NamedRateLimit {
    /// Name of the prompt, or URI of the resource; `*` for all that have no entry of their own.
    #[schemars(length(min = 1))]
    pub name: String,
    /// One bucket for all clients together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<RateLimitBucket>,
    /// One bucket for each client; clients must then be authenticated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_user: Option<RateLimitBucket>,
}

/// A token bucket: it starts full, each call takes one token, and it fills evenly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitBucket {
    /// How many tokens fit: the largest burst.
    #[schemars(range(min = 1))]
    pub max_tokens: i32,
    /// How long an empty bucket takes to fill, such as `1m`.
    pub refill_period: String,
}

/// Changes to the objects that Skep makes for a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyOverrides {
    /// Changes to the proxy's Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_deployment: Option<ProxyDeploymentOverrides>,
    /// Changes to the proxy's Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_service: Option<MetadataOverrides>,
}

/// Changes to a proxy's Deployment. What Skep itself sets under the same key wins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyDeploymentOverrides {
    /// Annotations on the Deployment; they do not reach its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels on the Deployment; they do not reach its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Labels and annotations on the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_metadata_overrides: Option<MetadataOverrides>,
    /// Environment of the proxy container (not of the MCP server).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub env: Vec<EnvVar>,
    /// Secrets with which the images of the proxy and of the server are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub image_pull_secrets: Vec<LocalNameRef>,
}

/// Labels and annotations to add to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MetadataOverrides {
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Headers to put on every request to a remote server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderForward {
    /// Header names and their values, for what is no secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub add_plaintext_headers: BTreeMap<String, String>,
    /// Headers whose values are kept in Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("headerName"))]
    pub add_headers_from_secret: Vec<HeaderFromSecret>,
}

/// A header whose value is kept in a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderFromSecret {
    /// Name of the header.
    #[schemars(length(min = 1, max = 255))]
    pub header_name: String,
    /// The Secret key that holds its value.
    pub value_secret_ref: SecretKeyRef,
}

/// How a remote server speaks MCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RemoteTransport {
    /// Server-sent events, the transport of the first revision of MCP.
    Sse,
    /// Streamable HTTP, the transport of all later ones.
    #[default]
    StreamableHttp,
}

/// The Secrets that hold the values of headers.
pub(crate) fn header_references(headers: Option<&HeaderForward>, references: &mut References) {
    for (index, header) in headers.iter().flat_map(|headers| &headers.add_headers_from_secret).enumerate() {
        references.secret(
            &header.value_secret_ref,
            &format!("spec.headerForward.addHeadersFromSecret[{index}].valueSecretRef"),
        );
    }
}
