//! Checks of a message that is forwarded to a server which reads it again.

use bytes::Bytes;
use http::StatusCode;
use skep_mcp::{Kind, Message, MessageError, answer};

use crate::downstream::request::Refusal;
use crate::exchange::{Content, Exchange};
use crate::http::json;

/// Refuses a message that the server could read in another way than the proxy, and one that contradicts its headers. HTTP+SSE has no headers
/// for messages and is of no era: its servers answer clients that ask for 2026-07-28 themselves.
pub(super) fn check_message(exchange: &Exchange, is_sse: bool) -> Result<(), Refusal> {
    let ambiguous = match &exchange.content {
        Content::Malformed(_, why) if crate::middleware::parser::is_ambiguous(*why) => Some(*why),
        // Whatever it is called: servers may read the body only.
        Content::Opaque(bytes) if is_list(bytes) => Some(MessageError::Batch),
        _ => None,
    };
    if let Some(why) = ambiguous {
        return Err(json(StatusCode::BAD_REQUEST, answer::malformed(why)).into());
    }
    let Some(message) = exchange.message().filter(|message| message.method().is_some()) else { return Ok(()) };
    let request = Some(message).filter(|message| message.kind() == Kind::Request);
    let era = if is_sse { None } else { exchange.era() };
    let checked = era.map_or(Ok(()), |era| era.map(drop).map_err(Clone::clone));
    // Also of a legacy request: what routes or authorizes by these headers does not read the era first.
    let checked = checked.and_then(|()| skep_mcp::headers::check(&exchange.head.headers, message));
    let id = request.and_then(Message::id);
    checked.map_err(|refusal| json(StatusCode::BAD_REQUEST, refusal.answer(id.as_ref())).into())
}

/// Whether a body is a list, as far as it is JSON at all.
fn is_list(body: &Bytes) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}
