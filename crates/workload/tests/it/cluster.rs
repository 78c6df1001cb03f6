//! The applied objects, their field managers, and what happens when they are deleted.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use skep_testkit::{Seen, eventually};
use skep_workload::cluster::{Applied, Cluster, State};
use skep_workload::objects::Platform;
use skep_workload::server::{Server, Speaks};
use tokio::sync::watch;

use crate::support::{GENERATION, Gatekeeper, PATIENCE, Place, owned, server};

/// What the original applied for the same servers: its objects by kind and name.
fn theirs() -> Result<BTreeMap<(String, String), Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/objects/out/20-live-statefulsets.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let named =
        |object: &Value, path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(objects
        .into_iter()
        .map(|object| ((named(&object, "/kind"), named(&object, "/metadata/name")), object))
        .collect())
}

#[tokio::test]
async fn the_objects_are_those_of_the_original_to_the_last_field() -> Result<()> {
    let place = Place::new("theirs").await?;
    let labels = |name: &str, transport: &str| {
        [
            ("toolhive-basename", name),
            ("toolhive-name", name),
            ("toolhive-port", "8080"),
            ("toolhive-transport", transport),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .chain([("toolhive".to_owned(), "true".to_owned())])
        .collect()
    };
    let http = Server {
        args: vec!["-http".into(), "0.0.0.0:8080".into()],
        env: [("ZED", "2"), ("ALPHA", "1")].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        labels: labels("http", "streamable-http"),
        patch: json!({
            "metadata": { "labels": { "team": "blue" }, "annotations": { "note": "backend" } },
            "spec": { "serviceAccountName": "http-sa", "containers": [{ "name": "mcp", "resources": { "limits": { "memory": "300Mi" } } }] },
        })
        .to_string(),
        ..server("http", 1)
    };
    let stdio = Server {
        labels: labels("stdio", "stdio"),
        speaks: Speaks::Stdio,
        patch: json!({ "spec": { "serviceAccountName": "stdio-sa" } }).to_string(),
        replicas: Some(1),
        ..server("stdio", 1)
    };
    for server in [http, stdio] {
        place.cluster(server).apply().await?;
    }
    assert!(place.services().get_opt("mcp-stdio").await?.is_none());
    for ((kind, name), theirs) in theirs()? {
        let ours = match kind.as_str() {
            "StatefulSet" => serde_json::to_value(place.sets().get(&name).await?)?,
            "Service" if !name.ends_with("-proxy") => serde_json::to_value(place.services().get(&name).await?)?,
            _ => continue,
        };
        assert_eq!(ours["metadata"]["labels"], theirs["metadata"]["labels"], "{kind} {name}");
        assert_eq!(owned(&ours), owned(&theirs), "{kind} {name}: the fields that are applied");
        let mut spec = ours["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            // Chosen by the API server; and the data omits the cluster addresses.
            spec.retain(|field, value| {
                !(field.starts_with("clusterIP") && *value != json!("None") && *value != json!(["None"]))
            });
        }
        let mut wanted = theirs["spec"].clone();
        // The API server drops empty values, and so did the tool that printed the data.
        drop_empty(&mut wanted);
        drop_empty(&mut spec);
        assert_eq!(spec, wanted, "{kind} {name}");
    }
    Ok(())
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !matches!(value, Value::Null) && *value != json!({}) && *value != json!(""));
            object.values_mut().for_each(drop_empty);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

#[tokio::test]
async fn an_older_proxy_never_takes_back_what_a_newer_one_applied() -> Result<()> {
    let place = Place::new("gate").await?;
    let at =
        |generation: i64, image: &str| place.cluster(Server { image: image.to_owned(), ..server("s", generation) });
    assert!(matches!(at(2, "two").apply().await?, Applied::Ours { .. }));
    // The terminating pod starts again: it leaves everything unchanged, and still knows where the server is.
    let before = place.sets().get("s").await?.metadata.resource_version;
    let older = at(1, "one");
    assert_eq!(older.apply().await?, Applied::Newer);
    assert_eq!(place.sets().get("s").await?.metadata.resource_version, before);
    assert_eq!(older.server().url().as_deref(), Some("http://mcp-s:8080"));
    // Equal means apply, and so does greater.
    assert!(matches!(at(2, "two-again").apply().await?, Applied::Ours { .. }));
    assert_eq!(place.image("s").await?, "two-again");
    assert!(matches!(at(3, "three").apply().await?, Applied::Ours { .. }));
    assert_eq!(place.image("s").await?, "three");
    // An invalid annotation does not block, and is repaired.
    for nonsense in [json!("many"), json!(""), Value::Null] {
        let patch = json!({ "spec": { "template": { "metadata": { "annotations": { GENERATION: nonsense } } } } });
        place.sets().patch("s", &PatchParams::default(), &Patch::Merge(patch)).await?;
        assert!(matches!(at(1, "one").apply().await?, Applied::Ours { .. }));
        let set = serde_json::to_value(place.sets().get("s").await?)?;
        assert_eq!(set["spec"]["template"]["metadata"]["annotations"][GENERATION], "1");
    }
    // One that does not know its generation applies, and sets none.
    assert!(matches!(at(0, "unknown").apply().await?, Applied::Ours { .. }));
    let set = serde_json::to_value(place.sets().get("s").await?)?;
    assert_eq!(set["spec"]["template"]["metadata"]["annotations"].get(GENERATION), None);
    Ok(())
}

#[tokio::test]
async fn applying_again_changes_nothing_and_what_others_set_stays() -> Result<()> {
    let place = Place::new("again").await?;
    let cluster = place.cluster(server("s", 1));
    cluster.apply().await?;
    let theirs = json!({
        "metadata": { "annotations": { "theirs": "yes" } },
        "spec": { "replicas": 3, "template": { "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z" } } } },
    });
    place.sets().patch("s", &PatchParams::default(), &Patch::Merge(theirs)).await?;
    let before = place.sets().get("s").await?;
    cluster.apply().await?;
    let after = place.sets().get("s").await?;
    assert_eq!(after.metadata.generation, before.metadata.generation, "nothing rolls");
    let after = serde_json::to_value(after)?;
    assert_eq!(after["spec"]["replicas"], 3);
    let annotations = &after["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["kubectl.kubernetes.io/restartedAt"], "2026-01-01T00:00:00Z");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_kept_is_followed_comes_back_and_may_be_scaled_to_zero() -> Result<()> {
    let place = Place::new("kept").await?;
    let cluster = place.cluster(Server { replicas: Some(1), ..server("s", 1) });
    let (sender, mut state) = watch::channel(State::Missing);
    let keeper = tokio::spawn(async move { cluster.keep(&sender, |_failed| {}).await });
    let wait = |wanted: State| {
        let mut state = state.clone();
        async move {
            let seen = tokio::time::timeout(PATIENCE, state.wait_for(|now| *now == wanted)).await;
            seen.with_context(|| format!("never {wanted:?}"))?.map(|_| ()).context("the keeper ended")
        }
    };
    wait(State::Starting { ready: 0, wanted: 1 }).await?;
    place
        .status("s", json!({ "observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1 }))
        .await?;
    wait(State::Ready).await?;
    place.sets().patch("s", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "replicas": 0 } }))).await?;
    wait(State::Stopped).await?;
    place.sets().patch("s", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "replicas": 1 } }))).await?;
    // The controller has not observed it yet: the readiness of the old pods says nothing.
    place.status("s", json!({ "observedGeneration": 3, "readyReplicas": 0, "updatedReplicas": 0 })).await?;
    wait(State::Starting { ready: 0, wanted: 1 }).await?;
    let uid = place.sets().get("s").await?.metadata.uid;
    place.sets().delete("s", &DeleteParams::background()).await?;
    let (sets, uid) = (&place.sets(), &uid);
    eventually("the StatefulSet comes back", PATIENCE, || async move {
        Ok(match sets.get_opt("s").await? {
            Some(set) if set.metadata.uid != *uid => Seen::Yes(()),
            _ => Seen::NotYet("not yet".to_owned()),
        })
    })
    .await?;
    state.mark_unchanged();
    keeper.abort();
    Ok(())
}

