//! Which version of each kind the API server serves, and so which one the operator reads and writes.
//!
//! A cluster may have definitions of another release: with an older version only, or without a kind at all. Discovery is asked at the
//! start, whenever a watch finds its kind gone, and every now and then while a kind is not served in the stored version.

use std::collections::{BTreeMap, BTreeSet};
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
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// How often discovery is repeated while a kind is not served in the stored version.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

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
    /// The best served version of each kind that is served in a version that the operator understands.
    pub versions: BTreeMap<KindName, &'static str>,
    /// A served version of each kind that is served in others only.
    pub unknown: BTreeMap<KindName, String>,
}

// === impl Found ===

impl Found {
    /// Whether a kind is served, in whatever version.
    pub fn has(&self, kind: KindName) -> bool {
        self.versions.contains_key(&kind) || self.unknown.contains_key(&kind)
    }
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
        let mut delay = FIRST_RETRY;
        loop {
            let is_complete = match discover(&client).await {
                Ok(now) => {
                    let is_complete = KindName::ALL.iter().all(|kind| now.versions.get(kind) == Some(&STORED_VERSION));
                    let (is_same, rounds) = {
                        let before = self.found.borrow();
                        (before.versions == now.versions && before.unknown == now.unknown, before.rounds + 1)
                    };
                    delay = if is_same { (delay * 2).min(LONGEST_RETRY) } else { FIRST_RETRY };
                    self.found.send_replace(Found { rounds, ..now });
                    is_complete
                }
                Err(error) => {
                    tracing::warn!(error = describe(&error), "discovery of served kinds failed");
                    delay = (delay * 2).min(LONGEST_RETRY);
                    false
                }
            };
            if is_complete {
                self.refresh.notified().await;
                tokio::time::sleep(FIRST_RETRY).await;
            } else {
                // A watch that finds its kind gone need not wait as long as a kind that was never there.
                let refreshed = async {
                    tokio::time::sleep(FIRST_RETRY).await;
                    self.refresh.notified().await;
                };
                let _either = tokio::time::timeout(delay, refreshed).await;
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

/// In which versions each kind is served now.
pub(crate) async fn discover(client: &Client) -> Result<Found, kube::Error> {
    let mut found = Found::default();
    for version in VERSIONS {
        let plurals = plurals(client, version).await?;
        for kind in KindName::ALL.iter().filter(|kind| plurals.contains(kind.plural())) {
            found.versions.entry(*kind).or_insert(version);
        }
    }
    // A release to come may serve a kind in versions that are not known here. Its objects are there all the same.
    if KindName::ALL.iter().any(|kind| !found.has(*kind)) {
        for version in versions(client).await? {
            let plurals = plurals(client, &version).await?;
            for kind in KindName::ALL.iter().filter(|kind| plurals.contains(kind.plural())) {
                if !found.has(*kind) {
                    found.unknown.insert(*kind, version.clone());
                }
            }
        }
    }
    Ok(found)
}

/// What is served in a version of our group.
async fn plurals(client: &Client, version: &str) -> Result<BTreeSet<String>, kube::Error> {
    match client.list_api_group_resources(&format!("{GROUP}/{version}")).await {
        Ok(listed) => Ok(listed.resources.into_iter().map(|resource| resource.name).collect()),
        // The API server answers in plain text here, so there is a code and no reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// The versions of our group that are not known here.
async fn versions(client: &Client) -> Result<Vec<String>, kube::Error> {
    let groups = client.list_api_groups().await?.groups;
    let served = groups.into_iter().filter(|group| group.name == GROUP).flat_map(|group| group.versions);
    Ok(served.map(|served| served.version).filter(|version| !VERSIONS.contains(&version.as_str())).collect())
}
