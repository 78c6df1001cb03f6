//! Finding backends in a cluster: the members of a group in one namespace, followed for as long as the virtual server runs.
//!
//! ```text
//!   watches: group, members, their configs ─┐
//!   watches: versions of Secrets, ConfigMaps ┴▶ Seen ─▶ plan::virtual_server (pure) ─▶ Materials: the keys that are needed
//!                                                            └──────────────┬──────────────────┘
//!                                                                           ▼
//!                                                 BackendSpecs, or why one is left out ─▶ Backends::apply
//! ```
//!
//! A member that joins, changes or leaves restarts nothing: the others keep their connections and sessions, and clients are told that the lists
//! changed. It fails closed: a member whose credentials, headers or certificate authorities cannot be resolved is left out, and never called
//! without them. Values of Secrets are read only where a member names them.

mod materials;
mod object;
mod resolve;
mod seen;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use skep_net::Addresses;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use self::materials::Materials;
pub(crate) use self::object::{Watched, resource_of};
use self::resolve::Resolver;
use self::seen::Seen;
use crate::backends::Backends;
use crate::config::Config;

/// Changes that follow each other within this time are resolved once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long after a Secret or a ConfigMap could not be read it is read again.
const RETRY: Duration = Duration::from_secs(5);

/// Where backends are found.
#[derive(Clone)]
pub struct Cluster {
    /// The client of the API server.
    pub client: Client,
    /// The namespace of the virtual server.
    pub namespace: String,
    /// The name of its VirtualMCPServer, whose status it reports to. Nothing where there is none.
    pub name: Option<String>,
}

/// Follows the members of a group until it is dropped.
#[derive(Debug)]
pub struct Discovery {
    /// Whether all that there is to find was seen once.
    pub is_synced: Arc<AtomicBool>,
    /// Ends with this.
    _tasks: JoinSet<()>,
}

/// What is followed, and what is made of it.
struct Follower {
    client: Client,
    seen: Arc<Seen>,
    materials: Materials,
    resolver: Resolver,
    backends: Arc<Backends>,
    is_synced: Arc<AtomicBool>,
    /// What was logged of members that are left out, so that it is logged once.
    reported: BTreeSet<(String, String)>,
}

// === impl Cluster ===

impl std::fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { client: _, namespace, name } = self;
        formatter.debug_struct("Cluster").field("namespace", namespace).field("name", name).finish_non_exhaustive()
    }
}

// === impl Discovery ===

impl Discovery {
    /// Begins to follow the group of a virtual server. Nothing is waited for.
    pub fn start(
        cluster: &Cluster,
        config: Config,
        environment: BTreeMap<String, String>,
        addresses: Addresses,
        backends: Arc<Backends>,
    ) -> Self {
        let seen = Arc::new(Seen::default());
        let is_synced = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        watch::spawn(&mut tasks, cluster, config.group(), &seen);
        let follower = Follower {
            client: cluster.client.clone(),
            seen,
            materials: Materials::default(),
            resolver: Resolver::new(config, environment, addresses, cluster.namespace.clone()),
            backends,
            is_synced: is_synced.clone(),
            reported: BTreeSet::new(),
        };
        tasks.spawn(follower.follow().in_current_span());
        Self { is_synced, _tasks: tasks }
    }
}

// === impl Follower ===

impl Follower {
    async fn follow(mut self) {
        let mut changes = self.seen.changes();
        loop {
            changes.borrow_and_update();
            let again = match self.resolve().await {
                Ok(()) => None,
                Err(error) => {
                    tracing::warn!(%error, "reading what backends are called with failed");
                    Some(RETRY)
                }
            };
            let retry = async {
                match again {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                outcome = changes.changed() => if outcome.is_err() {
                    return;
                },
                () = retry => {}
            }
            tokio::time::sleep(DEBOUNCE).await;
        }
    }

    /// Makes the members that are known the backends, once all kinds were listed.
    async fn resolve(&mut self) -> Result<(), kube::Error> {
        let Some((found, versions)) = self.seen.complete() else { return Ok(()) };
        let needed = self.resolver.materials(&found);
        self.materials.read(&self.client, needed, &versions).await?;
        let (specs, left_out) = self.resolver.backends(found, &self.materials);
        let failed = self.backends.apply(specs);
        let left_out = left_out.into_iter().chain(failed).map(|one| (one.name.to_string(), one.reason));
        let left_out: BTreeSet<(String, String)> = left_out.collect();
        for (backend, reason) in left_out.difference(&self.reported) {
            tracing::warn!(backend, reason, "backend left out");
        }
        self.reported = left_out;
        self.is_synced.store(true, Ordering::Release);
        Ok(())
    }
}