#[tokio::test]
async fn a_stateful_set_that_goes_before_its_services_are_there_is_made_again() -> Result<()> {
    let place = Place::new("early").await?;
    let gate = Gatekeeper::new();
    let client = gate.between(&place.client, hyper::Method::PATCH, "/services/");
    let cluster = Cluster::new(client, &place.namespace, Platform::Kubernetes, server("s", 1));
    let (sender, mut state) = watch::channel(State::Missing);
    let keeper = tokio::spawn(async move { cluster.keep(&sender, |_failed| {}).await });
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now != State::Missing)).await??;
    place.sets().delete("s", &DeleteParams::background()).await?;
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now == State::Missing)).await??;
    gate.let_go();
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now != State::Missing)).await??;
    keeper.abort();
    Ok(())
}

/// A bad edit must not take down what runs: the new proxy serves through the old server, and reports why it is still
/// the old one.
#[tokio::test]
async fn a_server_whose_change_is_refused_is_followed_as_it_was_until_the_change_is_taken() -> Result<()> {
    let place = Place::new("refused").await?;
    place.cluster(Server { replicas: Some(1), ..server("s", 1) }).apply().await?;
    place
        .status("s", json!({ "observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1 }))
        .await?;
    let patch =
        json!({ "spec": { "containers": [{ "name": "mcp", "resources": { "limits": { "memory": "-1Mi" } } }] } });
    let changed = place.cluster(Server { replicas: Some(1), patch: patch.to_string(), ..server("s", 2) });
    let ((sender, mut state), (report, mut refusal)) = (watch::channel(State::Missing), watch::channel(None));
    let keeper = tokio::spawn(async move {
        changed.keep(&sender, move |failed| drop(report.send_replace(failed.map(ToString::to_string)))).await
    });
    let refused = tokio::time::timeout(PATIENCE, refusal.wait_for(Option::is_some)).await??.clone();
    let refused = refused.context("a reason")?;
    assert!(refused.starts_with("cannot apply StatefulSet ") && refused.contains("memory"), "{refused}");
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now == State::Ready)).await??;
    keeper.abort();

    // An invalid spec is no reason either.
    let wrong = place.cluster(Server { patch: "{".to_owned(), ..server("s", 2) });
    let (sender, mut state) = watch::channel(State::Missing);
    let watcher = tokio::spawn(async move { wrong.watch(&sender).await });
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now == State::Ready)).await??;
    watcher.abort();
    Ok(())
}

