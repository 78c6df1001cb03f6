//! How many bytes a process may hold for its clients at once.
//!
//! A [`Budget`] counts what is buffered: bodies of requests while they are read and answered, responses until the kernel has
//! taken them, events that are kept for a client that may come back. What is counted is given back when the bytes are dropped,
//! wherever that is: [`Budget::hold`] ties the two together.
//!
//! ```text
//!   0 ───────────── request bodies ────────────▶ 1/2 ───── responses, kept events ─────▶ 7/8 ── up to 64 KiB each ──▶ limit
//! ```
//!
//! A request that was let in should not fail for want of room for its response, so requests leave some; and whoever sends large
//! bodies does not keep others from small calls, so the last part is theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;

/// What is so small that it may use the whole budget.
const SMALL: usize = 64 * 1024;
/// What is so small that it is not counted: connections are, and each has few of them.
pub(crate) const TINY: usize = 1024;

/// What bytes are held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A request that comes in.
    Request,
    /// A response that goes out, or is kept for its client.
    Response,
}

/// A limit on the bytes that are held at once. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    held: AtomicUsize,
    refused: AtomicU64,
    /// Whether something was refused since somebody asked.
    is_pressed: AtomicBool,
}

/// There is no room for more bytes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory budget of {limit} bytes has no room for {bytes} more")]
pub struct OverBudgetError {
    /// How many were asked for.
    pub bytes: usize,
    /// The budget.
    pub limit: usize,
}

/// A part of a budget; given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: usize,
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
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Self {
        let (held, refused, is_pressed) = Default::default();
        Self(Arc::new(Inner { limit, held, refused, is_pressed }))
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// How many bytes are held now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// How often there was no room so far.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// The most that can ever be reserved at once for a purpose.
    pub fn largest(&self, purpose: Purpose) -> usize {
        self.ceiling(usize::MAX, purpose)
    }

    /// Whether there would be room. Nothing is reserved.
    pub fn has_room(&self, bytes: usize, purpose: Purpose) -> bool {
        bytes < TINY || self.held().saturating_add(bytes) <= self.ceiling(bytes, purpose)
    }

    /// Sets bytes aside.
    pub fn reserve(&self, bytes: usize, purpose: Purpose) -> Result<Reservation, OverBudgetError> {
        let mut reservation = Reservation { budget: self.clone(), bytes: 0 };
        reservation.grow(bytes, purpose)?;
        Ok(reservation)
    }

    /// The same bytes, which count until the last clone of them is dropped.
    pub fn hold(&self, bytes: Bytes, purpose: Purpose) -> Result<Bytes, OverBudgetError> {
        if bytes.len() < TINY {
            return Ok(bytes);
        }
        Ok(self.reserve(bytes.len(), purpose)?.over(bytes))
    }

    /// Whether something was refused since this was last asked.
    pub(crate) fn take_pressure(&self) -> bool {
        self.0.is_pressed.load(Ordering::Relaxed) && self.0.is_pressed.swap(false, Ordering::Relaxed)
    }

    fn ceiling(&self, bytes: usize, purpose: Purpose) -> usize {
        let limit = self.0.limit;
        match purpose {
            _ if bytes <= SMALL => limit,
            Purpose::Request => limit / 2,
            Purpose::Response => limit / 8 * 7,
        }
    }

    fn refuse(&self, bytes: usize) -> OverBudgetError {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        self.0.is_pressed.store(true, Ordering::Relaxed);
        OverBudgetError { bytes, limit: self.0.limit }
    }
}

impl Default for Budget {
    /// No limit, for whoever counts elsewhere.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

// === impl Reservation ===

impl Reservation {
    /// How many bytes are set aside.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets more bytes aside. If there is no room, nothing changes.
    pub fn grow(&mut self, more: usize, purpose: Purpose) -> Result<(), OverBudgetError> {
        if more == 0 {
            return Ok(());
        }
        let ceiling = self.budget.ceiling(self.bytes.saturating_add(more), purpose);
        let held = &self.budget.0.held;
        let before = held.fetch_add(more, Ordering::Relaxed);
        if before.checked_add(more).is_none_or(|sum| sum > ceiling) {
            held.fetch_sub(more, Ordering::Relaxed);
            return Err(self.budget.refuse(more));
        }
        self.bytes += more;
        Ok(())
    }

    /// Gives back what is beyond so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.budget.0.held.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
    }

    /// Ties this to bytes: it is given back when the last clone of them is dropped.
    pub fn over(self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        Bytes::from_owner(Held { bytes, _reservation: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn bytes_count_until_their_last_clone_is_dropped() {
        let budget = Budget::new(MIB);
        let bytes = budget.hold(Bytes::from(vec![1; 10_000]), Purpose::Response).unwrap();
        let part = bytes.slice(5_000..5_001);
        assert_eq!((bytes.len(), budget.held()), (10_000, 10_000));
        drop(bytes);
        assert_eq!(budget.held(), 10_000);
        assert_eq!(&*part, [1]);
        drop(part);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn requests_leave_room_for_responses_and_both_for_small_calls() {
        let budget = Budget::new(16 * MIB);
        let body = budget.reserve(8 * MIB, Purpose::Request).unwrap();
        assert!(budget.reserve(SMALL + 1, Purpose::Request).is_err());
        assert!(budget.has_room(6 * MIB, Purpose::Response) && !budget.has_room(6 * MIB + 1, Purpose::Response));
        let response = budget.reserve(6 * MIB, Purpose::Response).unwrap();
        assert!(budget.reserve(SMALL + 1, Purpose::Response).is_err());
        let small: Vec<_> = (0..32).map(|_| budget.reserve(SMALL, Purpose::Request).unwrap()).collect();
        assert!(budget.reserve(1, Purpose::Response).is_err());
        assert_eq!(budget.refused(), 3);
        drop((body, response, small));
        assert_eq!(budget.held(), 0);
        assert!(budget.take_pressure() && !budget.take_pressure());
    }

    #[test]
    fn a_reservation_that_cannot_grow_keeps_what_it_has() {
        let budget = Budget::new(16 * MIB);
        let mut body = budget.reserve(4 * MIB, Purpose::Request).unwrap();
        assert!(body.grow(usize::MAX, Purpose::Request).is_err());
        assert!(body.grow(4 * MIB + 1, Purpose::Request).is_err());
        assert_eq!((body.bytes(), budget.held()), (4 * MIB, 4 * MIB));
        body.grow(4 * MIB, Purpose::Request).unwrap();
        body.shrink_to(MIB);
        assert_eq!(budget.held(), MIB);
    }
}
