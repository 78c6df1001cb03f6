//! The status of a resource of which there is no plan that could be applied: it cannot be read, or planning or applying it keeps failing.

use std::collections::BTreeSet;

use serde_json::Value;
use skep_api::resource::{KindName, Resource};

use crate::config;
use crate::error::PlanError;
use crate::key::Key;
use crate::kinds::{self, KindEntry};
use crate::plan::{Finalizer, Plan};
use crate::readiness::{Readiness, STALLED};
use crate::status::Status;
use crate::world::{Live, PodState};

/// The reason of `Ready` when the current plan could not be applied, and is retried.
pub const APPLY_FAILED: &str = "ApplyFailed";
/// The reason of `Ready` while another field manager keeps changing what was applied.
pub const FIELD_CONFLICT: &str = "FieldConflict";
/// The reason of the conditions of an object that cannot be read.
const SPEC_INVALID: &str = "SpecInvalid";

/// An object that cannot be deserialized, or exceeds the limits of an object.
#[derive(Clone, Copy, Debug)]
pub struct Unreadable<'a> {
    /// Its kind.
    pub kind: KindName,
    /// Why it cannot be read.
    pub problem: &'a str,
    /// Its status, as it is stored.
    pub status: &'a Value,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// The resources that refer to it.
    pub users: &'a BTreeSet<Key>,
    /// What runs for it.
    pub live: &'a Live,
}

/// The plan of an object that cannot be read: to leave everything as it is, and to say so as of any other spec that is refused.
///
/// Its finalizer is released when it is deleted, unless it is a configuration in use. Its children go by their owner references.
pub fn plan_unreadable(object: &Unreadable<'_>) -> Plan {
    let entry = kinds::entry(object.kind);
    let message = format!("this object cannot be read: {}; correct its spec", object.problem);
    let error = PlanError::invalid(SPEC_INVALID, message);
    let mut status = Status::default();
    for (field, value) in entry.refusal.fields {
        status.set(field, *value);
    }
    for condition in entry.refusal.conditions {
        status.condition(condition, false, error.reason(), error.to_string());
    }
    if entry.pods.is_some() {
        add_readiness(&mut status, &error, object.status, is_serving(&entry, object.live));
    }
    let mut plan = Plan { verdict: error.verdict(), ..Plan::of_status(object.kind, status) };
    if object.is_deleting && object.kind.is_config() {
        config::plan_deletion(&mut plan, object.users, object.live);
    } else if object.is_deleting {
        plan.finalizer = Finalizer::Release;
    }
    plan
}

/// The plan of a resource whose reconciles keep failing: to leave everything as it is, and say so. Nothing for a kind without pods, whose
/// conditions are about its spec alone.
///
/// `Ready` is false until a reconcile succeeds: it is true for the current plan only. `Stalled` is absent, as a retry may succeed. Every
/// other condition and field stays as the last plan left it.
pub fn plan_failing(me: &Resource, live: &Live, reason: &'static str, failure: &str) -> Option<Plan> {
    let entry = kinds::entry(me.kind());
    entry.pods?;
    let message = format!("the current configuration is not applied, retrying with backoff: {failure}");
    let error = PlanError::not_ready(reason, message);
    let mut status = Status::default();
    status.keep_other_conditions(&[STALLED]);
    add_readiness(&mut status, &error, &me.status_value(), is_serving(&entry, live));
    Some(Plan { verdict: error.verdict(), ..Plan::without_children(me, status) })
}

/// Whether the pods of an earlier plan serve.
fn is_serving(entry: &KindEntry, live: &Live) -> bool {
    let has_pod = live.pods.iter().any(|pod| pod.state == PodState::Ready);
    has_pod && (!entry.has_backend || live.backend.as_ref().is_some_and(|backend| backend.ready > 0))
}

