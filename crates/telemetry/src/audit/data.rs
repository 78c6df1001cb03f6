//! The request and the response in an event, on one line.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Part of a request or a response, as an event carries it: JSON as JSON, and anything else as text.
#[derive(Clone, Debug)]
pub enum Data {
    /// JSON on one line.
    Json(Box<RawValue>),
    /// Text.
    Text(String),
}

// === impl Data ===

impl Data {
    /// A request body. Nothing if it is empty, or longer than the limit.
    pub fn of_request(body: &[u8], limit: usize) -> Option<Self> {
        (!body.is_empty() && body.len() <= limit).then(|| Self::of(body))
    }

    /// A response of which at most `limit` bytes were kept. One that was cut is text.
    pub fn of_response(kept: &[u8], is_cut: bool) -> Option<Self> {
        if kept.is_empty() {
            return None;
        }
        Some(if is_cut {
            Self::Text(String::from_utf8_lossy(whole_characters(kept)).into_owned())
        } else {
            Self::of(kept)
        })
    }

    fn of(body: &[u8]) -> Self {
        match serde_json::from_slice::<&RawValue>(body).map(|json| RawValue::from_string(one_line(json.get()))) {
            Ok(Ok(json)) => Self::Json(json),
            Ok(Err(_)) | Err(_) => Self::Text(String::from_utf8_lossy(body).into_owned()),
        }
    }
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(json) => json.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// Valid JSON without the white space between its tokens. It has no line breaks inside of strings.
fn one_line(text: &str) -> String {
    let (mut line, mut in_string, mut is_escaped) = (String::with_capacity(text.len()), false, false);
    for character in text.chars() {
        match character {
            ' ' | '\t' | '\r' | '\n' if !in_string => continue,
            '"' if !is_escaped => in_string = !in_string,
            _ => {}
        }
        is_escaped = in_string && character == '\\' && !is_escaped;
        line.push(character);
    }
    line
}

/// Bytes without the start of a character at their end.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.get(..error.valid_up_to()).unwrap_or_default(),
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(data: &impl Serialize) -> String {
        serde_json::to_string(data).unwrap()
    }

    #[test]
    fn json_is_embedded_as_it_is_but_on_one_line() {
        let body = b" {\"a\" : [1.50, \"x \\\" \\\\\"],\n\r\t\"b\":12345678901234567890123}";
        assert_eq!(written(&Data::of_request(body, 1024)), r#"{"a":[1.50,"x \" \\"],"b":12345678901234567890123}"#);
    }

    #[test]
    fn what_is_not_json_is_text() {
        for (body, text) in [
            (&b"event: message\ndata: {}\n\n"[..], r#""event: message\ndata: {}\n\n""#),
            (b"{\"a\":", r#""{\"a\":""#),
            (b"{} {}", r#""{} {}""#),
            (b"\xff", "\"\u{fffd}\""),
            (b"1 2", r#""1 2""#),
        ] {
            assert_eq!(written(&Data::of_request(body, 1024)), text);
        }
    }

    #[test]
    fn a_long_request_is_left_out_and_a_response_is_cut_between_two_characters() {
        assert_eq!(written(&Data::of_request(b"{\"a\":1}", 6)), "null");
        assert_eq!(written(&Data::of_request(b"{\"a\":1}", 7)), "{\"a\":1}");
        assert_eq!(written(&Data::of_request(b"", 7)), "null");
        assert_eq!(written(&Data::of_response("{\"é".as_bytes().get(..3).unwrap(), true)), r#""{\"""#);
        assert_eq!(written(&Data::of_response(b"{}", false)), "{}");
        assert_eq!(written(&Data::of_response(b"", true)), "null");
    }

    proptest! {
        #[test]
        fn any_body_is_one_line_of_valid_json(body in proptest::collection::vec(any::<u8>(), 0..64), is_cut: bool) {
            let line = written(&Data::of_request(&body, 64));
            prop_assert!(!line.contains('\n') && serde_json::from_str::<serde_json::Value>(&line).is_ok());
            let line = written(&Data::of_response(&body, is_cut));
            prop_assert!(!line.contains('\n') && serde_json::from_str::<serde_json::Value>(&line).is_ok());
        }

        #[test]
        fn json_keeps_its_value(texts in proptest::collection::vec(".{0,8}", 0..4), number: f64) {
            let value = serde_json::json!({ "texts": texts, "nested": [{ "a\"\\": number }] });
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(written(&Data::of_request(pretty.as_bytes(), 4096)), value.to_string());
        }
    }
}
