//! JSON text that is known to be one value, ready to be inserted into a message.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::id::Id;
use crate::json::Cursor;
use crate::message_error::MessageError;

/// One JSON value, as its text. Equal when the text is equal.
// INVARIANT: exactly one valid JSON value, without spaces around it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Raw<'a>(Cow<'a, str>);

// === impl Raw ===

impl<'a> Raw<'a> {
    /// Parses a text that must be one JSON value. White space around it is dropped.
    pub fn parse(text: &'a str) -> Result<Self, MessageError> {
        let mut cursor = Cursor::new(text)?;
        let span = cursor.skip()?;
        cursor.end()?;
        Ok(Self(Cow::Borrowed(text.get(span.range()).unwrap_or_default())))
    }

    /// The JSON string of a text.
    pub fn string(text: &str) -> Raw<'static> {
        Raw::value(&Value::from(text))
    }

    /// The JSON text of a value.
    pub fn value(value: &Value) -> Raw<'static> {
        Raw(Cow::Owned(value.to_string()))
    }

    /// A text that was put together from JSON, and so is one value: it is not walked again, unless this is a debug build.
    pub fn trusted(text: String) -> Raw<'static> {
        debug_assert!(Raw::parse(&text).is_ok_and(|value| value.as_str() == text), "not one JSON value");
        Raw(Cow::Owned(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same value, borrowing nothing.
    pub fn into_owned(self) -> Raw<'static> {
        Raw(Cow::Owned(self.0.into_owned()))
    }
}

impl<'a> From<&'a Id> for Raw<'a> {
    fn from(id: &'a Id) -> Self {
        Self(Cow::Borrowed(id.raw()))
    }
}

impl<'a> From<&'a RawValue> for Raw<'a> {
    fn from(value: &'a RawValue) -> Self {
        Self(Cow::Borrowed(value.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_taken_without_the_spaces_around_it() {
        assert_eq!(Raw::parse(" [1, 2] ").unwrap().as_str(), "[1, 2]");
        for wrong in ["", " ", "1 2", "1,\"x\":2", "{", "nul", "01"] {
            assert!(Raw::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_text_becomes_a_string_with_its_escapes() {
        assert_eq!(Raw::string("a\"b\n").as_str(), r#""a\"b\n""#);
    }
}
