//! Reading one value out of JSON without building a tree of it.
//!
//! A tree of a message takes up to a hundred times its size: `{"":0}` has six bytes, and a map for it more than six hundred. What a client or
//! a server sent is therefore never parsed as a whole; the members on the way to a value are stepped over in their text.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::json::{self, Cursor};
use crate::message_error::MessageError;
use crate::names::equal_but_for_case;

/// The value at a path of members below an object, as JSON. Of several members of one name, the last one counts.
pub fn find<'a>(object: &'a [u8], path: &[&str]) -> Option<&'a str> {
    let object = std::str::from_utf8(object).ok()?.trim_matches([' ', '\t', '\r', '\n']);
    path.iter().try_fold(object, |object, name| json::member(object, name).filter(|_| object.starts_with('{')))
}

/// The same for a value that is a text.
pub fn find_text<'a>(object: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
    json::string(find(object, path)?)
}

/// Whether there is a value other than `null` at a path.
pub fn has(object: &[u8], path: &[&str]) -> bool {
    find(object, path).is_some_and(|value| value != "null")
}

/// The members of an object that are texts, numbers or booleans. Of lists and objects it says only that they are there: as an empty list.
pub fn scalars(object: &[u8]) -> Map<String, Value> {
    let mut members = Map::new();
    let Some(text) = std::str::from_utf8(object).ok() else { return members };
    let Ok(mut cursor) = Cursor::new(text) else { return members };
    let walked: Result<_, MessageError> = cursor.object(|cursor, key| {
        let value = cursor.skip()?;
        let raw = cursor.text(value);
        let value =
            if raw.starts_with(['{', '[']) { Some(Value::Array(Vec::new())) } else { serde_json::from_str(raw).ok() };
        members.insert(key.name.into_owned(), value.unwrap_or_default());
        Ok(())
    });
    if walked.is_ok() { members } else { Map::new() }
}

/// Whether a text is one JSON object without a member of a name, in any case: whatever parser reads it, it finds none.
pub fn is_object_without(text: &[u8], name: &str) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let Ok(mut cursor) = Cursor::new(text) else { return false };
    let mut is_found = false;
    let walked: Result<_, MessageError> = cursor.object(|cursor, key| {
        cursor.skip()?;
        is_found |= equal_but_for_case(&key.name, name);
        Ok(())
    });
    walked.and_then(|_| cursor.end()).is_ok() && !is_found
}

/// How much [`wanted_scalars`] reads.
#[derive(Clone, Copy, Debug)]
pub struct ScalarLimit {
    /// The most members.
    pub members: usize,
    /// The most bytes of their names and values together, as JSON.
    pub bytes: usize,
}

/// Why members are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScalarsError {
    /// It is not an object.
    #[error(transparent)]
    Malformed(#[from] MessageError),
    /// More members than the limit.
    #[error("too many members")]
    TooMany,
    /// More bytes than the limit.
    #[error("too many bytes")]
    TooLong,
    /// A number that no float holds, or a text that is not Unicode.
    #[error("a value cannot be read")]
    Unreadable,
}

