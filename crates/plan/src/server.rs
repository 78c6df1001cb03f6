//! `MCPServer`: a proxy, its Service, its rights and its RunConfig. The proxy runs the MCP server.

mod advice;
mod backend;
mod document;
mod image;
mod state;

use std::collections::BTreeMap;

use serde_json::json;
use skep_api::kinds::{MCPServer, MCPServerSpec, PermissionProfileSource, ProxyMode, Transport};
use skep_api::resource::Resource;

use crate::account::{account, account_with};
use crate::child::Child;
use crate::error::{MissingKey, PlanError};
use crate::key::ObjectKind;
use crate::overrides::DroppedOverrides;
use crate::plan::{BackendAction, Plan, Verdict};
use crate::proxy::{
    self, EnvGroup, FileGroup, ProxyContext, ProxyDraft, ProxyKind, ProxyPlan, ProxyPod, ProxySpec, check_template,
};
use crate::status::Status;
use crate::world::{Live, LiveWorkload, World};
use crate::{grants, names};

/// How the proxy of a server differs from others.
const KIND: ProxyKind = ProxyKind {
    label: "mcp-server",
    service: names::server_service,
    account: names::server_runner,
    role: grants::SERVER_PROXY,
    env: &[
        EnvGroup::Telemetry,
        EnvGroup::ExternalAuth,
        EnvGroup::Headers,
        EnvGroup::Oidc,
        EnvGroup::Overrides,
        EnvGroup::SessionRedis,
        EnvGroup::Generation,
        EnvGroup::AuthServer,
    ],
    files: &[
        FileGroup::RunConfig,
        FileGroup::Webhooks,
        FileGroup::PermissionProfile,
        FileGroup::Authz,
        FileGroup::OidcCa,
        FileGroup::TelemetryCa,
        FileGroup::AuthServer,
    ],
    has_generation: true,
    config_map_first: false,
    readiness_delay: 5,
    grace_period: Some(30),
};

/// Plans a server.
pub(crate) fn plan(me: &Resource, object: &MCPServer, world: &World<'_>) -> Plan {
    if me.is_deleting() {
        // Its StatefulSet is deleted as well, in case it has no owner.
        let plan = Plan::terminating(me, "MCP server is being terminated");
        return Plan { backend: BackendAction::Delete, ..plan };
    }
    let spec = &object.spec;
    let mut status = Status::default();
    advice::add(&mut status, object);
    let (context, mut status, failure) = ProxyContext::resolve(me, &KIND, ProxySpec::from(spec), world, status);
    let failure = failure.or(check_template(&mut status, context.spec.pod_template_spec));
    let failure = failure.or(image::check(&mut status, &spec.image, world.settings.site));
    let failure = failure.or_else(|| missing(&context).err());
    let outcome = context.children_unless(failure, &mut status, |dropped| build(&context, object, dropped));
    context.set_url(&mut status, url(me, spec), &outcome.verdict());
    state::add(&mut status, object, &outcome, world);
    let mut plan = outcome.into_plan(me, status);
    if plan.verdict == Verdict::Apply {
        plan.backend = BackendAction::Adopt;
    }
    restart(&mut plan, object, world.live);
    plan
}

/// The plan of the proxy and its objects.
fn build(
    context: &ProxyContext<'_>,
    object: &MCPServer,
    dropped: &mut DroppedOverrides,
) -> Result<(ProxyPlan, Vec<Child>), PlanError> {
    let (me, live) = (context.me, context.world.live.workload.as_ref());
    let run_config = document::build(context, object)?;
    let env = serde_json::to_value(&run_config.env_vars).ok();
    dropped.compare_entries("spec.env", &requested_env(object), env.as_ref());
    backend::report_stamps(object, dropped);
    let restart = backend::restart_stamp(object).map(|at| (advice::RESTARTED_AT, at));
    let pod = ProxyPod {
        account: (KIND.account)(me.name()),
        replicas: replicas(object, live),
        stamps: restart.into_iter().collect(),
        template: None,
    };
    let draft = ProxyDraft {
        run_config,
        backend: backend::backend(me, object, context.world),
        pod,
        accounts: accounts(context),
    };
    proxy::build(context, draft, dropped)
}

