//! How much of a budget is held: by all clients, and by each of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Sub;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes, and how many of them are large request bodies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) bytes: usize,
    pub(super) requests: usize,
}

/// What is held at the moment.
#[derive(Debug, Default)]
pub(super) struct Usage {
    held: AtomicUsize,
    requests: AtomicUsize,
    /// What is in memory already and waits to be counted.
    waiting: AtomicUsize,
    /// Whether a reservation failed since that was last queried.
    is_pressed: AtomicBool,
}

/// What each client holds that holds something.
#[derive(Debug, Default)]
pub(super) struct Shares {
    clients: Mutex<HashMap<IpAddr, Arc<Usage>>>,
    is_any_pressed: AtomicBool,
}

/// Where there was no room: in the whole budget, or in the shares of these clients.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    pub(super) total: bool,
    pub(super) clients: Vec<IpAddr>,
}

// === impl Amount ===

impl Amount {
    pub(super) fn half(self) -> Self {
        Self { bytes: self.bytes / 2, requests: self.requests / 2 }
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(self, less: Self) -> Self {
        Self { bytes: self.bytes - less.bytes, requests: self.requests - less.requests }
    }
}

// === impl Usage ===

impl Usage {
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Adds what is below a ceiling. What would exceed it is never added, not even for a moment: it would block others.
    pub(super) fn add(&self, more: Amount, ceiling: Amount) -> bool {
        let add = |count: &AtomicUsize, more: usize, most: usize| {
            let sum = |before: usize| before.checked_add(more).filter(|sum| *sum <= most);
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
        };
        // First the one that only large requests are compared with.
        if more.requests > 0 && !add(&self.requests, more.requests, ceiling.requests) {
            return false;
        }
        let is_room = add(&self.held, more.bytes, ceiling.bytes);
        if !is_room {
            self.requests.fetch_sub(more.requests, Ordering::Relaxed);
        }
        is_room
    }

    pub(super) fn subtract(&self, less: Amount) {
        self.held.fetch_sub(less.bytes, Ordering::Relaxed);
        self.requests.fetch_sub(less.requests, Ordering::Relaxed);
    }

    /// Adds bytes that wait, up to a limit; those that wait alone have any length.
    pub(super) fn enqueue(&self, bytes: usize, most: usize) -> bool {
        let sum = |before: usize| {
            let after = before.saturating_add(bytes);
            (bytes == 0 || before == 0 || after <= most).then_some(after)
        };
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
    }

    pub(super) fn dequeue(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn press(&self) {
        self.is_pressed.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_pressure(&self) -> bool {
        self.is_pressed.load(Ordering::Relaxed) && self.is_pressed.swap(false, Ordering::Relaxed)
    }
}

// === impl Shares ===

impl Shares {
    /// The share of a client. A reservation that enters it must [`Self::leave`] it.
    pub(super) fn enter(&self, client: IpAddr) -> Arc<Usage> {
        Arc::clone(self.lock().entry(client).or_default())
    }

    /// Releases a share. No entry remains for a client that holds nothing.
    pub(super) fn leave(&self, client: IpAddr, share: Arc<Usage>) {
        let mut clients = self.lock();
        drop(share);
        // INVARIANT: clones are made under the lock, or are dropped before the reservation that they were made from; so
        // if only the map has it, this client holds nothing.
        if clients.get(&client).is_some_and(|share| Arc::strong_count(share) == 1) {
            clients.remove(&client);
        }
    }

    pub(super) fn press(&self, share: &Usage) {
        share.press();
        self.is_any_pressed.store(true, Ordering::Release);
    }

    pub(super) fn take_pressure(&self) -> Vec<IpAddr> {
        if !self.is_any_pressed.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        let clients = self.lock();
        clients.iter().filter(|(_, share)| share.take_pressure()).map(|(client, _)| *client).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Usage>>> {
        // A panic while it is held cannot leave the map half changed.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }
}

// === impl Pressure ===

impl Pressure {
    /// Whether there was room everywhere.
    pub(crate) fn is_none(&self) -> bool {
        !self.total && self.clients.is_empty()
    }

    /// Whether a client of this network, if it does not read, blocks others or itself.
    pub(crate) fn concerns(&self, network: IpAddr) -> bool {
        self.total || self.clients.contains(&network)
    }
}
