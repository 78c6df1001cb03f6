//! How a virtual server runs: timeouts, failures, audit, telemetry, tool search, scripts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth_server::DURATION;
use crate::schema::{Rule, each_value, is_false, rules, unsized_integer};
use crate::workload::StorageProvider;

const TIMEOUT_RULES: &[Rule] = &[Rule {
    cel: "self == '' || duration(self) >= duration('1s')",
    message: "circuitBreaker.timeout must be at least 1s",
}];

const OPTIMIZER_RULES: &[Rule] = &[
    Rule {
        cel: "!has(self.embeddingHeaders) || size(self.embeddingHeaders) == 0 || (has(self.embeddingProvider) && self.embeddingProvider == 'openai')",
        message: "optimizer.embeddingHeaders go to an OpenAI-compatible service: set embeddingProvider to openai, or remove them",
    },
    Rule {
        cel: "!has(self.embeddingHeaders) || self.embeddingHeaders.all(name, name.matches('^[!#$%&*+.^_`|~0-9A-Za-z\\'-]+$') && !(name.lowerAscii() in ['authorization', 'content-type']))",
        message: "optimizer.embeddingHeaders: each name must be a valid header name, and neither Authorization nor Content-Type, which are set for you",
    },
];

/// Timeouts, health checks and what happens when a server fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operational {
    /// Set to `debug` for a talkative log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<LogLevel>,
    /// How long calls may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// What happens when a server fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_handling: Option<FailureHandling>,
}

/// How talkative the log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    #[default]
    Debug,
}

/// How long calls may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// For servers that have no entry of their own.
    #[serde(default = "thirty_seconds")]
    #[schemars(regex(pattern = DURATION))]
    pub default: String,
    /// By name of the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = each_value("pattern", DURATION))]
    pub per_workload: BTreeMap<String, String>,
}

/// What happens when a server fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureHandling {
    /// How often the health of each server is checked.
    #[serde(default = "thirty_seconds")]
    #[schemars(regex(pattern = DURATION))]
    pub health_check_interval: String,
    /// How long to wait for its answer.
    #[serde(default = "ten_seconds")]
    #[schemars(regex(pattern = DURATION))]
    pub health_check_timeout: String,
    /// How many times in a row it must fail to count as unhealthy.
    #[serde(default = "default_unhealthy_threshold")]
    #[schemars(transform = unsized_integer)]
    pub unhealthy_threshold: i64,
    /// How often the state of the servers is written into the status of the VirtualMCPServer.
    #[serde(default = "thirty_seconds")]
    #[schemars(regex(pattern = DURATION))]
    pub status_reporting_interval: String,
    /// Whether the virtual server answers while some servers are missing.
    #[serde(default)]
    pub partial_failure_mode: PartialFailureMode,
    /// Spares a failing server further calls for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<CircuitBreaker>,
}

/// Whether the virtual server answers while some servers are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartialFailureMode {
    /// No: all servers must be there.
    #[default]
    Fail,
    /// Yes, with those that are there.
    BestEffort,
}

/// Spares a failing server further calls for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CircuitBreaker {
    /// Whether it is in use.
    #[serde(default)]
    pub enabled: bool,
    /// How many times in a row a server must fail before it is spared.
    #[serde(default = "default_failure_threshold")]
    #[schemars(range(min = 1), transform = unsized_integer)]
    pub failure_threshold: i64,
    /// How long it is spared, at least `1s`.
    #[serde(default = "sixty_seconds")]
    #[schemars(
        regex(pattern = DURATION),
        transform = rules(TIMEOUT_RULES)
    )]
    pub timeout: String,
}

/// The audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the resource")]
pub struct AuditSettings {
    /// Whether it is written.
    #[serde(default)]
    pub enabled: bool,
    /// The component that its events name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// The only event types that are written. Left out, all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// Event types that are not written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_event_types: Vec<String>,
    /// Whether events carry the request.
    #[serde(default)]
    pub include_request_data: bool,
    /// Whether events carry the response.
    #[serde(default)]
    pub include_response_data: bool,
    /// Whether a response that reports an error counts as a failure.
    #[serde(default = "yes")]
    pub detect_application_errors: bool,
    /// How many bytes of a request or response an event carries.
    #[serde(default = "default_max_data_size")]
    #[schemars(transform = unsized_integer)]
    pub max_data_size: i64,
    /// How many actors of a delegated token an event names.
    #[serde(default = "default_max_delegation_depth")]
    #[schemars(range(min = 1), transform = unsized_integer)]
    pub max_delegation_depth: i64,
    /// The file to write to. Left out, standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_file: Option<String>,
}

