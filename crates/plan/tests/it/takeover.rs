//! What holds over a sequence of states: the hashes in a status are those of the configuration that the serving pods run, whatever
//! happened to the pods before.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_plan::child::ChildKind;
use skep_plan::key::Key;
use skep_plan::plan::{Plan, Verdict};
use skep_plan::pod::PodStamps;
use skep_plan::world::{Failure, Found, Live, LivePod, LiveWorkload, PodState, RolloutProgress};

use crate::laws::{found, planned, world_objects};
use crate::status::HASHES;

const NOW: &str = "2026-01-01T00:00:00Z";
/// The generation of the Deployment of the current plan.
const GENERATION: i64 = 2;

/// What is drawn about one state: the pods, whether each carries the stamps of the plan, and how it is; what the controller says.
#[derive(Clone, Debug)]
struct StateDraw {
    pods: Vec<(bool, u8)>,
    replicas: i32,
    observed: i64,
    updated: i32,
    is_refused: bool,
}

fn states() -> impl Strategy<Value = Vec<StateDraw>> {
    let pods = prop::collection::vec((any::<bool>(), 0..4_u8), 0..4);
    let state = (pods, 1..4_i32, 1..=GENERATION, 0..4_i32, prop::bool::weighted(0.2)).prop_map(
        |(pods, replicas, observed, updated, is_refused)| StateDraw { pods, replicas, observed, updated, is_refused },
    );
    prop::collection::vec(state, 1..8)
}

/// A resource of each kind whose status holds hashes, with a reference to every kind of configuration that it can have.
fn workloads() -> Vec<(KindName, Value)> {
    let idp = json!({ "name": "as-idp", "audience": "a", "resourceUrl": "a" });
    let server = json!({ "kind": "MCPExternalAuthConfig", "name": "as" });
    vec![
        (
            KindName::MCPServer,
            json!({
                "image": "i", "transport": "streamable-http", "oidcConfigRef": idp, "authzConfigRef": { "name": "policies" },
                "telemetryConfigRef": { "name": "otel" }, "toolConfigRef": { "name": "tools" }, "webhookConfigRef": { "name": "hooks" },
                "externalAuthConfigRef": { "name": "token" }, "authServerRef": server,
            }),
        ),
        (
            KindName::MCPRemoteProxy,
            json!({
                "remoteUrl": "https://mcp.example", "oidcConfigRef": idp, "webhookConfigRef": { "name": "hooks" }, "authzConfigRef": { "name": "policies" },
                "telemetryConfigRef": { "name": "otel" }, "toolConfigRef": { "name": "tools" },
                "externalAuthConfigRef": { "name": "token" }, "authServerRef": server,
            }),
        ),
        (
            KindName::VirtualMCPServer,
            json!({
                "groupRef": { "name": "g" }, "telemetryConfigRef": { "name": "otel" }, "webhookConfigRef": { "name": "hooks" },
                "incomingAuth": { "type": "oidc", "oidcConfigRef": { "name": "idp", "audience": "a" }, "authzConfigRef": { "name": "policies" } },
            }),
        ),
    ]
}

fn objects() -> BTreeMap<Key, Found> {
    let mut all = world_objects();
    let server = json!({ "type": "embeddedAuthServer", "embeddedAuthServer": {
        "issuer": "https://as.example",
        "upstreamProviders": [{ "name": "up", "type": "oidc", "oidcConfig": { "issuerUrl": "https://up.example", "clientId": "c" } }],
    }});
    let policies = json!({ "type": "cedarv1", "config": { "policies": ["permit(principal, action, resource);"], "entities_json": "[]" } });
    let token = json!({ "type": "bearerToken", "bearerToken": { "tokenSecretRef": { "name": "s", "key": "k" } } });
    all.extend([
        found(KindName::MCPExternalAuthConfig, "as", &server),
        found(KindName::MCPExternalAuthConfig, "token", &token),
        found(KindName::MCPAuthzConfig, "policies", &policies),
        found(
            KindName::MCPOIDCConfig,
            "as-idp",
            &json!({ "type": "inline", "inline": { "issuer": "https://as.example" } }),
        ),
    ]);
    all
}