/// The account of the proxy, and that of the server where the spec names none.
fn accounts(context: &ProxyContext<'_>) -> Vec<Child> {
    let (me, spec) = (context.me, &context.spec);
    let pull = context.pull_secrets();
    let mut accounts = account_with(me, &(KIND.account)(me.name()), &KIND.role, &pull);
    if spec.service_account.is_none() {
        accounts.push(account(me, &names::server_account(me.name()), &pull));
    }
    accounts
}

/// The variables that the user sets for the server; of several of one name the first.
fn requested_env(object: &MCPServer) -> BTreeMap<String, String> {
    object.spec.env.iter().rev().map(|variable| (variable.name.clone(), variable.value.clone())).collect()
}

/// How many proxies run, where the spec says so. A stdio server has one at most, also if another client scaled it.
fn replicas(object: &MCPServer, live: Option<&LiveWorkload>) -> Option<i32> {
    if object.spec.transport != Transport::Stdio {
        return object.spec.replicas;
    }
    let live = live.map(|live| live.replicas).filter(|replicas| *replicas > 1);
    object.spec.replicas.or(live).map(|replicas| replicas.min(1))
}

/// Waits for the ConfigMaps that the spec names: they may come after the server.
fn missing(context: &ProxyContext<'_>) -> Result<(), PlanError> {
    let ProxyContext { me, spec, world, .. } = context;
    let profile = spec.permission_profile.filter(|one| one.source == PermissionProfileSource::ConfigMap);
    let key = profile.and_then(|profile| profile.key.as_deref()).filter(|key| !key.is_empty());
    if let Some((profile, key)) = profile.zip(key) {
        MissingKey::check("spec.permissionProfile", (ObjectKind::ConfigMap, &profile.name, key), me.namespace(), world)
            .map_err(PlanError::MissingKey)?;
    }
    let policies = spec.authz_config.filter(|_| spec.authz_config_ref.is_none());
    let policies = policies.map(|authz| MissingKey::in_policies(authz, me.namespace(), world));
    policies.unwrap_or(Ok(())).map_err(PlanError::MissingKey)
}

