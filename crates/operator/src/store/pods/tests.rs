use serde_json::{Value, json};
use skep_api::resource::KindName;

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
    PodState::Failed(Failure { reason: reason.to_owned(), message: message.to_owned(), is_first: false })
}

/// The same with a container that was restarted so often.
fn restarted(count: i32, mut status: Value) -> Value {
    status["containerStatuses"][0]["restartCount"] = json!(count);
    status
}

/// One end may be over with the next start, so it does not stall a rollout.
#[test]
fn a_container_that_ended_once_is_in_no_crash_loop_yet() {
    let end = "2026-01-01T00:00:54Z";
    let ended = |from: &str| json!({ "terminated": { "exitCode": 1, "startedAt": from, "finishedAt": end } });
    let (short, long) = (ended("2026-01-01T00:00:53Z"), ended("2025-12-31T23:00:00Z"));
    let running = json!({ "running": { "startedAt": "2026-01-01T00:00:55Z" } });
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let is_final = |restarts: i32, state: &Value, last: &Value| {
        let status = restarted(restarts, container(false, state, last));
        let PodState::Failed(failure) = state_at(&status, NOW).0 else { panic!("{status}") };
        assert_eq!(failure.reason, CRASH_LOOP);
        failure.is_final()
    };
    assert!(!is_final(0, &short, &json!({})), "it ended once");
    assert!(!is_final(1, &running, &short), "it ended once and runs again");
    assert!(is_final(1, &short, &short), "it ended twice");
    assert!(is_final(2, &running, &short), "it ended twice and runs again");
    assert!(is_final(1, &waiting, &short), "the kubelet backs off");
    assert!(!is_final(7, &long, &short), "it ran for an hour before");
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
        let status = restarted(2, status);
        assert_eq!(state_at(&status, NOW).0, expected, "{status}");
    }
    let (state, until) = state_at(&restarted(2, container(true, &running, &end)), NOW);
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

/// A node whose clock is an hour ahead kept its pods from being ready for an hour.
#[test]
fn a_container_settles_by_the_clock_of_the_operator_whatever_the_clock_of_its_node_says() {
    let seen: Timestamp = NOW.parse().unwrap();
    let later = seen + SignedDuration::from_secs(1);
    let settles = |started: &str, before: Option<&Settling>, now| {
        let running = container(true, &json!({ "running": { "startedAt": started } }), &json!({}));
        pod_facts(&pod(&running)).unwrap().settling.unwrap().observed(before, now)
    };
    let ahead = settles("2026-01-01T01:00:00Z", None, seen);
    assert_eq!(ahead.until, seen + SETTLES_AFTER);
    assert_eq!(settles("2026-01-01T01:00:00Z", Some(&ahead), later), ahead, "it was observed before");
    let again = settles("2026-01-01T01:00:01Z", Some(&ahead), later);
    assert_eq!(again.until, later + SETTLES_AFTER, "it was started again");
    let behind = settles("2026-01-01T00:00:00Z", None, seen);
    assert!(behind.until < seen, "it ran for longer than that");
}

/// The status of the pod of a container that runs for `run` seconds and ends, again and again, so many seconds after it was made. The
/// kubelet waits 10 s after the first end, and twice as long after each further one.
fn crash_loop(run: i64, exit_code: i32, seconds: i64) -> Value {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let at = |second: i64| (epoch + SignedDuration::from_secs(second)).to_string();
    let ended = |start: i64| json!({ "terminated": { "exitCode": exit_code, "reason": "Error", "message": "out of memory", "startedAt": at(start), "finishedAt": at(start + run) } });
    let (mut start, mut restarts, mut last) = (0, 0, json!({}));
    loop {
        let pause = (10_i64 << restarts.min(5)).min(300);
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let mut status = match seconds - start {
            since if since < run => container(true, &json!({ "running": { "startedAt": at(start) } }), &last),
            since if since == run => container(false, &ended(start), &last),
            since if since < run + pause => container(false, &waiting, &ended(start)),
            _ => {
                (start, restarts, last) = (start + run + pause, restarts + 1, ended(start));
                continue;
            }
        };
        status["containerStatuses"][0]["restartCount"] = json!(restarts);
        return status;
    }
}

