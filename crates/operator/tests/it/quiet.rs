//! What the operator does not send: reads of what it knows, applies of what did not change, retries that cannot succeed.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;
use skep_testkit::{Seen, eventually};

use crate::running::{PATIENCE, Running, condition, operator};

fn server() -> Value {
    json!({ "image": "registry.example/a:1", "transport": "streamable-http" })
}

fn requests(operator: &Running, verb: &str) -> u64 {
    operator.counted("api_requests", &[&format!("verb=\"{verb}\"")])
}

#[tokio::test]
async fn the_session_key_of_a_virtual_server_is_read_once_per_change() -> Result<()> {
    let operator = operator("keys").await?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;
    let spec = json!({ "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" } });
    operator.create(KindName::VirtualMCPServer, "v", spec).await?;
    operator.child(ChildKind::Deployment, "v", "exists", |_| true).await?;
    operator.settled().await?;
    let reads = || operator.counted("api_requests", &["verb=\"get\"", "resource=\"secrets\""]);
    let before = reads();
    assert!(before <= 2, "{before} reads of a key that was not there, and then was");
    let reconciles = operator.counted("reconciles", &["VirtualMCPServer"]);
    // The API server defaults to one replica, so only from two on does a Deployment show that the edit was reconciled.
    for replicas in 2..=6 {
        operator.edit(KindName::VirtualMCPServer, "v", json!({ "replicas": replicas })).await?;
        let scaled = |one: &Value| one["spec"]["replicas"] == replicas;
        operator.child(ChildKind::Deployment, "v", "is scaled", scaled).await?;
    }
    // A reconcile is counted when it ends, which is after its children are applied.
    operator.settled().await?;
    assert!(operator.counted("reconciles", &["VirtualMCPServer"]) >= reconciles + 5);
    assert_eq!(reads(), before, "the key did not change");

    // A change of it is read, and reported.
    let secrets: Api<Secret> = Api::namespaced(operator.client.clone(), &operator.namespace);
    let spoilt = Patch::Merge(json!({ "stringData": { "hmac-secret": "short" } }));
    secrets.patch("v-hmac-secret", &PatchParams::default(), &spoilt).await?;
    let reported = |one: &Value| condition(one, "SessionKeyValid") == Some(("False", "HMACSecretValidationFailed"));
    operator.until(KindName::VirtualMCPServer, "v", "is reported", reported).await?;
    operator.settled().await?;
    assert_eq!(reads(), before + 1);
    // One that is deleted is made again.
    secrets.delete("v-hmac-secret", &DeleteParams::default()).await?;
    let healed = |one: &Value| condition(one, "SessionKeyValid").is_none() && one["status"]["phase"] == "Pending";
    operator.until(KindName::VirtualMCPServer, "v", "heals", healed).await?;
    operator.stop().await
}

