//! Which version of each kind the API server serves, and so which one the operator reads and writes.
//!
//! A cluster may have definitions of another release: with an older version only, or without a kind at all. Discovery is asked at the
//! start, whenever a watch finds its kind gone, and every now and then while a kind is not served in the stored version.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use skep_api::crd::{GROUP, OLDER_VERSION, STORED_VERSION};
use skep_api::resource::KindName;
use tokio::sync::{Notify, watch as signal};

use crate::failure::describe;

/// The versions that the operator understands, the best first.
pub const VERSIONS: [&str; 2] = [STORED_VERSION, OLDER_VERSION];
/// The shortest time between two discoveries.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How often discovery is repeated while a kind is not served in the stored version.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The served version of every kind, kept up to date by [`Served::keep`].
#[derive(Debug)]
pub struct Served {
    found: signal::Sender<Found>,
    refresh: Notify,
}

/// What discovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How often discovery has succeeded.
    pub rounds: u64,
    /// The best served version of each kind that is served.
    pub versions: BTreeMap<KindName, &'static str>,
}

// === impl Served ===

impl Served {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self { found: signal::Sender::new(Found::default()), refresh: Notify::new() }
    }

    /// The version in which a kind is read and written; the stored one for a kind of which nothing is known.
    pub fn version(&self, kind: KindName) -> &'static str {
        self.found.borrow().versions.get(&kind).copied().unwrap_or(STORED_VERSION)
    }

    /// What discovery found, and every change of it.
    pub fn subscribe(&self) -> signal::Receiver<Found> {
        self.found.subscribe()
    }

    /// Asks for a discovery, soon.
    pub fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// Keeps it up to date. Never ends.
    pub async fn keep(&self, client: Client) {
        let mut pause = FIRST_PAUSE;
        loop {
            let is_complete = match discover(&client).await {
                Ok(versions) => {
                    let is_complete = KindName::ALL.iter().all(|kind| versions.get(kind) == Some(&STORED_VERSION));
                    let is_same = self.found.borrow().versions == versions;
                    pause = if is_same { (pause * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
                    self.found.send_modify(|found| *found = Found { rounds: found.rounds + 1, versions });
                    is_complete
                }
                Err(error) => {
                    tracing::warn!(error = describe(&error), "discovery of served kinds failed");
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    false
                }
            };
            if is_complete {
                self.refresh.notified().await;
                tokio::time::sleep(FIRST_PAUSE).await;
            } else {
                // A watch that finds its kind gone need not wait as long as a kind that was never there.
                let refreshed = async {
                    tokio::time::sleep(FIRST_PAUSE).await;
                    self.refresh.notified().await;
                };
                let _either = tokio::time::timeout(pause, refreshed).await;
            }
        }
    }
}

impl Default for Served {
    fn default() -> Self {
        Self::new()
    }
}

/// How kube addresses a kind of ours in a version.
pub fn resource_in(kind: KindName, version: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, version, kind.as_str()), kind.plural())
}

/// The best version in which each kind is served.
async fn discover(client: &Client) -> Result<BTreeMap<KindName, &'static str>, kube::Error> {
    let mut versions = BTreeMap::new();
    for version in VERSIONS {
        let listed = match client.list_api_group_resources(&format!("{GROUP}/{version}")).await {
            Ok(listed) => listed.resources,
            // The API server answers in plain text here, so there is a code and no reason.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error),
        };
        for kind in KindName::ALL {
            if listed.iter().any(|resource| resource.name == kind.plural()) {
                versions.entry(*kind).or_insert(version);
            }
        }
    }
    Ok(versions)
}
