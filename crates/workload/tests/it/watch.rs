//! Slow lists and broken watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use hyper::{Method, Request, Response, Uri};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::json;
use skep_testkit::{ControlPlane, Seen, eventually};
use skep_workload::cluster::{Cluster, State};
use skep_workload::objects::Platform;
use skep_workload::server::{Server, Speaks};
use tokio::sync::watch;

use crate::support::{Gatekeeper, PATIENCE, Place, keep, server};

fn is_watch(uri: &Uri) -> bool {
    uri.path().ends_with("/statefulsets") && uri.query().is_some_and(|query| query.contains("watch=true"))
}

/// An API server with one StatefulSet. Its lists take a minute, and its watches send no event.
async fn slow(request: Request<Body>, writes: watch::Sender<u32>) -> Result<Response<Body>, kube::Error> {
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "s", "namespace": "n", "resourceVersion": "7", "generation": 1 },
        "spec": { "replicas": 1 },
    });
    let answer = match request.uri().path().rsplit('/').next() {
        Some("statefulsets") if is_watch(request.uri()) => std::future::pending().await,
        Some("statefulsets") => {
            tokio::time::sleep(Duration::from_mins(1)).await;
            json!({ "apiVersion": "apps/v1", "kind": "StatefulSetList", "metadata": { "resourceVersion": "7" }, "items": [set] })
        }
        _ => {
            writes.send_modify(|writes| *writes += u32::from(request.method() == Method::PATCH));
            set
        }
    };
    Ok(Response::new(answer.to_string().into_bytes().into()))
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_long_is_waited_for_and_nothing_is_written_meanwhile() -> Result<()> {
    let writes = watch::Sender::new(0);
    let counted = writes.clone();
    let client = kube::Client::new(tower::service_fn(move |request| slow(request, counted.clone())), "n");
    let server = Server { speaks: Speaks::Stdio, ..server("s", 1) };
    let (keeper, mut state, _applied) = keep(Cluster::new(client, "n", Platform::Kubernetes, server));
    tokio::time::timeout(Duration::from_mins(10), state.wait_for(|now| *now != State::Missing)).await??;
    assert_eq!(*writes.borrow(), 1);
    keeper.abort();
    Ok(())
}

