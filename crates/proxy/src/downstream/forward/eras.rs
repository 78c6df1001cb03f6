//! Requests of an era that the server does not serve. The server itself is tried first, so that a server of both eras serves each client
//! in its own, and nothing of the client's era waits for a probe. What it refuses because of its era, and what comes after, goes to an
//! endpoint in front of the era bridge.
//!
//! | request | the server's response | then |
//! | --- | --- | --- |
//! | `initialize` | an error that only modern servers have | legacy clients go to the bridge, with sessions of its own kind |
//! | `server/discover` | refused, or an error of the legacy era | modern clients go to the bridge |
//! | another modern one | refused without an answer to its id | `server/discover` is asked in the client's name, and decides |
//!
//! What is known is forgotten after a while: the server may have been replaced.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use skep_mcp::headers::{METHOD, NAME, PROTOCOL_VERSION, SESSION_ID};
use skep_mcp::{Era, Eras, Kind, Message, answer, era, message, sse, value};
use skep_net::Body;
use skep_net::body::{Limit, collect};
use skep_upstream::http::{HttpUpstream, ServerRequest};
use skep_upstream::{ClientContext, discover_request, eras_of};
use tokio::time::Instant;

use crate::downstream::streamable::Streamable;
use crate::exchange::Exchange;
use crate::http::is_of_type;

/// How long it is remembered that the server does not serve an era.
const REMEMBERED: Duration = Duration::from_mins(5);
/// How much is read of a response that may be a refusal. Those have a few hundred bytes, and a server may list what it can do.
const REFUSAL: Limit = Limit { bytes: 1024 * 1024, idle: Duration::from_secs(30), pace: 1 };
const EVENTS: sse::Limits = sse::Limits { line: REFUSAL.bytes, event: REFUSAL.bytes };

/// The endpoints in front of the era bridge, and what is known of the server.
#[derive(Debug)]
pub struct EraBridge {
    /// For legacy clients of a modern server.
    legacy: Arc<Streamable>,
    /// For modern clients of a legacy server.
    modern: Arc<Streamable>,
    /// Whether the server has other paths beside the endpoint of the protocol.
    has_other_paths: bool,
    known: Mutex<EraCache>,
}

/// Since when it is known which era the server does not serve, and whether it is known that it serves the modern one.
#[derive(Debug, Default)]
struct EraCache {
    not_legacy: Option<Instant>,
    not_modern: Option<Instant>,
    is_modern: bool,
}

/// What a response says of the era of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It serves the era of the request, or the response says nothing of that.
    Served,
    /// It does not serve it.
    Refused,
    /// It may not serve it.
    Unclear,
}

/// The request that a response answers, as far as the era of the server shows in it.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    era: Era,
    is_discovery: bool,
    id: Option<skep_mcp::Id>,
}

// === impl Tried ===

impl Tried {
    pub(super) fn is_discovery(&self) -> bool {
        self.is_discovery
    }
}

// === impl EraBridge ===

impl EraBridge {
    /// Endpoints for clients of each era in front of a server of the other. `has_other_paths` says that the server
    /// has paths beside the endpoint of the protocol, whose requests are never bridged.
    pub fn new(legacy: Arc<Streamable>, modern: Arc<Streamable>, has_other_paths: bool) -> Self {
        Self { legacy, modern, has_other_paths, known: Mutex::default() }
    }

    /// The endpoint for the sessions that the bridge opened.
    pub(crate) fn of_session(&self) -> &Arc<Streamable> {
        &self.legacy
    }

    /// The endpoint for a request of an era that the server is known not to serve.
    pub(super) fn known_for(&self, tried: &Tried) -> Option<&Arc<Streamable>> {
        self.with(|known| {
            let since = match tried.era {
                Era::Legacy => &mut known.not_legacy,
                Era::Modern => &mut known.not_modern,
            };
            *since = since.filter(|since| since.elapsed() < REMEMBERED);
            since.is_some()
        })
        .then(|| self.endpoint(tried.era))
    }

