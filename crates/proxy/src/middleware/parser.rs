//! Refuses messages that two parsers could read differently.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use skep_mcp::MessageError;
use skep_net::Body;
use skep_runconfig::run_config::MiddlewareConfig;

use crate::chain::{ChainError, Context, Middleware, Pass, Step};
use crate::exchange::{Content, Exchange};
use crate::http::{json, text};

#[derive(Debug)]
struct Parser;

pub(super) fn build(_: &MiddlewareConfig, _: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    super::some(Parser)
}

impl Middleware for Parser {
    /// Refuses what is ambiguous. Invalid JSON is the server's to refuse.
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        match &exchange.content {
            Content::Malformed(_, why) if is_ambiguous(*why) => {
                json(StatusCode::BAD_REQUEST, skep_mcp::answer::malformed(*why)).into()
            }
            _ => Step::NEXT,
        }
    }
}

/// Refuses a body that a middleware cannot evaluate: the server might read it, or read it as something else.
pub(super) fn refuse_unreadable(exchange: &Exchange) -> Option<Response<Body>> {
    match &exchange.content {
        Content::Opaque(bytes) if bytes.is_empty() => None,
        Content::Message(_) if is_plain(&exchange.head.headers) => None,
        Content::Message(_) => Some(text(StatusCode::BAD_REQUEST, "send the body in UTF-8, and not packed")),
        Content::Malformed(_, why) => Some(json(StatusCode::BAD_REQUEST, skep_mcp::answer::malformed(*why))),
        Content::Opaque(_) => Some(text(StatusCode::BAD_REQUEST, "the body must be a message")),
    }
}

/// Whether the bytes of a body are its text, as far as its headers say.
fn is_plain(headers: &HeaderMap) -> bool {
    let is_utf8 = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            let value = value.trim().trim_matches('"');
            ["utf-8", "utf8", "us-ascii"].iter().any(|one| value.eq_ignore_ascii_case(one))
        }
        _ => true,
    };
    let mut types = headers.get_all(CONTENT_TYPE).into_iter();
    !headers.contains_key(CONTENT_ENCODING)
        && types.all(|value| value.to_str().is_ok_and(|text| text.split(';').all(is_utf8)))
}

/// Whether a body could be one message to us and another one to the server.
pub(crate) fn is_ambiguous(why: MessageError) -> bool {
    matches!(
        why,
        MessageError::Batch
            | MessageError::Duplicate { .. }
            | MessageError::OtherCase { .. }
            | MessageError::TooManyMembers { .. }
            | MessageError::NoKind
    )
}
