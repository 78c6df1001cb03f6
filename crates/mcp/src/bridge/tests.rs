use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::era::{MODERN, classify};
use crate::id::Id;

fn message(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

fn of(value: &Value) -> Message {
    message(&value.to_string())
}

fn text(message: &Message) -> &str {
    std::str::from_utf8(message.body()).unwrap()
}

fn json_of(message: &Message) -> Value {
    serde_json::from_slice(message.body()).unwrap()
}

fn initialize(version: &str, capabilities: &Value) -> Message {
    let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": { "name": "c", "version": "1" } });
    of(&json!({ "jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params }))
}

fn modern_call(meta: &Value) -> Message {
    let mut all = json!({ VERSION: MODERN, CAPABILITIES: {}, INFO: { "name": "c", "version": "1" } });
    all.as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
    of(&json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "t", "_meta": all } }))
}

// === a legacy client in front of a modern server ===

#[test]
fn a_legacy_request_becomes_a_modern_one_and_keeps_every_other_byte() {
    let declared = json!({ "elicitation": {}, "roots": {}, "sampling": {}, "tasks": {}, "experimental": { "x": {} },
        "extensions": { "io.modelcontextprotocol/ui": {}, TASKS: {} } });
    let client = LegacyClient::of(&initialize("2025-06-18", &declared));
    let call = r#"{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"t","arguments":{"n":1.50e2,"m":10000000000000000000001},"_meta":{"progressToken":"\u0041","x/y":1.50}}}"#;
    let sent = client.request(&message(call), Some("info")).unwrap();
    let same = call.trim_end_matches("}}}");
    assert!(text(&sent).starts_with(same), "{}", text(&sent));
    let meta = json_of(&sent)["params"]["_meta"].clone();
    let relayed = json!({ "experimental": { "x": {} }, "extensions": { "io.modelcontextprotocol/ui": {} } });
    assert_eq!((&meta[VERSION], &meta[CAPABILITIES], &meta[LEVEL]), (&json!(MODERN), &relayed, &json!("info")));
    assert_eq!(meta[INFO], json!({ "name": "c", "version": "1" }));
    assert_eq!(classify(Some(MODERN), &sent), Ok(Era::Modern));
}

#[test]
fn a_request_without_parameters_gets_what_the_server_must_know() {
    for params in [
        "",
        r#","params":null"#,
        r#","params":{}"#,
        r#","params":{"_meta":null}"#,
        r#","params":{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}"#,
    ] {
        let request = message(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list"{params}}}"#));
        let sent = json_of(&LegacyClient::default().request(&request, None).unwrap());
        assert_eq!(sent["params"]["_meta"], json!({ VERSION: MODERN, CAPABILITIES: {} }), "{params}");
    }
    let wrong = message(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[1]}"#);
    assert!(LegacyClient::default().request(&wrong, None).is_err());
}

#[test]
fn a_modern_result_loses_what_legacy_clients_do_not_know() {
    let sent = message(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"complete","tools":[{{"n":1.0e2}}],"ttlMs":5,"_meta":{{"{SERVER_INFO}":{{}},"x":1}},"cacheScope":"public","other":1.50}}}}"#
    ));
    let got = LegacyClient::default().response(RequestKind::List, &sent).unwrap();
    assert_eq!(text(&got), r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"n":1.0e2}],"_meta":{"x":1},"other":1.50}}"#);
    let plain = message(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#);
    assert_eq!(LegacyClient::default().response(RequestKind::Other, &plain).unwrap(), plain);
}

#[test]
fn what_only_modern_servers_answer_becomes_an_error_of_the_legacy_era() {
    let client = LegacyClient::of(&initialize("2025-11-25", &json!({ "elicitation": {} })));
    let error = |code: i64, data: Value| json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": code, "message": "m", "data": data } });
    let result = |result: Value| json!({ "jsonrpc": "2.0", "id": 1, "result": result });
    let asks = |method: &str| {
        result(json!({ "resultType": "input_required", "inputRequests": { "a": { "method": method } } }))
    };
    let needs = |name: &str| error(-32021, json!({ "requiredCapabilities": { name: {} } }));
    for (kind, sent, code) in [
        (RequestKind::Read, error(-32602, json!({ "uri": "a:b" })), -32002),
        (RequestKind::Other, error(-32602, json!(null)), -32602),
        (RequestKind::Other, error(-32021, json!(null)), -32603),
        (RequestKind::Other, needs("elicitation"), -32603),
        (RequestKind::Other, needs("sampling"), -32600),
        (RequestKind::Other, error(-32022, json!({ "supported": [] })), -32603),
        (RequestKind::Other, error(-32020, json!({})), -32603),
        (RequestKind::Other, error(-32000, json!({})), -32000),
        (RequestKind::Other, asks("elicitation/create"), -32603),
        (RequestKind::Other, asks("sampling/createMessage"), -32600),
        (RequestKind::Other, result(json!({ "resultType": "task" })), -32603),
    ] {
        let got = json_of(&client.response(kind, &of(&sent)).unwrap());
        assert_eq!((&got["id"], &got["error"]["code"]), (&json!(1), &json!(code)), "{sent}");
        if sent["error"].is_object() {
            assert_eq!(got["error"]["data"], sent["error"]["data"], "its data stays");
        }
    }
}

