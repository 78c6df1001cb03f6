//! What one connection does, and for how long it has waited.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use futures_util::task::AtomicWaker;

use super::super::stream::Stream;
use super::{Call, Order};
use crate::budget::Pressure;

/// What a connection waits for while no request is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The head of a request, the first one or one that has started.
    Head,
    /// Anything.
    Idle,
    /// Its end: it was ordered to finish for being idle.
    End,
}

/// The state of one connection.
#[derive(Debug)]
pub(in super::super) struct Activity {
    /// The network of its peer.
    pub(super) peer: IpAddr,
    /// The network of the client of the last response, if a proxy in front forwards for it and requests do not share
    /// the connection.
    pub(super) client: Mutex<Option<IpAddr>>,
    pub(super) clock: Arc<AtomicU32>,
    pub(super) calls: AtomicU32,
    waiting: AtomicU8,
    since: AtomicU32,
    /// Many requests share the connection, so received bytes do not mean that a head has started.
    multiplexed: AtomicBool,
    /// Whether its peer has not taken what was last written to it, and since when.
    is_stalled: AtomicBool,
    stalled_since: AtomicU32,
    /// The streams with a response, if requests share the connection.
    streams: Mutex<Vec<Arc<Stream>>>,
    order: AtomicU8,
    waker: AtomicWaker,
}

impl Activity {
    pub(super) fn new(peer: IpAddr, clock: Arc<AtomicU32>) -> Self {
        let since = AtomicU32::new(clock.load(Ordering::Relaxed));
        Self {
            peer,
            client: Mutex::default(),
            clock,
            calls: AtomicU32::new(0),
            waiting: AtomicU8::new(Waiting::Head as u8),
            since,
            multiplexed: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            stalled_since: AtomicU32::new(0),
            streams: Mutex::default(),
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
        Call { activity: Arc::clone(self), stream: None, place: None }
    }

    /// Bytes have arrived.
    pub(in super::super) fn has_read(&self) {
        let is_idle = self.calls.load(Ordering::Relaxed) == 0 && self.waits_for(Waiting::Idle);
        if is_idle && !self.multiplexed.load(Ordering::Relaxed) {
            self.wait_for(Waiting::Head);
        }
    }

    /// The peer does not take what is written to it.
    pub(in super::super) fn has_blocked(&self) {
        if !self.is_stalled.load(Ordering::Relaxed) {
            self.stalled_since.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
            self.is_stalled.store(true, Ordering::Relaxed);
        }
    }

    /// Bytes were sent: a response that hyper has taken over is still being sent to a slow reader.
    pub(in super::super) fn has_written(&self) {
        if self.is_stalled.load(Ordering::Relaxed) {
            self.is_stalled.store(false, Ordering::Relaxed);
        }
        if self.calls.load(Ordering::Relaxed) == 0 && self.waits_for(Waiting::Idle) {
            self.wait_for(Waiting::Idle);
        }
    }

    /// The current order; wakes this task when it changes.
    pub(in super::super) fn order(&self, waker: &Waker) -> Order {
        self.waker.register(waker);
        match self.order.load(Ordering::Acquire) {
            order if order == Order::Cut as u8 => Order::Cut,
            order if order == Order::Finish as u8 => Order::Finish,
            _ => Order::Serve,
        }
    }

    /// Whether it was not ordered to end.
    pub(super) fn is_served(&self) -> bool {
        self.order.load(Ordering::Relaxed) == Order::Serve as u8
    }

    /// Whether no request is in flight.
    pub(super) fn has_no_request(&self) -> bool {
        self.calls.load(Ordering::Relaxed) == 0
    }

    /// Raises the order; it only ever gets stricter. Returns the number of requests in flight.
    pub(super) fn raise(&self, order: Order) -> u32 {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.waker.wake();
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn check_timeouts(&self, now: u32, head: u32, idle: u32) {
        if self.calls.load(Ordering::Relaxed) > 0 {
            return;
        }
        // The tick in progress when the wait started does not count, so no limit is cut short.
        let waited = now.wrapping_sub(self.since.load(Ordering::Relaxed)).saturating_sub(1);
        if self.waits_for(Waiting::Idle) {
            if waited >= idle {
                self.wait_for(Waiting::End);
                self.raise(Order::Finish);
            }
        } else if waited >= head {
            self.raise(Order::Cut);
        }
    }

    /// Whether its peer has taken nothing for so many ticks, though there is something for it.
    pub(super) fn has_stalled(&self, now: u32, limit: u32) -> bool {
        let since = self.stalled_since.load(Ordering::Relaxed);
        self.is_stalled.load(Ordering::Relaxed) && now.wrapping_sub(since).saturating_sub(1) >= limit
    }

    /// Cuts what has taken nothing for so many ticks, though there is something for it, and blocks others: the
    /// connection, or some of its streams.
    pub(super) fn cut_stalled(&self, now: u32, limit: u32, pressure: &Pressure) {
        if pressure.is_none() {
            return;
        }
        let streams = self.streams();
        let client_of = |stream: &Stream| stream.client().unwrap_or(self.peer);
        let concerns_any = || match streams.as_slice() {
            [] => pressure.concerns(self.client().unwrap_or(self.peer)),
            streams => streams.iter().any(|stream| pressure.concerns(client_of(stream))),
        };
        if self.has_stalled(now, limit) && concerns_any() {
            tracing::warn!("cutting client that does not read its response under memory pressure");
            self.raise(Order::Cut);
        }
        let is_stalled = |stream: &&Arc<Stream>| stream.has_stalled(now, limit) && pressure.concerns(client_of(stream));
        for stream in streams.iter().filter(is_stalled) {
            tracing::warn!("resetting stream that its client does not read under memory pressure");
            stream.reset();
        }
    }

    pub(super) fn client(&self) -> Option<IpAddr> {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn streams(&self) -> MutexGuard<'_, Vec<Arc<Stream>>> {
        // A panic while it is held cannot leave the list half changed.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn waits_for(&self, what: Waiting) -> bool {
        self.waiting.load(Ordering::Relaxed) == what as u8
    }

    pub(super) fn wait_for(&self, what: Waiting) {
        self.waiting.store(what as u8, Ordering::Relaxed);
        self.since.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
