//! MCPServer on a real API server: children, overrides, generations, restarts, names, and no writes at rest.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use http::{Method, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use skep_api::resource::{KindName, finalizer};
use skep_operator::write::api_resource;
use skep_plan::child::{ChildKind, MANAGED_LABEL};
use skep_testkit::{Seen, eventually};
use tokio::sync::Notify;

use crate::between::{Verdict, between, refusal};
use crate::running::{PATIENCE, condition, operator, plane, start_as, start_rechecking_as};

fn template(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]
}

fn stamp(deployment: &Value, name: &str) -> String {
    template(deployment)["metadata"]["annotations"][format!("toolhive.stacklok.dev/{name}")]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn a_server_gets_its_children_its_status_and_its_finalizer() -> Result<()> {
    let operator = operator("server").await?;
    operator
        .create(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1", "transport": "streamable-http" }))
        .await?;
    for (kind, name) in [
        (ChildKind::Deployment, "s"),
        (ChildKind::Service, "mcp-s-proxy"),
        (ChildKind::ConfigMap, "s-runconfig"),
        (ChildKind::ServiceAccount, "s-proxy-runner"),
        (ChildKind::ServiceAccount, "s-sa"),
        (ChildKind::Role, "s-proxy-runner"),
        (ChildKind::RoleBinding, "s-proxy-runner"),
    ] {
        let child = operator.child(kind, name, "exists", |_| true).await?;
        let owners = child["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!(
            (&owners[0]["kind"], &owners[0]["controller"], &owners[0]["blockOwnerDeletion"]),
            (&json!("MCPServer"), &json!(true), &json!(true))
        );
    }
    let server =
        operator.until(KindName::MCPServer, "s", "has a status", |one| one["status"]["phase"] == "Pending").await?;
    assert_eq!(
        server["status"]["url"],
        format!("http://mcp-s-proxy.{}.svc.cluster.local:8080/mcp", operator.namespace)
    );
    assert_eq!(server["metadata"]["finalizers"], json!([finalizer::SERVER]));
    assert_eq!(server["status"]["observedGeneration"], 1);
    operator.settled().await?;
    assert_eq!(operator.counted("api_requests", &["mcpservers/status"]), 1, "one status write for all of it");
    assert_eq!(operator.counted("reconciles", &["conflict"]), 0, "no conflict of our own making");
    operator.stop().await
}

#[tokio::test]
async fn deleted_and_changed_children_come_back() -> Result<()> {
    let operator = operator("drift").await?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1" })).await?;
    let before = operator.settled().await?;
    for kind in [ChildKind::ConfigMap, ChildKind::Role, ChildKind::Service, ChildKind::Deployment] {
        let name = before.keys().find_map(|key| key.strip_prefix(&format!("{kind}/"))).unwrap().to_owned();
        operator.children(kind).delete(&name, &DeleteParams::default()).await?;
        operator.child(kind, &name, "comes back", |_| true).await?;
    }
    let patch = Patch::Merge(json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": 1 } } } }));
    operator.children(ChildKind::Deployment).patch("s", &PatchParams::default(), &patch).await?;
    let grace = |one: &Value| template(one)["spec"]["terminationGracePeriodSeconds"] == 30;
    operator.child(ChildKind::Deployment, "s", "is as planned again", grace).await?;
    operator.stop().await
}

#[tokio::test]
async fn at_rest_nothing_is_written_and_what_others_wrote_stays() -> Result<()> {
    let operator = operator("rest").await?;
    let spec = json!({
        "image": "registry.example/a:1",
        "transport": "streamable-http",
        "env": [{ "name": "B", "value": "2" }, { "name": "A", "value": "1" }],
        "resourceOverrides": { "proxyDeployment": {
            "annotations": { "deploy": "x" },
            "env": [{ "name": "HTTP_PROXY", "value": "http://p" }],
            "podTemplateMetadataOverrides": { "annotations": { "vault.hashicorp.com/agent-inject": "true" }, "labels": { "team": "a" } },
        }},
    });
    operator.create(KindName::MCPServer, "s", spec).await?;
    operator.settled().await?;
    // Labels of a GitOps tool, a rollout restart and replicas of an autoscaler belong to others.
    let patch = Patch::Merge(json!({
        "metadata": { "labels": { "gitops": "yes" } },
        "spec": { "replicas": 3, "template": { "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "now" } } } },
    }));
    operator.children(ChildKind::Deployment).patch("s", &PatchParams::default(), &patch).await?;
    let before = operator.settled().await?;
    let applied = operator.counted("api_requests", &["verb=\"apply\""]);
    for note in ["1", "2", "3"] {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "note": note } } }));
        operator.resources(KindName::MCPServer).patch("s", &PatchParams::default(), &patch).await?;
    }
    let mut after = operator.settled().await?;
    after.insert("MCPServer/s".to_owned(), before["MCPServer/s"].clone());
    assert_eq!(before, after);
    assert_eq!(applied, operator.counted("api_requests", &["verb=\"apply\""]), "what did not change is not even sent");
    let deployment = operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    assert_eq!(deployment["metadata"]["labels"]["gitops"], "yes");
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(template(&deployment)["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"], "now");
    operator.stop().await
}

