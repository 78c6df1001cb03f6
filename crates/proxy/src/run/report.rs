//! Keeping the server of a proxy in a cluster, and reporting to the operator what `/health` calls starting or degraded, on transitions
//! only.

use std::sync::Arc;
use std::time::Duration;

use skep_workload::cluster::{Cluster, State};
use skep_workload::report::{Reported, UpstreamState};
use tokio::sync::watch;

use crate::health::Health;

/// How long a server must be unusable to be reported. A pod that is replaced is away for a moment. The operator takes a backend
/// without a readiness probe for ready no sooner, and this starts before the backend has a pod.
const SETTLES: Duration = Duration::from_secs(2);
/// How long to wait after a report failed.
const AGAIN: Duration = Duration::from_secs(10);

/// Keeps a server in a cluster. One that cannot be changed, or cannot be run as it should be, serves as it was if it is there,
/// and the health says why.
pub(super) async fn keep(cluster: Arc<Cluster>, state: watch::Sender<State>, health: Arc<Health>) {
    let (counted, counts) = watch::channel(State::Missing);
    let kept = async {
        let wrong = cluster.keep(&counted, |failed| health.refuse(failed.map(ToString::to_string))).await;
        tracing::error!(%wrong, "the server cannot be run as it is; correct its spec");
        cluster.watch(&counted).await;
    };
    tokio::select! {
        () = kept => {}
        () = cluster.explain(counts, &state) => {}
        () = report(&cluster, &health) => {}
    }
}

/// Reports for as long as it is polled. The name of a pod is its host's name; without one nothing can be reported.
async fn report(cluster: &Cluster, health: &Health) {
    let Ok(pod) = std::env::var("HOSTNAME") else { return std::future::pending().await };
    let mut reported = None;
    loop {
        // Subscribed to before it is looked at: whatever changes from now on is noticed.
        let changed = health.changed();
        let problem = health.problem();
        if reported.as_ref() == Some(&problem) {
            changed.await;
            continue;
        }
        if problem.is_some() && settles(health, problem.as_ref()).await.is_none() {
            continue;
        }
        let words = problem.as_ref().map(|(state, message)| (*state, message.as_str()));
        match cluster.report(&pod, words).await {
            Ok(Reported::Written) => reported = Some(problem),
            Ok(Reported::NoStatefulSet) => {
                let _changed_or_elapsed = tokio::time::timeout(AGAIN, changed).await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot report the state of the server on its StatefulSet");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Waits whether a problem lasts; nothing if it does not.
async fn settles(health: &Health, problem: Option<&(UpstreamState, String)>) -> Option<()> {
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
