//! `MCPServer`: an MCP server that Skep runs, and the proxy in front of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authz::{AuthzConfig, authz_references};
use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::{
    AuthServerRef, NameRef, OidcConfigRef, Reference, References, RequiredNameRef, SecretKeyRef, TelemetryConfigRef,
};
use crate::resource::KindName;
use crate::schema::{Object, Rule, atomic, map_by, rules};
use crate::status::conditions;
use crate::workload::{Audit, EnvVar, ProxyOverrides, RateLimiting, Resources, SessionAffinity, SessionStorage};

const RULES: &[Rule] = &[
    Rule {
        cel: "!(has(self.authzConfig) && has(self.authzConfigRef))",
        message: "authzConfig and authzConfigRef exclude each other: keep one of them",
    },
    Rule {
        cel: "!(has(self.rateLimiting) && has(self.rateLimiting.perUser)) || has(self.oidcConfigRef) || has(self.externalAuthConfigRef)",
        message: "rateLimiting.perUser needs to know who is calling: set oidcConfigRef or externalAuthConfigRef",
    },
    Rule {
        cel: "!(has(self.rateLimiting) && has(self.rateLimiting.tools)) || !self.rateLimiting.tools.exists(tool, has(tool.perUser)) || has(self.oidcConfigRef) || has(self.externalAuthConfigRef)",
        message: "rateLimiting.tools[].perUser needs to know who is calling: set oidcConfigRef or externalAuthConfigRef",
    },
];

/// The object: metadata, spec and status.
pub type MCPServer = Custom<MCPServerSpec>;

impl Kind for MCPServerSpec {
    type Status = MCPServerStatus;

    const KIND: &'static str = "MCPServer";
    const ABOUT: &'static str = "An MCP server that Skep runs, and the proxy in front of it.";
    const PLURAL: &'static str = "mcpservers";
    const SHORT_NAMES: &'static [&'static str] = &["mcpserver", "mcpservers"];
    const COLUMNS: &'static [Column] = &[
        column("Status", ".status.phase", "string"),
        column("Ready", ".status.conditions[?(@.type=='Ready')].status", "string"),
        column("Replicas", ".status.readyReplicas", "integer"),
        column("URL", ".status.url", "string"),
        AGE,
    ];

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        for (index, secret) in self.secrets.iter().enumerate() {
            let secret_key = SecretKeyRef { name: secret.name.clone(), key: secret.key.clone() };
            references.secret(&secret_key, &format!("spec.secrets[{index}]"));
        }
        if let Some(profile) =
            self.permission_profile.as_ref().filter(|profile| profile.source == PermissionProfileSource::ConfigMap)
        {
            references.document(&profile.name, profile.key.as_deref().unwrap_or_default(), "spec.permissionProfile");
        }
        if let Some(reference) = &self.oidc_config_ref {
            references.kind(KindName::MCPOIDCConfig, &reference.name, "spec.oidcConfigRef");
        }
        authz_references(self.authz_config.as_ref(), self.authz_config_ref.as_ref(), "spec", &mut references);
        if let Some(reference) = &self.tool_config_ref {
            references.kind(KindName::MCPToolConfig, &reference.name, "spec.toolConfigRef");
        }
        if let Some(reference) = &self.external_auth_config_ref {
            references.kind(KindName::MCPExternalAuthConfig, &reference.name, "spec.externalAuthConfigRef");
        }
        if let Some(reference) = &self.webhook_config_ref {
            references.kind(KindName::MCPWebhookConfig, &reference.name, "spec.webhookConfigRef");
        }
        if let Some(reference) = &self.auth_server_ref {
            references.kind(KindName::MCPExternalAuthConfig, &reference.name, "spec.authServerRef");
        }
        if let Some(reference) = &self.telemetry_config_ref {
            references.kind(KindName::MCPTelemetryConfig, &reference.name, "spec.telemetryConfigRef");
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

/// What to run, and how clients reach it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(RULES))]
pub struct MCPServerSpec {
    /// The server's container image. `skep run` also takes `exec://`, `npx://` and `uvx://` sources.
    pub image: String,
    /// How the server itself speaks MCP: over its standard input and output, or over HTTP.
    #[serde(default)]
    pub transport: Transport,
    /// How the proxy speaks to clients in front of a `stdio` server.
    #[serde(default)]
    pub proxy_mode: ProxyMode,
    /// The port on which the proxy listens.
    #[serde(default = "default_proxy_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub proxy_port: i32,
    /// The port on which the server listens, unless its transport is `stdio`. Left out, it is 8080.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub mcp_port: Option<i32>,
    /// Arguments of the server's command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub args: Vec<String>,
    /// Environment of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub env: Vec<EnvVar>,
    /// Directories of the node to mount into the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub volumes: Vec<Volume>,
    /// Compute resources of the proxy's container. Those of the server are set in `podTemplateSpec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Secret keys to put into the server's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub secrets: Vec<SecretEnv>,
    /// The ServiceAccount of the server's pods. Left out, one is made that may do nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// What the server may reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_profile: Option<PermissionProfile>,
    /// Merged into the server's pod template. The server's container is named `mcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_spec: Option<Object>,
    /// Changes to the objects that Skep makes for the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_overrides: Option<ProxyOverrides>,
    /// The MCPOIDCConfig that authenticates clients. Left out, no client is authenticated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_ref: Option<OidcConfigRef>,
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
    /// The MCPExternalAuthConfig with which the proxy authenticates to the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth_config_ref: Option<NameRef>,
    /// The MCPWebhookConfig whose webhooks see each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_config_ref: Option<NameRef>,
    /// The embedded authorization server that users sign in to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_server_ref: Option<AuthServerRef>,
    /// The MCPTelemetryConfig to report to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config_ref: Option<TelemetryConfigRef>,
    /// Whether `X-Forwarded-*` headers are believed. Only behind a proxy that sets them itself.
    #[serde(default)]
    pub trust_proxy_headers: bool,
    /// A path in front of the endpoints, where an ingress strips it before the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_prefix: Option<String>,
    /// The MCPGroup that this server belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_ref: Option<RequiredNameRef>,
    /// How the proxy's Service spreads connections over pods.
    #[serde(default)]
    pub session_affinity: SessionAffinity,
    /// How many proxy pods run. Left out, the operator does not set the number, so that an autoscaler can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// How many server pods run. Left out, the operator does not set the number, so that an autoscaler can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub backend_replicas: Option<i32>,
    /// Where sessions are kept. Several proxy pods need a shared store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_storage: Option<SessionStorage>,
    /// How often the server may be called. Counted in the Redis of `sessionStorage`, or else by each proxy for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limiting: Option<RateLimiting>,
}

/// How a server speaks MCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Over standard input and output.
    #[default]
    Stdio,
    /// Over streamable HTTP.
    StreamableHttp,
    /// Over server-sent events, the transport of the first revision of MCP.
    Sse,
}

