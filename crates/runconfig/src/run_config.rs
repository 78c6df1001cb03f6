//! The RunConfig: everything a proxy must know about the one server that it stands in front of.
//!
//! The operator writes it as `runconfig.json`; `skep run` makes the same one in memory. Secrets never stand in it, only
//! where to find them. The nested documents are in the files below, by who reads them.

mod auth;
mod observe;
mod policy;
mod workload;

use std::collections::BTreeMap;

pub use auth::{
    AwsRoleMapping, AwsStsConfig, GoTime, OidcConfig, RemoteAuthConfig, TokenExchangeConfig, UpstreamSwapConfig,
};
pub use observe::{AuditConfig, TelemetryConfig};
pub use policy::{HeaderForward, RateLimitBucket, RateLimitConfig, ToolOverride, ToolRateLimit, Webhook, WebhookTls};
pub use workload::{
    IgnoreConfig, InboundPermissions, NetworkPermissions, OutboundPermissions, PermissionProfile, RuntimeConfig,
    ScalingConfig, SessionRedis,
};

use crate::auth_server::EmbeddedAuthServerConfig;
use crate::document::{DocumentError, Field, document};
use crate::json::Json;

/// The version of the document that is written, and that a document without one has.
pub const SCHEMA_VERSION: &str = "v0.1.0";

document! {
    /// What a proxy must know about its server.
    pub struct RunConfig {
        /// Version of the document, [`SCHEMA_VERSION`].
        pub schema_version: String = always "schema_version",
        /// `metadata.generation` of the MCPServer that this was made from; 0 is "not known".
        pub mcpserver_generation: i64 = if_set "mcpserver_generation",
        /// The server's container image. Empty for a remote server.
        pub image: String = always "image",
        /// URL of the remote server. If set, no container runs.
        pub remote_url: String = if_set "remote_url",
        /// The registry API that the server was found in.
        pub registry_api_url: String = if_set "registry_api_url",
        /// The registry file that the server was found in.
        pub registry_url: String = if_set "registry_url",
        /// The server's name in that registry.
        pub registry_server_name: String = if_set "registry_server_name",
        /// How to authenticate to the remote server.
        pub remote_auth_config: Option<RemoteAuthConfig> = if_set "remote_auth_config",
        /// Arguments of the container.
        pub cmd_args: Vec<String> = if_set "cmd_args",
        /// Name of the server.
        pub name: String = always "name",
        /// Name of the StatefulSet.
        pub container_name: String = if_set "container_name",
        /// The name under which status is looked up.
        pub base_name: String = if_set "base_name",
        /// How the server speaks MCP: `stdio`, `sse` or `streamable-http`.
        pub transport: String = always "transport",
        /// The address that the proxy listens on.
        pub host: String = always "host",
        /// The port that the proxy listens on.
        pub port: i64 = always "port",
        /// The port of the server's container.
        pub target_port: i64 = if_set "target_port",
        /// The server's host.
        pub target_host: String = if_set "target_host",
        /// Origins that browsers may call from.
        pub allowed_origins: Vec<String> = if_set "allowed_origins",
        /// Ports to publish: `hostPort:containerPort` or `containerPort`.
        pub publish: Vec<String> = if_set "publish",
        /// `none`, `network`, or the path of a profile.
        pub permission_profile_name_or_path: String = if_set "permission_profile_name_or_path",
        /// What the container may reach.
        pub permission_profile: Option<PermissionProfile> = always "permission_profile",
        /// Environment of the server.
        pub env_vars: BTreeMap<String, String> = if_set "env_vars",
        /// A directory of files with more environment.
        pub env_file_dir: String = if_set "env_file_dir",
        /// Whether the log is talkative.
        pub debug: bool = if_set "debug",
        /// `host:container[:ro]`
        pub volumes: Vec<String> = if_set "volumes",
        /// Labels of the StatefulSet, its pods and Services.
        pub container_labels: BTreeMap<String, String> = if_set "container_labels",
        /// The issuer whose tokens are trusted.
        pub oidc_config: Option<OidcConfig> = if_set "oidc_config",
        /// Exchange of the caller's token for one that the server takes.
        pub token_exchange_config: Option<TokenExchangeConfig> = if_set "token_exchange_config",
        /// The upstream provider's token instead of the caller's.
        pub upstream_swap_config: Option<UpstreamSwapConfig> = if_set "upstream_swap_config",
        /// AWS credentials for the caller.
        pub aws_sts_config: Option<AwsStsConfig> = if_set "aws_sts_config",
        /// What callers may do: `{version, type, …}`, kept as it came.
        pub authz_config: Json = if_set "authz_config",
        /// The older place of `authz_config`: a file.
        pub authz_config_path: String = if_set "authz_config_path",
        /// The audit log.
        pub audit_config: Option<AuditConfig> = if_set "audit_config",
        /// The older place of `audit_config`: a file.
        pub audit_config_path: String = if_set "audit_config_path",
        /// Traces and metrics.
        pub telemetry_config: Option<TelemetryConfig> = if_set "telemetry_config",
        /// How often the server may be called.
        pub rate_limit_config: Option<RateLimitConfig> = if_set "rate_limit_config",
        /// The namespace in the keys under which calls are counted.
        pub rate_limit_namespace: String = if_set "rate_limit_namespace",
        /// `<secret>,target=<variable>`
        pub secrets: Vec<String> = if_set "secrets",
        /// A pod template, as JSON, to merge into the StatefulSet's.
        pub k8s_pod_template_patch: String = if_set "k8s_pod_template_patch",
        /// Whether the container's network is closed off; not on Kubernetes.
        pub isolate_network: bool = if_set "isolate_network",
        /// Whether the container reaches its host; Docker only.
        pub allow_docker_gateway: bool = if_set "allow_docker_gateway",
        /// Whether `X-Forwarded-*` headers are trusted.
        pub trust_proxy_headers: bool = if_set "trust_proxy_headers",
        /// Whether messages that break the protocol are refused.
        pub strict_protocol_validation: bool = if_set "strict_protocol_validation",
        /// Whether the server answers POST only and has no sessions.
        pub stateless: bool = if_set "stateless",
        /// How long an idle session lives, as a Go duration.
        pub session_ttl: String = if_set "session_ttl",
        /// How callers speak to a stdio server: `sse` or `streamable-http`. See [`RunConfig::proxy_mode_in_effect`].
        pub proxy_mode: String = if_set "proxy_mode",
        /// An older copy of `oidc_config.CACertPath`.
        pub thv_ca_bundle: String = if_set "thv_ca_bundle",
        /// An older copy of `oidc_config.AuthTokenFile`.
        pub jwks_auth_token_file: String = if_set "jwks_auth_token_file",
        /// The group that the server belongs to.
        pub group: String = if_set "group",
        /// The tools that callers see, by the names that they see. Empty means all.
        pub tools_filter: Vec<String> = if_set "tools_filter",
        /// Names and descriptions that replace the server's, by the server's name of the tool.
        pub tools_override: BTreeMap<String, ToolOverride> = if_set "tools_override",
        /// Which files containers do not see; Docker only.
        pub ignore_config: Option<IgnoreConfig> = if_set "ignore_config",
        /// The chain of middleware, outermost first. Used as it is when there is one.
        pub middleware_configs: Vec<MiddlewareConfig> = if_set "middleware_configs",
        /// Middleware to add before the last one when the chain is built from the other members.
        pub additional_middleware_configs: Vec<MiddlewareConfig> = if_set "additional_middleware_configs",
        /// Services that may refuse a call.
        pub validating_webhooks: Vec<Webhook> = if_set "validating_webhooks",
        /// Services that may change a call.
        pub mutating_webhooks: Vec<Webhook> = if_set "mutating_webhooks",
        /// Prefix of the paths that the proxy sends to clients.
        pub endpoint_prefix: String = if_set "endpoint_prefix",
        /// How an image is built from a package.
        pub runtime_config: Option<RuntimeConfig> = if_set "runtime_config",
        /// Headers on every request to the remote server.
        pub header_forward: Option<HeaderForward> = if_set "header_forward",
        /// The authorization server inside the proxy.
        pub embedded_auth_server_config: Option<EmbeddedAuthServerConfig> = if_set "embedded_auth_server_config",
        /// Replicas, and where they share sessions.
        pub scaling_config: Option<ScalingConfig> = if_set "scaling_config",
        /// Whether a remote server may be at a private address, as `spec.allowPrivateEndpoint` says. A member of Skep's own.
        pub allow_private_endpoint: bool = if_set "allow_private_endpoint",
        /// Whether clients see a search over the tools instead of the tools. A member of Skep's own, of virtual servers.
        pub optimizer: bool = if_set "optimizer",
    }
}

