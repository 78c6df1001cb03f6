//! The fields that the specs of all kinds of proxies have.

use skep_api::authz::AuthzConfig;
use skep_api::kinds::{MCPRemoteProxySpec, MCPServerSpec, PermissionProfile};
use skep_api::reference::{AuthServerRef, NameRef, OidcConfigRef, RequiredNameRef, TelemetryConfigRef};
use skep_api::schema::Object;
use skep_api::workload::{
    HeaderForward, ProxyDeploymentOverrides, ProxyOverrides, Resources, SessionAffinity, SessionStorage,
};

/// The fields of a spec that concern its proxy; those that a kind does not have are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxySpec<'a> {
    pub(crate) proxy_port: i32,
    pub(crate) oidc_config_ref: Option<&'a OidcConfigRef>,
    pub(crate) external_auth_config_ref: Option<&'a NameRef>,
    pub(crate) auth_server_ref: Option<&'a AuthServerRef>,
    pub(crate) authz_config: Option<&'a AuthzConfig>,
    pub(crate) authz_config_ref: Option<&'a RequiredNameRef>,
    pub(crate) tool_config_ref: Option<&'a NameRef>,
    pub(crate) telemetry_config_ref: Option<&'a TelemetryConfigRef>,
    pub(crate) webhook_config_ref: Option<&'a NameRef>,
    pub(crate) group_ref: Option<&'a RequiredNameRef>,
    pub(crate) has_audit: bool,
    pub(crate) resources: Option<&'a Resources>,
    pub(crate) service_account: Option<&'a str>,
    pub(crate) pod_template_spec: Option<&'a Object>,
    pub(crate) resource_overrides: Option<&'a ProxyOverrides>,
    pub(crate) trust_proxy_headers: bool,
    pub(crate) endpoint_prefix: Option<&'a str>,
    pub(crate) session_affinity: SessionAffinity,
    pub(crate) session_storage: Option<&'a SessionStorage>,
    pub(crate) replicas: Option<i32>,
    pub(crate) permission_profile: Option<&'a PermissionProfile>,
    pub(crate) header_forward: Option<&'a HeaderForward>,
}

macro_rules! proxy_spec {
    ($kind:ty { $($own:ident),* } without { $($absent:ident),* }) => {
        impl<'a> From<&'a $kind> for ProxySpec<'a> {
            fn from(spec: &'a $kind) -> Self {
                Self {
                    proxy_port: spec.proxy_port,
                    oidc_config_ref: spec.oidc_config_ref.as_ref(),
                    external_auth_config_ref: spec.external_auth_config_ref.as_ref(),
                    auth_server_ref: spec.auth_server_ref.as_ref(),
                    authz_config: spec.authz_config.as_ref(),
                    authz_config_ref: spec.authz_config_ref.as_ref(),
                    tool_config_ref: spec.tool_config_ref.as_ref(),
                    telemetry_config_ref: spec.telemetry_config_ref.as_ref(),
                    webhook_config_ref: spec.webhook_config_ref.as_ref(),
                    group_ref: spec.group_ref.as_ref(),
                    has_audit: spec.audit.as_ref().is_some_and(|audit| audit.enabled),
                    resources: spec.resources.as_ref(),
                    service_account: spec.service_account.as_deref().filter(|account| !account.is_empty()),
                    pod_template_spec: spec.pod_template_spec.as_ref(),
                    resource_overrides: spec.resource_overrides.as_ref(),
                    trust_proxy_headers: spec.trust_proxy_headers,
                    endpoint_prefix: spec.endpoint_prefix.as_deref(),
                    session_affinity: spec.session_affinity,
                    session_storage: spec.session_storage.as_ref(),
                    replicas: spec.replicas,
                    $($own: spec.$own.as_ref(),)*
                    $($absent: None,)*
                }
            }
        }
    };
}

proxy_spec!(MCPServerSpec { permission_profile } without { header_forward });
proxy_spec!(MCPRemoteProxySpec { header_forward } without { permission_profile });

// === impl ProxySpec ===

impl<'a> ProxySpec<'a> {
    /// The overrides of the Deployment.
    pub(crate) fn deployment_overrides(&self) -> Option<&'a ProxyDeploymentOverrides> {
        self.resource_overrides.and_then(|overrides| overrides.proxy_deployment.as_ref())
    }
}
