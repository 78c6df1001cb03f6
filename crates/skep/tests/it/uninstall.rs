//! `skep uninstall` on a real API server.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use skep_testkit::{ControlPlane, Seen, eventually};

use crate::{Run, skep};

const LEASE: &str = "toolhive-operator-leader-election";
const FINALIZER: &str = "mcpserver.toolhive.stacklok.dev/finalizer";

/// A cluster with the definitions, and the namespace of an operator in it.
struct Subject {
    plane: ControlPlane,
    home: String,
}

impl Subject {
    async fn new() -> Result<Self> {
        let plane = ControlPlane::start().await?;
        skep(&["crds", "apply", "--kubeconfig", plane.kubeconfig().to_str().unwrap()]).succeeded();
        let home = plane.namespace("home").await?;
        Ok(Self { plane, home })
    }

    fn uninstall(&self, more: &[&str]) -> Run {
        let kubeconfig = self.plane.kubeconfig().to_str().unwrap();
        let mut arguments = vec!["uninstall", "--kubeconfig", kubeconfig, "--namespace", &self.home];
        arguments.extend(more);
        skep(&arguments)
    }

    fn resources(&self, kind: &str, plural: &str, namespace: &str) -> Result<Api<DynamicObject>> {
        let gvk = GroupVersionKind::gvk("toolhive.stacklok.dev", "v1beta1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Ok(Api::namespaced_with(self.plane.client()?, namespace, &resource))
    }

    async fn server(&self, namespace: &str, name: &str, finalizers: &[&str]) -> Result<Api<DynamicObject>> {
        let servers = self.resources("MCPServer", "mcpservers", namespace)?;
        let object = json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
            "metadata": { "name": name, "finalizers": finalizers }, "spec": { "image": "i" },
        });
        servers.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(servers)
    }

    async fn deployment(&self, replicas: i32) -> Result<Api<Deployment>> {
        let deployments: Api<Deployment> = Api::namespaced(self.plane.client()?, &self.home);
        let labels = json!({ "app": "operator" });
        let object = json!({
            "metadata": { "name": "skep-operator" },
            "spec": {
                "replicas": replicas, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
            },
        });
        deployments.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(deployments)
    }

    async fn lease(&self, holder: &str) -> Result<Api<Lease>> {
        let leases: Api<Lease> = Api::namespaced(self.plane.client()?, &self.home);
        let object = json!({
            "metadata": { "name": LEASE },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z" },
        });
        leases.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(leases)
    }
}

