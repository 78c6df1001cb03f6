//! `MCPRemoteProxy`: a proxy in front of a remote MCP server.

use serde_json::Value;
use skep_api::kinds::MCPRemoteProxy;
use skep_api::resource::Resource;
use skep_api::workload::{RemoteTransport, StorageProvider};

use crate::account::account_with;
use crate::child::Child;
use crate::error::{MissingKey, PlanError};
use crate::key::ObjectKind;
use crate::overrides::DroppedOverrides;
use crate::plan::{Plan, Verdict};
use crate::proxy::{
    self, Backend, EnvGroup, FileGroup, Outcome, ProxyContext, ProxyDraft, ProxyKind, ProxyPlan, ProxyPod, ProxySpec,
    add_shared, check_template, session_warning,
};
use crate::readiness::{Readiness, ReadinessTexts, keep_hashes, was_ready};
use crate::rollout::{Serving, observe};
use crate::status::Status;
use crate::text::{check_forwarded_headers, remote_url};
use crate::world::World;
use crate::{authz, grants, names, run_config};

const TEXTS: ReadinessTexts = ReadinessTexts {
    subject: "Remote proxy",
    no_pods: "No pods found for remote proxy",
    failed: "Remote proxy failed to start",
    stopped: "Pending",
    ready: "DeploymentReady",
    not_ready: "DeploymentNotReady",
};

/// How a remote proxy differs from others.
const KIND: ProxyKind = ProxyKind {
    label: "mcp-remote-proxy",
    service: names::remote_proxy_service,
    account: names::remote_proxy_runner,
    role: grants::REMOTE_PROXY,
    has_generation: false,
    config_map_first: true,
    readiness_delay: 15,
    grace_period: None,
    files: &[
        FileGroup::RunConfig,
        FileGroup::Authz,
        FileGroup::TelemetryCa,
        FileGroup::OidcCa,
        FileGroup::AuthServer,
        FileGroup::Webhooks,
    ],
    env: &[
        EnvGroup::Oidc,
        EnvGroup::ExternalAuth,
        EnvGroup::Headers,
        EnvGroup::Telemetry,
        EnvGroup::Overrides,
        EnvGroup::SessionRedis,
        EnvGroup::AuthServer,
    ],
};

/// Plans a remote proxy. It has no finalizer: its children go by their owner references.
pub(crate) fn plan(me: &Resource, object: &MCPRemoteProxy, world: &World<'_>) -> Plan {
    if me.is_deleting() {
        return Plan::terminating(me, "MCP remote proxy is being terminated");
    }
    let mut status = Status::default();
    sessions(&mut status, object);
    let (context, mut status, mut failure) =
        ProxyContext::resolve(me, &KIND, ProxySpec::from(&object.spec), world, status);
    let invalid = check(me, object, world).err();
    if let Some(error) = &invalid {
        failure.get_or_insert_with(|| error.clone());
    }
    let failure = failure.or(check_template(&mut status, context.spec.pod_template_spec));
    let external = status.find("ExternalAuthConfigValidated").filter(|condition| condition.is_false());
    if let Some(message) = external.map(|condition| condition.message.clone()) {
        status.condition("AuthConfigured", false, "AuthInvalid", message);
    }
    let outcome = context.children_unless(failure, &mut status, |dropped| build(&context, object, dropped));
    configuration(&mut status, invalid.as_ref(), &outcome);
    context.set_url(&mut status, base_url(me, object), &outcome.verdict());
    readiness(&mut status, object, &outcome, world);
    outcome.into_plan(me, status)
}

/// The plan of the proxy and its objects.
fn build(
    context: &ProxyContext<'_>,
    object: &MCPRemoteProxy,
    dropped: &mut DroppedOverrides,
) -> Result<(ProxyPlan, Vec<Child>), PlanError> {
    let (me, spec) = (context.me, &context.spec);
    let runner = (KIND.account)(me.name());
    let accounts = match spec.service_account {
        Some(_) => Vec::new(),
        None => account_with(me, &runner, &KIND.role, &context.pull_secrets()),
    };
    let transport = match object.spec.transport {
        RemoteTransport::Sse => "sse",
        RemoteTransport::StreamableHttp => "streamable-http",
    };
    let mut run_config = run_config::base(me.name(), transport, transport, spec.proxy_port, context.world.settings);
    run_config.permission_profile = Some(run_config::open_profile());
    run_config.remote_url.clone_from(&object.spec.remote_url);
    run_config.allow_private_endpoint = object.spec.allow_private_endpoint;
    add_shared(&mut run_config, context)?;
    let pod = ProxyPod {
        account: spec.service_account.map_or(runner, str::to_owned),
        replicas: spec.replicas,
        template: spec.pod_template_spec.map(|template| Value::Object(template.0.clone())),
        stamps: Vec::new(),
    };
    proxy::build(context, ProxyDraft { run_config, backend: Backend::Remote, pod, accounts }, dropped)
}

