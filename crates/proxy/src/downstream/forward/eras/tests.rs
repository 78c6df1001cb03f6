use serde_json::{Value, json};

use super::*;

fn verdict_on(tried: &Tried, status: u16, body: &Value) -> Verdict {
    let json = HeaderMap::from_iter([(header::CONTENT_TYPE, "application/json".parse().unwrap())]);
    let stream = HeaderMap::from_iter([(header::CONTENT_TYPE, "text/event-stream".parse().unwrap())]);
    let status = StatusCode::from_u16(status).unwrap();
    let whole = verdict(tried, status, &json, &body.to_string().into());
    assert_eq!(verdict(tried, status, &stream, &format!(": hi\n\nevent: message\ndata: {body}\n\n").into()), whole);
    whole
}

#[test]
fn only_what_says_so_is_a_refusal_of_an_era() {
    use Verdict::{Refused, Served, Unclear};
    let id = Some(skep_mcp::Id::number(7));
    let tried = |era: Era, is_discovery: bool| Tried { era, is_discovery, id: id.clone() };
    let error = |id: Value, code: i64, supported: Value| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": "m", "data": { "supported": supported } } });
    let found = |versions: Value| json!({ "jsonrpc": "2.0", "id": 7, "result": { "supportedVersions": versions } });
    let (handshake, discovery, call) = (tried(Era::Legacy, false), tried(Era::Modern, true), tried(Era::Modern, false));
    for (tried, status, body, expected) in [
        (&handshake, 400, error(json!(7), -32022, json!(["2026-07-28"])), Refused),
        (&handshake, 400, error(json!(7), -32022, json!(["2025-11-25"])), Served),
        (&handshake, 400, error(json!(7), -32020, json!([])), Refused),
        (&handshake, 404, error(json!(7), -32601, json!([])), Unclear),
        (&handshake, 400, error(json!(7), -32602, json!([])), Served),
        (&handshake, 400, json!("text"), Served),
        (&discovery, 400, error(json!(null), -32000, json!([])), Refused),
        (&discovery, 404, json!("no session"), Refused),
        (&discovery, 200, error(json!(7), -32601, json!([])), Refused),
        (&discovery, 200, error(json!(7), -32603, json!([])), Served),
        (&discovery, 200, found(json!(["2026-07-28"])), Served),
        (&discovery, 200, found(json!(["2025-11-25"])), Refused),
        (&discovery, 400, error(json!(7), -32020, json!([])), Served),
        (&discovery, 400, error(json!(7), -32022, json!(["2025-11-25"])), Refused),
        (&discovery, 400, error(json!(7), -32022, json!(["2026-07-28"])), Served),
        (&call, 404, error(json!(7), -32601, json!([])), Served),
        (&call, 400, error(json!("server-error"), -32600, json!([])), Unclear),
        (&call, 400, error(json!(null), -32000, json!([])), Unclear),
        (&call, 404, json!("page"), Unclear),
        (&call, 400, error(json!(7), -32021, json!([])), Served),
    ] {
        assert_eq!(verdict_on(tried, status, &body), expected, "{tried:?} {status} {body}");
    }
}
