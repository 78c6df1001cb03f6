//! The health check for Argo CD that the documentation gives, run on real objects in the interpreter that Argo CD embeds.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde::Deserialize;
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_operator::write::api_resource;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::running::condition;

/// The kinds that the documentation gives the health check for.
const KINDS: &[KindName] = &[
    KindName::MCPServer,
    KindName::MCPRemoteProxy,
    KindName::VirtualMCPServer,
    KindName::EmbeddingServer,
    KindName::MCPRegistry,
];
/// The key of the health check in `argocd-cm`.
const KEY: &str = "resource.customizations.health.toolhive.stacklok.dev_MCPServer";

/// What the health check says of an object.
#[derive(Debug, Deserialize)]
struct Health {
    status: String,
    message: String,
}

/// Checks every workload resource of the cluster, and returns which verdicts were among them.
pub(crate) async fn check_all(client: &Client) -> Result<BTreeSet<String>> {
    let mut objects = Vec::new();
    for kind in KINDS {
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &api_resource(*kind));
        for object in all.list(&ListParams::default()).await? {
            objects.push(serde_json::to_value(object)?);
        }
    }
    // The same after an edit that the operator has not observed.
    let edited = objects.iter().cloned().map(|mut object| {
        object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap_or_default() + 1);
        object
    });
    let edited: Vec<Value> = edited.collect();
    let (checked, checked_edited) = (health(&objects).await?, health(&edited).await?);
    for (object, health) in objects.iter().zip(&checked) {
        let (status, message) = expected(object);
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        ensure!(health.status == status, "{name} is {status}, and the health check says {health:?}: {object}");
        ensure!(message.is_none_or(|message| message == health.message), "{name}: {health:?}");
    }
    for (object, health) in edited.iter().zip(&checked_edited) {
        ensure!(health.status == "Progressing", "an edit that was not observed is {health:?}: {object}");
    }
    Ok(checked.into_iter().map(|health| health.status).collect())
}

/// The health that an object has by its conditions, and the message that explains it.
fn expected(object: &Value) -> (&'static str, Option<&str>) {
    let message = |kind: &str| {
        let conditions = object.pointer("/status/conditions")?.as_array()?;
        conditions.iter().find(|one| one["type"] == kind)?["message"].as_str()
    };
    let is_observed = object["status"]["observedGeneration"] == object["metadata"]["generation"];
    match (condition(object, "Ready"), condition(object, "Stalled")) {
        _ if !is_observed => ("Progressing", None),
        (_, Some(("True", _))) => ("Degraded", message("Stalled")),
        (Some(("True", _)), _) => ("Healthy", message("Ready")),
        _ => ("Progressing", message("Ready")),
    }
}

/// The health check as it stands in the documentation.
fn documented() -> Result<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operator.md");
    let text = std::fs::read_to_string(page)?;
    let block = text.split("```yaml\n").find(|block| block.starts_with(KEY)).context("no health check in the docs")?;
    let block = block.split("```").next().unwrap_or_default();
    let map: Value = serde_saphyr::from_str(block)?;
    Ok(map[KEY].as_str().context("the health check is not a text")?.to_owned())
}

async fn health(objects: &[Value]) -> Result<Vec<Health>> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gitops");
    let mut command = Command::new("go");
    command.args(["run", "."]).current_dir(program).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("cannot start `go`; install Go 1.26 or newer")?;
    let question = json!({ "lua": documented()?, "objects": objects }).to_string();
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(question.as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "the health check failed: {}", output.status);
    let health: Vec<Health> = serde_json::from_slice(&output.stdout)?;
    ensure!(health.len() == objects.len(), "{} verdicts on {} objects", health.len(), objects.len());
    Ok(health)
}
