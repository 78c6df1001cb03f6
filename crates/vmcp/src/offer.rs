//! What a backend offers, as far as it is known: the last good catalogue, refreshed in the background by one request at a time.
//!
//! | the catalogue | a request gets |
//! | --- | --- |
//! | is fresh | it |
//! | is older than it holds | it, and a refresh is started |
//! | was never there | the first one, if it arrives within a short time; else it goes on without |
//! | was evicted, because there are too many | the same |
//!
//! So a backend that is slow or broken delays the first lists after it appeared, and no others. What depends on the client is kept for each
//! client: of a backend that is called with a client's credentials, or with headers of the client. Such catalogues are kept by content, once
//! for all clients that see the same, and within limits ([`Catalogues`]): a client may call itself something else in each request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use skep_upstream::{ClientContext, Upstream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::backend::Backend;
use crate::catalogue::{Bounded, Catalogue, Catalogues, Digest, FetchError, Limits, Owner, fetch, owner_of};

/// For how long a catalogue holds that does not say so itself, and the longest that it may say.
const FRESH: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_hours(1);
/// How long the first catalogue of a backend is waited for.
const FIRST: Duration = Duration::from_secs(2);
/// How long after a failed refresh the next one may be started.
const RETRY: Duration = Duration::from_secs(5);
/// How many clients have a catalogue of their own, for each backend, and how many one owner may seem to be.
const CLIENTS: Limits = Limits { total: 1024, per_owner: 512 };
/// How many catalogues of clients are fetched from a backend at once: each is in memory before it is known how long it is.
const FETCHES: usize = 8;

/// Whose catalogue it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    viewers: Mutex<Bounded<Viewer, Arc<Offer>>>,
    catalogues: Arc<Catalogues>,
    fetches: Semaphore,
    /// Counts changes of what is known, so that what is made of it is made anew.
    changes: watch::Sender<u64>,
}

/// What a backend offers to one viewer.
#[derive(Debug)]
pub struct Offer {
    state: watch::Sender<State>,
    catalogues: Arc<Catalogues>,
    /// Whose share its catalogue counts in.
    owner: Owner,
    is_fetching: AtomicBool,
    since: Instant,
}

/// What is known of a catalogue.
#[derive(Debug, Default)]
struct State {
    /// The last good one.
    last: Option<Last>,
    /// When it was asked for the last time, and what went wrong if that failed.
    outcome: Option<(Instant, Result<(), FetchError>)>,
}

/// The last good catalogue.
#[derive(Debug)]
struct Last {
    digest: Digest,
    /// The catalogue of all clients. Those of some are kept by content, and may be evicted.
    own: Option<Arc<Catalogue>>,
    /// For how long it says that it holds.
    time_to_live: Option<Duration>,
}

/// A catalogue, and what tells it from others.
#[derive(Clone, Debug)]
pub struct Offered {
    /// A digest of it.
    pub digest: [u8; 32],
    /// What is offered.
    pub catalogue: Arc<Catalogue>,
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
        let mut headers: Vec<_> =
            client.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        headers.sort_unstable();
        for (name, value) in headers {
            add(name.as_bytes());
            add(value);
        }
        Self::Client(digest.finalize().into())
    }
}

// === impl Offers ===

impl Offers {
    /// Nothing is known yet.
    pub(crate) fn new(upstream: Arc<dyn Upstream>, timeout: Duration) -> Self {
        Self::within(upstream, timeout, Catalogues::of_process())
    }

    fn within(upstream: Arc<dyn Upstream>, timeout: Duration, catalogues: Arc<Catalogues>) -> Self {
        let (viewers, fetches) = (Mutex::new(Bounded::new(CLIENTS)), Semaphore::new(FETCHES));
        Self { upstream, timeout, viewers, catalogues, fetches, changes: watch::Sender::new(0) }
    }

    /// What changes of what is known to any viewer.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is offered to a viewer. A refresh is started if what is known is not fresh.
    pub fn to(&self, me: &Arc<Backend>, viewer: Viewer, client: &ClientContext) -> Arc<Offer> {
        let offer = self.offer(viewer, client);
        if offer.is_due() {
            start_refresh(me, &offer, client);
        }
        offer
    }

    /// What is offered to a viewer, as far as it is known: nothing, if its catalogue was evicted.
    fn offer(&self, viewer: Viewer, client: &ClientContext) -> Arc<Offer> {
        self.with(|viewers| {
            if let Some(offer) = viewers.get(&viewer).filter(|offer| !offer.is_evicted()) {
                return offer.clone();
            }
            let owner = (viewer != Viewer::Anyone).then(|| owner_of(client));
            let offer = Offer::new(self.catalogues.clone(), owner.clone());
            viewers.insert(&viewer, offer.clone(), 1, owner);
            offer
        })
    }

