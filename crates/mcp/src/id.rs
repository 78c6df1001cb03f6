//! The id of a request, as the client wrote it.

use std::borrow::Cow;
use std::fmt::{self, Display};

use crate::json;
use crate::message_error::MessageError;
use crate::raw::Raw;

/// A JSON string or number, as its text: `1`, `1.0`, `"1"` and `"\u0031"` are four ids.
///
/// An id is only ever returned to the peer that chose it, so two spellings need not be equal, and no number is ever
/// rounded. Progress tokens have the same shape and are ids too.
// INVARIANT: exactly one valid JSON string or number, without spaces around it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(Box<str>);

/// The maximum length of an id, in bytes. Ids outlive their messages, so their length has a limit of its own.
const LONGEST: usize = 4096;

// === impl Id ===

impl Id {
    /// Parses an id from its JSON text.
    pub fn parse(raw: &str) -> Result<Self, MessageError> {
        let raw = Raw::parse(raw).map_err(|_| MessageError::BadId)?;
        Self::checked(raw.as_str()).ok_or(MessageError::BadId)
    }

    /// The id of a string.
    pub fn string(text: &str) -> Self {
        Self(Raw::string(text).as_str().into())
    }

    /// The id of a number.
    pub fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// The JSON text, as it was written.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// The string of an id, unescaped. `None` for a number.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        json::string(&self.0)
    }

    /// Wraps text that is known to be one JSON value.
    pub(crate) fn checked(raw: &str) -> Option<Self> {
        is_id(raw.as_bytes()).then(|| Self(raw.into()))
    }
}

impl Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Whether a JSON value is a string or a number, by its first byte, and not too long for an id.
pub(crate) fn is_id(value: &[u8]) -> bool {
    value.len() <= LONGEST && matches!(value.first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_every_byte() {
        for raw in ["1", "-1", "1.0", "12345678901234567890123", "1e400", r#""a""#, r#""\u0061\/""#, r#""""#] {
            assert_eq!(Id::parse(raw).unwrap().to_string(), raw);
        }
    }

    #[test]
    fn ids_are_equal_by_their_text_only() {
        assert_ne!(Id::parse("1").unwrap(), Id::parse("1.0").unwrap());
        assert_ne!(Id::parse("1").unwrap(), Id::parse(r#""1""#).unwrap());
        assert_eq!(Id::number(7), Id::parse(" 7 ").unwrap());
    }

    #[test]
    fn only_strings_and_numbers_are_ids() {
        for raw in ["null", "true", "[]", "{}", "", "1 2", "+1", "01", "\"a"] {
            assert_eq!(Id::parse(raw), Err(MessageError::BadId), "{raw}");
        }
    }

    #[test]
    fn the_length_of_an_id_is_limited() {
        let of_length = |length: usize| format!("\"{}\"", "a".repeat(length - 2));
        assert!(Id::parse(&of_length(LONGEST)).is_ok());
        assert_eq!(Id::parse(&of_length(LONGEST + 1)), Err(MessageError::BadId));
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"ping"}}"#, of_length(LONGEST + 1));
        assert_eq!(crate::Message::parse(body.into()).unwrap_err(), MessageError::BadId);
    }

    #[test]
    fn the_text_of_a_string_has_no_escapes() {
        assert_eq!(Id::parse(r#""a\u0062""#).unwrap().text().as_deref(), Some("ab"));
        assert_eq!(Id::string("tab\t|s:1").text().as_deref(), Some("tab\t|s:1"));
        assert_eq!(Id::number(1).text(), None);
    }
}
