//! `VirtualMCPServer`: many servers as one. A Deployment, its Service, its rights, its configuration, and the key of
//! its sessions.
//!
//! Where it stands in the spec that backends are `discovered`, the process finds the members of the group by itself and follows them, by
//! the same functions ([`discovered`]): no child depends on a member then. Where it says `inline`, the members stand in the
//! configuration, and a change of one rolls the pods. The list of its backends and their health is written by
//! the process; here it is only read, for the phase.

mod budget;
mod check;
mod children;
mod discovered;
mod document;
mod incoming;
mod members;
mod outgoing;
mod references;
mod state;

use std::collections::BTreeMap;

use serde_json::Value;
use skep_api::kinds::{
    CompositeTool, MCPOIDCConfigSpec, MCPTelemetryConfigSpec, MCPToolConfigSpec, VirtualMCPServer, VirtualMCPServerSpec,
};
use skep_api::reference::Reference;
use skep_api::resource::Resource;
use skep_api::virtual_config::{ResolvedIncomingAuth, StaticBackend};
use skep_bounds::BACKENDS;
use skep_runconfig::EmbeddedAuthServerConfig;
use skep_runconfig::feature::Feature;

use self::budget::{ReferenceBudget, Size};
pub(crate) use self::children::session_key;
pub use self::discovered::{DiscoveredMember, concerns, discovered, has_group, materials};
use self::members::Member;
pub use self::members::{ALLOW_PRIVATE, Variable};
use self::outgoing::Outgoing;
pub use self::outgoing::{DISCOVERED, UNRESOLVED};
use crate::error::{PlanError, check_names};
use crate::merge::check_pod_template;
use crate::names;
use crate::overrides::DroppedOverrides;
use crate::plan::{Plan, Verdict};
use crate::proxy::Outcome;
use crate::proxy::session_warning;
use crate::readiness::set_url;
use crate::resolve::{self, Resolver};
use crate::run_config::session_redis;
use crate::status::Status;
use crate::support;
use crate::text::derived_name;
use crate::validate::{in_one_line, reference_problems};
use crate::virtual_config;
use crate::webhook::{Webhooks, webhooks};
use crate::world::World;

/// Where it listens.
const PORT: i32 = 4483;
/// The condition about the user's pod template.
const TEMPLATE: &str = "PodTemplateSpecValid";

/// What a virtual server's references lead to, all valid.
#[derive(Debug, Default)]
struct Inputs<'a> {
    oidc: Option<&'a MCPOIDCConfigSpec>,
    /// The authentication and authorization of clients.
    incoming: ResolvedIncomingAuth,
    /// The document of the authorization server that users sign in to.
    auth_server: Option<EmbeddedAuthServerConfig>,
    telemetry: Option<&'a MCPTelemetryConfigSpec>,
    webhooks: Webhooks,
    tools: BTreeMap<String, &'a MCPToolConfigSpec>,
    composite_tools: Vec<&'a CompositeTool>,
    embedding_service: Option<String>,
    outgoing: Outgoing,
    /// The members that stand in the configuration; none where the process finds them by itself.
    served: Vec<Member<'a>>,
    /// The same, as the configuration names them.
    backends: Vec<StaticBackend>,
    /// The variables that carry the headers of entries.
    headers: BTreeMap<String, Variable>,
    /// What the pods read through references of others.
    read: Vec<Reference>,
}

