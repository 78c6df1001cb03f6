use serde_json::{Value, json};
use skep_mcp::Era;
use tokio::sync::mpsc;

use super::super::upstream::StdioUpstream;
use super::super::upstream::tests::{message, request};
use super::*;

/// A call of 2026-07-28 that asks for this much of the log, and where its client reads.
async fn call(
    upstream: &std::sync::Arc<StdioUpstream>,
    level: Option<&str>,
) -> (crate::PendingResponse, mpsc::Receiver<Bytes>) {
    let (sender, reader) = mpsc::channel(8);
    (upstream.forward(&tool_call(level), Era::Modern, None, Some(sender)).await.unwrap(), reader)
}

fn tool_call(level: Option<&str>) -> Message {
    let meta = level.map_or(json!({}), |level| json!({ LEVEL: level }));
    request(&json!(1), "tools/call", &json!({ "name": "a", "_meta": meta }))
}

fn log(level: &str) -> Message {
    message(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": level, "data": "x" } }))
}

fn levels(reader: &mut mpsc::Receiver<Bytes>) -> Vec<Value> {
    let lines = std::iter::from_fn(|| reader.try_recv().ok());
    lines.map(|line| serde_json::from_slice::<Value>(&line).unwrap()["params"]["level"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_log_is_that_of_the_only_call_in_flight_that_asked_for_it() {
    let (upstream, _queued) = StdioUpstream::with_server_of(Era::Modern);
    let (_silent, mut silent_reads) = call(&upstream, None).await;
    let (asking, mut asking_reads) = call(&upstream, Some("info")).await;
    for level in ["debug", "info", "error"] {
        upstream.dispatch(&log(level));
    }
    assert_eq!(levels(&mut asking_reads), ["info", "error"], "no more than it asked for");
    // One that asked for less does not want what is more detailed.
    let (_brief, mut brief_reads) = call(&upstream, Some("error")).await;
    upstream.dispatch(&log("info"));
    upstream.dispatch(&log("error"));
    assert_eq!(levels(&mut asking_reads), ["info"], "either may be meant by the other one");
    assert!(levels(&mut brief_reads).is_empty() && levels(&mut silent_reads).is_empty());
    // The server may not heed that a client left, for a while.
    drop(asking);
    upstream.dispatch(&log("error"));
    assert!(levels(&mut brief_reads).is_empty());
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    upstream.dispatch(&log("error"));
    assert_eq!(levels(&mut brief_reads), ["error"]);
}

#[tokio::test(start_paused = true)]
async fn an_open_subscription_is_no_call_that_a_log_could_be_about() {
    let (upstream, _queued) = StdioUpstream::with_server_of(Era::Modern);
    let listen = request(&json!(1), "subscriptions/listen", &json!({}));
    let (_session, mut session_reads) = super::super::upstream::tests::capable(&upstream, "ann");
    let subscription = upstream.forward(&listen, Era::Modern, None, None).await.unwrap();
    let work = request(&json!(1), "tools/call", &json!({}));
    let _call = upstream.forward(&work, Era::Legacy, Some("ann".into()), None).await.unwrap();
    upstream.dispatch(&log("info"));
    assert_eq!(levels(&mut session_reads), ["info"]);
    // Nor is it one when it was closed.
    drop(subscription);
    upstream.dispatch(&log("info"));
    assert_eq!(levels(&mut session_reads), ["info"]);
}

/// In the legacy era a session asks for the log, by `logging/setLevel`. A key in `_meta` asks for nothing, and takes it from no other session.
#[tokio::test]
async fn a_legacy_call_cannot_ask_for_the_log_of_others() {
    for takes_events in [true, false] {
        let (upstream, mut queued) = StdioUpstream::with_server();
        let (ann, mut ann_reads) = super::super::upstream::tests::capable(&upstream, "ann");
        let (sender, mut reader) = mpsc::channel(8);
        let greedy = tool_call(Some("debug"));
        let _greedy = upstream.forward(&greedy, Era::Legacy, None, takes_events.then_some(sender)).await.unwrap();
        upstream.dispatch(&log("info"));
        assert!(levels(&mut reader).is_empty(), "it has no session, so it may be of any session");
        let wire = super::super::upstream::tests::sent(&mut queued);
        upstream.dispatch(&message(&json!({ "jsonrpc": "2.0", "id": wire, "result": {} })));
        // Its own log reaches a session all the same.
        let own = upstream.forward(&greedy, Era::Legacy, Some(ann.clone()), None).await.unwrap();
        upstream.dispatch(&log("info"));
        assert_eq!(levels(&mut ann_reads), ["info"], "{takes_events}");
        drop(own);
    }
}
