//! Idle connections.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use http::{HeaderValue, Request, Response};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use tokio::time::Instant;

use super::Target;
use crate::{Body, headers};

/// How many streams are open on one HTTP/2 connection at once, if its peer allows as many. Requests beyond what it
/// allows would wait until a stream ends, which may be never. What it allows is known only after the first responses;
/// hardly any allows less.
pub(super) const STREAMS: usize = 64;

/// A connection that takes a request.
#[derive(Debug)]
pub(super) enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>, Stream),
}

/// One stream of an HTTP/2 connection. It counts as open while this exists.
#[derive(Debug)]
pub(super) struct Stream(#[expect(dead_code, reason = "only counted")] Arc<()>);

/// The connections of one client.
#[derive(Debug)]
pub(super) struct Pool {
    hosts: Mutex<HashMap<Target, Arc<Host>>>,
    idle_timeout: Duration,
    idle_per_host: usize,
    is_swept: AtomicBool,
}

/// The connections to one target that take requests.
#[derive(Debug)]
pub(super) struct Host {
    /// The `Host` header of requests for it.
    header: Option<HeaderValue>,
    most: usize,
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    /// Idle HTTP/1.1 connections, the one used last at the end.
    idle: Vec<(http1::SendRequest<Body>, Instant)>,
    /// HTTP/2 connections, which requests share. There is one, unless its streams are used up.
    shared: Vec<Shared>,
}

#[derive(Debug)]
struct Shared {
    sender: http2::SendRequest<Body>,
    /// Held here once, and once by each open stream.
    streams: Arc<()>,
    /// How many its peer allows.
    allowed: Arc<AtomicUsize>,
    /// When it was last used.
    used: Instant,
}

/// The body of a response with the connection that it comes from.
#[derive(Debug)]
pub(crate) struct Leased {
    incoming: Incoming,
    /// `None` when the response has ended.
    lease: Option<Lease>,
}

/// What a response holds until it has ended.
#[derive(Debug)]
pub(super) enum Lease {
    /// A connection, which then returns to its host.
    Connection(http1::SendRequest<Body>, Arc<Host>),
    /// A stream of one that others use as well.
    Stream(#[expect(dead_code, reason = "held for its drop")] Stream),
}

/// The result of a checkout.
enum Checkout {
    Ready(Sender),
    /// Connections that are not ready, but may be in a moment.
    NotYet,
    None,
}

impl Sender {
    /// Sends a request. The error holds the request if nothing of it was sent.
    pub(super) fn send(
        &mut self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Body>>>> + use<> {
        match self {
            Self::Http1(sender) => Either::Left(sender.try_send_request(request)),
            // Boxed: it is larger than the other, and shares a connection that costs more than a box.
            Self::Http2(sender, _) => Either::Right(Box::pin(sender.try_send_request(request))),
        }
    }
}

impl Pool {
    pub(super) fn new(idle_timeout: Duration, idle_per_host: usize) -> Arc<Self> {
        let is_swept = AtomicBool::new(false);
        Arc::new(Self { hosts: Mutex::default(), idle_timeout, idle_per_host, is_swept })
    }

    /// The connections to a target. The one place where a target is looked up: a request does it once.
    pub(super) fn host(self: &Arc<Self>, target: &Target) -> Arc<Host> {
        let mut hosts = lock(&self.hosts);
        if let Some(host) = hosts.get(target) {
            return Arc::clone(host);
        }
        let header = headers::host(&target.authority);
        let host = Arc::new(Host { header, most: self.idle_per_host, connections: Mutex::default() });
        hosts.insert(target.clone(), Arc::clone(&host));
        drop(hosts);
        if !self.is_swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self), self.idle_timeout));
        }
        host
    }

    /// Closes connections that were idle for long, and removes hosts without connections.
    fn close_unused(&self) {
        let Some(oldest) = Instant::now().checked_sub(self.idle_timeout) else { return };
        lock(&self.hosts).retain(|_, host| {
            let mut connections = lock(&host.connections);
            connections.idle.retain(|(sender, since)| !sender.is_closed() && *since > oldest);
            let unused = connections.idle.len();
            connections.idle.shrink_to(unused * 2);
            connections.shared.retain(|shared| shared.is_alive() && (shared.open() > 0 || shared.used > oldest));
            // A request in flight still holds the host.
            unused > 0 || !connections.shared.is_empty() || Arc::strong_count(host) > 1
        });
    }
}