/// Adds the readiness of a resource whose plan is not applied. Groups and virtual servers go on routing to what serves, as far as it did.
fn add_readiness(status: &mut Status, error: &PlanError, before: &Value, is_serving: bool) {
    let refused = Readiness::refused(&error.verdict(), error.reason(), "Failed", is_serving);
    let Some(readiness) = refused else { return };
    let was_degraded = before.get("phase").is_some_and(|phase| phase == "Degraded");
    if is_serving && was_degraded { readiness.in_phase("Degraded") } else { readiness }.write(status);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodStamps;
    use crate::world::{LivePod, LiveWorkload};

    fn serving() -> Live {
        let pod = LivePod {
            name: "p".into(),
            uid: "u".into(),
            state: PodState::Ready,
            stamps: PodStamps::default(),
            revision: None,
            created: String::new(),
        };
        Live { pods: vec![pod], backend: Some(LiveWorkload { ready: 1, ..LiveWorkload::default() }), ..Live::default() }
    }

    fn written(kind: KindName, spec: &Value, live: &Live) -> Value {
        let condition = |kind: &str| {
            json!({
                "type": kind, "status": "True", "reason": "R", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let before = json!({
            "url": "http://x", "phase": "Ready",
            "conditions": [condition("ImageValidated"), condition("Ready"), condition("Stalled")],
        });
        let metadata = json!({ "name": "s", "namespace": "ns", "uid": "u", "generation": 2 });
        let object = json!({ "metadata": metadata, "spec": spec, "status": before });
        let me = Resource::from_value(kind, object).unwrap();
        let plan = plan_failing(&me, live, APPLY_FAILED, "cannot write");
        plan.map(|plan| plan.status.onto(&me.status_value(), 2, "now")).unwrap_or_default()
    }

    #[test]
    fn a_resource_that_keeps_failing_is_not_ready_and_not_stalled_and_keeps_what_else_is_known() {
        let (server, proxy) = (json!({ "image": "a" }), json!({ "remoteUrl": "https://x" }));
        let status = written(KindName::MCPServer, &server, &serving());
        let reported: Vec<_> = status["conditions"].as_array().unwrap().iter().collect();
        let reported: Vec<_> =
            reported.iter().map(|one| (&one["type"], &one["reason"], &one["observedGeneration"])).collect();
        let (image, ready) = (json!("ImageValidated"), json!("Ready"));
        assert_eq!(reported, [(&image, &json!("R"), &json!(1)), (&ready, &json!("ApplyFailed"), &json!(2))]);
        assert_eq!((&status["phase"], &status["url"]), (&json!("Ready"), &json!("http://x")));
        let without_backend = Live { backend: None, ..serving() };
        assert_eq!(written(KindName::MCPServer, &server, &without_backend)["phase"], "Failed");
        assert_eq!(written(KindName::MCPRemoteProxy, &proxy, &without_backend)["phase"], "Ready");
        let config = json!({ "toolsFilter": ["a"] });
        assert_eq!(written(KindName::MCPToolConfig, &config, &serving()), Value::Null);
    }

    fn unreadable(kind: KindName, live: &Live) -> Value {
        let (before, users) = (json!({ "phase": "Ready" }), BTreeSet::new());
        let object = Unreadable { kind, problem: "no image", status: &before, is_deleting: false, users: &users, live };
        plan_unreadable(&object).status.onto(&before, 7, "now")
    }

    #[test]
    fn an_unreadable_object_has_the_status_of_a_refused_one() {
        for kind in KindName::ALL.iter().copied() {
            let status = unreadable(kind, &Live::default());
            assert_eq!(status["observedGeneration"], 7, "{kind}");
            let conditions = status["conditions"].as_array().unwrap();
            assert!(!conditions.is_empty(), "{kind}");
            for condition in conditions {
                let is_stalled = condition["type"] == STALLED;
                assert_eq!(condition["status"], if is_stalled { "True" } else { "False" }, "{kind}: {condition}");
                assert_eq!(condition["reason"], SPEC_INVALID, "{kind}: {condition}");
            }
            let has = |name: &str| conditions.iter().any(|condition| condition["type"] == name);
            assert_eq!(has(STALLED), kinds::entry(kind).pods.is_some(), "{kind}");
            assert!(has("Ready") || has("Valid"), "{kind}");
            assert!(!has(STALLED) || status["phase"] == "Failed", "{kind}: {status}");
        }
        assert_eq!(unreadable(KindName::MCPServer, &serving())["phase"], "Ready", "groups go on routing to it");
    }

    #[test]
    fn only_a_configuration_in_use_is_not_released_when_it_cannot_be_read() {
        let users = BTreeSet::from([Key::resource(KindName::MCPServer, "ns", "s")]);
        let (status, live) = (json!({}), Live::default());
        for kind in KindName::ALL.iter().copied() {
            let object =
                Unreadable { kind, problem: "p", status: &status, is_deleting: true, users: &users, live: &live };
            let plan = plan_unreadable(&object);
            let is_blocked = kind.is_config();
            assert_eq!(plan.status.find("DeletionBlocked").is_some(), is_blocked, "{kind}");
            assert_eq!(plan.finalizer == Finalizer::Release, !is_blocked, "{kind}");
            let free = plan_unreadable(&Unreadable { users: &BTreeSet::new(), ..object });
            assert_eq!(free.finalizer, Finalizer::Release, "{kind}");
        }
    }
}