/// How the proxy of a `stdio` server speaks to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyMode {
    /// Over server-sent events.
    Sse,
    /// Over streamable HTTP.
    #[default]
    StreamableHttp,
}

/// A directory of the node, mounted into the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name of the volume.
    pub name: String,
    /// The directory on the node.
    pub host_path: String,
    /// Where it appears in the server.
    pub mount_path: String,
    /// Whether the server may only read it.
    #[serde(default)]
    pub read_only: bool,
}

/// A Secret key that becomes an environment variable of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretEnv {
    /// Name of the Secret.
    pub name: String,
    /// Key inside the Secret.
    pub key: String,
    /// Name of the variable. Left out, it is the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_env_name: Option<String>,
}

/// What a server may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["name", "type"]))]
pub struct PermissionProfile {
    /// Where the profile is kept.
    #[serde(default, rename = "type")]
    pub source: PermissionProfileSource,
    /// Name of the built-in profile (`none` or `network`) or of the ConfigMap.
    pub name: String,
    /// Key inside the ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Where a permission profile is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PermissionProfileSource {
    /// One of the profiles that come with Skep.
    #[default]
    Builtin,
    /// A ConfigMap.
    ConfigMap,
}

/// What is known about an MCPServer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPServerStatus {
    /// What is known about the server, one aspect each.
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
    /// Where clients inside the cluster reach the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The state in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<MCPServerPhase>,
    /// The state in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How many proxy pods are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
}

/// The state of an MCPServer in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MCPServerPhase {
    /// On its way.
    #[default]
    Pending,
    /// Answering.
    Ready,
    /// Cannot run as written; the conditions say why.
    Failed,
    /// Being deleted.
    Terminating,
    /// Scaled to zero.
    Stopped,
}

fn default_proxy_port() -> i32 {
    8080
}
