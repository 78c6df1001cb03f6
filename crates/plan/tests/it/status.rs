//! What holds for every status, whatever a resource says and whatever runs for it: no part of it contradicts another, and nothing is
//! shown as in force that the serving pods do not run.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_plan::child::{Child, ChildKind};
use skep_plan::plan::{Plan, Verdict, plan};
use skep_plan::pod::PodStamps;
use skep_plan::status::ConditionStatus;
use skep_plan::world::{
    Failure, Feature, Live, LivePod, LiveWorkload, PodState, RolloutProgress, UpstreamReport, UpstreamState, World,
};

use crate::laws::{Engines, settings, specs, world_objects};

/// Every status field that holds the hash of a configuration.
pub(crate) const HASHES: &[&str] = &[
    "oidcConfigHash",
    "authzConfigHash",
    "telemetryConfigHash",
    "toolConfigHash",
    "webhookConfigHash",
    "externalAuthConfigHash",
    "authServerConfigHash",
];
/// The reason of a plan that the spec is not at fault for.
const OF_THE_CLUSTER: &[&str] = &["NameTaken", "ApplyRefused"];

/// What is drawn about a pod: whether it carries the stamps of the plan, and how it is.
type PodDraw = (bool, u8);

/// Everything that is drawn about what runs.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
struct Drawn {
    replicas: i32,
    observed: i64,
    updated: i32,
    completed: bool,
    pods: Vec<PodDraw>,
    backend: Option<(i32, i32, Option<i64>)>,
    upstream: Option<UpstreamState>,
    is_taken: bool,
    is_refused: bool,
    has_services: bool,
    was_ready: bool,
    has_evicted: bool,
    is_paused: bool,
    unsupported: BTreeSet<Feature>,
}

