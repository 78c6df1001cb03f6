//! One proxy: the port, the pages beside the protocol, the chain, and who answers behind it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use skep_mcp::{Message, answer};
use skep_net::body::{Intake, Limit, collect_within, discard};
use skep_net::budget::{OverBudgetError, Purpose};
use skep_net::headers::remove_hop_by_hop;
use skep_net::serve::ForwardedFor;
use skep_net::{Body, BodyError, Budget, Peer};

use crate::chain::{AnsweredBy, Chain, Flow};
use crate::cors;
use crate::downstream::forward::Forward;
use crate::downstream::sse::Sse;
use crate::downstream::streamable::Streamable;
use crate::exchange::{Content, Exchange, Head};
use crate::health::Health;
use crate::hosts::Hosts;
use crate::http::{SESSION, busy, is_of_type, json, over_budget, text};
use crate::in_flight::InFlight;
use crate::metrics::Metrics;
use crate::router::{BodyRule, Group, MESSAGES, OriginRule, OwnPages, Pages, Paths, STREAM};

/// How long the sender of a body may take for its next part, and how much that must be.
const PAUSE: Duration = Duration::from_secs(30);
const PACE: usize = 64 * 1024;
/// How many bytes a second it must bring over the whole body, once that first pause is over.
const RATE: usize = 16 * 1024;
/// How much is read of a body that was refused, and for how long, so that its sender sees the answer.
const DISCARDED: usize = 16 * 1024 * 1024;
const DISCARDING: Duration = Duration::from_secs(10);

/// Who answers.
#[derive(Clone, Debug)]
pub enum Front {
    /// An upstream, behind streamable HTTP.
    Streamable(Arc<Streamable>),
    /// An upstream, behind HTTP with a stream of events beside it.
    Sse(Arc<Sse>),
    /// A server that speaks HTTP in the client's era.
    Forward(Arc<Forward>),
}

/// A proxy.
#[derive(Debug)]
pub struct Proxy {
    chain: Chain,
    front: Front,
    health: Arc<Health>,
    /// What is counted, if it is shown on the proxy's own port.
    metrics: Option<Arc<Metrics>>,
    guards: Guards,
}

/// What holds for every request, whatever the chain says.
#[derive(Clone, Debug, Default)]
pub struct Guards {
    /// The names that the proxy answers to.
    pub hosts: Hosts,
    /// How much it buffers.
    pub budget: Budget,
    /// How many requests each client behind a trusted proxy has in flight.
    pub in_flight: InFlight,
    /// Pages of what is behind it.
    pub pages: Option<Arc<dyn Pages>>,
}

/// The response to a request whose body was not read.
struct Denial {
    response: Response<Body>,
    /// Whether the client may be sending the body all the same.
    is_body_sent: bool,
}

// === impl Front ===

impl Front {
    /// The paths that it owns.
    fn paths(&self) -> Paths {
        match self {
            Self::Streamable(front) => Paths::These(front.paths()),
            Self::Sse(_) => Paths::These(&[STREAM, MESSAGES]),
            Self::Forward(_) => Paths::All,
        }
    }
}

// === impl Proxy ===

impl Proxy {
    /// A proxy that answers to any name, and buffers as much as it takes.
    pub fn new(chain: Chain, front: Front, health: Arc<Health>, metrics: Option<Arc<Metrics>>) -> Arc<Self> {
        Self::guarded(chain, front, health, metrics, Guards::default())
    }

    /// A proxy behind guards.
    pub fn guarded(
        chain: Chain,
        front: Front,
        health: Arc<Health>,
        metrics: Option<Arc<Metrics>>,
        guards: Guards,
    ) -> Arc<Self> {
        chain.connect(Arc::new(front.clone()));
        Arc::new(Self { chain, front, health, metrics, guards })
    }

