//! The scenarios of the original operator's users: every transport, for one tenant and for several, embedding servers,
//! and removal.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::fixture_image;
use crate::home::{Caller, Home, SseClient, http, post, sse, stdio, with};
use crate::operator::uninstall;

const LIST: &str = r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"who","arguments":{}}}"#;

/// The service account that one of the servers uses.
const ACCOUNT: &str = "bees";
const ANNOTATION: &str = "team.example/owner";

/// A server, and how its proxy is reached.
struct Subject {
    name: &'static str,
    spec: Value,
    is_sse: bool,
}

#[tokio::test]
async fn one_operator_for_the_whole_cluster_serves_every_transport() -> Result<()> {
    let home = Home::alone("single", true).await?;
    let tenant = Home::empty("elsewhere").await?;
    serve_every_transport(&tenant).await?;
    let bindings = Api::<ClusterRoleBinding>::all(home.cluster.client());
    let bound = |all: Vec<ClusterRoleBinding>| all.iter().any(|one| of(one.subjects.as_ref(), &home.namespace));
    ensure!(bound(bindings.list(&ListParams::default()).await?.items), "no ClusterRoleBinding names the operator");
    tenant.empty_out().await?;
    uninstall(&home.namespace)?;
    ensure!(!bound(bindings.list(&ListParams::default()).await?.items), "a ClusterRoleBinding is left behind");
    tenant.cluster.remove().await?;
    home.cluster.remove().await
}

#[tokio::test]
async fn one_operator_for_some_namespaces_serves_them_and_needs_no_rights_beyond() -> Result<()> {
    let (first, second) = (Home::empty("first").await?, Home::empty("second").await?);
    let home = Home::with_tenants("several", &[&first, &second]).await?;
    let bindings = Api::<ClusterRoleBinding>::all(home.cluster.client()).list(&ListParams::default()).await?;
    ensure!(
        !bindings.items.iter().any(|one| of(one.subjects.as_ref(), &home.namespace)),
        "rights in the whole cluster"
    );
    serve_every_transport(&first).await?;
    // Two tenants may well choose the same names.
    for tenant in [&first, &second] {
        embed(tenant).await?;
    }
    second.create("web", http(&fixture_image()?)).await?;
    second.ready("web").await?;
    for tenant in [&first, &second] {
        forget_embeddings(tenant).await?;
        tenant.empty_out().await?;
    }
    uninstall(&home.namespace)?;
    ensure!(
        home.api::<Deployment>().list(&ListParams::default()).await?.items.is_empty(),
        "the operator is still there"
    );
    for home in [first, second, home] {
        home.cluster.remove().await?;
    }
    Ok(())
}

fn of(subjects: Option<&Vec<k8s_openapi::api::rbac::v1::Subject>>, namespace: &str) -> bool {
    subjects.into_iter().flatten().any(|subject| subject.namespace.as_deref() == Some(namespace))
}

/// Every transport, each with its objects.
async fn serve_every_transport(home: &Home) -> Result<()> {
    let fixture = fixture_image()?;
    home.cluster.create::<ServiceAccount>(json!({ "metadata": { "name": ACCOUNT } })).await?;
    let annotated = json!({ "metadata": { "annotations": { ANNOTATION: "bees" } } });
    let subjects = [
        Subject { name: "web", spec: with(http(&fixture), "podTemplateSpec", annotated), is_sse: false },
        Subject { name: "events", spec: with(sse(&fixture), "serviceAccount", json!(ACCOUNT)), is_sse: true },
        Subject { name: "lines", spec: with(stdio(&fixture), "proxyMode", json!("sse")), is_sse: true },
        Subject {
            name: "lines-web",
            spec: with(stdio(&fixture), "proxyMode", json!("streamable-http")),
            is_sse: false,
        },
    ];
    for Subject { name, spec, .. } in &subjects {
        home.create(name, spec.clone()).await?;
    }
    for Subject { name, spec, is_sse } in &subjects {
        check(home, name, spec).await.with_context(|| format!("server {name}"))?;
        let port = home.api::<Service>().get(&format!("mcp-{name}-proxy")).await?;
        let port = port.spec.and_then(|spec| spec.ports?.first().map(|port| port.port)).context("no port")?;
        let address = home.balanced_address(name, port).await?;
        converse(home, name, &address, *is_sse).await.with_context(|| format!("server {name}"))?;
    }
    home.cluster.no_restarts("app=mcpserver").await
}

