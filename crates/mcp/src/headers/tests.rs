use bytes::Bytes;

use super::*;

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;
const GREETING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"Hello, 世界"}}"#;
const READ: &str = r#"{"jsonrpc":"2.0","id":1,"method":"resources\/read","params":{"uri":"file:\/\/\/a"}}"#;
const TASK: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t"}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

fn read(body: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

fn held(values: &[(HeaderName, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in values {
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

#[test]
fn headers_that_agree_with_the_body_are_accepted() {
    for (body, values) in [
        (CALL, &[][..]),
        (CALL, &[(METHOD, "tools/call")]),
        (CALL, &[(NAME, "echo")]),
        (CALL, &[(METHOD, "tools/call"), (NAME, "echo")]),
        (CALL, &[(NAME, "=?base64?ZWNobw==?=")]),
        (CALL, &[(METHOD, ""), (NAME, "")]),
        (GREETING, &[(METHOD, "prompts/get"), (NAME, "=?base64?SGVsbG8sIOS4lueVjA==?=")]),
        (READ, &[(METHOD, "resources/read"), (NAME, "file:///a")]),
        (TASK, &[(METHOD, "tasks/get"), (NAME, "t")]),
        (LIST, &[(METHOD, "tools/list")]),
    ] {
        assert_eq!(check(&held(values), &read(body)), Ok(()), "{values:?}");
    }
}

#[test]
fn headers_that_differ_from_the_body_are_rejected() {
    for (body, name, value, said) in [
        (CALL, METHOD, "tools/list", "tools/list"),
        (CALL, METHOD, "Tools/Call", "Tools/Call"),
        (CALL, NAME, "other", "other"),
        (CALL, NAME, "Echo", "Echo"),
        (CALL, NAME, "=?base64?b3RoZXI=?=", "other"),
        (CALL, NAME, "=?BASE64?ZWNobw==?=", "=?BASE64?ZWNobw==?="),
        (CALL, METHOD, "=?base64?dG9vbHMvY2FsbA==?=", "=?base64?dG9vbHMvY2FsbA==?="),
        (READ, NAME, "file:///b", "file:///b"),
        (TASK, NAME, "u", "u"),
        (LIST, NAME, "echo", "echo"),
    ] {
        let refusal = check(&held(&[(name, value)]), &read(body)).unwrap_err();
        assert_eq!(refusal.code(), -32020);
        assert!(matches!(&refusal, RequestError::HeaderMismatch { header, .. } if header == said), "{refusal}");
    }
}

#[test]
fn headers_that_cannot_be_decoded_are_rejected() {
    for values in [
        &[(NAME, "=?base64?%%%?=")][..],
        &[(NAME, "=?base64?//4=?=")],
        &[(NAME, "=?base64?ZWNobw?=")],
        &[(NAME, "=?base64?ZWNobx==?=")],
        &[(NAME, "h\u{e9}llo")],
        &[(NAME, "echo"), (NAME, "echo")],
        &[(NAME, ""), (NAME, "other")],
        &[(METHOD, "tools/call"), (METHOD, "tools/list")],
    ] {
        let refusal = check(&held(values), &read(CALL)).unwrap_err();
        assert_eq!((refusal.code(), refusal.category()), (-32020, "header_unreadable"), "{values:?}");
    }
}

#[test]
fn a_refusal_names_the_header_and_both_values() {
    let refusal = check(&held(&[(NAME, "other")]), &read(CALL)).unwrap_err();
    let data = serde_json::json!({ "header": "Mcp-Name", "headerValue": "other", "bodyValue": "echo" });
    assert_eq!(refusal.data(), Some(data));
    assert_eq!(
        refusal.to_string(),
        "the header `Mcp-Name` is `other`, but the body has `echo`; send the same value in both"
    );
}

/// The examples of the specification.
#[test]
fn values_are_encoded_where_they_must_be() {
    for (value, encoded) in [
        ("us-west1", "us-west1"),
        ("two words", "two words"),
        ("", ""),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ] {
        assert_eq!(encode(value), encoded);
        assert_eq!(decode(encoded).as_deref(), Some(value));
    }
}

#[test]
fn renewed_headers_agree_with_the_edited_body() {
    let mut headers = held(&[(METHOD, "old"), (NAME, "old"), (NAME, "older"), (SESSION_ID, "s")]);
    renew(&mut headers, &read(GREETING));
    assert_eq!(headers, held(&[(METHOD, "prompts/get"), (NAME, "=?base64?SGVsbG8sIOS4lueVjA==?="), (SESSION_ID, "s")]));
    renew(&mut headers, &read(LIST));
    assert_eq!(headers, held(&[(METHOD, "tools/list"), (SESSION_ID, "s")]));
}
