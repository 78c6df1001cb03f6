//! Which sessions of the bridge are shared, by which clients, and which one is closed when there are too many.
//!
//! A client that sends another header with each request has another place each time. So places have owners, the identity and the network
//! of the client: an owner that reaches its share loses the place of its own that was unused for longest, and no other owner loses one for
//! it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};
use skep_mcp::bridge::ModernClient;
use tokio::sync::OnceCell;

use super::capabilities::Capabilities;
use super::servers::ServerSession;
use crate::kept_client::is_telling;
use crate::upstream::ClientContext;

/// How many sessions are shared at once.
const TOTAL: usize = 1000;
/// How many of them one network may have, and how many one identity: the same parts as of the sessions of clients.
const PER_PEER: usize = TOTAL / 2;
const PER_IDENTITY: usize = PER_PEER / 4;

/// The place of a session: opened by the first call that needs it, while others wait.
pub(super) type Cell = Arc<OnceCell<Arc<ServerSession>>>;

/// All that are shared.
#[derive(Debug, Default)]
pub(super) struct SharedSessions(Mutex<Table>);

#[derive(Debug, Default)]
pub(super) struct Table {
    places: HashMap<Key, Place>,
    is_swept: bool,
}

#[derive(Debug)]
struct Place {
    cell: Cell,
    /// The network of the client that it was made for.
    peer: Option<IpAddr>,
}

/// Who may share a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Issuer and subject, if the client was authenticated.
    identity: Option<(Arc<str>, Arc<str>)>,
    capabilities: Capabilities,
    /// A digest of the headers that say who the client is to the server.
    headers: [u8; 32],
}

/// Which share is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Identity,
    Peer,
    Total,
}

// === impl SharedSessions ===

impl SharedSessions {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Table ===

impl Table {
    /// The place of a session, and the sessions that made room for it. No place if all that could are in use.
    pub(super) fn place(&mut self, key: &Key, peer: Option<IpAddr>) -> (Option<Cell>, Vec<Arc<ServerSession>>) {
        if let Some(place) = self.places.get(key) {
            return (Some(place.cell.clone()), Vec::new());
        }
        let mut evicted = Vec::new();
        while let Some(full) = self.full_for(key, peer) {
            let is_of_share = |other: &Key, place: &Place| match full {
                Full::Identity => other.identity == key.identity,
                Full::Peer => place.peer == peer,
                Full::Total => true,
            };
            let Some(session) = self.evict(is_of_share) else { return (None, evicted) };
            evicted.push(session);
        }
        let cell = Cell::default();
        self.places.insert(key.clone(), Place { cell: cell.clone(), peer });
        (Some(cell), evicted)
    }

    /// The share that has no room for one more place.
    fn full_for(&self, key: &Key, peer: Option<IpAddr>) -> Option<Full> {
        let of_identity = || self.places.keys().filter(|other| other.identity == key.identity).count();
        if key.identity.is_some() && of_identity() >= PER_IDENTITY {
            Some(Full::Identity)
        } else if peer.is_some() && self.count_of(peer) >= PER_PEER {
            Some(Full::Peer)
        } else {
            (self.places.len() >= TOTAL).then_some(Full::Total)
        }
    }

    /// Takes out the session of a network that was unused for longest.
    pub(super) fn take_unused(&mut self, peer: Option<IpAddr>) -> Option<Arc<ServerSession>> {
        self.evict(|_, place| place.peer == peer)
    }

    /// Takes out the session of a share that was unused for longest. Of several networks, one of that with the most.
    fn evict(&mut self, is_of_share: impl Fn(&Key, &Place) -> bool) -> Option<Arc<ServerSession>> {
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for place in self.places.values() {
            *counts.entry(place.peer).or_default() += 1;
        }
        let count = |place: &Place| counts.get(&place.peer).copied().unwrap_or_default();
        let unused = self.places.iter().filter(|(other, place)| is_of_share(other, place));
        let unused = unused.filter_map(|(other, place)| Some((other, place, place.cell.get()?)));
        let unused = unused.filter(|(_, place, session)| session.is_unused() && Arc::strong_count(&place.cell) == 1);
        let oldest = unused.min_by_key(|(_, place, session)| (std::cmp::Reverse(count(place)), session.used()));
        let (oldest, session) = oldest.map(|(other, _, session)| (other.clone(), session.clone()))?;
        self.places.remove(&oldest);
        Some(session)
    }

    fn count_of(&self, peer: Option<IpAddr>) -> usize {
        self.places.values().filter(|place| place.peer == peer).count()
    }

    /// Gives up the place of a session that could not be opened, unless another call is about to.
    pub(super) fn forget(&mut self, key: &Key, cell: &Cell) {
        let is_same = self.places.get(key).is_some_and(|known| Arc::ptr_eq(&known.cell, cell));
        // The table has one, and the caller.
        if is_same && !cell.initialized() && Arc::strong_count(cell) <= 2 {
            self.places.remove(key);
        }
    }

    /// Says that the table is swept from now on, and whether it was already.
    pub(super) fn start_sweeping(&mut self) -> bool {
        std::mem::replace(&mut self.is_swept, true)
    }

    /// Takes out those that were not used for so long, and says whether none is left.
    pub(super) fn take_idle(&mut self, time: Duration) -> (Vec<Arc<ServerSession>>, bool) {
        let is_idle = |place: &mut Place| match place.cell.get() {
            // The table has the only one.
            Some(session) => {
                session.is_unused() && Arc::strong_count(&place.cell) == 1 && session.used().elapsed() >= time
            }
            None => Arc::strong_count(&place.cell) == 1,
        };
        let idle = self.places.extract_if(|_, place| is_idle(place));
        let idle = idle.filter_map(|(_, place)| place.cell.get().cloned()).collect();
        self.is_swept = !self.places.is_empty();
        (idle, !self.is_swept)
    }
}

// === impl Key ===

impl Key {
    pub(super) fn of(client: &ModernClient, context: &ClientContext) -> Self {
        let identity = context.caller.as_ref().map(|caller| &caller.identity);
        let identity = identity.filter(|identity| identity.is_authenticated());
        let identity = identity.map(|identity| (identity.issuer.clone(), identity.subject.clone()));
        let headers = digest_of(&context.headers, identity.is_some());
        Self { identity, capabilities: Capabilities::of(client), headers }
    }
}

/// A digest of the headers that say who a client is to the server. The token of an authenticated client is renewed from time to time.
fn digest_of(headers: &HeaderMap, is_authenticated: bool) -> [u8; 32] {
    let is_token = |name: &HeaderName| is_authenticated && *name == http::header::AUTHORIZATION;
    let mut telling: Vec<(&HeaderName, &HeaderValue)> =
        headers.iter().filter(|(name, _)| is_telling(name) && !is_token(name)).collect();
    telling.sort_by(|one, other| (one.0.as_str(), one.1.as_bytes()).cmp(&(other.0.as_str(), other.1.as_bytes())));
    let mut digest = Sha256::new();
    for (name, value) in telling {
        for part in [name.as_str().as_bytes(), value.as_bytes()] {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests;
