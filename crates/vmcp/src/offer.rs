//! What a backend offers, as far as it is known: the last good catalogue, refreshed in the background by one request at a time.
//!
//! | the catalogue | a request gets |
//! | --- | --- |
//! | is fresh | it |
//! | is older than it holds | it, and a refresh is started |
//! | was never there | nothing; see [`Views`](crate::view::Views) for what waits for it |
//! | was evicted, because there are too many | the same |
//!
//! Whatever the refresh is for, a health check among them, there is one at a time, so none overwrites a newer catalogue with an older one. One
//! that began before the backend said that its lists changed is repeated.
//!
//! What depends on the client is kept for each client: of a backend that is called with a client's credentials, or with headers of the client.
//! So a list that is `private` (`cacheScope`) is never one client's that another one gets: what all clients share was requested with the
//! credentials of the virtual server, and without anything of a client. Such catalogues are kept by content, once for all clients that see the
//! same, and within limits ([`Catalogues`]): a client may call itself something else in each request.

mod known;

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use skep_upstream::{ClientContext, Upstream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

pub use self::known::{CatalogueUse, Offer, Offered};
use self::known::{Flight, Settled};
use crate::backend::Backend;
use crate::catalogue::{Bounded, Catalogues, FetchError, Limits, fetch, owner_of};

/// How long after a fetch that a change overtook the next one begins, from the second one on: a backend may report changes without end.
const OVERTAKEN: Duration = Duration::from_secs(1);
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
    /// What counts the changes of all backends, once this is one of them.
    all: OnceLock<Weak<watch::Sender<u64>>>,
    since: Instant,
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
        let (changes, all) = (watch::Sender::new(0), OnceLock::new());
        Self { upstream, timeout, viewers, catalogues, fetches, changes, all, since: Instant::now() }
    }

    /// What changes of what is known to any viewer.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Changes count in this as well from now on.
    pub(crate) fn count_in(&self, all: Weak<watch::Sender<u64>>) {
        // A backend is one of one virtual server.
        let _counted_before = self.all.set(all);
    }

    /// What is offered to a viewer. A refresh is started if what is known is not fresh enough.
    pub fn to(&self, me: &Arc<Backend>, viewer: Viewer, client: &ClientContext, purpose: CatalogueUse) -> Arc<Offer> {
        let offer = self.offer(viewer, client);
        if offer.is_due(purpose) {
            start_refresh(me, &offer, client);
        }
        offer
    }

    /// The last good catalogue of a viewer, or else that of all clients, without any request.
    pub(crate) fn known(&self, viewer: Viewer) -> Option<Offered> {
        let known = |viewer| self.with(|viewers| viewers.get(&viewer).cloned())?.known();
        known(viewer).or_else(|| known(Viewer::Anyone))
    }

    /// What is offered to a viewer, as far as it is known: nothing, if its catalogue was evicted.
    fn offer(&self, viewer: Viewer, client: &ClientContext) -> Arc<Offer> {
        self.with(|viewers| {
            if let Some(offer) = viewers.get(&viewer).filter(|offer| !offer.is_evicted()) {
                return offer.clone();
            }
            let owner = (viewer != Viewer::Anyone).then(|| owner_of(client));
            let offer = Offer::new(self.catalogues.clone(), owner.clone(), self.since);
            viewers.insert(&viewer, offer.clone(), 1, owner);
            offer
        })
    }

    /// What was known is not fresh any more: the backend says that it changed. What all clients see is asked for at once, the rest when it is
    /// needed.
    pub(crate) fn expire_and_refresh(&self, me: &Arc<Backend>) {
        self.with(|viewers| viewers.values().for_each(|offer| offer.expire()));
        if !me.spec.strategy.is_of_client() {
            let _refreshed = self.to(me, Viewer::Anyone, &ClientContext::default(), CatalogueUse::List);
        }
        // Clients that listen have their own refreshed.
        self.notify_all();
    }

    /// Asks the backend what it offers to all clients, unless that is in progress, and waits for the outcome.
    pub(crate) async fn check(&self, me: &Arc<Backend>, timeout: Duration) -> Result<(), FetchError> {
        let client = ClientContext::default();
        let offer = self.offer(Viewer::Anyone, &client);
        let ended = start_refresh(me, &offer, &client);
        offer.outcome_after(ended, timeout).await
    }

    /// Begins with what another configuration of the same backend offered to all clients, until it is listed anew.
    pub(crate) fn inherit(&self, before: &Self) {
        let offer = self.offer(Viewer::Anyone, &ClientContext::default());
        if let Some(known) = before.known(Viewer::Anyone) {
            offer.inherit(&known);
        }
    }

    /// The same for what one viewer sees, which is asked for at once in its name.
    pub(crate) fn expire_and_refresh_for(&self, me: &Arc<Backend>, viewer: Viewer, client: &ClientContext) {
        let offer = self.offer(viewer, client);
        offer.expire();
        let _ended = start_refresh(me, &offer, client);
    }

    /// Whether it is known what is offered to all clients.
    pub(crate) fn is_known_to_anyone(&self) -> bool {
        let offer = self.with(|viewers| viewers.get(&Viewer::Anyone).cloned());
        offer.is_some_and(|offer| offer.known().is_some())
    }

    #[cfg(test)]
    pub(crate) fn take(&self, viewer: Viewer, catalogue: crate::catalogue::Catalogue) {
        let offer = self.offer(viewer, &ClientContext::default());
        if let (Some(mut flight), _) = offer.begin() {
            flight.settle(Ok(catalogue));
        }
        self.notify();
    }

    /// What is known to some viewer changed.
    fn notify(&self) {
        self.changes.send_modify(|changes| *changes += 1);
        self.notify_all();
    }

    fn notify_all(&self) {
        if let Some(all) = self.all.get().and_then(Weak::upgrade) {
            all.send_modify(|changes| *changes += 1);
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Bounded<Viewer, Arc<Offer>>) -> T) -> T {
        act(&mut self.viewers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Asks a backend what it offers, unless that is in progress. Returns how many fetches had ended by then.
fn start_refresh(backend: &Arc<Backend>, offer: &Arc<Offer>, client: &ClientContext) -> u64 {
    let (flight, ended) = offer.begin();
    if let Some(flight) = flight {
        tokio::spawn(refresh(backend.clone(), flight, client.clone()).in_current_span());
    }
    ended
}

/// Fetches until no change has overtaken the fetch.
async fn refresh(backend: Arc<Backend>, mut flight: Flight, client: ClientContext) {
    let offers = &backend.offers;
    let mut pause = Duration::ZERO;
    loop {
        let permit = if flight.is_of_client() { offers.fetches.acquire().await.ok() } else { None };
        let fetched = fetch(&offers.upstream, &client, offers.timeout).await;
        drop(permit);
        if let Err(error) = &fetched {
            // One that stays away is reported once.
            if flight.failed_alike(error) {
                tracing::debug!(backend = &*backend.spec.name, %error, "listing a backend failed again");
            } else {
                tracing::warn!(backend = &*backend.spec.name, %error, "listing a backend failed");
            }
        }
        let Settled { is_changed, is_overtaken } = flight.settle(fetched);
        if is_changed {
            offers.notify();
        }
        if !is_overtaken {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = OVERTAKEN;
        flight.renew();
    }
}

#[cfg(test)]
mod tests;
