//! One proxy: the port, the pages beside the protocol, the chain, and who answers behind it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use skep_mcp::Message;
use skep_net::body::{Limit, collect, discard};
use skep_net::headers::remove_hop_by_hop;
use skep_net::{Body, BodyError, Peer};

use crate::chain::{Chain, too_large};
use crate::exchange::{Content, Exchange, Flow};
use crate::health::Health;
use crate::http::{SESSION, is_of_type, json, text};
use crate::metrics::Metrics;
use crate::stdio::sse::Sse;
use crate::stdio::streamable::Streamable;
use crate::transparent::Transparent;

/// How long the sender of a body may take for its next part, and how much that must be.
const PAUSE: Duration = Duration::from_secs(30);
const PACE: usize = 64 * 1024;
/// How much is read of a body that was refused, and for how long, so that its sender sees the answer.
const DISCARDED: usize = 16 * 1024 * 1024;
const DISCARDING: Duration = Duration::from_secs(10);

/// Who answers.
#[derive(Debug)]
pub enum Front {
    /// A stdio server, behind Streamable HTTP.
    Streamable(Arc<Streamable>),
    /// A stdio server, behind HTTP with a stream of events beside it.
    Sse(Arc<Sse>),
    /// A server that speaks HTTP itself.
    Transparent(Arc<Transparent>),
}

/// A proxy.
#[derive(Debug)]
pub struct Proxy {
    chain: Chain,
    front: Front,
    health: Arc<Health>,
    /// What is counted, if it is shown on the proxy's own port.
    metrics: Option<Arc<Metrics>>,
}

// === impl Proxy ===

impl Proxy {
    /// A proxy.
    pub fn new(chain: Chain, front: Front, health: Arc<Health>, metrics: Option<Arc<Metrics>>) -> Arc<Self> {
        Arc::new(Self { chain, front, health, metrics })
    }

    /// Answers a request.
    pub async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let (mut parts, mut body) = request.into_parts();
        match parts.uri.path() {
            "/health" => return self.health.page(&parts.method),
            "/metrics" => {
                return self.metrics.as_deref().map_or_else(no_metrics, metrics_page);
            }
            path if path.starts_with("/.well-known/") => {
                return json(StatusCode::NOT_FOUND, Bytes::from_static(br#"{"error":"not_found"}"#));
            }
            _ => {}
        }
        // Before anybody looks: what the caller names in `Connection` must not be what a layer adds for the server.
        remove_hop_by_hop(&mut parts.headers);
        if let Some(refusal) = self.refuse(&parts.method, &parts.uri, &parts.headers) {
            return refusal;
        }
        let bytes = match collect(&mut body, Limit { bytes: self.chain.body_limit(), idle: PAUSE, pace: PACE }).await {
            Ok(bytes) => bytes,
            Err(BodyError::TooLarge { .. }) => {
                // Who waits for our word before it sends does not send now.
                if !parts.headers.contains_key(http::header::EXPECT) {
                    tokio::spawn(discard(body, DISCARDED, DISCARDING));
                }
                return too_large();
            }
            Err(error @ BodyError::Stalled { .. }) => return text(StatusCode::REQUEST_TIMEOUT, &error.to_string()),
            Err(BodyError::Broken(_)) => return text(StatusCode::BAD_REQUEST, "the body broke off"),
        };
        let content = self.read(&parts.method, &parts.uri, &parts.headers, bytes);
        let mut exchange = Exchange::new(parts, peer, content);
        let answer = self.pass(&mut exchange).await;
        exchange.observed(answer)
    }

    /// Puts a call through the chain and to whoever answers it.
    async fn pass(&self, exchange: &mut Exchange) -> Response<Body> {
        if let Flow::Answer(answer) = self.chain.request(exchange) {
            return answer;
        }
        if let Err(refusal) = one_session(exchange) {
            return *refusal;
        }
        match &self.front {
            Front::Streamable(front) => front.call(exchange).await,
            Front::Sse(front) if exchange.uri.path() == "/sse" => front.open(exchange).await,
            Front::Sse(front) => front.message(exchange).await,
            Front::Transparent(front) => front.call(exchange).await,
        }
    }

    /// What nobody answers, whoever asks.
    fn refuse(&self, method: &Method, uri: &Uri, headers: &http::HeaderMap) -> Option<Response<Body>> {
        let is_known = match &self.front {
            Front::Streamable(_) => uri.path() == "/mcp",
            Front::Sse(_) => matches!(uri.path(), "/sse" | "/messages"),
            Front::Transparent(front) => return front.gate(method, headers),
        };
        (!is_known).then(|| text(StatusCode::NOT_FOUND, "404 page not found"))
    }

    /// Reads a body, once.
    fn read(&self, method: &Method, uri: &Uri, headers: &http::HeaderMap, bytes: Bytes) -> Content {
        let is_message = match &self.front {
            Front::Streamable(_) | Front::Sse(_) => method == Method::POST,
            Front::Transparent(front) => front.expects_message(method, uri, headers),
        };
        let is_json = is_of_type(headers.get(http::header::CONTENT_TYPE), "application/json");
        if bytes.is_empty() || !(is_message || is_json || self.chain.judges_content()) {
            return Content::Opaque(bytes);
        }
        match Message::parse(bytes.clone()) {
            Ok(message) => Content::Message(message),
            Err(why) => Content::Malformed(bytes, why),
        }
    }
}

/// Refuses a call whose session cannot be read in one way only: the server might read another one than was looked up here. A
/// header with nothing in it names none.
fn one_session(exchange: &mut Exchange) -> Result<(), Box<Response<Body>>> {
    let mut named = exchange.headers.get_all(SESSION).into_iter();
    let is_plain = match (named.next(), named.next()) {
        (None, _) => true,
        (Some(name), None) => !name.is_empty() && name.to_str().is_ok(),
        (Some(_), Some(_)) => false,
    };
    if is_plain {
        return Ok(());
    }
    let is_empty = exchange.headers.get_all(SESSION).into_iter().all(HeaderValue::is_empty);
    let request = exchange.message().filter(|message| message.kind() == skep_mcp::Kind::Request);
    // A handshake opens a session of its own, whatever was named.
    if is_empty || request.is_some_and(|message| message.method() == Some("initialize")) {
        exchange.headers.remove(SESSION);
        return Ok(());
    }
    let id = request.and_then(Message::id);
    Err(Box::new(json(StatusCode::NOT_FOUND, skep_mcp::answer::session_not_found(id.as_ref()))))
}

/// What is said where no metrics are.
fn no_metrics() -> Response<Body> {
    let words = "metrics are not served on this port; see the diagnostics port";
    let mut page = text(StatusCode::NOT_FOUND, words);
    page.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    page
}

/// The page of metrics.
pub(crate) fn metrics_page(metrics: &Metrics) -> Response<Body> {
    let mut page = text(StatusCode::OK, &metrics.page());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    page.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    page
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
