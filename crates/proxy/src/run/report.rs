//! Keeping the server of a proxy in a cluster, and reporting to the operator how it is: what `/health` calls degraded, on transitions
//! only.

use std::sync::Arc;
use std::time::Duration;

use skep_workload::cluster::{Cluster, State};
use tokio::sync::watch;

use crate::health::Health;

/// How long something must be wrong to be reported. A pod that is replaced is away for a moment.
const SETTLES: Duration = Duration::from_secs(2);
/// How long to wait after a report failed.
const AGAIN: Duration = Duration::from_secs(10);

/// Keeps a server in a cluster. One that cannot be changed, or cannot be run as it should be, serves as it was if it is there,
/// and the health says why.
pub(super) async fn keep(cluster: Arc<Cluster>, state: watch::Sender<State>, health: Arc<Health>) {
    let kept = async {
        let wrong = cluster.keep(&state, |failed| health.refuse(failed.map(ToString::to_string))).await;
        tracing::error!(%wrong, "the server cannot be run as it is; correct its spec");
        cluster.watch(&state).await;
    };
    tokio::select! {
        () = kept => {}
        () = report(&cluster, &health) => {}
    }
}

/// Reports for as long as it is polled. The name of a pod is its host's name; without one nothing can be reported.
async fn report(cluster: &Cluster, health: &Health) {
    let Ok(pod) = std::env::var("HOSTNAME") else { return std::future::pending().await };
    let mut reported: Option<Option<String>> = None;
    loop {
        // Subscribed to before it is looked at: whatever changes from now on is noticed.
        let changed = health.changed();
        let problem = health.problem();
        if !health.is_decided() || reported.as_ref() == Some(&problem) {
            changed.await;
            continue;
        }
        if problem.is_some() && settles(health, problem.as_ref()).await.is_none() {
            continue;
        }
        match cluster.report(&pod, problem.as_deref()).await {
            Ok(()) => reported = Some(problem),
            Err(error) => {
                tracing::warn!(%error, "cannot report the state of the server on its StatefulSet");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Waits whether a problem lasts; nothing if it does not.
async fn settles(health: &Health, problem: Option<&String>) -> Option<()> {
    let changes = async {
        loop {
            let changed = health.changed();
            if health.problem().as_ref() != problem {
                return;
            }
            changed.await;
        }
    };
    tokio::time::timeout(SETTLES, changes).await.err().map(drop)
}