async fn sweep(pool: Weak<Pool>, idle_timeout: Duration) {
    loop {
        tokio::time::sleep(idle_timeout / 4).await;
        match pool.upgrade() {
            Some(pool) => pool.close_unused(),
            None => return,
        }
    }
}

impl Host {
    /// The `Host` header of requests for it.
    pub(super) fn header(&self) -> Option<&HeaderValue> {
        self.header.as_ref()
    }

    /// A connection that is ready now.
    pub(super) async fn take(&self) -> Option<Sender> {
        match self.take_ready() {
            Checkout::Ready(sender) => return Some(sender),
            Checkout::None => return None,
            Checkout::NotYet => {}
        }
        // Its response has just ended, and its task has not run yet. One turn is enough, unless the backend responded
        // before it read the request; then the connection cannot be used for now.
        tokio::task::yield_now().await;
        match self.take_ready() {
            Checkout::Ready(sender) => Some(sender),
            Checkout::None | Checkout::NotYet => None,
        }
    }

    fn take_ready(&self) -> Checkout {
        let mut connections = lock(&self.connections);
        let Connections { idle, shared } = &mut *connections;
        shared.retain(Shared::is_alive);
        // The first one with room: the others may become idle and close.
        if let Some(shared) = shared.iter_mut().find(|shared| shared.has_room()) {
            return Checkout::Ready(shared.give());
        }
        // The one used last first, for the same reason.
        for position in (0..idle.len()).rev() {
            match idle.get(position) {
                Some((sender, _)) if sender.is_ready() => {
                    return Checkout::Ready(Sender::Http1(idle.remove(position).0));
                }
                Some((sender, _)) if sender.is_closed() => drop(idle.remove(position)),
                _ => {}
            }
        }
        if idle.is_empty() { Checkout::None } else { Checkout::NotYet }
    }

    /// Uses a new connection for a request. Others share it, unless there is one by now that they can share.
    pub(super) fn share(&self, sender: http2::SendRequest<Body>, allowed: Arc<AtomicUsize>) -> Sender {
        let mut new = Shared { sender, streams: Arc::default(), allowed, used: Instant::now() };
        let given = new.give();
        let shared = &mut lock(&self.connections).shared;
        if !shared.iter().any(|other| other.is_alive() && other.has_room()) {
            shared.push(new);
        }
        given
    }

    /// Keeps a connection for the next request, up to the limit.
    fn put(&self, sender: http1::SendRequest<Body>) {
        let mut connections = lock(&self.connections);
        if connections.idle.len() < self.most && !sender.is_closed() {
            connections.idle.push((sender, Instant::now()));
        }
    }
}

impl Shared {
    fn is_alive(&self) -> bool {
        self.sender.is_ready()
    }

    /// How many streams are open on it.
    fn open(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }

    fn has_room(&self) -> bool {
        self.open() < STREAMS.min(self.allowed.load(Ordering::Relaxed))
    }

    /// The connection for one more stream.
    fn give(&mut self) -> Sender {
        self.used = Instant::now();
        Sender::Http2(self.sender.clone(), Stream(Arc::clone(&self.streams)))
    }
}

/// A panic while one of these is held cannot leave it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leased {
    pub(super) fn new(incoming: Incoming, lease: Lease) -> Self {
        let mut leased = Self { incoming, lease: Some(lease) };
        leased.return_at_end();
        leased
    }

    pub(crate) fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(context);
        match &frame {
            Poll::Pending => {}
            Poll::Ready(None) => self.give_back(),
            Poll::Ready(Some(Ok(_))) => self.return_at_end(),
            // A broken connection is not reused.
            Poll::Ready(Some(Err(_))) => self.lease = None,
        }
        frame
    }

    fn return_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let Some(Lease::Connection(sender, host)) = self.lease.take() {
            host.put(sender);
        }
    }
}
