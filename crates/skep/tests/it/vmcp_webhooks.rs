//! `skep vmcp` with webhooks, which are another program: with clients of both eras, and a server that keeps what it received.

use serde_json::{Value, json};

use crate::run::loopback::{Loopback, Received};
use crate::run::webhooks::Webhook;
use crate::run::write;
use crate::skep;
use crate::vmcp::{Virtual, config, request};

/// The webhook knows tools by their own names.
const AGGREGATION: &str = "aggregation: {conflictResolution: manual}\n";

/// A server of 2026-07-28 that echoes the arguments of calls.
fn backend() -> Loopback {
    let answer = |received: &Received| {
        let request: Value = serde_json::from_slice(&received.body).unwrap();
        let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
        let mut result = match request["method"].as_str().unwrap() {
            "server/discover" => json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } }),
            "tools/list" => json!({ "tools": [tool("delete_all"), tool("search")] }),
            "tools/call" => json!({ "content": [], "structuredContent": request["params"]["arguments"] }),
            _ => json!({}),
        };
        result["resultType"] = json!("complete");
        json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string()
    };
    Loopback::start(answer)
}

/// What the server was called with.
fn calls(backend: &Loopback) -> Vec<Value> {
    let messages = backend.received().into_iter().map(|one| serde_json::from_slice::<Value>(&one.body).unwrap());
    messages.filter(|message| message["method"] == "tools/call").map(|message| message["params"].clone()).collect()
}

/// The webhook may change calls and denies others; the key that signs requests is in this file.
fn webhooks(webhook: &Webhook, key: &str) -> String {
    let entry = |path: &str| {
        format!(
            "[{{name: hook, url: 'http://127.0.0.1:{}/{path}', hmacSecretRef: {key}, tlsConfig: {{insecureSkipVerify: true}}}}]",
            webhook.port
        )
    };
    format!("webhooks:\n  mutating: {}\n  validating: {}\n", entry("mutate"), entry("validate"))
}

#[test]
fn webhooks_change_and_deny_the_calls_of_a_virtual_server() {
    let directory = tempfile::tempdir().unwrap();
    let (theirs, ours) = (write(directory.path(), "theirs", "first"), write(directory.path(), "ours", "first"));
    let (webhook, backend) = (Webhook::start(&theirs), backend());
    let address = backend.address.to_string();
    let text = config(&[("one", &address)], &format!("{AGGREGATION}{}", webhooks(&webhook, &ours)));
    let path = write(directory.path(), "config.yaml", &text);
    skep(&["vmcp", "validate", "--config", &path]).succeeded();
    let served = Virtual::start_with(&text);
    let call = |name: &str| {
        let params = json!({ "name": name, "arguments": { "limit": 1000, "q": "x" } });
        served.post(None, &request(1, "tools/call", &params))
    };

    // A modern client, and a legacy one.
    let modern = skep(&["call", &served.url(), "search", "--arg", "limit=1000"]);
    assert!(modern.succeeded().contains("10") && !modern.out.contains("1000"), "{}", modern.out);
    let legacy = call("search");
    assert_eq!(legacy.body["result"]["structuredContent"], json!({ "limit": 10, "q": "x" }), "{}", legacy.text);
    let limits: Vec<Value> = calls(&backend).iter().map(|params| params["arguments"]["limit"].clone()).collect();
    assert_eq!(limits, [10, 10], "the server gets what the webhook made");

    skep(&["call", &served.url(), "delete_all"]).refused(1, &["Request denied by policy"]);
    let denied = call("delete_all");
    assert_eq!((denied.status, &denied.body["error"]["message"]), (403, &json!("Request denied by policy")));
    assert!(calls(&backend).iter().all(|params| params["name"] == "search"), "a denied call reaches no server");

    // A new key counts from the next call on.
    std::fs::write(&theirs, "second").unwrap();
    assert_eq!(call("search").status, 500, "the webhook refuses the signature");
    std::fs::write(&ours, "second").unwrap();
    assert_eq!(call("search").status, 200);
    assert_eq!(calls(&backend).len(), 3);
}

#[test]
fn webhooks_see_the_tool_that_is_called_through_the_optimizer() {
    let directory = tempfile::tempdir().unwrap();
    let key = write(directory.path(), "key", "hush");
    let (webhook, backend) = (Webhook::start(&key), backend());
    let more = format!("{AGGREGATION}optimizer: {{}}\n{}", webhooks(&webhook, &key));
    let served = Virtual::start_with(&config(&[("one", &backend.address.to_string())], &more));
    let call = |name: &str| {
        let arguments = json!({ "tool_name": name, "parameters": { "limit": 1000 } });
        served.post(None, &request(1, "tools/call", &json!({ "name": "call_tool", "arguments": arguments })))
    };
    assert_eq!(call("delete_all").status, 403);
    assert_eq!(call("search").body["result"]["structuredContent"], json!({ "limit": 10 }));
    let received = calls(&backend);
    assert_eq!(received.len(), 1, "a denied call reaches no server: {received:?}");
    assert_eq!((&received[0]["name"], &received[0]["arguments"]), (&json!("search"), &json!({ "limit": 10 })));
}