/// Plans a virtual server. It has no finalizer: its children go by their owner references.
pub(crate) fn plan(me: &Resource, object: &VirtualMCPServer, world: &World<'_>) -> Plan {
    if me.is_deleting() {
        return plan_deletion(me);
    }
    let spec = &object.spec;
    let mut status = Status::default();
    state::report_backends(&mut status, object);
    let redis = session_redis(spec.session_storage.as_ref(), world.settings).is_some();
    session_warning(&mut status, spec.replicas.unwrap_or(1), redis);

    let mut resolver = Resolver::new(world, me.namespace(), status);
    let inputs = match check::count(spec) {
        Ok(()) => {
            check(&mut resolver, me, spec);
            resolve(&mut resolver, me, spec, world)
        }
        // There is a condition for each entry, so nothing is resolved of too many.
        Err(error) => {
            resolver.reject("Valid", error);
            Inputs::default()
        }
    };
    if let Some(Err(problem)) = &world.live.session_key {
        let advice = "delete the Secret, and a new one is made; all sessions end then";
        let message = format!("Secret `{}`: {problem}; {advice}", names::virtual_session_key(me.name()));
        resolver.reject("SessionKeyValid", PlanError::invalid("HMACSecretValidationFailed", message));
    }
    // What the spec is not at fault for is in `Ready` alone.
    let supported = support::check_virtual(&needed(spec), world.settings);
    let (mut built, mut process) = (Vec::new(), None);
    if resolver.failure.is_none() && supported.is_ok() {
        let mut dropped = DroppedOverrides::default();
        let children = children::build(me, object, &inputs, world, &mut dropped);
        dropped.report(&mut resolver.status);
        match children {
            Ok((children, planned)) => (built, process) = (children, Some(planned)),
            Err(error) => {
                let condition = if error.is_of_template() { TEMPLATE } else { "Valid" };
                resolver.reject(condition, error);
            }
        }
    }
    let (mut status, failure) = (resolver.status, resolver.failure);
    let unfit = supported.and_then(|()| check_names(me, world));
    let outcome = Outcome { children: built, proxy: None, error: failure.or(unfit.err()) };
    let verdict = outcome.verdict();
    set_url(&mut status, base_url(me), &verdict, &names::virtual_service(me.name()), world.live);
    state::add(&mut status, object, &outcome, world);

    let mut plan = Plan::without_children(me, status);
    if verdict == Verdict::Apply {
        plan.children = outcome.children;
        plan.virtual_server = process.map(Box::new);
        plan.generated_secret = Some(session_key(me));
    }
    plan.verdict = verdict;
    plan
}

/// What a virtual server requests of its process, with the field that does.
fn needed(spec: &VirtualMCPServerSpec) -> Vec<(Feature, String)> {
    let mut needed = vec![(Feature::VirtualServer, "kind VirtualMCPServer".to_owned())];
    let configured = spec.config.iter().flat_map(virtual_config::needed);
    needed.extend(configured.map(|(feature, member)| (feature, format!("spec.config.{member}"))));
    let is_listed = needed.iter().any(|(feature, _)| *feature == Feature::Optimizer);
    if spec.embedding_server_ref.is_some() && !is_listed {
        needed.push((Feature::Optimizer, "spec.embeddingServerRef".to_owned()));
    }
    if spec.webhook_config_ref.is_some() {
        needed.push((Feature::Webhooks, "spec.webhookConfigRef".to_owned()));
    }
    if spec.auth_server_config.is_some() {
        needed.push((Feature::EmbeddedAuthServer, "spec.authServerConfig".to_owned()));
    }
    needed
}

/// Where clients inside the cluster reach it.
fn base_url(me: &Resource) -> String {
    format!("http://{}:{PORT}", names::host(&names::virtual_service(me.name()), me.namespace()))
}

/// The plan of a virtual server that is being deleted, while another controller holds a finalizer: its children are removed. Its phase
/// is `Pending`, as the kind has none for a deletion.
fn plan_deletion(me: &Resource) -> Plan {
    const MESSAGE: &str = "Virtual MCP server is being deleted";
    let mut status = Status::default();
    status.set("phase", "Pending").set("message", MESSAGE).keep_condition("BackendsDiscovered").condition(
        "Ready",
        false,
        "DeploymentNotReady",
        MESSAGE,
    );
    Plan::without_children(me, status)
}

/// What is wrong with the spec by itself.
fn check(resolver: &mut Resolver<'_>, me: &Resource, spec: &VirtualMCPServerSpec) {
    let mut problems = reference_problems(me);
    problems.under("", check::problems(spec));
    problems.check("metadata.name", derived_name(&["vmcp-", me.name()]).map(drop));
    match problems.result() {
        Ok(()) => {
            resolver.status.condition("Valid", true, "ValidationSucceeded", "Spec validation passed");
        }
        Err(error) => resolver.reject("Valid", error),
    }
    let Some(template) = &spec.pod_template_spec else { return };
    match check_pod_template(&Value::Object(template.0.clone())) {
        Ok(()) => {
            resolver.status.condition(TEMPLATE, true, "PodTemplateSpecValid", "PodTemplateSpec is valid");
        }
        Err(error) => resolver.reject(TEMPLATE, error),
    }
}