/// Says whether the configuration can be applied: as the verdict says, with the reason and message of the first check that failed.
fn configuration(status: &mut Status, invalid: Option<&PlanError>, outcome: &Outcome) {
    const CONDITION: &str = "ConfigurationValid";
    match (invalid, &outcome.error) {
        (Some(error), _) => status.condition(CONDITION, false, error.reason(), error.to_string()),
        (None, Some(error)) if outcome.is_misconfigured() => {
            let why = error.to_string();
            let reported = status.conditions().iter().find(|known| known.is_false() && known.message == why);
            let reason = reported.map_or(error.reason(), |known| known.reason.as_str()).to_owned();
            status.condition(CONDITION, false, &reason, why)
        }
        _ => status.condition(CONDITION, true, CONDITION, "All configuration validations passed"),
    };
}

/// The proxy's Service.
pub(crate) fn base_url(me: &Resource, object: &MCPRemoteProxy) -> String {
    KIND.base_url(me, object.spec.proxy_port)
}

/// Checks what the schema cannot: where the URL leads, that policies parse, that Secrets of headers exist.
fn check(me: &Resource, object: &MCPRemoteProxy, world: &World<'_>) -> Result<(), PlanError> {
    let (spec, namespace) = (&object.spec, me.namespace());
    remote_url(&spec.remote_url, spec.allow_private_endpoint, world.settings.site)
        .map_err(|error| PlanError::InvalidRemoteUrl(error.to_string()))?;
    if let Some(own) = &spec.authz_config {
        MissingKey::in_policies(own, namespace, world)
            .map_err(|missing| PlanError::MissingPolicyMap(missing.to_string()))?;
        authz::in_place(own, namespace, world)?;
    }
    check_headers(object)?;
    for header in spec.header_forward.iter().flat_map(|headers| &headers.add_headers_from_secret) {
        let (secret, field) = (&header.value_secret_ref, format!("header `{}`", header.header_name));
        MissingKey::check(&field, (ObjectKind::Secret, &secret.name, &secret.key), namespace, world)
            .map_err(PlanError::MissingHeaderSecret)?;
    }
    Ok(())
}

/// Refuses headers with which the proxy would not start.
fn check_headers(object: &MCPRemoteProxy) -> Result<(), PlanError> {
    let Some(headers) = &object.spec.header_forward else { return Ok(()) };
    check_forwarded_headers(headers).map_err(|error| PlanError::InvalidHeaders(error.to_string()))?;
    // As HTTP has it: no control character but a tab.
    let is_sent = |value: &str| value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
    match headers.add_plaintext_headers.iter().find(|(_, value)| !is_sent(value)) {
        Some((name, _)) => {
            let problem = format!("the value of `{name}` has a control character in it; remove it");
            Err(PlanError::InvalidHeaders(problem))
        }
        None => Ok(()),
    }
}

fn sessions(status: &mut Status, object: &MCPRemoteProxy) {
    let spec = &object.spec;
    let redis = spec.session_storage.as_ref().is_some_and(|storage| storage.provider == StorageProvider::Redis);
    session_warning(status, spec.replicas.unwrap_or(1), redis);
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
    let verdict = match outcome.verdict() {
        Verdict::Refuse(why) if outcome.is_misconfigured() => Verdict::Refuse(format!("Validation failed: {why}")),
        Verdict::Wait(why) => Verdict::Wait(format!("Validation failed: {why}")),
        verdict => verdict,
    };
    let is_serving = rollout.serving != Serving::Nothing;
    let refused = Readiness::refused(&verdict, outcome.refusal_reason("NotReady"), "Failed", is_serving);
    refused.unwrap_or_else(|| Readiness::of(&rollout, &TEXTS)).write(status);
    keep_hashes(status, &rollout);
}