impl Drawn {
    /// The same with a proxy of which all is well: by chance it hardly ever is, and then nothing is seen of what its backend adds.
    fn serving(self) -> Self {
        let backend = self.backend.map(|drawn| if drawn.1 > 0 { (1, 1, drawn.2) } else { drawn });
        Self {
            replicas: 1,
            observed: 1,
            updated: 1,
            completed: true,
            pods: vec![(true, 0)],
            backend,
            upstream: self.upstream.filter(|_| self.was_ready),
            is_taken: false,
            is_refused: false,
            has_services: true,
            has_evicted: false,
            unsupported: BTreeSet::new(),
            ..self
        }
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let features = prop::sample::subsequence(Feature::ALL.to_vec(), 0..=Feature::ALL.len());
    // Most worlds support everything, or hardly any plan would be applied.
    let features = prop_oneof![3 => Just(Vec::new()), 1 => features];
    let upstream = prop::option::of(prop_oneof![Just(UpstreamState::Starting), Just(UpstreamState::Degraded)]);
    let backend = prop::option::weighted(0.8, (0..3_i32, 0..3_i32, prop::option::weighted(0.8, 0..5_i64)));
    (
        (0..4_i32, 0..3_i64, 0..4_i32, any::<bool>(), prop::collection::vec((any::<bool>(), 0..4_u8), 0..4), backend),
        (upstream, prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>(), any::<bool>(), features),
        (prop::bool::weighted(0.3), prop::bool::weighted(0.2)),
        any::<bool>(),
    )
        .prop_map(|(running, flags, (has_evicted, is_paused), serves)| {
            let (replicas, observed, updated, completed, pods, backend) = running;
            let (upstream, is_taken, is_refused, has_services, was_ready, unsupported) = flags;
            let unsupported = unsupported.into_iter().collect();
            let drawn = Drawn {
                replicas,
                observed,
                updated,
                completed,
                pods,
                backend,
                upstream,
                is_taken,
                is_refused,
                has_services,
                was_ready,
                has_evicted,
                is_paused,
                unsupported,
            };
            if serves { drawn.serving() } else { drawn }
        })
}

/// Specs of every kind that has pods or says whether it is valid, good and bad.
fn resources() -> impl Strategy<Value = (KindName, Value)> {
    let or = |values: &[Value]| prop::sample::select(values.to_vec());
    let optional = |value: Value| or(&[Value::Null, value]);
    let size = |text: &str| json!({ "limits": { "memory": text } });
    let template = json!({ "spec": { "containers": 7 } });
    let server = json!({ "kind": "MCPExternalAuthConfig", "name": "as" });
    let remote = (
        or(&[json!("https://mcp.example"), json!("http://127.0.0.1"), json!("nonsense")]),
        (optional(json!({ "name": "tools" })), optional(json!({ "name": "idp", "audience": "a", "resourceUrl": "a" }))),
        (optional(server), or(&[Value::Null, json!({ "name": "as" }), json!({ "name": "missing" })])),
        (optional(size("lots")), optional(template.clone()), optional(json!({ "enabled": true }))),
    )
        .prop_map(|(url, (tools, idp), (server, external), (size, template, audit))| {
            (
                KindName::MCPRemoteProxy,
                json!({
                    "remoteUrl": url, "toolConfigRef": tools, "oidcConfigRef": idp, "authServerRef": server,
                    "externalAuthConfigRef": external, "resources": size, "podTemplateSpec": template, "audit": audit,
                }),
            )
        });
    let incoming = or(&[
        json!({ "type": "anonymous" }),
        json!({ "type": "oidc" }),
        json!({ "type": "oidc", "oidcConfigRef": { "name": "idp", "audience": "a" } }),
    ]);
    let virtual_server = (or(&[json!("g"), json!("missing")]), incoming, optional(template.clone()), optional(json!({ "name": "e" })), optional(json!({ "name": "hooks" })))
        .prop_map(|(group, incoming, template, embedding, hooks)| {
            (KindName::VirtualMCPServer, json!({
                "groupRef": { "name": group }, "incomingAuth": incoming, "podTemplateSpec": template, "embeddingServerRef": embedding,
                "webhookConfigRef": hooks,
            }))
        });
    let embedding = (optional(template), optional(json!({ "size": "big" })), optional(size("lots"))).prop_map(|(template, cache, size)| {
        (KindName::EmbeddingServer, json!({ "model": "m", "image": "i", "port": 80, "podTemplateSpec": template, "modelCache": cache, "resources": size }))
    });
    let registry = (or(&[json!([]), json!([7])]), optional(json!({ "name": "missing", "key": "k" }))).prop_map(
        |(volumes, secret)| {
            (
                KindName::MCPRegistry,
                json!({ "configYAML": "sources: []", "volumes": volumes, "pgpassSecretRef": secret }),
            )
        },
    );
    let entry = or(&[json!("https://mcp.example"), json!("nonsense")]).prop_map(|url| {
        (KindName::MCPServerEntry, json!({ "remoteUrl": url, "transport": "sse", "groupRef": { "name": "g" } }))
    });
    let audit = optional(json!({ "enabled": true }));
    let servers = (specs(), audit).prop_map(|(mut spec, audit)| {
        spec["audit"] = audit;
        (KindName::MCPServer, spec)
    });
    prop_oneof![3 => servers, 3 => remote, 2 => virtual_server, 2 => embedding, 2 => registry, 1 => entry].prop_map(
        |(kind, mut spec)| {
            spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            (kind, spec)
        },
    )
}

/// One plan, and what it was made from.
struct Case {
    me: Resource,
    live: Live,
    plan: Plan,
    /// The stamps of the pods that the plan asks for.
    planned: Option<PodStamps>,
}

fn case(kind: KindName, spec: &Value, drawn: &Drawn) -> Case {
    let mut found = world_objects();
    let server = json!({ "type": "embeddedAuthServer", "embeddedAuthServer": {
        "issuer": "https://as.example",
        "upstreamProviders": [{ "name": "up", "type": "oidc", "oidcConfig": { "issuerUrl": "https://up.example", "clientId": "c" } }],
    }});
    let (key, config) = crate::laws::found(KindName::MCPExternalAuthConfig, "as", &server);
    found.insert(key, config);
    let conditions = json!([{
        "type": "Ready", "status": if drawn.was_ready { "True" } else { "False" }, "reason": "A", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3,
    }]);
    let object = json!({
        "metadata": { "name": "s", "namespace": "ns", "uid": "u", "generation": 3 }, "spec": spec, "status": { "conditions": conditions },
    });
    let me = Resource::from_value(kind, object).unwrap();
    let mut settings = settings();
    settings.unsupported.clone_from(&drawn.unsupported);
    settings.unsupported_by_vmcp = Some(drawn.unsupported.clone());
    let users = BTreeSet::new();
    let planned_in =
        |live: &Live| plan(&me, &World { settings: &settings, found: &found, users: &users, live, policies: &Engines });
    let first = planned_in(&Live::default());
    let planned = stamps(&first.children);
    let live = live(drawn, &first.children, planned.as_ref());
    let plan = planned_in(&live);
    Case { me, live, plan, planned }
}

fn stamps(children: &[Child]) -> Option<PodStamps> {
    let workload = children.iter().find(|child| child.kind().has_generation())?;
    let annotations = &workload.body()["spec"]["template"]["metadata"]["annotations"];
    Some(PodStamps::of(|name| annotations[name].as_str()))
}

fn live(drawn: &Drawn, children: &[Child], planned: Option<&PodStamps>) -> Live {
    let failure = |reason: &str| Failure { reason: reason.to_owned(), message: "it fell".to_owned(), is_first: false };
    let pod = |(index, (is_planned, state)): (usize, &PodDraw)| LivePod {
        name: format!("s-{index}"),
        uid: format!("uid-{index}"),
        state: match state {
            0 => PodState::Ready,
            1 => PodState::Pending,
            2 => PodState::Failed(failure("CrashLoopBackOff")),
            _ => PodState::Failed(failure(Failure::UNSCHEDULABLE)),
        },
        stamps: planned.filter(|_| *is_planned).cloned().unwrap_or_else(|| PodStamps::of(|_| Some("other"))),
        revision: Some(if *is_planned { "new" } else { "old" }.to_owned()),
        created: String::new(),
    };
    let pods: Vec<LivePod> = drawn.pods.iter().enumerate().map(pod).collect();
    let total = i32::try_from(pods.len()).unwrap();
    let progress = RolloutProgress {
        observed_generation: drawn.observed,
        total,
        updated: drawn.updated,
        completed: drawn.completed,
        ..RolloutProgress::default()
    };
    let ready = pods.iter().filter(|pod| pod.state == PodState::Ready).count();
    let evicted = LivePod { state: PodState::Failed(failure("Evicted")), ..pod((7, &(true, 0))) };
    let workload = LiveWorkload {
        ended: drawn.has_evicted.then_some(evicted).into_iter().collect(),
        is_paused: drawn.is_paused,
        replicas: drawn.replicas,
        ready: i32::try_from(ready).unwrap(),
        generation: 1,
        progress,
        ours: true,
        ..LiveWorkload::default()
    };
    let backend = drawn.backend.map(|(replicas, ready, generation_stamp)| LiveWorkload {
        replicas,
        ready,
        generation_stamp,
        generation: 1,
        progress: RolloutProgress {
            observed_generation: 1,
            total: replicas,
            updated: replicas,
            ..RolloutProgress::default()
        },
        upstream: drawn.upstream.map(|state| UpstreamReport {
            pod: "s-0".to_owned(),
            state,
            answered: drawn.was_ready,
            message: "refused".to_owned(),
        }),
        ..LiveWorkload::default()
    });
    let services = children.iter().filter(|child| child.kind() == ChildKind::Service && drawn.has_services);
    Live {
        workload: Some(workload).filter(|_| !drawn.pods.is_empty() || drawn.observed > 0),
        backend,
        pods,
        services: services.map(|child| child.name().to_owned()).collect(),
        name_conflicts: drawn
            .is_taken
            .then(|| (ChildKind::Service, "s".to_owned(), "another".to_owned()))
            .into_iter()
            .collect(),
        refused: drawn.is_refused.then(|| "the API server refused it".to_owned()),
        ..Live::default()
    }
}

impl Case {
    fn status_of(&self, condition: &str) -> Option<ConditionStatus> {
        self.plan.status.find(condition).map(|one| one.status)
    }

