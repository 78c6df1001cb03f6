use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::line::LineText;
use super::super::upstream::tests::{heard, request};
use super::*;
use crate::upstream::Upstream as _;

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_server_and_fails_at_once_when_it_is_known_to_have_failed() {
    let (upstream, mut queued) = StdioUpstream::new();
    let ping = request(&json!(1), "ping", &json!({}));
    let waiting = {
        let (upstream, ping) = (upstream.clone(), ping.clone());
        tokio::spawn(async move { upstream.forward(&ping, Era::Legacy, None, None).await.map(drop) })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    upstream.set_upstream_state(UpstreamState::Failing("cannot start `a`".into()));
    let failed = waiting.await.unwrap().unwrap_err();
    assert_eq!(failed, CallError::Unavailable("cannot start `a`".into()));
    let body: Value = serde_json::from_slice(&failed.answer(None)).unwrap();
    assert_eq!(body["error"], json!({ "code": -32603, "message": "the server is not available: cannot start `a`" }));
    let since = Instant::now();
    assert!(upstream.forward(&ping, Era::Legacy, None, None).await.is_err());
    assert_eq!(since.elapsed(), Duration::ZERO);
    assert!(queued.try_recv().is_err());
    upstream.set_upstream_state(UpstreamState::ready(Era::Legacy));
    let _call = upstream.forward(&ping, Era::Legacy, None, None).await.unwrap();
    assert_eq!(heard(&mut queued).await["method"], "ping");
}

/// The next server would take it for a request of its own era, and ask a client of another session about it.
#[tokio::test]
async fn a_request_that_was_admitted_for_a_modern_server_never_reaches_a_legacy_one() {
    let (upstream, mut queued) = StdioUpstream::with_server_of(Era::Modern);
    let call = request(&json!(1), "tools/call", &json!({}));
    assert!(admission::ready(&mut upstream.state()).await.is_ok());
    upstream.set_upstream_state(UpstreamState::ready(Era::Legacy));
    assert_eq!(upstream.forward(&call, Era::Modern, None, None).await.unwrap_err(), CallError::Disconnected);
    assert!(queued.try_recv().is_err());
}

/// What was sent to a server that ended is not for the next one, and nothing comes before the handshake of that.
#[tokio::test(start_paused = true)]
async fn nothing_but_the_handshake_is_queued_for_a_server_that_is_not_ready() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let ping = request(&json!(1), "ping", &json!({}));
    let news = request(&json!(1), "notifications/roots/list_changed", &json!({}));
    // A request that waits for room goes to the next server.
    for _ in 0..super::super::upstream::QUEUE {
        upstream.send_line(|| Some(LineText::Whole("{}\n".into()))).await.unwrap();
    }
    let (called, notified) = {
        let (one, two, ping) = (upstream.clone(), upstream.clone(), ping.clone());
        let called = tokio::spawn(async move { one.forward(&ping, Era::Legacy, None, None).await });
        (called, tokio::spawn(async move { two.send_line(|| Some(LineText::Whole("{}\n".into()))).await }))
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    upstream.disconnected(&mut queued);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(notified.await.unwrap().is_err());
    assert!(!called.is_finished());
    upstream.send_at_once("{}\n".into());
    assert!(tokio::time::timeout(Duration::from_secs(1), upstream.forward_notification(&news, None)).await.is_err());
    assert!(queued.try_recv().is_err());
    upstream.set_upstream_state(UpstreamState::ready(Era::Legacy));
    assert!(called.await.unwrap().is_ok());
    assert_eq!(heard(&mut queued).await["method"], "ping");
}
