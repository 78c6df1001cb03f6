//! The limit on the bytes that a process buffers for its clients.
//!
//! A [`Budget`] counts buffered bytes: request bodies until they have their response, responses until the kernel has
//! taken them, events that are stored for resumption. Bytes are released when they are dropped, wherever that is:
//! [`Budget::hold`] ties the two together.
//!
//! ```text
//!   0 ── request bodies ──▶ 1/2                                    of them, while all else is below 3/4
//!   0 ── responses, kept events ────────────────▶ 7/8
//!   0 ── up to 64 KiB each ─────────────────────────────▶ limit
//! ```
//!
//! An admitted request should not fail because there is no room for its response, so requests leave some; and a client
//! that sends large bodies does not block small calls of others, so the last part is reserved for those. Of each of
//! these, one client may have half ([`Budget::of_client`]), so that there is room for others.
//!
//! A new request that exceeds the budget is refused ([`Budget::reserve`]). A response to an admitted request, and an
//! event of an open stream, wait for room ([`Budget::hold_or_wait`]).

#[cfg(test)]
mod tests;
mod usage;
mod wait;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;

pub(crate) use self::usage::Pressure;
use self::usage::{Amount, Shares, Usage};
use self::wait::Growing;
pub use self::wait::ROOM_TIMEOUT;

/// Up to this size, bytes may use the whole budget.
const SMALL: usize = 64 * 1024;
/// Up to this size, bytes are not counted: connections are, and each has few of them.
pub(crate) const TINY: usize = 1024;

/// What bytes are held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An incoming request.
    Request,
    /// An outgoing response, or one that is stored for its client.
    Response,
}

/// A limit on the bytes that are held at once, by all clients or by one of them. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Budget {
    inner: Arc<Inner>,
    /// The network of the client whose share it is.
    client: Option<IpAddr>,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    total: Usage,
    shares: Shares,
    refused: AtomicU64,
    /// How many wait for room, and how they are woken.
    waiters: AtomicUsize,
    released: Notify,
    growing: Growing,
}

/// The budget has no room for more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverBudgetError {
    /// Not now: a later attempt may succeed.
    #[error("the memory budget of {limit} bytes, or the client's share of it, has no room for {bytes} more")]
    NoRoom {
        /// How many were requested.
        bytes: usize,
        /// The budget.
        limit: usize,
    },
    /// Never, whatever others release.
    #[error("{bytes} bytes or more exceed {most}, the most that the memory budget allows one client")]
    TooLong {
        /// How many would be held at once.
        bytes: usize,
        /// The maximum, see [`Budget::largest`].
        most: usize,
    },
}

/// A part of a budget; released when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    purpose: Purpose,
    bytes: usize,
    /// What its client holds. `None` before the first byte, or without a client.
    share: Option<Arc<Usage>>,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The share of the client.
    Share,
    /// The whole budget.
    Total,
}

/// Bytes with their part of a budget.
struct Held {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

// === impl Budget ===

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let inner = Inner {
            limit,
            total: Usage::default(),
            shares: Shares::default(),
            refused: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            released: Notify::new(),
            growing: Growing::default(),
        };
        Self { inner: Arc::new(inner), client: None }
    }

    /// The share of one client: its bytes count in the whole budget, and may be half of that at most. Clients are
    /// identified by their network, see [`crate::Peer::network`].
    #[must_use]
    pub fn of_client(&self, network: IpAddr) -> Self {
        // The share is looked up when bytes are counted: most calls are tiny.
        Self { inner: Arc::clone(&self.inner), client: Some(network) }
    }

    /// The network of the client whose share it is.
    pub fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.inner.limit
    }

    /// How many bytes are held now, by all clients.
    pub fn held(&self) -> usize {
        self.inner.total.held()
    }

    /// How many more bytes are in memory and wait for room.
    pub fn waiting(&self) -> usize {
        self.inner.total.waiting()
    }

    /// How many responses and events wait for room, whether they are in memory or their sender waits as well.
    pub fn waiters(&self) -> usize {
        self.inner.waiters.load(Ordering::Relaxed)
    }

    /// How often there was no room so far.
    pub fn refused(&self) -> u64 {
        self.inner.refused.load(Ordering::Relaxed)
    }

    /// The most that can ever be reserved at once for a purpose.
    pub fn largest(&self, purpose: Purpose) -> usize {
        let ceiling = self.inner.ceiling(usize::MAX, purpose);
        let ceiling = if self.client.is_some() { ceiling.half() } else { ceiling };
        ceiling.bytes.min(ceiling.requests)
    }

    /// Reserves bytes, or refuses them.
    pub fn reserve(&self, bytes: usize, purpose: Purpose) -> Result<Reservation, OverBudgetError> {
        let mut reservation = self.reservation(purpose);
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Reserves bytes, for callers that can wait otherwise: this is not counted as refused, but marks the budget as
    /// under pressure.
    pub fn try_reserve(&self, bytes: usize, purpose: Purpose) -> Option<Reservation> {
        let mut reservation = self.reservation(purpose);
        // No client is cut for what can never fit.
        let has_room = reservation.can_grow(bytes) && reservation.try_grow(if bytes < TINY { 0 } else { bytes });
        has_room.then_some(reservation)
    }

    /// An empty reservation.
    pub fn reservation(&self, purpose: Purpose) -> Reservation {
        Reservation { budget: self.clone(), purpose, bytes: 0, share: None }
    }

    /// The same bytes, counted until the last clone of them is dropped.
    pub fn hold(&self, bytes: Bytes, purpose: Purpose) -> Result<Bytes, OverBudgetError> {
        if bytes.len() < TINY {
            return Ok(bytes);
        }
        Ok(self.reserve(bytes.len(), purpose)?.over(bytes))
    }

    /// Takes the pressure since the last call: where there was no room.
    pub(crate) fn take_pressure(&self) -> Pressure {
        Pressure { total: self.inner.total.take_pressure(), clients: self.inner.shares.take_pressure() }
    }
}