/// Resolves every reference, with a condition in the status about each; the first that fails decides.
fn resolve<'a>(
    resolver: &mut Resolver<'a>,
    me: &'a Resource,
    spec: &'a VirtualMCPServerSpec,
    world: &'a World<'a>,
) -> Inputs<'a> {
    let (namespace, config, incoming) = (me.namespace(), spec.config.as_ref(), &spec.incoming_auth);
    let group = &spec.group_ref.name;
    references::group(resolver, namespace, group, world);
    references::members_listed(resolver, world);
    let mut budget = ReferenceBudget::default();
    let composite_tools = references::composite_tools(resolver, &mut budget, config, namespace, world);
    let embedding_service = references::embedding_server(resolver, spec, namespace, world);
    let tools = references::tool_configs(resolver, &mut budget, config, namespace, world);
    incoming::auth_server(resolver, spec);
    let oidc = incoming::oidc(resolver, incoming);
    let shared = incoming::shared_authz(resolver, incoming);
    let telemetry = spec.telemetry_config_ref.as_ref().map(|reference| reference.name.as_str());
    let telemetry = resolver.telemetry(telemetry, resolve::TELEMETRY);
    let hooks = spec.webhook_config_ref.as_ref().map(|reference| reference.name.as_str());
    let webhooks = resolver.webhooks(hooks, resolve::WEBHOOKS).map(webhooks).unwrap_or_default();
    let policies = incoming::authentication(resolver, me, incoming, shared, world);
    let (incoming, auth_server) = incoming::document(resolver, me, spec, oidc, policies.as_ref());
    references::embedding_readiness(resolver, spec, namespace, world);

    let mut members = members::members(world, namespace, group);
    if members.len() > BACKENDS {
        let message = format!(
            "MCPGroup `{group}` has {} members, and a virtual server serves at most {BACKENDS}; split the group",
            members.len()
        );
        resolver.reject("MembersListed", PlanError::invalid("TooManyMembers", message));
        members.clear();
    }
    let outgoing = outgoing::resolve(&mut resolver.status, &mut budget, spec, &members, namespace, world);
    let mut inputs = Inputs {
        oidc,
        incoming,
        auth_server,
        telemetry,
        webhooks,
        tools,
        composite_tools,
        embedding_service,
        outgoing,
        ..Inputs::default()
    };
    if outgoing::is_inline(spec) {
        serve(resolver, &mut budget, &mut inputs, &members, spec, world);
    }
    inputs
}

/// Puts the members into the configuration. One that cannot be there is left out, and a condition says so.
fn serve<'a>(
    resolver: &mut Resolver<'_>,
    budget: &mut ReferenceBudget,
    inputs: &mut Inputs<'a>,
    members: &[Member<'a>],
    spec: &VirtualMCPServerSpec,
    world: &World<'_>,
) {
    const CONDITION: &str = "BackendsConfigured";
    let mut left_out = Vec::new();
    let mut owners: BTreeMap<String, Member<'_>> = BTreeMap::new();
    for member in members {
        let refused = inputs.outgoing.failed.get(member.name()).cloned();
        let refused = refused.or_else(|| member.clash(&owners));
        let backend = refused.map_or_else(|| member.backend(&spec.group_ref.name, world), Err);
        let backend = backend.and_then(|backend| {
            let headers = member.headers_beside(&inputs.headers)?;
            let size = Size::of(&(&backend, headers.values().map(Variable::text).collect::<Vec<_>>()));
            budget.charge(size).map_err(|error| PlanError::InvalidSpec(error.to_string()))?;
            Ok((backend, headers))
        });
        match backend {
            Ok((backend, headers)) => {
                inputs.backends.push(backend);
                inputs.served.push(*member);
                if let Some(owner) = member.owner() {
                    owners.entry(owner).or_insert(*member);
                }
                inputs.read.extend(member.inputs());
                inputs.headers.extend(headers);
            }
            Err(problem) => left_out.push(format!("`{}` is left out: {problem}", member.name())),
        }
    }
    inputs.read.append(&mut inputs.outgoing.inputs);
    let named = spec.config.as_ref().is_some_and(|config| !config.backends.is_empty());
    if inputs.backends.is_empty() && !named {
        left_out.insert(0, format!("no member of MCPGroup `{}` can be served; add one", spec.group_ref.name));
        resolver.reject(CONDITION, PlanError::not_ready("NoBackends", in_one_line(&left_out)));
    } else if left_out.is_empty() {
        let message = format!("all {} members of the group are in the configuration", inputs.backends.len());
        resolver.status.condition(CONDITION, true, "BackendsConfigured", message);
    } else {
        resolver.status.condition(CONDITION, false, "BackendsLeftOut", in_one_line(&left_out));
    }
}

#[cfg(test)]
mod tests;
