//! Coming from the operator before us: its objects are taken over once, and stored versions are brought up to date.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use skep_api::crd::MIGRATE_LABEL;
use skep_api::resource::KindName;
use skep_operator::events::Events;
use skep_operator::migrate::{Migration, keep_migrated, migrate};
use skep_operator::write::api_resource;
use skep_plan::child::ChildKind;
use skep_testkit::{ControlPlane, Seen, eventually};

use crate::between::{Verdict, between, refusal};
use crate::running::{define, plane, start};

const DEFINITION: &str = "mcpwebhookconfigs.toolhive.stacklok.dev";
const DEFINITION_STATUS: &str = "mcpwebhookconfigs.toolhive.stacklok.dev/status";
/// The stored versions before a migration.
const BOTH: &str = r#"["v1alpha1","v1beta1"]"#;

#[tokio::test]
async fn children_of_the_operator_before_us_are_taken_over_and_what_we_do_not_set_goes() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("upgrade").await?;
    let client = plane.client()?;
    let before = PostParams { field_manager: Some("thv-operator".into()), ..PostParams::default() };
    let servers: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &namespace, &skep_operator::write::api_resource(KindName::MCPServer));
    let server = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "s" },
        "spec": { "image": "registry.example/a:1", "transport": "streamable-http" },
    });
    let uid = servers.create(&PostParams::default(), &serde_json::from_value(server)?).await?.metadata.uid;
    let labels = json!({ "app": "mcpserver", "app.kubernetes.io/name": "mcpserver", "app.kubernetes.io/instance": "s", "toolhive": "true", "toolhive-name": "s" });
    let deployments: Api<DynamicObject> =
        Api::namespaced_with(client, &namespace, &skep_operator::write::child_resource(ChildKind::Deployment));
    let old = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "s", "labels": labels,
            "ownerReferences": [{ "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "name": "s", "uid": uid, "controller": true, "blockOwnerDeletion": true }],
        },
        "spec": { "replicas": 3, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels, "annotations": { "left-by": "the-old-one" } },
            "spec": { "containers": [{ "name": "toolhive", "image": "old", "env": [{ "name": "ONLY_OLD", "value": "1" }] }], "nodeSelector": { "old": "yes" } },
        }},
    });
    deployments.create(&before, &serde_json::from_value(old)?).await?;
    // An annotation of another manager is not the old operator's.
    let theirs = Patch::Merge(json!({ "metadata": { "annotations": { "theirs": "yes" } } }));
    deployments
        .patch("s", &PatchParams { field_manager: Some("kubectl".into()), ..PatchParams::default() }, &theirs)
        .await?;

    let operator = start(plane, namespace)?;
    let ours =
        |one: &Value| one["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/proxyrunner:1";
    let taken = operator.child(ChildKind::Deployment, "s", "is ours", ours).await?;
    let template = &taken["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"].get("left-by"), None, "{template}");
    assert_eq!(template["spec"].get("nodeSelector"), None, "{template}");
    assert!(!template["spec"]["containers"][0]["env"].to_string().contains("ONLY_OLD"), "{template}");
    assert_eq!(taken["metadata"]["annotations"]["theirs"], "yes");
    assert_eq!(taken["spec"]["replicas"], 3, "the number of replicas may be an autoscaler's");
    let managers = taken["metadata"]["managedFields"].to_string();
    assert!(!managers.contains("thv-operator") && managers.contains("skep-operator"), "{managers}");
    let settled = operator.settled().await?;
    assert_eq!(settled, operator.settled().await?);
    operator.stop().await
}

/// Releases of ToolHive that wrote v1alpha1 had a phase `Running`. Nothing validates a status that is stored already.
#[tokio::test]
async fn a_status_of_an_older_release_that_cannot_be_read_is_replaced() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let mut before = serde_json::to_value(KindName::MCPServer.definition()?)?;
    for version in before["spec"]["versions"].as_array_mut().unwrap() {
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        version["schema"]["openAPIV3Schema"]["properties"]["status"] = open;
    }
    plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &before.to_string()).await?.success()?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=180s"]).await?.success()?;
    let namespace = plane.namespace("status").await?;
    let servers: Api<DynamicObject> =
        Api::namespaced_with(plane.client()?, &namespace, &api_resource(KindName::MCPServer));
    let server = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
        "metadata": { "name": "s", "finalizers": [KindName::MCPServer.finalizer()] }, "spec": { "image": "i" },
    });
    servers.create(&PostParams::default(), &serde_json::from_value(server)?).await?;
    // The count is of another type, and no plan of a server without pods sets it.
    let status = json!({ "phase": "Running", "message": "MCP server is running", "readyReplicas": "one" });
    servers.patch_status("s", &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await?;
    define(&plane).await?;

    let operator = start(&plane, namespace)?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    let is_ours = |one: &Value| one["status"]["phase"] == "Pending" && one["status"]["readyReplicas"].is_null();
    operator.until(KindName::MCPServer, "s", "has a status of ours", is_ours).await?;
    operator.settled().await?;
    operator.stop().await?;
    plane.stop();
    Ok(())
}

