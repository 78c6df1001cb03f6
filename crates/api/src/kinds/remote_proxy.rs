//! `MCPRemoteProxy`: Skep's proxy in front of a remote MCP server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authz::{AuthzConfig, authz_references};
use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::{
    AuthServerRef, NameRef, OidcConfigRef, Reference, References, RequiredNameRef, TelemetryConfigRef,
};
use crate::resource::KindName;
use crate::schema::{Object, Rule, rules};
use crate::status::conditions;
use crate::workload::{
    Audit, HeaderForward, ProxyOverrides, RemoteTransport, Resources, SessionAffinity, SessionStorage,
    header_references,
};

const RULES: &[Rule] = &[Rule {
    cel: "!(has(self.authzConfig) && has(self.authzConfigRef))",
    message: "authzConfig and authzConfigRef exclude each other: keep one of them",
}];

/// The object: metadata, spec and status.
pub type MCPRemoteProxy = Custom<MCPRemoteProxySpec>;

impl Kind for MCPRemoteProxySpec {
    type Status = MCPRemoteProxyStatus;

    const KIND: &'static str = "MCPRemoteProxy";
    const ABOUT: &'static str = "Skep's proxy in front of a remote MCP server.";
    const PLURAL: &'static str = "mcpremoteproxies";
    const SHORT_NAMES: &'static [&'static str] = &["rp", "mcprp"];
    const COLUMNS: &'static [Column] = &[
        column("Phase", ".status.phase", "string"),
        column("Remote URL", ".spec.remoteUrl", "string"),
        column("URL", ".status.url", "string"),
        column("Ready", ".status.conditions[?(@.type=='Ready')].status", "string"),
        AGE,
    ];

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        if let Some(reference) = &self.oidc_config_ref {
            references.kind(KindName::MCPOIDCConfig, &reference.name, "spec.oidcConfigRef");
        }
        if let Some(reference) = &self.external_auth_config_ref {
            references.kind(KindName::MCPExternalAuthConfig, &reference.name, "spec.externalAuthConfigRef");
        }
        if let Some(reference) = &self.auth_server_ref {
            references.kind(KindName::MCPExternalAuthConfig, &reference.name, "spec.authServerRef");
        }
        header_references(self.header_forward.as_ref(), &mut references);
        authz_references(self.authz_config.as_ref(), self.authz_config_ref.as_ref(), "spec", &mut references);
        if let Some(reference) = &self.tool_config_ref {
            references.kind(KindName::MCPToolConfig, &reference.name, "spec.toolConfigRef");
        }
        if let Some(reference) = &self.telemetry_config_ref {
            references.kind(KindName::MCPTelemetryConfig, &reference.name, "spec.telemetryConfigRef");
        }
        if let Some(reference) = &self.webhook_config_ref {
            references.kind(KindName::MCPWebhookConfig, &reference.name, "spec.webhookConfigRef");
        }
        if let Some(reference) = &self.group_ref {
            references.kind(KindName::MCPGroup, &reference.name, "spec.groupRef");
        }
        if let Some(password) = self.session_storage.as_ref().and_then(|storage| storage.password_ref.as_ref()) {
            references.secret(password, "spec.sessionStorage.passwordRef");
        }
        references.list()
    }
}

/// Which remote server to front, and how clients reach it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RULES))]
pub struct MCPRemoteProxySpec {
    /// URL of the remote server.
    #[schemars(regex(pattern = r"^https?://"))]
    pub remote_url: String,
    /// Whether the URL may lead to a private or cluster-internal address.
    #[serde(default)]
    pub allow_private_endpoint: bool,
    /// The port on which the proxy listens.
    #[serde(default = "default_proxy_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub proxy_port: i32,
    /// How the remote server speaks MCP.
    #[serde(default)]
    pub transport: RemoteTransport,
    /// The MCPOIDCConfig that authenticates clients. Left out, no client is authenticated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_ref: Option<OidcConfigRef>,
    /// The MCPExternalAuthConfig with which the proxy authenticates to the remote server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth_config_ref: Option<NameRef>,
    /// The embedded authorization server that users sign in to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_server_ref: Option<AuthServerRef>,
    /// Headers to put on every request to the remote server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_forward: Option<HeaderForward>,
    /// What clients may do, written here. Excludes `authzConfigRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config: Option<AuthzConfig>,
    /// The MCPAuthzConfig that says what clients may do. Excludes `authzConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config_ref: Option<RequiredNameRef>,
    /// Whether an audit log is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
    /// The MCPToolConfig that hides or renames tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_config_ref: Option<NameRef>,
    /// The MCPTelemetryConfig to report to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config_ref: Option<TelemetryConfigRef>,
    /// The MCPWebhookConfig whose webhooks see each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_config_ref: Option<NameRef>,
    /// Compute resources of the proxy's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// The ServiceAccount of the proxy's pods. Left out, one is made that may do no more than the proxy needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Merged into the proxy's pod template. The proxy's container is named `toolhive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_spec: Option<Object>,
    /// Whether `X-Forwarded-*` headers are believed. Only behind a proxy that sets them itself.
    #[serde(default)]
    pub trust_proxy_headers: bool,
    /// A path in front of the endpoints, where an ingress strips it before the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_prefix: Option<String>,
    /// Changes to the objects that Skep makes for the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_overrides: Option<ProxyOverrides>,
    /// The MCPGroup that this proxy belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_ref: Option<RequiredNameRef>,
    /// How the proxy's Service spreads connections over pods.
    #[serde(default)]
    pub session_affinity: SessionAffinity,
    /// How many proxy pods run. Left out, the operator does not set the number, so that an autoscaler can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Where sessions are kept. Several proxy pods need a shared store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_storage: Option<SessionStorage>,
}

/// What is known about an MCPRemoteProxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPRemoteProxyStatus {
    /// What is known about the proxy, one aspect each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Hash of the MCPToolConfig in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_config_hash: Option<String>,
    /// Hash of the MCPExternalAuthConfig in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth_config_hash: Option<String>,
    /// Hash of the embedded authorization server's configuration in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_server_config_hash: Option<String>,
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
    /// Where clients inside the cluster reach the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where clients outside the cluster reach the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_url: Option<String>,
    /// The state in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<MCPRemoteProxyPhase>,
    /// The state in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The state of an MCPRemoteProxy in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MCPRemoteProxyPhase {
    /// On its way.
    #[default]
    Pending,
    /// Answering.
    Ready,
    /// Cannot run as written; the conditions say why.
    Failed,
    /// Being deleted.
    Terminating,
}

fn default_proxy_port() -> i32 {
    8080
}
