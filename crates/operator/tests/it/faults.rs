//! What goes wrong around an operator: an API server that restarts, a store that hangs, a process that dies in the middle,
//! a second writer that never rests, an object that cannot be read. Afterwards the state is right and nothing rolled.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use http::Request;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_operator::write::MANAGER;
use skep_plan::child::ChildKind;
use skep_testkit::{ControlPlane, Seen, eventually};

use crate::between::{Verdict, between, refusal};
use crate::running::{PATIENCE, condition, define, operator, plane, start, start_as, start_watching};
use crate::stage::Stage;

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
    // Long enough for every request in flight to time out.
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

/// As with `deployment.kubernetes.io/revision` before it was reserved: two managers that each restore their own value.
#[tokio::test]
async fn a_manager_that_keeps_changing_fields_of_ours_is_answered_with_backoff_and_named() -> Result<()> {
    let operator = operator("contest").await?;
    operator.create(KindName::MCPServer, "s", server("registry.example/a:1")).await?;
    operator.settled().await?;
    let applies = || operator.counted("api_requests", &["verb=\"apply\"", "resource=\"services\""]);
    let before = applies();
    let rival = PatchParams { field_manager: Some("rival".to_owned()), ..PatchParams::default() };
    for _ in 0..60 {
        let change = Patch::Merge(
            json!({ "spec": { "sessionAffinity": "None" }, "metadata": { "labels": { "toolhive": "rival" } } }),
        );
        operator.children(ChildKind::Service).patch("mcp-s-proxy", &rival, &change).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let contested = applies() - before;
    assert!((3..10).contains(&contested), "{contested} applies in 6 s");
    let events: kube::Api<k8s_openapi::api::events::v1::Event> =
        kube::Api::namespaced(operator.client.clone(), &operator.namespace);
    let list = events.list(&kube::api::ListParams::default()).await?;
    let notes: Vec<String> = list
        .items
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some("FieldConflict"))
        .filter_map(|event| event.note)
        .collect();
    assert!(notes.len() == 1 && notes[0].contains("`rival`") && notes[0].contains("`mcp-s-proxy`"), "{notes:?}");
    let restored = |one: &Value| one["metadata"]["labels"]["toolhive"] == "true";
    operator.child(ChildKind::Service, "mcp-s-proxy", "is restored", restored).await?;
    // Its fields are in force now and then, so what is planned is not what runs.
    let reported = |one: &Value| condition(one, "Ready") == Some(("False", "FieldConflict"));
    let object = operator.until(KindName::MCPServer, "s", "says so", reported).await?;
    assert!(object["status"]["conditions"].to_string().contains("`rival`"), "{object}");
    operator.stop().await
}