/// An API server that holds objects in the older version, and the namespace that they are in.
struct Older {
    plane: ControlPlane,
    client: Client,
    namespace: String,
}

impl Older {
    async fn with(objects: usize) -> Result<Self> {
        let plane = ControlPlane::start().await?;
        // A definition that stores the older version, as it was before.
        let mut definition = serde_json::to_value(KindName::MCPWebhookConfig.definition()?)?;
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["storage"] = json!(version["name"] == "v1alpha1");
        }
        plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &definition.to_string()).await?.success()?;
        plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?.success()?;
        let namespace = plane.namespace("stored").await?;
        let client = plane.client()?;
        for index in 0..objects {
            let webhook = json!({
                "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig",
                "metadata": { "name": format!("w{index}"), "namespace": namespace },
                "spec": { "validating": [{ "name": "a", "url": "https://a" }] },
            });
            plane_create(&client, &namespace, &webhook).await?;
        }
        define(&plane).await?;
        Ok(Self { plane, client, namespace })
    }

    /// The versions that objects may be stored in.
    async fn stored(&self) -> Result<String> {
        let path = "jsonpath={.status.storedVersions}";
        self.plane.kubectl(&["get", "crd", DEFINITION, "-o", path]).await?.success()
    }

    async fn version_of(&self, name: &str) -> Result<String> {
        let objects: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &api_resource(KindName::MCPWebhookConfig));
        Ok(objects.get(name).await?.metadata.resource_version.unwrap_or_default())
    }

    /// A client whose writes of one object end as given.
    fn client_that_fails(&self, name: &'static str, code: u16, reason: &'static str, times: usize) -> Client {
        let left = Arc::new(AtomicUsize::new(times));
        between(self.client.clone(), move |request| {
            let (left, hit) = (left.clone(), request.method() == "PATCH" && request.uri().path().ends_with(name));
            async move {
                let due =
                    hit && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
                if due { Verdict::Answer(refusal(code, reason)) } else { Verdict::Pass(request) }
            }
        })
    }
}

#[tokio::test]
async fn objects_in_an_older_stored_version_are_written_anew_and_the_list_is_trimmed() -> Result<()> {
    let older = Older::with(105).await?;
    assert_eq!(older.stored().await?, BOTH);
    let before = older.version_of("w0").await?;
    assert_eq!(migrate(&older.client, KindName::MCPWebhookConfig).await?, Migration::Done(105));
    assert_eq!(older.stored().await?, r#"["v1beta1"]"#);
    let after = older.version_of("w0").await?;
    assert_ne!(after, before, "the object was written anew");
    assert_eq!(migrate(&older.client, KindName::MCPWebhookConfig).await?, Migration::NotNeeded);
    // What is stored in today's version already is asked about, and not written.
    let listed = json!({ "status": { "storedVersions": ["v1alpha1", "v1beta1"] } }).to_string();
    let patch = ["patch", "crd", DEFINITION, "--subresource=status", "--type=merge", "-p", listed.as_str()];
    older.plane.kubectl(&patch).await?.success()?;
    assert_eq!(migrate(&older.client, KindName::MCPWebhookConfig).await?, Migration::Done(105));
    assert_eq!(older.version_of("w0").await?, after);
    older.plane.stop();
    Ok(())
}

/// The field managers of an object nest as deep as the object does: it must not cost the page that the object is in.
#[tokio::test]
async fn an_object_that_is_nested_too_deep_is_written_anew_with_the_others() -> Result<()> {
    let plane = ControlPlane::start().await?;
    define(&plane).await?;
    let namespace = plane.namespace("deep").await?;
    let servers: Api<DynamicObject> =
        Api::namespaced_with(plane.client()?, &namespace, &api_resource(KindName::MCPServer));
    plane.kubectl_with_input(&["create", "-f", "-"], &deep_server(&namespace, "deep", &[])).await?.success()?;
    let good = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "good" }, "spec": { "image": "i" },
    });
    servers.create(&PostParams::default(), &serde_json::from_value(good)?).await?;
    let listed = json!({ "status": { "storedVersions": ["v1alpha1", "v1beta1"] } }).to_string();
    let definition = "mcpservers.toolhive.stacklok.dev";
    let patch = ["patch", "crd", definition, "--subresource=status", "--type=merge", "-p", listed.as_str()];
    plane.kubectl(&patch).await?.success()?;
    assert_eq!(migrate(&plane.client()?, KindName::MCPServer).await?, Migration::Done(2));
    plane.stop();
    Ok(())
}

