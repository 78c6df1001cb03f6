//! What a backend offers to one viewer, and the fetch of it that is in flight.

use std::sync::Arc;
use std::time::Duration;

use skep_upstream::CallError;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::catalogue::{Catalogue, Catalogues, Digest, FetchError, Owner};

/// For how long a catalogue holds that does not say so itself.
const FRESH: Duration = Duration::from_secs(30);
/// The shortest and the longest that it may say. With 0, each list that is requested starts a refresh, but not more than one a second.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_hours(1);
/// How long the first catalogue of a backend is waited for.
const FIRST: Duration = Duration::from_secs(2);
/// How long after a failed refresh the next one may be started.
const RETRY: Duration = Duration::from_secs(5);
/// How soon a catalogue is checked again that is being fetched: a fetch that finds no change wakes nothing.
const IN_FLIGHT: Duration = Duration::from_secs(1);

/// What a catalogue is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogueUse {
    /// A client lists what there is.
    List,
    /// A client names something. That is found in an older catalogue as well, so a backend whose lists hold for no time is not asked for them
    /// with each call.
    Call,
}

/// What a backend offers to one viewer.
#[derive(Debug)]
pub struct Offer {
    state: watch::Sender<State>,
    catalogues: Arc<Catalogues>,
    /// Whose share its catalogue counts in.
    owner: Owner,
    since: Instant,
    /// Whether its backend was there long before.
    is_late: bool,
}

/// What is known of a catalogue.
#[derive(Debug, Default)]
struct State {
    /// The last good one.
    last: Option<Last>,
    /// When it was asked for the last time, and what went wrong if that failed.
    outcome: Option<(Instant, Result<(), FetchError>)>,
    /// Whether the backend said since then that it changed.
    is_expired: bool,
    /// How often it said so.
    changes: u64,
    /// Whether a fetch is in flight.
    is_fetching: bool,
    /// How many fetches ended.
    ended: u64,
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

/// The one fetch of an offer that is in flight. One that is dropped has failed.
#[derive(Debug)]
pub(super) struct Flight {
    offer: Arc<Offer>,
    /// How often the backend had said that it changed when this began.
    changes: u64,
    is_over: bool,
}

/// What a fetch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// The catalogue is another one now.
    pub(super) is_changed: bool,
    /// The backend said meanwhile that it changed: the flight goes on.
    pub(super) is_overtaken: bool,
}

// === impl Offer ===

impl Offer {
    /// Nothing is known yet of a backend that appeared at this time.
    pub(super) fn new(catalogues: Arc<Catalogues>, owner: Owner, appeared: Instant) -> Arc<Self> {
        let is_late = appeared.elapsed() >= FIRST;
        Arc::new(Self { state: watch::Sender::default(), catalogues, owner, since: Instant::now(), is_late })
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
        let mut state = self.state.subscribe();
        let settled = state.wait_for(State::is_settled);
        let _late = tokio::time::timeout_at(self.since + FIRST, settled).await;
        self.known()
    }