    fn phase(&self) -> &str {
        self.plan.status.field("phase").and_then(Value::as_str).unwrap_or_default()
    }

    fn why(&self) -> Option<&str> {
        match &self.plan.verdict {
            Verdict::Apply => None,
            Verdict::Wait(why) | Verdict::Refuse(why) => Some(why),
        }
    }

    fn reason(&self) -> &str {
        self.plan.status.find("Ready").map_or("", |ready| ready.reason.as_str())
    }
}

/// How kstatus, and with it Flux, assesses an object of a kind that it has no rules of its own for: by the generation, then `Stalled`, then
/// `Ready`.
fn kstatus(generation: i64, status: &Value) -> &'static str {
    let find = |kind: &str| status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == kind);
    if status["observedGeneration"].as_i64() != Some(generation) {
        return "InProgress";
    }
    if find("Reconciling").is_some_and(|one| one["status"] == "True") {
        return "InProgress";
    }
    if find("Stalled").is_some_and(|one| one["status"] == "True") {
        return "Failed";
    }
    match find("Ready").and_then(|one| one["status"].as_str()) {
        Some("False" | "Unknown") => "InProgress",
        _ => "Current",
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_condition_contradicts_another_the_phase_or_the_verdict((kind, spec) in resources(), drawn in drawn()) {
        let case = case(kind, &spec, &drawn);
        let (ready, is_stalled) = (case.status_of("Ready"), case.status_of("Stalled") == Some(ConditionStatus::True));
        if ready == Some(ConditionStatus::True) {
            prop_assert_eq!(case.phase(), "Ready");
            prop_assert_eq!(&case.plan.verdict, &Verdict::Apply);
            prop_assert!(!is_stalled);
        }
        if let Some(why) = case.why() {
            let reported = case.plan.status.find("Ready").unwrap();
            prop_assert!(reported.is_false() && reported.message.contains(why), "{:?}", reported);
            prop_assert_eq!(is_stalled, matches!(case.plan.verdict, Verdict::Refuse(_)));
            prop_assert!(case.phase() != "Ready" || case.live.pods.iter().any(|pod| pod.state == PodState::Ready));
        }
        prop_assert!(ready == Some(ConditionStatus::False) || !is_stalled, "stalled, and on its way");
    }

    #[test]
    fn nothing_is_called_valid_beside_a_plan_that_it_stops((kind, spec) in resources(), drawn in drawn()) {
        let case = case(kind, &spec, &drawn);
        let Some(why) = case.why() else { return Ok(()) };
        let is_of_the_cluster = OF_THE_CLUSTER.contains(&case.reason());
        if case.status_of("ConfigurationValid") == Some(ConditionStatus::True) {
            prop_assert!(is_of_the_cluster, "the configuration is valid, and refused: {}", why);
        }
        if case.status_of("Valid") == Some(ConditionStatus::True) {
            let reported = case.plan.status.conditions().iter().any(|one| one.kind != "Ready" && one.is_false() && one.message == why);
            prop_assert!(reported || is_of_the_cluster || case.reason() == "NotSupported", "it is valid, and refused: {}", why);
        }
        for condition in case.plan.status.conditions() {
            prop_assert!(!(condition.is_true() && condition.kind != "Stalled" && condition.message.contains(why)), "{:?}", condition);
        }
    }

    #[test]
    fn an_address_belongs_to_a_service_that_is_there_or_is_applied((kind, spec) in resources(), drawn in drawn()) {
        let case = case(kind, &spec, &drawn);
        let is_applied = case.plan.verdict == Verdict::Apply && case.plan.children.iter().any(|child| child.kind() == ChildKind::Service);
        match case.plan.status.field("url") {
            Some(Value::String(_)) => prop_assert!(is_applied),
            // What is not said stays as it is.
            None => prop_assert!(!case.live.services.is_empty() || kind == KindName::MCPServerEntry),
            Some(other) => {
                // The address of a registry is there only while it answers.
                let is_silent = kind == KindName::MCPRegistry && case.live.pods.iter().all(|pod| pod.state != PodState::Ready);
                prop_assert!(other.is_null() && (!is_applied || is_silent));
            }
        }
    }

    #[test]
    fn ready_means_the_pods_of_this_plan_and_hashes_are_those_of_what_serves((kind, spec) in resources(), drawn in drawn()) {
        let case = case(kind, &spec, &drawn);
        if matches!(kind, KindName::MCPServerEntry | KindName::EmbeddingServer) {
            return Ok(());
        }
        let is_current = |pod: &&LivePod| Some(&pod.stamps) == case.planned.as_ref();
        let ready: Vec<&LivePod> = case.live.pods.iter().filter(|pod| pod.state == PodState::Ready).collect();
        if case.status_of("Ready") == Some(ConditionStatus::True) {
            prop_assert!(!ready.is_empty() && case.live.pods.iter().all(|pod| is_current(&pod)));
            prop_assert!(case.live.workload.as_ref().unwrap().progress.observed_generation >= 1);
            if kind == KindName::MCPServer {
                let backend = case.live.backend.as_ref().unwrap();
                prop_assert!(backend.ready > 0 && drawn.upstream.is_none() && backend.generation_stamp.is_none_or(|stamp| stamp >= 3));
            }
        }
        // A pod of an earlier plan that is not ready now may be so at its next probe.
        if case.live.pods.iter().any(|pod| !is_current(&pod)) {
            for hash in HASHES {
                prop_assert_eq!(case.plan.status.field(hash), None, "{} would be shown as in force", hash);
            }
        }
    }

    #[test]
    fn unsupported_features_are_never_applied_and_those_that_only_observe_are_reported((kind, spec) in resources(), drawn in drawn()) {
        let case = case(kind, &spec, &drawn);
        let lacks = |feature: Feature| drawn.unsupported.contains(&feature);
        let applies = case.plan.verdict == Verdict::Apply;
        let names = |field: &str| spec.get(field).is_some();
        let is_proxy = matches!(kind, KindName::MCPServer | KindName::MCPRemoteProxy);
        prop_assert!(!(applies && is_proxy && names("oidcConfigRef") && lacks(Feature::Authentication)));
        prop_assert!(!(applies && names("webhookConfigRef") && lacks(Feature::Webhooks)));
        prop_assert!(!(applies && is_proxy && names("audit") && lacks(Feature::Audit)));
        prop_assert!(!(applies && kind == KindName::VirtualMCPServer && lacks(Feature::VirtualServer)));
        if case.reason() == "NotSupported" {
            prop_assert!(!applies && case.plan.children.is_empty());
        }
        let is_reported = case.status_of("TracingInForce") == Some(ConditionStatus::False);
        prop_assert_eq!(is_reported, is_proxy && names("telemetryConfigRef") && lacks(Feature::Tracing));
    }

    #[test]
    fn health_checks_of_gitops_tools_call_current_what_is_ready_and_failed_what_only_people_can_help((kind, spec) in resources(), drawn in drawn()) {
        let case = case(kind, &spec, &drawn);
        let Some(ready) = case.status_of("Ready") else { return Ok(()) };
        let status = case.plan.status.onto(&case.me.status_value(), 3, "2026-01-01T00:00:00Z");
        let is_stalled = case.status_of("Stalled").is_some();
        let expected = match ready {
            ConditionStatus::True => "Current",
            _ if is_stalled => "Failed",
            _ => "InProgress",
        };
        prop_assert_eq!(kstatus(3, &status), expected);
        // An edit that is not reconciled yet is in progress, whatever the status said before.
        prop_assert_eq!(kstatus(4, &status), "InProgress");
        if matches!(case.plan.verdict, Verdict::Refuse(_)) {
            prop_assert_eq!(expected, "Failed");
        }
    }

    #[test]
    fn every_status_is_accepted_by_its_schema_and_written_once((kind, spec) in resources(), drawn in drawn()) {
        let case = case(kind, &spec, &drawn);
        let old = case.me.status_value();
        let once = case.plan.status.onto(&old, 3, "2026-01-01T00:00:00Z");
        prop_assert_eq!(case.plan.status.onto(&once, 3, "2026-02-02T00:00:00Z"), once.clone());
        let types: BTreeMap<&str, usize> = once["conditions"].as_array().unwrap().iter().fold(BTreeMap::new(), |mut all, one| {
            *all.entry(one["type"].as_str().unwrap()).or_default() += 1;
            all
        });
        prop_assert!(types.values().all(|count| *count == 1), "{:?}", types);
        for condition in case.plan.status.conditions() {
            let is_word = condition.reason.chars().all(|one| one.is_ascii_alphanumeric()) && !condition.reason.is_empty();
            prop_assert!(is_word && !condition.message.is_empty(), "{:?}", condition);
        }
    }
}