/// Traces and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the resource")]
pub struct ResolvedTelemetry {
    /// Host and port of the collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Service name in traces and metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// Service version in traces and metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_version: Option<String>,
    /// Whether traces are sent.
    #[serde(default)]
    pub tracing_enabled: bool,
    /// Whether metrics are sent.
    #[serde(default)]
    pub metrics_enabled: bool,
    /// The share of calls that are traced, from `0` to `1`.
    #[serde(default = "default_sampling_rate")]
    pub sampling_rate: String,
    /// Headers of each export.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Whether the collector is reached without TLS.
    #[serde(default)]
    pub insecure: bool,
    /// Whether metrics are served under `/metrics`.
    #[serde(default)]
    pub enable_prometheus_metrics_path: bool,
    /// Whether `/metrics` is served on the port of the MCP endpoint as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_on_transport_port: Option<bool>,
    /// The port on which `/metrics` is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = unsized_integer)]
    pub prometheus_port: Option<i64>,
    /// Environment variables whose values become attributes of spans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment_variables: Vec<String>,
    /// Attributes that every span and metric carries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom_attributes: BTreeMap<String, String>,
    /// Whether spans carry the older attribute names beside the standard ones.
    #[serde(default = "yes")]
    pub use_legacy_attributes: bool,
    /// A file with certificate authorities to trust for the collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_path: Option<String>,
}

/// Shows clients a search over all tools instead of the whole list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(OPTIMIZER_RULES))]
pub struct Optimizer {
    /// What the embedding service speaks.
    #[serde(default)]
    pub embedding_provider: EmbeddingProvider,
    /// URL of the embedding service; filled in from `spec.embeddingServerRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_service: Option<String>,
    /// The model to ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_model: Option<String>,
    /// Headers of each request to the embedding service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(
        extend("maxProperties" = 32),
        transform = each_value("minLength", 1),
        transform = each_value("maxLength", 8192),
        transform = each_value("pattern", r"^[^\x00-\x08\x0A-\x1F\x7F]*$")
    )]
    pub embedding_headers: BTreeMap<String, String>,
    /// How long to wait for the embedding service.
    #[serde(default = "thirty_seconds")]
    #[schemars(regex(pattern = DURATION))]
    pub embedding_service_timeout: String,
    /// How many tools a search returns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50), transform = unsized_integer)]
    pub max_tools_to_return: Option<i64>,
    /// How much semantic similarity counts against keywords, from `0` to `1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]*[.])?[0-9]+$"))]
    pub hybrid_search_semantic_ratio: Option<String>,
    /// How far in meaning a tool may be from the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]*[.])?[0-9]+$"))]
    pub semantic_distance_threshold: Option<String>,
}

/// What an embedding service speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EmbeddingProvider {
    /// Hugging Face's Text Embeddings Inference.
    #[default]
    Tei,
    /// OpenAI's embeddings API, or one like it.
    OpenAi,
}

/// Lets clients run a small script that calls several tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CodeMode {
    /// Whether they may.
    #[serde(default, skip_serializing_if = "is_false")]
    pub enabled: bool,
    /// How many steps a script may take.
    #[serde(default = "default_step_limit")]
    #[schemars(range(min = 1))]
    pub step_limit: i64,
    /// How many tool calls of a script may run at once.
    #[serde(default = "default_parallel_calls")]
    #[schemars(range(min = 1), transform = unsized_integer)]
    pub parallel_max_concurrency: i64,
    /// How long one tool call of a script may take.
    #[serde(default = "thirty_seconds")]
    #[schemars(regex(pattern = DURATION))]
    pub tool_call_timeout: String,
}

/// Where sessions are kept. The password comes by an environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedSessionStorage {
    /// The store.
    pub provider: StorageProvider,
    /// Host and port of the Redis server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Number of the Redis database.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub db: i32,
    /// Put in front of every key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
}

fn yes() -> bool {
    true
}

fn ten_seconds() -> String {
    "10s".into()
}

fn thirty_seconds() -> String {
    "30s".into()
}

fn sixty_seconds() -> String {
    "60s".into()
}

fn default_unhealthy_threshold() -> i64 {
    3
}

fn default_failure_threshold() -> i64 {
    5
}

fn default_max_data_size() -> i64 {
    1024
}

fn default_max_delegation_depth() -> i64 {
    10
}

fn default_sampling_rate() -> String {
    "0.05".into()
}

fn default_step_limit() -> i64 {
    100_000
}

fn default_parallel_calls() -> i64 {
    10
}