/// Where clients inside the cluster reach the server. It follows the spec.
pub(crate) fn url(me: &Resource, spec: &MCPServerSpec) -> String {
    let base = KIND.base_url(me, spec.proxy_port);
    let sse = match spec.transport {
        Transport::Sse => true,
        Transport::Stdio => spec.proxy_mode == ProxyMode::Sse,
        Transport::StreamableHttp => false,
    };
    if sse { format!("{base}/sse#{}", me.name()) } else { format!("{base}/mcp") }
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
fn restart(plan: &mut Plan, object: &MCPServer, live: &Live) {
    let annotations = object.metadata.annotations.clone().unwrap_or_default();
    let Some(asked) = backend::restart_stamp(object) else { return };
    // One that is not asked for any more, or not newer, is the last one.
    if annotations.get(advice::LAST_RESTART) == Some(&asked) {
        return;
    }
    if annotations.get(advice::RESTART_STRATEGY).is_some_and(|strategy| strategy == "immediate") {
        // Those that carry it were made for it, at an earlier attempt to note that it was seen.
        let before = live.pods.iter().filter(|pod| !pod.stamps.is_restarted_at(&asked));
        plan.delete_pods.extend(before.cloned());
    }
    plan.annotations.insert(advice::LAST_RESTART.to_owned(), json!(asked));
}

#[cfg(test)]
mod tests {
    use skep_api::resource::KindName;

    use super::*;
    use crate::pod::{PodStamps, RESTARTED_AT};
    use crate::validate::testing::{Surroundings, resource};
    use crate::world::{LivePod, PodState};

    #[test]
    fn a_backend_of_a_greater_generation_is_not_ready_and_its_stamp_is_not_taken_over() {
        let me = resource(KindName::MCPServer, "s", &json!({ "image": "a" }));
        let first = crate::plan::plan(&me, &Surroundings::default().world());
        let ready = |stamp: i64| {
            let mut surroundings = Surroundings::default().carried_out(&first, &[PodState::Ready]);
            surroundings.live.backend =
                Some(LiveWorkload { replicas: 1, ready: 1, generation_stamp: Some(stamp), ..LiveWorkload::default() });
            let status = crate::plan::plan(&me, &surroundings.world()).status;
            let ready = status.find("Ready").unwrap().clone();
            (ready.is_false(), ready.reason, status.find("Stalled").is_some())
        };
        assert_eq!(ready(2), (true, "BackendGenerationConflict".to_owned(), true));
        assert_ne!(ready(1).1, "BackendGenerationConflict");
    }

    #[test]
    fn a_generation_that_another_client_stamped_is_healed() {
        let metadata = json!({ "name": "s", "namespace": "ns", "uid": "u", "generation": 5 });
        let at = |generation: i64| {
            let mut metadata = metadata.clone();
            metadata["generation"] = json!(generation);
            Resource::from_value(KindName::MCPServer, json!({ "metadata": metadata, "spec": { "image": "a" } }))
                .unwrap()
        };
        let first = crate::plan::plan(&at(3), &Surroundings::default().world());
        let stamp = |stamp: i64| {
            let mut surroundings = Surroundings::default().carried_out(&first, &[]);
            surroundings.live.workload.as_mut().unwrap().generation_stamp = Some(stamp);
            PodStamps::planned(&crate::plan::plan(&at(5), &surroundings.world()).children).unwrap().generation()
        };
        assert_eq!(stamp(3), Some(3), "the pods consume the same");
        assert_eq!([stamp(99), stamp(4), stamp(1)], [Some(5); 3]);
        // As after `kubectl rollout undo`: the stamp and its digest fit each other, and the backend is of a later generation.
        let undone = |backend: i64| {
            let mut surroundings = Surroundings::default().carried_out(&first, &[]);
            let workload = surroundings.live.workload.as_mut().unwrap();
            workload.generation_stamp = Some(3);
            surroundings.live.backend = Some(LiveWorkload { generation_stamp: Some(backend), ..workload.clone() });
            PodStamps::planned(&crate::plan::plan(&at(5), &surroundings.world()).children).unwrap().generation()
        };
        assert_eq!([undone(3), undone(4), undone(5), undone(99)], [Some(3), Some(5), Some(5), Some(3)]);
    }

    #[test]
    fn an_immediate_restart_deletes_the_pods_before_it_and_none_that_was_made_for_it() {
        let pod = |name: &str, at: &str| LivePod {
            name: name.to_owned(),
            uid: name.to_owned(),
            state: PodState::Ready,
            stamps: PodStamps::of(|annotation| (annotation == RESTARTED_AT).then_some(at)),
            revision: None,
            created: String::new(),
        };
        let mut surroundings = Surroundings::default();
        surroundings.live.pods = vec![pod("old", "2026-01-01T00:00:00Z"), pod("new", "2026-02-02T00:00:00Z")];
        let annotations = json!({ RESTARTED_AT: "2026-02-02T00:00:00Z", advice::RESTART_STRATEGY: "immediate" });
        let metadata =
            json!({ "name": "s", "namespace": "ns", "uid": "u", "generation": 1, "annotations": annotations });
        let object = json!({ "metadata": metadata, "spec": { "image": "a" } });
        let me = Resource::from_value(KindName::MCPServer, object).unwrap();
        let plan = crate::plan::plan(&me, &surroundings.world());
        let names: Vec<&str> = plan.delete_pods.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["old"]);
    }
}
