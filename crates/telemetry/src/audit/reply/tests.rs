use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn scanned(framing: Framing, parts: &[&[u8]]) -> Option<RpcError> {
    let mut scan = ReplyScan::new(framing);
    for part in parts {
        scan.feed(part);
    }
    scan.finish()
}

fn error(code: i64, message: &str) -> RpcError {
    RpcError { code: Some(code), message: message.to_owned() }
}

#[test]
fn an_error_is_found_wherever_it_stands_and_nothing_else_is_taken_for_one() {
    for (body, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no \"x\" \u00e9"}}"#,
            Some(error(-32602, "no \"x\" é")),
        ),
        (r#"{"error":{"data":{"code":1,"message":"inner"},"message":"m","code":5},"id":1}"#, Some(error(5, "m"))),
        ("\u{feff} {\"err\\u006fr\" : { \"code\" : 7 , \"message\" : \"m\" } }", Some(error(7, "m"))),
        (r#"{"error":"text"}"#, Some(RpcError::default())),
        (r#"{"error":{"code":"x","message":1}}"#, Some(RpcError::default())),
        (r#"{"result":{"error":{"code":1,"message":"a tool says so"}}}"#, None),
        (r#"{"result":[{"error":{}}],"x":"\"error\":{"}"#, None),
        (r#"{"error":null,"result":{}}"#, None),
        (r#"{"method":"ping","error":{"code":1}}"#, None),
        (r#"[{"error":{"code":1}}]"#, None),
        ("Accepted", None),
        ("", None),
    ] {
        assert_eq!(scanned(Framing::Json, &[body.as_bytes()]), expected, "{body}");
    }
}

#[test]
fn an_error_far_behind_the_first_bytes_is_found() {
    let body = json!({ "id": 1, "padding": "x".repeat(100_000), "error": { "code": 9, "message": "y".repeat(5000) } });
    let found = scanned(Framing::Json, &[body.to_string().as_bytes()]).unwrap();
    assert_eq!(found.code, Some(9));
    assert!(found.message.len() > 1000 && found.message.len() <= VALUE && found.message.starts_with("yyy"));
}

#[test]
fn an_error_in_a_stream_is_found_behind_other_messages_however_lines_end() {
    for end in ["\n", "\r", "\r\n"] {
        let lines = [
            ": comment",
            "",
            "event: message",
            r#"data: {"method":"notifications/progress","error":{"code":1}}"#,
            "",
            "id: 4",
            "data:{\"id\":1,",
            "data: \"error\":{\"code\":3,\"message\":\"m\"}}",
            "",
            "",
        ];
        let stream = lines.join(end);
        assert_eq!(scanned(Framing::Events, &[stream.as_bytes()]), Some(error(3, "m")), "{end:?}");
        let good = stream.replace("\"error\"", "\"result\"");
        assert_eq!(scanned(Framing::Events, &[good.as_bytes()]), None, "{end:?}");
    }
    assert_eq!(scanned(Framing::Events, &[b"data: {\"error\":{\"code\":1}}"]).unwrap().code, Some(1), "cut off");
    assert_eq!(scanned(Framing::Events, &[b"dat: {\"error\":{}}\n\ndataset: {\"error\":{}}\n\n"]), None);
}

#[test]
fn a_text_that_was_cut_off_is_kept_as_far_as_it_came() {
    for (json, kept) in [(r#""ab\u00"#, "ab"), (r#""ab\"#, "ab"), (r#""ab\ud83d\ude"#, "ab"), (r#""a"#, "a"), ("", "")]
    {
        assert_eq!(text(json.as_bytes().to_vec()), kept, "{json}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        "[\"\\\\{}:, a-z\u{e9}]{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let key = prop_oneof![
            Just("error".to_owned()),
            Just("code".to_owned()),
            Just("message".to_owned()),
            "[a-z\"\\\\]{0,3}"
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn by_parsing(value: &Value) -> Option<RpcError> {
    let object = value.as_object().filter(|object| !object.contains_key("method"))?;
    let error = object.get("error").filter(|error| !error.is_null())?;
    let message = error["message"].as_str().unwrap_or_default().to_owned();
    Some(RpcError { code: error["code"].as_i64(), message })
}

proptest! {
    #[test]
    fn a_scan_finds_what_a_parser_finds_wherever_the_parts_are_cut(value in value(), cut in 0_usize..200, pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
        let (before, after) = text.as_bytes().split_at(cut.min(text.len()));
        prop_assert_eq!(scanned(Framing::Json, &[before, after]), by_parsing(&value));
        let stream: String = text.lines().flat_map(|line| ["data: ", line, "\n"]).collect::<String>() + "\n";
        let (before, after) = stream.as_bytes().split_at(cut.min(stream.len()));
        prop_assert_eq!(scanned(Framing::Events, &[before, after]), by_parsing(&value));
    }

    #[test]
    fn no_bytes_make_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _found = scanned(Framing::Json, &[&bytes]);
        let _found = scanned(Framing::Events, &[&bytes]);
    }
}
