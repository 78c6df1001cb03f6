//! A stdio server behind HTTP with a stream of events beside it.

use std::time::Duration;

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Caller, Events, greeting, request};
use crate::lines::{How, Stage};

/// Opens a stream; returns it with the path that its first event tells.
async fn open(caller: &Caller) -> Result<(Events, String)> {
    let mut events = caller.events(Method::GET, "/sse", "").await?;
    assert_eq!(events.status, StatusCode::OK);
    let (name, url) = events.next().await?.unwrap();
    assert_eq!(name, "endpoint");
    let path = url.split_once("/messages").unwrap().1;
    Ok((events, format!("/messages{path}")))
}

async fn send(caller: &Caller, path: &str, message: &Value) -> Result<()> {
    let answer = caller.whole(Method::POST, path, message.to_string()).await?;
    assert_eq!((answer.status, answer.text()), (StatusCode::ACCEPTED, "Accepted"));
    Ok(())
}

fn sse() -> How {
    How { sse: true, ..How::default() }
}

#[tokio::test]
async fn callers_with_the_same_ids_get_their_own_answers_only() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let caller = stage.caller();
    let (mut one, first) = open(&caller).await?;
    let (mut two, second) = open(&caller).await?;
    for (events, path) in [(&mut one, &first), (&mut two, &second)] {
        send(&caller, path, &request(json!(1), "initialize", greeting())).await?;
        assert_eq!(events.message().await?["result"]["serverInfo"]["name"], "s");
        send(&caller, path, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
    }
    assert_eq!(stage.told("initialize").len(), 1);
    let call = |text: &str| request(json!(7), "tools/call", json!({ "name": "echo", "arguments": { "t": text } }));
    send(&caller, &first, &call("one")).await?;
    send(&caller, &second, &call("two")).await?;
    for (events, text) in [(&mut one, "one"), (&mut two, "two")] {
        let answer = events.message().await?;
        assert_eq!(
            (&answer["id"], &answer["result"]["content"][0]["text"]),
            (&json!(7), &json!(format!("{{\"t\":\"{text}\"}}")))
        );
    }
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    stage.say(changed.clone()).await?;
    assert_eq!(one.message().await?, changed);
    assert_eq!(two.message().await?, changed);
    // A stream that ends takes its session with it, and its work.
    send(&caller, &first, &request(json!(8), "hold", json!({}))).await?;
    stage.until_told("hold", 1).await?;
    drop(one);
    stage.until_told("notifications/cancelled", 1).await?;
    let gone = caller.whole(Method::POST, &first, call("late").to_string()).await?;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn the_first_event_says_how_the_caller_reached_us() -> Result<()> {
    let forwarded = |caller: Caller| {
        caller
            .with("x-forwarded-proto", "https")
            .with("x-forwarded-host", "h.example")
            .with("x-forwarded-port", "8443")
            .with("x-forwarded-prefix", "/tools/sse")
    };
    let url = async |stage: &Stage| -> Result<String> {
        let mut events = forwarded(stage.caller()).events(Method::GET, "/sse", "").await?;
        Ok(events.next().await?.unwrap().1)
    };
    let plain = Stage::with(sse()).await?;
    let told = url(&plain).await?;
    assert!(told.starts_with(&format!("http://{}/messages?session_id=", plain.address)), "{told}");
    let mut how = sse();
    how.config.trust_proxy_headers = true;
    let told = url(&Stage::with(how).await?).await?;
    assert!(told.starts_with("https://h.example:8443/tools/messages?session_id="), "{told}");
    Ok(())
}

#[tokio::test]
async fn messages_need_a_stream() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let caller = stage.caller();
    let message = request(json!(1), "ping", json!({})).to_string();
    for (method, path, status, words) in [
        (Method::POST, "/messages", StatusCode::BAD_REQUEST, "session_id is required"),
        (Method::POST, "/messages?session_id=x", StatusCode::NOT_FOUND, "Session not found"),
        (Method::GET, "/messages", StatusCode::METHOD_NOT_ALLOWED, ""),
        (Method::POST, "/sse", StatusCode::METHOD_NOT_ALLOWED, ""),
        (Method::POST, "/mcp", StatusCode::NOT_FOUND, ""),
    ] {
        let answer = caller.whole(method, path, message.clone()).await?;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.text().contains(words), "{path}: {}", answer.text());
    }
    let (_events, path) = open(&caller).await?;
    assert_eq!(caller.whole(Method::POST, &path, "{").await?.status, StatusCode::BAD_REQUEST);
    assert_eq!(caller.whole(Method::POST, &path, "[]").await?.status, StatusCode::BAD_REQUEST);
    Ok(())
}

#[tokio::test]
async fn everybody_hears_in_time_that_the_server_is_away() -> Result<()> {
    let stage = Stage::absent(How { timeout: Duration::from_secs(1), ..sse() }).await?;
    let caller = stage.caller();
    let (mut events, path) = open(&caller).await?;
    // More than wait for the server, and less than wait for the caller.
    for id in 0..70 {
        send(&caller, &path, &request(json!(id), "ping", json!({}))).await?;
    }
    let (mut others, path) = open(&caller).await?;
    for id in 0..70 {
        send(&caller, &path, &request(json!(id), "ping", json!({}))).await?;
    }
    for events in [&mut events, &mut others] {
        for _ in 0..70 {
            assert!(events.message().await?["error"].is_object());
        }
    }
    Ok(())
}
