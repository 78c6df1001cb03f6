//! What a webhook may reply, or do instead.

use anyhow::Result;
use http::Response;
use serde_json::{Value, json};
use skep_net::Body;

use super::{Attack, Row};
use crate::webhook_failures::{entry, raw};
use crate::webhooks::{Hook, patch};

/// Replies that do not allow the request, which is a denial and not a failure.
const DENIALS: [&str; 2] = ["allowed in another case", "allowed is missing"];
/// The status of a refusal by a validating webhook, and by a mutating one.
const KINDS: [(&str, usize); 2] = [("validating_webhooks", 0), ("mutating_webhooks", 1)];

pub(super) async fn rows() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (what, status, headers, body) in replies() {
        let reply = move |_: &crate::web::Got| {
            let response = Response::builder().status(status);
            let response = headers.iter().fold(response, |response, (name, value)| response.header(*name, *value));
            response.body(Body::full(body.clone())).unwrap()
        };
        let hook = Hook::with(reply).await?;
        for (kind, index) in KINDS {
            let attack = Attack::Webhook(kind, entry(hook.address, "fail"));
            let of_mutating = match status {
                422 => 422,
                _ if DENIALS.contains(&what) => 403,
                _ => 500,
            };
            rows.push(Row { what: format!("{kind}: {what}"), attack, status: [403, of_mutating][index] });
        }
    }
    for (what, bytes) in bytes() {
        let address = raw(bytes).await?;
        for (kind, index) in KINDS {
            rows.push(Row {
                what: format!("{kind}: {what}"),
                attack: Attack::Webhook(kind, entry(address, "fail")),
                status: [403, 500][index],
            });
        }
    }
    for (what, reply) in patches() {
        let hook = Hook::new(vec![(200, reply)]).await?;
        let attack = Attack::Webhook("mutating_webhooks", entry(hook.address, "fail"));
        rows.push(Row { what: format!("patch: {what}"), attack, status: 500 });
    }
    Ok(rows)
}

type Reply = (&'static str, u16, &'static [(&'static str, &'static str)], Vec<u8>);

/// Replies that are HTTP, and not an answer.
fn replies() -> Vec<Reply> {
    let yes = || json!({ "allowed": true }).to_string().into_bytes();
    let padded = |bytes: usize| json!({ "allowed": true, "message": "x".repeat(bytes) }).to_string().into_bytes();
    let away: &[(&str, &str)] = &[("location", "http://127.0.0.1:1/")];
    let packed: &[(&str, &str)] = &[("content-encoding", "gzip")];
    vec![
        ("more than a mebibyte", 200, &[], padded(1024 * 1024)),
        ("301", 301, away, yes()),
        ("302", 302, away, yes()),
        ("303", 303, away, yes()),
        ("307", 307, away, yes()),
        ("308", 308, away, yes()),
        ("201", 201, &[], yes()),
        ("204", 204, &[], Vec::new()),
        ("400", 400, &[], yes()),
        ("401", 401, &[], yes()),
        ("404", 404, &[], yes()),
        ("422", 422, &[], yes()),
        ("500", 500, &[], yes()),
        ("503", 503, &[("retry-after", "1")], yes()),
        ("nothing", 200, &[], Vec::new()),
        ("a list", 200, &[], [b"[", &*yes(), b"]"].concat()),
        ("half of an answer", 200, &[], b"{\"allowed\":true".to_vec()),
        ("two answers", 200, &[], [yes(), yes()].concat()),
        ("HTML", 200, &[("content-type", "text/html")], b"<p>allowed: true</p>".to_vec()),
        ("YAML", 200, &[("content-type", "application/yaml")], b"allowed: true".to_vec()),
        ("packed", 200, packed, b"\x1f\x8b\x08\x00\x00\x00\x00\x00".to_vec()),
        ("not UTF-8", 200, &[], b"{\"allowed\":true,\"message\":\"\xff\"}".to_vec()),
        ("ten thousand brackets", 200, &[], b"[".repeat(10_000)),
        ("allowed is a text", 200, &[], br#"{"allowed":"true"}"#.to_vec()),
        ("allowed is a number", 200, &[], br#"{"allowed":1}"#.to_vec()),
        ("allowed in another case", 200, &[], br#"{"Allowed":true}"#.to_vec()),
        ("allowed is missing", 200, &[], b"{}".to_vec()),
        (
            "the uid of another request",
            200,
            &[],
            br#"{"allowed":true,"uid":"00000000-0000-0000-0000-000000000000"}"#.to_vec(),
        ),
        ("a uid that is a number", 200, &[], br#"{"allowed":true,"uid":7}"#.to_vec()),
    ]
}

/// Replies that are not HTTP, or never end.
fn bytes() -> [(&'static str, &'static [u8]); 7] {
    [
        ("silence", b""),
        ("half a head", b"HTTP/1.1 200 OK\r\ncontent-le"),
        ("half a body", b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"allowed\":"),
        ("another protocol", b"220 mail.example ESMTP\r\n"),
        ("two lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\ncontent-length: 17\r\n\r\n{\"allowed\":true}\n"),
        (
            "a chunk of no size",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{\"allowed\":true}\r\n0\r\n\r\n",
        ),
        ("interim responses without end", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"),
    ]
}

/// Patches of what a webhook may not change, or cannot.
fn patches() -> Vec<(String, Value)> {
    let operations = [
        json!({ "op": "replace", "path": "/mcp_request/id", "value": 2 }),
        json!({ "op": "remove", "path": "/mcp_request/id" }),
        json!({ "op": "replace", "path": "/mcp_request/method", "value": "tools/list" }),
        json!({ "op": "copy", "from": "/mcp_request/params/name", "path": "/mcp_request/method" }),
        json!({ "op": "replace", "path": "/mcp_request/jsonrpc", "value": "1.0" }),
        json!({ "op": "add", "path": "/mcp_request/Method", "value": "tools/list" }),
        json!({ "op": "add", "path": "/mcp_request/params/Name", "value": "other" }),
        json!({ "op": "add", "path": "/mcp_request/result", "value": {} }),
        json!({ "op": "add", "path": "/mcp_request/error", "value": { "code": 1, "message": "" } }),
        json!({ "op": "replace", "path": "/mcp_request", "value": [] }),
        json!({ "op": "replace", "path": "/mcp_request", "value": { "jsonrpc": "2.0", "id": 1, "method": "tools/list" } }),
        json!({ "op": "remove", "path": "/mcp_request" }),
        json!({ "op": "replace", "path": "/principal/sub", "value": "root" }),
        json!({ "op": "replace", "path": "", "value": {} }),
        json!({ "op": "replace", "path": "/mcp_request/../principal", "value": {} }),
        json!({ "op": "test", "path": "/mcp_request/params/name", "value": "other" }),
        json!({ "op": "replace", "path": "/mcp_request/params/missing", "value": 1 }),
        json!({ "op": "remove", "path": "/mcp_request/params/arguments/missing" }),
        json!({ "op": "merge", "path": "/mcp_request/params", "value": {} }),
        json!({ "op": "move", "from": "/mcp_request/id", "path": "/mcp_request/params/id" }),
        json!({ "path": "/mcp_request/params" }),
        json!("remove"),
    ];
    let mut rows: Vec<(String, Value)> =
        operations.into_iter().map(|operation| (operation.to_string(), patch(json!([operation])))).collect();
    rows.push(("a patch that is an object".to_owned(), patch(json!({ "op": "remove" }))));
    rows.push(("a patch of another type".to_owned(), json!({ "allowed": true, "patch_type": "merge", "patch": [] })));
    rows
}
