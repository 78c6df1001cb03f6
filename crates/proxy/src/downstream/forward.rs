//! Forwarding to a server that speaks HTTP in the client's era: its framing, event ids and session ids reach the client as they are.
//!
//! ```text
//!   checks ─▶ session ─▶ stream endpoint (HTTP+SSE) ─▶ headers ─▶ HttpUpstream::forward ─▶ reply ─┬─ passes through as bytes
//!                                                                                                ├─ whole: one reply
//!                                                                                                └─ stream: each event
//! ```
//!
//! What is forwarded unread is decided in one function, [`Forward::passage`]. A request of an era that the server does not serve goes to the
//! era bridge (`eras`).

mod check;
mod eras;
mod passing;
mod public_url;
mod request_headers;
mod stream;
mod stream_endpoint;
mod unreachable;
mod whole;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use skep_mcp::{Era, Id, Kind, Message, answer};
use skep_net::headers::remove_hop_by_hop;
use skep_net::{Body, Drain};
use skep_upstream::http::{ForwardError, HttpUpstream, OpenedSession, ServerRequest, ServerSession};

pub use self::eras::EraBridge;
use self::eras::Tried;
pub(crate) use self::eras::client_of;
use self::stream::is_packed;
use self::stream_endpoint::{EndpointRoute, OpenEndpoints};
use super::request::{Refusal, store_unavailable};
use super::streamable::Streamable;
use crate::chain::reply::ReplyChain;
use crate::exchange::{Exchange, Head, era_without_message};
use crate::health::Health;
use crate::http::{SESSION, is_of_type, json, text};
use crate::sessions::{self, Sessions, Unavailable};

/// The longest response that is read as a whole, because middleware must see it, in bytes.
const RESPONSE: usize = 64 * 1024 * 1024;

/// The endpoint.
#[derive(Debug)]
pub struct Forward {
    upstream: Arc<HttpUpstream>,
    sessions: Sessions,
    options: ForwardOptions,
    endpoints: OpenEndpoints,
    drain: Drain,
    /// Where requests go of an era that the server does not serve.
    bridge: Option<EraBridge>,
}

/// How requests are forwarded.
#[derive(Clone, Debug, Default)]
pub struct ForwardOptions {
    /// Whether the server answers POST only.
    pub stateless: bool,
    /// Whether `X-Forwarded-*` headers of clients are trusted.
    pub trust_proxy_headers: bool,
    /// Put in front of the paths that clients are sent.
    pub endpoint_prefix: String,
    /// What is known of the server, for the response while it cannot be reached.
    pub health: Option<Arc<Health>>,
}

/// A request that was checked, as it is sent.
struct Prepared {
    id: Option<Id>,
    is_initialize: bool,
    session: Option<ServerSession>,
    request: ServerRequest,
    /// What it tries, if its response may say that the server is of the other era.
    tried: Option<Tried>,
}

/// Where a request goes.
enum Route {
    /// To the server.
    Server(Box<Prepared>),
    /// To the endpoint of the era bridge.
    Bridge(Arc<Streamable>),
}

/// How a response is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    /// As the very bytes that the server sends.
    Bytes,
    /// The same, of a stream that ends with its session.
    OpenStream,
    /// Event by event: middleware sees them, or they name a URL that the client cannot use.
    Events,
    /// When all of it is there: middleware sees it.
    Whole,
}

// === impl Forward ===

impl Forward {
    /// An endpoint in front of a server.
    pub fn new(upstream: Arc<HttpUpstream>, sessions: Sessions, options: ForwardOptions, drain: Drain) -> Arc<Self> {
        Self::bridged(upstream, sessions, options, drain, None)
    }

    /// The same with endpoints for the era that the server does not serve.
    pub fn bridged(
        upstream: Arc<HttpUpstream>,
        sessions: Sessions,
        options: ForwardOptions,
        drain: Drain,
        bridge: Option<EraBridge>,
    ) -> Arc<Self> {
        Arc::new(Self { upstream, sessions, options, endpoints: OpenEndpoints::default(), drain, bridge })
    }

    /// Whether the server speaks HTTP+SSE.
    pub(super) fn is_sse(&self) -> bool {
        self.upstream.is_sse()
    }

    /// Whether a body should be a message.
    pub(crate) fn expects_message(&self, head: &Head) -> bool {
        let is_json = is_of_type(head.headers.get(header::CONTENT_TYPE), "application/json");
        head.method == Method::POST && (is_json || head.path.takes_messages || !self.upstream.is_sse())
    }

