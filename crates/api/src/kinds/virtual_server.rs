//! `VirtualMCPServer`: many MCP servers as one.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth_server::EmbeddedAuthServer;
use crate::authz::{AuthzConfig, authz_references};
use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::{
    LocalNameRef, NameRef, OidcConfigRef, Reference, References, RequiredNameRef, TelemetryConfigRef,
};
use crate::resource::KindName;
use crate::schema::{Object, Rule, atomic, map_by, rules, unsized_integer};
use crate::status::conditions;
use crate::virtual_config::VirtualConfig;
use crate::workload::{SessionAffinity, SessionStorage};

const INCOMING_AUTH_RULES: &[Rule] = &[
    Rule {
        cel: "self.type != 'oidc' || has(self.oidcConfigRef)",
        message: "incomingAuth.oidcConfigRef is missing: type oidc needs it",
    },
    Rule {
        cel: "!(has(self.authzConfig) && has(self.authzConfigRef))",
        message: "authzConfig and authzConfigRef exclude each other: keep one of them",
    },
];

const RULES: &[Rule] = &[
    Rule {
        cel: "!(has(self.config) && has(self.config.rateLimiting)) || (has(self.sessionStorage) && self.sessionStorage.provider == 'redis')",
        message: "config.rateLimiting counts in Redis: set sessionStorage.provider to redis, or remove config.rateLimiting",
    },
    Rule {
        cel: "!(has(self.config) && has(self.config.rateLimiting) && has(self.config.rateLimiting.perUser)) || self.incomingAuth.type == 'oidc'",
        message: "config.rateLimiting.perUser needs to know who is calling: set incomingAuth.type to oidc",
    },
    Rule {
        cel: "!(has(self.config) && has(self.config.rateLimiting) && has(self.config.rateLimiting.tools)) || !self.config.rateLimiting.tools.exists(tool, has(tool.perUser)) || self.incomingAuth.type == 'oidc'",
        message: "config.rateLimiting.tools[].perUser needs to know who is calling: set incomingAuth.type to oidc",
    },
    Rule {
        cel: "!has(self.embeddingServerRef) || !(has(self.config) && has(self.config.optimizer) && has(self.config.optimizer.embeddingProvider) && self.config.optimizer.embeddingProvider == 'openai')",
        message: "embeddingServerRef runs an embedding server of its own: remove it, or set config.optimizer.embeddingProvider to tei",
    },
];

/// The object: metadata, spec and status.
pub type VirtualMCPServer = Custom<VirtualMCPServerSpec>;

impl Kind for VirtualMCPServerSpec {
    type Status = VirtualMCPServerStatus;

    const KIND: &'static str = "VirtualMCPServer";
    const ABOUT: &'static str = "Many MCP servers as one.";
    const PLURAL: &'static str = "virtualmcpservers";
    const SHORT_NAMES: &'static [&'static str] = &["vmcp", "virtualmcp"];
    const COLUMNS: &'static [Column] = &[
        column("Phase", ".status.phase", "string"),
        column("URL", ".status.url", "string"),
        column("Backends", ".status.backendCount", "integer"),
        AGE,
        column("Ready", ".status.conditions[?(@.type=='Ready')].status", "string"),
    ];

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        references.kind(KindName::MCPGroup, &self.group_ref.name, "spec.groupRef");
        let incoming = &self.incoming_auth;
        if let Some(reference) = &incoming.oidc_config_ref {
            references.kind(KindName::MCPOIDCConfig, &reference.name, "spec.incomingAuth.oidcConfigRef");
        }
        let (authz, authz_ref) = (incoming.authz_config.as_ref(), incoming.authz_config_ref.as_ref());
        authz_references(authz, authz_ref, "spec.incomingAuth", &mut references);
        if let Some(outgoing) = &self.outgoing_auth {
            let default = outgoing.default.iter().map(|auth| ("spec.outgoingAuth.default".to_owned(), auth));
            let backends =
                outgoing.backends.iter().map(|(name, auth)| (format!("spec.outgoingAuth.backends[{name}]"), auth));
            for (field, auth) in default.chain(backends) {
                if let Some(reference) = &auth.external_auth_config_ref {
                    let field = format!("{field}.externalAuthConfigRef");
                    references.kind(KindName::MCPExternalAuthConfig, &reference.name, &field);
                }
            }
        }
        if let Some(config) = &self.config {
            for (index, tools) in config.aggregation.iter().flat_map(|aggregation| &aggregation.tools).enumerate() {
                if let Some(reference) = &tools.tool_config_ref {
                    let field = format!("spec.config.aggregation.tools[{index}].toolConfigRef");
                    references.kind(KindName::MCPToolConfig, &reference.name, &field);
                }
            }
            for (index, reference) in config.composite_tool_refs.iter().enumerate() {
                let field = format!("spec.config.compositeToolRefs[{index}]");
                references.kind(KindName::VirtualMCPCompositeToolDefinition, &reference.name, &field);
            }
        }
        if let Some(reference) = &self.telemetry_config_ref {
            references.kind(KindName::MCPTelemetryConfig, &reference.name, "spec.telemetryConfigRef");
        }
        if let Some(reference) = &self.webhook_config_ref {
            references.kind(KindName::MCPWebhookConfig, &reference.name, "spec.webhookConfigRef");
        }
        if let Some(reference) = &self.embedding_server_ref {
            references.kind(KindName::EmbeddingServer, &reference.name, "spec.embeddingServerRef");
        }
        if let Some(server) = &self.auth_server_config {
            server.references("spec.authServerConfig", &mut references);
        }
        if let Some(password) = self.session_storage.as_ref().and_then(|storage| storage.password_ref.as_ref()) {
            references.secret(password, "spec.sessionStorage.passwordRef");
        }
        references.list()
    }
}

