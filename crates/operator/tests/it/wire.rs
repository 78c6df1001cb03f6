//! What the write helpers put on the wire, and what a real API server makes of it.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use http::{Request, Response};
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use serde_json::{Map, Value, json};
use skep_api::resource::{KindName, Resource, finalizer};
use skep_operator::metrics::Metrics;
use skep_operator::write::{WriteError, Writer};
use tower::service_fn;

use crate::running::{operator, plane};

/// What was asked: method, path, body.
type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A client that answers everything with `status` and `answer`, and remembers what it was asked: method, path, body.
fn recorded(status: u16, answer: Value) -> (Writer, Asked) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let service = service_fn(move |request: Request<Body>| {
        let (log, answer) = (log.clone(), answer.clone());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await?;
            let path = parts.uri.path().to_owned();
            log.lock().unwrap().push((
                parts.method.to_string(),
                path,
                serde_json::from_slice(&bytes).unwrap_or_default(),
            ));
            let response = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
        }
    });
    (Writer::new(Client::new(service, "ns"), Metrics::new()), seen)
}

fn server(version: &str, finalizers: &[&str]) -> Resource {
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
        "metadata": { "name": "s", "namespace": "ns", "resourceVersion": version, "finalizers": finalizers },
        "spec": { "image": "i" },
    });
    Resource::from_value(KindName::MCPServer, object).unwrap()
}

fn change(name: &str, value: Value) -> Map<String, Value> {
    [(name.to_owned(), value)].into_iter().collect()
}

#[tokio::test]
async fn changes_of_metadata_are_merge_patches_that_carry_the_version_they_were_made_from() -> Result<()> {
    let (writer, seen) = recorded(200, json!({ "metadata": { "name": "s" } }));
    writer
        .metadata(KindName::MCPServer, server("41", &[]).metadata(), change("finalizers", json!([finalizer::SERVER])))
        .await?;
    writer
        .metadata(KindName::MCPServer, server("42", &[finalizer::SERVER]).metadata(), change("finalizers", json!([])))
        .await?;
    writer
        .metadata(KindName::MCPServer, server("43", &[]).metadata(), change("annotations", json!({ "a": "b" })))
        .await?;
    let seen = seen.lock().unwrap();
    let versions: Vec<_> =
        seen.iter().map(|(_, _, body)| body["metadata"]["resourceVersion"].as_str().unwrap()).collect();
    assert_eq!(versions, ["41", "42", "43"]);
    assert!(seen.iter().all(|(method, path, _)| method == "PATCH" && path.ends_with("/namespaces/ns/mcpservers/s")));
    assert_eq!(seen[0].2["metadata"]["finalizers"], json!([finalizer::SERVER]));
    Ok(())
}

#[tokio::test]
async fn a_status_that_did_not_change_sends_nothing_and_a_change_sends_the_difference_without_a_precondition()
-> Result<()> {
    let (writer, seen) = recorded(200, json!({ "metadata": { "name": "s" } }));
    let old = json!({ "phase": "Ready", "url": "u", "conditions": [{ "type": "Ready" }] });
    assert!(writer.status(KindName::MCPServer, server("1", &[]).metadata(), &old, &old).await?.is_none());
    assert!(seen.lock().unwrap().is_empty());
    writer
        .status(
            KindName::MCPServer,
            server("1", &[]).metadata(),
            &old,
            &json!({ "phase": "Failed", "conditions": [{ "type": "Ready" }] }),
        )
        .await?;
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].1, "/apis/toolhive.stacklok.dev/v1beta1/namespaces/ns/mcpservers/s/status");
    assert_eq!(seen[0].2, json!({ "status": { "phase": "Failed", "url": null } }));
    Ok(())
}

