//! `MCPRemoteProxy`: a proxy in front of a server that somebody else runs.

mod children;

use skep_api::auth_server::EmbeddedAuthServer;
use skep_api::kinds::{
    ExternalAuthMethod, MCPAuthzConfigSpec, MCPExternalAuthConfigSpec, MCPOIDCConfigSpec, MCPRemoteProxy,
    MCPTelemetryConfigSpec, MCPToolConfigSpec,
};
use skep_api::reference::NameRef;
use skep_api::resource::Resource;
use skep_api::workload::StorageProvider;

use crate::names;
use crate::overrides::DroppedOverrides;
use crate::plan::{Plan, Verdict};
use crate::proxy::{Outcome, check_template, children_unless, observed_by};
use crate::readiness::{Readiness, Words, keep_hashes, set_url, was_ready};
use crate::refusal::{missing_policies, missing_secret};
use crate::resolve::{self, Resolver};
use crate::rollout::{Serving, observe};
use crate::status::Status;
use crate::support;
use crate::text::{check_forwarded_header, remote_url};
use crate::world::World;

const WORDS: Words = Words {
    subject: "Remote proxy",
    no_pods: "No pods found for remote proxy",
    failed: "Remote proxy failed to start",
    stopped: "Pending",
    ready: "DeploymentReady",
    not_ready: "DeploymentNotReady",
};

/// What a proxy's references lead to, all valid.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    oidc: Option<&'a MCPOIDCConfigSpec>,
    tools: Option<&'a MCPToolConfigSpec>,
    telemetry: Option<&'a MCPTelemetryConfigSpec>,
    external_auth: Option<&'a MCPExternalAuthConfigSpec>,
    authz: Option<&'a MCPAuthzConfigSpec>,
    auth_server: Option<&'a EmbeddedAuthServer>,
}

/// What is wrong with a spec: the reason of the condition, and what to do.
struct Wrong {
    reason: &'static str,
    message: String,
    /// Whether a Secret or ConfigMap is missing, which may come later.
    is_missing: bool,
}

impl Wrong {
    fn invalid(reason: &'static str, message: String) -> Self {
        Self { reason, message, is_missing: false }
    }

    fn missing(reason: &'static str, message: String) -> Self {
        Self { reason, message, is_missing: true }
    }

    fn verdict(&self) -> Verdict {
        let message = self.message.clone();
        if self.is_missing { Verdict::Wait(message) } else { Verdict::Refuse(message) }
    }
}

/// Plans a remote proxy. It has no finalizer: its children go by their owner references.
pub(crate) fn plan(me: &Resource, object: &MCPRemoteProxy, world: &World<'_>) -> Plan {
    if me.is_deleting() {
        return farewell(me);
    }
    let spec = &object.spec;
    let mut status = Status::default();
    sessions(&mut status, object);
    let mut resolver = Resolver::new(world, me.namespace(), status);
    let inputs = resolve(&mut resolver, object);
    resolver.group(spec.group_ref.as_ref());
    if let Some(inline) = inputs.oidc.and_then(|oidc| oidc.inline.as_ref()) {
        resolver.ca_bundle(inline.ca_bundle_ref.as_ref());
    }
    let (mut status, mut failure) = (resolver.status, resolver.failure);
    let wrong = check(me, object, world).err();
    if let Some(wrong) = &wrong {
        failure.get_or_insert_with(|| wrong.verdict());
    }
    let failure = failure.or(check_template(&mut status, spec.pod_template_spec.as_ref()));
    let external = status.find("ExternalAuthConfigValidated").filter(|condition| condition.is_false());
    if let Some(message) = external.map(|condition| condition.message.clone()) {
        status.condition("AuthConfigured", false, "AuthInvalid", message);
    }
    let audit = spec.audit.as_ref().is_some_and(|audit| audit.enabled);
    support::report(&mut status, &observed_by(inputs.telemetry, audit), world.settings);
    let mut dropped = DroppedOverrides::default();
    let build = || children::build(me, object, &inputs, world, &mut dropped);
    let outcome = children_unless(failure, build, me, world);
    dropped.report(&mut status);
    configuration(&mut status, wrong, &outcome);
    let service = names::remote_proxy_service(me.name());
    set_url(&mut status, base_url(me, object), &outcome.verdict, &service, world.live);
    readiness(&mut status, object, &outcome, world);
    let mut plan = Plan::without_children(me, status);
    plan.verdict = outcome.verdict;
    plan.children = outcome.children;
    plan
}

