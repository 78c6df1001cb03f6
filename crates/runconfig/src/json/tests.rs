use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;

use super::{Json, JsonError, MOST_LEVELS, Members, Number, sorted};
use crate::duration::GoDuration;

/// What Go makes of numbers, texts, trees and durations.
fn golden(part: &str) -> Vec<Json> {
    let golden = Json::from_slice(include_bytes!("../../tests/golden/go/text.json")).unwrap();
    match golden.get(part) {
        Some(Json::Array(cases)) => cases.clone(),
        _ => panic!("no `{part}`"),
    }
}

fn text<'a>(case: &'a Json, name: &str) -> &'a str {
    case.get(name).and_then(Json::as_str).unwrap()
}

#[test]
fn floating_point_numbers_are_written_as_go_does() {
    for case in golden("floats") {
        let number = f64::from_bits(text(&case, "bits").parse().unwrap());
        assert_eq!(Number::from_f64(number).unwrap().as_str(), text(&case, "text"));
    }
    assert_eq!(Number::from_f64(f64::NAN), None);
}

#[test]
fn texts_are_escaped_as_go_does() {
    for case in golden("strings") {
        let Some(Json::Array(runes)) = case.get("runes") else { panic!() };
        let character = |rune: &Json| match rune {
            Json::Number(number) => char::from_u32(number.as_i64().unwrap().try_into().unwrap()).unwrap(),
            _ => panic!(),
        };
        let string: String = runes.iter().map(character).collect();
        assert_eq!(Json::from(string).to_compact(), text(&case, "json"));
    }
}

#[test]
fn trees_keep_their_order_and_digits_and_are_laid_out_as_go_does() {
    for case in golden("trees") {
        let tree: Json = text(&case, "text").parse().unwrap();
        assert_eq!(tree.to_compact(), text(&case, "compact"));
        assert_eq!(tree.to_pretty(), text(&case, "pretty"));
        assert_eq!(text(&case, "pretty").parse::<Json>().unwrap(), tree);
    }
}

#[test]
fn durations_are_read_and_written_as_go_does() {
    for case in golden("durations") {
        let read = text(&case, "in").parse::<GoDuration>();
        match case.get("ns") {
            Some(Json::Number(nanoseconds)) => {
                let duration = read.unwrap();
                assert_eq!(Some(duration.nanoseconds), nanoseconds.as_i64(), "{case:?}");
                assert_eq!(duration.to_string(), text(&case, "out"));
            }
            _ => assert!(read.is_err(), "{case:?}"),
        }
    }
}

#[test]
fn trailing_data_is_ignored() {
    assert_eq!(Json::from_slice(b"{\"a\":1} trailing }").unwrap().to_compact(), r#"{"a":1}"#);
}

#[test]
fn of_two_members_with_the_same_name_the_last_one_wins() {
    assert_eq!(r#"{"a":1,"b":2,"a":3}"#.parse::<Json>().unwrap().to_compact(), r#"{"a":3,"b":2}"#);
}

#[test]
fn invalid_utf_8_is_replaced() {
    assert_eq!(Json::from_slice(b"\"a\xff\"").unwrap(), Json::from("a\u{fffd}"));
}

#[test]
fn invalid_json_is_refused() {
    for text in ["", "{", "{\"a\"}", "[1,]", "nul", "01", "\"a"] {
        assert!(matches!(text.parse::<Json>(), Err(JsonError::Syntax(_))), "{text}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels)).parse::<Json>();
    assert!(nested(MOST_LEVELS).is_ok());
    assert!(matches!(nested(MOST_LEVELS + 1), Err(JsonError::TooDeep)));
    assert!(matches!(nested(100_000), Err(JsonError::TooDeep)));
}

#[derive(Serialize)]
struct Outer {
    zebra: BTreeMap<String, i32>,
    value: serde_json::Value,
    apple: Option<Variant>,
    ratio: f64,
}

#[derive(Serialize)]
enum Variant {
    Named { b: bool, a: (i32, char) },
}

#[test]
fn members_of_structs_keep_their_order_and_those_of_maps_are_sorted() {
    let outer = Outer {
        zebra: BTreeMap::from([("b".into(), 1), ("a".into(), 2)]),
        value: serde_json::from_str(r#"{"z":{"y":1,"x":2.0},"a":null}"#).unwrap(),
        apple: Some(Variant::Named { b: true, a: (1, 'c') }),
        ratio: 1.0,
    };
    let expected = r#"{"zebra":{"a":2,"b":1},"value":{"a":null,"z":{"x":2,"y":1}},"apple":{"Named":{"b":true,"a":[1,"c"]}},"ratio":1}"#;
    assert_eq!(Json::of(&outer).unwrap().to_compact(), expected);
    assert_eq!(Json::from(&outer.value), Json::of(&outer.value).unwrap());
    assert!(Json::of(&f64::INFINITY).is_err());
}

#[test]
fn members_are_arranged_by_name_behind_those_that_come_first() {
    let mut members = Members::from_iter(["c", "b", "name", "a"].map(|name| (name.to_owned(), Json::Null)));
    members.arrange(&["name", "missing", "b"]);
    assert_eq!(members.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["name", "b", "a", "c"]);
}

#[test]
fn a_value_can_be_read_as_a_type_of_the_callers() {
    let json: Json = r#"{"a":[1,2]}"#.parse().unwrap();
    assert_eq!(json.decode::<BTreeMap<String, Vec<i32>>>().unwrap(), BTreeMap::from([("a".into(), vec![1, 2])]));
    assert!(matches!(json.decode::<Vec<i32>>(), Err(JsonError::Shape(_))));
}

/// Any value, with names and texts that need escapes.
fn value() -> impl Strategy<Value = serde_json::Value> {
    let text = || proptest::string::string_regex("[a-c\"\\\\<&\n\u{1}\u{7f}é\u{2028}🐝]{0,6}").unwrap();
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        text().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            proptest::collection::vec((text(), inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_is_written_in_order_as_its_sorted_copy_is(value in value()) {
        prop_assert_eq!(sorted(&value), Json::from(&value).to_compact());
    }
}
