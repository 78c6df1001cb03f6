use bytes::Bytes;
use http::HeaderValue;
use serde_json::json;

use super::*;

fn parameters(properties: &Value) -> Vec<Parameter> {
    let tool = json!({ "name": "t", "inputSchema": { "type": "object", "properties": properties } }).to_string();
    of(&Element { raw: &tool, name: "t".into(), description: None, annotations: None })
}

/// A call with these arguments, as JSON.
fn call(arguments: &str) -> Message {
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#);
    Message::parse(Bytes::from(body)).unwrap()
}

/// The refusal of a call, if any.
fn refused(properties: &Value, arguments: &str, headers: &[(&'static str, &str)]) -> Option<&'static str> {
    let mut held = HeaderMap::new();
    for (name, value) in headers {
        held.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let refusal = check(&held, &call(arguments), &parameters(properties)).err()?;
    assert_eq!(refusal.code(), -32020);
    Some(refusal.category())
}

#[test]
fn a_header_agrees_with_its_argument() {
    let schema = json!({ "region": { "type": "string", "x-mcp-header": "Region" }, "free": { "type": "string" } });
    let region = "mcp-param-region";
    for (arguments, headers, why) in [
        (r#"{"region":"eu"}"#, &[(region, "eu")][..], None),
        (r#"{"region":"Hello"}"#, &[(region, "=?base64?SGVsbG8=?=")], None),
        (r#"{"region":"SGVsbG8="}"#, &[(region, "SGVsbG8=")], None),
        (r#"{"region":"=?base64?SGVsbG8="}"#, &[(region, "=?base64?SGVsbG8=")], None),
        (r#"{"region":""}"#, &[(region, "")], None),
        (r#"{"region":"\u0065u"}"#, &[(region, "eu")], None),
        (r#"{"region":null}"#, &[], None),
        (r#"{"region":["eu"]}"#, &[], None),
        (r#"{"free":"x"}"#, &[(region, "anything"), ("mcp-param-free", "y")], None),
        ("{}", &[], None),
        ("null", &[], None),
        (r#"{"region":"eu"}"#, &[], Some("header_missing")),
        (r#"{"region":"eu"}"#, &[(region, "us")], Some("header_mismatch")),
        (r#"{"region":"eu"}"#, &[(region, "EU")], Some("header_mismatch")),
        (r#"{"region":"eu"}"#, &[(region, "")], Some("header_mismatch")),
        (r#"{"region":"Hello"}"#, &[(region, "=?base64?SGVsbG8?=")], Some("header_unreadable")),
        (r#"{"region":"Hello"}"#, &[(region, "=?base64?SGVs!!!bG8=?=")], Some("header_unreadable")),
        (r#"{"region":"eu"}"#, &[(region, "eu"), (region, "eu")], Some("header_unreadable")),
        (r#"{"region":"é"}"#, &[(region, "é")], Some("header_unreadable")),
    ] {
        assert_eq!(refused(&schema, arguments, headers), why, "{arguments} {headers:?}");
    }
}

#[test]
fn numbers_are_compared_as_numbers_and_nothing_else_is() {
    let schema = json!({
        "n": { "type": "integer", "x-mcp-header": "N" }, "b": { "type": "boolean", "x-mcp-header": "B" },
        "s": { "type": "string", "x-mcp-header": "S" },
    });
    for (arguments, header, fits) in [
        (r#"{"n":42}"#, ("mcp-param-n", "42"), true),
        (r#"{"n":42}"#, ("mcp-param-n", "42.0"), true),
        (r#"{"n":42.0}"#, ("mcp-param-n", "42"), true),
        (r#"{"n":-7}"#, ("mcp-param-n", "-7"), true),
        (r#"{"n":42}"#, ("mcp-param-n", "43"), false),
        (r#"{"n":42}"#, ("mcp-param-n", "4.2e1"), false),
        (r#"{"n":42}"#, ("mcp-param-n", "forty-two"), false),
        (r#"{"n":9007199254740993}"#, ("mcp-param-n", "9007199254740992"), false),
        (r#"{"n":9007199254740993}"#, ("mcp-param-n", "9007199254740993"), true),
        (r#"{"b":true}"#, ("mcp-param-b", "true"), true),
        (r#"{"b":true}"#, ("mcp-param-b", "True"), false),
        (r#"{"s":"42"}"#, ("mcp-param-s", "42.0"), false),
    ] {
        assert_eq!(refused(&schema, arguments, &[header]).is_none(), fits, "{arguments} {header:?}");
    }
}

#[test]
fn a_parameter_may_stand_in_another() {
    let schema =
        json!({ "at": { "type": "object", "properties": { "zone": { "type": "string", "x-mcp-header": "Zone" } } } });
    assert_eq!(refused(&schema, r#"{"at":{"zone":"a"}}"#, &[("mcp-param-zone", "a")]), None);
    assert_eq!(refused(&schema, r#"{"at":{"zone":"a"}}"#, &[]), Some("header_missing"));
    assert_eq!(refused(&schema, r#"{"at":"zone","zone":"a"}"#, &[]), None);
    // Some parsers read the first of two, and some the last.
    for twice in [
        r#"{"at":{"zone":"b","zone":"a"}}"#,
        r#"{"at":{"zone":"a","zon\u0065":"a"}}"#,
        r#"{"at":{"zone":null,"zone":{}}}"#,
    ] {
        assert_eq!(refused(&schema, twice, &[("mcp-param-zone", "a")]), Some("argument_twice"), "{twice}");
    }
    assert_eq!(refused(&schema, r#"{"at":{"x":1,"x":2,"zone":"a"}}"#, &[("mcp-param-zone", "a")]), None);
    let elsewhere = json!({ "list": { "type": "array", "items": { "type": "string", "x-mcp-header": "One" } } });
    assert_eq!(parameters(&elsewhere), []);
}

/// No client may send headers for a tool with such marks, so none are required.
#[test]
fn invalid_marks_are_ignored() {
    let good = json!({ "type": "string", "x-mcp-header": "Good" });
    for bad in [
        json!({ "type": "string", "x-mcp-header": "" }),
        json!({ "type": "string", "x-mcp-header": 7 }),
        json!({ "type": "string", "x-mcp-header": "two words" }),
        json!({ "type": "string", "x-mcp-header": "a\r\nb" }),
        json!({ "type": "string", "x-mcp-header": "gOOD" }),
        json!({ "type": "object", "x-mcp-header": "Object" }),
        json!({ "x-mcp-header": "Untyped" }),
    ] {
        assert_eq!(parameters(&json!({ "a": good, "b": bad })), [], "{bad}");
    }
    assert_eq!(parameters(&json!({ "a": good, "b": {} })).len(), 1);
}

#[test]
fn headers_that_repeat_arguments_are_known_by_their_names() {
    let mut headers = HeaderMap::new();
    headers.insert("mcp-name", HeaderValue::from_static("x"));
    assert!(!any(&headers));
    headers.insert("mcp-param-region", HeaderValue::from_static("x"));
    assert!(any(&headers));
}
