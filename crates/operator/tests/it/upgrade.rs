//! Coming from the operator before us: its objects are taken over once, and stored versions are brought up to date.

use anyhow::Result;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_operator::migrate::{Migration, migrate};
use skep_plan::child::ChildKind;
use skep_testkit::ControlPlane;

use crate::running::{define, plane, start};

#[tokio::test]
async fn children_of_the_operator_before_us_are_taken_over_and_what_we_do_not_set_goes() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("upgrade").await?;
    let client = plane.client()?;
    let before = PostParams { field_manager: Some("thv-operator".into()), ..PostParams::default() };
    let servers: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &namespace, &skep_operator::write::api_resource(KindName::MCPServer));
    let server = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "s" }, "spec": { "image": "registry.example/a:1" },
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
    // Somebody else's annotation is not the old operator's.
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

#[tokio::test]
async fn objects_in_an_older_stored_version_are_written_anew_and_the_list_is_trimmed() -> Result<()> {
    let plane = ControlPlane::start().await?;
    // A definition that stores the older version, as it was before.
    let mut definition = serde_json::to_value(KindName::MCPWebhookConfig.definition()?)?;
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["storage"] = json!(version["name"] == "v1alpha1");
    }
    plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &definition.to_string()).await?.success()?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?.success()?;
    let namespace = plane.namespace("stored").await?;
    let webhook = |name: &str| {
        json!({
            "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": { "name": name, "namespace": namespace },
            "spec": { "validating": [{ "name": "a", "url": "https://a" }] },
        })
    };
    let client = plane.client()?;
    for index in 0..105 {
        plane_create(&client, &namespace, &webhook(&format!("w{index}"))).await?;
    }
    define(&plane).await?;
    let stored = || async {
        let text = plane
            .kubectl(&[
                "get",
                "crd",
                "mcpwebhookconfigs.toolhive.stacklok.dev",
                "-o",
                "jsonpath={.status.storedVersions}",
            ])
            .await?;
        text.success()
    };
    assert_eq!(stored().await?, r#"["v1alpha1","v1beta1"]"#);
    assert_eq!(migrate(&client, KindName::MCPWebhookConfig).await?, Migration::Done(105));
    assert_eq!(stored().await?, r#"["v1beta1"]"#);
    assert_eq!(migrate(&client, KindName::MCPWebhookConfig).await?, Migration::NotNeeded);
    plane.stop();
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
