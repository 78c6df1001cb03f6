//! Why no pod of a server becomes ready. The pods are watched only while none of them is, so a healthy server costs no watch.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use kube::api::Api;
use kube::core::{NotUsed, Object};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use serde::Deserialize;
use tokio::sync::watch as signal;

use super::{Cluster, State};

/// Waiting reasons that are part of every start.
const ORDINARY: &[&str] = &["", "ContainerCreating", "PodInitializing"];
/// Waiting reasons of a container whose image cannot be pulled.
const IMAGE_PULL: &[&str] = &["ErrImagePull", "ImagePullBackOff"];
/// How much of a message of the kubelet or the scheduler is shown, in characters.
const LONGEST_MESSAGE: usize = 500;

/// A pod, with the fields that say why it does not run.
type Pod = Object<NotUsed, PodStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    conditions: Vec<PodCondition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodCondition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
    message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    exit_code: i32,
    reason: String,
}

// === impl Cluster ===

impl Cluster {
    /// Publishes in `state` the state from `counted`, and [`State::Failing`] instead of a start that cannot succeed
    /// according to its pods. Never ends.
    pub async fn explain(&self, mut counted: signal::Receiver<State>, state: &signal::Sender<State>) {
        loop {
            let now = counted.borrow_and_update().clone();
            publish(state, now.clone());
            let is_starting = matches!(now, State::Starting { ready: 0, .. });
            let explained = async {
                if is_starting {
                    self.watch_failures(|failure| publish(state, failure.map_or(now.clone(), State::Failing))).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                changed = counted.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                () = explained => {}
            }
        }
    }

    /// Reports why the pods of the server cannot run, whenever that changes. Watches break; the list that follows shows
    /// what was missed.
    async fn watch_failures(&self, report: impl Fn(Option<String>)) {
        let pods: Api<Pod> = self.objects("", "Pod");
        let config = watcher::Config::default().labels(&format!("app={}", self.server.name));
        let mut changes = std::pin::pin!(watch(pods, config).default_backoff());
        let mut failures = BTreeMap::new();
        while let Some(change) = changes.next().await {
            match change {
                Ok(Event::Init) => {
                    failures.clear();
                    continue;
                }
                Ok(Event::InitApply(pod)) => {
                    see(&mut failures, &pod);
                    continue;
                }
                Ok(Event::Apply(pod)) => see(&mut failures, &pod),
                Ok(Event::Delete(pod)) => {
                    failures.remove(&pod.metadata.name);
                }
                Ok(Event::InitDone) => {}
                Err(error) => {
                    tracing::debug!(%error, "pod watch interrupted");
                    continue;
                }
            }
            report(common_failure(&failures));
        }
    }
}

/// Records the state of a pod. A terminating pod is ignored.
fn see(failures: &mut BTreeMap<Option<String>, Option<String>>, pod: &Pod) {
    if pod.metadata.deletion_timestamp.is_some() {
        failures.remove(&pod.metadata.name);
    } else {
        failures.insert(pod.metadata.name.clone(), failure(pod));
    }
}

/// Why none of the pods can run: one that is merely starting may serve in a moment.
fn common_failure(failures: &BTreeMap<Option<String>, Option<String>>) -> Option<String> {
    let all: Option<Vec<&String>> = failures.values().map(Option::as_ref).collect();
    all?.first().map(|failure| (*failure).clone())
}

fn publish(state: &signal::Sender<State>, now: State) {
    state.send_if_modified(|known| {
        let is_changed = *known != now;
        if is_changed {
            *known = now;
        }
        is_changed
    });
}

/// Why a pod cannot run; `None` for one that starts or runs.
fn failure(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = || status.init_container_statuses.iter().chain(&status.container_statuses);
    let (reason, message) = containers().find_map(waiting).or_else(|| unschedulable(status))?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let message: String =
        message.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST_MESSAGE).collect();
    let separator = if message.is_empty() { "" } else { ": " };
    Some(format!("pod `{name}` of the server cannot run: {reason}{separator}{message}"))
}

