//! What both endpoints do with a request before it goes to the upstream.

use http::{HeaderName, Response, StatusCode};
use skep_mcp::{Id, Message, MessageError, answer};
use skep_net::Body;
use skep_upstream::initialize::INITIALIZE;
use skep_upstream::{KEPT, SessionId};

use super::endpoint::Endpoint;
use crate::exchange::{Content, Exchange};
use crate::http::{json, text};
use crate::sessions::Unavailable;

/// The response to a request that goes no further. Boxed: it is rare, and every request would carry the room for it.
pub(crate) type Refusal = Box<Response<Body>>;

/// The message in the body of a request.
pub(super) fn message_of(exchange: &Exchange) -> Result<Message, Refusal> {
    match &exchange.content {
        Content::Message(message) => Ok(message.clone()),
        Content::Malformed(_, why @ MessageError::Batch) => {
            Err(Box::new(json(StatusCode::BAD_REQUEST, answer::malformed(*why))))
        }
        _ => Err(Box::new(text(StatusCode::BAD_REQUEST, "Invalid JSON-RPC 2.0 message"))),
    }
}

/// The session that a client names, if it is the client's. The upstream takes it over if another replica opened it.
pub(super) async fn find_session(
    endpoint: &Endpoint,
    id: String,
    exchange: &Exchange,
    request: Option<&Id>,
) -> Result<SessionId, Refusal> {
    match endpoint.sessions.find_keeping(&id, exchange, || endpoint.kept(exchange, None)).await {
        Ok(Some(found)) => {
            let session = SessionId::from(id);
            if let Some(initialize) = found.metadata.get(INITIALIZE) {
                endpoint.upstream.restore(&session, initialize.as_bytes());
            }
            if let Some(kept) = found.metadata.get(KEPT) {
                endpoint.upstream.restore_kept(&session, kept);
            }
            Ok(session)
        }
        Ok(None) => Err(Box::new(json(StatusCode::NOT_FOUND, answer::session_not_found(request)))),
        Err(unavailable) => Err(Box::new(store_unavailable(&unavailable))),
    }
}

/// A header that is there once and not empty.
pub(super) fn header(exchange: &Exchange, name: &HeaderName) -> Option<String> {
    let value = exchange.head.headers.get(name)?.to_str().ok()?;
    (!value.is_empty()).then(|| value.to_owned())
}

/// The response while sessions cannot be looked up.
pub(crate) fn store_unavailable(unavailable: &Unavailable) -> Response<Body> {
    tracing::warn!(%unavailable, "session store unavailable");
    text(StatusCode::SERVICE_UNAVAILABLE, "session store unavailable")
}
