//! HTTP headers that repeat what the body of a modern request says, so that those on the way need not read it.
//!
//! A header that says something else than the body would let one reader route or judge by the one, and another act on
//! the other. So the two must agree, in a legacy request as well: a gateway that routes or authorizes by `Mcp-Name` does not look
//! at the era first. A header that is missing misleads nobody and is fine.

pub mod parameters;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::era::Refusal;
use crate::message::Message;
use crate::method::resource;

/// The version of the protocol.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The session of a legacy request.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The last event that a client has seen.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Repeats the method.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Repeats the name of a tool or prompt, the URI of a resource, or the id of a task.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// How the names of headers begin that repeat arguments of a tool.
pub const PARAMETER: &str = "mcp-param-";

/// What begins a value that cannot be written as plain text, and what ends it. The case matters.
const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// Whether the headers of a request or notification agree with its body.
pub fn check(headers: &HeaderMap, message: &Message) -> Result<(), Refusal> {
    let method = message.method().unwrap_or_default();
    let name = resource(message).unwrap_or_default();
    agree(headers, &METHOD, "Mcp-Method", method, |value| Some(Cow::Borrowed(value)))?;
    agree(headers, &NAME, "Mcp-Name", &name, decode)
}

/// Whether the headers that a modern request must have are there. For whoever is the server that the client talks to: on the way,
/// one that is missing misleads nobody.
pub fn require(headers: &HeaderMap, message: &Message) -> Result<(), Refusal> {
    let method = message.method().unwrap_or_default();
    let missing = |header: &HeaderName| headers.get(header).is_none_or(HeaderValue::is_empty);
    if missing(&METHOD) {
        return Err(Refusal::HeaderMissing { name: "Mcp-Method".into(), body: method.to_owned() });
    }
    let is_named = matches!(method, "tools/call" | "prompts/get" | "resources/read");
    match resource(message).filter(|_| is_named && missing(&NAME)) {
        Some(name) => Err(Refusal::HeaderMissing { name: "Mcp-Name".into(), body: name.into_owned() }),
        None => Ok(()),
    }
}

/// Makes the headers say what the body says, after a change of the body. Headers that are not there stay away.
pub fn renew(headers: &mut HeaderMap, message: &Message) {
    let method = message.method().map(Cow::Borrowed);
    let name = resource(message);
    for (header, value) in [(METHOD, method), (NAME, name)] {
        let Some(held) = headers.remove(&header) else { continue };
        let value = value.map(|value| encode(&value).into_owned());
        // What is encoded can always be written, so nothing is lost here but what the body no longer has.
        let value = value.map(|value| HeaderValue::try_from(value).unwrap_or(held));
        headers.extend(value.map(|value| (header, value)));
    }
}

/// Writes a value so that any header can hold it.
pub fn encode(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let trimmed = value.trim_matches([' ', '\t']).len() == value.len();
    let encoded = value.starts_with(OPEN) && value.ends_with(CLOSE);
    if plain && trimmed && !encoded {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{OPEN}{}{CLOSE}", BASE64.encode(value)))
}

/// Reads a value that may be encoded. Nothing if it is, but wrongly.
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
) -> Result<(), Refusal> {
    let unreadable = || Refusal::HeaderUnreadable { name: name.into() };
    let value = match only(headers, header) {
        // An empty header says nothing.
        Ok(value) if value.is_none_or(HeaderValue::is_empty) => return Ok(()),
        Ok(value) => value.and_then(|value| value.to_str().ok()).and_then(read).ok_or_else(unreadable)?,
        Err(Several) => return Err(unreadable()),
    };
    if value != body {
        return Err(Refusal::HeaderMismatch { name: name.into(), header: value.into_owned(), body: body.to_owned() });
    }
    Ok(())
}

/// A header stands there more than once.
struct Several;

/// The one value of a header.
fn only<'a>(headers: &'a HeaderMap, header: &HeaderName) -> Result<Option<&'a HeaderValue>, Several> {
    let mut values = headers.get_all(header).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(Several),
    }
}

#[cfg(test)]
mod tests;
