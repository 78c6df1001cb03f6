use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

const CALL: &str = r#"{"jsonrpc":"2.0", "id":1, "method":"tools/call", "params":{"name":"a", "arguments":{"n":12345678901234567890123, "h":1e400, "t":"<&>\u00e9\/"}, "_meta":{"progressToken":7, "x":1.0}}, "extra":null }"#;

fn read(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn raw(text: &str) -> Raw<'_> {
    Raw::parse(text).unwrap()
}

fn changed(text: &str, edits: &[Edit<'_>]) -> String {
    let changed = apply(&read(text), edits).unwrap_or_else(|why| panic!("{why}: {text}"));
    assert_eq!(read(std::str::from_utf8(changed.body()).unwrap()), changed, "the head matches the body");
    String::from_utf8(changed.into_body().to_vec()).unwrap()
}

#[test]
fn parts_are_replaced_and_all_else_stays() {
    for (path, old, new) in [
        (&["id"][..], r#""id":1,"#, r#""id":"t|int64:1","#),
        (&["params", "name"], r#""name":"a""#, r#""name":"t|int64:1""#),
        (&["params", "_meta", "progressToken"], r#""progressToken":7"#, r#""progressToken":"t|int64:1""#),
        (&["params", "_meta", "x"], r#""x":1.0"#, r#""x":"t|int64:1""#),
        (&["extra"], r#""extra":null"#, r#""extra":"t|int64:1""#),
    ] {
        assert!(CALL.contains(old));
        assert_eq!(changed(CALL, &[Edit::set(path, raw(r#""t|int64:1""#))]), CALL.replacen(old, new, 1), "{path:?}");
    }
}

#[test]
fn several_edits_are_one_change() {
    let edits = [
        Edit::set(&["params", "_meta", "progressToken"], raw("\"token\"")),
        Edit::set(&["id"], raw("99")),
        Edit::set(&["params", "name"], raw("\"b\"")),
    ];
    let expected = CALL.replacen(r#""id":1"#, r#""id":99"#, 1).replacen(r#""name":"a""#, r#""name":"b""#, 1).replacen(
        r#""progressToken":7"#,
        r#""progressToken":"token""#,
        1,
    );
    assert_eq!(changed(CALL, &edits), expected);
    let mut more = edits.to_vec();
    more.push(Edit::remove(&["extra"]));
    assert_eq!(changed(CALL, &more), expected.replacen(r#", "extra":null"#, "", 1));
}

#[test]
fn the_request_of_a_cancellation_is_replaced() {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"no","requestId":1}}"#;
    let id = crate::Id::string("t|int64:1");
    let cancelled = apply(&read(text), &[Edit::set(&["params", "requestId"], &id)]).unwrap();
    assert_eq!(cancelled.cancels(), Some(id));
}

#[test]
fn what_is_missing_is_added_at_the_end() {
    for (members, path, expected) in [
        ("", &["id"][..], r#","id":5"#),
        ("", &["params", "name"], r#","params":{"name":5}"#),
        (r#","params":{}"#, &["params", "name"], r#","params":{"name":5}"#),
        (r#","params":{ }"#, &["params", "name"], r#","params":{"name":5 }"#),
        (r#","params":{"a":1 }"#, &["params", "name"], r#","params":{"a":1,"name":5 }"#),
        (r#","params": null"#, &["params", "name"], r#","params": {"name":5}"#),
        ("", &["params", "_meta", "x"], r#","params":{"_meta":{"x":5}}"#),
        (r#","params":{"_meta":{"y":[]}}"#, &["params", "_meta", "x"], r#","params":{"_meta":{"y":[],"x":5}}"#),
        (r#","id":null"#, &["id"], r#","id":5"#),
        ("", &["a\"b"], r#","a\"b":5"#),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"a"{members}}}"#);
        let expected = format!(r#"{{"jsonrpc":"2.0","method":"a"{expected}}}"#);
        assert_eq!(changed(&text, &[Edit::set(path, raw("5"))]), expected);
    }
    let both = [Edit::set(&["params", "b"], raw("1")), Edit::set(&["params", "a"], raw("2"))];
    assert_eq!(
        changed(r#"{"jsonrpc":"2.0","method":"a"}"#, &both),
        r#"{"jsonrpc":"2.0","method":"a","params":{"a":2,"b":1}}"#
    );
}

#[test]
fn what_is_removed_takes_one_comma_along() {
    for (path, gone) in [
        (&["id"][..], r#", "id":1"#),
        (
            &["params"],
            r#", "params":{"name":"a", "arguments":{"n":12345678901234567890123, "h":1e400, "t":"<&>\u00e9\/"}, "_meta":{"progressToken":7, "x":1.0}}"#,
        ),
        (&["params", "name"], r#""name":"a", "#),
        (&["params", "_meta", "progressToken"], r#""progressToken":7, "#),
        (&["params", "_meta", "x"], r#", "x":1.0"#),
        (&["params", "arguments", "h"], r#", "h":1e400"#),
    ] {
        assert!(CALL.contains(gone));
        assert_eq!(changed(CALL, &[Edit::remove(path)]), CALL.replacen(gone, "", 1), "{path:?}");
    }
    let all = [Edit::remove(&["params", "_meta", "x"]), Edit::remove(&["params", "_meta", "progressToken"])];
    assert_eq!(changed(CALL, &all), CALL.replacen(r#"{"progressToken":7, "x":1.0}"#, "{}", 1));
    for nothing in [&["none"][..], &["params", "none", "x"], &["extra", "x"], &["id", "x"]] {
        assert_eq!(changed(CALL, &[Edit::remove(nothing)]), CALL, "{nothing:?}");
    }
}

#[test]
fn escaped_names_are_found() {
    let text = r#"{"jsonrpc":"2.0","\u0069d":1,"method":"a","params":{"n\u0061me":"x"}}"#;
    let edits = [Edit::set(&["id"], raw("2")), Edit::set(&["params", "name"], raw("\"y\""))];
    assert_eq!(changed(text, &edits), r#"{"jsonrpc":"2.0","\u0069d":2,"method":"a","params":{"n\u0061me":"y"}}"#);
}

#[test]
fn conflicting_edits_are_rejected() {
    let message = read(CALL);
    for paths in [[&["id"][..], &["id"]], [&["params"], &["params", "name"]], [&["params", "name"], &["params"]]] {
        let edits = paths.map(|path| Edit::set(path, raw("1")));
        assert_eq!(apply(&message, &edits), Err(SpliceError::Conflict { path: paths[1].join(".") }));
    }
    assert!(matches!(apply(&message, &[Edit::remove(&[])]), Err(SpliceError::Conflict { .. })));
}

#[test]
fn impossible_edits_are_rejected() {
    let message = read(r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}"#);
    let named = [Edit::set(&["params", "name"], raw("1"))];
    assert_eq!(apply(&message, &named), Err(SpliceError::NotAnObject { name: "params".to_owned() }));
    for (edit, why) in [
        (Edit::set(&["id"], raw("{}")), MessageError::BadId),
        (Edit::set(&["jsonrpc"], raw("\"1.0\"")), MessageError::Version),
        (Edit::remove(&["method"]), MessageError::NoKind),
        (Edit::set(&["Method"], raw("1")), MessageError::OtherCase { place: "the message", known: "method" }),
    ] {
        assert_eq!(apply(&message, &[edit]), Err(SpliceError::Malformed(why)));
    }
    let notification = apply(&message, &[Edit::set(&["id"], raw("null"))]).unwrap();
    assert_eq!(notification.kind(), crate::Kind::Notification);
}

#[test]
fn no_edit_is_no_change() {
    assert_eq!(changed(CALL, &[]), CALL);
}

/// Any JSON value, written in any way that JSON allows.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,4})?",
        any::<String>().prop_map(|text| Value::from(text).to_string()),
        "\"(\\\\u[0-9a-fA-F]{4}|\\\\/|\\\\n|[ !#-\\[\\]-~é\u{2028}]){0,8}\"",
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let member = (any::<String>(), "[ \\t\\r\\n]{0,2}", inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|values| format!("[ {}]", values.join(" ,"))),
            prop::collection::vec(member, 0..4).prop_map(|members| {
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(name, space, value)| format!("{}{space}:{space}{value}", Value::from(name)))
                    .collect();
                format!("{{{}}}", members.join(", "))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_survives_to_the_byte(value in any_json(), id in "[1-9][0-9]{0,29}", other in any_json()) {
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":1,"x":{value},"result":{value}}}"#),
            format!(r#"{{"x":{value},"params":{{"x":{value},"name":{value},"_meta":{{"x":{value}}}}},"jsonrpc":"2.0","id":1,"method":"a"}}"#),
        ] {
            let expected = text.replacen(r#""id":1"#, &format!(r#""id":{id}"#), 1);
            // The first edit replaces a part with a kept position, the second one walks.
            prop_assert_eq!(&changed(&text, &[Edit::set(&["id"], raw(&id))]), &expected);
            let edits = [Edit::set(&["id"], raw(&id)), Edit::remove(&["none"])];
            prop_assert_eq!(&changed(&text, &edits), &expected);
            let added = format!("{},\"y\":{other}}}", expected.strip_suffix('}').unwrap());
            let edits = [Edit::set(&["id"], raw(&id)), Edit::set(&["y"], raw(&other))];
            prop_assert_eq!(&changed(&text, &edits), &added);
            prop_assert_eq!(&changed(&added, &[Edit::remove(&["y"])]), &expected);
        }
    }

    #[test]
    fn the_same_text_is_no_change(value in any_json()) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"name":{value}, "x":{value}}}}}"#);
        for path in [&["params", "name"], &["params", "x"]] {
            prop_assert_eq!(&changed(&text, &[Edit::set(path, raw(&value))]), &text);
        }
    }
}
