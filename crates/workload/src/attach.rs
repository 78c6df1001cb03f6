//! The standard input and output of a server in a cluster: an attachment to the right pod.

mod frames;
mod lost;
mod notes;
mod streams;

use std::pin::Pin;
use std::sync::Arc;

use kube::api::{Api, AttachParams, ListParams};
use kube::core::{NotUsed, Object, Request};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use self::lost::{Attached, Until};
use self::notes::StatefulSetNotes;
use self::streams::Task;
use crate::cluster::Cluster;
use crate::objects::CONTAINER;
use crate::pipe::{Held, Notes, Pipe};

/// A pod, with the fields that say whether its server runs.
type Pod = Object<NotUsed, PodStatus>;

/// The status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// The status of a container.
#[derive(Clone, Debug, Deserialize)]
struct ContainerStatus {
    name: String,
    /// Changes with each restart.
    #[serde(rename = "containerID")]
    id: Option<String>,
    #[serde(default)]
    state: ContainerState,
}

/// One of several members is set; this one, when the container runs.
#[derive(Clone, Debug, Default, Deserialize)]
struct ContainerState {
    running: Option<Value>,
}

/// The resources behind the streams of an attachment.
struct Attachment {
    _watching: Task,
    notes: StatefulSetNotes,
}

/// Why there is no attachment. A retry may succeed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No pod runs.
    #[error("no pod of {0} is running")]
    NoPod(String),
    /// The API server, or the pod's kubelet, failed.
    #[error("cannot attach to {object}: {error}")]
    Api {
        /// The object.
        object: String,
        /// The error.
        error: Box<kube::Error>,
    },
}

// === impl Cluster ===

impl Cluster {
    /// Attaches to the server's pod, with its three streams kept apart. They end with the pod, whether its kubelet
    /// reports that or not.
    pub async fn attach(&self) -> Result<Pipe, AttachError> {
        let failed = |object: String| move |error| AttachError::Api { object, error: Box::new(error) };
        let name = &self.server().name;
        let pods: Api<Pod> = self.objects("", "Pod");
        let labels = format!("app={name}");
        let found = pods.list(&ListParams::default().labels(&labels)).await;
        let found = found.map_err(failed(format!("the pods of {name}")))?;
        let best = pick(&found.items).ok_or_else(|| AttachError::NoPod(name.clone()))?;
        let pod = best.metadata.name.as_deref().unwrap_or_default();
        let parameters = AttachParams::default().container(CONTAINER).stdin(true).stdout(true).stderr(true).tty(false);
        let connect = async {
            let request =
                Request::new(pods.resource_url()).attach(pod, &parameters).map_err(kube::Error::BuildRequest)?;
            self.client().connect(request).await
        };
        let connection = connect.await.map_err(failed(format!("pod {pod}")))?;
        tracing::info!(pod, "attached to pod");
        let Pipe { stdin, stdout, stderr, held } = streams::open(connection.into_stream().into_inner()).await;
        let (sender, lost) = oneshot::channel();
        let (seen, container) = watch::channel(container(best));
        let attached = Attached { name: pod.to_owned(), uid: best.metadata.uid.clone(), labels, pods, container: seen };
        let watching = tokio::spawn(async move {
            // The streams of the sending task end with this one, too.
            let _held = held;
            attached.lost().await;
            let _ended = sender.send(());
            std::future::pending::<()>().await;
        });
        let held = Attachment { _watching: Task(watching), notes: self.notes(container) };
        Ok(Pipe { stdin, stdout: Box::new(Until::new(stdout, lost)), stderr, held: Box::new(held) })
    }

    fn notes(&self, container: watch::Receiver<Option<String>>) -> StatefulSetNotes {
        StatefulSetNotes { sets: self.objects("apps", "StatefulSet"), name: self.server().name.clone(), container }
    }

    /// The notes about one container of the server.
    pub fn notes_of(&self, container: &str) -> Arc<dyn Notes> {
        Arc::new(self.notes(watch::channel(Some(container.to_owned())).1))
    }
}

// === impl Attachment ===

impl Held for Attachment {
    fn end(self: Box<Self>) -> Pin<Box<dyn Future<Output = Option<String>> + Send>> {
        Box::pin(std::future::ready(None))
    }

