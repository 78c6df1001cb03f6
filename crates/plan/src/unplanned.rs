//! The status of a resource of which there is no plan that could be applied: planning or applying it failed, whatever its spec says.

use skep_api::resource::Resource;

use crate::kinds;
use crate::plan::{Plan, Verdict};
use crate::readiness::{Readiness, STALLED};
use crate::status::Status;
use crate::world::{Live, PodState};

/// The reason of `Ready` when the current plan could not be applied, and is retried.
const APPLY_FAILED: &str = "ApplyFailed";

/// The plan of a resource whose reconciles keep failing: to leave everything as it is, and say so. Nothing for a kind without pods, whose
/// conditions are about its spec alone.
///
/// `Ready` is false until a reconcile succeeds: it is true for the current plan only. `Stalled` is absent, as a retry may succeed. Every
/// other condition and field stays as the last plan left it.
pub fn plan_failing(me: &Resource, live: &Live, failure: &str) -> Option<Plan> {
    let entry = kinds::entry(me.kind());
    entry.pods?;
    let has_pod = live.pods.iter().any(|pod| pod.state == PodState::Ready);
    let is_serving = has_pod && (!entry.has_backend || live.backend.as_ref().is_some_and(|backend| backend.ready > 0));
    let verdict = Verdict::Wait(format!("the current configuration is not applied, retrying with backoff: {failure}"));
    let readiness = Readiness::refused(&verdict, APPLY_FAILED, "Failed", is_serving)?;
    // Groups and virtual servers go on routing to what serves, as far as it did.
    let was_degraded = me.status_value().get("phase").is_some_and(|phase| phase == "Degraded");
    let mut status = Status::default();
    status.keep_other_conditions(&[STALLED]);
    if is_serving && was_degraded { readiness.in_phase("Degraded") } else { readiness }.write(&mut status);
    Some(Plan { verdict, ..Plan::without_children(me, status) })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skep_api::resource::KindName;

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
        let plan = plan_failing(&me, live, "cannot write");
        plan.map(|plan| plan.status.onto(&me.status_value(), 2, "now")).unwrap_or_default()
    }

    #[test]
    fn a_resource_that_keeps_failing_is_not_ready_and_not_stalled_and_keeps_what_else_is_known() {
        let (server, proxy) = (json!({ "image": "a" }), json!({ "remoteUrl": "https://x" }));
        let status = written(KindName::MCPServer, &server, &serving());
        let told: Vec<_> = status["conditions"].as_array().unwrap().iter().collect();
        let told: Vec<_> = told.iter().map(|one| (&one["type"], &one["reason"], &one["observedGeneration"])).collect();
        let (image, ready) = (json!("ImageValidated"), json!("Ready"));
        assert_eq!(told, [(&image, &json!("R"), &json!(1)), (&ready, &json!("ApplyFailed"), &json!(2))]);
        assert_eq!((&status["phase"], &status["url"]), (&json!("Ready"), &json!("http://x")));
        let without_backend = Live { backend: None, ..serving() };
        assert_eq!(written(KindName::MCPServer, &server, &without_backend)["phase"], "Failed");
        assert_eq!(written(KindName::MCPRemoteProxy, &proxy, &without_backend)["phase"], "Ready");
        let config = json!({ "toolsFilter": ["a"] });
        assert_eq!(written(KindName::MCPToolConfig, &config, &serving()), Value::Null);
    }
}