/// The objects that a server must have.
async fn check(home: &Home, name: &str, spec: &Value) -> Result<()> {
    home.ready(name).await?;
    let server = home.servers().get(name).await?.data;
    ensure!(server.pointer("/status/message") == Some(&json!("MCP server is running")), "{server}");

    let (own, account) = (format!("{name}-sa"), spec.get("serviceAccount").and_then(Value::as_str));
    home.cluster
        .until("one pod is available", || async {
            let set = home.api::<StatefulSet>().get(name).await?;
            Ok(set.status.and_then(|status| status.available_replicas) == Some(1))
        })
        .await?;
    let template = home.api::<StatefulSet>().get(name).await?.spec.context("no spec")?.template;
    let used = template.spec.and_then(|spec| spec.service_account_name);
    ensure!(used.as_deref() == Some(account.unwrap_or(&own)), "the server runs as {used:?}");
    let made = home.api::<ServiceAccount>().get_opt(&own).await?.is_some();
    ensure!(made != account.is_some(), "account {own}: {made}");
    let wanted = spec.pointer("/podTemplateSpec/metadata/annotations").and_then(Value::as_object);
    let pod = home.api::<Pod>().get(&format!("{name}-0")).await?.metadata.annotations.unwrap_or_default();
    let template = template.metadata.and_then(|metadata| metadata.annotations).unwrap_or_default();
    for (key, value) in wanted.into_iter().flatten() {
        ensure!(template.get(key).map(String::as_str) == value.as_str(), "not on the template: {key}");
        ensure!(pod.get(key).map(String::as_str) == value.as_str(), "not on the pod: {key}");
    }

    let has_network = spec.get("transport") != Some(&json!("stdio"));
    let services = home.api::<Service>();
    for (service, is_wanted) in [("proxy", true), ("headless", has_network)] {
        let suffixed = match service {
            "proxy" => format!("mcp-{name}-proxy"),
            _ => format!("mcp-{name}-headless"),
        };
        ensure!(services.get_opt(&suffixed).await?.is_some() == is_wanted, "Service {suffixed}");
    }
    if has_network {
        let spec = services.get(&format!("mcp-{name}")).await?.spec.context("a Service without a spec")?;
        ensure!(spec.type_.as_deref() == Some("ClusterIP") && spec.session_affinity.as_deref() == Some("ClientIP"));
        let seconds = spec.session_affinity_config.and_then(|config| config.client_ip?.timeout_seconds);
        ensure!(seconds == Some(1800), "affinity lasts {seconds:?} seconds");
    }

    let status = home.api::<Deployment>().get(name).await?.status.context("a Deployment without a status")?;
    let counts = [status.replicas, status.ready_replicas, status.available_replicas, status.updated_replicas];
    ensure!(counts == [Some(1); 4], "the Deployment has {counts:?}");
    let progressing = status.conditions.unwrap_or_default().into_iter().find(|one| one.type_ == "Progressing");
    let reason = progressing.and_then(|one| one.reason);
    ensure!(reason.as_deref() == Some("NewReplicaSetAvailable"), "the Deployment is {reason:?}");
    let runner = format!("{name}-proxy-runner");
    home.api::<Role>().get(&runner).await?;
    home.api::<RoleBinding>().get(&runner).await?;
    home.api::<ServiceAccount>().get(&runner).await?;
    Ok(())
}

/// Initializes a session from outside, lists the tools and calls one.
async fn converse(home: &Home, name: &str, address: &str, is_sse: bool) -> Result<()> {
    let (listed, called) = if is_sse {
        let mut listener: SseClient = home.sse_client(address).await?;
        (listener.ask(LIST, "\"id\":5")?, listener.ask(CALL, "\"id\":6")?)
    } else {
        let caller: Caller = home.caller(address).await?;
        (post(address, Some(&caller.session), LIST)?.1, post(address, Some(&caller.session), CALL)?.1)
    };
    ensure!(listed.contains("\"name\":\"who\""), "{listed}");
    ensure!(called.contains(&format!("{name}-0")), "{called}");
    Ok(())
}

/// An embedding server with a model volume, from its creation to an update.
async fn embed(home: &Home) -> Result<()> {
    let class = &home.namespace;
    let volume = json!({
        "metadata": { "name": class },
        "spec": {
            "capacity": { "storage": "1Mi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "hostPath": { "path": format!("/tmp/skep-e2e/{class}"), "type": "DirectoryOrCreate" },
        },
    });
    let volumes = Api::<PersistentVolume>::all(home.cluster.client());
    volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
    let spec = json!({
        "model": "bees/small", "image": fixture_image()?, "port": 8080, "env": [{ "name": "MOOD", "value": "calm" }],
        "modelCache": { "enabled": true, "size": "1Mi", "storageClassName": class },
    });
    home.create_kind("EmbeddingServer", "meaning", spec).await?;
    home.phase("EmbeddingServer", "meaning", "Ready").await?;
    let claim = home.api::<PersistentVolumeClaim>().get("model-cache-meaning-0").await?;
    ensure!(claim.status.and_then(|status| status.phase).as_deref() == Some("Bound"), "the claim is not bound");
    home.api::<Service>().get("meaning").await?;

    let change = json!({ "spec": { "env": [{ "name": "MOOD", "value": "busy" }] } });
    home.kind("EmbeddingServer").patch("meaning", &PatchParams::default(), &Patch::Merge(change)).await?;
    home.cluster
        .until("the change is on the pod", || async {
            let pod = home.api::<Pod>().get_opt("meaning-0").await?.and_then(|pod| pod.spec);
            let env = pod.and_then(|spec| spec.containers.first()?.env.clone()).unwrap_or_default();
            Ok(env.iter().any(|one| one.name == "MOOD" && one.value.as_deref() == Some("busy")))
        })
        .await
}

/// Deletes the embedding server: its volume stays, everything else is deleted.
async fn forget_embeddings(home: &Home) -> Result<()> {
    home.kind("EmbeddingServer").delete("meaning", &DeleteParams::default()).await?;
    home.cluster
        .until("the embedding server is gone", || async {
            Ok(home.kind("EmbeddingServer").get_opt("meaning").await?.is_none()
                && home.api::<StatefulSet>().get_opt("meaning").await?.is_none()
                && home.api::<Service>().get_opt("meaning").await?.is_none())
        })
        .await?;
    ensure!(home.api::<PersistentVolumeClaim>().get_opt("model-cache-meaning-0").await?.is_some(), "the claim is gone");
    home.api::<PersistentVolumeClaim>().delete("model-cache-meaning-0", &DeleteParams::default()).await?;
    Api::<PersistentVolume>::all(home.cluster.client()).delete(&home.namespace, &DeleteParams::default()).await?;
    Ok(())
}