#[tokio::test]
async fn a_refusal_reaches_the_caller_as_it_came() -> Result<()> {
    let refusal = |code: u16, reason: &str| json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no" });
    let (writer, _) = recorded(409, refusal(409, "Conflict"));
    let error = writer.metadata(KindName::MCPServer, server("1", &[]).metadata(), Map::new()).await.unwrap_err();
    assert!(matches!(error, WriteError::Conflict { .. }), "{error:?}");
    let (writer, _) = recorded(403, refusal(403, "Forbidden"));
    let error = writer
        .status(KindName::MCPServer, server("1", &[]).metadata(), &json!({}), &json!({ "phase": "x" }))
        .await
        .unwrap_err();
    assert!(matches!(&error, WriteError::Api { source, .. } if source.to_string().contains("no")), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn two_controllers_that_add_finalizers_at_once_both_keep_theirs() -> Result<()> {
    let running = operator("finalizers").await?;
    running.create(KindName::MCPServer, "s", json!({ "image": "i" })).await?;
    running.settled().await?;
    let servers = running.resources(KindName::MCPServer);
    let read = || async {
        let object = serde_json::to_value(servers.get("s").await?)?;
        Ok::<_, anyhow::Error>(Resource::from_value(KindName::MCPServer, object)?)
    };
    let writer = Writer::new(plane().await?.client()?, Metrics::new());
    let add = |me: &Resource, name: &str| {
        let mut all = me.metadata().finalizers.clone().unwrap_or_default();
        all.push(name.to_owned());
        change("finalizers", json!(all))
    };
    // Both have read the same version; the second one to write must not erase the first one's.
    let (one, other) = (read().await?, read().await?);
    writer.metadata(KindName::MCPServer, one.metadata(), add(&one, "example.com/one")).await?;
    let lost =
        writer.metadata(KindName::MCPServer, other.metadata(), add(&other, "example.com/other")).await.unwrap_err();
    assert!(matches!(lost, WriteError::Conflict { .. }));
    let other = read().await?;
    writer.metadata(KindName::MCPServer, other.metadata(), add(&other, "example.com/other")).await?;
    let all = read().await?.metadata().finalizers.clone().unwrap_or_default();
    assert_eq!(all, [finalizer::SERVER, "example.com/one", "example.com/other"]);
    let none = Patch::Merge(json!({ "metadata": { "finalizers": [] } }));
    servers.patch("s", &PatchParams::default(), &none).await?;
    running.stop().await
}

#[tokio::test]
async fn the_two_traps_of_a_status_difference_are_as_documented() -> Result<()> {
    let running = operator("traps").await?;
    running
        .create(
            KindName::VirtualMCPServer,
            "v",
            json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" } }),
        )
        .await?;
    running.settled().await?;
    let servers = running.resources(KindName::VirtualMCPServer);
    let status = |patch: Value| {
        let servers = servers.clone();
        async move {
            let patch = Patch::Merge(json!({ "status": patch }));
            Ok::<_, anyhow::Error>(serde_json::to_value(
                servers.patch_status("v", &PatchParams::default(), &patch).await?,
            )?)
        }
    };
    let me = serde_json::to_value(servers.get("v").await?)?;
    let resource = Resource::from_value(KindName::VirtualMCPServer, me.clone())?;
    let writer = Writer::new(plane().await?.client()?, Metrics::new());
    // A program that reports on other fields of the same status is not disturbed by a writer with a stale snapshot.
    status(json!({ "backendCount": 3 })).await?;
    let stale = me["status"].clone();
    let mut next = stale.clone();
    next["message"] = json!("from a stale snapshot");
    let written = writer.status(resource.kind(), resource.metadata(), &stale, &next).await?.unwrap();
    assert_eq!(
        (&written.value()["status"]["backendCount"], &written.value()["status"]["message"]),
        (&json!(3), &json!("from a stale snapshot"))
    );
    // Trap one: a scalar that changed since is overwritten, because the difference was made from what was there before.
    status(json!({ "message": "newer" })).await?;
    next["message"] = json!("older");
    let written = writer.status(resource.kind(), resource.metadata(), &stale, &next).await?.unwrap();
    assert_eq!(written.value()["status"]["message"], "older");
    // Trap two: an array is replaced whole; what the snapshot did not have is gone.
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    status(json!({ "conditions": [condition("Theirs"), condition("Ready")] })).await?;
    next["conditions"] = json!([condition("Ours")]);
    let written = writer.status(resource.kind(), resource.metadata(), &stale, &next).await?.unwrap();
    assert!(!written.value()["status"]["conditions"].to_string().contains("Theirs"));
    running.stop().await
}