#[tokio::test]
async fn labels_and_annotations_of_others_on_children_cost_no_apply() -> Result<()> {
    let operator = operator("foreign").await?;
    operator.create(KindName::MCPServer, "s", server()).await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    operator.settled().await?;
    let children = [
        (ChildKind::Deployment, "s"),
        (ChildKind::Service, "mcp-s-proxy"),
        (ChildKind::ConfigMap, "s-runconfig"),
        (ChildKind::ServiceAccount, "s-sa"),
        (ChildKind::Role, "s-proxy-runner"),
        (ChildKind::RoleBinding, "s-proxy-runner"),
    ];
    let before = requests(&operator, "apply");
    for (kind, name) in children {
        for round in 0..3 {
            let foreign =
                json!({ "labels": { "team": format!("t{round}") }, "annotations": { "note": round.to_string() } });
            let patch = Patch::Merge(json!({ "metadata": foreign }));
            operator.children(kind).patch(name, &PatchParams::default(), &patch).await?;
        }
    }
    operator.settled().await?;
    assert_eq!(requests(&operator, "apply"), before, "nothing of ours was changed");
    // What is ours is put back, by one apply each.
    for (kind, name) in children {
        let ours = if kind == ChildKind::ConfigMap { "toolhive.stacklok.io/component" } else { "app" };
        let has = |one: &Value| one.pointer("/metadata/labels").is_some_and(|labels| labels.get(ours).is_some());
        if !has(&operator.child(kind, name, "exists", |_| true).await?) {
            continue;
        }
        let before = requests(&operator, "apply");
        let patch = Patch::Merge(json!({ "metadata": { "labels": { ours: null } } }));
        operator.children(kind).patch(name, &PatchParams::default(), &patch).await?;
        operator.child(kind, name, "is put back", has).await?;
        operator.settled().await?;
        assert_eq!(requests(&operator, "apply"), before + 1, "{kind} {name}");
    }
    // A value of ours that another manager changed is restored as well.
    let patch = Patch::Merge(json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": 7 } } } }));
    operator.children(ChildKind::Deployment).patch("s", &PatchParams::default(), &patch).await?;
    let right = |one: &Value| one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 30;
    operator.child(ChildKind::Deployment, "s", "is put back", right).await?;
    operator.stop().await
}

#[tokio::test]
async fn a_terminating_namespace_is_left_in_peace() -> Result<()> {
    const SERVERS: usize = 5;
    let operator = operator("terminating").await?;
    for number in 0..SERVERS {
        operator.create(KindName::MCPServer, &format!("s{number}"), server()).await?;
    }
    for number in 0..SERVERS {
        operator.child(ChildKind::Deployment, &format!("s{number}"), "exists", |_| true).await?;
    }
    operator.settled().await?;
    // No controller of namespaces runs beside this API server: the namespace stays as it is.
    let namespaces: Api<Namespace> = Api::all(operator.client.clone());
    namespaces.delete(&operator.namespace, &DeleteParams::default()).await?;
    let before = (requests(&operator, "apply"), requests(&operator, "get"), requests(&operator, "patch"));
    for number in 0..SERVERS {
        for (kind, name) in [
            (ChildKind::Deployment, format!("s{number}")),
            (ChildKind::Service, format!("mcp-s{number}-proxy")),
            (ChildKind::ConfigMap, format!("s{number}-runconfig")),
            (ChildKind::ServiceAccount, format!("s{number}-sa")),
            (ChildKind::Role, format!("s{number}-proxy-runner")),
        ] {
            operator.children(kind).delete(&name, &DeleteParams::default()).await?;
        }
    }
    let refused = || operator.counted("reconciles", &["result=\"terminating\""]);
    eventually("each server was tried", PATIENCE, || async {
        Ok(if refused() >= SERVERS as u64 { Seen::Yes(()) } else { Seen::NotYet(format!("{}", refused())) })
    })
    .await?;
    operator.settled().await?;
    // Five deletions of each wake it, and each time costs a handful of requests the first time, one from then on.
    let sent = requests(&operator, "apply") - before.0 + requests(&operator, "get") - before.1;
    assert!(sent <= 10 * SERVERS as u64, "{sent} requests");
    assert_eq!(requests(&operator, "patch"), before.2, "nothing is written about it");
    let (applies, tries) = (requests(&operator, "apply"), refused());
    for number in 0..SERVERS {
        let poke = Patch::Merge(json!({ "metadata": { "annotations": { "poke": "1" } } }));
        operator.resources(KindName::MCPServer).patch(&format!("s{number}"), &PatchParams::default(), &poke).await?;
    }
    eventually("each server was tried again", PATIENCE, || async {
        let again = refused() - tries;
        Ok(if again >= SERVERS as u64 { Seen::Yes(()) } else { Seen::NotYet(format!("{again}")) })
    })
    .await?;
    assert_eq!(requests(&operator, "apply") - applies, refused() - tries, "one request each");
    // A server that is deleted goes nevertheless.
    operator.resources(KindName::MCPServer).delete("s0", &DeleteParams::default()).await?;
    operator.gone(KindName::MCPServer, "s0").await?;
    operator.stop().await
}
