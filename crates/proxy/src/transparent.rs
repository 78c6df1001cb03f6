//! A server that speaks HTTP, in the cluster or anywhere else: calls are passed on, and what comes back as well.
//!
//! ```text
//!   method gate ─▶ chain ─▶ era ─▶ session ─▶ target, headers ─▶ send ─▶ redirects ─▶ answer
//!                                     ▲                            │ unknown session, or nobody there
//!                                     └──── a new handshake ◀──────┘
//! ```

mod endpoint;
mod open;
mod pods;
mod send;
mod session;
mod stream;
mod target;
mod unreachable;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use skep_mcp::{Id, Kind, Malformed, Message, answer, era};
use skep_net::headers::remove_hop_by_hop;
use skep_net::{Body, Client, Drain};

use self::endpoint::EndpointRoute;
pub use self::pods::{Answer, Pods};
use self::send::Outgoing;
pub use self::target::{Target, TargetError};
pub(crate) use self::unreachable::reason as unreachable_reason;
use crate::chain::reply::ReplyChain;
use crate::downstream::request::{Refusal, store_unavailable};
use crate::exchange::{Content, Exchange};
use crate::health::Health;
use crate::http::{SESSION, VERSION, is_of_type, json, text};
use crate::sessions::{Sessions, Unavailable};

/// The longest answer that is read as a whole, because somebody must see it, in bytes.
const ANSWER: usize = 64 * 1024 * 1024;

/// The proxy.
#[derive(Debug)]
pub struct Transparent {
    target: Target,
    /// The pods behind the target, if it is a Service that may have several. Streams of events beside calls keep to the Service.
    pods: Option<Pods>,
    client: Client,
    sessions: Sessions,
    options: Options,
    /// Whether the server wants to be called by the name of its own machine: some refuse any other.
    as_local: AtomicBool,
    turns: session::Turns,
    drain: Drain,
}

/// How a proxy passes calls on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether the server speaks HTTP with a stream of events beside it.
    pub sse: bool,
    /// Whether the server answers POST only.
    pub stateless: bool,
    /// Whether `X-Forwarded-*` headers of callers are believed.
    pub trust_proxy_headers: bool,
    /// Put in front of the paths that callers are told.
    pub endpoint_prefix: String,
    /// What is known of the server, which clients are told when it cannot be reached.
    pub health: Option<Arc<Health>>,
}

/// A request that was checked, and where it goes.
struct Prepared {
    id: Option<Id>,
    is_initialize: bool,
    session: Option<session::ClientSession>,
    outgoing: Outgoing,
    /// Whether the pod of its session is gone, so that the server does not know the session.
    is_forgotten: bool,
}

/// Why there is no response.
enum ForwardError {
    /// The server cannot be reached, or broke off.
    Server(skep_net::client::Error),
    /// What is known of the session cannot be looked up.
    Store(Unavailable),
}

// === impl Transparent ===

impl Transparent {
    /// A proxy in front of a server.
    pub fn new(
        target: Target,
        pods: Option<Pods>,
        client: Client,
        sessions: Sessions,
        options: Options,
        drain: Drain,
    ) -> Arc<Self> {
        Arc::new(Self {
            target,
            pods: pods.filter(|_| !options.sse),
            client,
            sessions,
            options,
            as_local: AtomicBool::new(false),
            turns: session::Turns::default(),
            drain,
        })
    }

    /// Whether a body should be a message.
    pub(crate) fn expects_message(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        let is_json = is_of_type(headers.get(header::CONTENT_TYPE), "application/json");
        method == Method::POST && (is_json || uri.path().starts_with("/mcp") || !self.options.sse)
    }

