use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::line::Line;
use super::super::upstream::tests::{heard, message, request};
use super::*;

/// A server that answers what it is asked to open with, in this order.
async fn opened(answers: &[(&str, Value)]) -> (Arc<StdioUpstream>, mpsc::Receiver<Line>, Result<Era, String>) {
    let (upstream, mut queued) = StdioUpstream::new();
    let opening = {
        let upstream = upstream.clone();
        tokio::spawn(async move { upstream.negotiate(false).await })
    };
    for (method, answer) in answers {
        let asked = heard(&mut queued).await;
        assert_eq!(asked["method"], *method);
        let mut answer = answer.clone();
        (answer["jsonrpc"], answer["id"]) = (json!("2.0"), asked["id"].clone());
        upstream.dispatch(&message(&answer));
    }
    let opened = opening.await.unwrap();
    (upstream, queued, opened)
}

fn refusal() -> Value {
    json!({ "error": { "code": -32022, "message": "not\nhere" } })
}

fn modern() -> Value {
    json!({ "result": { "supportedVersions": ["2026-07-28"], "capabilities": {} } })
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_initialize_is_opened_by_nothing_else() {
    let (upstream, mut queued, era) = opened(&[("initialize", json!({ "result": { "of": "it" } }))]).await;
    assert_eq!(era, Ok(Era::Legacy));
    assert_eq!(heard(&mut queued).await["method"], "notifications/initialized");
    assert!(queued.try_recv().is_err());
    let mine = request(&json!("mine"), "initialize", &json!({}));
    let answer: Value = serde_json::from_slice(upstream.initialized(&mine).unwrap().body()).unwrap();
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": "mine", "result": { "of": "it" } }));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_initialize_is_opened_by_discover_and_so_is_the_next() {
    let (upstream, mut queued, era) = opened(&[("initialize", refusal()), ("server/discover", modern())]).await;
    assert_eq!(era, Ok(Era::Modern));
    assert!(queued.try_recv().is_err(), "there is no handshake that could be over");
    assert!(upstream.initialized(&request(&json!(1), "initialize", &json!({}))).is_none());
    assert_eq!(upstream.handshake.take_opening(), Era::Modern);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_both_is_reported() {
    for last in [json!({ "error": { "code": -32601, "message": "no" } }), json!({ "result": {} })] {
        let (upstream, _queued, era) = opened(&[("initialize", refusal()), ("server/discover", last)]).await;
        assert_eq!(era, Err("the server refused `initialize`: nothere".to_owned()));
        assert_eq!(upstream.handshake.take_opening(), Era::Legacy);
    }
}

/// As servers on rmcp do that have no version with a handshake.
#[tokio::test(start_paused = true)]
async fn a_server_that_ends_after_its_refusal_is_opened_by_discover_when_it_was_restarted() {
    let (upstream, mut queued) = StdioUpstream::new();
    let opening = {
        let upstream = upstream.clone();
        tokio::spawn(async move { upstream.negotiate(false).await })
    };
    let asked = heard(&mut queued).await;
    upstream.dispatch(&message(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": refusal()["error"] })));
    assert_eq!(heard(&mut queued).await["method"], "server/discover");
    upstream.disconnected(&mut queued);
    assert!(opening.await.unwrap().is_err());
    let _next = {
        let upstream = upstream.clone();
        tokio::spawn(async move { upstream.negotiate(false).await })
    };
    assert_eq!(heard(&mut queued).await["method"], "server/discover");
    assert_eq!(upstream.handshake.take_opening(), Era::Legacy, "unless it ends again");
}

/// As a server does that answers before it is initialized, lacks a credential, and ends with its refusal.
#[tokio::test(start_paused = true)]
async fn a_server_that_refused_both_and_was_restarted_is_reported() {
    let (since, (upstream, mut queued)) = (Instant::now(), StdioUpstream::new());
    upstream.handshake.open_with(Era::Modern);
    let opening = {
        let upstream = upstream.clone();
        tokio::spawn(async move { upstream.negotiate(false).await })
    };
    for method in ["server/discover", "initialize"] {
        let asked = heard(&mut queued).await;
        assert_eq!(asked["method"], method);
        upstream.dispatch(&message(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": refusal()["error"] })));
    }
    assert_eq!(opening.await.unwrap(), Err("the server refused `initialize`: nothere".to_owned()));
    assert_eq!(since.elapsed(), Duration::ZERO, "it is not asked a third time");
    assert_eq!(upstream.handshake.take_opening(), Era::Legacy);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_initialize_and_ignores_discover_is_reported_soon() {
    let since = Instant::now();
    let (upstream, _queued, era) = opened(&[("initialize", refusal())]).await;
    assert_eq!(era, Err("the server refused `initialize`: nothere".to_owned()));
    assert_eq!(since.elapsed(), DISCOVERY);
    assert_eq!(upstream.handshake.take_opening(), Era::Legacy);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_in_the_end() {
    let since = Instant::now();
    let (_bridge, _queued, era) = opened(&[]).await;
    assert!(era.unwrap_err().starts_with("the server did not answer `initialize` within"));
    assert_eq!(since.elapsed(), FIRST);
}
