//! Images of our own run in pods, become ready, and respond under the name of a Service.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::{Value, json};

use crate::cluster::{Cluster, fixture_image, product_image};

const PORT: u16 = 8080;

#[tokio::test]
async fn an_image_of_our_own_becomes_ready_and_responds() -> Result<()> {
    let (product, fixture) = (product_image()?, fixture_image()?);
    let cluster = Cluster::connect("smoke").await?;
    cluster.create::<Service>(service()).await?;
    cluster.create::<Pod>(responder(&product, &fixture)).await?;
    cluster.wait_until_ready("responder").await?;

    let version = cluster.logs("responder", "product").await?;
    let version: Value = serde_json::from_str(&version).with_context(|| format!("not JSON: {version:?}"))?;
    assert!(version["version"].is_string(), "no version in {version}");

    cluster.create::<Pod>(client(&fixture, cluster.namespace())).await?;
    cluster.wait_until_done("client").await?;
    let answer = cluster.logs("client", "client").await?;
    let answer: Value = serde_json::from_str(&answer).with_context(|| format!("not JSON: {answer:?}"))?;
    assert_eq!(answer, json!({ "fixture": "skep", "host": "responder", "path": "/smoke" }));
    cluster.remove().await
}

fn service() -> Value {
    json!({
        "metadata": { "name": "responder" },
        "spec": { "selector": { "app": "responder" }, "ports": [{ "port": PORT }] },
    })
}

/// The product runs first and to its end; then the fixture serves.
fn responder(product: &str, fixture: &str) -> Value {
    json!({
        "metadata": { "name": "responder", "labels": { "app": "responder" } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": pod_security(),
            "initContainers": [container("product", product, &["version", "-o", "json"], None)],
            "containers": [container("responder", fixture, &["serve", &PORT.to_string()], Some("/ready"))],
        },
    })
}

/// Requests the responder by its name, through cluster DNS and the Service.
fn client(fixture: &str, namespace: &str) -> Value {
    let url = format!("http://responder.{namespace}.svc.cluster.local:{PORT}/smoke");
    json!({
        "metadata": { "name": "client" },
        "spec": {
            "restartPolicy": "Never",
            "securityContext": pod_security(),
            "containers": [container("client", fixture, &["get", &url], None)],
        },
    })
}

/// `ready` is the path of the readiness probe.
fn container(name: &str, image: &str, arguments: &[&str], ready: Option<&str>) -> Value {
    let probe = ready.map(|path| json!({ "httpGet": { "path": path, "port": PORT }, "periodSeconds": 1 }));
    json!({
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "args": arguments,
        "readinessProbe": probe,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
    })
}

fn pod_security() -> Value {
    json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } })
}