/// Says whether the configuration can be applied: as the verdict says, in the words of whichever check failed first.
fn configuration(status: &mut Status, wrong: Option<Wrong>, outcome: &Outcome) {
    const CONDITION: &str = "ConfigurationValid";
    match (wrong, &outcome.verdict) {
        (Some(Wrong { reason, message, .. }), _) => status.condition(CONDITION, false, reason, message),
        (None, Verdict::Wait(why) | Verdict::Refuse(why)) if outcome.is_misconfigured() => {
            let told = status.conditions().iter().find(|known| known.is_false() && known.message == *why);
            let reason = told.map_or(outcome.reason, |known| Some(known.reason.as_str())).unwrap_or("ValidationFailed");
            let reason = reason.to_owned();
            status.condition(CONDITION, false, &reason, why)
        }
        _ => status.condition(CONDITION, true, CONDITION, "All configuration validations passed"),
    };
}

/// The last plan, while somebody else holds the object or waits for its children to go: everything goes, and nothing is made again.
fn farewell(me: &Resource) -> Plan {
    const MESSAGE: &str = "MCP remote proxy is being terminated";
    let mut status = Status::default();
    status.set("phase", "Terminating").set("message", MESSAGE).condition("Ready", false, "NotReady", MESSAGE);
    Plan::without_children(me, status)
}

/// The proxy's Service.
pub(crate) fn base_url(me: &Resource, object: &MCPRemoteProxy) -> String {
    format!(
        "http://{}:{}",
        names::host(&names::remote_proxy_service(me.name()), me.namespace()),
        object.spec.proxy_port
    )
}

fn resolve<'a>(resolver: &mut Resolver<'a>, object: &MCPRemoteProxy) -> Inputs<'a> {
    fn name(reference: Option<&NameRef>) -> Option<&str> {
        reference.map(|reference| reference.name.as_str())
    }
    let spec = &object.spec;
    let tools = resolver.tools(name(spec.tool_config_ref.as_ref()), resolve::TOOLS);
    let telemetry = spec.telemetry_config_ref.as_ref().map(|reference| reference.name.as_str());
    let telemetry = resolver.telemetry(telemetry, resolve::TELEMETRY);
    let external_name = name(spec.external_auth_config_ref.as_ref());
    let external_auth = resolver.proxy_external_auth(external_name);
    let mut auth_server = resolver.auth_server(spec.auth_server_ref.as_ref());
    if let Some(config) = external_auth.filter(|config| config.method == ExternalAuthMethod::EmbeddedAuthServer) {
        let embedded = resolver.embedded(external_name.unwrap_or_default(), config);
        auth_server = resolver.one_auth_server(auth_server, embedded);
    }
    let oidc = spec.oidc_config_ref.as_ref().map(|reference| reference.name.as_str());
    let oidc = resolver.oidc(oidc, resolve::OIDC);
    let authz = spec.authz_config_ref.as_ref().map(|reference| reference.name.as_str());
    let authz = resolver.authz(authz, resolve::AUTHZ);
    Inputs { oidc, tools, telemetry, external_auth, authz, auth_server }
}

