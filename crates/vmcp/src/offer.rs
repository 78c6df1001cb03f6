//! What a backend offers, as far as it is known: the last good catalogue, refreshed in the background by one request at a time.
//!
//! | the catalogue | a request gets |
//! | --- | --- |
//! | is fresh | it |
//! | is older than it holds | it, and a refresh is started |
//! | was never there | the first one, if it arrives within a short time; else it goes on without |
//!
//! So a backend that is slow or broken delays the first lists after it appeared, and no others. What depends on the client is kept for each
//! client: of a backend that is called with a client's credentials, or with headers of the client.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use skep_upstream::{ClientContext, Upstream};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::backend::Backend;
use crate::catalogue::{Catalogue, FetchError, fetch};

/// For how long a catalogue holds that does not say so itself, and the longest that it may say.
const FRESH: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_hours(1);
/// How long the first catalogue of a backend is waited for.
const FIRST: Duration = Duration::from_secs(2);
/// How long after a failed refresh the next one may be started.
const RETRY: Duration = Duration::from_secs(5);
/// How many clients have a catalogue of their own, for each backend.
const CLIENTS: usize = 1024;

/// Whose catalogue it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Viewer {
    /// That of all clients.
    Anyone,
    /// That of one client, by a digest of who it is.
    Client([u8; 32]),
}

/// What a backend offers, to whom.
#[derive(Debug)]
pub struct Offers {
    upstream: Arc<dyn Upstream>,
    timeout: Duration,
    viewers: Mutex<BTreeMap<Viewer, Arc<Offer>>>,
    /// Counts changes of what is known, so that what is made of it is made anew.
    changes: watch::Sender<u64>,
}

/// What a backend offers to one viewer.
#[derive(Debug)]
pub struct Offer {
    known: watch::Sender<Known>,
    is_fetching: AtomicBool,
    since: Instant,
}

/// What is known of a catalogue.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The last good one.
    pub catalogue: Option<Arc<Catalogue>>,
    /// When it was asked for the last time, and what went wrong if that failed.
    pub outcome: Option<(Instant, Result<(), FetchError>)>,
}

// === impl Viewer ===

impl Viewer {
    /// The viewer that a client is, for a backend whose credentials are those of clients (`is_of_client`).
    pub fn of(client: &ClientContext, is_of_client: bool) -> Self {
        if client.headers.is_empty() && !is_of_client {
            return Self::Anyone;
        }
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        };
        if let Some(caller) = client.caller.as_ref().filter(|_| is_of_client) {
            add(caller.identity.issuer.as_bytes());
            add(caller.identity.subject.as_bytes());
        }
        for (name, value) in &client.headers {
            add(name.as_str().as_bytes());
            add(value.as_bytes());
        }
        Self::Client(digest.finalize().into())
    }
}

// === impl Offers ===

impl Offers {
    /// Nothing is known yet.
    pub(crate) fn new(upstream: Arc<dyn Upstream>, timeout: Duration) -> Self {
        Self { upstream, timeout, viewers: Mutex::default(), changes: watch::Sender::new(0) }
    }

    /// What changes of what is known to any viewer.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is offered to a viewer. A refresh is started if what is known is not fresh.
    pub fn to(&self, me: &Arc<Backend>, viewer: Viewer, client: &ClientContext) -> Arc<Offer> {
        let offer = self.with(|viewers| {
            if !viewers.contains_key(&viewer) {
                make_room(viewers);
            }
            viewers.entry(viewer).or_insert_with(Offer::new).clone()
        });
        if offer.is_due() {
            start_refresh(me, &offer, client);
        }
        offer
    }

    /// What was known is not fresh any more: the backend says that it changed. What all clients see is asked for at once, the rest when it is
    /// needed.
    pub(crate) fn expire_and_refresh(&self, me: &Arc<Backend>) {
        self.with(|viewers| {
            for offer in viewers.values() {
                // What waits for the first outcome is not woken by that.
                offer.known.send_if_modified(|known| {
                    known.outcome = None;
                    false
                });
            }
        });
        if !me.spec.strategy.is_of_client() {
            let _refreshed = self.to(me, Viewer::Anyone, &ClientContext::default());
        }
    }