    /// Whether the first catalogue is still worth waiting for.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.state.borrow().is_settled() && self.since.elapsed() < FIRST
    }

    /// Whether its backend did not appear just now: it is another client's that is new, or one that was evicted.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Whether there was a catalogue that is not kept any more.
    pub(super) fn is_evicted(&self) -> bool {
        self.state.borrow().last.is_some() && self.known().is_none()
    }

    pub(super) fn is_due(&self, purpose: CatalogueUse) -> bool {
        self.due(purpose, Instant::now()).is_none_or(|due| due <= Instant::now())
    }

    /// When this is to be checked again for a purpose.
    pub(crate) fn next_due(&self, purpose: CatalogueUse, now: Instant) -> Instant {
        self.due(purpose, now).unwrap_or(now)
    }

    /// When a refresh is due. Nothing if it is due whatever the time.
    fn due(&self, purpose: CatalogueUse, now: Instant) -> Option<Instant> {
        let state = self.state.borrow();
        if state.is_fetching {
            return Some(now + IN_FLIGHT);
        }
        let (at, outcome) = state.outcome.as_ref().filter(|_| !state.is_expired)?;
        let holds = if outcome.is_ok() {
            let said = state.last.as_ref().and_then(|last| last.time_to_live).unwrap_or(FRESH);
            let shortest = if purpose == CatalogueUse::List { SHORTEST } else { FRESH };
            said.clamp(shortest, LONGEST)
        } else {
            RETRY
        };
        Some(*at + holds)
    }

    /// The backend says that it changed. A fetch in flight may have begun before that.
    pub(super) fn expire(&self) {
        self.quietly(|state| {
            state.changes += 1;
            state.is_expired = true;
        });
    }

    /// Takes what another configuration of the same backend offered. It is not fresh.
    pub(super) fn inherit(&self, before: &Offered) {
        let last = Last { digest: before.digest, own: Some(before.catalogue.clone()), time_to_live: None };
        self.quietly(|state| state.last = Some(last));
    }

    /// Begins a fetch, unless there is one in flight. Returns how many have ended so far as well.
    pub(super) fn begin(self: &Arc<Self>) -> (Option<Flight>, u64) {
        let (mut ended, mut flight) = (0, None);
        self.quietly(|state| {
            ended = state.ended;
            if !std::mem::replace(&mut state.is_fetching, true) {
                flight = Some(Flight { offer: self.clone(), changes: state.changes, is_over: false });
            }
        });
        (flight, ended)
    }

    /// The outcome of the first fetch that ends after so many others.
    pub(super) async fn outcome_after(&self, ended: u64, timeout: Duration) -> Result<(), FetchError> {
        let mut state = self.state.subscribe();
        let outcome = async {
            let state = state.wait_for(|state| state.ended > ended).await.ok()?;
            state.outcome.as_ref().map(|(_, outcome)| outcome.clone())
        };
        let timed_out = FetchError::Call(CallError::Timeout);
        tokio::time::timeout(timeout, outcome).await.ok().flatten().unwrap_or(Err(timed_out))
    }

    /// Keeps a catalogue. Says whether it is another one than before.
    fn keep(&self, state: &mut State, digest: Digest, catalogue: Catalogue) -> bool {
        let is_changed = state.last.as_ref().is_none_or(|last| last.digest != digest);
        let time_to_live = catalogue.time_to_live;
        let own = match &self.owner {
            Some(owner) => {
                self.catalogues.keep(digest, catalogue, Some(owner.clone()));
                None
            }
            None => match state.last.take() {
                Some(last) if !is_changed => last.own,
                Some(_) | None => Some(Arc::new(catalogue)),
            },
        };
        state.last = Some(Last { digest, own, time_to_live });
        is_changed
    }

    /// Changes what is known without waking what waits for an outcome.
    fn quietly(&self, change: impl FnOnce(&mut State)) {
        self.state.send_if_modified(|state| {
            change(state);
            false
        });
    }
}

// === impl State ===

impl State {
    /// Whether there is no more to wait for: a catalogue, or a fetch that failed.
    fn is_settled(&self) -> bool {
        self.outcome.is_some() || self.last.is_some()
    }

    fn end_fetch(&mut self, outcome: Result<(), FetchError>) {
        self.outcome = Some((Instant::now(), outcome));
        self.ended += 1;
    }
}

// === impl Flight ===

impl Flight {
    /// Whether it is made in the name of a client.
    pub(super) fn is_of_client(&self) -> bool {
        self.offer.owner.is_some()
    }

    /// Whether the fetch before failed with the same error.
    pub(super) fn failed_alike(&self, error: &FetchError) -> bool {
        let state = self.offer.state.borrow();
        state.outcome.as_ref().is_some_and(|(_, outcome)| outcome.as_ref().is_err_and(|before| before == error))
    }

    /// The next fetch of the same flight begins.
    pub(super) fn renew(&mut self) {
        self.changes = self.offer.state.borrow().changes;
    }

    /// Takes the outcome of a fetch. One that a change overtook is taken too, and does not count as fresh.
    pub(super) fn settle(&mut self, fetched: Result<Catalogue, FetchError>) -> Settled {
        let before = self.offer.known();
        // A list that could not be fetched stays as it was.
        let complete = |fetched: Catalogue| match &before {
            Some(before) => fetched.completed(&before.catalogue),
            None => fetched,
        };
        let fetched = fetched.map(complete).map(|fetched| (fetched.digest(), fetched));
        let mut settled = Settled { is_changed: false, is_overtaken: false };
        self.offer.state.send_modify(|state| {
            settled.is_overtaken = fetched.is_ok() && state.changes != self.changes;
            let outcome = fetched.map(|(digest, fetched)| {
                settled.is_changed = self.offer.keep(state, digest, fetched);
            });
            state.end_fetch(outcome);
            state.is_expired = settled.is_overtaken;
            state.is_fetching = settled.is_overtaken;
        });
        self.is_over = !settled.is_overtaken;
        settled
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.offer.state.send_modify(|state| {
            state.is_fetching = false;
            state.end_fetch(Err(FetchError::Call(CallError::Cancelled)));
        });
    }
}
