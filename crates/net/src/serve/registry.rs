//! The open connections of one server, and the state of each.
//!
//! A connection records, with two plain stores, whether it waits or works. Once a second the accept loop walks over all
//! of them and ends those that waited too long. So ten thousand connections need no timer, and no request pays for one.
//! The number of connections is limited, in total and per peer; the next one is not registered. Requests that share a
//! connection count as well, but for one of each.
//!
//! ```text
//!   accepted ─▶ Head ──request──▶ working ──last response ends──▶ Idle ──first byte──▶ Head ─▶ …
//!                │ header timeout: cut                           │ idle timeout: finish, then cut
//! ```

mod activity;

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Interval;

pub(super) use self::activity::Activity;
use self::activity::Waiting;
use super::stream::Stream;
use super::{ConnectionLimits, Options, Peer, STALLED};
use crate::Budget;

/// How often connections are checked: the precision of their time limits.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// How many connections beyond the limits may request a health check. One peer may have half of them. When there are as
/// many, the next one displaces the oldest that has not requested anything.
const PROBES: ConnectionLimits = ConnectionLimits::of_total(32);

/// What a connection shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Continue.
    Serve,
    /// Finish the requests in flight, accept no new one.
    Finish,
    /// Close now.
    Cut,
}

#[derive(Debug)]
pub(super) struct Registry {
    connections: Mutex<Connections>,
    limits: ConnectionLimits,
    probe_path: Option<&'static str>,
    refused: Arc<AtomicU64>,
    /// How many were refused when that was last logged.
    logged: AtomicU64,
    budget: Budget,
    /// Ticks since the start. Only differences count, so it may wrap.
    clock: Arc<AtomicU32>,
    /// The timeouts of a head and of an idle connection, in ticks.
    head: u32,
    idle: u32,
    filled: Notify,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Connections {
    all: HashMap<u64, Arc<Activity>>,
    /// How many each peer has, with its streams.
    peers: HashMap<IpAddr, usize>,
    /// How many requests are in flight beside others of their connection.
    streams: usize,
    /// The connections beyond the limits that may request a health check, the oldest first.
    probes: Vec<Arc<Activity>>,
}

/// The slot in the connection limits of a request that is in flight beside others of its connection; released when
/// dropped.
#[derive(Debug)]
struct Place {
    registry: Arc<Registry>,
    peer: IpAddr,
}

/// A connection in the registry; deregistered when dropped.
#[derive(Debug)]
pub(super) struct Registered {
    registry: Arc<Registry>,
    id: u64,
    pub(super) activity: Arc<Activity>,
    /// Whether it is one beyond the limits, which may request only a health check.
    is_probe: bool,
}

/// A request in flight: from its head to the end of its response.
#[derive(Debug)]
pub(super) struct Call {
    activity: Arc<Activity>,
    /// The stream that its response is sent on, if others share the connection.
    stream: Option<Arc<Stream>>,
    /// Its slot in the connection limits, unless it uses that of its connection.
    place: Option<Place>,
}

/// The registry as its server holds it: dropping it drops the connections.
#[derive(Debug)]
pub(super) struct Owner(Arc<Registry>);

impl Registry {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            connections: Mutex::default(),
            limits: options.connections,
            probe_path: options.probe_path,
            refused: Arc::clone(&options.refused),
            logged: AtomicU64::new(options.refused.load(Ordering::Relaxed)),
            budget: options.budget.clone(),
            clock: Arc::default(),
            head: in_ticks(options.header_timeout),
            idle: in_ticks(options.idle_timeout),
            filled: Notify::new(),
            emptied: Notify::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().all.is_empty()
    }

    /// Waits until the last connection has left.
    pub(super) async fn emptied(&self) {
        self.emptied.notified().await;
    }

    /// Waits for the next tick, or forever while there are no connections, and ends those that waited too long.
    pub(super) async fn tick(&self, interval: &mut Interval) {
        while self.is_empty() {
            self.filled.notified().await;
        }
        interval.tick().await;
        let now = self.clock.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let (pressure, stalled) = (self.budget.take_pressure(), in_ticks(STALLED));
        for activity in self.lock().all.values() {
            activity.check_timeouts(now, self.head, self.idle);
            activity.cut_stalled(now, stalled, &pressure);
        }
        self.log_refused();
    }

    /// Logs refusals once per tick, and not once per connection.
    fn log_refused(&self) {
        let refused = self.refused.load(Ordering::Relaxed);
        let new = refused.wrapping_sub(self.logged.swap(refused, Ordering::Relaxed));
        if new > 0 {
            let ConnectionLimits { total, per_peer } = self.limits;
            tracing::warn!(
                refused = new,
                total,
                per_peer,
                "refused connections or streams beyond the connection limit"
            );
        }
    }