/// An API server that is down, or hangs, when a proxy starts.
#[tokio::test]
async fn the_platform_is_queried_until_it_is_known() -> Result<()> {
    let place = Place::new("platform").await?;
    let cluster = Cluster::new(place.client.clone(), &place.namespace, None, server("s", 1));
    assert!(matches!(cluster.apply().await?, Applied::Ours { .. }));
    let user = |set: &Value| set["spec"]["template"]["spec"]["securityContext"]["runAsUser"].clone();
    assert_eq!(user(&serde_json::to_value(place.sets().get("s").await?)?), 1000);
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse()?);
    let cluster = Cluster::new(skep_workload::client::client(nowhere)?, "n", None, server("s", 1));
    let ((sender, _state), (report, mut refusal)) = (watch::channel(State::Missing), watch::channel(0));
    let keeper = tokio::spawn(async move {
        cluster.keep(&sender, move |failed| report.send_modify(|count| *count += i32::from(failed.is_some()))).await
    });
    tokio::time::timeout(PATIENCE, refusal.wait_for(|count| *count > 1)).await??;
    keeper.abort();
    Ok(())
}

#[tokio::test]
async fn a_server_that_cannot_be_run_is_reported_and_not_retried() -> Result<()> {
    let place = Place::new("wrong").await?;
    for (patch, publish, words) in [
        ("{", vec![], "--k8s-pod-patch"),
        (r#"{"spec":{"containers":"none"}}"#, vec![], "not a pod template"),
        ("", vec!["many".to_owned()], "`many` is not a port"),
    ] {
        let cluster = place.cluster(Server { patch: patch.to_owned(), publish, ..server("s", 1) });
        let (sender, _state) = watch::channel(State::Missing);
        let wrong = tokio::time::timeout(PATIENCE, cluster.keep(&sender, |_failed| {})).await?;
        assert!(wrong.to_string().contains(words), "{wrong}");
    }
    Ok(())
}

/// The API server's own admission decides whether a pod meets the restricted standard.
#[tokio::test]
async fn pods_keep_the_restricted_standard_unless_the_patch_says_otherwise() -> Result<()> {
    let place = Place::new("restricted").await?;
    let strict = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: Api<Namespace> = Api::all(place.client.clone());
    namespaces.patch(&place.namespace, &PatchParams::default(), &Patch::Merge(strict)).await?;
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "default" } }))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(place.client.clone(), &place.namespace);
    let _there_already = accounts.create(&PostParams::default(), &account).await;
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.namespace);
    let container =
        |context: Value| json!({ "spec": { "containers": [{ "name": "mcp", "securityContext": context }] } });
    for (index, (patch, platform, is_admitted)) in [
        (Value::Null, Platform::Kubernetes, true),
        (Value::Null, Platform::OpenShift, true),
        (container(json!({ "readOnlyRootFilesystem": false })), Platform::Kubernetes, true),
        (json!({ "spec": { "securityContext": { "fsGroup": 7 } } }), Platform::Kubernetes, true),
        (container(json!({ "allowPrivilegeEscalation": true })), Platform::Kubernetes, false),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("s{index}");
        let patch = if patch.is_null() { String::new() } else { patch.to_string() };
        for speaks in [Speaks::Stdio, Speaks::Sse(8080)] {
            let server = Server { speaks, patch: patch.clone(), ..server(&name, 1) };
            let cluster = Cluster::new(place.client.clone(), &place.namespace, platform, server);
            cluster.apply().await?;
            let set = serde_json::to_value(place.sets().get(&name).await?)?;
            let template = &set["spec"]["template"];
            let pod = json!({ "metadata": { "generateName": name }, "spec": template["spec"] });
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            let admitted = pods.create(&dry, &serde_json::from_value(pod)?).await;
            assert_eq!(admitted.is_ok(), is_admitted, "{patch} {platform:?}: {admitted:?}");
            if let Err(refusal) = admitted {
                assert!(refusal.to_string().contains("PodSecurity"), "{refusal}");
            }
        }
    }
    Ok(())
}