fn resource(kind: KindName, spec: &Value, status: &Value) -> Resource {
    let metadata = json!({ "name": "s", "namespace": "ns", "uid": "u", "generation": 3 });
    Resource::from_value(kind, json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
}

fn stamps(plan: &Plan) -> PodStamps {
    assert_eq!(plan.verdict, Verdict::Apply);
    let workload = plan.children.iter().find(|child| child.kind() == ChildKind::Deployment).unwrap();
    let annotations = &workload.body()["spec"]["template"]["metadata"]["annotations"];
    PodStamps::of(|name| annotations[name].as_str())
}

fn live(state: &StateDraw, planned: &PodStamps) -> Live {
    let failure = |reason: &str| Failure { reason: reason.to_owned(), message: String::new(), is_first: false };
    let pod = |(index, (is_planned, state)): (usize, &(bool, u8))| LivePod {
        name: format!("s-{index}"),
        uid: format!("uid-{index}"),
        state: match state {
            0 | 1 => PodState::Ready,
            2 => PodState::Pending,
            _ => PodState::Failed(failure("CrashLoopBackOff")),
        },
        stamps: if *is_planned { planned.clone() } else { PodStamps::of(|_| Some("other")) },
        revision: Some(if *is_planned { "new" } else { "old" }.to_owned()),
        created: String::new(),
    };
    let pods: Vec<LivePod> = state.pods.iter().enumerate().map(pod).collect();
    let progress = RolloutProgress {
        observed_generation: state.observed,
        total: i32::try_from(pods.len()).unwrap(),
        updated: state.updated,
        ..RolloutProgress::default()
    };
    let workload = LiveWorkload {
        replicas: state.replicas,
        generation: GENERATION,
        progress,
        ours: true,
        ..LiveWorkload::default()
    };
    let taken = state.is_refused.then(|| (ChildKind::Service, "s".to_owned(), "another".to_owned()));
    Live { workload: Some(workload), pods, name_conflicts: taken.into_iter().collect(), ..Live::default() }
}

/// Whether a state ends the rollout: from then on there are no pods of the earlier plan.
fn completes(live: &Live, planned: &PodStamps) -> bool {
    let progress = &live.workload.as_ref().unwrap().progress;
    live.pods.iter().all(|pod| pod.stamps == *planned)
        && live.pods.iter().any(|pod| pod.state == PodState::Ready)
        && progress.observed_generation >= GENERATION
        && progress.updated >= progress.total
}

fn hashes(status: &Value) -> Vec<&Value> {
    HASHES.iter().map(|hash| &status[hash]).collect()
}

#[test]
fn every_hash_is_of_a_kind_that_the_law_over_sequences_covers() {
    let found = objects();
    let shown = |(kind, spec): &(KindName, Value)| {
        let plan = planned(&resource(*kind, spec, &json!({})), &found, &Live::default());
        assert_eq!(plan.verdict, Verdict::Apply, "{kind}");
        HASHES.iter().filter(|hash| plan.status.field(hash).is_some_and(Value::is_string)).copied().collect::<Vec<_>>()
    };
    let shown: Vec<usize> = workloads().iter().map(|one| shown(one).len()).collect();
    assert_eq!(shown, [HASHES.len(), HASHES.len(), 4]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn hashes_are_those_of_what_serves_after_any_sequence_of_states(states in states()) {
        let found = objects();
        for (kind, spec) in workloads() {
            let first = planned(&resource(kind, &spec, &json!({})), &found, &Live::default());
            let stamps = stamps(&first);
            let current = first.status.onto(&json!({}), 3, NOW);
            // The earlier plan had none of the references.
            let mut status = json!({});
            let (before, mut is_complete) = (status.clone(), false);
            for state in &states {
                let mut state = state.clone();
                state.pods.retain(|(is_planned, _)| *is_planned || !is_complete);
                let live = live(&state, &stamps);
                is_complete |= completes(&live, &stamps);
                let plan = planned(&resource(kind, &spec, &status), &found, &live);
                status = plan.status.onto(&status, 3, NOW);
                let serves_older = live.pods.iter().any(|pod| pod.stamps != stamps && pod.state == PodState::Ready);
                if serves_older {
                    prop_assert_eq!(hashes(&status), hashes(&before), "{} shows what is not in force", kind);
                }
                if is_complete {
                    prop_assert_eq!(hashes(&status), hashes(&current), "{} does not show what is in force", kind);
                }
            }
        }
    }
}