    /// Sends an order to every connection; returns how many requests are in flight.
    pub(super) fn order(&self, order: Order) -> usize {
        let connections = self.lock();
        connections.all.values().map(|activity| activity.raise(order)).sum::<u32>() as usize
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        // A panic while it is held cannot leave the maps half changed.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    /// Counts one more connection or stream of a peer, unless that exceeds a limit.
    fn enter(&mut self, peer: IpAddr, limits: ConnectionLimits) -> bool {
        let of_peer = self.peers.get(&peer).copied().unwrap_or_default();
        let has_room = self.all.len() - self.probes.len() + self.streams < limits.total && of_peer < limits.per_peer;
        if has_room {
            self.peers.insert(peer, of_peer + 1);
        }
        has_room
    }

    /// Admits one more connection beyond the limits, unless there are too many of those as well and all of them are answered.
    fn enter_probe(&mut self, activity: &Arc<Activity>) -> bool {
        // Those that were displaced have not left yet.
        if self.probes.len() >= 2 * PROBES.total {
            return false;
        }
        let is_of_peer = |one: &&Arc<Activity>| one.peer == activity.peer;
        let staying = || self.probes.iter().filter(|one| one.is_served());
        let displaced = if staying().filter(is_of_peer).count() >= PROBES.per_peer {
            staying().filter(is_of_peer).find(|one| one.has_no_request())
        } else if staying().count() >= PROBES.total {
            staying().find(|one| one.has_no_request())
        } else {
            self.probes.push(Arc::clone(activity));
            return true;
        };
        let Some(displaced) = displaced else { return false };
        displaced.raise(Order::Cut);
        self.probes.push(Arc::clone(activity));
        true
    }

    /// A connection or stream of a peer has ended.
    fn leave(&mut self, peer: IpAddr) {
        if let Some(of_peer) = self.peers.get_mut(&peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                self.peers.remove(&peer);
            }
        }
    }
}

impl Registered {
    /// Admits a request. `None` if it would be in flight beside others of its connection and exceed a limit, or if its
    /// connection is one beyond the limits and it is not a health check.
    pub(super) fn begin(&self, multiplexed: bool, path: &str) -> Option<Call> {
        if self.is_probe && (multiplexed || self.registry.probe_path != Some(path)) {
            self.registry.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let mut call = self.activity.begin(multiplexed);
        // A connection has one slot, so a request that is alone needs no other. HTTP/1 never does.
        if multiplexed && self.activity.calls.load(Ordering::Relaxed) > 1 {
            let (registry, peer) = (Arc::clone(&self.registry), self.activity.peer);
            {
                let mut connections = registry.lock();
                if !connections.enter(peer, registry.limits) {
                    registry.refused.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
                connections.streams += 1;
            }
            call.place = Some(Place { registry, peer });
        }
        Some(call)
    }

    /// Whether it is one beyond the limits, which gets one response.
    pub(super) fn is_probe(&self) -> bool {
        self.is_probe
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut connections = self.registry.lock();
        connections.streams -= 1;
        connections.leave(self.peer);
    }
}

impl Owner {
    pub(super) fn new(registry: Registry) -> Self {
        Self(Arc::new(registry))
    }

    /// Registers a connection, unless that exceeds a limit.
    pub(super) fn register(&self, address: IpAddr) -> Option<Registered> {
        let peer = Peer::network(address);
        let activity = Arc::new(Activity::new(peer, Arc::clone(&self.0.clock)));
        let id = Arc::as_ptr(&activity).addr() as u64;
        let (is_first, is_probe) = {
            let mut connections = self.0.lock();
            let is_probe = !connections.enter(peer, self.0.limits);
            if is_probe && !(self.0.probe_path.is_some() && connections.enter_probe(&activity)) {
                self.0.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            // INVARIANT: unique while registered, since the registry keeps what is at this address alive.
            connections.all.insert(id, Arc::clone(&activity));
            (connections.all.len() == 1, is_probe)
        };
        if is_first {
            self.0.filled.notify_one();
        }
        Some(Registered { registry: Arc::clone(&self.0), id, activity, is_probe })
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
            connections.all.remove(&self.id);
            if self.is_probe {
                connections.probes.retain(|one| !Arc::ptr_eq(one, &self.activity));
            } else {
                connections.leave(self.activity.peer);
            }
            connections.all.is_empty()
        };
        if last {
            self.registry.emptied.notify_one();
        }
    }
}

impl Call {
    /// Tracks from now on whether the client reads the response on this stream.
    pub(super) fn watch(&mut self, stream: &Arc<Stream>) {
        self.activity.streams().push(Arc::clone(stream));
        self.stream = Some(Arc::clone(stream));
    }

    /// Records the client of the current response, unless it is the peer.
    pub(super) fn is_for(&self, client: Option<IpAddr>) {
        *self.activity.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// The time, in ticks.
    pub(super) fn now(&self) -> u32 {
        self.activity.clock.load(Ordering::Relaxed)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(ended) = self.stream.take() {
            self.activity.streams().retain(|stream| !Arc::ptr_eq(stream, &ended));
        }
        // Before the count, so that a concurrent tick does not see the connection wait since long ago.
        self.activity.wait_for(Waiting::Idle);
        self.activity.calls.fetch_sub(1, Ordering::Release);
    }
}

fn in_ticks(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX / 2)
}
