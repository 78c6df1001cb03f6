//! Lists that are slow.

use std::time::Duration;

use anyhow::Result;
use hyper::{Method, Request, Response, Uri};
use kube::client::Body;
use serde_json::json;
use skep_workload::cluster::{Cluster, State};
use skep_workload::objects::Platform;
use skep_workload::server::{Server, Speaks};
use tokio::sync::watch;

use crate::support::{keep, server};

fn is_watch(uri: &Uri) -> bool {
    uri.path().ends_with("/statefulsets") && uri.query().is_some_and(|query| query.contains("watch=true"))
}

/// An API server with one StatefulSet. Its lists take a minute, and its watches tell nothing.
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
