//! HTTP headers that repeat parts of a modern request's body, so that intermediaries need not parse it.
//!
//! A header that differs from the body would let an intermediary route or authorize by one value while the server acts
//! on the other. So the two must agree, in a legacy request as well: a gateway that routes or authorizes by `Mcp-Name`
//! does not check the era first. A missing header misleads no intermediary and is allowed.

pub mod parameters;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::era::RequestError;
use crate::message::Message;
use crate::method::resource;
use crate::value::clipped;

/// The protocol version.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session of a legacy request.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The id of the last event that a client received.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Repeats the method.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Repeats the name of a tool or prompt, the URI of a resource, or the id of a task.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The prefix of headers that repeat arguments of a tool.
pub const PARAMETER: &str = "mcp-param-";

/// Prefix and suffix of an encoded value, for text that a header cannot hold. Case-sensitive.
const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// Checks that the headers of a request or notification agree with its body.
pub fn check(headers: &HeaderMap, message: &Message) -> Result<(), RequestError> {
    let method = message.method().unwrap_or_default();
    let name = resource(message).unwrap_or_default();
    agree(headers, &METHOD, "Mcp-Method", method, |value| Some(Cow::Borrowed(value)))?;
    agree(headers, &NAME, "Mcp-Name", &name, decode)
}

/// Checks that the headers a modern request must have are present. For the MCP endpoint that the client talks to: an
/// intermediary is not misled by a missing header.
pub fn require(headers: &HeaderMap, message: &Message) -> Result<(), RequestError> {
    let method = message.method().unwrap_or_default();
    let missing = |header: &HeaderName| headers.get(header).is_none_or(HeaderValue::is_empty);
    if missing(&METHOD) {
        return Err(RequestError::HeaderMissing { name: "Mcp-Method".into(), body: clipped(method).into_owned() });
    }
    let is_named = matches!(method, "tools/call" | "prompts/get" | "resources/read");
    match resource(message).filter(|_| is_named && missing(&NAME)) {
        Some(name) => Err(RequestError::HeaderMissing { name: "Mcp-Name".into(), body: clipped(&name).into_owned() }),
        None => Ok(()),
    }
}

/// Sets the headers to the values of a changed body. Absent headers stay absent.
pub fn renew(headers: &mut HeaderMap, message: &Message) {
    let method = message.method().map(Cow::Borrowed);
    let name = resource(message);
    for (header, value) in [(METHOD, method), (NAME, name)] {
        let Some(held) = headers.remove(&header) else { continue };
        let value = value.map(|value| encode(&value).into_owned());
        // An encoded value is always a valid header, so only what the body no longer has is removed.
        let value = value.map(|value| HeaderValue::try_from(value).unwrap_or(held));
        headers.extend(value.map(|value| (header, value)));
    }
}

/// Encodes a value so that any header can hold it.
pub fn encode(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let trimmed = value.trim_matches([' ', '\t']).len() == value.len();
    let encoded = value.starts_with(OPEN) && value.ends_with(CLOSE);
    if plain && trimmed && !encoded {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{OPEN}{}{CLOSE}", BASE64.encode(value)))
}

/// Decodes a value that may be encoded. `None` if its encoding is invalid.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    let Some(encoded) = value.strip_prefix(OPEN).and_then(|value| value.strip_suffix(CLOSE)) else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = BASE64.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn agree(
    headers: &HeaderMap,
    header: &HeaderName,
    name: &'static str,
    body: &str,
    read: impl FnOnce(&str) -> Option<Cow<'_, str>>,
) -> Result<(), RequestError> {
    let unreadable = || RequestError::HeaderUnreadable { name: name.into() };
    let value = match only(headers, header) {
        // An empty header counts as absent.
        Ok(value) if value.is_none_or(HeaderValue::is_empty) => return Ok(()),
        Ok(value) => value.and_then(|value| value.to_str().ok()).and_then(read).ok_or_else(unreadable)?,
        Err(RepeatedHeaderError) => return Err(unreadable()),
    };
    if value != body {
        let (header, body) = (clipped(&value).into_owned(), clipped(body).into_owned());
        return Err(RequestError::HeaderMismatch { name: name.into(), header, body });
    }
    Ok(())
}

/// A header occurs more than once.
struct RepeatedHeaderError;

/// The single value of a header.
fn only<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Result<Option<&'a HeaderValue>, RepeatedHeaderError> {
    let mut values = headers.get_all(header).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(RepeatedHeaderError),
    }
}

#[cfg(test)]
mod tests;