#[test]
fn an_ambiguous_result_is_not_translated() {
    for result in [
        r#"{"resultType":"complete","resultType":"input_required"}"#,
        r#"{"resulttype":"complete"}"#,
        r#"{"_meta":{},"_meta":{}}"#,
        "[]",
        "null",
        "1",
    ] {
        let sent = message(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#));
        assert!(LegacyClient::default().response(RequestKind::Other, &sent).is_err(), "{result}");
        let client = ModernClient::of(&modern_call(&json!({}))).unwrap();
        assert!(client.response(&sent, None).is_err(), "{result}");
    }
}

#[test]
fn a_discovered_server_is_one_that_was_initialized() {
    let discovered = format!(
        r#"{{"jsonrpc":"2.0","id":9,"result":{{"resultType":"complete","supportedVersions":["{MODERN}"],"capabilities":{{"logging":{{}},"tools":{{"listChanged":true}},"extensions":{{"a/b":{{}},"{TASKS}":{{}}}}}},"instructions":"i","ttlMs":0,"cacheScope":"public","_meta":{{"{SERVER_INFO}":{{"name":"s","version":"1.50"}}}},"kept":1e2}}}}"#
    );
    for (requested, agreed) in
        [("2025-03-26", "2025-03-26"), ("2025-01-01", "2025-11-25"), (MODERN, "2025-11-25"), ("", "2025-11-25")]
    {
        let opened = initialize_result(&initialize(requested, &json!({})), &message(&discovered)).unwrap();
        let expected = json!({ "jsonrpc": "2.0", "id": "open", "result": {
            "protocolVersion": agreed, "serverInfo": { "name": "s", "version": "1.50" }, "instructions": "i", "kept": 1e2,
            "capabilities": { "logging": {}, "tools": { "listChanged": true }, "extensions": { "a/b": {} } } } });
        assert_eq!(json_of(&opened), expected, "{requested}");
        assert!(text(&opened).contains(r#""kept":1e2"#));
    }
    let nameless = message(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    let opened = json_of(&initialize_result(&initialize("2025-11-25", &json!({})), &nameless).unwrap());
    assert_eq!(opened["result"]["serverInfo"], json!({ "name": "unknown", "version": "unknown" }));
    assert_eq!(opened["result"]["capabilities"], json!({}));
}

// === a modern client in front of a legacy server ===

#[test]
fn a_modern_request_becomes_a_legacy_one_under_an_id_of_its_own() {
    let request = message(&format!(
        r#"{{"jsonrpc":"2.0","id":"\u0061","method":"tools/call","params":{{"name":"t","arguments":{{"n":1.0}},"_meta":{{"{VERSION}":"{MODERN}","progressToken":1e2,"{CAPABILITIES}":{{}},"traceparent":"x","{LEVEL}":"info"}}}}}}"#
    ));
    let client = ModernClient::of(&request).unwrap();
    assert_eq!(log_level(&request).as_deref(), Some("info"));
    let sent = client.request(&request, &Id::number(12)).unwrap();
    let expected = r#"{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"t","arguments":{"n":1.0},"_meta":{"progressToken":12,"traceparent":"x"}}}"#;
    assert_eq!(text(&sent), expected);
    let report =
        message(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":12,"progress":0.50}}"#);
    let reported = client.progress(&report).unwrap();
    assert_eq!(
        text(&reported),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1e2,"progress":0.50}}"#
    );
    let response = message(r#"{"jsonrpc":"2.0","id":12,"result":{"content":[],"n":1.0}}"#);
    let got = client.response(&response, Some(&Raw::parse(r#"{"name":"s"}"#).unwrap())).unwrap();
    assert_eq!(
        text(&got),
        format!(
            r#"{{"jsonrpc":"2.0","id":"\u0061","result":{{"content":[],"n":1.0,"_meta":{{"{SERVER_INFO}":{{"name":"s"}}}},"resultType":"complete"}}}}"#
        )
    );
}

#[test]
fn lists_and_reads_are_not_kept_by_modern_clients() {
    for (method, params, is_cacheable) in [
        ("tools/list", json!({}), true),
        ("prompts/list", json!({}), true),
        ("resources/list", json!({}), true),
        ("resources/templates/list", json!({}), true),
        ("resources/read", json!({ "uri": "a:b" }), true),
        ("prompts/get", json!({ "name": "p" }), false),
        ("completion/complete", json!({}), false),
    ] {
        let request = of(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        let client = ModernClient::of(&request).unwrap();
        let response = message(r#"{"jsonrpc":"2.0","id":5,"result":{"ttlMs":9,"resultType":"input_required"}}"#);
        let got = json_of(&client.response(&response, None).unwrap())["result"].clone();
        let kept = if is_cacheable {
            json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private" })
        } else {
            json!({ "resultType": "complete", "ttlMs": 9 })
        };
        assert_eq!(got, kept, "{method}");
    }
}

#[test]
fn errors_of_a_legacy_server_are_those_of_the_modern_era() {
    let read = of(&json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": { "uri": "a:b" } }));
    let with_url = modern_call(&json!({ CAPABILITIES: { "elicitation": { "url": {} } } }));
    for (request, sent, code, data) in [
        (&read, -32002, -32602, json!({ "uri": "x" })),
        (&modern_call(&json!({})), -32002, -32002, json!({ "uri": "x" })),
        (&modern_call(&json!({})), -32042, -32021, json!({ "requiredCapabilities": { "elicitation": { "url": {} } } })),
        (&with_url, -32042, -32603, json!(null)),
        (&read, -32601, -32601, json!({ "uri": "x" })),
    ] {
        let response =
            json!({ "jsonrpc": "2.0", "id": 5, "error": { "code": sent, "message": "m", "data": { "uri": "x" } } });
        let got = json_of(&ModernClient::of(request).unwrap().response(&of(&response), None).unwrap());
        let id = request.id().unwrap();
        assert_eq!(
            (got["id"].to_string(), &got["error"]["code"], &got["error"]["data"]),
            (id.raw().to_owned(), &json!(code), &data)
        );
    }
}

#[test]
fn a_question_during_a_call_ends_it_as_the_client_declared_itself() {
    let question = message(r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}"#);
    let required = RequiredCapability::of(&question).unwrap();
    let refused = ModernClient::of(&modern_call(&json!({}))).unwrap().refusal(&required);
    assert_eq!(refused.code(), answer::MISSING_CAPABILITY);
    assert_eq!(refused.data().unwrap().as_str(), r#"{"requiredCapabilities":{"elicitation":{}}}"#);
    let able = modern_call(&json!({ CAPABILITIES: { "elicitation": {} } }));
    let refused = ModernClient::of(&able).unwrap().refusal(&required);
    assert_eq!((refused.code(), refused.data()), (answer::INTERNAL_ERROR, None));
    assert!(refused.text().contains("not supported across protocol versions"), "{}", refused.text());
}

#[test]
fn an_initialized_server_is_one_that_was_discovered() {
    let initialized = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"tasks":{"list":{}}},"serverInfo":{"name":"s","version":"1.50"},"instructions":"i","kept":1e2}}"#;
    let discover = of(&json!({ "jsonrpc": "2.0", "id": "d", "method": "server/discover", "params": {} }));
    let got = discover_result(&discover, &message(initialized)).unwrap();
    let server = json!({ "name": "s", "version": "1.50" });
    let expected = json!({ "jsonrpc": "2.0", "id": "d", "result": {
        "supportedVersions": [MODERN, "2025-06-18", "2025-03-26", "2024-11-05"], "capabilities": { "tools": {} },
        "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "serverInfo": server, "instructions": "i", "kept": 1e2,
        "_meta": { SERVER_INFO: server } } });
    assert_eq!(json_of(&got), expected);
    assert!(text(&got).contains(r#""kept":1e2"#));
    // There and back again.
    let back = json_of(&initialize_result(&initialize("2025-06-18", &json!({})), &got).unwrap());
    assert_eq!(back["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(back["result"]["serverInfo"], json!({ "name": "s", "version": "1.50" }));
}

// === subscriptions ===

#[test]
fn a_filter_is_read_granted_and_written() {
    let listen = |notifications: Value| {
        of(
            &json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": { "notifications": notifications } }),
        )
    };
    let all = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["b:1", "a:1"] });
    let filter = Filter::of(&listen(all.clone())).unwrap();
    assert_eq!(filter, Filter::all(["a:1".to_owned(), "b:1".to_owned()].into()));
    let initialized =
        |capabilities: Value| of(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "capabilities": capabilities } }));
    let granted = filter
        .clone()
        .granted_by(&initialized(json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true } })));
    // The order of its members depends on what else is in the program.
    let notifications: Value = serde_json::from_str(granted.to_json().as_str()).unwrap();
    assert_eq!(notifications, json!({ "resourceSubscriptions": ["a:1", "b:1"], "toolsListChanged": true }));
    assert!(filter.clone().granted_by(&initialized(json!({ "tools": {} }))).is_empty());
    let updated = |uri: &str| {
        of(&json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri } }))
    };
    assert!(granted.wants(&updated("a:1")) && !granted.wants(&updated("c:1")));
    let id = Id::parse(r#""\u0061""#).unwrap();
    let first = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"{SUBSCRIPTION}":"\u0061"}},"notifications":{}}}}}"#,
        granted.to_json().as_str()
    );
    assert_eq!(acknowledged(&id, &granted), first);
    assert_eq!(Message::parse(ended(&id)).unwrap().kind(), Kind::Response);
    let news = of_subscription(&updated("a:1"), &id).unwrap();
    let plain = notification(&Message::parse(news).unwrap()).unwrap();
    assert_eq!(
        plain,
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1","_meta":{}}}"#
    );
    for wrong in
        [json!(null), json!([]), json!({ "resourceSubscriptions": "a:1" }), json!({ "resourceSubscriptions": [1] })]
    {
        assert!(Filter::of(&listen(wrong.clone())).is_err(), "{wrong}");
    }
    for two_ways in [
        r#"{"resourceSubscriptions":["a:1"],"resourceSubscriptions":["b:1"]}"#,
        r#"{"resourceSubscriptions":["a:1"],"resource\u0053ubscriptions":["b:1"]}"#,
        r#"{"resourceSubscriptions":["a:1"],"ResourceSubscriptions":["b:1"]}"#,
        r#"{"resourceSub\u017fcriptions":["b:1"]}"#,
        r#"{"toolsListChanged":true,"toolslistchanged":false}"#,
        r#"{"x":1,"x":2}"#,
    ] {
        let listen = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{two_ways}}}}}"#
        );
        let listen = Message::parse(Bytes::from(listen)).unwrap();
        assert_eq!(Filter::of(&listen), Err(FilterError::Ambiguous), "{two_ways}");
    }
    let many: Vec<String> = (0..1001).map(|number| format!("a:{number}")).collect();
    assert!(Filter::of(&listen(json!({ "resourceSubscriptions": many }))).is_err());
}

