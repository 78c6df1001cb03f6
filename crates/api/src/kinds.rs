//! The fourteen kinds, one file each, and the table that lists them.

mod authz_config;
mod composite_tool;
mod embedding_server;
mod external_auth_config;
mod group;
mod oidc_config;
mod registry;
mod remote_proxy;
mod server;
mod server_entry;
mod telemetry_config;
mod tool_config;
mod virtual_server;
mod webhook_config;

pub use authz_config::{MCPAuthzConfig, MCPAuthzConfigSpec};
pub use composite_tool::{
    AnswerAction, CompositeTool, CompositeToolStatus, ErrorAction, OnAnswer, OnError, Output, OutputProperty,
    OutputType, Step, StepType, ValidationStatus, VirtualMCPCompositeToolDefinition,
};
pub use embedding_server::{
    AccessMode, EmbeddingOverrides, EmbeddingServer, EmbeddingServerPhase, EmbeddingServerSpec, EmbeddingServerStatus,
    ImagePullPolicy, ModelCache, StatefulSetOverrides,
};
pub use external_auth_config::{
    AssertionSubject, AwsRoleMapping, AwsSts, BearerToken, CrossAppAccess, ExternalAuthMethod, HeaderInjection,
    MCPExternalAuthConfig, MCPExternalAuthConfigSpec, OnBehalfOf, TokenExchange, UpstreamInject,
};
pub use group::{MCPGroup, MCPGroupPhase, MCPGroupSpec, MCPGroupStatus};
pub use oidc_config::{InlineOidc, KubernetesServiceAccountOidc, MCPOIDCConfig, MCPOIDCConfigSpec, OidcSource};
pub use registry::{MCPRegistry, MCPRegistryPhase, MCPRegistrySpec, MCPRegistryStatus};
pub use remote_proxy::{MCPRemoteProxy, MCPRemoteProxyPhase, MCPRemoteProxySpec, MCPRemoteProxyStatus};
pub use server::{
    MCPServer, MCPServerPhase, MCPServerSpec, MCPServerStatus, PermissionProfile, PermissionProfileSource, ProxyMode,
    SecretEnv, Transport, Volume,
};
pub use server_entry::{MCPServerEntry, MCPServerEntryPhase, MCPServerEntrySpec, MCPServerEntryStatus};
pub use telemetry_config::{
    MCPTelemetryConfig, MCPTelemetryConfigSpec, Metrics, OpenTelemetry, Prometheus, SensitiveHeader, Tracing,
};
pub use tool_config::{MCPToolConfig, MCPToolConfigSpec, ToolAnnotations, ToolOverride};
pub use virtual_server::{
    BackendAuth, BackendAuthType, CircuitState, DiscoveredBackend, IncomingAuth, IncomingAuthType, OutgoingAuth,
    OutgoingAuthSource, ServiceType, VirtualMCPServer, VirtualMCPServerPhase, VirtualMCPServerSpec,
    VirtualMCPServerStatus,
};
pub use webhook_config::{FailurePolicy, MCPWebhookConfig, MCPWebhookConfigSpec, Webhook, WebhookTls};