    /// What was known is not fresh any more: the backend says that it changed. What all clients see is asked for at once, the rest when it is
    /// needed.
    pub(crate) fn expire_and_refresh(&self, me: &Arc<Backend>) {
        self.with(|viewers| {
            for offer in viewers.values() {
                // What waits for the first outcome is not woken by that.
                offer.state.send_if_modified(|state| {
                    state.outcome = None;
                    false
                });
            }
        });
        if !me.spec.strategy.is_of_client() {
            let _refreshed = self.to(me, Viewer::Anyone, &ClientContext::default());
        }
        // What the others see is asked for in their names, by those that listen.
        if self.with(|viewers| viewers.values().any(|offer| offer.owner.is_some())) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// The same for what one viewer sees, which is asked for at once in its name.
    pub(crate) fn expire_and_refresh_for(&self, me: &Arc<Backend>, viewer: Viewer, client: &ClientContext) {
        let offer = self.offer(viewer, client);
        offer.state.send_if_modified(|state| {
            state.outcome = None;
            false
        });
        start_refresh(me, &offer, client);
    }

    /// Whether it is known what is offered to all clients.
    pub(crate) fn is_known_to_anyone(&self) -> bool {
        let offer = self.with(|viewers| viewers.get(&Viewer::Anyone).cloned());
        offer.is_some_and(|offer| offer.known().is_some())
    }

    /// Takes the outcome of a fetch that was made for another reason.
    pub(crate) fn take(&self, viewer: Viewer, fetched: Result<Catalogue, FetchError>) {
        let offer = self.offer(viewer, &ClientContext::default());
        if offer.settle(fetched) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Bounded<Viewer, Arc<Offer>>) -> T) -> T {
        act(&mut self.viewers.lock().unwrap_or_else(PoisonError::into_inner))
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
            let permit = match &offer.owner {
                Some(_) => offers.fetches.acquire().await.ok(),
                None => None,
            };
            let fetched = fetch(&offers.upstream, &client, offers.timeout).await;
            if let Err(error) = &fetched {
                tracing::warn!(backend = &*backend.spec.name, %error, "listing a backend failed");
            }
            if offer.settle(fetched) {
                offers.changes.send_modify(|changes| *changes += 1);
            }
            offer.is_fetching.store(false, Ordering::Release);
            drop(permit);
        }
        .in_current_span(),
    );
}

// === impl Offer ===

impl Offer {
    fn new(catalogues: Arc<Catalogues>, owner: Owner) -> Arc<Self> {
        let state = watch::Sender::default();
        Arc::new(Self { state, catalogues, owner, is_fetching: AtomicBool::new(false), since: Instant::now() })
    }

    /// The last good catalogue, if it is still kept.
    pub fn known(&self) -> Option<Offered> {
        let state = self.state.borrow();
        let last = state.last.as_ref()?;
        let catalogue = last.own.clone().or_else(|| self.catalogues.find(&last.digest))?;
        Some(Offered { digest: last.digest, catalogue })
    }

    /// What is known, once anything is: but the first catalogue is waited for only for a short time after the backend appeared.
    pub async fn first(&self) -> Option<Offered> {
        let until = self.since + FIRST;
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| state.outcome.is_some() || state.last.is_some());
        let _late = tokio::time::timeout_at(until, settled).await;
        self.known()
    }

    /// Whether there was a catalogue that is not kept any more.
    fn is_evicted(&self) -> bool {
        self.state.borrow().last.is_some() && self.known().is_none()
    }

    fn is_due(&self) -> bool {
        let state = self.state.borrow();
        match &state.outcome {
            None => true,
            Some((at, Err(_))) => at.elapsed() >= RETRY,
            Some((at, Ok(()))) => {
                let lives = state.last.as_ref().and_then(|last| last.time_to_live);
                at.elapsed() >= lives.filter(|lives| !lives.is_zero()).unwrap_or(FRESH).min(LONGEST)
            }
        }
    }

    /// Takes the outcome of a fetch. Says whether the catalogue changed.
    fn settle(&self, fetched: Result<Catalogue, FetchError>) -> bool {
        let before = self.known();
        // A list that could not be fetched stays as it was.
        let complete = |fetched: Catalogue| match &before {
            Some(before) => fetched.completed(&before.catalogue),
            None => fetched,
        };
        let fetched = fetched.map(complete).map(|fetched| (fetched.digest(), fetched));
        let mut is_changed = false;
        self.state.send_modify(|state| {
            let outcome = fetched.map(|(digest, fetched)| {
                is_changed = state.last.as_ref().is_none_or(|last| last.digest != digest);
                let time_to_live = fetched.time_to_live;
                let own = match &self.owner {
                    Some(owner) => {
                        self.catalogues.keep(digest, fetched, Some(owner.clone()));
                        None
                    }
                    None => match state.last.take() {
                        Some(last) if !is_changed => last.own,
                        Some(_) | None => Some(Arc::new(fetched)),
                    },
                };
                state.last = Some(Last { digest, own, time_to_live });
            });
            state.outcome = Some((Instant::now(), outcome));
        });
        is_changed
    }
}

#[cfg(test)]
mod tests;
