//! Graceful shutdown.
//!
//! ```text
//!   start() ──▶ not ready ──linger──▶ no new connections; streams are notified ──finish──▶ the rest is cut ──▶ drained()
//! ```
//!
//! One [`Drain`] is shared by all listeners of a process. Readiness fails first and new connections are still served
//! for a while, because load balancers learn of it late.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The time limits of a shutdown, which takes at most the sum of both.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// How long new connections are still served after readiness failed.
    pub linger: Duration,
    /// How long requests in flight then have to finish before they are cut.
    pub finish: Duration,
}

/// The outcome of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// How many requests were cut because they did not finish in time.
    pub cut: usize,
}

/// Starts and tracks the shutdown of everything that serves under it. Clones are the same drain.
#[derive(Clone, Debug)]
pub struct Drain {
    grace: Grace,
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Default)]
struct State {
    started: Option<Instant>,
    servers: usize,
    cut: usize,
}

/// One listener under a drain; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Server(Arc<watch::Sender<State>>);

impl Drain {
    /// A drain that has not started.
    pub fn new(grace: Grace) -> Self {
        Self { grace, state: Arc::new(watch::Sender::new(State::default())) }
    }

    /// Starts the shutdown. Readiness fails when this returns; a second call changes nothing.
    pub fn start(&self) {
        self.state.send_if_modified(|state| {
            let first = state.started.is_none();
            state.started.get_or_insert_with(Instant::now);
            first
        });
    }

    /// Whether new requests are accepted.
    pub fn is_ready(&self) -> bool {
        self.state.borrow().started.is_none()
    }

    /// Waits until long-lived responses should end, and returns when they are cut. Select on it wherever a stream
    /// waits.
    pub fn stopping(&self) -> impl Future<Output = Instant> + Send + use<> {
        let (mut state, grace) = (self.state.subscribe(), self.grace);
        // Keeps the sender, without which waiting would end.
        let drain = self.clone();
        async move {
            let started = state.wait_for(|state| state.started.is_some()).await.ok().and_then(|state| state.started);
            drop(drain);
            let stop = started.unwrap_or_else(Instant::now) + grace.linger;
            tokio::time::sleep_until(stop).await;
            stop + grace.finish
        }
    }

    /// Waits until the drain has started and nothing serves under it any more.
    pub async fn drained(&self) -> Drained {
        let mut state = self.state.subscribe();
        let done = state.wait_for(|state| state.started.is_some() && state.servers == 0).await;
        Drained { cut: done.map_or(0, |state| state.cut) }
    }

    pub(crate) fn enter(&self) -> Server {
        self.state.send_modify(|state| state.servers += 1);
        Server(Arc::clone(&self.state))
    }
}

impl Server {
    /// Counts requests that were cut.
    pub(crate) fn cut(&self, calls: usize) {
        self.0.send_modify(|state| state.cut += calls);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.servers = state.servers.saturating_sub(1));
    }
}