/// The wanted members of an object that are texts, numbers or booleans. Of lists and objects it says only that they are there: as an
/// empty list. What is not wanted is stepped over.
pub fn wanted_scalars(
    object: &[u8],
    limit: ScalarLimit,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Map<String, Value>, ScalarsError> {
    let (mut members, mut bytes) = (Map::new(), 0_usize);
    let text = std::str::from_utf8(object).map_err(|_| MessageError::NotUtf8)?;
    let mut cursor = Cursor::new(text)?;
    cursor.object(|cursor, key| {
        let value = cursor.skip()?;
        if !is_wanted(&key.name) {
            return Ok(());
        }
        let raw = cursor.text(value);
        let is_nested = raw.starts_with(['{', '[']);
        bytes = bytes.saturating_add(key.name.len()).saturating_add(if is_nested { 0 } else { raw.len() });
        if bytes > limit.bytes {
            return Err(ScalarsError::TooLong);
        }
        let value = if is_nested { Some(Value::Array(Vec::new())) } else { serde_json::from_str(raw).ok() };
        // Another program may read it as a number, or take the first of two.
        if members.insert(key.name.into_owned(), value.ok_or(ScalarsError::Unreadable)?).is_some() {
            return Err(ScalarsError::Malformed(MessageError::Duplicate { place: "the object" }));
        }
        if members.len() > limit.members { Err(ScalarsError::TooMany) } else { Ok(()) }
    })?;
    Ok(members)
}

/// Whether a list of texts has one.
pub fn has_text(list: &str, wanted: &str) -> bool {
    let Ok(mut cursor) = Cursor::new(list) else { return false };
    let mut is_found = false;
    let walked: Result<_, MessageError> = cursor.array(|cursor| {
        let value = cursor.skip()?;
        is_found |= json::string(cursor.text(value)).is_some_and(|text| text == wanted);
        Ok(())
    });
    walked.is_ok() && is_found
}

/// Enough of a text of a client to recognize it in an error.
pub fn clipped(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 256;
    match text.get(..text.floor_char_boundary(LONGEST)) {
        Some(start) if text.len() > LONGEST => Cow::Owned(format!("{start}…")),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_without_a_member_in_any_case() {
        for without in ["{}", r#" {"a":{"result":1},"results":[]} "#] {
            assert!(is_object_without(without.as_bytes(), "result"), "{without}");
        }
        for not in [
            r#"{"result":1}"#,
            r#"{"Result":1}"#,
            "{\"re\u{17f}ult\":1}",
            r#"{"\u0072esult":1}"#,
            "[]",
            "{}{}",
            "{}\u{b}",
            "{",
            "",
        ] {
            assert!(!is_object_without(not.as_bytes(), "result"), "{not}");
        }
        assert!(!is_object_without(b"\xff{}", "result"));
    }

    #[test]
    fn a_value_is_found_at_its_path() {
        let object = br#" {"a":{"b":[1],"c":"x\u0041","n":null},"a2":1} "#;
        assert_eq!(find(object, &["a", "b"]), Some("[1]"));
        assert_eq!(find_text(object, &["a", "c"]).as_deref(), Some("xA"));
        assert_eq!(find_text(object, &["a", "b"]), None);
        assert!(has(object, &["a", "b"]) && !has(object, &["a", "n"]) && !has(object, &["a", "x"]));
        for nothing in [&["x"][..], &["a2", "b"], &["a", "b", "0"]] {
            assert_eq!(find(object, nothing), None, "{nothing:?}");
        }
        for malformed in [&b"[]"[..], b"\"a\"", b"", b"{", b"\xff", b"{\"a\":1"] {
            assert_eq!(find(malformed, &["a"]), None);
        }
    }

    #[test]
    fn scalars_are_values_and_the_rest_is_there() {
        let found = scalars(br#"{"a":"x\n","b":1.5,"c":true,"d":null,"e":{"f":1},"g":[{}]}"#);
        let expected = serde_json::json!({"a": "x\n", "b": 1.5, "c": true, "d": null, "e": [], "g": []});
        assert_eq!(Value::Object(found), expected);
        assert!(scalars(b"[1]").is_empty() && scalars(br#"{"a":1,"#).is_empty());
    }

    const LIMIT: ScalarLimit = ScalarLimit { members: 10, bytes: 100 };

    #[test]
    fn wanted_scalars_are_values_and_the_rest_is_there() {
        let found =
            wanted_scalars(br#"{"a":"x\n","b":1.5,"c":true,"d":null,"e":{"f":1},"g":[{}]}"#, LIMIT, |_| true).unwrap();
        let expected = serde_json::json!({"a": "x\n", "b": 1.5, "c": true, "d": null, "e": [], "g": []});
        assert_eq!(Value::Object(found), expected);
        for malformed in [&b"[1]"[..], br#"{"a":1,"#, b"", b"\xff"] {
            assert!(matches!(wanted_scalars(malformed, LIMIT, |_| true), Err(ScalarsError::Malformed(_))));
        }
    }

    #[test]
    fn only_wanted_scalars_are_read_and_no_more_than_the_limit() {
        let many: Map<_, _> = (0..20).map(|number| (format!("m{number}"), number.into())).collect();
        let many = Value::Object(many).to_string();
        assert_eq!(wanted_scalars(many.as_bytes(), LIMIT, |_| true), Err(ScalarsError::TooMany));
        let one = wanted_scalars(many.as_bytes(), LIMIT, |name| name == "m7").unwrap();
        assert_eq!(Value::Object(one), serde_json::json!({ "m7": 7 }));
        let long = serde_json::json!({ "a": "x".repeat(200), "b": ["x".repeat(200)] }).to_string();
        assert_eq!(wanted_scalars(long.as_bytes(), LIMIT, |_| true), Err(ScalarsError::TooLong));
        assert_eq!(wanted_scalars(long.as_bytes(), LIMIT, |name| name == "b").map(|found| found.len()), Ok(1));
    }

    #[test]
    fn wanted_scalars_that_programs_may_read_in_several_ways_are_errors() {
        for text in [r#"{"a":1e999}"#, r#"{"a":"\ud800"}"#] {
            assert_eq!(wanted_scalars(text.as_bytes(), LIMIT, |_| true), Err(ScalarsError::Unreadable), "{text}");
        }
        let twice = br#"{"a":1,"\u0061":2}"#;
        assert!(matches!(wanted_scalars(twice, LIMIT, |_| true), Err(ScalarsError::Malformed(_))));
        assert!(wanted_scalars(twice, LIMIT, |name| name == "b").is_ok());
    }

    #[test]
    fn a_list_has_a_text_or_not() {
        assert!(has_text(r#"["a", "b"]"#, "b"));
        for list in ["[]", r#"["bb"]"#, r#"[["b"]]"#, "{}", "b", r#"["b""#] {
            assert!(!has_text(list, "b"), "{list}");
        }
    }

    #[test]
    fn a_long_text_is_clipped_between_two_letters() {
        assert_eq!(clipped("short"), "short");
        let long = "é".repeat(1000);
        let clipped = clipped(&long);
        assert!(clipped.len() < 270 && clipped.ends_with("é…"), "{clipped}");
    }
}