document! {
    /// One middleware and its settings, which [`crate::parameters`] can make.
    pub struct MiddlewareConfig {
        /// Which one.
        pub kind: String = always "type",
        /// Its settings, in the order in which they came.
        pub parameters: Json = always "parameters",
    }
}

// === impl RunConfig ===

impl RunConfig {
    /// Reads a document. What stands behind it is ignored, members that are not known are kept.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, DocumentError> {
        let mut json = Json::from_slice(bytes)?;
        auth::modernise(&mut json);
        let mut config = Self::read(json)?;
        if config.schema_version.is_empty() {
            SCHEMA_VERSION.clone_into(&mut config.schema_version);
        }
        Ok(config)
    }

    /// The text for a file: two spaces of indentation, no new line at the end.
    pub fn to_json_pretty(&self) -> String {
        self.write().to_pretty()
    }

    /// The text on one line.
    pub fn to_json_compact(&self) -> String {
        self.write().to_compact()
    }

    /// The transport between clients and the proxy. Only a stdio server has a choice.
    pub fn proxy_mode_in_effect(&self) -> &str {
        match (self.transport.as_str(), self.proxy_mode.as_str()) {
            ("stdio", "") => "streamable-http",
            ("stdio", mode) => mode,
            (transport, _) => transport,
        }
    }
}

// === impl MiddlewareConfig ===

impl MiddlewareConfig {
    /// A middleware of a kind with its settings.
    pub fn new(kind: &str, parameters: &impl Field) -> Self {
        Self { kind: kind.to_owned(), parameters: parameters.write(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests;