#[tokio::test]
async fn overrides_cannot_displace_the_checksum_and_deployment_annotations_stay_on_the_deployment() -> Result<()> {
    let operator = operator("overrides").await?;
    let spec = |image: &str| {
        json!({
            "image": image,
            "resourceOverrides": { "proxyDeployment": {
                "annotations": { "deploy": "x", "toolhive.stacklok.dev/runconfig-checksum": "fake" },
                "podTemplateMetadataOverrides": { "annotations": { "vault": "yes", "toolhive.stacklok.dev/runconfig-checksum": "fake" } },
            }},
        })
    };
    operator.create(KindName::MCPServer, "s", spec("registry.example/a:1")).await?;
    let first = operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    assert_eq!(stamp(&first, "runconfig-checksum").len(), 64);
    assert_eq!(template(&first)["metadata"]["annotations"]["vault"], "yes");
    assert_eq!(template(&first)["metadata"]["annotations"].get("deploy"), None);
    assert_eq!(first["metadata"]["annotations"]["deploy"], "x");
    operator.edit(KindName::MCPServer, "s", json!({ "audit": { "enabled": true } })).await?;
    let rolled = |one: &Value| stamp(one, "runconfig-checksum") != stamp(&first, "runconfig-checksum");
    operator.child(ChildKind::Deployment, "s", "rolls", rolled).await?;
    operator.stop().await
}