// === laws ===

/// JSON of any shape, with numbers that no parser keeps.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1.0".to_owned()),
        Just("-0.50e+7".to_owned()),
        Just("12345678901234567890123".to_owned()),
        "[a-z]{0,4}".prop_map(|text| format!("\"{text}\"")),
        Just(r#""\u0041\/""#.to_owned()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|values| format!("[{}]", values.join(" , "))),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|members| object(&members)),
        ]
    })
}

fn object(members: &std::collections::BTreeMap<String, String>) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", members.join(","))
}

fn id() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["1", "1.0", "-7", "1e400", r#""a""#, r#""\u0061\/""#, "12345678901234567890123"])
        .prop_map(str::to_owned)
}

proptest! {
    #[test]
    fn a_request_survives_both_translations(id in id(), members in prop::collection::btree_map("[a-z]{5,8}", any_json(), 0..4)) {
        let inside: Vec<String> = members.iter().filter(|(name, _)| *name != "arguments").map(|(name, value)| format!("\"{name}\": {value},")).collect();
        let request = message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{}"_meta":{{"progressToken":{id}}}}}}}"#, inside.concat()));
        let modern = LegacyClient::default().request(&request, None).unwrap();
        prop_assert_eq!(classify(Some(MODERN), &modern), Ok(Era::Modern));
        let client = ModernClient::of(&modern).unwrap();
        let legacy = client.request(&modern, &Id::number(5)).unwrap();
        prop_assert_eq!(text(&legacy).replace("\"id\":5", &format!("\"id\":{id}")).replace("\"progressToken\":5", &format!("\"progressToken\":{id}")), text(&request));
    }

    #[test]
    fn a_result_survives_both_translations(id in id(), members in prop::collection::btree_map("[a-z]{1,4}", any_json(), 0..4)) {
        let request = message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#));
        let result = message(&format!(r#"{{"jsonrpc":"2.0","id":5,"result":{}}}"#, object(&members)));
        let modern = ModernClient::of(&request).unwrap().response(&result, None).unwrap();
        let kept = modern.id().unwrap();
        prop_assert_eq!(kept.raw(), &id);
        let legacy = LegacyClient::default().response(RequestKind::List, &modern).unwrap();
        prop_assert_eq!(text(&legacy), text(&result).replacen("\"id\":5", &format!("\"id\":{id}"), 1));
    }
}
