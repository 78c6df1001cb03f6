//! A response that middleware must see as a whole.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use skep_mcp::{Message, answer, message, value};
use skep_net::body::{Intake, Limit, PASSING, collect_within};
use skep_net::budget::{OverBudgetError, Purpose};
use skep_net::{Body, BodyError};

use super::stream::is_packed;
use super::{Forward, RESPONSE};
use crate::chain::reply::ReplyChain;
use crate::exchange::Exchange;
use crate::http::{json, over_budget};

// === impl Forward ===

impl Forward {
    /// A whole reply, as its middleware lets it through. It is read when there is room for it, in the same share as its request: that is sent.
    pub(super) async fn whole(
        &self,
        exchange: &mut Exchange,
        response: Response<Body>,
        replies: &ReplyChain,
    ) -> Response<Body> {
        exchange.release_body();
        let (mut parts, body) = response.into_parts();
        // What is buffered of it before it is read.
        let body = match body.within(&exchange.head.budget).await {
            Ok(body) => body,
            Err(over) => return over_budget(&over, exchange.id().as_ref()),
        };
        // Beside that, there must be room for all of it.
        let most = exchange.head.budget.largest(Purpose::Response).saturating_sub(PASSING);
        let limit = Limit { bytes: RESPONSE.min(most), idle: Duration::from_mins(5), pace: 1 };
        let body = match collect_within(body, limit, Intake::of_response(&exchange.head.budget)).await {
            Ok(body) => body,
            Err(BodyError::OverBudget(over)) => {
                return over_budget(&over, exchange.id().as_ref());
            }
            Err(BodyError::TooLarge { .. }) if most < RESPONSE => {
                let too_long = OverBudgetError::TooLong { bytes: most + 1, most };
                return over_budget(&too_long, exchange.id().as_ref());
            }
            Err(error) => {
                tracing::warn!(%error, "reading a response for middleware failed");
                return json(StatusCode::BAD_GATEWAY, answer::internal(None));
            }
        };
        // A list is one whatever its status. What is no reply may be forwarded, but not as a success; of what its client must unpack first
        // that is not known.
        let body = message::without_byte_order_mark(body);
        let (start, length) = (body.as_ptr() as usize, body.len());
        let is_success = parts.status.is_success();
        let is_other = || self.upstream.is_sse() && !may_hold_json(&body) || !is_success && is_not_a_reply(&body);
        let is_none = body.is_empty() || !is_packed(&parts.headers) && is_other();
        match if is_none { Ok(body) } else { evaluated(replies, body).await } {
            Ok(body) => {
                parts.headers.remove(header::CONTENT_LENGTH);
                // A body that passes unchanged is counted since it was read.
                let is_counted = body.as_ptr() as usize == start && body.len() == length;
                Response::from_parts(parts, if is_counted { Body::counted(body) } else { Body::full(body) })
            }
            // A status other than that of a success is about the session or the client, which must know it.
            Err(refusal) if !is_success => json(parts.status, refusal),
            Err(refusal) => json(StatusCode::INTERNAL_SERVER_ERROR, refusal),
        }
    }
}

/// Whether no client can find a reply in a text: prose, or an object that is not a message and has no result. Servers put such into errors
/// and into events of other names.
pub(super) fn is_not_a_reply(text: &Bytes) -> bool {
    !may_hold_json(text) || value::is_object_without(text, "result") && Message::parse(text.clone()).is_err()
}

/// Whether a lenient client may find JSON in a text. Over HTTP+SSE, the response to most requests is `Accepted`. What is in front of the
/// first printable character does not count, since clients differ in what they take for white space.
fn may_hold_json(text: &[u8]) -> bool {
    matches!(text.iter().find(|byte| byte.is_ascii_graphic()), Some(b'{' | b'['))
}

/// An answer as its client should see it, or an error instead of it.
pub(super) async fn evaluated(replies: &ReplyChain, body: Bytes) -> Result<Bytes, Bytes> {
    let parsed = Message::parse(message::without_byte_order_mark(body));
    let message = parsed.map_err(|why| {
        tracing::error!(%why, "reply withheld: malformed message");
        answer::withheld(None)
    })?;
    let id = message.id();
    if message.method().is_some() {
        return Ok(message.into_body());
    }
    replies.reply(message).await.map(Message::into_body).map_err(|withheld| {
        tracing::error!(%withheld, "reply withheld");
        answer::withheld(id.as_ref())
    })
}
