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
use crate::plan::{Plan, Verdict};
use crate::proxy::{check_template, children_unless};
use crate::resolve::{self, Resolver};
use crate::status::Status;
use crate::text::remote_url;
use crate::world::{PodState, World};

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
}

/// Plans a remote proxy. It has no finalizer: its children go by their owner references.
pub(crate) fn plan(me: &Resource, object: &MCPRemoteProxy, world: &World<'_>) -> Plan {
    if me.is_deleting() {
        return farewell(me);
    }
    let spec = &object.spec;
    let mut status = Status::default();
    status.set("url", base_url(me, object));
    sessions(&mut status, object);
    let mut resolver = Resolver::new(world, me.namespace(), status);
    let inputs = resolve(&mut resolver, object);
    resolver.group(spec.group_ref.as_ref());
    if let Some(inline) = inputs.oidc.and_then(|oidc| oidc.inline.as_ref()) {
        resolver.ca_bundle(inline.ca_bundle_ref.as_ref());
    }
    let (mut status, mut failure) = (resolver.status, resolver.failure);
    match check(me, object, world) {
        Ok(()) => {
            let message = "All configuration validations passed";
            status.condition("ConfigurationValid", true, "ConfigurationValid", message);
        }
        Err(wrong) => {
            status.condition("ConfigurationValid", false, wrong.reason, &wrong.message);
            failure.get_or_insert(Verdict::Refuse(wrong.message));
        }
    }
    let failure = failure.or(check_template(&mut status, spec.pod_template_spec.as_ref()));
    let external = status.find("ExternalAuthConfigValidated").filter(|condition| !condition.holds);
    if let Some(message) = external.map(|condition| condition.message.clone()) {
        status.condition("AuthConfigured", false, "AuthInvalid", message);
    }
    let (children, verdict) = children_unless(failure, || children::build(me, object, &inputs, world), me, world);
    readiness(&mut status, &verdict, world);
    let mut plan = Plan::without_children(me, status);
    plan.verdict = verdict;
    plan.children = children;
    plan
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
    let external_auth = resolver.external_auth(external_name, resolve::EXTERNAL_AUTH);
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
    remote_url(&spec.remote_url, spec.allow_private_endpoint)
        .map_err(|error| Wrong { reason: "RemoteURLInvalid", message: format!("spec.remoteUrl: {error}") })?;
    if let Some(authz) = &spec.authz_config {
        crate::authz::in_place(authz, me.namespace(), world).map_err(|message| {
            let missing =
                authz.config_map.as_ref().is_some_and(|map| world.config_map(me.namespace(), &map.name).is_none());
            let reason = match (&authz.config_map, missing) {
                (None, _) => "AuthzPolicySyntaxInvalid",
                (Some(_), true) => "AuthzConfigMapNotFound",
                (Some(_), false) => "AuthzConfigMapInvalid",
            };
            Wrong { reason, message }
        })?;
    }
    for header in spec.header_forward.iter().flat_map(|headers| &headers.add_headers_from_secret) {
        let secret = &header.value_secret_ref;
        let keys = world.secret(me.namespace(), &secret.name);
        let message = match keys {
            None => format!(
                "header `{}`: Secret `{}` not found; create it with the key `{}`",
                header.header_name, secret.name, secret.key
            ),
            Some(keys) if !keys.contains_key(&secret.key) => {
                format!("header `{}`: Secret `{}` has no key `{}`; add it", header.header_name, secret.name, secret.key)
            }
            Some(_) => continue,
        };
        return Err(Wrong { reason: "HeaderSecretNotFound", message });
    }
    Ok(())
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

/// Phase and readiness: a pod counts when it is ready, not when it runs.
fn readiness(status: &mut Status, verdict: &Verdict, world: &World<'_>) {
    let pods = &world.live.pods;
    let ready = pods.iter().any(|pod| pod.state == PodState::Ready);
    let failed = pods.iter().find_map(|pod| match &pod.state {
        PodState::Failed(reason) => Some(reason.clone()),
        _ => None,
    });
    let (phase, message, reason, detail) = match verdict {
        Verdict::Refuse(why) | Verdict::Wait(why) => {
            ("Failed", format!("Validation failed: {why}"), "NotReady", why.clone())
        }
        _ if ready => (
            "Ready",
            "Remote proxy is running".to_owned(),
            "DeploymentReady",
            "Deployment is ready and running".to_owned(),
        ),
        Verdict::Apply => match failed {
            Some(why) => (
                "Failed",
                format!("Remote proxy failed to start: {why}"),
                "DeploymentNotReady",
                format!("Deployment failed: {why}"),
            ),
            None if pods.is_empty() => (
                "Pending",
                "No pods found for remote proxy".to_owned(),
                "DeploymentNotReady",
                "No pods found".to_owned(),
            ),
            None => (
                "Pending",
                "Remote proxy is starting".to_owned(),
                "DeploymentNotReady",
                "Deployment is not yet ready".to_owned(),
            ),
        },
    };
    status.set("phase", phase).set("message", message).condition("Ready", phase == "Ready", reason, detail);
}