    /// What a request tries, if the response to it may say something of the server's era.
    pub(super) fn tries(&self, exchange: &Exchange) -> Option<Tried> {
        if self.has_other_paths && !exchange.head.path.is_endpoint || exchange.head.method != Method::POST {
            return None;
        }
        let request = exchange.message().filter(|message| message.kind() == Kind::Request)?;
        let era = exchange.era()?.ok()?;
        let is_discovery = request.method() == Some("server/discover");
        let is_handshake = request.method() == Some("initialize");
        (era == Era::Modern || is_handshake).then(|| Tried { era, is_discovery, id: request.id() })
    }

    /// Whether the request must be tried elsewhere. The response is given back as it came if not.
    pub(super) async fn check(
        &self,
        tried: &Tried,
        upstream: &HttpUpstream,
        request: &ServerRequest,
        response: Response<Body>,
    ) -> Result<Response<Body>, &Arc<Streamable>> {
        if !self.may_say_era(tried, &response) {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let Ok(body) = collect(body, REFUSAL).await else {
            // It broke off, or is far too long for an answer to this.
            let mut failed = Response::new(Body::empty());
            *failed.status_mut() = StatusCode::BAD_GATEWAY;
            return Ok(failed);
        };
        let verdict = match verdict(tried, parts.status, &parts.headers, &body) {
            Verdict::Unclear => {
                let is_known = self.with(|known| known.is_modern);
                let is_modern = if is_known { Some(true) } else { probe(upstream, request).await };
                match is_modern {
                    None => Verdict::Unclear,
                    Some(is_modern) if is_modern == (tried.era == Era::Modern) => Verdict::Served,
                    Some(_) => Verdict::Refused,
                }
            }
            verdict => verdict,
        };
        self.learn(tried, verdict);
        match verdict {
            Verdict::Refused => Err(self.endpoint(tried.era)),
            Verdict::Served | Verdict::Unclear => Ok(Response::from_parts(parts, Body::full(body))),
        }
    }

    /// Whether a response may say something of the server's era that is not known. Any other passes unread.
    fn may_say_era(&self, tried: &Tried, response: &Response<Body>) -> bool {
        let status = response.status();
        let is_known = self.with(|known| known.is_modern);
        may_be_refusal(status) || tried.is_discovery && status.is_success() && !is_known
    }

    fn learn(&self, tried: &Tried, verdict: Verdict) {
        let now = Some(Instant::now());
        self.with(|known| match (tried.era, verdict) {
            (Era::Legacy, Verdict::Refused) => {
                tracing::info!(
                    "translating for clients of versions before 2026-07-28, which the server does not support"
                );
                known.not_legacy = now;
            }
            (Era::Modern, Verdict::Refused) => {
                tracing::info!("translating for clients of 2026-07-28, which the server does not support");
                (known.not_modern, known.is_modern) = (now, false);
            }
            (Era::Modern, Verdict::Served) => known.is_modern |= tried.is_discovery,
            (Era::Legacy, Verdict::Served) | (_, Verdict::Unclear) => {}
        });
    }

    fn endpoint(&self, era: Era) -> &Arc<Streamable> {
        match era {
            Era::Legacy => &self.legacy,
            Era::Modern => &self.modern,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut EraCache) -> T) -> T {
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a response says. A modern server answers every request in its own terms; what answers in none is another one.
fn verdict(tried: &Tried, status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Verdict {
    let message = response_in(headers, body);
    let error = message.as_ref().and_then(Message::error);
    let code = error.and_then(|error| value::find(error, &["code"])?.parse::<i64>().ok());
    let supports_modern = || {
        let supported = error.and_then(|error| value::find(error, &["data", "supported"])).unwrap_or_default();
        value::has_text(supported, era::MODERN)
    };
    match (tried.era, code) {
        (Era::Legacy, Some(code))
            if code == answer::HEADER_MISMATCH || code == answer::UNSUPPORTED_VERSION && supports_modern() =>
        {
            Verdict::Refused
        }
        (Era::Legacy, Some(answer::METHOD_NOT_FOUND)) => Verdict::Unclear,
        (Era::Modern, Some(answer::UNSUPPORTED_VERSION)) if !supports_modern() => Verdict::Refused,
        // One that failed may answer the next time.
        (Era::Legacy, _)
        | (
            Era::Modern,
            Some(
                answer::HEADER_MISMATCH
                | answer::MISSING_CAPABILITY
                | answer::UNSUPPORTED_VERSION
                | answer::INTERNAL_ERROR,
            ),
        ) => Verdict::Served,
        (Era::Modern, None) if tried.is_discovery && status.is_success() => match &message {
            Some(found) if eras_of(found) != Eras::Legacy => Verdict::Served,
            _ => Verdict::Refused,
        },
        (Era::Modern, _) if tried.is_discovery => Verdict::Refused,
        (Era::Modern, Some(_)) if message.and_then(|message| message.id()) == tried.id => Verdict::Served,
        (Era::Modern, _) => Verdict::Unclear,
    }
}

/// The response in a body, whichever framing it has.
fn response_in(headers: &HeaderMap, body: &Bytes) -> Option<Message> {
    let is_response = |message: &Message| matches!(message.kind(), Kind::Response | Kind::Error);
    if !is_of_type(headers.get(header::CONTENT_TYPE), "text/event-stream") {
        return Message::parse(message::without_byte_order_mark(body.clone())).ok().filter(is_response);
    }
    let mut reader = sse::Reader::new(EVENTS);
    reader.feed(body);
    while let Ok(Some(item)) = reader.next_item() {
        let sse::Item::Event(event) = item else { continue };
        let found = event.data.and_then(|data| Message::parse(data).ok()).filter(is_response);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Asks the server in the name of a client whether it speaks 2026-07-28. Nothing if it does not say.
async fn probe(upstream: &HttpUpstream, like: &ServerRequest) -> Option<bool> {
    let discover = Message::parse(discover_request().into()).ok()?;
    let mut request = like.clone();
    request.body = discover.body().clone();
    for name in [SESSION_ID, NAME] {
        request.headers.remove(name);
    }
    request.headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(era::MODERN));
    request.headers.insert(METHOD, HeaderValue::from_static("server/discover"));
    request.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let response = upstream.forward(None, &mut request).await.ok()?;
    let (parts, body) = response.into_parts();
    if parts.status.is_server_error() || !may_be_refusal(parts.status) && parts.status.is_client_error() {
        return None;
    }
    let body = collect(body, REFUSAL).await.ok()?;
    Some(response_in(&parts.headers, &body).is_some_and(|found| eras_of(&found) != Eras::Legacy))
}

/// Whether a status may be that of a request of the wrong era, and not about its client.
fn may_be_refusal(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status.as_u16(), 401 | 403 | 407 | 408 | 413 | 429)
}

/// Headers that say how a message is sent, and not by whom: the bridge has its own.
const OF_MESSAGE: [&str; 13] = [
    "accept",
    "accept-encoding",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "origin",
];

/// What the server may have to know of the client of a request that is translated: all headers that it would have got.
pub(crate) fn client_of(exchange: &Exchange) -> ClientContext {
    let mut headers = HeaderMap::new();
    for (name, value) in &exchange.head.headers {
        if !OF_MESSAGE.contains(&name.as_str()) && !name.as_str().starts_with("mcp-param-") {
            headers.append(name, value.clone());
        }
    }
    let (caller, peer) = (exchange.head.caller.clone(), Some(exchange.head.client));
    ClientContext { caller, headers, peer, ..ClientContext::default() }
}

#[cfg(test)]
mod tests;
