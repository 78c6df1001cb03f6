//! What goes wrong around an operator: an API server that restarts, a store that hangs, a process that dies in the middle,
//! a second writer that never rests, an object that cannot be read. Afterwards the state is right and nothing rolled.

use std::time::Duration;

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;
use skep_testkit::ControlPlane;

use crate::running::{condition, define, operator, start};

fn server(image: &str) -> Value {
    json!({ "image": image, "transport": "streamable-http" })
}

fn template(deployment: &Value) -> Value {
    deployment["spec"]["template"].clone()
}

#[tokio::test]
async fn an_api_server_that_restarts_and_a_store_that_hangs_lose_nothing_and_roll_nothing() -> Result<()> {
    let mut plane = ControlPlane::start().await?;
    define(&plane).await?;
    let namespace = plane.namespace("faults").await?;
    let operator = start(&plane, namespace)?;
    operator.create(KindName::MCPServer, "before", server("registry.example/a:1")).await?;
    let before = template(&operator.child(ChildKind::Deployment, "before", "exists", |_| true).await?);
    operator.settled().await?;

    plane.restart_apiserver().await?;
    operator.create(KindName::MCPServer, "after", server("registry.example/a:1")).await?;
    operator.child(ChildKind::Deployment, "after", "exists after the restart", |_| true).await?;

    plane.pause_etcd()?;
    // Long enough for every request under way to time out.
    tokio::time::sleep(Duration::from_secs(20)).await;
    plane.resume_etcd()?;
    skep_testkit::eventually("the API server takes writes again", Duration::from_mins(1), || async {
        Ok(match operator.create(KindName::MCPServer, "later", server("registry.example/a:1")).await {
            Ok(_) => skep_testkit::Seen::Yes(()),
            Err(error) if error.to_string().contains("AlreadyExists") => skep_testkit::Seen::Yes(()),
            Err(error) => skep_testkit::Seen::NotYet(error.to_string()),
        })
    })
    .await?;
    operator.child(ChildKind::Deployment, "later", "exists after the pause", |_| true).await?;
    let after = template(&operator.child(ChildKind::Deployment, "before", "exists", |_| true).await?);
    assert_eq!(before, after);
    operator.stop().await?;
    plane.stop();
    Ok(())
}

#[tokio::test]
async fn an_operator_that_dies_in_the_middle_is_finished_by_the_next_one() -> Result<()> {
    let first = operator("death").await?;
    for index in 0..10 {
        first.create(KindName::MCPServer, &format!("s{index}"), server("registry.example/a:1")).await?;
    }
    // As with SIGKILL: nothing is finished, nothing is said.
    let namespace = first.namespace.clone();
    first.abort().await;
    let second = start(crate::running::plane().await?, namespace)?;
    for index in 0..10 {
        second.child(ChildKind::Deployment, &format!("s{index}"), "exists", |_| true).await?;
        second
            .until(KindName::MCPServer, &format!("s{index}"), "has a status", |one| one["status"]["phase"] == "Pending")
            .await?;
    }
    let settled = second.settled().await?;
    let namespace = second.namespace.clone();
    second.stop().await?;
    // A third one finds nothing to do: a restart is one no-op apply per child.
    let third = start(crate::running::plane().await?, namespace)?;
    assert_eq!(settled, third.settled().await?);
    third.stop().await
}

#[tokio::test]
async fn a_hostile_second_writer_does_not_keep_the_state_from_being_right() -> Result<()> {
    let operator = operator("hostile").await?;
    operator.create(KindName::MCPServer, "s", server("registry.example/a:1")).await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    for round in 0..30 {
        let server = Patch::Merge(json!({ "metadata": { "annotations": { "round": round.to_string() } } }));
        operator.resources(KindName::MCPServer).patch("s", &PatchParams::default(), &server).await?;
        let deployment =
            Patch::Merge(json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": round } } } }));
        operator.children(ChildKind::Deployment).patch("s", &PatchParams::default(), &deployment).await?;
    }
    operator.edit(KindName::MCPServer, "s", server("registry.example/a:2")).await?;
    let right = |one: &Value| {
        let pod = &one["spec"]["template"]["spec"];
        pod["terminationGracePeriodSeconds"] == 30 && pod["containers"][0]["args"].to_string().contains("a:2")
    };
    operator.child(ChildKind::Deployment, "s", "is right", right).await?;
    operator.settled().await?;
    operator.stop().await
}

#[tokio::test]
async fn an_object_that_cannot_be_read_gets_a_condition_and_stops_nobody_else() -> Result<()> {
    let operator = operator("unreadable").await?;
    // The schema lets an object without a spec through; our types cannot read one without an image.
    let bare = json!({ "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "bare", "namespace": operator.namespace } });
    operator
        .resources(KindName::MCPServer)
        .create(&kube::api::PostParams::default(), &serde_json::from_value(bare)?)
        .await?;
    let told = |one: &Value| condition(one, "Ready") == Some(("False", "SpecInvalid"));
    let object = operator.until(KindName::MCPServer, "bare", "is told", told).await?;
    assert!(object["status"]["conditions"][0]["message"].as_str().unwrap().contains("missing field `image`"));
    operator.create(KindName::MCPServer, "good", server("registry.example/a:1")).await?;
    operator.child(ChildKind::Deployment, "good", "exists", |_| true).await?;
    operator.settled().await?;
    operator.resources(KindName::MCPServer).delete("bare", &kube::api::DeleteParams::default()).await?;
    operator.stop().await
}
