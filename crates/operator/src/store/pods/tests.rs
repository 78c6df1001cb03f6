use serde_json::{Value, json};

use super::*;

/// A pod of a backend with this status.
fn pod(status: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": "s-0", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "app": "s", "toolhive": "true", "toolhive-name": "s", "controller-revision-hash": "s-1" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": true }],
        },
        "spec": { "containers": [{ "name": "mcp" }] },
        "status": status,
    }))
    .unwrap()
}

/// The status of a pod with one container.
fn container(is_ready: bool, state: &Value, last: &Value) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    json!({
        "phase": "Running",
        "conditions": [{ "type": "Ready", "status": ready }],
        "containerStatuses": [{
            "name": "mcp", "image": "i", "imageID": "i", "ready": is_ready, "restartCount": 1, "state": state, "lastState": last,
        }],
    })
}

fn state_at(status: &Value, now: &str) -> (PodState, Option<Timestamp>) {
    let (pod, until) = pod_facts(&pod(status)).unwrap().live(now.parse().unwrap()).unwrap();
    (pod.state, until)
}

fn failed(reason: &str, message: &str) -> PodState {
    PodState::Failed(Failure { reason: reason.to_owned(), message: message.to_owned() })
}

const NOW: &str = "2026-01-01T00:01:00Z";

#[test]
fn every_state_of_a_crash_loop_is_the_same_failure() {
    let end = json!({ "terminated": { "exitCode": 1, "reason": "Error", "message": "no\n port " } });
    let expected = failed("CrashLoopBackOff", "container `mcp` ended with exit code 1: no port");
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 40s restarting" } });
    let running = json!({ "running": { "startedAt": "2026-01-01T00:00:55Z" } });
    let creating = json!({ "waiting": { "reason": "ContainerCreating" } });
    for status in [
        container(false, &end, &json!({})),
        container(false, &end, &end),
        container(false, &waiting, &end),
        container(false, &running, &end),
        container(false, &creating, &end),
        // Without a readiness probe it is ready as soon as it runs, which it did before.
        container(true, &running, &end),
    ] {
        assert_eq!(state_at(&status, NOW).0, expected, "{status}");
    }
    let (state, until) = state_at(&container(true, &running, &end), NOW);
    assert_eq!((state, until), (expected, Some("2026-01-01T00:01:05Z".parse().unwrap())));
    let later = state_at(&container(true, &running, &end), "2026-01-01T00:01:05Z");
    assert_eq!(later, (PodState::Ready, None), "it has run for long enough");
}

#[test]
fn a_container_without_a_readiness_probe_is_ready_once_it_has_run_for_a_moment() {
    let running = container(true, &json!({ "running": { "startedAt": "2026-01-01T00:00:59Z" } }), &json!({}));
    assert_eq!(state_at(&running, NOW), (PodState::Pending, Some("2026-01-01T00:01:01Z".parse().unwrap())));
    assert_eq!(state_at(&running, "2026-01-01T00:01:01Z"), (PodState::Ready, None));
    let mut probed = pod(&running);
    probed.spec.as_mut().unwrap().containers[0].readiness_probe = Some(k8s_openapi::api::core::v1::Probe::default());
    assert_eq!(pod_facts(&probed).unwrap().settling, None, "its probe was asked");
}

#[test]
fn what_keeps_a_pod_from_running_is_told_in_the_words_of_whoever_found_out() {
    let waiting = |reason: &str, message: &str| {
        container(false, &json!({ "waiting": { "reason": reason, "message": message } }), &json!({}))
    };
    let killed = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
    let unschedulable = json!({ "phase": "Pending", "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available" },
    ]});
    for (status, expected) in [
        (waiting("ErrImagePull", "not found"), failed("ImagePullBackOff", "not found")),
        (
            waiting("ImagePullBackOff", "Back-off pulling image \"i\": ErrImagePull: not found"),
            failed("ImagePullBackOff", "not found"),
        ),
        (
            waiting("CreateContainerConfigError", "secret \"a\" not found"),
            failed("CreateContainerConfigError", "secret \"a\" not found"),
        ),
        (
            container(false, &killed, &json!({})),
            failed("CrashLoopBackOff", "container `mcp` ended: OOMKilled (exit code 137)"),
        ),
        (unschedulable, failed("Unschedulable", "0/1 nodes are available")),
        (waiting("ContainerCreating", ""), PodState::Pending),
        (json!({ "phase": "Pending" }), PodState::Pending),
    ] {
        assert_eq!(state_at(&status, NOW).0, expected, "{status}");
    }
}

/// Its controller makes another one and counts it no more, but it stays until it is collected.
#[test]
fn a_pod_that_has_ended_is_no_pod_of_its_workload() {
    for status in [json!({ "phase": "Failed", "reason": "Evicted" }), json!({ "phase": "Succeeded" })] {
        let facts = pod_facts(&pod(&status)).unwrap();
        assert_eq!(facts.state, None, "{status}");
        assert!(facts.live(NOW.parse().unwrap()).is_none());
    }
}

#[test]
fn an_end_of_long_ago_is_not_why_a_pod_is_not_ready_now() {
    let running = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
    let end = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
    let since = |at: &str| {
        let mut status = container(false, &running, &end);
        status["conditions"] = json!([{ "type": "Ready", "status": "False", "lastTransitionTime": at }]);
        state_at(&status, NOW).0
    };
    assert_eq!(since("2026-01-01T00:00:30Z"), PodState::Pending, "it was ready in this run");
    assert!(matches!(since("2025-12-31T23:59:00Z"), PodState::Failed(_)), "it has not been ready since it ended");
}

#[test]
fn a_pod_of_a_backend_is_known_by_its_stateful_set_whatever_labels_a_user_gave_it() {
    let mut pod = pod(&json!({}));
    let facts = pod_facts(&pod).unwrap();
    assert_eq!((facts.owner, facts.is_backend), (Key::resource(KindName::MCPServer, "ns", "s"), true));
    assert_eq!(facts.revision.as_deref(), Some("s-1"));
    let labels = pod.metadata.labels.as_mut().unwrap();
    labels.insert("app.kubernetes.io/name".to_owned(), "mcpserver".to_owned());
    labels.insert("app.kubernetes.io/instance".to_owned(), "another".to_owned());
    let facts = pod_facts(&pod).unwrap();
    assert_eq!((facts.owner.name.as_str(), facts.is_backend), ("s", true));
    pod.metadata.owner_references = None;
    assert_eq!(pod_facts(&pod).map(|facts| (facts.owner.name, facts.is_backend)), Some(("another".to_owned(), false)));
}