    /// Refuses what a server without sessions cannot answer, before anybody looks at it.
    pub(crate) fn gate(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        let is_modern = headers.get(VERSION).is_some_and(|version| version == era::MODERN);
        let needs_session = matches!(*method, Method::GET | Method::HEAD | Method::DELETE);
        if !needs_session || !(self.options.stateless || is_modern) {
            return None;
        }
        let words = "method not allowed: server is stateless / stateless MCP revision (POST only)";
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, words);
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, OPTIONS"));
        Some(answer)
    }

    /// Answers a request.
    pub async fn call(self: &Arc<Self>, exchange: &mut Exchange) -> Response<Body> {
        let mut request = match self.prepare(exchange).await {
            Ok(request) => request,
            Err(refusal) => return *refusal,
        };
        let replies = exchange.reply_chain();
        let mut response = match self.forward(&mut request).await {
            Ok(response) => response,
            Err(error) => return self.failed(&error, request.id.as_ref()),
        };
        let Prepared { session, outgoing, is_initialize, .. } = &mut *request;
        let followed = self.follow(exchange, session.as_ref(), *is_initialize, outgoing, &mut response).await;
        if let Err(unavailable) = followed {
            return store_unavailable(&unavailable);
        }
        remove_hop_by_hop(response.headers_mut());
        exchange.is_passed_through = true;
        // It has the body of the request, which is counted for as long as it is there.
        outgoing.body = Bytes::new();
        self.answer(exchange, session.as_ref(), response, replies).await
    }

    /// Checks a request, and finds out where it goes.
    async fn prepare(&self, exchange: &mut Exchange) -> Result<Box<Prepared>, Refusal> {
        check_message(exchange)?;
        let request = exchange.message().filter(|message| message.kind() == Kind::Request);
        let id = request.and_then(Message::id);
        let is_initialize = request.is_some_and(|message| message.method() == Some("initialize"));
        let session = if is_initialize { None } else { self.named_session(exchange, id.as_ref()).await? };
        let endpoint = self.endpoint(exchange, id.as_ref()).await?;
        let uri = self.target.uri(&exchange.head.uri, endpoint.as_deref());
        let uri = uri.ok_or_else(|| text(StatusCode::BAD_REQUEST, "the path cannot be passed on"))?;
        let at_server = session.as_ref().map(session::ClientSession::at_server);
        let mut outgoing = self.outgoing(exchange, uri, at_server, is_initialize);
        let is_forgotten = match &self.pods {
            Some(pods) => Box::pin(self.choose_pod(pods, session.as_ref(), &mut outgoing)).await,
            None => false,
        };
        // Boxed: it is moved several times.
        Ok(Box::new(Prepared { id, is_initialize, session, outgoing, is_forgotten }))
    }

    /// The session that a request names, if it is the client's.
    async fn named_session(
        &self,
        exchange: &Exchange,
        id: Option<&Id>,
    ) -> Result<Option<session::ClientSession>, Refusal> {
        let named = exchange.head.headers.get(SESSION).and_then(|name| name.to_str().ok()).map(str::to_owned);
        let Some(name) = named.filter(|name| !name.is_empty()) else { return Ok(None) };
        match self.find(name, exchange).await {
            Ok(Some(session)) => Ok(Some(session)),
            Ok(None) => Err(json(StatusCode::NOT_FOUND, answer::session_not_found(id)).into()),
            Err(unavailable) => Err(store_unavailable(&unavailable).into()),
        }
    }

    /// The endpoint that the server named on the client's stream, where messages go beside one.
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

    /// Sends a request to the server. A session that the server does not know any more is initialized again.
    async fn forward(self: &Arc<Self>, request: &mut Prepared) -> Result<Response<Body>, ForwardError> {
        let Prepared { session, outgoing, is_forgotten, .. } = request;
        let renewed = match session {
            Some(session) if *is_forgotten => Box::pin(self.reinitialize(session, outgoing)).await,
            _ => None,
        };
        let sent = match renewed {
            Some(sent) => sent,
            None => self.send(outgoing).await.map_err(ForwardError::Server),
        };
        let never_reached = matches!(&sent, Err(ForwardError::Server(error)) if error.never_reached());
        let is_unknown = matches!(&sent, Ok(response) if response.status() == StatusCode::NOT_FOUND);
        let again = match session {
            // The Service knows who else is there.
            None if never_reached && outgoing.pod.is_some() => {
                self.go_to(None, outgoing);
                Some(Box::pin(self.send(outgoing)).await.map_err(ForwardError::Server))
            }
            Some(session) if never_reached || is_unknown && outgoing.method != Method::DELETE => {
                Box::pin(self.reinitialize(session, outgoing)).await
            }
            _ => None,
        };
        again.unwrap_or(sent)
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

    /// The answer as the caller gets it. What nobody must see is passed on as it comes.
    async fn answer(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        session: Option<&session::ClientSession>,
        response: Response<Body>,
        replies: ReplyChain,
    ) -> Response<Body> {
        let is_stream = is_of_type(response.headers().get(header::CONTENT_TYPE), "text/event-stream");
        let replies = if is_stream && self.options.sse { exchange.other_reply_chain() } else { replies };
        match is_stream {
            _ if self.passes_through(exchange, is_stream, &replies) => response,
            true => self.clone().stream(exchange, session, response, replies),
            false => Box::pin(self.whole(exchange, response, &replies)).await,
        }
    }

    /// Whether a response goes to the client as the very bytes that the server sends: no middleware sees what is in it, and it is no
    /// stream that lives as long as its session. What is no response to a message has nothing for middleware to see either: replies come
    /// as events only.
    fn passes_through(&self, exchange: &Exchange, is_stream: bool, replies: &ReplyChain) -> bool {
        if is_stream {
            replies.is_empty() && !self.stays_open(exchange)
        } else {
            replies.is_empty() || exchange.message().is_none()
        }
    }
}

/// Refuses a message that the server could read in another way than the proxy, and one that contradicts its headers.
fn check_message(exchange: &Exchange) -> Result<(), Refusal> {
    let ambiguous = match &exchange.content {
        Content::Malformed(_, why) if crate::middleware::parser::is_ambiguous(*why) => Some(*why),
        // Whatever it is called: servers may look at the body only.
        Content::Opaque(bytes) if is_list(bytes) => Some(Malformed::Batch),
        _ => None,
    };
    if let Some(why) = ambiguous {
        return Err(json(StatusCode::BAD_REQUEST, answer::malformed(why)).into());
    }
    let Some(message) = exchange.message().filter(|message| message.method().is_some()) else { return Ok(()) };
    let request = Some(message).filter(|message| message.kind() == Kind::Request);
    let version = exchange.head.headers.get(VERSION).and_then(|version| version.to_str().ok());
    // Also of a legacy request: what routes or authorizes by these headers does not look at the era first.
    let checked = request.map_or(Ok(()), |request| era::classify(version, request).map(drop));
    let checked = checked.and_then(|()| skep_mcp::headers::check(&exchange.head.headers, message));
    let id = request.and_then(Message::id);
    checked.map_err(|refusal| json(StatusCode::BAD_REQUEST, refusal.answer(id.as_ref())).into())
}

/// Whether a body is a list, as far as it is JSON at all.
fn is_list(body: &Bytes) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}
