//! The one outbound client.
//!
//! ```text
//!   send(request) ─▶ idle connection of the pool, or ─▶ resolve ▶ address rule ▶ connect ▶ (proxy) ▶ (TLS)
//!                     ▲                                                                          │
//!                     └── the body of the response has ended ◀── response ◀── request ◀──────────┘
//! ```
//!
//! A request is written once. It is retried on another connection only when hyper returns it unsent, which happens when
//! a backend closed an idle connection at that moment. Redirects are responses like any other (see
//! [`crate::redirect`]).
//!
//! hyper's own pooling client spawns a task per response and boxes each call; this one does neither, and reports which
//! step failed.

mod dial;
mod error;
mod pool;

use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use rustls::ClientConfig;
use tokio::sync::OnceCell;
use tokio::time::timeout;

pub use self::error::{Error, Step};
pub(crate) use self::pool::Leased;
use self::pool::{Host, Lease, Pool, Sender};
use crate::proxies::{HttpProxy, Proxies};
use crate::tls::{Identity, Trust};
use crate::{Addresses, Body, headers};

/// The rules and time limits of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// The addresses that it may connect to. Checked after a name is resolved and before each connection is made, on
    /// the very address that is then dialled, so a name that resolves to something else the second time (DNS rebinding)
    /// gains nothing. An HTTP proxy resolves names itself: for a target behind one, only the name is checked, and the
    /// proxy decides which private addresses may be reached.
    pub addresses: Addresses,
    /// Whether plain HTTP is allowed.
    pub schemes: Schemes,
    /// Which servers it trusts.
    pub trust: Trust,
    /// The client certificate, for servers that request one.
    pub identity: Option<Identity>,
    /// The HTTP proxies that it uses.
    pub proxies: Proxies,
    /// Whether it offers HTTP/2 to TLS servers.
    pub http2: bool,
    /// The timeout for resolving and connecting together.
    pub dial_timeout: Duration,
    /// The timeout for a TLS handshake.
    pub handshake_timeout: Duration,
    /// The timeout for the head of a response; `None` means no timeout.
    pub response_timeout: Option<Duration>,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// How many idle HTTP/1.1 connections are kept per host. The number of those in use has no limit: streams hold them
    /// long. A host that speaks HTTP/2 has one connection, and another one for every 64 concurrent streams, or fewer if
    /// its settings say so.
    pub idle_per_host: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            addresses: Addresses::Machine,
            schemes: Schemes::Any,
            trust: Trust::System,
            identity: None,
            proxies: Proxies::default(),
            http2: true,
            dial_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            response_timeout: None,
            idle_timeout: Duration::from_secs(90),
            idle_per_host: 256,
        }
    }
}

/// Which schemes a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schemes {
    /// `http` and `https`.
    #[default]
    Any,
    /// `https` and nothing else.
    HttpsOnly,
}

/// Sends requests over pooled connections. Clones share the pool.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    /// Created on first use: many clients never use TLS, and the system roots are some hundred files.
    tls: OnceCell<Arc<ClientConfig>>,
    pool: Arc<Pool>,
}

/// The target of a request.
#[derive(Clone, Debug)]
struct Target {
    https: bool,
    authority: Authority,
}

impl Client {
    /// A client with these options.
    pub fn new(options: Options) -> Self {
        let pool = Pool::new(options.idle_timeout, options.idle_per_host);
        Self(Arc::new(Inner { options, tls: OnceCell::new(), pool }))
    }

    /// Sends a request to the absolute URI in it, and waits for the head of the response.
    ///
    /// Sets `Host` from the URI unless the request has one. Headers are sent as they are: hop-by-hop headers are the
    /// caller's to remove.
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, Error> {
        let inner = &*self.0;
        let uri = std::mem::take(request.uri_mut());
        let target = Target::of(&uri, inner.options.schemes)?;
        let host = inner.pool.host(&target);
        headers::set_host_if_missing(request.headers_mut(), host.header());
        // A proxy handles requests for plain HTTP itself; for https it only sees the tunnel.
        let proxy = inner.proxy(&target).filter(|_| !target.https);
        if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        // HTTP/2 has no `Host`; a retry after it may be on HTTP/1.1.
        let mut named = None;
        loop {
            let (mut sender, is_new) = match host.take().await {
                Some(sender) => (sender, false),
                // Boxed: connecting is rare and needs a large future, which every request would carry with it.
                None => (Box::pin(inner.connect(&target, &host)).await?, true),
            };
            address(&mut request, &uri, &mut named, &sender, proxy.is_some());
            let mut sent = pin!(sender.send(request));
            let sent = match inner.options.response_timeout {
                None => sent.await,
                Some(limit) => timeout(limit, &mut sent).await.map_err(|_| Error::Timeout { step: Step::Answer })?,
            };
            match sent {
                Ok(response) => return Ok(lease(sender, host, response)),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(Error::Send { target: target.to_string(), source: failed.into_error() }),
                },
            }
        }
    }
}

impl Inner {
    /// The proxy for a target, unless it is reached directly.
    fn proxy(&self, target: &Target) -> Option<&HttpProxy> {
        let proxies = &self.options.proxies;
        if proxies.is_empty() { None } else { proxies.find(target.https, target.host(), target.port()) }
    }
}

/// Ties the connection, or its stream, to the response until the last byte.
fn lease(sender: Sender, host: Arc<Host>, response: Response<Incoming>) -> Response<Body> {
    let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    response.map(|incoming| match sender {
        Sender::Http1(_) if is_upgrade => Body::from(incoming),
        Sender::Http1(sender) => Body::leased(Leased::new(incoming, Lease::Connection(sender, host))),
        Sender::Http2(_, stream) => Body::leased(Leased::new(incoming, Lease::Stream(stream))),
    })
}

/// Writes the target into a request in the form that its connection needs. `named` keeps the `Host` for a retry.
fn address(
    request: &mut Request<Body>,
    uri: &Uri,
    named: &mut Option<HeaderValue>,
    sender: &Sender,
    through_proxy: bool,
) {
    match sender {
        Sender::Http2(..) => {
            *request.version_mut() = Version::HTTP_2;
            // The authority of the URI has the same value.
            *named = request.headers_mut().remove(HOST).or_else(|| named.take());
            *request.uri_mut() = uri.clone();
        }
        Sender::Http1(_) => {
            *request.version_mut() = Version::HTTP_11;
            if let Some(host) = named.take() {
                request.headers_mut().insert(HOST, host);
            }
            let path = || uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
            *request.uri_mut() = if through_proxy { uri.clone() } else { Uri::from(path()) };
        }
    }
}

impl Target {
    fn of(uri: &Uri, schemes: Schemes) -> Result<Self, Error> {
        let https = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP && schemes == Schemes::Any => false,
            Some(scheme) => return Err(Error::Scheme { scheme: scheme.to_string() }),
            None => return Err(Error::Target),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or(Error::Target)?;
        if authority.host().is_empty() {
            return Err(Error::Target);
        }
        Ok(Self { https, authority: authority.clone() })
    }

    /// The host, an IPv6 address in brackets.
    fn host(&self) -> &str {
        self.authority.host()
    }

    fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.https { 443 } else { 80 })
    }
}

/// Targets are compared case-sensitively: cheaper, and the worst case is a second connection.
impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.https == other.https && self.authority.as_str() == other.authority.as_str()
    }
}

impl Eq for Target {}

impl Hash for Target {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.https.hash(state);
        self.authority.as_str().hash(state);
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.host(), self.port())
    }
}