impl Default for Budget {
    /// No limit, for servers that count elsewhere.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

// === impl Inner ===

impl Inner {
    /// The ceiling for a reservation of this size.
    fn ceiling(&self, bytes: usize, purpose: Purpose) -> Amount {
        let limit = self.limit;
        match purpose {
            _ if bytes <= SMALL => Amount { bytes: limit, requests: usize::MAX },
            Purpose::Request => Amount { bytes: limit / 4 * 3, requests: limit / 2 },
            Purpose::Response => Amount { bytes: limit / 8 * 7, requests: usize::MAX },
        }
    }

    fn refuse(&self, bytes: usize) -> OverBudgetError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        OverBudgetError::NoRoom { bytes, limit: self.limit }
    }
}

// === impl Reservation ===

impl Reservation {
    /// How many bytes are reserved.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves more bytes. If there is no room, nothing changes.
    pub fn grow(&mut self, more: usize) -> Result<(), OverBudgetError> {
        if self.try_grow(more) { Ok(()) } else { Err(self.budget.inner.refuse(more)) }
    }

    /// The same without counting it as refused, see [`Budget::try_reserve`].
    pub(crate) fn try_grow(&mut self, more: usize) -> bool {
        self.try_grow_or(more).is_ok()
    }

    /// The same, returning which limit is reached.
    fn try_grow_or(&mut self, more: usize) -> Result<(), Full> {
        let full = match self.grow_ahead(more) {
            Ok(()) => return Ok(()),
            Err(full) => full,
        };
        let inner = &self.budget.inner;
        match (full, &self.share) {
            (Full::Share, Some(share)) => inner.shares.press(share),
            (Full::Share, None) | (Full::Total, _) => inner.total.press(),
        }
        Err(full)
    }

    /// The same for more than is needed now: if there is no room, no client need be cut for it.
    pub(crate) fn grow_ahead(&mut self, more: usize) -> Result<(), Full> {
        if more == 0 {
            return Ok(());
        }
        let inner = Arc::clone(&self.budget.inner);
        let after = self.bytes.saturating_add(more);
        let added = self.amount(after) - self.amount(self.bytes);
        let ceiling = inner.ceiling(after, self.purpose);
        if let Some(client) = self.budget.client {
            let share = self.share.get_or_insert_with(|| inner.shares.enter(client));
            if !share.add(added, ceiling.half()) {
                return Err(Full::Share);
            }
        }
        if !inner.total.add(added, ceiling) {
            if let Some(share) = &self.share {
                share.subtract(added);
            }
            return Err(Full::Total);
        }
        self.bytes = after;
        Ok(())
    }

    /// Whether there can ever be room for more bytes.
    fn can_grow(&self, more: usize) -> bool {
        let after = self.bytes.saturating_add(more);
        after <= SMALL || after <= self.budget.largest(self.purpose)
    }

    /// Releases all but so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            return;
        }
        let removed = self.amount(self.bytes) - self.amount(bytes);
        self.bytes = bytes;
        let inner = &self.budget.inner;
        inner.total.subtract(removed);
        if let Some(share) = &self.share {
            share.subtract(removed);
        }
        if inner.waiters.load(Ordering::Relaxed) > 0 {
            inner.released.notify_waiters();
        }
    }

    /// Ties the reservation to bytes: it is released when the last clone of them is dropped.
    pub fn over(self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() || self.bytes == 0 {
            return bytes;
        }
        Bytes::from_owner(Held { bytes, _reservation: self })
    }

    /// How much so many bytes count.
    fn amount(&self, bytes: usize) -> Amount {
        let is_large_request = self.purpose == Purpose::Request && bytes > SMALL;
        Amount { bytes, requests: if is_large_request { bytes } else { 0 } }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
        if let (Some(client), Some(share)) = (self.budget.client, self.share.take()) {
            self.budget.inner.shares.leave(client, share);
        }
    }
}