/// The next proxy reads the notes of the one before it, about the same container only, and no pod restarts because of
/// it.
#[tokio::test]
async fn notes_beside_a_server_are_about_one_container_and_restart_nothing() -> Result<()> {
    let place = Place::new("notes").await?;
    let cluster = place.cluster(server("s", 1));
    cluster.apply().await?;
    let before = place.sets().get("s").await?;
    assert_eq!(cluster.notes_of("one").kept().await, None);
    cluster.notes_of("one").keep("hello".to_owned()).await;
    let next = place.cluster(server("s", 2));
    next.apply().await?;
    assert_eq!(next.notes_of("one").kept().await.as_deref(), Some("hello"));
    assert_eq!(next.notes_of("two").kept().await, None);
    next.notes_of("two").keep("x".repeat(100_000)).await;
    assert_eq!(next.notes_of("two").kept().await, None, "too long for an annotation");
    let after = place.sets().get("s").await?;
    let template = |set: &StatefulSet| serde_json::to_value(set.spec.as_ref().map(|spec| &spec.template));
    let without = |mut template: Value| {
        template["metadata"]["annotations"].as_object_mut().unwrap().remove(GENERATION);
        template
    };
    assert_eq!(without(template(&before)?), without(template(&after)?));
    Ok(())
}
