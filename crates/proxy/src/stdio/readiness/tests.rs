use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::bridge::tests::{heard, request};
use super::*;

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_server_and_fails_at_once_when_it_is_known_to_have_failed() {
    let (bridge, mut queued) = Bridge::new();
    let ping = request(&json!(1), "ping", &json!({}));
    let waiting = {
        let (bridge, ping) = (bridge.clone(), ping.clone());
        tokio::spawn(async move { bridge.call(&ping, Era::Legacy, None, None).await.map(drop) })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    bridge.set_readiness(Readiness::Failed("cannot start `a`".into()));
    let failed = waiting.await.unwrap().unwrap_err();
    assert_eq!(failed, Failed::Unavailable("cannot start `a`".into()));
    let body: Value = serde_json::from_slice(&failed.body(None)).unwrap();
    assert_eq!(body["error"], json!({ "code": -32603, "message": "the server is not available: cannot start `a`" }));
    let since = Instant::now();
    assert!(bridge.call(&ping, Era::Legacy, None, None).await.is_err());
    assert_eq!(since.elapsed(), Duration::ZERO);
    assert!(queued.try_recv().is_err());
    bridge.set_readiness(Readiness::Ready(Era::Legacy));
    let _call = bridge.call(&ping, Era::Legacy, None, None).await.unwrap();
    assert_eq!(heard(&mut queued).await["method"], "ping");
}

/// The next server would take it for a request of its own era, and ask a client of another session about it.
#[tokio::test]
async fn a_request_that_was_admitted_for_a_modern_server_never_reaches_a_legacy_one() {
    let (bridge, mut queued) = Bridge::with_server_of(Era::Modern);
    let call = request(&json!(1), "tools/call", &json!({}));
    assert!(bridge.admit(&call, Era::Modern).await.is_ok());
    bridge.set_readiness(Readiness::Ready(Era::Legacy));
    assert_eq!(bridge.call(&call, Era::Modern, None, None).await.unwrap_err(), Failed::Gone);
    assert!(queued.try_recv().is_err());
}

/// What was said to a server that went away is not for the next one, and nothing comes before the handshake of that.
#[tokio::test(start_paused = true)]
async fn nothing_but_the_handshake_is_queued_for_a_server_that_is_not_ready() {
    let (bridge, mut queued) = Bridge::with_server();
    let ping = request(&json!(1), "ping", &json!({}));
    let news = request(&json!(1), "notifications/roots/list_changed", &json!({}));
    // Whoever waits for room meets the next server.
    for _ in 0..super::super::bridge::QUEUE {
        bridge.tell(&bytes::Bytes::new(), || Some("{}\n".into())).await.unwrap();
    }
    let (called, told) = {
        let (one, two, ping) = (bridge.clone(), bridge.clone(), ping.clone());
        let called = tokio::spawn(async move { one.call(&ping, Era::Legacy, None, None).await });
        (called, tokio::spawn(async move { two.tell(&bytes::Bytes::new(), || Some("{}\n".into())).await }))
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    bridge.disconnected(&mut queued);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(told.await.unwrap().is_err());
    assert!(!called.is_finished());
    bridge.tell_at_once("{}\n".into());
    assert!(bridge.told(&news, None, Duration::from_secs(1)).await.is_err());
    assert!(queued.try_recv().is_err());
    bridge.set_readiness(Readiness::Ready(Era::Legacy));
    assert!(called.await.unwrap().is_ok());
    assert_eq!(heard(&mut queued).await["method"], "ping");
}
