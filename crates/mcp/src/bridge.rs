//! Translation of single messages between the two eras of the protocol, for a client of one and a server of the other.
//!
//! ```text
//!   legacy client ── LegacyClient::request ──▶ modern server        modern client ── modern_client::request ──▶ legacy server
//!                 ◀─ LegacyClient::response ──                                    ◀─ ModernClient::response ───
//! ```
//!
//! It knows single messages only: sessions, ids in flight and streams are those of the upstream that applies it. Members
//! that it does not know keep their bytes. What one era has and the other has not (requests of a server during a call)
//! becomes the error that a client of that era understands. A result or an error whose own members are ambiguous is not
//! translated.

mod capability;
mod discovery;
mod legacy_client;
mod modern_client;
mod subscription;

pub use capability::RequiredCapability;
pub use discovery::{discover_result, initialize_result};
pub use legacy_client::LegacyClient;
pub use modern_client::{ModernClient, Refused};
pub use subscription::{Filter, FilterError, acknowledged, ended, of_subscription};

use std::borrow::Cow;

use bytes::Bytes;

use crate::era::Era;
use crate::json::{self, Cursor};
use crate::list::List;
use crate::message::{Kind, Message, Part};
use crate::message_error::MessageError;
use crate::method::Method;
use crate::names::{Level, Names};
use crate::raw::Raw;
use crate::splice::{Edit, SpliceError};
use crate::{answer, splice, value};

/// A resource does not exist: the code of the legacy era.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// A client must visit a URL first: a code of 2025-11-25 only.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const INFO: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// The extension whose results are of a type of their own.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What a client of 2026-07-28 says of itself in the `_meta` of each request.
const OF_CLIENT: [&[&str]; 4] = [
    &["params", "_meta", VERSION],
    &["params", "_meta", INFO],
    &["params", "_meta", CAPABILITIES],
    &["params", "_meta", LEVEL],
];

static RESULT: Level = Level { place: "`result`", known: &["resultType", "ttlMs", "cacheScope", "_meta"] };
static ERROR: Level = Level { place: "`error`", known: &["code", "message", "data"] };

/// What the translation of a response has to know of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// `resources/read` of a resource that is named.
    Read,
    /// A list, or `server/discover`.
    List,
    /// Any other.
    Other,
}

// === impl RequestKind ===

impl RequestKind {
    /// The kind of a request.
    pub fn of(request: &Message) -> Self {
        match request.method() {
            Some("resources/read") if request.text(Part::Uri).is_some_and(|uri| uri.len() > 2) => Self::Read,
            Some("resources/read" | "server/discover") => Self::List,
            Some(method) if List::of(method).is_some() => Self::List,
            _ => Self::Other,
        }
    }

    /// Whether a result says for how long it may be kept.
    fn is_cacheable(self) -> bool {
        self != Self::Other
    }
}

/// Whether a method is defined, but not for clients of this era. Others may be extensions.
pub fn is_of_other_era(method: &str, era: Era) -> bool {
    Method::named(method).is_some_and(|method| !method.is_of(era))
}

/// How much of the log a request of 2026-07-28 asks for.
pub fn log_level(request: &Message) -> Option<Cow<'_, str>> {
    value::find_text(request.meta()?, &[LEVEL])
}

/// The code of an error.
fn code(response: &Message) -> Option<i64> {
    value::find(response.error()?, &["code"])?.parse().ok()
}

/// The same error with another code and message. Its data stays.
fn with_error(response: &Message, code: i64, message: Option<&str>) -> Result<Message, SpliceError> {
    let code = Raw::value(&code.into());
    let mut edits = vec![Edit::set(&["error", "code"], code)];
    edits.extend(message.map(|message| Edit::set(&["error", "message"], Raw::string(message))));
    splice::apply(response, &edits)
}

/// An error in the place of a response.
fn instead_of(response: &Message, code: i64, text: &str, data: Option<&Raw<'_>>) -> Result<Message, SpliceError> {
    Ok(Message::parse(answer::error(response.id().as_ref(), code, text, data))?)
}

/// What an error says, clipped.
fn said(response: &Message) -> String {
    let text = response.error().and_then(|error| value::find_text(error, &["message"]));
    value::clipped(&text.unwrap_or_default()).into_owned()
}

/// Rejects a response of which two parsers could read two results.
fn unambiguous(response: &Message) -> Result<(), MessageError> {
    let (part, level) = match response.kind() {
        Kind::Response => (Part::Result, &RESULT),
        Kind::Error => (Part::Error, &ERROR),
        Kind::Request | Kind::Notification => return Ok(()),
    };
    let text = response.text(part).unwrap_or_default();
    let mut cursor = Cursor::new(text)?;
    if cursor.peek() != Some(b'{') {
        return Err(MessageError::NotAnObject);
    }
    let mut names = Names::new(level);
    cursor.object(|cursor, key| {
        names.note(key.name)?;
        cursor.skip().map(drop)
    })?;
    names.finish()
}

/// A value of an object that is JSON.
fn member<'a>(object: Option<&'a [u8]>, name: &str) -> Option<&'a str> {
    json::member(std::str::from_utf8(object?).ok()?, name).filter(|value| *value != "null")
}

/// A text of JSON that came out of a message.
fn owned(json: &str) -> Option<Raw<'static>> {
    Raw::parse(json).ok().map(Raw::into_owned)
}

/// A notification as the other era has it: without what is reserved for 2026-07-28.
pub fn notification(message: &Message) -> Result<Bytes, SpliceError> {
    if message.meta().is_none() {
        return Ok(message.body().clone());
    }
    let names = [SERVER_INFO, SUBSCRIPTION].map(|name| ["params", "_meta", name]);
    let edits = names.each_ref().map(|path| Edit::remove(path));
    splice::apply(message, &edits).map(Message::into_body)
}

#[cfg(test)]
mod tests;