#[tokio::test]
async fn the_generation_moves_with_what_the_pods_consume_and_with_nothing_else() -> Result<()> {
    let operator = operator("generation").await?;
    operator
        .create(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1", "transport": "streamable-http" }))
        .await?;
    let first = operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    assert_eq!(stamp(&first, "mcpserver-generation"), "1");
    let env = template(&first)["spec"]["containers"][0]["env"].as_array().unwrap();
    let reference = json!({ "apiVersion": "v1", "fieldPath": "metadata.annotations['toolhive.stacklok.dev/mcpserver-generation']" });
    assert!(
        env.iter().any(|one| one["name"] == "THV_MCPSERVER_GENERATION" && one["valueFrom"]["fieldRef"] == reference)
    );

    operator.edit(KindName::MCPServer, "s", json!({ "replicas": 2 })).await?;
    operator.edit(KindName::MCPServer, "s", json!({ "groupRef": { "name": "g" } })).await?;
    let scaled = operator.child(ChildKind::Deployment, "s", "is scaled", |one| one["spec"]["replicas"] == 2).await?;
    operator.until(KindName::MCPServer, "s", "has seen both", |one| one["status"]["observedGeneration"] == 3).await?;
    assert_eq!(template(&scaled), template(&first), "scaling and regrouping roll nothing");

    operator.edit(KindName::MCPServer, "s", json!({ "image": "registry.example/a:2" })).await?;
    let rolled = operator
        .child(ChildKind::Deployment, "s", "carries the new generation", |one| {
            stamp(one, "mcpserver-generation") == "4"
        })
        .await?;
    assert_ne!(stamp(&rolled, "runconfig-checksum"), stamp(&first, "runconfig-checksum"));
    operator.run_config("s", "carries it too", |config| config["mcpserver_generation"] == 4).await?;
    operator.stop().await
}

#[tokio::test]
async fn replicas_that_are_not_said_any_more_stay_and_a_stdio_server_has_one_proxy() -> Result<()> {
    let operator = operator("replicas").await?;
    for (name, transport) in [("http", "streamable-http"), ("stdio", "stdio")] {
        let spec = json!({ "image": "i", "transport": transport, "replicas": 3 });
        operator.create(KindName::MCPServer, name, spec).await?;
    }
    let has = |replicas: i64| move |one: &Value| one["spec"]["replicas"] == replicas;
    operator.child(ChildKind::Deployment, "http", "has three", has(3)).await?;
    operator.child(ChildKind::Deployment, "stdio", "has one", has(1)).await?;
    operator.settled().await?;
    for name in ["http", "stdio"] {
        operator.edit(KindName::MCPServer, name, json!({ "replicas": null, "image": "j" })).await?;
        let follows = |one: &Value| template(one)["spec"]["containers"][0]["args"].to_string().contains("\"j\"");
        operator.child(ChildKind::Deployment, name, "follows", follows).await?;
    }
    operator.settled().await?;
    operator.child(ChildKind::Deployment, "http", "still has three", has(3)).await?;
    // An autoscaler, or `kubectl scale`.
    for name in ["http", "stdio"] {
        let scale = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
        operator.children(ChildKind::Deployment).patch(name, &PatchParams::default(), &scale).await?;
    }
    operator.child(ChildKind::Deployment, "stdio", "has one again", has(1)).await?;
    operator.settled().await?;
    operator.child(ChildKind::Deployment, "http", "has what it was given", has(5)).await?;
    operator.child(ChildKind::Deployment, "stdio", "has one", has(1)).await?;
    operator.stop().await
}

#[tokio::test]
async fn a_restart_that_is_not_asked_for_any_more_or_is_not_newer_restarts_nothing() -> Result<()> {
    const AT: &str = "mcpserver.toolhive.stacklok.dev/restarted-at";
    let operator = operator("restarts").await?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "i" })).await?;
    let ask = |at: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { AT: at } } }));
        let servers = operator.resources(KindName::MCPServer);
        async move { servers.patch("s", &PatchParams::default(), &patch).await }
    };
    ask(json!("2026-01-02T00:00:00Z")).await?;
    let stamped = |one: &Value| template(one)["metadata"]["annotations"][AT] == "2026-01-02T00:00:00Z";
    let first = operator.child(ChildKind::Deployment, "s", "restarts", stamped).await?;
    operator.settled().await?;
    for at in [json!("2026-01-01T00:00:00Z"), json!("now"), Value::Null] {
        ask(at.clone()).await?;
        operator.settled().await?;
        let now = operator.child(ChildKind::Deployment, "s", "is there", |_| true).await?;
        assert_eq!(template(&now), template(&first), "{at}");
    }
    ask(json!("2026-01-03T00:00:00Z")).await?;
    operator.child(ChildKind::Deployment, "s", "restarts", |one| template(one) != template(&first)).await?;
    operator.stop().await
}

#[tokio::test]
async fn a_deployment_of_an_older_operator_gets_the_generation_in_one_look() -> Result<()> {
    let operator = operator("older").await?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1" })).await?;
    operator.settled().await?;
    let patch = Patch::Merge(json!({
        "metadata": { "annotations": { "toolhive.stacklok.dev/consumed-checksum": null } },
        "spec": { "template": { "metadata": { "annotations": { "toolhive.stacklok.dev/mcpserver-generation": null } } } },
    }));
    operator.children(ChildKind::Deployment).patch("s", &PatchParams::default(), &patch).await?;
    operator
        .child(ChildKind::Deployment, "s", "is back-filled", |one| stamp(one, "mcpserver-generation") == "1")
        .await?;
    operator.stop().await
}

#[tokio::test]
async fn the_url_follows_port_and_transport() -> Result<()> {
    let operator = operator("url").await?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1", "proxyPort": 9000 })).await?;
    let url = |object: &Value| object["status"]["url"].as_str().unwrap_or_default().to_owned();
    operator.until(KindName::MCPServer, "s", "has a url", |one| url(one).ends_with(":9000/mcp")).await?;
    operator.edit(KindName::MCPServer, "s", json!({ "proxyPort": 9001, "proxyMode": "sse" })).await?;
    operator.until(KindName::MCPServer, "s", "follows", |one| url(one).ends_with(":9001/sse#s")).await?;
    operator.stop().await
}

