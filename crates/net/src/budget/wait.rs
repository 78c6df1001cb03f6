//! Waiting for room in a budget.
//!
//! What waits is mostly in memory already: a response that a stdio server wrote cannot be left in the pipe, since all
//! clients share its output. So what waits is limited as well, in all and for each client; beyond that it is refused at
//! once. Nothing waits forever, even if waiting responses hold the whole budget.
//!
//! A response whose length is not known grows while it is read, and holds what it has when it waits for more. If such
//! responses hold everything that could be released, they wait for each other: then all but the first of them are
//! refused, so that it can continue.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::usage::Usage;
use super::{Budget, Full, Inner, OverBudgetError, Purpose, Reservation, TINY};

/// How long a reservation may wait. It is twice as long as a client may take to read before it is cut for others.
pub const ROOM_TIMEOUT: Duration = Duration::from_mins(1);
/// How often a waiting response marks the budget as under pressure, so that clients that do not read are cut.
const REMINDER: Duration = Duration::from_secs(1);

/// A place in the limit of what may wait.
struct Place {
    inner: Arc<Inner>,
    share: Option<Arc<Usage>>,
    buffered: usize,
}

/// The reservations that hold something and wait for more, in order.
#[derive(Debug, Default)]
pub(super) struct Growing(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    /// The client and the bytes held of each.
    all: BTreeMap<u64, (Option<IpAddr>, usize)>,
}

/// The place of a reservation among those that hold something and wait; released when dropped.
struct Turn {
    inner: Arc<Inner>,
    number: u64,
    client: Option<IpAddr>,
}

// === impl Budget ===

impl Budget {
    /// The same bytes, counted as soon as there is room for them and until the last clone of them is dropped.
    pub async fn hold_or_wait(&self, bytes: Bytes, purpose: Purpose) -> Result<Bytes, OverBudgetError> {
        Ok(self.reserve_or_wait(bytes.len(), purpose).await?.over(bytes))
    }

    /// Reserves bytes as soon as there is room. They are in memory already.
    pub async fn reserve_or_wait(&self, bytes: usize, purpose: Purpose) -> Result<Reservation, OverBudgetError> {
        let mut reservation = self.reservation(purpose);
        if bytes >= TINY {
            reservation.grow_or_wait(bytes, bytes).await?;
        }
        Ok(reservation)
    }
}

// === impl Reservation ===

impl Reservation {
    /// Reserves more bytes as soon as there is room. So many of them are in memory meanwhile; with 0, their sender
    /// waits as well.
    pub async fn grow_or_wait(&mut self, more: usize, buffered: usize) -> Result<(), OverBudgetError> {
        // No client is cut for what can never fit.
        if !self.can_grow(more) {
            return Err(self.too_long(more));
        }
        if self.try_grow(more) {
            return Ok(());
        }
        // Boxed: hardly any call waits, and every one would carry the larger future.
        Box::pin(self.wait(more, buffered)).await
    }

    fn too_long(&self, more: usize) -> OverBudgetError {
        self.budget.inner.refused.fetch_add(1, Ordering::Relaxed);
        OverBudgetError::TooLong { bytes: self.bytes.saturating_add(more), most: self.budget.largest(self.purpose) }
    }

    /// How much may be held where there is no room for more.
    fn ceiling_of(&self, full: Full, more: usize) -> usize {
        let ceiling = self.budget.inner.ceiling(self.bytes.saturating_add(more), self.purpose);
        if full == Full::Share { ceiling.half().bytes } else { ceiling.bytes }
    }

    async fn wait(&mut self, more: usize, buffered: usize) -> Result<(), OverBudgetError> {
        let inner = Arc::clone(&self.budget.inner);
        let place = Place::take(&inner, self.share.as_ref(), buffered);
        let Some(_place) = place else { return Err(inner.refuse(more)) };
        let turn = (self.bytes > 0).then(|| Turn::enter(&inner, self.budget.client, self.bytes));
        let until = Instant::now() + ROOM_TIMEOUT;
        loop {
            let mut released = std::pin::pin!(inner.released.notified());
            // A release from here on is not missed.
            released.as_mut().enable();
            let Err(full) = self.try_grow_or(more) else { return Ok(()) };
            let is_stuck = turn.as_ref().is_some_and(|turn| turn.is_stuck(full, self.ceiling_of(full, more), more));
            let now = Instant::now();
            if now >= until || is_stuck {
                return Err(inner.refuse(more));
            }
            let _reminder = tokio::time::timeout_at(until.min(now + REMINDER), released).await;
        }
    }
}

// === impl Turn ===

impl Turn {
    fn enter(inner: &Arc<Inner>, client: Option<IpAddr>, bytes: usize) -> Self {
        let number = inner.growing.with(|waiting| {
            waiting.last += 1;
            waiting.all.insert(waiting.last, (client, bytes));
            waiting.last
        });
        // The others may wait for this one now.
        inner.released.notify_waiters();
        Self { inner: Arc::clone(inner), number, client }
    }

    /// Whether it waits for an earlier one that waits for it: beside what they hold there is no room, whatever all
    /// others release.
    fn is_stuck(&self, full: Full, ceiling: usize, more: usize) -> bool {
        self.inner.growing.with(|waiting| {
            let concerns = |client: &Option<IpAddr>| full == Full::Total || *client == self.client;
            let all = || waiting.all.iter().filter(|(_, (client, _))| concerns(client));
            let is_first = all().next().is_none_or(|(first, _)| *first == self.number);
            let growing: usize = all().map(|(_, (_, bytes))| bytes).sum();
            !is_first && growing.saturating_add(more) > ceiling
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.inner.growing.with(|waiting| waiting.all.remove(&self.number));
    }
}

// === impl Growing ===

impl Growing {
    fn with<T>(&self, act: impl FnOnce(&mut Waiting) -> T) -> T {
        // Every change is one insertion or removal.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Place ===

impl Place {
    /// A place, if that many bytes may wait: a quarter of the budget in all, half of that for one client.
    fn take(inner: &Arc<Inner>, share: Option<&Arc<Usage>>, buffered: usize) -> Option<Self> {
        if share.is_some_and(|share| !share.enqueue(buffered, inner.limit / 8)) {
            return None;
        }
        if !inner.total.enqueue(buffered, inner.limit / 4) {
            share.inspect(|share| share.dequeue(buffered));
            return None;
        }
        inner.waiters.fetch_add(1, Ordering::Relaxed);
        Some(Self { inner: Arc::clone(inner), share: share.cloned(), buffered })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inner.waiters.fetch_sub(1, Ordering::Relaxed);
        self.inner.total.dequeue(self.buffered);
        if let Some(share) = &self.share {
            share.dequeue(self.buffered);
        }
    }
}
