//! The server behind the proxy: started or attached to, and watched.

use std::sync::Arc;
use std::time::Duration;

use skep_upstream::stdio::{Connect, ConnectionEvent};
use skep_workload::cluster::{Cluster, State};
use skep_workload::process::Process;
use skep_workload::server::Server;
use tokio::sync::{mpsc, watch};

use super::machine::supervise;
use super::report::keep;
use super::{Place, Tasks};
use crate::health::{Health, ServerHealth};

/// How long it may take to attach to a pod.
const ATTACHING: Duration = Duration::from_secs(45);

/// How a stdio server is connected to, and why it cannot be at present.
pub(super) fn connect(
    server: Server,
    place: Place,
    health: &Arc<Health>,
    tasks: &mut Tasks,
) -> (Connect, watch::Receiver<Option<String>>) {
    let (unavailable, outage) = watch::channel(None);
    let connect: Connect = match place {
        Place::Machine(_) => Box::new(move || {
            let started = Process::start(&server).map_err(|error| error.to_string());
            Box::pin(async move { started?.pipe().ok_or_else(|| "its streams are gone".to_owned()) })
        }),
        // INVARIANT: `start` refused it.
        Place::Pod { .. } => Box::new(|| Box::pin(std::future::ready(Err("a pod runs no host processes".to_owned())))),
        Place::Cluster { client, namespace, platform } => {
            let cluster = Arc::new(Cluster::new(client, namespace, platform, server));
            let (sender, state) = watch::channel(State::Missing);
            tasks.spawn(keep(cluster.clone(), sender, health.clone()));
            tasks.spawn(report_outage(state.clone(), unavailable));
            let health = health.clone();
            Box::new(move || {
                let (cluster, mut state, health) = (cluster.clone(), state.clone(), health.clone());
                Box::pin(async move {
                    loop {
                        let now = state.borrow_and_update().clone();
                        if now.serves() {
                            break;
                        }
                        if now != State::Missing {
                            health.set(known(&now));
                        }
                        let changed = state.changed().await;
                        changed.map_err(|_ended| "its StatefulSet is not reconciled any more".to_owned())?;
                    }
                    // A kubelet that never answers must not keep the next pod from being found.
                    match tokio::time::timeout(ATTACHING, cluster.attach()).await {
                        Ok(attached) => attached.map_err(|error| error.to_string()),
                        Err(_elapsed) => Err("its pod takes too long to be attached to".to_owned()),
                    }
                })
            })
        }
    };
    (connect, outage)
}

/// Tells clients' calls why a server in a cluster cannot be connected to, as long as that is known.
pub(super) async fn report_outage(mut state: watch::Receiver<State>, outage: watch::Sender<Option<String>>) {
    loop {
        let why = match known(&state.borrow_and_update()) {
            ServerHealth::Unavailable(why) => Some(why),
            _ => None,
        };
        outage.send_replace(why);
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// How a server in a cluster is, as its health has it.
pub(super) fn known(state: &State) -> ServerHealth {
    match state {
        State::Missing => ServerHealth::Starting("the server is being created".to_owned()),
        State::Stopped => ServerHealth::Unavailable("the server is scaled to zero".to_owned()),
        State::Failing(why) => ServerHealth::Unavailable(why.clone()),
        State::Starting { ready: 0, wanted } => {
            ServerHealth::Starting(format!("none of {wanted} pods of the server is ready"))
        }
        State::Starting { .. } | State::Ready => ServerHealth::Available { milliseconds: None },
    }
}

/// Runs a server that speaks HTTP. Returns how it is, where its cluster knows. `is_checked` says that health checks follow.
pub(super) fn run_server(
    server: Server,
    place: Place,
    is_checked: bool,
    health: &Arc<Health>,
    tasks: &mut Tasks,
) -> Option<watch::Receiver<State>> {
    match place {
        Place::Cluster { client, namespace, platform } => {
            let cluster = Arc::new(Cluster::new(client, namespace, platform, server));
            let (sender, state) = watch::channel(State::Missing);
            tasks.spawn(keep(cluster, sender, health.clone()));
            tasks.spawn(watch_pods(state.clone(), is_checked, health.clone()));
            Some(state)
        }
        Place::Machine(_) => {
            let ending = tasks.ending.subscribe();
            tasks.keep(supervise(server, health.clone(), ending));
            None
        }
        // INVARIANT: `start` refused it.
        Place::Pod { .. } => None,
    }
}

/// Keeps the health of a server that speaks HTTP, as far as its pods say. Pods that are ready say nothing about an answer: where
/// health checks are made, the server is starting until it passed one.
pub(super) async fn watch_pods(mut state: watch::Receiver<State>, is_checked: bool, health: Arc<Health>) {
    let mut was_serving = false;
    while state.changed().await.is_ok() {
        let now = state.borrow_and_update().clone();
        let is_serving = now.serves();
        if !is_serving || !is_checked {
            health.set(known(&now));
        } else if !was_serving {
            health.set(ServerHealth::Starting("the server has not answered a health check yet".to_owned()));
        }
        was_serving = is_serving;
    }
}

/// Keeps the health of a server on stdio. It is available once it answered `initialize`, and nothing less: a process that runs may
/// be a package that is still being fetched, or that does not exist.
pub(super) async fn watch_link(mut events: mpsc::Receiver<ConnectionEvent>, health: Arc<Health>) {
    while let Some(now) = events.recv().await {
        match now {
            // Why it failed before says more.
            ConnectionEvent::Connected if matches!(health.known(), ServerHealth::Unavailable(_)) => {}
            ConnectionEvent::Connected => {
                health.set(ServerHealth::Starting("the server has not answered `initialize` yet".to_owned()));
            }
            ConnectionEvent::Initialized => health.set(ServerHealth::Available { milliseconds: None }),
            ConnectionEvent::Lost(why) => health.set(ServerHealth::Unavailable(why)),
        }
    }
}
