//! Calls of clients on their way to backends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};
use skep_mcp::{Era, Message};
use skep_upstream::{Call, CallError, Upstream as _};

use crate::rig::{Answers, Rig, echoing, request, responded};

fn prefixed() -> Value {
    json!({ "conflictResolution": "prefix", "conflictResolutionConfig": { "prefixFormat": "{workload}_" } })
}

/// Clients count their requests alike, and so do their progress tokens.
#[tokio::test]
async fn clients_with_the_same_ids_get_their_own_replies_and_progress() {
    let reporting: Answers = Arc::new(|call, request| {
        if request["method"] == "tools/call" {
            let token = &request["params"]["_meta"]["progressToken"];
            let text = &request["params"]["arguments"]["who"];
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                "params": { "progressToken": token, "progress": 1, "message": text } });
            if let Some(interim) = &call.interim {
                interim.try_send(Bytes::from(progress.to_string())).unwrap();
            }
        }
        echoing("a", &["echo"])(call, request)
    });
    let rig = Rig::new(&[("a", reporting), ("b", echoing("b", &["echo"]))], &prefixed());
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..200_usize {
        let who = format!("client-{number}");
        let session = rig.open(&who).await;
        let upstream = rig.upstream.clone();
        clients.spawn(async move {
            let server = if number % 2 == 0 { "a" } else { "b" };
            let params = json!({ "name": format!("{server}_echo"), "arguments": { "who": who }, "_meta": { "progressToken": 7 } });
            let mut call = request(&session, 1, "tools/call", &params);
            call.takes_interim = true;
            let mut replies = upstream.call(call).await.unwrap();
            let response = replies.response.response().await.unwrap();
            let response: Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(response["id"], 1);
            let seen = &response["result"]["structuredContent"];
            assert_eq!((&seen["server"], &seen["arguments"]["who"]), (&json!(server), &json!(who)));
            let mut heard = 0;
            let mut interim = replies.interim.take().unwrap();
            while let Some(message) = interim.recv().await {
                let message: Value = serde_json::from_slice(&message).unwrap();
                assert_eq!(message["params"]["message"], json!(who), "the progress of another client");
                heard += 1;
            }
            heard
        });
    }
    let heard: usize = clients.join_all().await.into_iter().sum();
    assert_eq!(heard, 100, "each client of the server that reports progress hears of its own call, once");
}

#[tokio::test]
async fn a_filtered_tool_cannot_be_called_by_any_of_its_names() {
    let mut rules = prefixed();
    rules["tools"] = json!([{ "workload": "a", "filter": ["seen"] }]);
    let rig = Rig::new(&[("a", echoing("a", &["seen", "secret"]))], &rules);
    let session = rig.open("s").await;
    let listed = responded(&rig.upstream, request(&session, 1, "tools/list", &json!({}))).await;
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 1, "{listed}");
    for name in ["secret", "a_secret", "a.secret", "A_secret", "a_secret "] {
        let response = responded(&rig.upstream, request(&session, 2, "tools/call", &json!({ "name": name }))).await;
        assert_eq!(response["error"]["code"], -32602, "{name}: {response}");
    }
    let seen = responded(&rig.upstream, request(&session, 3, "tools/call", &json!({ "name": "a_seen" }))).await;
    assert_eq!(seen["result"]["structuredContent"]["tool"], "seen");
}