#[tokio::test]
async fn a_field_of_another_manager_survives_finalizer_and_restart() -> Result<()> {
    let operator = operator("clobber").await?;
    let base = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "s" },
        "spec": { "image": "registry.example/a:1" },
    });
    let servers = operator.resources(KindName::MCPServer);
    servers.patch("s", &PatchParams::apply("first"), &Patch::Apply(&base)).await?;
    let authz = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "s" },
        "spec": { "authzConfig": { "type": "inline", "inline": { "policies": ["permit(principal, action, resource);"] } } },
    });
    servers.patch("s", &PatchParams::apply("second"), &Patch::Apply(&authz)).await?;
    let asked = "2026-01-31T12:00:00Z";
    let restart = json!({ "metadata": { "annotations": { "mcpserver.toolhive.stacklok.dev/restarted-at": asked } } });
    servers.patch("s", &PatchParams::default(), &Patch::Merge(restart)).await?;
    let noted =
        |one: &Value| one["metadata"]["annotations"]["mcpserver.toolhive.stacklok.dev/last-processed-restart"] == asked;
    let server = operator.until(KindName::MCPServer, "s", "restart is noted", noted).await?;
    assert_eq!(server["metadata"]["finalizers"], json!([finalizer::SERVER]));
    assert_eq!(server["spec"]["authzConfig"]["inline"]["policies"][0], "permit(principal, action, resource);");
    // The proxy restarts, and its MCP server as well.
    let both = |one: &Value| {
        let arguments = template(one)["spec"]["containers"][0]["args"].to_string();
        template(one)["metadata"]["annotations"]["mcpserver.toolhive.stacklok.dev/restarted-at"] == asked
            && arguments.contains(asked)
    };
    operator.child(ChildKind::Deployment, "s", "restarts both", both).await?;
    operator.stop().await
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused_and_the_other_object_is_left_alone() -> Result<()> {
    let operator = operator("taken").await?;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "s-runconfig" }, "data": { "mine": "yes" },
    });
    operator.children(ChildKind::ConfigMap).create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1" })).await?;
    let refused = |one: &Value| {
        one["status"]["phase"] == "Failed"
            && one["status"]["message"].as_str().unwrap_or_default().contains("is in use")
    };
    operator.until(KindName::MCPServer, "s", "is refused", refused).await?;
    operator.settled().await?;
    let map = operator.child(ChildKind::ConfigMap, "s-runconfig", "exists", |_| true).await?;
    assert_eq!(map["data"], json!({ "mine": "yes" }));
    // What was made beside it before it was found is gone again.
    let ours = ListParams::default().labels(&format!("{}={}", MANAGED_LABEL.0, MANAGED_LABEL.1));
    for kind in ChildKind::ALL {
        let left = operator.children(*kind).list_metadata(&ours).await?;
        let names: Vec<String> = left.into_iter().map(|one| one.name_any()).collect();
        assert!(names.is_empty(), "{kind}: {names:?}");
    }
    // Whenever it is reconciled again, nothing is created.
    let applied = operator.counted("api_requests", &["verb=\"apply\""]);
    operator.edit(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1", "args": ["x"] })).await?;
    let again = |one: &Value| one["status"]["observedGeneration"] == 2 && refused(one);
    operator.until(KindName::MCPServer, "s", "is refused again", again).await?;
    assert_eq!(operator.counted("api_requests", &["verb=\"apply\""]), applied);
    operator.children(ChildKind::ConfigMap).delete("s-runconfig", &DeleteParams::default()).await?;
    operator.edit(KindName::MCPServer, "s", json!({ "image": "registry.example/a:2" })).await?;
    operator.until(KindName::MCPServer, "s", "goes on", |one| one["status"]["phase"] == "Pending").await?;
    operator.stop().await
}