/// Which servers to serve as one, and how clients reach it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RULES))]
pub struct VirtualMCPServerSpec {
    /// The authentication and authorization of clients.
    pub incoming_auth: IncomingAuth,
    /// The credentials that the virtual server calls its backends with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outgoing_auth: Option<OutgoingAuth>,
    /// Headers of a call that are forwarded to the backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub passthrough_headers: Vec<String>,
    /// What kind of Service stands in front of it.
    #[serde(default)]
    pub service_type: ServiceType,
    /// How the Service spreads connections over pods.
    #[serde(default)]
    pub session_affinity: SessionAffinity,
    /// The ServiceAccount of its pods. Left out, one is made that may do no more than it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Merged into its pod template. The container is named `vmcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_spec: Option<Object>,
    /// The MCPGroup whose members it serves.
    pub group_ref: RequiredNameRef,
    /// How the servers are made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<VirtualConfig>,
    /// The MCPTelemetryConfig to report to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config_ref: Option<TelemetryConfigRef>,
    /// The MCPWebhookConfig whose webhooks see each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_config_ref: Option<NameRef>,
    /// The EmbeddingServer with which tools are found by meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_server_ref: Option<NameRef>,
    /// The embedded authorization server that users sign in to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_server_config: Option<EmbeddedAuthServer>,
    /// How many pods run. Left out, the operator does not set the number, so that an autoscaler can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Where sessions are kept. Several pods need a shared store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_storage: Option<SessionStorage>,
    /// Secrets with which the image is pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub image_pull_secrets: Vec<LocalNameRef>,
}

/// The authentication and authorization of the clients of a virtual server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(INCOMING_AUTH_RULES))]
pub struct IncomingAuth {
    /// Whether clients must authenticate.
    #[serde(rename = "type")]
    pub method: IncomingAuthType,
    /// The MCPOIDCConfig that says who may call; for type `oidc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_ref: Option<OidcConfigRef>,
    /// What clients may do, written here. Excludes `authzConfigRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config: Option<AuthzConfig>,
    /// The MCPAuthzConfig that says what clients may do. Excludes `authzConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config_ref: Option<RequiredNameRef>,
}

/// Whether clients must authenticate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IncomingAuthType {
    /// No: any client may call.
    #[default]
    Anonymous,
    /// Yes, by a token of an OpenID Connect provider.
    Oidc,
}

/// The credentials that a virtual server calls its backends with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutgoingAuth {
    /// Whether each server's own `externalAuthConfigRef` counts, or only what stands here.
    #[serde(default)]
    pub source: OutgoingAuthSource,
    /// For servers that have no entry of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<BackendAuth>,
    /// By name of the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<String, BackendAuth>,
}

/// Where the credentials come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutgoingAuthSource {
    /// From each server's own settings, unless an entry here says otherwise.
    #[default]
    Discovered,
    /// Only from the entries here.
    Inline,
}

/// The credentials for one backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendAuth {
    /// Where the credentials come from.
    #[serde(rename = "type")]
    pub method: BackendAuthType,
    /// The MCPExternalAuthConfig; for type `externalAuthConfigRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth_config_ref: Option<NameRef>,
}

/// Where the credentials for one backend come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BackendAuthType {
    /// From the server's own settings.
    #[default]
    Discovered,
    /// From the MCPExternalAuthConfig that is named.
    ExternalAuthConfigRef,
}

/// The kinds of Service that can stand in front of a virtual server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Reachable inside the cluster.
    #[default]
    ClusterIP,
    /// Reachable on a port of every node.
    NodePort,
    /// Reachable through the cloud's load balancer.
    LoadBalancer,
}

/// What is known about a VirtualMCPServer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMCPServerStatus {
    /// What is known about the virtual server, one aspect each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state in one word.
    #[serde(default)]
    pub phase: VirtualMCPServerPhase,
    /// The state in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where clients inside the cluster reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its backends, as the running process sees them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub discovered_backends: Vec<DiscoveredBackend>,
    /// How many of its backends are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_count: Option<i32>,
    /// Hash of the MCPAuthzConfig in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config_hash: Option<String>,
    /// Hash of the MCPOIDCConfig in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_hash: Option<String>,
    /// Hash of the MCPTelemetryConfig in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config_hash: Option<String>,
    /// Hash of the MCPWebhookConfig in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_config_hash: Option<String>,
}

/// The state of a VirtualMCPServer in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VirtualMCPServerPhase {
    /// On its way.
    #[default]
    Pending,
    /// Serving, with all backends.
    Ready,
    /// Serving, with some backends missing.
    Degraded,
    /// Cannot run as written; the conditions say why.
    Failed,
}

/// A backend of a virtual server, as the running process sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredBackend {
    /// Name of the server.
    pub name: String,
    /// Its URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How it is: `ready`, `degraded`, `unavailable` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Name of the MCPExternalAuthConfig with which it is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_config_ref: Option<String>,
    /// The kind of its outgoing authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_type: Option<String>,
    /// When its health was last checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_health_check: Option<Time>,
    /// How it is, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The state of its circuit breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_breaker_state: Option<CircuitState>,
    /// When the circuit breaker last changed its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_last_changed: Option<Time>,
    /// How many times in a row it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = unsized_integer)]
    pub consecutive_failures: Option<i64>,
    /// The revision of MCP that it speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_revision: Option<String>,
}

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CircuitState {
    /// Calls go through.
    #[default]
    Closed,
    /// Calls are refused at once.
    Open,
    /// One call is let through to see how it goes.
    HalfOpen,
}
