use super::*;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const INFO: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

fn message(method: &str, params: &Value) -> Message {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Message::parse(body.to_string().into()).unwrap()
}

/// `Legacy`, `Modern`, or the code of the refusal with its data.
fn classified(header: Option<&str>, method: &str, params: &Value) -> String {
    match classify(header, &message(method, params)) {
        Ok(era) => format!("{era:?}"),
        Err(refusal) => {
            let data = refusal.data().map(|data| format!(" {data}")).unwrap_or_default();
            format!("{}{data}", refusal.code())
        }
    }
}

#[test]
fn requests_are_classified_by_era() {
    const LEGACY: &str = "Legacy";
    const MODERN_ERA: &str = "Modern";
    const NO_VERSION: &str = "-32602";
    const NO_CAPABILITIES: &str = "-32602";
    const BAD_CAPABILITIES: &str = r#"-32021 {"requiredCapabilities":{}}"#;
    const HEADER_ONLY: &str = "-32602";
    const OLD_HEADER: &str = r#"-32020 {"body":"2026-07-28","header":"2025-11-25"}"#;
    const OTHER_BODY: &str = r#"-32022 {"requested":"2027-01-01","supported":["2026-07-28"]}"#;
    let modern = Some("2026-07-28");
    let legacy = Some("2025-11-25");
    let full = json!({ VERSION: MODERN, CAPABILITIES: {} });
    let call = "tools/call";
    let cases: Vec<(Option<&str>, &str, Value, &str)> = vec![
        // No claim at all.
        (None, call, json!({}), LEGACY),
        (None, call, json!({ "_meta": {} }), LEGACY),
        (None, call, json!({ "_meta": { "progressToken": 1 } }), LEGACY),
        (None, call, json!({ "_meta": { LEVEL: "debug" } }), LEGACY),
        (None, call, json!({ "_meta": "2026-07-28" }), LEGACY),
        (None, call, json!({ "_meta": [VERSION] }), LEGACY),
        (None, call, json!(null), LEGACY),
        (None, call, json!([{ "_meta": full }]), LEGACY),
        (None, call, json!({ "arguments": { "_meta": full } }), LEGACY),
        (Some(""), call, json!({}), LEGACY),
        (legacy, call, json!({}), LEGACY),
        (Some("2024-11-05"), call, json!({}), LEGACY),
        (Some("2027-01-01"), call, json!({}), LEGACY),
        (Some("2026-07-28 "), call, json!({}), LEGACY),
        // `initialize` is legacy, unless its body claims to be modern.
        (modern, "initialize", json!({ "_meta": full }), MODERN_ERA),
        (None, "initialize", json!({ "_meta": full }), MODERN_ERA),
        (legacy, "initialize", json!({ "_meta": full }), OLD_HEADER),
        (modern, "initialize", json!({ "_meta": { VERSION: "2025-11-25", CAPABILITIES: {} } }), LEGACY),
        (modern, "initialize", json!({}), LEGACY),
        (None, "initialize", json!({ "_meta": { VERSION: 7 } }), LEGACY),
        // Everything is consistent.
        (None, call, json!({ "_meta": full }), MODERN_ERA),
        (Some(""), call, json!({ "_meta": full }), MODERN_ERA),
        (modern, call, json!({ "_meta": full }), MODERN_ERA),
        (modern, "server/discover", json!({ "_meta": full }), MODERN_ERA),
        (
            modern,
            call,
            json!({ "_meta": { VERSION: MODERN, CAPABILITIES: { "sampling": {} }, INFO: { "name": "c" } } }),
            MODERN_ERA,
        ),
        (modern, call, json!({ "_meta": { VERSION: MODERN, CAPABILITIES: {}, INFO: 7 } }), MODERN_ERA),
        // The header claims to be modern, the body does not.
        (modern, call, json!({}), HEADER_ONLY),
        (modern, call, json!(null), HEADER_ONLY),
        (modern, call, json!({ "_meta": {} }), HEADER_ONLY),
        (modern, call, json!({ "_meta": { VERSION: 7 } }), HEADER_ONLY),
        (modern, call, json!({ "_meta": { VERSION: "" } }), HEADER_ONLY),
        (modern, call, json!({ "_meta": { VERSION: null, CAPABILITIES: {} } }), HEADER_ONLY),
        (modern, call, json!({ "_meta": { INFO: {} } }), HEADER_ONLY),
        // The body claims to be modern without a version.
        (None, call, json!({ "_meta": { VERSION: 7 } }), NO_VERSION),
        (None, call, json!({ "_meta": { VERSION: "" } }), NO_VERSION),
        (None, call, json!({ "_meta": { VERSION: null } }), NO_VERSION),
        (None, call, json!({ "_meta": { INFO: {} } }), NO_VERSION),
        (Some(""), call, json!({ "_meta": { CAPABILITIES: {} } }), NO_VERSION),
        // The negotiated version wins over a stray member.
        (legacy, call, json!({ "_meta": { INFO: {} } }), LEGACY),
        (legacy, call, json!({ "_meta": { CAPABILITIES: {} } }), LEGACY),
        (legacy, call, json!({ "_meta": { VERSION: 7 } }), LEGACY),
        (Some("nonsense"), call, json!({ "_meta": { INFO: {} } }), LEGACY),
        // An unsupported version.
        (None, call, json!({ "_meta": { VERSION: "2027-01-01" } }), OTHER_BODY),
        (Some("2027-01-01"), call, json!({ "_meta": { VERSION: "2027-01-01", CAPABILITIES: {} } }), OTHER_BODY),
        (
            None,
            call,
            json!({ "_meta": { VERSION: "2025-11-25" } }),
            r#"-32022 {"requested":"2025-11-25","supported":["2026-07-28"]}"#,
        ),
        // Two different versions.
        (legacy, call, json!({ "_meta": full }), OLD_HEADER),
        (legacy, call, json!({ "_meta": { VERSION: MODERN } }), OLD_HEADER),
        (
            modern,
            call,
            json!({ "_meta": { VERSION: "2027-01-01", CAPABILITIES: {} } }),
            r#"-32020 {"body":"2027-01-01","header":"2026-07-28"}"#,
        ),
        (Some("nonsense"), call, json!({ "_meta": full }), r#"-32020 {"body":"2026-07-28","header":"nonsense"}"#),
        // No client capabilities.
        (modern, call, json!({ "_meta": { VERSION: MODERN } }), NO_CAPABILITIES),
        (None, call, json!({ "_meta": { VERSION: MODERN, INFO: {} } }), NO_CAPABILITIES),
        (modern, call, json!({ "_meta": { VERSION: MODERN, CAPABILITIES: null } }), NO_CAPABILITIES),
        (modern, call, json!({ "_meta": { VERSION: MODERN, CAPABILITIES: [] } }), BAD_CAPABILITIES),
        (modern, call, json!({ "_meta": { VERSION: MODERN, CAPABILITIES: "{}" } }), BAD_CAPABILITIES),
    ];
    for (header, method, params, expected) in cases {
        assert_eq!(classified(header, method, &params), expected, "{header:?} {method} {params}");
    }
}

#[test]
fn a_version_may_be_written_with_escapes() {
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026\u002d07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    assert_eq!(classify(None, &Message::parse(Bytes::from_static(body)).unwrap()), Ok(Era::Modern));
}

#[test]
fn a_refusal_names_both_sides_and_echoes_the_id() {
    let refusal =
        classify(Some("2025-11-25"), &message("tools/call", &json!({ "_meta": { VERSION: MODERN } }))).unwrap_err();
    let text = refusal.to_string();
    assert!(
        text.contains("MCP-Protocol-Version") && text.contains("2025-11-25") && text.contains("2026-07-28"),
        "{text}"
    );
    let response: Value = serde_json::from_slice(&refusal.answer(Some(&Id::number(0)))).unwrap();
    assert_eq!(
        response,
        json!({
            "jsonrpc": "2.0",
            "id": 0,
            "error": { "code": -32020, "message": text, "data": { "header": "2025-11-25", "body": "2026-07-28" } },
        })
    );
    let without_id: Value = serde_json::from_slice(&RequestError::NoVersion.answer(None)).unwrap();
    assert_eq!(without_id["error"].get("data"), None);
    assert_eq!(without_id.get("id"), None);
}