#[tokio::test]
async fn a_server_with_the_name_of_an_embedding_server_is_refused_until_the_name_is_free() -> Result<()> {
    let plane = plane().await?;
    // What our own requests change is known before the watch shows it, and nothing is found by checking again.
    let client = between(plane.client()?, |request: Request<Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let is_late = is_watch && request.uri().path().ends_with("/statefulsets");
        let pause = Duration::from_millis(500);
        std::future::ready(if is_late { Verdict::Late(request, pause) } else { Verdict::Pass(request) })
    });
    let operator = start_rechecking_as(client, plane, plane.namespace("backend-taken").await?, 10 * PATIENCE)?;
    operator.create(KindName::EmbeddingServer, "x", json!({})).await?;
    let set = operator.child(ChildKind::StatefulSet, "x", "exists", |_| true).await?;
    operator.create(KindName::MCPServer, "x", json!({ "image": "registry.example/a:1" })).await?;
    let refused = |one: &Value| condition(one, "Ready") == Some(("False", "NameTaken"));
    let server = operator.until(KindName::MCPServer, "x", "is refused", refused).await?;
    assert!(server["status"]["message"].as_str().unwrap().contains("EmbeddingServer `x`"), "{server}");
    // A deletion of the server concerns nothing of the other one.
    operator.resources(KindName::MCPServer).delete("x", &DeleteParams::default()).await?;
    operator.gone(KindName::MCPServer, "x").await?;
    let still = operator.child(ChildKind::StatefulSet, "x", "is still there", |_| true).await?;
    assert_eq!(still["metadata"]["uid"], set["metadata"]["uid"]);

    operator.create(KindName::MCPServer, "x", json!({ "image": "registry.example/a:1" })).await?;
    operator.until(KindName::MCPServer, "x", "is refused", refused).await?;
    // By then the watch has brought the StatefulSet as well.
    operator.settled().await?;
    operator.resources(KindName::EmbeddingServer).delete("x", &DeleteParams::default()).await?;
    operator.gone(KindName::EmbeddingServer, "x").await?;
    operator.until(KindName::MCPServer, "x", "goes on", |one| one["status"]["phase"] == "Pending").await?;
    operator.child(ChildKind::Deployment, "x", "exists", |_| true).await?;
    operator.stop().await
}

/// A client edits a server while its status is written, and the answer to that write shows the edit before the watch does.
#[tokio::test]
async fn an_edit_that_the_answer_to_our_own_write_brings_is_not_missed() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("answer-first").await?;
    let real = plane.client()?;
    let servers: Api<DynamicObject> =
        Api::namespaced_with(real.clone(), &namespace, &api_resource(KindName::MCPServer));
    let first = Arc::new(AtomicBool::new(true));
    let intercept = move |request: Request<Body>| {
        let (servers, first) = (servers.clone(), first.clone());
        async move {
            let path = request.uri().path();
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if is_watch && path.ends_with("/mcpservers") {
                return Verdict::Late(request, Duration::from_millis(500));
            }
            if path.ends_with("/mcpservers/s/status") && first.swap(false, Ordering::SeqCst) {
                let edit = Patch::Merge(json!({ "spec": { "image": "registry.example/a:2" } }));
                servers.patch("s", &PatchParams::default(), &edit).await.unwrap();
            }
            Verdict::Pass(request)
        }
    };
    let operator = start_as(between(real, intercept), plane, namespace)?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1" })).await?;
    let seen = |one: &Value| one["status"]["observedGeneration"] == 2;
    operator.until(KindName::MCPServer, "s", "sees the edit", seen).await?;
    operator.run_config("s", "has the new image", |config| config["image"] == "registry.example/a:2").await?;
    operator.stop().await
}

/// Another client creates an object of the same name while our own request is in flight.
#[tokio::test]
async fn an_object_that_another_client_creates_at_the_same_moment_is_left_alone() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("taken-now").await?;
    let maps: Api<ConfigMap> = Api::namespaced(plane.client()?, &namespace);
    let first = Arc::new(AtomicBool::new(true));
    let intercept = move |request: Request<Body>| {
        let (maps, first) = (maps.clone(), first.clone());
        async move {
            let is_ours =
                request.method() == Method::PATCH && request.uri().path().ends_with("/configmaps/s-runconfig");
            if is_ours && first.swap(false, Ordering::SeqCst) {
                let data = BTreeMap::from([("mine".to_owned(), "yes".to_owned())]);
                let metadata = ObjectMeta { name: Some("s-runconfig".to_owned()), ..ObjectMeta::default() };
                let theirs = ConfigMap { data: Some(data), metadata, ..ConfigMap::default() };
                maps.create(&PostParams::default(), &theirs).await.unwrap();
            }
            Verdict::Pass(request)
        }
    };
    let operator = start_as(between(plane.client()?, intercept), plane, namespace)?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1" })).await?;
    let reported = |one: &Value| one["status"]["message"].as_str().unwrap_or_default().contains("is in use");
    operator.until(KindName::MCPServer, "s", "is refused", reported).await?;
    let map = operator.child(ChildKind::ConfigMap, "s-runconfig", "exists", |_| true).await?;
    assert_eq!(map["data"], json!({ "mine": "yes" }));
    assert_eq!(map["metadata"]["managedFields"].as_array().map(Vec::len), Some(1), "{map}");
    operator.stop().await
}

