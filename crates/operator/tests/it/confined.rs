//! What a resource may not reach: processes beside its proxy, and what others keep secret.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_operator::metrics::Metrics;
use skep_operator::write::Writer;
use skep_plan::canonical::sha256_hex;
use skep_plan::child::ChildKind;
use skep_plan::pod::INPUTS;
use skep_plan::pod::PodStamps;
use skep_plan::world::{LivePod, PodState};

use crate::running::{condition, operator, plane};

/// Item 17-10: a proxy would run the program in its own container, with its account and its secrets.
#[tokio::test]
async fn an_image_of_a_host_process_is_refused_with_a_condition() -> Result<()> {
    let operator = operator("hostprocess").await?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "exec://sh", "args": ["-c", "env"] })).await?;
    let failed = operator
        .until(KindName::MCPServer, "s", "is refused", |one| {
            condition(one, "ImageValidated") == Some(("False", "ImageValidationFailed"))
        })
        .await?;
    assert_eq!(
        (&failed["status"]["phase"], condition(&failed, "Ready").map(|(status, _)| status)),
        (&json!("Failed"), Some("False"))
    );
    operator.settled().await?;
    assert!(operator.children(ChildKind::Deployment).get_opt("s").await?.is_none());
    operator.edit(KindName::MCPServer, "s", json!({ "image": "registry.example/s:1" })).await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    let healed =
        operator.until(KindName::MCPServer, "s", "is healed", |one| condition(one, "ImageValidated").is_none());
    healed.await?;
    operator.stop().await
}

/// Item 17-14: who may read Deployments but no Secrets cannot try out values, and every replica makes the same digest.
#[tokio::test]
async fn the_digest_of_a_secret_cannot_be_tried_out() -> Result<()> {
    let operator = operator("digest").await?;
    let secrets: Api<Secret> = Api::namespaced(operator.client.clone(), &operator.namespace);
    let secret = json!({ "metadata": { "name": "my-token" }, "stringData": { "token": "hunter2" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let reference = json!({ "name": "my-token", "key": "token" });
    let auth = json!({ "type": "bearerToken", "bearerToken": { "tokenSecretRef": reference } });
    operator.create(KindName::MCPExternalAuthConfig, "auth", auth).await?;
    let spec = json!({ "remoteUrl": "https://mcp.example", "externalAuthConfigRef": { "name": "auth" } });
    operator.create(KindName::MCPRemoteProxy, "r", spec).await?;
    let stamp = |deployment: &Value| deployment["spec"]["template"]["metadata"]["annotations"][INPUTS].clone();
    let before = operator.child(ChildKind::Deployment, "r", "is stamped", |one| stamp(one).is_string()).await?;
    let plain = sha256_hex(format!("Secret/my-token/token={}", sha256_hex(b"hunter2")).as_bytes());
    assert_ne!(stamp(&before), plain, "anyone can compute this");
    // The variable is a POSIX name, and the RunConfig names the same.
    let environment = before["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let variable = environment.iter().find(|one| one["valueFrom"]["secretKeyRef"]["name"] == "my-token").unwrap();
    let variable = variable["name"].as_str().unwrap();
    assert!(variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{variable}");
    let config = operator.run_config("r", "exists", |_| true).await?;
    let named = config["remote_auth_config"]["bearer_token"].as_str().unwrap().split(',').next().unwrap().to_owned();
    assert_eq!(variable, format!("TOOLHIVE_SECRET_{named}"));
    // Another process of the operator comes to the same, and writes nothing.
    let versions = operator.settled().await?;
    let namespace = operator.namespace.clone();
    operator.stop().await?;
    let next = crate::running::start(plane().await?, namespace)?;
    assert_eq!(next.settled().await?, versions);
    next.stop().await
}

async fn pod(client: &Client, namespace: &str) -> Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = json!({
        "metadata": { "name": "s-1" },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }] },
    });
    Ok(pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?)
}

/// Item 17-14: a pod that took the name of the one that should go is another pod.
#[tokio::test]
async fn a_pod_is_deleted_by_its_uid() -> Result<()> {
    let plane = plane().await?;
    let (client, namespace) = (plane.client()?, plane.namespace("poduid").await?);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    let account = json!({ "metadata": { "name": "default" } });
    accounts.create(&PostParams::default(), &serde_json::from_value(account)?).await?;
    let known = |pod: &Pod| LivePod {
        name: "s-1".to_owned(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        state: PodState::Ready,
        stamps: PodStamps::default(),
        revision: None,
        created: String::new(),
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let writer = Writer::new(client.clone(), Metrics::new());
    let gone = known(&pod(&client, &namespace).await?);
    pods.delete("s-1", &DeleteParams::default().grace_period(0)).await?;
    let there = known(&pod(&client, &namespace).await?);
    writer.delete_pods(&namespace, std::slice::from_ref(&gone)).await?;
    assert!(pods.get_opt("s-1").await?.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()));
    writer.delete_pods(&namespace, &[there]).await?;
    assert!(pods.get_opt("s-1").await?.is_none());
    writer.delete_pods(&namespace, &[gone]).await.map_err(Into::into)
}