#[tokio::test]
async fn an_object_that_cannot_be_read_gets_a_condition_and_stops_no_other() -> Result<()> {
    let operator = operator("unreadable").await?;
    // The schema lets an object without a spec through; our types cannot read one without an image.
    let bare = json!({ "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "bare", "namespace": operator.namespace } });
    operator
        .resources(KindName::MCPServer)
        .create(&kube::api::PostParams::default(), &serde_json::from_value(bare)?)
        .await?;
    let reported = |one: &Value| condition(one, "Ready") == Some(("False", "SpecInvalid"));
    let object = operator.until(KindName::MCPServer, "bare", "is reported", reported).await?;
    assert!(object["status"]["conditions"][0]["message"].as_str().unwrap().contains("missing field `image`"));
    // By kstatus, an object whose generation is not observed is still being reconciled.
    assert_eq!(condition(&object, "Stalled"), Some(("True", "SpecInvalid")));
    assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
    assert_eq!(object["status"]["phase"], "Failed");
    operator.create(KindName::MCPServer, "good", server("registry.example/a:1")).await?;
    operator.child(ChildKind::Deployment, "good", "exists", |_| true).await?;
    operator.settled().await?;
    // One that we hold on to and cannot read any more goes nevertheless.
    let spoilt = json!([{ "op": "remove", "path": "/spec" }]);
    let spoilt = Patch::<()>::Json(serde_json::from_value(spoilt)?);
    let servers = operator.resources(KindName::MCPServer);
    let held = servers.patch("good", &PatchParams::default(), &spoilt).await?;
    assert!(held.metadata.finalizers.is_some_and(|held| !held.is_empty()));
    operator.until(KindName::MCPServer, "good", "is reported", reported).await?;
    for name in ["bare", "good"] {
        servers.delete(name, &kube::api::DeleteParams::default()).await?;
        eventually("it is gone", PATIENCE, || async {
            Ok(match servers.get_opt(name).await? {
                None => Seen::Yes(()),
                Some(object) => Seen::NotYet(format!("{:?}", object.metadata)),
            })
        })
        .await?;
    }
    operator.stop().await
}

#[tokio::test]
async fn an_object_that_is_nested_too_deep_stops_no_other_at_the_next_start_either() -> Result<()> {
    let first = operator("deep").await?;
    let deep = (0..120).fold(json!(1), |inner, _| json!({ "x": inner }));
    let reported = |one: &Value| condition(one, "Ready") == Some(("False", "SpecInvalid"));
    first.create(KindName::MCPServer, "deep", json!({ "image": "i", "podTemplateSpec": deep })).await?;
    let deep = first.until(KindName::MCPServer, "deep", "is reported", reported).await?;
    assert_eq!(condition(&deep, "Stalled"), Some(("True", "SpecInvalid")));
    assert_eq!(deep["status"]["observedGeneration"], deep["metadata"]["generation"]);
    let namespace = first.namespace.clone();
    first.stop().await?;
    let second = start(plane().await?, namespace)?;
    second.create(KindName::MCPServer, "good", server("registry.example/a:1")).await?;
    second.child(ChildKind::Deployment, "good", "exists", |_| true).await?;
    second.stop().await
}

/// Any client may write `managedFields`, into any object that is watched: times that we cannot represent, and fields of any depth. One
/// object must not keep the operator from listing the others.
#[tokio::test]
async fn metadata_that_cannot_be_decoded_stop_no_other_and_lists_come_in_small_pages() -> Result<()> {
    let plane = plane().await?;
    let (hostile, calm) = (plane.namespace("hostile").await?, plane.namespace("calm").await?);
    let real = plane.client()?;
    let deep = format!("{}{{}}{}", r#"{"f:x":"#.repeat(140), "}".repeat(140));
    let managed = json!({ "toolhive.stacklok.io/managed-by": "toolhive-operator" });
    let pod = json!({ "app": "mcpserver", "app.kubernetes.io/instance": "s" });
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
    for (path, labels, rest) in [
        ("configmaps", json!({}), json!({})),
        ("secrets", json!({}), json!({})),
        ("serviceaccounts", managed, json!({})),
        ("pods", pod, json!({ "spec": spec })),
    ] {
        for (name, time, fields) in
            [("late", "9999-12-31T23:59:59Z", "{}"), ("deep", "2026-01-01T00:00:00Z", deep.as_str())]
        {
            let fields: Value =
                serde_json::from_str(fields).or_else(|_too_deep| Ok::<_, anyhow::Error>(json!("$deep")))?;
            let entry = json!({ "manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields });
            let mut object = json!({ "metadata": { "name": name, "labels": labels, "managedFields": [entry] } });
            object.as_object_mut().unwrap().extend(rest.as_object().cloned().unwrap());
            let body = object.to_string().replace(r#""$deep""#, &deep);
            let request = Request::post(format!("/api/v1/namespaces/{hostile}/{path}"))
                .header("content-type", "application/json");
            real.request_text(request.body(body.into_bytes())?).await?;
        }
    }
    let pages: Arc<Mutex<BTreeSet<u32>>> = Arc::default();
    let seen = pages.clone();
    let intercept = move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let limit: Option<u32> =
            query.split('&').find_map(|part| part.strip_prefix("limit=")).and_then(|limit| limit.parse().ok());
        seen.lock().unwrap().extend(limit);
        std::future::ready(Verdict::Pass(request))
    };
    let operator = start_watching(between(plane.client()?, intercept), plane, &[&calm, &hostile])?;
    operator.create(KindName::MCPServer, "s", server("registry.example/a:1")).await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    let pages = pages.lock().unwrap().clone();
    assert!(!pages.is_empty() && pages.iter().all(|limit| *limit <= 50), "{pages:?}");
    assert!(pages.contains(&20), "whole objects come in smaller pages: {pages:?}");
    operator.stop().await
}

/// A way to the API server on which watches can be cut. One that is cut ends at once; when it is asked for again it waits until
/// the way is open, and then asks for a version so old that the API server has forgotten it.
#[derive(Clone)]
struct Way {
    open: tokio::sync::watch::Sender<bool>,
    /// The watches that were cut and not yet refused as too old.
    late: Arc<Mutex<BTreeSet<String>>>,
    /// How many were refused.
    reported: Arc<AtomicUsize>,
}

impl Way {
    fn new() -> Self {
        Self { open: tokio::sync::watch::Sender::new(true), late: Arc::default(), reported: Arc::default() }
    }

    async fn intercept(self, mut request: Request<Body>) -> Verdict {
        let query = request.uri().query().unwrap_or_default().to_owned();
        if !query.contains("watch=true") {
            return Verdict::Pass(request);
        }
        let mut open = self.open.subscribe();
        if !*open.borrow() {
            self.late.lock().unwrap().insert(request.uri().path().to_owned());
            let _always_there = open.wait_for(|open| *open).await;
        }
        if self.late.lock().unwrap().remove(request.uri().path()) {
            self.reported.fetch_add(1, Ordering::SeqCst);
            let old: Vec<&str> = query.split('&').filter(|part| !part.starts_with("resourceVersion=")).collect();
            let uri = format!("{}?{}&resourceVersion=1", request.uri().path(), old.join("&"));
            *request.uri_mut() = uri.parse().unwrap();
        }
        Verdict::Pass(request)
    }
}

#[tokio::test]
async fn a_watch_that_comes_back_too_late_lists_anew_and_misses_nothing() -> Result<()> {
    let mut plane = ControlPlane::start().await?;
    define(&plane).await?;
    let namespace = plane.namespace("late").await?;
    let way = Way::new();
    let intercept = {
        let way = way.clone();
        move |request| way.clone().intercept(request)
    };
    let operator = start_as(between(plane.client()?, intercept), &plane, namespace)?;
    for name in ["stays", "goes", "changes"] {
        operator.create(KindName::MCPServer, name, server("registry.example/a:1")).await?;
        operator.child(ChildKind::Deployment, name, "exists", |_| true).await?;
    }
    operator.settled().await?;
    let before = operator.child(ChildKind::Deployment, "stays", "exists", |_| true).await?;

    // All watches break, and while they are broken the world moves on.
    way.open.send_replace(false);
    plane.restart_apiserver().await?;
    operator.resources(KindName::MCPServer).delete("goes", &kube::api::DeleteParams::default()).await?;
    operator.edit(KindName::MCPServer, "changes", server("registry.example/a:2")).await?;
    operator.create(KindName::MCPServer, "comes", server("registry.example/a:1")).await?;
    operator.children(ChildKind::Deployment).delete("stays", &kube::api::DeleteParams::default()).await?;
    skep_testkit::eventually("every watch asks again", PATIENCE, || async {
        let waiting = way.late.lock().unwrap().len();
        let kinds = KindName::ALL.len();
        Ok(if waiting >= kinds {
            skep_testkit::Seen::Yes(())
        } else {
            skep_testkit::Seen::NotYet(format!("{waiting}"))
        })
    })
    .await?;
    let old = "/apis/toolhive.stacklok.dev/v1beta1/mcpservers?watch=true&resourceVersion=1&timeoutSeconds=1";
    let answer = plane.kubectl(&["get", "--raw", old]).await?;
    assert!(format!("{answer:?}").contains("too old resource version"), "{answer:?}");
    way.open.send_replace(true);

    let image = |deployment: &Value| deployment.to_string().contains("registry.example/a:2");
    operator.child(ChildKind::Deployment, "changes", "has the new image", image).await?;
    operator.child(ChildKind::Deployment, "comes", "exists", |_| true).await?;
    let after = operator.child(ChildKind::Deployment, "stays", "comes back", |_| true).await?;
    assert_eq!(template(&after), template(&before));
    let gone = operator.resources(KindName::MCPServer);
    let gone = &gone;
    skep_testkit::eventually("the deleted server goes", PATIENCE, || async move {
        Ok(match gone.get_opt("goes").await? {
            None => skep_testkit::Seen::Yes(()),
            Some(_) => skep_testkit::Seen::NotYet("it is there".to_owned()),
        })
    })
    .await?;
    assert!(way.reported.load(Ordering::SeqCst) >= KindName::ALL.len(), "watches came back too late");
    operator.stop().await?;
    plane.stop();
    Ok(())
}

/// The writes that a server takes from its first to its last, as the end of their paths.
const WRITES: [(&str, &str); 9] = [
    ("PATCH", "/mcpservers/{}"),
    ("PATCH", "/mcpservers/{}/status"),
    ("PATCH", "/deployments/{}"),
    ("PATCH", "/services/mcp-{}-proxy"),
    ("PATCH", "/configmaps/{}-runconfig"),
    ("PATCH", "/serviceaccounts/{}-sa"),
    ("PATCH", "/roles/{}-proxy-runner"),
    ("PATCH", "/rolebindings/{}-proxy-runner"),
    ("DELETE", "/statefulsets/{}"),
];

/// Refuses the first two tries of one kind of write for each server, as an API server in trouble does.
#[derive(Clone, Default)]
struct Trouble(Arc<Mutex<std::collections::BTreeMap<String, u32>>>);

impl Trouble {
    fn intercept(&self, request: Request<Body>) -> Verdict {
        let path = request.uri().path().to_owned();
        let hit = WRITES.iter().enumerate().find(|(index, (method, end))| {
            request.method() == *method && path.ends_with(&end.replace("{}", &format!("s{index}")))
        });
        let Some((index, _)) = hit else { return Verdict::Pass(request) };
        let refused = {
            let mut seen = self.0.lock().unwrap();
            let count = seen.entry(format!("s{index}")).or_default();
            *count += 1;
            *count <= 2
        };
        if refused { Verdict::Answer(refusal(500, "InternalError")) } else { Verdict::Pass(request) }
    }
}

#[tokio::test]
async fn each_write_that_fails_is_retried() -> Result<()> {
    let plane = crate::running::plane().await?;
    let namespace = plane.namespace("trouble").await?;
    let trouble = Trouble::default();
    let intercept = {
        let trouble = trouble.clone();
        move |request| std::future::ready(trouble.intercept(request))
    };
    let operator = start_as(between(plane.client()?, intercept), plane, namespace)?;
    let names: Vec<String> = (0..WRITES.len()).map(|index| format!("s{index}")).collect();
    for name in &names {
        operator.create(KindName::MCPServer, name, server("registry.example/a:1")).await?;
    }
    for name in &names {
        operator.until(KindName::MCPServer, name, "has a status", |one| one["status"]["phase"] == "Pending").await?;
        operator.child(ChildKind::Deployment, name, "exists", |_| true).await?;
        operator.child(ChildKind::Service, &format!("mcp-{name}-proxy"), "exists", |_| true).await?;
        operator.child(ChildKind::ConfigMap, &format!("{name}-runconfig"), "exists", |_| true).await?;
        operator.child(ChildKind::ServiceAccount, &format!("{name}-sa"), "exists", |_| true).await?;
        operator.child(ChildKind::Role, &format!("{name}-proxy-runner"), "exists", |_| true).await?;
        operator.child(ChildKind::RoleBinding, &format!("{name}-proxy-runner"), "exists", |_| true).await?;
        let labels = json!({ "app": name, "toolhive": "true", "toolhive-name": name });
        let backend = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name, "labels": labels },
            "spec": {
                "serviceName": name, "selector": { "matchLabels": { "app": name } },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "mcp", "image": "i" }] } },
            },
        });
        let sets = operator.children(ChildKind::StatefulSet);
        sets.create(&kube::api::PostParams::default(), &serde_json::from_value(backend)?).await?;
        let owned = |set: &Value| set["metadata"]["ownerReferences"][0]["kind"] == "MCPServer";
        operator.child(ChildKind::StatefulSet, name, "is owned", owned).await?;
        operator.resources(KindName::MCPServer).delete(name, &kube::api::DeleteParams::default()).await?;
    }
    for (kind, objects) in
        [("server", operator.resources(KindName::MCPServer)), ("set", operator.children(ChildKind::StatefulSet))]
    {
        let objects = &objects;
        skep_testkit::eventually(&format!("every {kind} goes"), PATIENCE, || async move {
            let left = objects.list(&kube::api::ListParams::default()).await?.items.len();
            Ok(if left == 0 { skep_testkit::Seen::Yes(()) } else { skep_testkit::Seen::NotYet(format!("{left} left")) })
        })
        .await?;
    }
    let tried = trouble.0.lock().unwrap().clone();
    assert!(tried.len() == WRITES.len() && tried.values().all(|count| *count > 2), "{tried:?}");
    operator.stop().await
}