/// How often the state of a pod in a crash loop changes, and when it did so last, within this many seconds.
fn changes_in_crash_loop(run: i64, exit_code: i32, within: i64) -> (usize, i64) {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let state = |second: i64| {
        let now = epoch + SignedDuration::from_secs(second);
        state_at(&crash_loop(run, exit_code, second), &now.to_string()).0
    };
    let (mut before, mut changes, mut last) = (state(0), 0, 0);
    for second in 1..within {
        let now = state(second);
        if now != before {
            (before, changes, last) = (now, changes + 1, second);
        }
    }
    assert!(matches!(before, PodState::Failed(_)), "a loop with runs of {run} s ends as {before:?}");
    (changes, last)
}

#[test]
fn a_crash_loop_without_a_readiness_probe_stops_flapping_after_its_second_end() {
    // Pending, ready, failed once, failed and backed off, ready, failed: one end is not a crash loop.
    for exit_code in [1, 0] {
        assert_eq!(changes_in_crash_loop(25, exit_code, 600), (5, 25 + 10 + 25));
        assert_eq!(
            changes_in_crash_loop(5, exit_code, 600),
            (3, 5 + 1),
            "it never runs for long enough to count again"
        );
    }
    // One that runs for minutes serves meanwhile, and is believed after one of them: two changes for each run.
    let (first_runs, pauses) = (3 * 300, 10 + 20);
    assert_eq!(changes_in_crash_loop(300, 1, first_runs + pauses + 1).0, 7);
}

#[test]
fn a_container_that_outlives_its_previous_run_has_got_over_its_crash_loop() {
    let running = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
    let settles = |restarts: i32, started: &str| {
        let end =
            json!({ "terminated": { "exitCode": 1, "startedAt": started, "finishedAt": "2025-12-31T23:59:00Z" } });
        let mut status = container(true, &running, &end);
        status["containerStatuses"][0]["restartCount"] = json!(restarts);
        state_at(&status, "2026-01-01T00:00:01Z").1.map(|until| until.to_string()).unwrap()
    };
    assert_eq!(settles(1, "2025-12-31T23:58:30Z"), "2026-01-01T00:00:10Z", "it ended once");
    assert_eq!(settles(7, "2025-12-31T23:58:30Z"), "2026-01-01T00:00:40Z", "its previous run took 30 s");
    assert_eq!(settles(7, "2025-12-31T23:49:01Z"), "2026-01-01T00:01:00Z", "a minute is enough");
    assert_eq!(settles(7, "2025-12-31T23:49:00Z"), "2026-01-01T00:00:10Z", "the kubelet has reset its back-off");
    assert_eq!(settles(7, "2025-12-31T23:59:30Z"), "2026-01-01T00:00:10Z", "a clock that was set back");
}