    /// Answers a request.
    pub async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let (mut parts, mut body) = request.into_parts();
        let origin = self.chain.allowed_origin(&parts.headers);
        // From the headers as they arrived: a client may name `X-Forwarded-For` in `Connection`, and it would be gone.
        let address = address_of(peer, &parts.headers, self.chain.trusts_proxies());
        let client = Peer::network(address);
        let group = Group::of(parts.uri.path(), self.front.paths(), self.guards.pages.as_deref());
        if let Some(response) = self.route(group, &mut parts, origin.is_some()) {
            return readable(response, origin);
        }
        let mut exchange = Exchange::new(Head::new(parts, peer), Content::Opaque(Bytes::new()));
        (exchange.head.address, exchange.head.client) = (address, client);
        exchange.head.budget = self.guards.budget.of_client(client);
        // The connections of a client without a proxy in front are limited already.
        if client != Peer::network(peer.address.ip()) {
            match self.guards.in_flight.begin(client) {
                Some(flight) => exchange.head.observe_with(Box::new(flight)),
                None => return readable(too_many_in_flight(), origin),
            }
        }
        let response = match self.receive(group, &mut exchange, &mut body).await {
            Ok(()) => self.forward(&mut exchange).await,
            Err(denial) => {
                // A client that waits for `100 Continue` does not send its body now.
                if denial.is_body_sent && !exchange.head.headers.contains_key(http::header::EXPECT) {
                    tokio::spawn(discard(body, DISCARDED, DISCARDING));
                }
                denial.response
            }
        };
        let mut response = self.count(&mut exchange, response).await;
        if client != Peer::network(peer.address.ip()) {
            response.extensions_mut().insert(ForwardedFor(client));
        }
        let origin = origin.filter(|_| !exchange.is_passed_through);
        readable(exchange.observed(response), origin)
    }

    /// Answers what is not for the chain: a request to a name that is not the proxy's, paths of other groups, paths without an owner.
    fn route(&self, group: Group, parts: &mut Parts, is_allowed_origin: bool) -> Option<Response<Body>> {
        if let Err(error) = self.guards.hosts.check(parts) {
            return Some(error.response());
        }
        // What is behind the proxy answers any method at its pages itself.
        if is_allowed_origin
            && group != Group::Pages
            && !self.is_forwarded()
            && cors::is_preflight(&parts.method, &parts.headers)
        {
            return Some(cors::preflight(&parts.headers));
        }
        // Where the chain decides about origins, a request goes through it.
        if group.rules().origin == OriginRule::Any {
            let (metrics, resource) = (self.metrics.as_deref(), self.chain.protected_resource());
            let others = self.guards.pages.as_deref();
            return group.response(parts, &OwnPages { health: &self.health, metrics, resource, others });
        }
        // Before any middleware: what the client names in `Connection` must not be what a middleware adds for the server.
        remove_hop_by_hop(&mut parts.headers);
        match &self.front {
            Front::Forward(front) => front.gate(&parts.method, &parts.headers),
            Front::Streamable(_) | Front::Sse(_) => None,
        }
    }

    /// Puts the head of a request through the chain, and reads its body if it is not denied.
    async fn receive(&self, group: Group, exchange: &mut Exchange, body: &mut Incoming) -> Result<(), Box<Denial>> {
        if let Flow::Answer(response) = self.chain.head(&mut exchange.head).await {
            return Err(Box::new(Denial { response, is_body_sent: !body.is_end_stream() }));
        }
        match self.collect(group.rules().body, body, &exchange.head.budget).await {
            Ok(bytes) => {
                exchange.content = self.read(&exchange.head, bytes);
                Ok(())
            }
            Err(error) => {
                let is_body_sent = matches!(error, BodyError::TooLarge { .. } | BodyError::OverBudget(_));
                let mut response = unread(&error);
                if let BodyError::TooLarge { .. } = error {
                    response.extensions_mut().insert(AnsweredBy("bodylimit".into()));
                }
                Err(Box::new(Denial { response, is_body_sent }))
            }
        }
    }

    /// Reads a body, if it may be as long as it is and there is room for it.
    async fn collect(&self, rule: BodyRule, body: &mut Incoming, budget: &Budget) -> Result<Bytes, BodyError> {
        let limit = match rule {
            BodyRule::Unread => 0,
            BodyRule::Chain => self.chain.body_limit(),
        };
        // What can never fit is too large, and not too large for now.
        let bytes = limit.min(budget.largest(Purpose::Request));
        collect_within(body, Limit { bytes, idle: PAUSE, pace: PACE }, Intake::of_request(budget, RATE)).await
    }

    /// Counts a response that is in memory until it is sent. It waits for room: the request was let in, and what others hold is given
    /// back in time. If it is not, the call is refused.
    async fn count(&self, exchange: &mut Exchange, response: Response<Body>) -> Response<Body> {
        let (parts, body) = response.into_parts();
        let counted = match body.try_within(&exchange.head.budget) {
            Ok(body) => Ok(body),
            Err(body) => {
                exchange.release_body();
                // Boxed: hardly any call waits, and every one would carry the room for it.
                Box::pin(self.wait_for_room(body, &exchange.head.budget)).await
            }
        };
        match counted {
            Ok(body) => Response::from_parts(parts, body),
            Err(over) => over_budget(&over, exchange.id().as_ref()),
        }
    }

    /// Waits for room, but not so long that the client would be cut without an answer when the proxy ends.
    async fn wait_for_room(&self, body: Body, budget: &Budget) -> Result<Body, OverBudgetError> {
        let bytes = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        tokio::select! {
            biased;
            body = body.within(budget) => body,
            () = self.health.last_moment() => Err(OverBudgetError::NoRoom { bytes, limit: budget.limit() }),
        }
    }

    fn is_forwarded(&self) -> bool {
        matches!(self.front, Front::Forward(_))
    }

    /// Puts a message through the chain and to the server.
    async fn forward(&self, exchange: &mut Exchange) -> Response<Body> {
        if let Flow::Answer(response) = self.chain.message(exchange).await {
            return response;
        }
        if let Err(refusal) = one_session(exchange) {
            return *refusal;
        }
        exchange.forwarded();
        match &self.front {
            Front::Streamable(front) => front.call(exchange).await,
            Front::Sse(front) if exchange.head.path.is_stream => front.open(exchange).await,
            Front::Sse(front) => front.message(exchange).await,
            Front::Forward(front) => front.call(exchange).await,
        }
    }

    /// Parses a body, once.
    fn read(&self, head: &Head, bytes: Bytes) -> Content {
        let is_message = match &self.front {
            Front::Streamable(_) | Front::Sse(_) => head.method == Method::POST,
            Front::Forward(front) => front.expects_message(head),
        };
        let is_json = is_of_type(head.headers.get(http::header::CONTENT_TYPE), "application/json");
        if bytes.is_empty() || !(is_message || is_json || self.chain.needs_message()) {
            return Content::Opaque(bytes);
        }
        match Message::parse(bytes.clone()) {
            Ok(message) => Content::Message(message),
            Err(why) => Content::Malformed(bytes, why),
        }
    }
}