/// What an API server in trouble answers: by a part of the path, with which code. Its messages differ each time.
#[derive(Clone, Default)]
struct Failing(Arc<Mutex<Vec<(&'static str, u16)>>>, Arc<AtomicUsize>);

impl Failing {
    fn intercept(&self, request: Request<Body>) -> Verdict {
        let path = request.uri().path();
        let code = self.0.lock().unwrap().iter().find(|(part, _)| path.contains(part)).map(|(_, code)| *code);
        let is_meant = request.method() == "PATCH" || (request.method() == "GET" && path.contains("/secrets/"));
        match code.filter(|_| is_meant) {
            Some(code) => {
                let number = self.1.fetch_add(1, Ordering::SeqCst);
                Verdict::Answer(refusal(code, &format!("Request{number}")))
            }
            None => Verdict::Pass(request),
        }
    }

    fn set(&self, failing: &[(&'static str, u16)]) {
        *self.0.lock().unwrap() = failing.to_vec();
    }
}

#[tokio::test]
async fn a_plan_that_cannot_be_applied_is_not_ready_until_it_can_be() -> Result<()> {
    let plane = crate::running::plane().await?;
    let namespace = plane.namespace("unapplied").await?;
    let failing = Failing::default();
    let intercept = {
        let failing = failing.clone();
        move |request| std::future::ready(failing.intercept(request))
    };
    let operator = start_as(between(plane.client()?, intercept), plane, namespace)?;
    let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let up = serde_json::from_value(json!({ "name": "up", "steps": [
        { "apply": { "kind": "MCPRemoteProxy", "name": "r", "spec": { "remoteUrl": "https://mcp.example" } } },
        { "run": { "workload": { "kind": "Deployment", "name": "r" }, "pod": "r-1", "status": status } },
        { "expect": { "kind": "MCPRemoteProxy", "name": "r", "status": ready } },
    ] }))?;
    Stage::new(&operator.client, operator.namespace.clone()).run(&up).await?;
    let header = json!([{ "headerName": "X-Key", "valueSecretRef": { "name": "key", "key": "k" } }]);
    let with_secret = json!({ "headerForward": { "addHeadersFromSecret": header } });
    for (index, (faults, edit, reason)) in [
        (vec![("/serviceaccounts/", 500)], json!({}), "ApplyFailed"),
        (vec![("/serviceaccounts/", 500), ("/services/", 403)], json!({}), "ApplyRefused"),
        (vec![("/secrets/", 500)], with_secret, "ApplyFailed"),
    ]
    .into_iter()
    .enumerate()
    {
        failing.set(&faults);
        // Every child carries its owner's labels, so each is applied.
        let mut spec = edit;
        spec["resourceOverrides"] = json!({ "proxyService": { "annotations": { "edit": index.to_string() } } });
        operator
            .children(ChildKind::ServiceAccount)
            .delete("r-remote-proxy-runner", &kube::api::DeleteParams::default())
            .await?;
        operator.edit(KindName::MCPRemoteProxy, "r", spec).await?;
        let reported = |one: &Value| condition(one, "Ready") == Some(("False", reason));
        let first = operator.until(KindName::MCPRemoteProxy, "r", reason, reported).await?;
        assert_eq!(first["status"]["observedGeneration"], first["metadata"]["generation"]);
        assert_eq!(first["status"]["phase"], "Ready", "its pod serves");
        assert_eq!(condition(&first, "Stalled").is_some(), reason == "ApplyRefused");
        let before = failing.1.load(Ordering::SeqCst);
        eventually("it is retried", PATIENCE, || async {
            let retries = failing.1.load(Ordering::SeqCst) - before;
            Ok(if retries >= 3 { Seen::Yes(()) } else { Seen::NotYet(format!("{retries} retries")) })
        })
        .await?;
        if reason == "ApplyFailed" {
            let later = operator.until(KindName::MCPRemoteProxy, "r", "is there", |_| true).await?;
            assert_eq!(later["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        }
        failing.set(&[]);
        let healed = |one: &Value| condition(one, "Ready").is_some_and(|(_, now)| !now.starts_with("Apply"));
        operator.until(KindName::MCPRemoteProxy, "r", "is applied", healed).await?;
        operator.settled().await?;
    }
    operator.stop().await
}

#[tokio::test]
async fn one_reconcile_writes_a_status_once_and_is_never_refused_for_what_it_wrote_itself() -> Result<()> {
    let operator = operator("once").await?;
    operator
        .create(KindName::MCPWebhookConfig, "w", json!({ "validating": [{ "name": "a", "url": "https://a" }] }))
        .await?;
    let mut spec = server("registry.example/a:1");
    spec["webhookConfigRef"] = json!({ "name": "w" });
    // A restart that is asked for from the first moment: finalizer, status and stamp are written in one reconcile.
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "spec": spec,
        "metadata": { "name": "s", "annotations": { "mcpserver.toolhive.stacklok.dev/restarted-at": "2026-11-16T10:00:00Z" } },
    });
    let servers = operator.resources(KindName::MCPServer);
    servers.create(&kube::api::PostParams::default(), &serde_json::from_value(object)?).await?;
    operator.until(KindName::MCPServer, "s", "has a status", |one| one["status"]["phase"] == "Pending").await?;
    operator.settled().await?;
    let writes = operator.counted("api_requests", &["mcpservers/status"]);
    let reconciles = operator.counted("reconciles", &["MCPServer"]);
    assert!(writes <= reconciles, "{writes} writes of a status in {reconciles} reconciles");
    assert_eq!(operator.counted("reconciles", &["conflict"]), 0, "a write was refused");
    operator.stop().await
}