    /// Takes the outcome of a fetch that was made for another reason.
    pub(crate) fn take(&self, viewer: Viewer, fetched: Result<Catalogue, FetchError>) {
        let offer = self.with(|viewers| viewers.entry(viewer).or_insert_with(Offer::new).clone());
        if offer.settle(fetched) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<Viewer, Arc<Offer>>) -> T) -> T {
        act(&mut self.viewers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Forgets the viewer that was asked for longest ago, if there are too many.
fn make_room(viewers: &mut BTreeMap<Viewer, Arc<Offer>>) {
    if viewers.len() < CLIENTS {
        return;
    }
    let oldest = viewers.iter().filter(|(viewer, _)| **viewer != Viewer::Anyone);
    let oldest = oldest.min_by_key(|(_, offer)| offer.asked()).map(|(viewer, _)| *viewer);
    if let Some(oldest) = oldest {
        viewers.remove(&oldest);
    }
}

/// Asks a backend what it offers, unless that is in progress.
pub(crate) fn start_refresh(backend: &Arc<Backend>, offer: &Arc<Offer>, client: &ClientContext) {
    if offer.is_fetching.swap(true, Ordering::AcqRel) {
        return;
    }
    let (backend, offer, client) = (backend.clone(), offer.clone(), client.clone());
    tokio::spawn(
        async move {
            let offers = &backend.offers;
            let fetched = fetch(&offers.upstream, &client, offers.timeout).await;
            if let Err(error) = &fetched {
                tracing::warn!(backend = &*backend.spec.name, %error, "listing a backend failed");
            }
            if offer.settle(fetched) {
                offers.changes.send_modify(|changes| *changes += 1);
            }
            offer.is_fetching.store(false, Ordering::Release);
        }
        .in_current_span(),
    );
}

// === impl Offer ===

impl Offer {
    fn new() -> Arc<Self> {
        let known = watch::Sender::new(Known::default());
        Arc::new(Self { known, is_fetching: AtomicBool::new(false), since: Instant::now() })
    }

    /// What is known now.
    pub fn known(&self) -> Known {
        self.known.borrow().clone()
    }

    /// What is known, once anything is: but the first catalogue is waited for only for a short time after the backend appeared.
    pub async fn first(&self) -> Known {
        let until = self.since + FIRST;
        let mut known = self.known.subscribe();
        let settled = known.wait_for(|known| known.outcome.is_some() || known.catalogue.is_some());
        let _late = tokio::time::timeout_at(until, settled).await;
        self.known()
    }

    fn is_due(&self) -> bool {
        let known = self.known.borrow();
        match &known.outcome {
            None => true,
            Some((at, Err(_))) => at.elapsed() >= RETRY,
            Some((at, Ok(()))) => {
                let lives = known.catalogue.as_ref().and_then(|catalogue| catalogue.time_to_live);
                at.elapsed() >= lives.filter(|lives| !lives.is_zero()).unwrap_or(FRESH).min(LONGEST)
            }
        }
    }

    fn asked(&self) -> Instant {
        self.known.borrow().outcome.as_ref().map_or(self.since, |(at, _)| *at)
    }

    /// Takes the outcome of a fetch. Says whether the catalogue changed.
    fn settle(&self, fetched: Result<Catalogue, FetchError>) -> bool {
        let mut is_changed = false;
        self.known.send_modify(|known| {
            let outcome = fetched.map(|fetched| {
                let fetched = match &known.catalogue {
                    Some(before) => fetched.completed(before),
                    None => fetched,
                };
                is_changed = known.catalogue.as_deref() != Some(&fetched);
                if is_changed {
                    known.catalogue = Some(Arc::new(fetched));
                }
            });
            known.outcome = Some((Instant::now(), outcome));
        });
        is_changed
    }
}