#[tokio::test]
async fn an_object_that_another_client_creates_in_place_of_a_deleted_child_is_left_alone() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("taken-since").await?;
    let (closed, tried) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let intercept = {
        let (closed, tried) = (closed.clone(), tried.clone());
        move |request: Request<Body>| {
            let at_fault = closed.load(Ordering::SeqCst)
                && request.method() == Method::PATCH
                && request.uri().path().ends_with("/configmaps/s-runconfig");
            if at_fault {
                tried.notify_one();
            }
            ready(if at_fault { Verdict::Answer(refusal(503, "ServiceUnavailable")) } else { Verdict::Pass(request) })
        }
    };
    let operator = start_as(between(plane.client()?, intercept), plane, namespace)?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1" })).await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    operator.settled().await?;
    closed.store(true, Ordering::SeqCst);
    let maps = operator.children(ChildKind::ConfigMap);
    maps.delete("s-runconfig", &DeleteParams::default()).await?;
    tokio::time::timeout(PATIENCE, tried.notified()).await?;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "s-runconfig" }, "data": { "mine": "yes" },
    });
    maps.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
    closed.store(false, Ordering::SeqCst);
    let reported = |one: &Value| one["status"]["message"].as_str().unwrap_or_default().contains("is in use");
    operator.until(KindName::MCPServer, "s", "is refused", reported).await?;
    let map = operator.child(ChildKind::ConfigMap, "s-runconfig", "exists", |_| true).await?;
    assert_eq!(map["data"], json!({ "mine": "yes" }));
    operator.stop().await
}

#[tokio::test]
async fn bad_specs_get_a_condition_and_no_deployment() -> Result<()> {
    let operator = operator("bad").await?;
    for (name, spec, part) in [
        (
            "template",
            json!({ "image": "i", "podTemplateSpec": { "spec": { "containers": "none" } } }),
            "PodTemplateSpec",
        ),
        (
            "quantity",
            json!({ "image": "i", "resources": { "limits": { "memory": "lots" } } }),
            "spec.resources.limits.memory",
        ),
        (
            "profile",
            json!({ "image": "i", "permissionProfile": { "type": "builtin", "name": "all" } }),
            "spec.permissionProfile.name",
        ),
        (
            "policy",
            json!({ "image": "i", "authzConfig": { "type": "inline", "inline": { "policies": ["forbid"] } } }),
            "spec.authzConfig.inline",
        ),
        (
            "map",
            json!({ "image": "i", "authzConfig": { "type": "configMap", "configMap": { "name": "gone" } } }),
            "ConfigMap `gone` not found",
        ),
    ] {
        operator.create(KindName::MCPServer, name, spec).await?;
        let refused = |one: &Value| {
            one["status"]["phase"] == "Failed" && one["status"]["message"].as_str().unwrap_or_default().contains(part)
        };
        let server = operator.until(KindName::MCPServer, name, part, refused).await?;
        assert_eq!(condition(&server, "Ready"), Some(("False", "NotReady")));
        assert!(operator.children(ChildKind::Deployment).get_opt(name).await?.is_none(), "{name}");
    }
    operator.settled().await?;
    // Reported once, not retried: a reconcile for the object, one for its finalizer, one for what it refers to.
    let reconciles = operator.counted("reconciles", &["MCPServer"]);
    assert!(reconciles <= 5 * 3, "{reconciles} reconciles of five servers");
    assert_eq!(operator.counted("api_requests", &["mcpservers/status"]), 5, "each status is written once");
    let template = operator.until(KindName::MCPServer, "template", "says so", |_| true).await?;
    assert_eq!(condition(&template, "PodTemplateValid"), Some(("False", "InvalidPodTemplateSpec")));
    operator
        .edit(KindName::MCPServer, "template", json!({ "podTemplateSpec": { "spec": { "containers": [] } } }))
        .await?;
    operator.child(ChildKind::Deployment, "template", "appears once it is corrected", |_| true).await?;
    operator.stop().await
}

