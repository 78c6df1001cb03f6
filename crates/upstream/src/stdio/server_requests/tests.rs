use std::time::Duration;

use serde_json::{Value, json};
use skep_mcp::Era;

use super::super::upstream::QUEUE;
use super::super::upstream::tests::{capable, elicitation, heard, message, request, sent};
use super::*;
use crate::error::CallError;
use crate::upstream::SessionId;

const WAIT: Duration = Duration::from_secs(30);

fn answer(number: &Value) -> Message {
    message(&json!({ "jsonrpc": "2.0", "id": number, "result": { "action": "accept" } }))
}

fn read(bytes: &Bytes) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_timeout_does_not_run_while_the_server_waits_for_its_client() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (ann, mut hears) = capable(&upstream, "ann");
    let slow = request(&json!(1), "tools/call", &json!({ "name": "slow" }));
    let mut call = upstream.forward(&slow, Era::Legacy, Some(ann.clone()), None).await.unwrap();
    sent(&mut queued);
    assert_eq!(upstream.dispatch(&elicitation()), None);
    let number = read(&hears.recv().await.unwrap())["id"].clone();
    let until = Instant::now() + WAIT;
    let answered = tokio::spawn(async move { call.response_by(until, WAIT).await });
    // People take their time.
    for _ in 0..5 {
        tokio::time::advance(WAIT).await;
        tokio::task::yield_now().await;
    }
    assert!(!answered.is_finished());
    upstream.answer(&answer(&number), Some(&ann)).await.unwrap();
    let since = Instant::now();
    assert_eq!(answered.await.unwrap().unwrap_err(), CallError::Timeout, "now it was the server's turn");
    assert!(since.elapsed() >= WAIT, "{:?}", since.elapsed());
    assert!(since.elapsed() < 2 * WAIT, "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_question_is_withdrawn_where_it_was_put() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let ann: SessionId = "ann".into();
    let (sender, mut interim) = tokio::sync::mpsc::channel(4);
    let slow = request(&json!(1), "tools/call", &json!({ "name": "slow" }));
    let _call = upstream.forward(&slow, Era::Legacy, Some(ann.clone()), Some(sender)).await.unwrap();
    sent(&mut queued);
    assert_eq!(upstream.dispatch(&elicitation()), None);
    let number = read(&interim.recv().await.unwrap())["id"].clone();
    let params = json!({ "requestId": "theirs" });
    upstream.dispatch(&message(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })));
    assert_eq!(read(&interim.try_recv().unwrap())["params"]["requestId"], number);
}

#[tokio::test]
async fn who_leaves_before_there_was_room_for_an_answer_can_give_it_again() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (ann, mut hears) = capable(&upstream, "ann");
    let slow = request(&json!(1), "tools/call", &json!({ "name": "slow" }));
    let _call = upstream.forward(&slow, Era::Legacy, Some(ann.clone()), None).await.unwrap();
    sent(&mut queued);
    assert_eq!(upstream.dispatch(&elicitation()), None);
    let number = read(&hears.recv().await.unwrap())["id"].clone();
    for _ in 0..QUEUE {
        upstream.send_line(|| Some(LineText::Whole(Bytes::from_static(b"{}\n")))).await.unwrap();
    }
    let left = tokio::time::timeout(Duration::ZERO, upstream.forward_notification(&answer(&number), Some(&ann))).await;
    assert!(left.is_err(), "there is no room");
    while queued.try_recv().is_ok() {}
    upstream.forward_notification(&answer(&number), Some(&ann)).await.unwrap();
    assert_eq!(heard(&mut queued).await["id"], "theirs");
    upstream.forward_notification(&answer(&number), Some(&ann)).await.unwrap();
    assert!(queued.try_recv().is_err(), "once");
}

#[tokio::test(start_paused = true)]
async fn what_one_server_asked_is_not_refused_to_the_next() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    upstream.connected(Some(WAIT));
    assert_eq!(upstream.dispatch(&elicitation()), None, "left to the proxy before");
    upstream.disconnected(&mut queued);
    upstream.connected(Some(WAIT));
    tokio::time::sleep(2 * WAIT).await;
    assert!(queued.try_recv().is_err());
    assert_eq!(upstream.with(|state| state.held_back), 0);
}

/// A server that serves one request after the other waits for the answer, and all clients with it.
#[tokio::test(start_paused = true)]
async fn a_request_to_a_client_that_left_is_refused_for_it() {
    let slow = request(&json!(1), "tools/call", &json!({ "name": "slow" }));
    for leaves in ["the call", "the session", "nothing"] {
        let (upstream, mut queued) = StdioUpstream::with_server();
        let ann: SessionId = "ann".into();
        upstream.register(&ann, super::super::capabilities::ClientCapabilities::of(&capabilities()));
        let (sender, mut interim) = tokio::sync::mpsc::channel(4);
        let call = upstream.forward(&slow, Era::Legacy, Some(ann.clone()), Some(sender)).await.unwrap();
        sent(&mut queued);
        assert_eq!(upstream.dispatch(&elicitation()), None);
        interim.recv().await.unwrap();
        let started = Instant::now();
        match leaves {
            "the call" => drop(call),
            "the session" => upstream.end(&ann),
            _ => {}
        }
        let refused = loop {
            let line = heard(&mut queued).await;
            if line["id"] == "theirs" {
                break line;
            }
        };
        assert_eq!(refused["error"]["code"], -32603, "{leaves}: {refused}");
        let waited = if leaves == "nothing" { ANSWER_TIMEOUT } else { Duration::ZERO };
        assert_eq!(started.elapsed().as_secs(), waited.as_secs(), "{leaves}");
        assert!(upstream.with(|state| state.asked.is_empty()));
    }
}

#[tokio::test]
async fn a_client_that_left_a_call_and_listens_can_still_answer() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (ann, mut hears) = capable(&upstream, "ann");
    let slow = request(&json!(1), "tools/call", &json!({ "name": "slow" }));
    let call = upstream.forward(&slow, Era::Legacy, Some(ann.clone()), None).await.unwrap();
    sent(&mut queued);
    assert_eq!(upstream.dispatch(&elicitation()), None);
    let number = read(&hears.recv().await.unwrap())["id"].clone();
    drop(call);
    assert_eq!(heard(&mut queued).await["method"], "notifications/cancelled");
    upstream.answer(&answer(&number), Some(&ann)).await.unwrap();
    assert_eq!(heard(&mut queued).await["id"], "theirs");
}

fn capabilities() -> Message {
    request(&json!(0), "initialize", &json!({ "capabilities": { "elicitation": {} } }))
}

/// What is answered leaves nothing behind until its time would be over.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_answered_keeps_no_task() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let (ann, mut hears) = capable(&upstream, "ann");
    let slow = request(&json!(1), "tools/call", &json!({ "name": "slow" }));
    let _call = upstream.forward(&slow, Era::Legacy, Some(ann.clone()), None).await.unwrap();
    sent(&mut queued);
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _ in 0..100 {
        assert_eq!(upstream.dispatch(&elicitation()), None);
        let number = read(&hears.recv().await.unwrap())["id"].clone();
        upstream.answer(&answer(&number), Some(&ann)).await.unwrap();
        heard(&mut queued).await;
    }
    tokio::task::yield_now().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before);
}