/// A response of the proxy's own, which pages of this origin may read, if there is one.
fn readable(mut response: Response<Body>, origin: Option<HeaderValue>) -> Response<Body> {
    if let Some(origin) = origin {
        cors::allow(origin, response.headers_mut());
    }
    response
}

/// The address of the client: that of the peer, or the one that a trusted proxy in front of us saw, which is the last one that it
/// wrote down. What stands before that, the client may have written itself.
fn address_of(peer: Peer, headers: &http::HeaderMap, trusts_proxies: bool) -> IpAddr {
    let last = || {
        let line = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
        line.rsplit(',').next()?.trim().parse::<IpAddr>().ok()
    };
    let named = if trusts_proxies { last() } else { None };
    named.unwrap_or_else(|| peer.address.ip())
}

/// The response to a request whose body was not read.
fn unread(error: &BodyError) -> Response<Body> {
    match error {
        BodyError::TooLarge { .. } => too_large(),
        BodyError::Stalled { .. } | BodyError::TooSlow { .. } => text(StatusCode::REQUEST_TIMEOUT, &error.to_string()),
        BodyError::OverBudget(over) => {
            let mut response = over_budget(over, None);
            // The rest of the body is still on its way; it is not read.
            response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
        BodyError::Broken(_) => text(StatusCode::BAD_REQUEST, "the body broke off"),
    }
}

/// The response to a client that has too many requests in flight.
fn too_many_in_flight() -> Response<Body> {
    let text = "too many requests of this client are in flight; try again in a moment";
    let mut response = busy(answer::error(None, answer::INTERNAL_ERROR, text, None));
    // The rest of the request is still on its way; it is not read.
    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The response to a body that is longer than allowed.
fn too_large() -> Response<Body> {
    let mut response = text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
    // The rest of the body is still on its way; it is not read.
    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Refuses a call whose session cannot be read in one way only: the server might read another one than was looked up here. A
/// header with nothing in it names none.
fn one_session(exchange: &mut Exchange) -> Result<(), Box<Response<Body>>> {
    let mut named = exchange.head.headers.get_all(SESSION).into_iter();
    let is_plain = match (named.next(), named.next()) {
        (None, _) => true,
        (Some(name), None) => !name.is_empty() && name.to_str().is_ok(),
        (Some(_), Some(_)) => false,
    };
    if is_plain {
        return Ok(());
    }
    let is_empty = exchange.head.headers.get_all(SESSION).into_iter().all(HeaderValue::is_empty);
    let request = exchange.message().filter(|message| message.kind() == skep_mcp::Kind::Request);
    // A handshake opens a session of its own, whatever was named.
    if is_empty || request.is_some_and(|message| message.method() == Some("initialize")) {
        exchange.head.headers.remove(SESSION);
        return Ok(());
    }
    let id = request.and_then(Message::id);
    Err(Box::new(json(StatusCode::NOT_FOUND, skep_mcp::answer::session_not_found(id.as_ref()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// A call is moved several times before it runs, with all the room that any way through it may need. What is rare is boxed.
    #[test]
    fn a_call_takes_little_room() {
        let room = room(Proxy::answer);
        assert!(room <= 4608, "{room} bytes");
    }
}
