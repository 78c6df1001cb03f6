//! The open connections of one server, and what each is doing.
//!
//! A connection writes down, with two plain stores, that it waits or works. Once a second the accept loop walks over all
//! of them and ends those that waited too long. So ten thousand connections need no timer, and no request pays for one.
//!
//! ```text
//!   accepted ─▶ Head ──request──▶ working ──last answer ends──▶ Idle ──first byte──▶ Head ─▶ …
//!                │ header timeout: cut                           │ idle timeout: finish, then cut
//! ```

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio::time::Interval;

/// How often connections are looked at: how precise their time limits are.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// What a connection is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Go on.
    Serve,
    /// Finish what is under way, take nothing new.
    Finish,
    /// End now.
    Cut,
}

/// What a connection waits for while no request is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// The head of a request, the first one or one that has begun.
    Head,
    /// Anything.
    Idle,
    /// Its own end: it was told to finish for being idle.
    End,
}

#[derive(Debug)]
pub(super) struct Registry {
    connections: Mutex<HashMap<u64, Arc<Activity>>>,
    /// Ticks since the start. Only differences count, so it may wrap.
    clock: Arc<AtomicU32>,
    /// Ticks after which a head is late, and an idle connection not worth keeping.
    head: u32,
    idle: u32,
    filled: Notify,
    emptied: Notify,
}

/// What one connection is doing.
#[derive(Debug)]
pub(super) struct Activity {
    clock: Arc<AtomicU32>,
    calls: AtomicU32,
    waiting: AtomicU8,
    since: AtomicU32,
    /// Many requests share the connection, so bytes do not tell that a head has begun.
    multiplexed: AtomicBool,
    order: AtomicU8,
    waker: AtomicWaker,
}

/// A connection in the registry; leaves it when dropped.
#[derive(Debug)]
pub(super) struct Registered {
    registry: Arc<Registry>,
    id: u64,
    pub(super) activity: Arc<Activity>,
}

/// A request under way: from its head to the end of its answer.
#[derive(Debug)]
pub(super) struct Call(Arc<Activity>);

/// The registry as its server holds it: when the server goes, so do the connections.
#[derive(Debug)]
pub(super) struct Owner(Arc<Registry>);

impl Registry {
    pub(super) fn new(head: Duration, idle: Duration) -> Self {
        Self {
            connections: Mutex::default(),
            clock: Arc::default(),
            head: in_ticks(head),
            idle: in_ticks(idle),
            filled: Notify::new(),
            emptied: Notify::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Waits until the last connection has left.
    pub(super) async fn emptied(&self) {
        self.emptied.notified().await;
    }

    /// Waits for the next tick, or for ever while there are no connections, and ends those that waited too long.
    pub(super) async fn tick(&self, interval: &mut Interval) {
        while self.is_empty() {
            self.filled.notified().await;
        }
        interval.tick().await;
        let now = self.clock.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        for activity in self.lock().values() {
            activity.look(now, self.head, self.idle);
        }
    }

    /// Tells every connection; returns how many requests are under way.
    pub(super) fn order(&self, order: Order) -> usize {
        let connections = self.lock();
        connections.values().map(|activity| activity.tell(order)).sum::<u32>() as usize
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Activity>>> {
        // A panic while it is held cannot leave the map half changed.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner {
    pub(super) fn new(registry: Registry) -> Self {
        Self(Arc::new(registry))
    }

    pub(super) fn register(&self) -> Registered {
        let activity = Arc::new(Activity::new(Arc::clone(&self.0.clock)));
        let id = Arc::as_ptr(&activity).addr() as u64;
        let first = {
            let mut connections = self.0.lock();
            // INVARIANT: unique while registered, since the registry keeps what is at this address alive.
            connections.insert(id, Arc::clone(&activity));
            connections.len() == 1
        };
        if first {
            self.0.filled.notify_one();
        }
        Registered { registry: Arc::clone(&self.0), id, activity }
    }
}

impl Deref for Owner {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.order(Order::Cut);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let last = {
            let mut connections = self.registry.lock();
            connections.remove(&self.id);
            connections.is_empty()
        };
        if last {
            self.registry.emptied.notify_one();
        }
    }
}

impl Activity {
    fn new(clock: Arc<AtomicU32>) -> Self {
        let since = AtomicU32::new(clock.load(Ordering::Relaxed));
        Self {
            clock,
            calls: AtomicU32::new(0),
            waiting: AtomicU8::new(Waiting::Head as u8),
            since,
            multiplexed: AtomicBool::new(false),
            order: AtomicU8::new(Order::Serve as u8),
            waker: AtomicWaker::new(),
        }
    }

    /// A request has arrived.
    pub(super) fn begin(self: &Arc<Self>, multiplexed: bool) -> Call {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if multiplexed {
            self.multiplexed.store(true, Ordering::Relaxed);
        }
        Call(Arc::clone(self))
    }

    /// Bytes have arrived.
    pub(super) fn has_read(&self) {
        let is_idle = self.calls.load(Ordering::Relaxed) == 0 && self.waits_for(Waiting::Idle);
        if is_idle && !self.multiplexed.load(Ordering::Relaxed) {
            self.wait_for(Waiting::Head);
        }
    }

    /// Bytes were sent: an answer that hyper has taken over from us is still on its way to a slow reader.
    pub(super) fn has_written(&self) {
        if self.calls.load(Ordering::Relaxed) == 0 && self.waits_for(Waiting::Idle) {
            self.wait_for(Waiting::Idle);
        }
    }

    /// What to do, with the promise to wake this task when that changes.
    pub(super) fn order(&self, waker: &Waker) -> Order {
        self.waker.register(waker);
        match self.order.load(Ordering::Acquire) {
            order if order == Order::Cut as u8 => Order::Cut,
            order if order == Order::Finish as u8 => Order::Finish,
            _ => Order::Serve,
        }
    }

    /// Orders only ever get stricter. Returns the number of requests under way.
    fn tell(&self, order: Order) -> u32 {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.waker.wake();
        self.calls.load(Ordering::Relaxed)
    }

    fn look(&self, now: u32, head: u32, idle: u32) {
        if self.calls.load(Ordering::Relaxed) > 0 {
            return;
        }
        // The tick under way when the wait began does not count, so no limit is cut short.
        let waited = now.wrapping_sub(self.since.load(Ordering::Relaxed)).saturating_sub(1);
        if self.waits_for(Waiting::Idle) {
            if waited >= idle {
                self.wait_for(Waiting::End);
                self.tell(Order::Finish);
            }
        } else if waited >= head {
            self.tell(Order::Cut);
        }
    }

    fn waits_for(&self, what: Waiting) -> bool {
        self.waiting.load(Ordering::Relaxed) == what as u8
    }

    fn wait_for(&self, what: Waiting) {
        self.waiting.store(what as u8, Ordering::Relaxed);
        self.since.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Before the count, so that nobody sees the connection wait since long ago.
        self.0.wait_for(Waiting::Idle);
        self.0.calls.fetch_sub(1, Ordering::Release);
    }
}

fn in_ticks(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX / 2)
}
