//! Two proxies, or a proxy and another field manager, that write at the same time.

use anyhow::Result;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use skep_testkit::{Seen, eventually};
use skep_workload::cluster::{Applied, Cluster, State};
use skep_workload::objects::Platform;
use skep_workload::server::Server;
use tokio::sync::watch;

use crate::support::{GENERATION, Gatekeeper, PATIENCE, Place, keep, owned, server};

/// The older proxy has read, and is about to write, when the newer one does both.
#[tokio::test]
async fn an_older_proxy_that_looked_before_a_newer_one_applied_leaves_it_alone() -> Result<()> {
    let place = Place::new("between").await?;
    let version = |generation: i64, image: &str| Server { image: image.to_owned(), ..server("s", generation) };
    place.cluster(version(1, "one")).apply().await?;
    let fields = owned(&serde_json::to_value(place.sets().get("s").await?)?);
    let gate = Gatekeeper::new();
    let client = gate.between(&place.client, hyper::Method::PATCH, "/statefulsets/");
    let older = Cluster::new(client, &place.namespace, Platform::Kubernetes, version(1, "one-again"));
    let older = tokio::spawn(async move { older.apply().await });
    gate.has_come().await?;
    assert!(matches!(place.cluster(version(2, "two")).apply().await?, Applied::Ours { .. }));
    gate.let_go();
    assert_eq!(older.await??, Applied::Newer);
    assert_eq!(place.image("s").await?, "two");
    assert_eq!(gate.come(), 1, "it looked again, and wrote nothing");
    // What was read is no field that any manager owns.
    assert_eq!(owned(&serde_json::to_value(place.sets().get("s").await?)?), fields);
    Ok(())
}

/// A change by a controller, such as the number of ready pods, is no reason to give up.
#[tokio::test]
async fn a_change_of_the_status_between_look_and_write_is_looked_at_again() -> Result<()> {
    let place = Place::new("moved").await?;
    place.cluster(server("s", 1)).apply().await?;
    let gate = Gatekeeper::new();
    let client = gate.between(&place.client, hyper::Method::PATCH, "/statefulsets/");
    let newer = Cluster::new(client, &place.namespace, Platform::Kubernetes, server("s", 2));
    let newer = tokio::spawn(async move { newer.apply().await });
    gate.has_come().await?;
    place.status("s", json!({ "observedGeneration": 1, "replicas": 1 })).await?;
    gate.let_go();
    assert!(matches!(newer.await??, Applied::Ours { .. }));
    assert_eq!(gate.come(), 2);
    let set = serde_json::to_value(place.sets().get("s").await?)?;
    assert_eq!(set["spec"]["template"]["metadata"]["annotations"][GENERATION], "2");
    Ok(())
}

#[tokio::test]
async fn a_stateful_set_that_goes_between_look_and_write_is_made() -> Result<()> {
    let place = Place::new("vanished").await?;
    place.cluster(server("s", 1)).apply().await?;
    let gate = Gatekeeper::new();
    let client = gate.between(&place.client, hyper::Method::PATCH, "/statefulsets/");
    let cluster = Cluster::new(client, &place.namespace, Platform::Kubernetes, server("s", 1));
    let applying = tokio::spawn(async move { cluster.apply().await });
    gate.has_come().await?;
    place.sets().delete("s", &DeleteParams::background()).await?;
    gate.let_go();
    assert!(matches!(applying.await??, Applied::Ours { generation: 1, .. }));
    assert!(place.sets().get_opt("s").await?.is_some());
    Ok(())
}

