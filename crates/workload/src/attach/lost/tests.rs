use anyhow::Result;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use skep_testkit::ControlPlane;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Pods without a kubelet: the test writes their status.
struct Pods(Api<k8s_openapi::api::core::v1::Pod>, Api<Pod>);

impl Pods {
    async fn new() -> Result<Self> {
        let plane = ControlPlane::shared().await?;
        let (client, namespace) = (crate::client::client(plane.config())?, plane.namespace("lost").await?);
        let resource = kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", "Pod"));
        let pods = Api::namespaced_with(client.clone(), &namespace, &resource);
        Ok(Self(Api::namespaced(client, &namespace), pods))
    }

    /// A pod on a node, so that it terminates gracefully when it is deleted.
    async fn make(&self, name: &str) -> Result<()> {
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": "s" } },
            "spec": {
                "nodeName": "n", "automountServiceAccountToken": false,
                "containers": [{ "name": "mcp", "image": "i" }],
            },
        });
        self.0.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        self.set(name, true, json!({ "running": {} })).await
    }

    /// The kubelet reports which container runs.
    async fn restarted(&self, name: &str, container: &str) -> Result<()> {
        self.set_status(name, true, json!({ "containerID": container, "state": { "running": {} } })).await
    }

    async fn set(&self, name: &str, ready: bool, state: Value) -> Result<()> {
        self.set_status(name, ready, json!({ "state": state })).await
    }

    async fn set_status(&self, name: &str, ready: bool, more: Value) -> Result<()> {
        let ready = if ready { "True" } else { "False" };
        let mut container = json!({ "name": "mcp", "image": "i", "imageID": "i", "ready": true, "restartCount": 0 });
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let status = json!({ "conditions": [{ "type": "Ready", "status": ready }], "containerStatuses": [container] });
        self.0.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await?;
        Ok(())
    }

    /// Watches a pod.
    async fn attached(&self, name: &str) -> Result<tokio::task::JoinHandle<()>> {
        Ok(tokio::spawn(self.to(name, self.0.get(name).await?.metadata.uid, None).0.lost()))
    }

    /// An attachment to a pod, and the identity of its container at that time.
    fn to(
        &self,
        name: &str,
        uid: Option<String>,
        container: Option<String>,
    ) -> (Attached, signal::Receiver<Option<String>>) {
        let (seen, container) = signal::channel(container);
        let (pods, labels) = (self.1.clone(), "app=s".to_owned());
        (Attached { pods, labels, name: name.to_owned(), uid, container: seen }, container)
    }

    /// Deletes a pod at once.
    async fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_pod_is_lost_when_it_is_deleted_or_ended_or_another_one_is_better() -> Result<()> {
    let pods = Pods::new().await?;
    // It is deleted.
    pods.make("s-0").await?;
    let first = pods.attached("s-0").await?;
    pods.delete("s-0").await?;
    tokio::time::timeout(PATIENCE, first).await??;
    // It was deleted, and another one has its name already.
    pods.make("s-0").await?;
    let uid = Some("another".to_owned());
    tokio::time::timeout(PATIENCE, pods.to("s-0", uid, None).0.lost()).await?;
    // It is terminating, and its server has ended.
    let last = pods.attached("s-0").await?;
    pods.0.delete("s-0", &DeleteParams::default().grace_period(600)).await?;
    pods.set("s-0", false, json!({ "terminated": { "exitCode": 0 } })).await?;
    tokio::time::timeout(PATIENCE, last).await??;
    pods.delete("s-0").await?;
    // Its node is lost, and there is another one.
    pods.make("s-0").await?;
    let on_a_lost_node = pods.attached("s-0").await?;
    pods.make("s-1").await?;
    pods.set("s-0", false, json!({ "running": {} })).await?;
    tokio::time::timeout(PATIENCE, on_a_lost_node).await??;
    Ok(())
}

#[tokio::test]
async fn an_existing_pod_stays_attached() -> Result<()> {
    let pods = Pods::new().await?;
    pods.make("s-0").await?;
    let attached = pods.attached("s-0").await?;
    // Not ready, but there is no other one; terminating, but its server still runs; and a newer one, but this one is
    // ready.
    pods.set("s-0", false, json!({ "running": {} })).await?;
    pods.set("s-0", true, json!({ "running": {} })).await?;
    pods.make("s-1").await?;
    pods.0.delete("s-0", &DeleteParams::default().grace_period(600)).await?;
    // A second watch that has seen the end of all this and more: the first one has as well, or will have done no harm.
    let other = pods.attached("s-1").await?;
    pods.delete("s-1").await?;
    tokio::time::timeout(PATIENCE, other).await??;
    assert!(!attached.is_finished());
    attached.abort();
    Ok(())
}

/// The attached container was started before its kubelet reported it.
#[tokio::test]
async fn a_container_is_the_one_that_the_pod_reports_last() -> Result<()> {
    let pods = Pods::new().await?;
    pods.make("s-0").await?;
    pods.restarted("s-0", "containerd://old").await?;
    let before: Pod = pods.1.get("s-0").await?;
    let (attached, mut known) = pods.to("s-0", before.metadata.uid.clone(), container(&before));
    let watching = tokio::spawn(attached.lost());
    pods.restarted("s-0", "containerd://new").await?;
    let is_new = |known: &Option<String>| known.as_ref().is_some_and(|known| known.ends_with(" containerd://new"));
    tokio::time::timeout(PATIENCE, known.wait_for(is_new)).await??;
    // While there is none, it is still the last one.
    pods.set("s-0", true, json!({ "waiting": {} })).await?;
    pods.delete("s-0").await?;
    tokio::time::timeout(PATIENCE, watching).await??;
    assert!(is_new(&known.borrow()));
    Ok(())
}

#[tokio::test]
async fn received_output_is_read_before_the_end() {
    let (mut server, output) = tokio::io::duplex(64);
    let (lost, hears) = oneshot::channel();
    let mut output = Until::new(output, hears);
    server.write_all(b"last words").await.unwrap();
    lost.send(()).unwrap();
    let mut said = String::new();
    tokio::time::timeout(PATIENCE, output.read_to_string(&mut said)).await.unwrap().unwrap();
    assert_eq!(said, "last words");
    // The watch has ended: that is no reason to end the output.
    let (mut server, output) = tokio::io::duplex(64);
    let mut output = Until::new(output, oneshot::channel().1);
    server.write_all(b"words").await.unwrap();
    drop(server);
    let mut said = String::new();
    output.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "words");
}