    /// Refuses what a server without sessions cannot answer, before any middleware sees it.
    pub(crate) fn gate(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        let is_modern = era_without_message(headers) == Era::Modern;
        let needs_session = matches!(*method, Method::GET | Method::HEAD | Method::DELETE);
        if !needs_session || !(self.options.stateless || is_modern) {
            return None;
        }
        let reason = "method not allowed: server is stateless / stateless MCP revision (POST only)";
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, reason);
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, OPTIONS"));
        Some(refusal)
    }

    /// Answers a request.
    pub async fn call(self: &Arc<Self>, exchange: &mut Exchange) -> Response<Body> {
        let mut prepared = match self.prepare(exchange).await {
            Ok(Route::Server(prepared)) => prepared,
            Ok(Route::Bridge(endpoint)) => return Box::pin(endpoint.call(exchange)).await,
            Err(refusal) => return *refusal,
        };
        let Prepared { id, is_initialize, session, request, tried } = &mut *prepared;
        let mut response = match self.upstream.forward(session.as_ref(), request).await {
            Ok(response) => response,
            Err(error) => return self.failed(&error, id.as_ref()),
        };
        if let Some((tried, bridge)) = tried.as_ref().zip(self.bridge.as_ref()) {
            // Boxed: most calls are of the server's era.
            response = match Box::pin(bridge.check(tried, &self.upstream, request, response)).await {
                Ok(response) => response,
                Err(endpoint) => {
                    exchange.head.headers = std::mem::take(&mut request.headers);
                    return Box::pin(endpoint.call(exchange)).await;
                }
            };
        }
        let replies = exchange.reply_chain();
        let opened = if *is_initialize {
            self.upstream.opened_session(exchange.head.uri.path(), request, &response)
        } else {
            None
        };
        let followed = self.follow(exchange, session.as_ref(), opened, response.status()).await;
        if let Err(unavailable) = followed {
            return store_unavailable(&unavailable);
        }
        remove_hop_by_hop(response.headers_mut());
        exchange.is_passed_through = true;
        // It has the body of the request, which is counted for as long as it is there.
        request.body = Bytes::new();
        self.reply(exchange, session.as_ref(), response, replies).await
    }

    /// Checks a request, and finds out where it goes.
    async fn prepare(&self, exchange: &mut Exchange) -> Result<Route, Refusal> {
        check::check_message(exchange, self.upstream.is_sse())?;
        // The messages of HTTP+SSE are answered on their stream, by the server itself.
        let is_translated = !self.upstream.is_sse() || exchange.head.path.is_endpoint;
        let bridge = self.bridge.as_ref().filter(|_| is_translated);
        let tried = bridge.and_then(|bridge| bridge.tries(exchange));
        let known = bridge.zip(tried.as_ref()).and_then(|(bridge, tried)| bridge.known_for(tried));
        if let Some(endpoint) = known.cloned() {
            self.renew_headers(exchange);
            return Ok(Route::Bridge(endpoint));
        }
        let request = exchange.message().filter(|message| message.kind() == Kind::Request);
        let id = request.and_then(Message::id);
        let is_initialize = request.is_some_and(|message| message.method() == Some("initialize"));
        let session = if is_initialize { None } else { self.named_session(exchange, id.as_ref()).await? };
        let is_bridged = session.as_ref().is_some_and(|session| session.kind() == sessions::Kind::Streamable);
        if let Some(bridge) = self.bridge.as_ref().filter(|_| is_bridged) {
            self.renew_headers(exchange);
            return Ok(Route::Bridge(bridge.of_session().clone()));
        }
        let endpoint = self.endpoint(exchange, id.as_ref()).await?;
        let uri = self.upstream.target().uri(&exchange.head.uri, endpoint.as_deref());
        let uri = uri.ok_or_else(|| text(StatusCode::BAD_REQUEST, "the path cannot be forwarded"))?;
        let may_be_read = self.may_be_read(exchange, tried.as_ref());
        let request = self.request(exchange, uri, is_initialize, may_be_read);
        // Boxed: it is moved several times.
        Ok(Route::Server(Box::new(Prepared { id, is_initialize, session, request, tried })))
    }

    /// The session that a request names, if it is the client's.
    async fn named_session(&self, exchange: &Exchange, id: Option<&Id>) -> Result<Option<ServerSession>, Refusal> {
        let named = exchange.head.headers.get(SESSION).and_then(|name| name.to_str().ok()).map(str::to_owned);
        let Some(name) = named.filter(|name| !name.is_empty()) else { return Ok(None) };
        match self.sessions.find(&name, exchange).await {
            Ok(Some(session)) => Ok(Some(ServerSession::new(name, session))),
            Ok(None) => Err(json(StatusCode::NOT_FOUND, answer::session_not_found(id)).into()),
            Err(unavailable) => Err(store_unavailable(&unavailable).into()),
        }
    }

    /// The endpoint that the server named on the client's stream, for messages of HTTP+SSE.
    async fn endpoint(&self, exchange: &Exchange, id: Option<&Id>) -> Result<Option<String>, Refusal> {
        if !self.has_endpoint(exchange) {
            return Ok(None);
        }
        match Box::pin(self.find_endpoint(exchange)).await {
            Ok(EndpointRoute::Any) => Ok(None),
            Ok(EndpointRoute::To(endpoint)) => Ok(Some(endpoint)),
            Ok(EndpointRoute::None) => Err(json(StatusCode::NOT_FOUND, answer::session_not_found(id)).into()),
            Err(unavailable) => Err(store_unavailable(&unavailable).into()),
        }
    }

    /// Keeps the session that the server opened, and forgets one that it closed.
    async fn follow(
        &self,
        exchange: &Exchange,
        session: Option<&ServerSession>,
        opened: Option<OpenedSession>,
        status: StatusCode,
    ) -> Result<(), Unavailable> {
        let is_closed = status.is_success() || status == StatusCode::NOT_FOUND;
        if let Some(session) = session.filter(|_| exchange.head.method == Method::DELETE && is_closed) {
            self.sessions.close(session.name()).await?;
        }
        match opened {
            Some(opened) => self.sessions.adopt(&opened.id, exchange, opened.metadata).await,
            None => Ok(()),
        }
    }

    /// The response to a request that could not be forwarded.
    fn failed(&self, error: &ForwardError, id: Option<&Id>) -> Response<Body> {
        match error {
            ForwardError::Store(unavailable) => store_unavailable(unavailable),
            ForwardError::Server(error) => {
                tracing::warn!(%error, cause = ?std::error::Error::source(error), "server unreachable");
                json(StatusCode::BAD_GATEWAY, unreachable::body(id, error, self.options.health.as_deref()))
            }
        }
    }

    /// The response as the client gets it.
    async fn reply(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        session: Option<&ServerSession>,
        response: Response<Body>,
        replies: ReplyChain,
    ) -> Response<Body> {
        let is_stream = is_of_type(response.headers().get(header::CONTENT_TYPE), "text/event-stream");
        let replies = if is_stream && self.upstream.is_sse() { exchange.other_reply_chain() } else { replies };
        match self.passage(exchange, is_stream, is_packed(response.headers()), &replies) {
            Passage::Bytes => response,
            Passage::OpenStream => self.open_stream(exchange, session, response),
            Passage::Events => self.clone().stream(exchange, session, response, replies),
            Passage::Whole => Box::pin(self.whole(exchange, response, &replies)).await,
        }
    }

    /// Whether the response to a request may have to be read on its way, and so must not be compressed. What [`Forward::passage`] decides takes
    /// the head of the response; this is asked before the request is sent, so it is true wherever `passage` may be anything but bytes, and where
    /// the era bridge learns from the response.
    fn may_be_read(&self, exchange: &Exchange, tried: Option<&Tried>) -> bool {
        let is_seen = exchange.is_watched() || exchange.is_response_observed();
        is_seen || self.upstream.is_sse() || tried.is_some_and(Tried::is_discovery)
    }

    /// How a response is forwarded, and so whether it is read on its way. What is no response to a message has nothing for middleware to see:
    /// replies come as events only.
    ///
    /// This is the only place that decides it for a response that its client gets. [`EraBridge::check`] comes before, for it decides whose
    /// response the client gets: it reads one that may be a refusal of the client's era, and gives it back as it came if it is none.
    fn passage(&self, exchange: &Exchange, is_stream: bool, is_packed: bool, replies: &ReplyChain) -> Passage {
        let is_unseen = replies.is_empty();
        let has_endpoint = self.upstream.is_sse() && !is_packed;
        match is_stream {
            false if is_unseen || exchange.message().is_none() => Passage::Bytes,
            false => Passage::Whole,
            true if is_unseen && !self.stays_open(exchange) => Passage::Bytes,
            true if is_unseen && !has_endpoint => Passage::OpenStream,
            true => Passage::Events,
        }
    }
}