#[tokio::test]
async fn children_that_are_not_wanted_any_more_go_and_so_do_conditions_of_references_that_are_gone() -> Result<()> {
    let operator = operator("orphans").await?;
    let spec = json!({
        "image": "registry.example/a:1",
        "authzConfig": { "type": "inline", "inline": { "policies": ["permit(principal, action, resource);"] } },
        "groupRef": { "name": "g" },
    });
    operator.create(KindName::MCPServer, "s", spec).await?;
    operator.child(ChildKind::ConfigMap, "s-authz-inline", "exists", |_| true).await?;
    let missing = |one: &Value| condition(one, "GroupRefValidated") == Some(("False", "GroupRefNotFound"));
    operator.until(KindName::MCPServer, "s", "misses its group", missing).await?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;
    let there = |one: &Value| condition(one, "GroupRefValidated") == Some(("True", "GroupRefIsValid"));
    operator.until(KindName::MCPServer, "s", "sees its group by itself", there).await?;
    let listed = |one: &Value| one["status"]["servers"] == json!(["s"]) && one["status"]["serverCount"] == 1;
    operator.until(KindName::MCPGroup, "g", "lists it", listed).await?;

    operator
        .edit(KindName::MCPServer, "s", json!({ "authzConfig": null, "groupRef": null, "serviceAccount": "own" }))
        .await?;
    operator
        .until(KindName::MCPServer, "s", "forgets its group", |one| condition(one, "GroupRefValidated").is_none())
        .await?;
    let versions = operator.settled().await?;
    assert!(
        !versions.contains_key("ConfigMap/s-authz-inline") && !versions.contains_key("ServiceAccount/s-sa"),
        "{versions:?}"
    );
    operator.stop().await
}

#[tokio::test]
async fn a_secret_that_a_pod_reads_at_start_rolls_it_by_content() -> Result<()> {
    let operator = operator("secrets").await?;
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(operator.client.clone(), &operator.namespace);
    let secret = |value: &str, note: &str| {
        serde_json::from_value::<k8s_openapi::api::core::v1::Secret>(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "idp", "annotations": { "note": note } }, "stringData": { "secret": value },
        }))
    };
    secrets.create(&PostParams::default(), &secret("one", "a")?).await?;
    let oidc = json!({ "type": "inline", "inline": { "issuer": "https://idp.example", "clientId": "c", "clientSecretRef": { "name": "idp", "key": "secret" } } });
    operator.create(KindName::MCPOIDCConfig, "idp", oidc).await?;
    operator
        .create(KindName::MCPServer, "s", json!({ "image": "i", "oidcConfigRef": { "name": "idp", "audience": "a" } }))
        .await?;
    let first =
        operator.child(ChildKind::Deployment, "s", "exists", |one| !stamp(one, "inputs-checksum").is_empty()).await?;
    let before = operator.settled().await?;
    secrets
        .patch("idp", &PatchParams::default(), &Patch::Merge(json!({ "metadata": { "annotations": { "note": "b" } } })))
        .await?;
    let calm = operator.settled().await?;
    assert_eq!(before, calm, "a new annotation on a Secret is not new content");
    secrets.patch("idp", &PatchParams::default(), &Patch::Merge(json!({ "stringData": { "secret": "two" } }))).await?;
    operator
        .child(ChildKind::Deployment, "s", "rolls", |one| {
            stamp(one, "inputs-checksum") != stamp(&first, "inputs-checksum")
        })
        .await?;
    operator.stop().await
}

#[tokio::test]
async fn a_deleted_server_lets_go_of_its_finalizer() -> Result<()> {
    let operator = operator("deletion").await?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "i" })).await?;
    operator.settled().await?;
    operator.resources(KindName::MCPServer).delete("s", &DeleteParams::default()).await?;
    eventually("the server goes", PATIENCE, || async {
        Ok(match operator.resources(KindName::MCPServer).get_opt("s").await? {
            None => Seen::Yes(()),
            Some(_) => Seen::NotYet("it is still there".to_owned()),
        })
    })
    .await?;
    let versions = operator.settled().await?;
    assert!(!versions.contains_key("Deployment/s") && !versions.contains_key("ConfigMap/s-runconfig"), "{versions:?}");
    operator.stop().await
}