#[tokio::test]
async fn pods_that_cannot_run_say_why_while_none_is_ready_and_are_not_watched_otherwise() -> Result<()> {
    let place = Place::new("explain").await?;
    let (counted, counts) = watch::channel(State::Missing);
    let (state, mut seen) = watch::channel(State::Missing);
    let cluster = place.cluster(server("s", 1));
    let explaining = tokio::spawn(async move { cluster.explain(counts, &state).await });
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.namespace);
    let pod = json!({
        "metadata": { "name": "s-0", "labels": { "app": "s" } },
        "spec": { "containers": [{ "name": "mcp", "image": "a" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let starting = State::Starting { ready: 0, wanted: 1 };
    counted.send_replace(starting.clone());
    tokio::time::timeout(PATIENCE, seen.wait_for(|now| *now == starting)).await??;
    let waiting = |reason: &str| {
        let state = json!({ "waiting": { "reason": reason, "message": "not found" } });
        let container =
            json!({ "name": "mcp", "image": "a", "imageID": "", "ready": false, "restartCount": 0, "state": state });
        Patch::Merge(json!({ "status": { "containerStatuses": [container] } }))
    };
    pods.patch_status("s-0", &PatchParams::default(), &waiting("ImagePullBackOff")).await?;
    let failing = State::Failing("pod `s-0` of the server cannot run: ImagePullBackOff: not found".to_owned());
    tokio::time::timeout(PATIENCE, seen.wait_for(|now| *now == failing)).await??;
    // Its image can be pulled now.
    pods.patch_status("s-0", &PatchParams::default(), &waiting("ContainerCreating")).await?;
    tokio::time::timeout(PATIENCE, seen.wait_for(|now| *now == starting)).await??;
    pods.patch_status("s-0", &PatchParams::default(), &waiting("ImagePullBackOff")).await?;
    tokio::time::timeout(PATIENCE, seen.wait_for(|now| *now == failing)).await??;
    // The counts have the last word.
    for now in [State::Ready, State::Stopped, State::Starting { ready: 1, wanted: 2 }] {
        counted.send_replace(now.clone());
        tokio::time::timeout(PATIENCE, seen.wait_for(|seen| *seen == now)).await??;
    }
    counted.send_replace(starting);
    tokio::time::timeout(PATIENCE, seen.wait_for(|now| *now == failing)).await??;
    pods.delete("s-0", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
    tokio::time::timeout(PATIENCE, seen.wait_for(|now| matches!(now, State::Starting { .. }))).await??;
    explaining.abort();
    Ok(())
}

/// A client whose first watch is held until released, and then asks for a version that the API server has compacted.
fn late(real: kube::Client, may: watch::Receiver<bool>, asked: watch::Sender<u32>) -> kube::Client {
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (real, mut may, asked) = (real.clone(), may.clone(), asked.clone());
        async move {
            if is_watch(request.uri()) {
                asked.send_modify(|asked| *asked += 1);
                if *asked.borrow() == 1 {
                    may.wait_for(|may| *may).await.map_err(|error| kube::Error::Service(error.into()))?;
                    *request.uri_mut() = forgotten(request.uri());
                }
            }
            real.send(request).await
        }
    });
    kube::Client::new(service, "default")
}

/// The same watch from the very first version on.
fn forgotten(uri: &Uri) -> Uri {
    let query = uri.query().unwrap_or_default().split('&').filter(|part| !part.starts_with("resourceVersion="));
    format!("{}?{}&resourceVersion=1", uri.path(), query.collect::<Vec<_>>().join("&")).parse().unwrap()
}

#[tokio::test]
async fn a_watch_that_comes_back_too_late_lists_anew_and_sees_that_the_server_is_gone() -> Result<()> {
    let mut control_plane = ControlPlane::start().await?;
    let client = skep_workload::client::client(control_plane.config())?;
    let place = Place { client, namespace: control_plane.namespace("late").await? };
    let server = Server { replicas: Some(1), ..server("s", 1) };
    place.cluster(server.clone()).apply().await?;
    // A watch that has just started has no history.
    control_plane.restart_apiserver().await?;
    let ((go_on, may), asked) = (watch::channel(false), watch::Sender::new(0));
    let client = late(place.client.clone(), may, asked.clone());
    let (keeper, mut state, mut applied) = keep(Cluster::new(client, &place.namespace, Platform::Kubernetes, server));
    tokio::time::timeout(PATIENCE, applied.wait_for(|applied| *applied)).await??;
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now != State::Missing)).await??;
    tokio::time::timeout(PATIENCE, asked.subscribe().wait_for(|asked| *asked == 1)).await??;

    // It is deleted while the watch is interrupted.
    let uid = place.sets().get("s").await?.metadata.uid;
    place.sets().delete("s", &DeleteParams::background()).await?;
    let path = format!("/apis/apps/v1/namespaces/{}/statefulsets?watch=true&timeoutSeconds=1", place.namespace);
    let answer = control_plane.kubectl(&["get", "--raw", &forgotten(&path.parse()?).to_string()]).await?;
    assert!(format!("{answer:?}").contains("too old resource version"), "{answer:?}");
    go_on.send_replace(true);
    let (sets, uid) = (&place.sets(), &uid);
    eventually("the StatefulSet comes back", PATIENCE, || async move {
        Ok(match sets.get_opt("s").await? {
            Some(set) if set.metadata.uid != *uid => Seen::Yes(()),
            _ => Seen::NotYet("not yet".to_owned()),
        })
    })
    .await?;

    // And from then on it is watched as before.
    let status = json!({ "observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1 });
    place.status("s", status).await?;
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now == State::Ready)).await??;
    assert!(*asked.borrow() > 1, "the first watch was of no use");
    keeper.abort();
    control_plane.stop();
    Ok(())
}

/// A client whose first watch sends nothing until released, and then only an error.
fn blind(real: kube::Client, may: watch::Receiver<bool>) -> kube::Client {
    let is_first = Arc::new(AtomicBool::new(true));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (real, mut may, is_first) = (real.clone(), may.clone(), is_first.clone());
        async move {
            if !is_watch(request.uri()) || !is_first.swap(false, Ordering::SeqCst) {
                return real.send(request).await;
            }
            may.wait_for(|may| *may).await.map_err(|error| kube::Error::Service(error.into()))?;
            let gone =
                json!({ "kind": "Status", "status": "Failure", "reason": "Expired", "message": "m", "code": 410 });
            let event = json!({ "type": "ERROR", "object": gone });
            Ok(Response::new(format!("{event}\n").into_bytes().into()))
        }
    });
    kube::Client::new(service, "default")
}