    fn identity(&self) -> Option<String> {
        self.notes.container.borrow().clone()
    }

    fn notes(&self) -> Option<Arc<dyn Notes>> {
        Some(Arc::new(self.notes.clone()))
    }
}

/// The pod to attach to: one whose server runs and that is not terminating. Of several a ready one, since the node of
/// another one may be lost; of those the newest, as the others are of an older revision; of those created at once the
/// first by name.
fn pick(pods: &[Pod]) -> Option<&Pod> {
    let stays = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() && runs(pod);
    pods.iter().filter(stays).min_by(|one, other| {
        let made = |pod: &Pod| pod.metadata.creation_timestamp.clone();
        is_ready(other)
            .cmp(&is_ready(one))
            .then_with(|| made(other).cmp(&made(one)))
            .then_with(|| one.metadata.name.cmp(&other.metadata.name))
    })
}

/// Whether a pod's server runs, as far as its kubelet has reported.
fn runs(pod: &Pod) -> bool {
    server(pod).is_some_and(|container| container.state.running.is_some())
}

/// The identity of the server's container, across restarts and pods. The kubelet reports a restart late.
fn container(pod: &Pod) -> Option<String> {
    let (pod_id, id) = (pod.metadata.uid.as_deref()?, server(pod)?.id.as_deref()?);
    Some(format!("{pod_id} {id}"))
}

fn server(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.iter().flat_map(|status| &status.container_statuses).find(|container| container.name == CONTAINER)
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.kind == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, made: u32, runs: bool, going: bool) -> Pod {
        let state = if runs { json!({ "running": {} }) } else { json!({ "waiting": {} }) };
        let mut pod = json!({
            "metadata": { "name": name, "creationTimestamp": format!("2026-01-01T00:00:{made:02}Z") },
            "status": { "containerStatuses": [{ "name": "mcp", "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "state": state }] },
        });
        if going {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        }
        pod["spec"] = json!({ "containers": [{ "name": "mcp", "image": "i" }] });
        serde_json::from_value(pod).unwrap()
    }

    fn ready(mut pod: Pod) -> Pod {
        let condition = Condition { kind: "Ready".to_owned(), status: "True".to_owned() };
        pod.status.as_mut().unwrap().conditions.push(condition);
        pod
    }

    #[test]
    fn the_pod_that_runs_and_stays_is_picked_the_newest_first() {
        for (pods, wanted) in [
            (vec![], None),
            (vec![pod("s-0", 1, false, false)], None),
            (vec![pod("s-0", 1, true, true)], None),
            (vec![pod("s-1", 1, true, false), pod("s-0", 1, true, false)], Some("s-0")),
            (vec![pod("s-0", 1, true, false), pod("s-1", 2, true, false)], Some("s-1")),
            (vec![pod("s-0", 3, true, true), pod("s-1", 2, true, false)], Some("s-1")),
            (vec![ready(pod("s-0", 1, true, false)), pod("s-1", 2, true, false)], Some("s-0")),
        ] {
            assert_eq!(pick(&pods).and_then(|pod| pod.metadata.name.as_deref()), wanted);
        }
    }

    #[test]
    fn a_container_is_another_one_after_a_restart_and_in_another_pod() {
        let of = |uid: &str, id: Option<&str>| {
            let mut pod = pod("s-0", 1, true, false);
            pod.metadata.uid = Some(uid.to_owned());
            let status = json!({ "name": "mcp", "containerID": id, "state": { "running": {} } });
            pod.status.as_mut().unwrap().container_statuses = vec![serde_json::from_value(status).unwrap()];
            container(&pod)
        };
        assert!(of("one", Some("containerd://a")).is_some());
        assert_eq!(of("one", Some("containerd://a")), of("one", Some("containerd://a")));
        assert_ne!(of("one", Some("containerd://a")), of("one", Some("containerd://b")));
        assert_ne!(of("one", Some("containerd://a")), of("two", Some("containerd://a")));
        assert_eq!(of("one", None), None);
        assert_eq!(container(&pod("s-0", 1, true, false)), None);
    }
}