/// A server that is nested deeper than our reader of JSON goes, wherever it is in an answer.
pub(crate) fn deep_server(namespace: &str, name: &str, finalizers: &[&str]) -> String {
    let deep = (0..140).fold(json!(1), |inner, _| json!({ "x": inner }));
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
        "metadata": { "name": name, "namespace": namespace, "finalizers": finalizers },
        "spec": { "image": "i", "podTemplateSpec": deep },
    });
    object.to_string()
}

#[tokio::test]
async fn a_migration_that_does_not_come_to_its_end_leaves_the_list_alone() -> Result<()> {
    let older = Older::with(3).await?;
    let failing = older.client_that_fails("/w1", 500, "InternalError", usize::MAX);
    let failed = migrate(&failing, KindName::MCPWebhookConfig).await.unwrap_err();
    assert!(failed.to_string().contains("/w1"), "{failed}");
    assert_eq!(older.stored().await?, BOTH);

    let contended = older.client_that_fails("/w1", 409, "Conflict", usize::MAX);
    assert_eq!(migrate(&contended, KindName::MCPWebhookConfig).await?, Migration::Interrupted);
    assert_eq!(older.stored().await?, BOTH);

    let raced = older.client_that_fails(DEFINITION_STATUS, 409, "Conflict", 1);
    assert_eq!(migrate(&raced, KindName::MCPWebhookConfig).await?, Migration::Interrupted);
    assert_eq!(older.stored().await?, BOTH);

    // One conflict is overcome at once, and the next pass ends.
    let once = older.client_that_fails("/w1", 409, "Conflict", 1);
    assert_eq!(migrate(&once, KindName::MCPWebhookConfig).await?, Migration::Done(3));
    assert_eq!(older.stored().await?, r#"["v1beta1"]"#);
    older.plane.stop();
    Ok(())
}

#[tokio::test]
async fn a_definition_that_does_not_ask_is_left_alone_and_one_that_begins_to_ask_gets_an_event() -> Result<()> {
    let older = Older::with(1).await?;
    let label = format!("{MIGRATE_LABEL}-");
    older.plane.kubectl(&["label", "crd", DEFINITION, &label]).await?.success()?;
    assert_eq!(migrate(&older.client, KindName::MCPWebhookConfig).await?, Migration::NotNeeded);
    assert_eq!(older.stored().await?, BOTH);

    let events = Events::new(older.client.clone(), "test", None);
    let keeper = tokio::spawn(keep_migrated(older.client.clone(), events));
    older.plane.kubectl(&["label", "crd", DEFINITION, &format!("{MIGRATE_LABEL}=true")]).await?.success()?;
    eventually("the list is trimmed and an event is published", crate::running::PATIENCE, || async {
        let reported = older
            .plane
            .kubectl(&["get", "events.events.k8s.io", "-A", "-o", "jsonpath={.items[*].reason}"])
            .await?
            .success()?;
        let done = older.stored().await? == r#"["v1beta1"]"# && reported.contains("StorageVersionMigrationSucceeded");
        Ok(if done { Seen::Yes(()) } else { Seen::NotYet(reported) })
    })
    .await?;
    keeper.abort();
    older.plane.stop();
    Ok(())
}

async fn plane_create(client: &kube::Client, namespace: &str, object: &Value) -> Result<()> {
    let resource = kube::core::ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk("toolhive.stacklok.dev", "v1alpha1", "MCPWebhookConfig"),
        "mcpwebhookconfigs",
    );
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    objects.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await?;
    Ok(())
}