/// Generations of two objects are unrelated.
#[tokio::test]
async fn a_server_that_an_older_proxy_recreated_while_no_watch_was_open_is_not_taken_for_ours() -> Result<()> {
    let place = Place::new("anew").await?;
    let version = |generation: i64, image: &str| {
        place.cluster(Server { image: image.to_owned(), replicas: Some(1), ..server("s", generation) })
    };
    version(2, "two").apply().await?;
    let (go_on, may) = watch::channel(false);
    let client = blind(place.client.clone(), may);
    let newer = version(2, "two").server().clone();
    let (keeper, mut state, mut applied) = keep(Cluster::new(client, &place.namespace, Platform::Kubernetes, newer));
    tokio::time::timeout(PATIENCE, applied.wait_for(|applied| *applied)).await??;
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now != State::Missing)).await??;
    place.sets().delete("s", &DeleteParams::background()).await?;
    version(1, "one").apply().await?;
    assert_eq!(place.image("s").await?, "one");
    go_on.send_replace(true);
    let place = &place;
    eventually("the newer server is back", PATIENCE, || async move {
        let image = place.image("s").await?;
        Ok(if image == "two" { Seen::Yes(()) } else { Seen::NotYet(image) })
    })
    .await?;
    let generation = place.sets().get("s").await?.metadata.generation;
    let status = json!({ "observedGeneration": generation, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1 });
    place.status("s", status).await?;
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now == State::Ready)).await??;
    keeper.abort();
    Ok(())
}

/// The proxy is the only field manager of its server's Services, so it must notice that one was deleted.
#[tokio::test]
async fn a_service_that_was_deleted_is_applied_again_at_once() -> Result<()> {
    let place = Place::new("services").await?;
    let (keeper, mut state, mut applied) = keep(place.cluster(Server { replicas: Some(1), ..server("s", 1) }));
    tokio::time::timeout(PATIENCE, applied.wait_for(|applied| *applied)).await??;
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now != State::Missing)).await??;
    let set = place.sets().get("s").await?;
    for name in ["mcp-s", "mcp-s-headless", "mcp-s"] {
        let services = &place.services();
        let uid = &services.get(name).await?.metadata.uid;
        services.delete(name, &DeleteParams::default()).await?;
        let back = eventually("the Service comes back", PATIENCE, || async move {
            Ok(match services.get_opt(name).await? {
                Some(service) if service.metadata.uid != *uid => Seen::Yes(service),
                _ => Seen::NotYet("not yet".to_owned()),
            })
        })
        .await?;
        let owner = back.metadata.owner_references.unwrap_or_default();
        assert_eq!(owner.first().map(|owner| &owner.uid), set.metadata.uid.as_ref());
        assert_eq!(back.spec.and_then(|spec| spec.selector).unwrap_or_default()["app"], "s");
    }
    assert!(*state.borrow() != State::Missing, "the server was there all the time");
    assert_eq!(place.sets().get("s").await?.metadata.generation, set.metadata.generation, "nothing rolls");
    keeper.abort();
    Ok(())
}

#[tokio::test]
async fn an_older_proxy_leaves_a_deleted_service_to_the_newer_one() -> Result<()> {
    let place = Place::new("services").await?;
    place.cluster(server("s", 2)).apply().await?;
    let writes = Gatekeeper::new();
    let client = writes.between(&place.client, Method::PATCH, "/services/");
    let older = Cluster::new(client, &place.namespace, Platform::Kubernetes, server("s", 1));
    let (keeper, mut state, mut applied) = keep(older);
    tokio::time::timeout(PATIENCE, applied.wait_for(|applied| *applied)).await??;
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now != State::Missing)).await??;
    place.services().delete("mcp-s", &DeleteParams::default()).await?;
    // The newer one applies it again; the older one has written nothing.
    let (newer, _state, _applied) = keep(place.cluster(server("s", 2)));
    let services = &place.services();
    eventually("the Service comes back", PATIENCE, || async move {
        Ok(match services.get_opt("mcp-s").await? {
            Some(_) => Seen::Yes(()),
            None => Seen::NotYet("not yet".to_owned()),
        })
    })
    .await?;
    let set = serde_json::to_value(place.sets().get("s").await?)?;
    assert_eq!(set["spec"]["template"]["metadata"]["annotations"][crate::support::GENERATION], "2");
    assert_eq!(writes.come(), 0, "the older proxy wrote a Service");
    keeper.abort();
    newer.abort();
    Ok(())
}
