//! `MCPServer`: a proxy, its Service, its rights and its RunConfig. The server behind it is brought about by the proxy.

mod advice;
mod children;
mod document;
mod image;
mod state;

use serde_json::json;
use skep_api::kinds::{ExternalAuthMethod, MCPServer, MCPServerSpec, PermissionProfileSource, ProxyMode, Transport};
use skep_api::resource::Resource;

pub(crate) use advice::session_warning;

use crate::names;
use crate::overrides::DroppedOverrides;
use crate::plan::{BackendAction, Finalizer, Plan, Verdict};
use crate::proxy::{check_template, children_unless, observed_by};
use crate::readiness::set_url;
use crate::refusal::{missing_config_map, missing_policies};
use crate::resolve::{self, Resolver};
use crate::status::Status;
use crate::support;
use crate::world::World;

/// What a server's references lead to, all valid.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    oidc: Option<&'a skep_api::kinds::MCPOIDCConfigSpec>,
    tools: Option<&'a skep_api::kinds::MCPToolConfigSpec>,
    telemetry: Option<&'a skep_api::kinds::MCPTelemetryConfigSpec>,
    external_auth: Option<&'a skep_api::kinds::MCPExternalAuthConfigSpec>,
    webhooks: Option<&'a skep_api::kinds::MCPWebhookConfigSpec>,
    authz: Option<&'a skep_api::kinds::MCPAuthzConfigSpec>,
    auth_server: Option<&'a skep_api::auth_server::EmbeddedAuthServer>,
}

/// Plans a server.
pub(crate) fn plan(me: &Resource, object: &MCPServer, world: &World<'_>) -> Plan {
    if me.is_deleting() {
        return farewell(me);
    }
    let spec = &object.spec;
    let mut status = Status::default();
    advice::add(&mut status, object);

    let mut resolver = Resolver::new(world, me.namespace(), status);
    let inputs = resolve(&mut resolver, spec);
    resolver.group(spec.group_ref.as_ref());
    if let Some(inline) = inputs.oidc.and_then(|oidc| oidc.inline.as_ref()) {
        resolver.ca_bundle(inline.ca_bundle_ref.as_ref());
    }
    let (mut status, failure) = (resolver.status, resolver.failure);
    let failure = failure.or(check_template(&mut status, spec.pod_template_spec.as_ref()));
    let failure = failure.or(image::check(&mut status, &spec.image, world.settings.site));
    let failure = failure.or_else(|| missing(me, spec, world));
    let audit = spec.audit.as_ref().is_some_and(|audit| audit.enabled);
    support::report(&mut status, &observed_by(inputs.telemetry, audit), world.settings);
    let mut dropped = DroppedOverrides::default();
    let build = || children::build(me, object, &inputs, world, &mut dropped);
    let outcome = children_unless(failure, build, me, world);
    dropped.report(&mut status);
    set_url(&mut status, url(me, spec), &outcome.verdict, &names::server_service(me.name()), world.live);
    state::add(&mut status, object, &outcome, world);

    let mut plan = Plan::without_children(me, status);
    plan.verdict = outcome.verdict;
    plan.children = outcome.children;
    if plan.verdict == Verdict::Apply {
        plan.backend = BackendAction::Adopt;
    }
    restart(&mut plan, object);
    plan
}

/// The last plan of a server: everything goes. So does the StatefulSet of its proxy, in case it was never adopted.
fn farewell(me: &Resource) -> Plan {
    let mut status = Status::default();
    status.set("phase", "Terminating").set("message", "MCP server is being terminated").condition(
        "Ready",
        false,
        "NotReady",
        "MCP server is being terminated",
    );
    let mut plan = Plan::without_children(me, status);
    plan.finalizer = Finalizer::Release;
    plan.backend = BackendAction::Delete;
    plan
}

