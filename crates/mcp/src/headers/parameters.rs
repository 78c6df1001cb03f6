//! Headers that repeat tool arguments: `Mcp-Param-Region` for a parameter whose schema has `"x-mcp-header": "Region"`.
//!
//! The MCP endpoint that a client talks to must check that header and argument agree. The tool's schema defines the
//! parameters, so it must have been read before a call of the tool can be checked.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::{PARAMETER, RepeatedHeaderError, decode, encode, only};
use crate::era::RequestError;
use crate::json::{member, only_member, string};
use crate::list::Element;
use crate::message::Message;
use crate::method;
use crate::value::clipped;

/// The schema keyword that marks a parameter.
const MARK: &str = "x-mcp-header";
/// The maximum nesting depth of marked parameters.
const DEPTH: usize = 32;

/// A parameter that a header repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    header: HeaderName,
    /// The name of the header, as the schema writes it.
    shown: String,
    /// The path of the argument.
    path: Vec<String>,
    is_number: bool,
}

/// The marked parameters of a tool. Empty if the tool marks them in a way that no client may follow.
pub fn of(tool: &Element<'_>) -> Vec<Parameter> {
    // Most tools have none and need not be parsed.
    if !tool.raw.contains(MARK) {
        return Vec::new();
    }
    let schema = member(tool.raw, "inputSchema").and_then(|schema| serde_json::from_str::<Value>(schema).ok());
    let mut found = Vec::new();
    let valid = schema.is_some_and(|schema| collect(&schema, &mut Vec::new(), &mut found));
    if valid { found } else { Vec::new() }
}

/// Checks that the headers of a call agree with its arguments. A missing or `null` argument needs no header.
pub fn check(headers: &HeaderMap, message: &Message, parameters: &[Parameter]) -> Result<(), RequestError> {
    let arguments = method::arguments(message).and_then(|arguments| std::str::from_utf8(arguments).ok());
    let Some(arguments) = arguments else { return Ok(()) };
    parameters.iter().try_for_each(|parameter| parameter.check(headers, arguments))
}

/// The same for legacy clients, which need not send such headers: those they send must agree.
pub fn check_sent(headers: &HeaderMap, message: &Message, parameters: &[Parameter]) -> Result<(), RequestError> {
    let sent = parameters.iter().filter(|parameter| headers.contains_key(&parameter.header));
    check(headers, message, &sent.cloned().collect::<Vec<_>>())
}

/// Makes the headers of a call repeat its arguments, for a client of a server that wants it.
pub fn set(headers: &mut HeaderMap, message: &Message, parameters: &[Parameter]) {
    let arguments = method::arguments(message).and_then(|arguments| std::str::from_utf8(arguments).ok());
    let Some(arguments) = arguments else { return };
    for parameter in parameters {
        let value = parameter.argument(arguments).ok().flatten();
        let value = value.and_then(|value| HeaderValue::try_from(encode(&value).into_owned()).ok());
        headers.extend(value.map(|value| (parameter.header.clone(), value)));
    }
}

/// Whether any header claims to repeat an argument.
pub fn any(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with(PARAMETER))
}

// === impl Parameter ===

impl Parameter {
    /// What a header says for the argument. Nothing if there is none, or none that a header can say.
    fn argument<'a>(&self, arguments: &'a str) -> Result<Option<Cow<'a, str>>, RequestError> {
        let mut found = Some(arguments);
        for step in &self.path {
            let Some(object) = found else { break };
            // The server might use the duplicate that is not compared.
            let twice = |_twice| RequestError::ArgumentTwice { name: Cow::Owned(self.shown.clone()) };
            found = only_member(object, step).map_err(twice)?;
        }
        Ok(found.and_then(text))
    }

    fn check(&self, headers: &HeaderMap, arguments: &str) -> Result<(), RequestError> {
        let name = || Cow::Owned(self.shown.clone());
        let Some(body) = self.argument(arguments)? else { return Ok(()) };
        let value = match only(headers, &self.header) {
            Ok(None) => return Err(RequestError::HeaderMissing { name: name(), body: clipped(&body).into_owned() }),
            Ok(Some(value)) => value.to_str().ok().and_then(decode),
            Err(RepeatedHeaderError) => None,
        };
        let value = value.ok_or_else(|| RequestError::HeaderUnreadable { name: name() })?;
        if value == body || (self.is_number && is_same_number(&value, &body)) {
            return Ok(());
        }
        let (header, body) = (clipped(&value).into_owned(), clipped(&body).into_owned());
        Err(RequestError::HeaderMismatch { name: name(), header, body })
    }
}

/// Collects the parameters of an object's schema that are reached by `properties` alone. Returns whether all marks are
/// valid.
fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Parameter>) -> bool {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return true };
    for (name, property) in properties {
        path.push(name.clone());
        let valid = path.len() <= DEPTH && mark(property, path, found) && collect(property, path, found);
        path.pop();
        if !valid {
            return false;
        }
    }
    true
}

/// Records a property if it is marked. Returns whether the mark is valid.
fn mark(property: &Value, path: &[String], found: &mut Vec<Parameter>) -> bool {
    let Some(mark) = property.get(MARK) else { return true };
    let name = mark.as_str().filter(|name| !name.is_empty()).map(|name| format!("Mcp-Param-{name}"));
    let header = name.as_deref().and_then(|name| HeaderName::try_from(name).ok());
    let is_number = match property.get("type").and_then(Value::as_str) {
        Some("string" | "boolean") => false,
        // No client may send the latter; header and argument of one that does must still agree.
        Some("integer" | "number") => true,
        _ => return false,
    };
    let (Some(shown), Some(header)) = (name, header) else { return false };
    if found.iter().any(|other| other.header == header) {
        return false;
    }
    found.push(Parameter { header, shown, path: path.to_vec(), is_number });
    true
}

/// The header value of an argument. `None` if no header can represent it.
fn text(argument: &str) -> Option<Cow<'_, str>> {
    match argument.as_bytes().first()? {
        b'"' => string(argument),
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(argument)),
    }
}

/// Whether two texts are the same number, as `42` and `42.0` are. Numbers beyond the exact range of `f64` are never the same.
fn is_same_number(one: &str, other: &str) -> bool {
    const SAFE: f64 = 9_007_199_254_740_991.0;
    let is_plain = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'.'));
    let read = |text: &str| text.parse::<f64>().ok().filter(|number| number.abs() <= SAFE);
    let same = |one: f64, other: f64| one.total_cmp(&other).is_eq();
    is_plain(one) && read(one).zip(read(other)).is_some_and(|(one, other)| same(one, other))
}

#[cfg(test)]
mod tests;