#[test]
fn a_pod_that_cannot_run_has_the_reason_of_its_reporter() {
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
fn a_pod_that_the_kubelet_rejected_or_evicted_says_why() {
    let end = |status: &Value| pod_facts(&pod(status)).unwrap().ended().map(|pod| pod.state);
    let rejected = json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: not enough\ncpu" });
    assert_eq!(end(&rejected), Some(failed("OutOfcpu", "Pod was rejected: not enough cpu")));
    let odd = json!({ "phase": "Failed", "reason": "not a word" });
    assert_eq!(end(&odd), Some(failed("PodFailed", "")));
    // The containers of a pod that is deleted end as they like, and a pod that runs may have a condition about its node.
    for status in [
        json!({ "phase": "Failed" }),
        json!({ "phase": "Succeeded", "reason": "Done" }),
        json!({ "phase": "Running", "reason": "NodeLost" }),
    ] {
        assert_eq!(end(&status), None, "{status}");
    }
}

#[test]
fn a_pod_of_a_registry_is_known_by_the_labels_that_select_it() {
    let owner = |labels: &Value| {
        let pod: Pod = serde_json::from_value(json!({ "metadata": {
            "name": "p", "namespace": "ns", "labels": labels,
            "annotations": { "toolhive.stacklok.dev/config-hash": "h" },
        }}))
        .unwrap();
        pod_facts(&pod).map(|facts| (facts.owner, facts.keeps_name))
    };
    let registry = Key::resource(KindName::MCPRegistry, "ns", "r");
    let ours = json!({ "app.kubernetes.io/name": "r-api", "app.kubernetes.io/component": "registry-api" });
    assert_eq!(owner(&ours), Some((registry.clone(), false)));
    let mut with_users_own = ours.clone();
    with_users_own["app"] = json!("mcpserver");
    with_users_own["app.kubernetes.io/instance"] = json!("s");
    assert_eq!(owner(&with_users_own), Some((registry, false)));
    let proxy = json!({
        "app": "mcpserver", "app.kubernetes.io/name": "mcpserver", "app.kubernetes.io/instance": "s",
        "app.kubernetes.io/component": "registry-api",
    });
    assert_eq!(owner(&proxy), Some((Key::resource(KindName::MCPServer, "ns", "s"), false)));
    assert_eq!(owner(&json!({ "app.kubernetes.io/name": "r-api" })), None);
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

#[test]
fn a_pod_belongs_to_the_resource_whose_workload_made_it_whatever_its_labels_say() {
    let owner = |labels: &Value, made_by: &str, name: &str| {
        let pod: Pod = serde_json::from_value(json!({ "metadata": {
            "name": "p", "namespace": "ns", "labels": labels,
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": made_by, "name": name, "uid": "u", "controller": true }],
        }}))
        .unwrap();
        pod_facts(&pod).map(|facts| facts.owner)
    };
    let proxy = json!({ "app": "mcpserver", "app.kubernetes.io/name": "mcpserver", "app.kubernetes.io/instance": "s" });
    let server = Some(Key::resource(KindName::MCPServer, "ns", "s"));
    assert_eq!(owner(&proxy, "ReplicaSet", "s-5d8f9"), server);
    assert_eq!(owner(&proxy, "ReplicaSet", "s"), server);
    for (made_by, name) in
        [("ReplicaSet", "other-5d8f9"), ("ReplicaSet", "s-other-5d8f9"), ("StatefulSet", "s"), ("Job", "s-1")]
    {
        assert_eq!(owner(&proxy, made_by, name), None, "{made_by} {name}");
    }
    // A user gives the pods of an EmbeddingServer a label that says otherwise.
    let embedding =
        json!({ "app": "mcpserver", "app.kubernetes.io/name": "embeddingserver", "app.kubernetes.io/instance": "s" });
    assert_eq!(owner(&embedding, "StatefulSet", "s"), Some(Key::resource(KindName::EmbeddingServer, "ns", "s")));
    let registry = json!({ "app.kubernetes.io/name": "r-api", "app.kubernetes.io/component": "registry-api" });
    assert_eq!(owner(&registry, "ReplicaSet", "r-api-5d8f9"), Some(Key::resource(KindName::MCPRegistry, "ns", "r")));
    assert_eq!(owner(&registry, "ReplicaSet", "r-5d8f9"), None);
}

#[test]
fn an_init_container_may_exit_but_a_sidecar_may_not() {
    let end = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
    let running = json!({ "running": { "startedAt": "2026-01-01T00:00:55Z" } });
    let state_of = |policy: &Value| {
        let mut status = container(false, &json!({ "waiting": { "reason": "PodInitializing" } }), &json!({}));
        status["initContainerStatuses"] = json!([{
            "name": "first", "image": "i", "imageID": "i", "ready": false, "restartCount": 2, "state": running, "lastState": end,
        }]);
        let mut pod = pod(&status);
        pod.spec.as_mut().unwrap().init_containers =
            Some(vec![serde_json::from_value(json!({ "name": "first", "restartPolicy": policy })).unwrap()]);
        pod_facts(&pod).unwrap().live(NOW.parse().unwrap()).unwrap().0.state
    };
    assert_eq!(state_of(&Value::Null), PodState::Pending);
    assert_eq!(state_of(&json!("Always")), failed("CrashLoopBackOff", "container `first` ended with exit code 0"));
}
