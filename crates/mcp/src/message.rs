//! One JSON-RPC message: its bytes, and what parsing found in them.

mod head;
mod parts;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

pub use head::Head;
pub(crate) use parts::Part;

use crate::id::Id;
use crate::json::{self, Span};
use crate::message_error::MessageError;
use crate::raw::Raw;

/// A message as received. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    body: Bytes,
    // INVARIANT: the result of parsing `body`.
    head: Head,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// It has a method and an id, and expects a response.
    Request,
    /// It has a method and no id, or the id `null`.
    Notification,
    /// A response with a result.
    Response,
    /// A response with an error. It has no id if its sender could not parse the request.
    Error,
}

/// The bytes without a leading byte order mark.
pub fn without_byte_order_mark(mut body: Bytes) -> Bytes {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if body.starts_with(MARK) { body.split_off(MARK.len()) } else { body }
}

// === impl Message ===

impl Message {
    /// Parses a message in one walk: the result of a response is checked to be JSON, its content is not parsed.
    pub fn parse(body: Bytes) -> Result<Self, MessageError> {
        let head = Head::read(&body)?;
        Ok(Self { body, head })
    }

    /// The response to a request, with a result that is known to be JSON: it is not walked again. Nothing if it is longer than a message
    /// can be.
    pub fn response(id: &Id, result: &Raw<'_>) -> Option<Self> {
        const BEFORE: &str = r#"{"jsonrpc":"2.0","id":"#;
        const BETWEEN: &str = r#","result":"#;
        const VERSION: std::ops::Range<usize> = 11..16;
        let (id, result) = (id.raw(), result.as_str());
        let start = BEFORE.len() + id.len() + BETWEEN.len();
        let length = start + result.len() + 1;
        u32::try_from(length).ok()?;
        let mut body = String::with_capacity(length);
        for part in [BEFORE, id, BETWEEN, result, "}"] {
            body.push_str(part);
        }
        let head = Head::of_response(
            Span::new(VERSION.start, VERSION.end),
            Span::new(BEFORE.len(), BEFORE.len() + id.len()),
            Span::new(start, start + result.len()),
        );
        Some(Self { body: body.into(), head })
    }

    /// Combines a body with the head that belongs to it.
    pub(crate) fn assembled(body: Bytes, head: Head) -> Self {
        Self { body, head }
    }

    /// The bytes.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Consumes the message and returns its bytes.
    pub fn into_body(self) -> Bytes {
        self.body
    }

    /// What parsing found.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What kind of message this is.
    pub fn kind(&self) -> Kind {
        self.head.kind()
    }

    /// The method of a request or notification.
    pub fn method(&self) -> Option<&str> {
        let plain = || self.text(Part::Method)?.strip_prefix('"')?.strip_suffix('"');
        self.head.decoded_method().or_else(plain)
    }

    /// The id. `None` for `null`.
    pub fn id(&self) -> Option<Id> {
        self.text(Part::Id).and_then(Id::checked)
    }

    /// The parameters, of any type. `None` for `null`.
    pub fn params(&self) -> Option<&[u8]> {
        self.value(Part::Params).filter(|params| *params != b"null")
    }

    /// The result of a response.
    pub fn result(&self) -> Option<&[u8]> {
        self.value(Part::Result).filter(|_| self.kind() == Kind::Response)
    }

    /// The error of a failed request.
    pub fn error(&self) -> Option<&[u8]> {
        self.value(Part::Error).filter(|_| self.kind() == Kind::Error)
    }

    /// `params._meta`, if it is an object.
    pub fn meta(&self) -> Option<&[u8]> {
        self.value(Part::Meta).filter(|meta| meta.first() == Some(&b'{'))
    }

    /// The progress token: `params._meta.progressToken` of a request, which asks for progress, and
    /// `params.progressToken` of `notifications/progress`, which reports it.
    pub fn progress_token(&self) -> Option<Id> {
        let reports = self.method() == Some("notifications/progress");
        let part = if reports { Part::ProgressToken } else { Part::MetaProgressToken };
        self.text(part).and_then(Id::checked)
    }

    /// The id of the request that `notifications/cancelled` cancels.
    pub fn cancels(&self) -> Option<Id> {
        let cancels = self.method() == Some("notifications/cancelled");
        self.text(Part::RequestId).filter(|_| cancels).and_then(Id::checked)
    }

    /// The protocol version in `params._meta`. `None` unless it is a string.
    pub fn protocol_version(&self) -> Option<Cow<'_, str>> {
        self.text(Part::ProtocolVersion).and_then(json::string)
    }

    /// The client info in `params._meta`.
    pub fn client_info(&self) -> Option<&[u8]> {
        self.value(Part::ClientInfo)
    }

    /// The client capabilities in `params._meta`.
    pub fn client_capabilities(&self) -> Option<&[u8]> {
        self.value(Part::ClientCapabilities)
    }

    /// The same as [`Message::client_capabilities`], as a part of the body: what counts the body counts on.
    pub(crate) fn shared_capabilities(&self) -> Option<Bytes> {
        let range = self.head.span(Part::ClientCapabilities)?.range();
        self.body.get(range.clone()).is_some().then(|| self.body.slice(range))
    }

    /// The bytes of a part.
    pub(crate) fn value(&self, part: Part) -> Option<&[u8]> {
        self.body.get(self.head.span(part)?.range())
    }

    /// The text of a part. Only for parts that are usually short: UTF-8 is checked on every call.
    pub(crate) fn text(&self, part: Part) -> Option<&str> {
        std::str::from_utf8(self.value(part)?).ok()
    }

    /// The whole body as text.
    pub(crate) fn whole(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }
}

/// Without the body: messages carry secrets, and logs use this format.
impl fmt::Debug for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut message = formatter.debug_struct("Message");
        message.field("kind", &self.kind()).field("method", &self.method()).field("bytes", &self.body.len());
        message.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