fn resolve<'a>(resolver: &mut Resolver<'a>, spec: &MCPServerSpec) -> Inputs<'a> {
    fn name(reference: Option<&skep_api::reference::NameRef>) -> Option<&str> {
        reference.map(|reference| reference.name.as_str())
    }
    let tools = resolver.tools(name(spec.tool_config_ref.as_ref()), resolve::TOOLS);
    let telemetry = spec.telemetry_config_ref.as_ref().map(|reference| reference.name.as_str());
    let telemetry = resolver.telemetry(telemetry, resolve::TELEMETRY);
    let external_name = name(spec.external_auth_config_ref.as_ref());
    let external_auth = resolver.proxy_external_auth(external_name);
    let webhooks = resolver.webhooks(name(spec.webhook_config_ref.as_ref()), resolve::WEBHOOKS);
    let mut auth_server = resolver.auth_server(spec.auth_server_ref.as_ref());
    if let Some(config) = external_auth.filter(|config| config.method == ExternalAuthMethod::EmbeddedAuthServer) {
        let embedded = resolver.embedded(external_name.unwrap_or_default(), config);
        auth_server = resolver.one_auth_server(auth_server, embedded);
    }
    let oidc = spec.oidc_config_ref.as_ref().map(|reference| reference.name.as_str());
    let oidc = resolver.oidc(oidc, resolve::OIDC);
    let authz = spec.authz_config_ref.as_ref().map(|reference| reference.name.as_str());
    let authz = resolver.authz(authz, resolve::AUTHZ);
    Inputs { oidc, tools, telemetry, external_auth, webhooks, authz, auth_server }
}

/// Waits for the ConfigMaps that the spec names: they may come after the server.
fn missing(me: &Resource, spec: &MCPServerSpec, world: &World<'_>) -> Option<Verdict> {
    let profile = spec.permission_profile.as_ref().filter(|one| one.source == PermissionProfileSource::ConfigMap);
    let profile = profile.and_then(|one| Some((one.name.as_str(), one.key.as_deref().filter(|key| !key.is_empty())?)));
    let profile =
        profile.and_then(|(name, key)| missing_config_map("spec.permissionProfile", name, key, me.namespace(), world));
    let policies = spec.authz_config.as_ref().filter(|_| spec.authz_config_ref.is_none());
    let policies = policies.and_then(|authz| missing_policies(authz, me.namespace(), world));
    profile.or(policies).map(Verdict::Wait)
}

/// Where clients inside the cluster reach the server. It follows the spec.
pub(crate) fn url(me: &Resource, spec: &MCPServerSpec) -> String {
    let base = base_url(me, spec);
    let sse = match spec.transport {
        Transport::Sse => true,
        Transport::Stdio => spec.proxy_mode == ProxyMode::Sse,
        Transport::StreamableHttp => false,
    };
    if sse { format!("{base}/sse#{}", me.name()) } else { format!("{base}/mcp") }
}

/// The proxy's Service, without a path.
pub(crate) fn base_url(me: &Resource, spec: &MCPServerSpec) -> String {
    format!("http://{}:{}", names::host(&names::server_service(me.name()), me.namespace()), spec.proxy_port)
}

/// As the RunConfig spells a transport.
pub(crate) const fn transport(transport: Transport) -> &'static str {
    match transport {
        Transport::Stdio => "stdio",
        Transport::StreamableHttp => "streamable-http",
        Transport::Sse => "sse",
    }
}

/// Notes that a restart was seen. The restart itself is the annotation in both pod templates; with the strategy `immediate`
/// the pods of the proxy are deleted as well, once.
fn restart(plan: &mut Plan, object: &MCPServer) {
    let annotations = object.metadata.annotations.clone().unwrap_or_default();
    let Some(asked) = children::restart_stamp(object) else { return };
    // One that is not asked for any more, or not newer, is the last one.
    if annotations.get(advice::LAST_RESTART) == Some(&asked) {
        return;
    }
    plan.restart_pods = annotations.get(advice::RESTART_STRATEGY).is_some_and(|strategy| strategy == "immediate");
    plan.annotations.insert(advice::LAST_RESTART.to_owned(), json!(asked));
}
