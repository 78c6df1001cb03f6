//! The references of a proxy, resolved: one condition in the status about each.

use skep_api::auth_server::EmbeddedAuthServer;
use skep_api::kinds::{
    ExternalAuthMethod, MCPAuthzConfigSpec, MCPExternalAuthConfigSpec, MCPOIDCConfigSpec, MCPTelemetryConfigSpec,
    MCPToolConfigSpec, Transport,
};
use skep_api::resource::Resource;

use super::{ProxyContext, ProxyKind, ProxySpec};
use crate::error::PlanError;
use crate::resolve::{self, Resolver, ServerKind};
use crate::status::Status;
use crate::validate::reference_problems;
use crate::webhook::{Webhooks, webhooks};
use crate::world::World;

/// What the references of a proxy lead to, all valid.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) oidc: Option<&'a MCPOIDCConfigSpec>,
    pub(crate) tools: Option<&'a MCPToolConfigSpec>,
    pub(crate) telemetry: Option<&'a MCPTelemetryConfigSpec>,
    pub(crate) external_auth: Option<&'a MCPExternalAuthConfigSpec>,
    pub(crate) authz: Option<&'a MCPAuthzConfigSpec>,
    pub(crate) auth_server: Option<&'a EmbeddedAuthServer>,
    pub(crate) webhooks: Webhooks,
}

// === impl ProxyContext ===

impl<'a> ProxyContext<'a> {
    /// Resolves every reference of a spec: the context, the status so far, and the first failure.
    pub(crate) fn resolve(
        me: &'a Resource,
        kind: &'static ProxyKind,
        spec: ProxySpec<'a>,
        world: &'a World<'a>,
        status: Status,
    ) -> (Self, Status, Option<PlanError>) {
        let mut resolver = Resolver::new(world, me.namespace(), status);
        if let Err(error) = reference_problems(me).result() {
            resolver.fail(error);
        }
        let inputs = resolve(&mut resolver, &spec, server_kind(me));
        resolver.group(spec.group_ref);
        if let Some(inline) = inputs.oidc.and_then(|oidc| oidc.inline.as_ref()) {
            resolver.ca_bundle(inline.ca_bundle_ref.as_ref());
        }
        (Self { me, kind, spec, inputs, world }, resolver.status, resolver.failure)
    }
}

/// How the proxy of a resource reaches its MCP server.
fn server_kind(me: &Resource) -> ServerKind {
    match me {
        Resource::MCPServer(server) if server.spec.transport == Transport::Stdio => ServerKind::Stdio,
        Resource::MCPServer(_) => ServerKind::Http,
        _ => ServerKind::Remote,
    }
}

fn resolve<'a>(resolver: &mut Resolver<'a>, spec: &ProxySpec<'_>, server: ServerKind) -> Inputs<'a> {
    let tools = resolver.tools(spec.tool_config_ref.map(|reference| reference.name.as_str()), resolve::TOOLS);
    let telemetry = spec.telemetry_config_ref.map(|reference| reference.name.as_str());
    let telemetry = resolver.telemetry(telemetry, resolve::TELEMETRY);
    let external_name = spec.external_auth_config_ref.map(|reference| reference.name.as_str());
    let external_auth = resolver.proxy_external_auth(external_name, server);
    let hooks = spec.webhook_config_ref.map(|reference| reference.name.as_str());
    let hooks = resolver.webhooks(hooks, resolve::WEBHOOKS);
    let mut auth_server = resolver.auth_server(spec.auth_server_ref);
    if let Some(config) = external_auth.filter(|config| config.method == ExternalAuthMethod::EmbeddedAuthServer) {
        let embedded = resolver.embedded(external_name.unwrap_or_default(), config);
        auth_server = resolver.one_auth_server(auth_server, embedded);
    }
    let oidc = resolver.oidc(spec.oidc_config_ref.map(|reference| reference.name.as_str()), resolve::OIDC);
    let authz = resolver.authz(spec.authz_config_ref.map(|reference| reference.name.as_str()), resolve::AUTHZ);
    let webhooks = hooks.map(webhooks).unwrap_or_default();
    Inputs { oidc, tools, telemetry, external_auth, authz, auth_server, webhooks }
}