#[tokio::test]
async fn sessions_let_go_of_a_backend_that_was_removed_and_keep_the_others() {
    let rig = Rig::new(&[("a", echoing("a", &["echo"])), ("b", echoing("b", &["echo"]))], &prefixed());
    let session = rig.open("s").await;
    for name in ["a_echo", "b_echo"] {
        responded(&rig.upstream, request(&session, 1, "tools/call", &json!({ "name": name }))).await;
    }
    let of = |name: &str| rig.servers[name].idle_sessions(std::time::Duration::ZERO).len();
    assert_eq!((of("a"), of("b")), (1, 1));
    let removed = Arc::downgrade(&rig.backends.get("a").unwrap());
    rig.serve(&["b"]);
    while removed.strong_count() > 0 || of("a") > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(of("b"), 1, "the other session is as it was");
    let gone = responded(&rig.upstream, request(&session, 2, "tools/call", &json!({ "name": "a_echo" }))).await;
    assert_eq!(gone["error"]["code"], -32602, "{gone}");
    let stays = responded(&rig.upstream, request(&session, 3, "tools/call", &json!({ "name": "b_echo" }))).await;
    assert_eq!(stays["result"]["structuredContent"]["server"], "b");
}

/// A request of a backend belongs to the call that it came with. A client that never answers must not use up what there is for others.
#[tokio::test]
async fn requests_that_are_never_answered_end_with_their_call() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let asking: Answers = Arc::new(move |call, request| {
        if request["method"] == "tools/call" {
            let number = count.fetch_add(1, Ordering::Relaxed);
            let ask = json!({ "jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": {} });
            call.interim.as_ref().unwrap().try_send(Bytes::from(ask.to_string())).unwrap();
        }
        echoing("a", &["echo"])(call, request)
    });
    let rig = Rig::new(&[("a", asking)], &prefixed());
    let session = rig.open("s").await;
    for number in 0..150 {
        let mut call = request(&session, number, "tools/call", &json!({ "name": "a_echo" }));
        call.takes_interim = true;
        let mut replies = rig.upstream.clone().call(call).await.unwrap();
        let asked = replies.interim.as_mut().unwrap().recv().await;
        let asked = Message::parse(asked.expect("the client is asked, however many calls there were before")).unwrap();
        assert_eq!(asked.method(), Some("elicitation/create"));
        replies.response.response().await.unwrap();
    }
    assert_eq!(asked.load(Ordering::Relaxed), 150);
}

#[tokio::test]
async fn an_error_of_a_backend_names_it_and_concerns_its_call_alone() {
    let failing: Answers = Arc::new(|call, request| match request["method"].as_str() {
        // The response never comes: the server drops the call.
        Some("tools/call") => None,
        _ => echoing("a", &["echo"])(call, request),
    });
    let rig = Rig::new(&[("a", failing), ("b", echoing("b", &["echo"]))], &prefixed());
    let session = rig.open("s").await;
    let mut lost =
        rig.upstream.clone().call(request(&session, 1, "tools/call", &json!({ "name": "a_echo" }))).await.unwrap();
    let fine = responded(&rig.upstream, request(&session, 2, "tools/call", &json!({ "name": "b_echo" }))).await;
    assert_eq!(fine["result"]["structuredContent"]["server"], "b");
    assert_eq!(lost.response.response().await.unwrap_err(), CallError::Disconnected);
}

/// As 2026-07-28 has it: the handshake's companions are gone, and an error says which resource there is none of.
#[tokio::test]
async fn what_a_client_of_2026_has_no_more_is_no_method_and_an_unknown_resource_is_named() {
    let rig = Rig::new(&[("a", echoing("a", &["echo"]))], &prefixed());
    let session = rig.open("s").await;
    let modern = |method: &str, params: &Value| {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        Call::new(Message::parse(request.to_string().into()).unwrap(), Era::Modern)
    };
    assert_eq!(responded(&rig.upstream, modern("ping", &json!({}))).await["error"]["code"], -32601);
    assert_eq!(responded(&rig.upstream, request(&session, 1, "ping", &json!({}))).await["result"], json!({}));
    let read = json!({ "uri": "file:///none" });
    for (call, code) in
        [(modern("resources/read", &read), -32602), (request(&session, 2, "resources/read", &read), -32002)]
    {
        let error = &responded(&rig.upstream, call).await["error"];
        assert_eq!((&error["code"], &error["data"]), (&json!(code), &read));
    }
}