/// Where both find nothing there is nothing to compare: the newer one corrects it.
#[tokio::test]
async fn a_newer_proxy_applies_again_what_an_older_one_wrote_after_it() -> Result<()> {
    let place = Place::new("after").await?;
    let version = |generation: i64, image: &str| Server { image: image.to_owned(), ..server("s", generation) };
    let gate = Gatekeeper::new();
    let client = gate.between(&place.client, hyper::Method::PATCH, "/statefulsets/");
    let older = Cluster::new(client, &place.namespace, Platform::Kubernetes, version(1, "one"));
    let older = tokio::spawn(async move { older.apply().await });
    gate.has_come().await?;
    let (keeper, mut state, mut applied) = keep(place.cluster(version(2, "two")));
    tokio::time::timeout(PATIENCE, applied.wait_for(|applied| *applied)).await??;
    tokio::time::timeout(PATIENCE, state.wait_for(|now| *now != State::Missing)).await??;
    gate.let_go();
    assert!(matches!(older.await??, Applied::Ours { .. }), "nothing stopped it");
    let place = &place;
    eventually("the newer server is back", PATIENCE, || async move {
        let image = place.image("s").await?;
        Ok(if image == "two" { Seen::Yes(()) } else { Seen::NotYet(image) })
    })
    .await?;
    keeper.abort();
    Ok(())
}

/// Two that differ in what they want, and not in their generation: the later one wins, and neither reverts it.
#[tokio::test]
async fn two_proxies_of_one_generation_settle() -> Result<()> {
    let place = Place::new("equal").await?;
    let mut kept = Vec::new();
    for image in ["one", "two"] {
        let gate = Gatekeeper::new();
        gate.let_go();
        let client = gate.between(&place.client, hyper::Method::PATCH, "/statefulsets/");
        let server = Server { image: image.to_owned(), replicas: Some(1), ..server("s", 2) };
        let (keeper, state, mut applied) = keep(Cluster::new(client, &place.namespace, Platform::Kubernetes, server));
        tokio::time::timeout(PATIENCE, applied.wait_for(|applied| *applied)).await??;
        kept.push((gate, keeper, state));
    }
    let generation = place.sets().get("s").await?.metadata.generation;
    place
        .status(
            "s",
            json!({ "observedGeneration": generation, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1 }),
        )
        .await?;
    for (gate, keeper, mut state) in kept {
        // A reader that has received this has received everything before it.
        tokio::time::timeout(PATIENCE, state.wait_for(|now| *now == State::Ready)).await??;
        assert_eq!(gate.come(), 1);
        keeper.abort();
    }
    assert_eq!(place.image("s").await?, "two");
    assert_eq!(place.sets().get("s").await?.metadata.generation, generation);
    Ok(())
}

/// A webhook of the cluster may change whatever is written. Writing it again would not end.
#[tokio::test]
async fn a_generation_that_is_changed_on_its_way_is_not_fought_over() -> Result<()> {
    let place = Place::new("changed").await?;
    let (writes, real) = (watch::Sender::new(0), place.client.clone());
    let counted = writes.clone();
    let service = tower::service_fn(move |request: hyper::Request<kube::client::Body>| {
        let (counted, real) = (counted.clone(), real.clone());
        async move {
            if request.method() != hyper::Method::PATCH || !request.uri().path().contains("/statefulsets/") {
                return real.send(request).await;
            }
            counted.send_modify(|writes| *writes += 1);
            let (parts, body) = request.into_parts();
            let mut set: Value =
                serde_json::from_slice(&body.collect_bytes().await?).map_err(kube::Error::SerdeError)?;
            set["spec"]["template"]["metadata"]["annotations"][GENERATION] = json!("1");
            real.send(hyper::Request::from_parts(parts, set.to_string().into_bytes().into())).await
        }
    });
    let client = kube::Client::new(service, "default");
    let server = Server { replicas: Some(1), ..server("s", 2) };
    let (keeper, mut state, mut applied) = keep(Cluster::new(client, &place.namespace, Platform::Kubernetes, server));
    tokio::time::timeout(PATIENCE, applied.wait_for(|applied| *applied)).await??;
    for ready in [1, 0, 1, 0, 1] {
        let status = json!({ "observedGeneration": 1, "replicas": 1, "readyReplicas": ready, "updatedReplicas": 1 });
        place.status("s", status).await?;
        let wanted = if ready == 1 { State::Ready } else { State::Starting { ready, wanted: 1 } };
        tokio::time::timeout(PATIENCE, state.wait_for(|now| *now == wanted)).await??;
    }
    assert_eq!(*writes.borrow(), 1);
    keeper.abort();
    Ok(())
}
