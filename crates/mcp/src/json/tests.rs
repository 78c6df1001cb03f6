use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn skipped(text: &str) -> Result<&str, MessageError> {
    let mut cursor = Cursor::new(text)?;
    let span = cursor.skip()?;
    cursor.end()?;
    Ok(cursor.text(span))
}

#[test]
fn every_kind_of_value_is_stepped_over() {
    for value in ["null", "true", "-1.5e+3", "1e400", "\"\"", "\"a\\\"b\"", "[]", "{}", "[1,{\"a\":[]}]", "\"\u{a0}\""]
    {
        assert_eq!(skipped(&format!(" {value}\r\n")), Ok(value));
    }
}

#[test]
fn invalid_values_are_rejected() {
    for text in [
        "",
        " ",
        "nul",
        "01",
        "1.",
        "\"a",
        "\"\t\"",
        "\"\\x\"",
        "[1,]",
        "{\"a\"}",
        "{a:1}",
        "[",
        "1 2",
        "'a'",
        "\u{feff}1",
    ] {
        assert!(skipped(text).is_err(), "{text}");
    }
}

#[test]
fn objects_and_lists_are_walked_in_order() {
    let text = r#" { "a" : 1 , "\u0062" : [ 2 , 3 ] } "#;
    let mut met = Vec::new();
    let mut cursor = Cursor::new(text).unwrap();
    let walked: Result<Span, MessageError> = cursor.object(|cursor, key| {
        let value = cursor.skip()?;
        met.push((key.name.into_owned(), cursor.text(value)));
        Ok(())
    });
    assert_eq!(cursor.text(walked.unwrap()), text.trim());
    assert_eq!(met, [("a".to_owned(), "1"), ("b".to_owned(), "[ 2 , 3 ]")]);
    assert_eq!(member(text, "b").and_then(first), Some("2"));
    assert_eq!(first("[]"), None);
}

#[test]
fn malformed_sequences_are_rejected() {
    for text in [
        "{",
        "{\"a\":1",
        "{\"a\":1,}",
        "{,}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{1:2}",
        "{\"a\":}",
        "{\"\\ud800\":1}",
        "[]",
    ] {
        assert_eq!(member(text, "a"), None, "{text}");
    }
    for text in ["[", "[1", "[1,]", "[,]", "[1 2]", "{}"] {
        assert_eq!(first(text), None, "{text}");
    }
}

#[test]
fn of_two_members_of_one_name_the_last_one_counts_or_none() {
    let text = r#"{"a":1,"\u0061":2,"b":3}"#;
    assert_eq!(member(text, "a"), Some("2"));
    assert_eq!(
        (only_member(text, "a"), only_member(text, "b"), only_member(text, "c")),
        (Err(DuplicateMemberError), Ok(Some("3")), Ok(None))
    );
}

#[test]
fn strings_are_read_with_their_escapes() {
    assert_eq!(string(r#""a\/b\u00e9\ud83d\ude00""#).as_deref(), Some("a/bé😀"));
    for none in ["1", "\"", "", r#""\ud800""#, "null"] {
        assert_eq!(string(none), None, "{none}");
    }
}

proptest! {
    #[test]
    fn exactly_what_serde_accepts_is_skipped(
        parts in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\\", "\\u0041", "\\ud800", "\t", " ", "0", "12", "-", ".5", "e3", "null", "true", "é",
        ]), 0..12),
    ) {
        let text = parts.concat();
        let expected = serde_json::from_str::<&RawValue>(&text).ok().map(RawValue::get);
        prop_assert_eq!(skipped(&text).ok(), expected);
    }

    #[test]
    fn members_are_found_as_serde_finds_them(keys in prop::collection::vec("[a-c\\\\\"é\u{1}]{0,2}", 0..6), wanted in "[a-c]{0,1}") {
        let members: Vec<String> = keys.iter().enumerate().map(|(value, key)| format!("{}:{value}", Value::from(key.as_str()))).collect();
        let text = format!("{{{}}}", members.join(", "));
        let expected = serde_json::from_str::<Value>(&text).unwrap().get(&wanted).map(ToString::to_string);
        prop_assert_eq!(member(&text, &wanted).map(str::to_owned), expected);
    }
}