/// The reason for which a container waits. One that crashed waits with a message that counts the attempts; how it
/// terminated says more.
fn waiting(container: &ContainerStatus) -> Option<(&str, String)> {
    let waiting = container.state.waiting.as_ref().filter(|one| !ORDINARY.contains(&one.reason.as_str()))?;
    // The kubelet alternates between two reasons for the same image, and repeats the message of the first within that of the second.
    if IMAGE_PULL.contains(&waiting.reason.as_str()) {
        let (_, message) = waiting.message.split_once("ErrImagePull: ").unwrap_or(("", &waiting.message));
        return Some(("ImagePullBackOff", message.to_owned()));
    }
    let message = match &container.last_state.terminated {
        Some(end) if end.reason.is_empty() || end.reason == "Error" => {
            format!("it ended with exit code {}", end.exit_code)
        }
        Some(end) => format!("it ended: {} (exit code {})", end.reason, end.exit_code),
        None => waiting.message.clone(),
    };
    Some((&waiting.reason, message))
}

fn unschedulable(status: &PodStatus) -> Option<(&str, String)> {
    let is_unschedulable = |one: &&PodCondition| one.r#type == "PodScheduled" && one.status == "False";
    let condition = status.conditions.iter().find(is_unschedulable).filter(|one| one.reason == "Unschedulable")?;
    Some((&condition.reason, condition.message.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "s-0" }, "spec": {}, "status": status })).unwrap()
    }

    #[test]
    fn a_pod_says_why_it_cannot_run_and_nothing_while_it_starts() {
        let container = |state: Value, last: Value| json!({ "containerStatuses": [{ "name": "mcp", "state": state, "lastState": last }] });
        let waiting = |reason: &str, message: &str| json!({ "waiting": { "reason": reason, "message": message } });
        let ended = |reason: &str| json!({ "terminated": { "exitCode": 3, "reason": reason } });
        for (what, status, expected) in [
            ("no status", json!({}), None),
            ("image is pulled", container(waiting("ContainerCreating", ""), json!({})), None),
            ("runs", container(json!({ "running": {} }), ended("Error")), None),
            ("restarts", container(ended("Error"), json!({})), None),
            (
                "no image",
                container(waiting("ImagePullBackOff", "not\n found"), json!({})),
                Some("ImagePullBackOff: not found"),
            ),
            (
                "crashes",
                container(waiting("CrashLoopBackOff", "back-off 40s"), ended("Error")),
                Some("CrashLoopBackOff: it ended with exit code 3"),
            ),
            (
                "out of memory",
                container(waiting("CrashLoopBackOff", ""), ended("OOMKilled")),
                Some("CrashLoopBackOff: it ended: OOMKilled (exit code 3)"),
            ),
            ("no message", container(waiting("InvalidImageName", ""), json!({})), Some("InvalidImageName")),
            (
                "init container",
                json!({ "initContainerStatuses": [{ "state": waiting("ErrImagePull", "denied") }] }),
                Some("ImagePullBackOff: denied"),
            ),
            (
                "no node",
                json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes" }] }),
                Some("Unschedulable: 0/1 nodes"),
            ),
            (
                "gated",
                json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }] }),
                None,
            ),
        ] {
            let expected = expected.map(|reason| format!("pod `s-0` of the server cannot run: {reason}"));
            assert_eq!(failure(&pod(&status)), expected, "{what}");
        }
        let repeated = r#"Back-off pulling image "a": ErrImagePull: denied"#;
        let backoff = pod(&container(waiting("ImagePullBackOff", repeated), json!({})));
        assert_eq!(failure(&backoff), failure(&pod(&container(waiting("ErrImagePull", "denied"), json!({})))));
    }

    #[test]
    fn pods_cannot_run_only_if_none_of_them_can() {
        let named = |name: &str, is_failing: bool, is_deleted: bool| {
            let reason = if is_failing { "InvalidImageName" } else { "ContainerCreating" };
            let state = json!({ "waiting": { "reason": reason } });
            let deletion = is_deleted.then_some("2026-01-01T00:00:00Z");
            let metadata = json!({ "name": name, "deletionTimestamp": deletion });
            let pod =
                json!({ "metadata": metadata, "spec": {}, "status": { "containerStatuses": [{ "state": state }] } });
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        let common = |pods: &[Pod]| {
            let mut failures = BTreeMap::new();
            for pod in pods {
                see(&mut failures, pod);
            }
            common_failure(&failures)
        };
        assert_eq!(common(&[]), None);
        assert!(common(&[named("s-0", true, false), named("s-1", true, false)]).is_some_and(|why| why.contains("s-0")));
        assert_eq!(common(&[named("s-0", true, false), named("s-1", false, false)]), None);
        assert!(common(&[named("s-0", true, false), named("s-1", false, true)]).is_some());
        // One that failed and is being replaced.
        assert_eq!(common(&[named("s-0", true, false), named("s-0", true, true)]), None);
    }
}