/// What the schema cannot say: where the URL may lead, that policies parse, that Secrets of headers exist.
fn check(me: &Resource, object: &MCPRemoteProxy, world: &World<'_>) -> Result<(), Wrong> {
    let spec = &object.spec;
    remote_url(&spec.remote_url, spec.allow_private_endpoint, world.settings.site)
        .map_err(|error| Wrong::invalid("RemoteURLInvalid", format!("spec.remoteUrl: {error}")))?;
    if let Some(authz) = &spec.authz_config {
        if let Some(message) = missing_policies(authz, me.namespace(), world) {
            return Err(Wrong::missing("AuthzConfigMapNotFound", message));
        }
        let reason = if authz.config_map.is_some() { "AuthzConfigMapInvalid" } else { "AuthzPolicySyntaxInvalid" };
        crate::authz::in_place(authz, me.namespace(), world).map_err(|message| Wrong::invalid(reason, message))?;
    }
    check_headers(object)?;
    for header in spec.header_forward.iter().flat_map(|headers| &headers.add_headers_from_secret) {
        let secret = &header.value_secret_ref;
        let field = format!("header `{}`", header.header_name);
        if let Some(message) = missing_secret(&field, &secret.name, &secret.key, me.namespace(), world) {
            return Err(Wrong::missing("HeaderSecretNotFound", message));
        }
    }
    Ok(())
}

/// Refuses headers with which the proxy would not start.
fn check_headers(object: &MCPRemoteProxy) -> Result<(), Wrong> {
    let Some(headers) = &object.spec.header_forward else { return Ok(()) };
    let plain = headers.add_plaintext_headers.keys();
    let named = plain.chain(headers.add_headers_from_secret.iter().map(|header| &header.header_name));
    let wrong = |problem: String| Wrong::invalid("HeaderForwardInvalid", format!("spec.headerForward: {problem}"));
    for name in named {
        check_forwarded_header(name).map_err(|error| wrong(error.to_string()))?;
    }
    // As HTTP has it: no control character but a tab.
    let is_sent = |value: &str| value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
    match headers.add_plaintext_headers.iter().find(|(_, value)| !is_sent(value)) {
        Some((name, _)) => Err(wrong(format!("the value of `{name}` has a control character in it; remove it"))),
        None => Ok(()),
    }
}

fn sessions(status: &mut Status, object: &MCPRemoteProxy) {
    let spec = &object.spec;
    let redis = spec.session_storage.as_ref().is_some_and(|storage| storage.provider == StorageProvider::Redis);
    crate::server::session_warning(status, spec.replicas.unwrap_or(1), redis);
    let inline = spec.authz_config.as_ref().and_then(|authz| authz.inline.as_ref());
    if inline.is_some_and(|inline| inline.primary_upstream_provider.is_some()) {
        let message = "primaryUpstreamProvider is ignored here: a proxy has one upstream provider at most";
        status.condition("AuthzPrimaryUpstreamProviderIgnored", true, "PrimaryUpstreamProviderIgnored", message);
    }
}

/// Adds phase, message and readiness: a pod counts when it is ready, not when it runs.
fn readiness(status: &mut Status, object: &MCPRemoteProxy, outcome: &Outcome, world: &World<'_>) {
    let (live, stamps) = (world.live, outcome.stamps());
    let was_ready = was_ready(&object.metadata, object.status.as_ref().map(|status| status.conditions.as_slice()));
    let rollout = observe(live.workload.as_ref(), &live.pods, stamps.as_ref().into(), was_ready);
    let verdict = match &outcome.verdict {
        Verdict::Refuse(why) if outcome.is_misconfigured() => Verdict::Refuse(format!("Validation failed: {why}")),
        Verdict::Wait(why) => Verdict::Wait(format!("Validation failed: {why}")),
        verdict => verdict.clone(),
    };
    let is_serving = rollout.serving != Serving::Nothing;
    let refused = Readiness::refused(&verdict, outcome.refusal_reason("NotReady"), "Failed", is_serving);
    refused.unwrap_or_else(|| Readiness::of(&rollout, &WORDS)).write(status);
    keep_hashes(status, &rollout);
}