async fn finalizers(servers: &Api<DynamicObject>, name: &str) -> Result<Vec<String>> {
    Ok(servers.get(name).await?.metadata.finalizers.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_releases_every_object_and_can_be_repeated() -> Result<()> {
    let subject = Subject::new().await?;
    let (one, two) = (subject.plane.namespace("one").await?, subject.plane.namespace("two").await?);
    let servers = subject.server(&one, "plain", &[FINALIZER]).await?;
    subject.server(&one, "shared", &["other.example/finalizer", FINALIZER]).await?;
    let elsewhere = subject.server(&two, "leaving", &[FINALIZER]).await?;
    elsewhere.delete("leaving", &kube::api::DeleteParams::default()).await?;
    // A kind that this cluster does not have must not block the others.
    subject.plane.kubectl(&["delete", "crd", "mcpwebhookconfigs.toolhive.stacklok.dev"]).await?.success()?;
    let deployments = subject.deployment(2).await?;
    let leases = subject.lease("dead").await?;

    let dry = subject.uninstall(&["--dry-run", "-o", "json"]);
    let said: Value = serde_json::from_str(dry.succeeded())?;
    assert_eq!(said["dryRun"], true);
    assert_eq!(said["steps"].as_array().unwrap().iter().filter(|step| step["step"] == "released").count(), 3, "{said}");
    assert_eq!(finalizers(&servers, "plain").await?, [FINALIZER]);
    assert_eq!(deployments.get("skep-operator").await?.spec.unwrap().replicas, Some(2));
    assert!(leases.get_opt(LEASE).await?.is_some());

    let run = subject.uninstall(&[]);
    let said = run.succeeded();
    for words in [
        "Deployment skep-operator: scaled from 2 to 0".to_owned(),
        format!("MCPServer {one}/plain: released"),
        "MCPWebhookConfig: not defined in this cluster".to_owned(),
        format!("Lease {LEASE}: deleted"),
        "3 objects released".to_owned(),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    assert!(finalizers(&servers, "plain").await?.is_empty());
    assert_eq!(finalizers(&servers, "shared").await?, ["other.example/finalizer"]);
    let spec = servers.get("plain").await?.data["spec"].clone();
    assert_eq!(spec["image"], "i", "nothing but the finalizer changes");
    assert_eq!(deployments.get("skep-operator").await?.spec.unwrap().replicas, Some(0));
    assert!(leases.get_opt(LEASE).await?.is_none());
    eventually("the object that was being deleted to go", std::time::Duration::from_secs(20), || async {
        let left = elsewhere.get_opt("leaving").await?;
        Ok(if left.is_none() { Seen::Yes(()) } else { Seen::NotYet("still there".to_owned()) })
    })
    .await?;

    let again = subject.uninstall(&["-o", "json"]);
    let said: Value = serde_json::from_str(again.succeeded())?;
    assert!(said["steps"].as_array().unwrap().iter().all(|step| step["step"] == "notDefined"), "{said}");
    // The next command of the documentation, with no operator that would remove a finalizer.
    servers
        .patch("shared", &PatchParams::default(), &Patch::Merge(json!({ "metadata": { "finalizers": [] } })))
        .await?;
    let fresh = tempfile::tempdir()?;
    let cache = format!("--cache-dir={}", fresh.path().display());
    subject.plane.kubectl(&["delete", "toolhive", "--all", "--all-namespaces", &cache]).await?.success()?;
    assert!(servers.list(&kube::api::ListParams::default()).await?.items.is_empty());
    subject.plane.stop();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_keeps_to_the_namespaces_that_were_watched() -> Result<()> {
    let subject = Subject::new().await?;
    let (ours, theirs) = (subject.plane.namespace("ours").await?, subject.plane.namespace("theirs").await?);
    let released = subject.server(&ours, "s", &[FINALIZER]).await?;
    let kept = subject.server(&theirs, "s", &[FINALIZER]).await?;
    let watched = format!("{ours}, {}", subject.home);
    // Without a sign of the operator in its namespace, it may be running in another one.
    let refused = subject.uninstall(&["--watch-namespace", &watched]);
    refused.refused(1, &["neither Deployment `skep-operator` nor Lease", "--operator-gone"]);
    assert_eq!(finalizers(&released, "s").await?, [FINALIZER]);
    subject.uninstall(&["--watch-namespace", &watched, "--operator-gone"]).succeeded();
    assert!(finalizers(&released, "s").await?.is_empty());
    assert_eq!(finalizers(&kept, "s").await?, [FINALIZER]);
    subject.plane.stop();
    Ok(())
}

/// An operator that still runs would add its finalizers again.
#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_beside_an_operator_that_runs_is_refused() -> Result<()> {
    let subject = Subject::new().await?;
    let servers = subject.server(&subject.home, "s", &[FINALIZER]).await?;
    let leases = subject.lease("alive").await?;
    let long = Patch::Merge(json!({ "spec": { "leaseDurationSeconds": 60 } }));
    leases.patch(LEASE, &PatchParams::default(), &long).await?;
    let renewing = tokio::spawn({
        let leases = leases.clone();
        async move {
            for second in 1.. {
                let time = format!("2026-01-01T00:{:02}:{:02}.000000Z", second / 60 % 60, second % 60);
                let renewed = Patch::Merge(json!({ "spec": { "renewTime": time } }));
                leases.patch(LEASE, &PatchParams::default(), &renewed).await.unwrap();
            }
        }
    });
    let run = tokio::task::spawn_blocking(move || (subject.uninstall(&[]), subject)).await?;
    renewing.abort();
    let (run, subject) = run;
    assert_eq!(run.code, 1);
    assert!(run.err.contains("is held by `alive`, which still renews it; stop that operator first"), "{}", run.err);
    assert_eq!(finalizers(&servers, "s").await?, [FINALIZER]);
    subject.plane.stop();
    Ok(())
}
