//! What a test does with a control plane that works.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use skep_testkit::{ControlPlane, Seen, eventually};

#[tokio::test]
async fn a_control_plane_starts_and_answers() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let version = plane.client()?.apiserver_version().await?;
    assert_eq!(version.major, "1", "{version:?}");
    let pods = plane.kubectl(&["get", "pods", "--namespace", "default"]).await?;
    assert!(pods.status.success(), "{pods:?}");
    Ok(())
}

#[tokio::test]
async fn namespaces_are_distinct() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let (first, second) = (plane.namespace("same").await?, plane.namespace("same").await?);
    assert_ne!(first, second);
    assert!(first.starts_with("same-") && second.starts_with("same-"));
    Ok(())
}

#[tokio::test]
async fn pods_can_be_created_although_no_controller_runs() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("pods").await?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "idle" },
        "spec": { "containers": [{ "name": "main", "image": "localhost/none:1" }] },
    }))?;
    let pods = Api::<Pod>::namespaced(plane.client()?, &namespace);
    pods.create(&PostParams::default(), &pod).await?;
    assert_eq!(pods.list(&ListParams::default()).await?.items.len(), 1);
    Ok(())
}

#[tokio::test]
async fn kubectl_takes_input_and_reports_failure() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("kubectl").await?;
    let manifest =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "made", "namespace": namespace } });
    plane.kubectl_with_input(&["apply", "-f", "-"], &manifest.to_string()).await?.success()?;
    Api::<ConfigMap>::namespaced(plane.client()?, &namespace).get("made").await?;

    let error =
        plane.kubectl(&["get", "configmap", "absent", "-n", &namespace]).await?.success().unwrap_err().to_string();
    assert!(error.contains("kubectl get configmap absent"), "{error}");
    assert!(error.contains("NotFound"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_service_account_may_do_only_what_a_binding_allows() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("rbac").await?;
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "clerk" } }))?;
    Api::namespaced(plane.client()?, &namespace).create(&PostParams::default(), &account).await?;
    let clerk = kube::Client::try_from(plane.as_service_account(&namespace, "clerk").await?)?;
    let maps = Api::<ConfigMap>::namespaced(clerk, &namespace);

    let refused = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.is_forbidden()), "{refused}");

    let subject = format!("--serviceaccount={namespace}:clerk");
    for command in [
        ["create", "role", "clerk", "--verb=list", "--resource=configmaps", "-n", &namespace],
        ["create", "rolebinding", "clerk", "--role=clerk", &subject, "-n", &namespace],
    ] {
        plane.kubectl(&command).await?.success()?;
    }
    eventually("the binding to take effect", Duration::from_secs(10), || async {
        Ok(match maps.list(&ListParams::default()).await {
            Ok(_) => Seen::Yes(()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await?;
    let beyond = maps.create(&PostParams::default(), &ConfigMap::default()).await.unwrap_err();
    assert!(matches!(&beyond, kube::Error::Api(status) if status.is_forbidden()), "{beyond}");
    Ok(())
}
