//! Connections that wait for their next request.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// A connection that takes a request.
#[derive(Debug)]
pub(super) enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

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
    /// Unused HTTP/1.1 connections, the one used last at the end.
    idle: Vec<(http1::SendRequest<Body>, Instant)>,
    /// The HTTP/2 connection, which all requests share, and when it was last given out.
    shared: Option<(http2::SendRequest<Body>, Instant)>,
}

/// The body of an answer with the connection that it comes from.
#[derive(Debug)]
pub(crate) struct Leased {
    incoming: Incoming,
    /// Gone when the connection is back in the pool.
    lease: Option<(http1::SendRequest<Body>, Arc<Host>)>,
}

/// What a host has.
enum Taken {
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
            Self::Http2(sender) => Either::Right(Box::pin(sender.try_send_request(request))),
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

    /// Closes what was not used for long, and forgets hosts of which nothing is left.
    fn close_unused(&self) {
        let Some(oldest) = Instant::now().checked_sub(self.idle_timeout) else { return };
        lock(&self.hosts).retain(|_, host| {
            let mut connections = lock(&host.connections);
            connections.idle.retain(|(sender, since)| !sender.is_closed() && *since > oldest);
            let unused = connections.idle.len();
            connections.idle.shrink_to(unused * 2);
            // Streams under way keep their connection by themselves.
            connections.shared.take_if(|(sender, since)| sender.is_closed() || *since <= oldest);
            // A request under way still holds the host.
            unused > 0 || connections.shared.is_some() || Arc::strong_count(host) > 1
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
            Taken::Ready(sender) => return Some(sender),
            Taken::None => return None,
            Taken::NotYet => {}
        }
        // Its answer has just ended, and its task has not come around to say so. One turn is enough, unless the backend
        // answered before it read the request; then the connection is of no use for now.
        tokio::task::yield_now().await;
        match self.take_ready() {
            Taken::Ready(sender) => Some(sender),
            Taken::None | Taken::NotYet => None,
        }
    }

    fn take_ready(&self) -> Taken {
        let mut connections = lock(&self.connections);
        let Connections { idle, shared } = &mut *connections;
        if let Some((sender, used)) = shared {
            if sender.is_ready() {
                *used = Instant::now();
                return Taken::Ready(Sender::Http2(sender.clone()));
            }
            *shared = None;
        }
        // The one used last first: the others may grow old and go.
        for position in (0..idle.len()).rev() {
            match idle.get(position) {
                Some((sender, _)) if sender.is_ready() => {
                    return Taken::Ready(Sender::Http1(idle.remove(position).0));
                }
                Some((sender, _)) if sender.is_closed() => drop(idle.remove(position)),
                _ => {}
            }
        }
        if idle.is_empty() { Taken::None } else { Taken::NotYet }
    }

    /// Makes a connection the one that all requests share.
    pub(super) fn share(&self, sender: http2::SendRequest<Body>) {
        lock(&self.connections).shared = Some((sender, Instant::now()));
    }

    /// Keeps a connection for the next request, unless enough are kept.
    fn put(&self, sender: http1::SendRequest<Body>) {
        let mut connections = lock(&self.connections);
        if connections.idle.len() < self.most && !sender.is_closed() {
            connections.idle.push((sender, Instant::now()));
        }
    }
}

/// A panic while one of these is held cannot leave it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leased {
    pub(super) fn new(incoming: Incoming, sender: http1::SendRequest<Body>, host: Arc<Host>) -> Self {
        let mut leased = Self { incoming, lease: Some((sender, host)) };
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
            // A connection that broke is worth nothing.
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
        if let Some((sender, host)) = self.lease.take() {
            host.put(sender);
        }
    }
}
