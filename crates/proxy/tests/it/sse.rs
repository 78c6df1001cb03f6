//! A stdio server behind HTTP with a stream of events beside it.

use std::time::Duration;

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use skep_testkit::Seen;

use crate::client::{Events, TestClient, initialize_request, request};
use crate::lines::{How, Stage};

/// Opens a stream; returns it with the path that its first event tells.
pub(crate) async fn open(caller: &TestClient) -> Result<(Events, String)> {
    let mut events = caller.events(Method::GET, "/sse", "").await?;
    assert_eq!(events.status, StatusCode::OK);
    let (name, url) = events.next().await?.unwrap();
    assert_eq!(name, "endpoint");
    let path = url.split_once("/messages").unwrap().1;
    Ok((events, format!("/messages{path}")))
}

async fn send(caller: &TestClient, path: &str, message: &Value) -> Result<()> {
    let answer = caller.whole(Method::POST, path, message.to_string()).await?;
    assert_eq!((answer.status, answer.text()), (StatusCode::ACCEPTED, "Accepted"));
    Ok(())
}

fn sse() -> How {
    How { sse: true, ..How::default() }
}

#[tokio::test]
async fn clients_with_the_same_ids_get_their_own_responses_only() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let caller = stage.caller();
    let (mut one, first) = open(&caller).await?;
    let (mut two, second) = open(&caller).await?;
    for (events, path) in [(&mut one, &first), (&mut two, &second)] {
        send(&caller, path, &request(json!(1), "initialize", initialize_request())).await?;
        assert_eq!(events.message().await?["result"]["serverInfo"]["name"], "s");
        send(&caller, path, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
    }
    assert_eq!(stage.received("initialize").len(), 1);
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
    stage.until_received("hold", 1).await?;
    drop(one);
    stage.until_received("notifications/cancelled", 1).await?;
    let gone = caller.whole(Method::POST, &first, call("late").to_string()).await?;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn the_first_event_says_how_the_client_reached_us() -> Result<()> {
    let forwarded = |caller: TestClient| {
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
    let reply = url(&plain).await?;
    assert!(reply.starts_with(&format!("http://{}/messages?session_id=", plain.address)), "{reply}");
    let mut how = sse();
    how.config.trust_proxy_headers = true;
    let reply = url(&Stage::with(how).await?).await?;
    assert!(reply.starts_with("https://h.example:8443/tools/messages?session_id="), "{reply}");
    Ok(())
}

#[tokio::test]
async fn messages_need_a_stream() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let caller = stage.caller();
    let message = request(json!(1), "ping", json!({})).to_string();
    for (method, path, status, expected_text) in [
        (Method::POST, "/messages", StatusCode::BAD_REQUEST, "session_id is required"),
        (Method::POST, "/messages?session_id=x", StatusCode::NOT_FOUND, "Session not found"),
        (Method::GET, "/messages", StatusCode::METHOD_NOT_ALLOWED, ""),
        (Method::POST, "/sse", StatusCode::METHOD_NOT_ALLOWED, ""),
        (Method::POST, "/mcp", StatusCode::NOT_FOUND, ""),
    ] {
        let answer = caller.whole(method, path, message.clone()).await?;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.text().contains(expected_text), "{path}: {}", answer.text());
    }
    let (_events, path) = open(&caller).await?;
    assert_eq!(caller.whole(Method::POST, &path, "{").await?.status, StatusCode::BAD_REQUEST);
    assert_eq!(caller.whole(Method::POST, &path, "[]").await?.status, StatusCode::BAD_REQUEST);
    Ok(())
}

#[tokio::test]
async fn every_client_learns_in_time_that_the_server_is_away() -> Result<()> {
    let stage = Stage::absent(How { timeout: Duration::from_secs(1), ..sse() }).await?;
    let caller = stage.caller();
    let (mut events, path) = open(&caller).await?;
    // More than wait for the server, and less than wait for the client.
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

fn changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
}

#[tokio::test]
async fn resources_and_logs_are_heard_of_by_who_asked() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let caller = stage.caller();
    let (mut one, first) = open(&caller).await?;
    let (mut two, second) = open(&caller).await?;
    let subscribe = request(json!(1), "resources/subscribe", json!({ "uri": "a:b" }));
    for (events, path) in [(&mut one, &first), (&mut two, &second)] {
        send(&caller, path, &subscribe).await?;
        assert_eq!(events.message().await?, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
    }
    assert_eq!(stage.received("resources/subscribe").len(), 1, "the server hears of the first only");
    send(&caller, &second, &request(json!(2), "resources/unsubscribe", json!({ "uri": "a:b" }))).await?;
    assert_eq!(two.message().await?["id"], 2);
    send(&caller, &first, &request(json!(2), "logging/setLevel", json!({ "level": "info" }))).await?;
    assert_eq!(one.message().await?["id"], 2);
    let updated = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "a:b" } });
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info" } });
    for message in [&updated, &log, &changed()] {
        stage.say(message.clone()).await?;
    }
    for message in [&updated, &log, &changed()] {
        assert_eq!(one.message().await?, *message);
    }
    assert_eq!(two.message().await?, changed(), "a client that did not subscribe gets nothing");
    assert!(stage.received("resources/unsubscribe").is_empty());
    drop(one);
    stage.until_received("resources/unsubscribe", 1).await?;
    Ok(())
}

#[tokio::test]
async fn a_client_has_so_many_requests_in_flight_and_no_more() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let caller = stage.caller();
    let (mut events, path) = open(&caller).await?;
    for id in 0..100 {
        send(&caller, &path, &request(json!(id), "hold", json!({}))).await?;
    }
    let more = request(json!(100), "hold", json!({})).to_string();
    let refused = caller.whole(Method::POST, &path, more.clone()).await?;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    // What wants no answer passes, and so do others.
    send(&caller, &path, &json!({ "jsonrpc": "2.0", "method": "notifications/x" })).await?;
    let (mut others, their_path) = open(&caller).await?;
    send(&caller, &their_path, &request(json!(1), "ping", json!({}))).await?;
    assert_eq!(others.message().await?["id"], 1);
    // One answer makes room for one more.
    let reply = stage.until_received("hold", 100).await?;
    stage.say(json!({ "jsonrpc": "2.0", "id": reply[0]["id"], "result": {} })).await?;
    assert_eq!(events.message().await?["result"], json!({}));
    skep_testkit::eventually("room for one more", crate::client::PATIENCE, || async {
        let status = caller.whole(Method::POST, &path, more.clone()).await?.status;
        Ok(if status == StatusCode::ACCEPTED { Seen::Yes(()) } else { Seen::NotYet(status.to_string()) })
    })
    .await?;
    stage.until_received("hold", 101).await?;
    assert_eq!(caller.whole(Method::POST, &path, more.clone()).await?.status, StatusCode::TOO_MANY_REQUESTS);
    // So does one that is taken back, which is not answered.
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    send(&caller, &path, &cancel).await?;
    skep_testkit::eventually("room for one more", crate::client::PATIENCE, || async {
        let status = caller.whole(Method::POST, &path, more.clone()).await?.status;
        Ok(if status == StatusCode::ACCEPTED { Seen::Yes(()) } else { Seen::NotYet(status.to_string()) })
    })
    .await?;
    stage.say(changed()).await?;
    assert_eq!(events.message().await?, changed());
    Ok(())
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_messages_and_holds_up_no_other() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let caller = stage.caller();
    let (mut slow, _) = open(&caller).await?;
    let (mut quick, path) = open(&caller).await?;
    // More than the queue and all buffers of two sockets hold.
    let long = "x".repeat(128 * 1024);
    let said = |number: u32| json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": { "n": number, "x": long } });
    for number in 0..400 {
        stage.say(said(number)).await?;
        assert_eq!(quick.message().await?["params"]["n"], number);
    }
    send(&caller, &path, &request(json!(1), "ping", json!({}))).await?;
    assert_eq!(quick.message().await?["id"], 1);
    // What it does read is in order, and lacks something. Then it is there again.
    let mut numbers = Vec::new();
    while numbers.last() != Some(&1000) {
        if numbers.len() == 100 {
            // There is room again, now that so many were read.
            stage.say(said(1000)).await?;
        }
        numbers.push(slow.message().await?["params"]["n"].as_u64().unwrap_or_default());
    }
    assert!(numbers.is_sorted() && numbers.len() < 400, "{numbers:?}");
    Ok(())
}

#[tokio::test]
async fn many_clients_come_and_go_and_nothing_stays_of_them() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let mut all = tokio::task::JoinSet::new();
    for index in 0..50 {
        let caller = stage.caller();
        all.spawn(async move {
            for round in 0..5 {
                let (mut events, path) = open(&caller).await.unwrap();
                let text = json!({ "of": index, "in": round });
                let call = request(json!(7), "tools/call", json!({ "name": "echo", "arguments": text }));
                send(&caller, &path, &call).await.unwrap();
                let answer = events.message().await.unwrap();
                assert_eq!(answer["result"]["content"][0]["text"], text.to_string());
            }
        });
    }
    while let Some(done) = all.join_next().await {
        done?;
    }
    skep_testkit::eventually("no sessions", crate::client::PATIENCE, || async {
        let left = stage.sessions.store().count().await?;
        Ok(if left == 0 { Seen::Yes(()) } else { Seen::NotYet(left.to_string()) })
    })
    .await
}

#[tokio::test]
async fn a_session_whose_stream_is_elsewhere_is_not_taken_for_an_unknown_one() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let elsewhere = stage.sessions.open(None).await?;
    let ping = request(json!(1), "ping", json!({})).to_string();
    let answer = stage.caller().whole(Method::POST, &format!("/messages?session_id={elsewhere}"), ping).await?;
    assert_eq!(
        (answer.status, answer.text()),
        (StatusCode::SERVICE_UNAVAILABLE, "SSE connection not held by this instance")
    );
    let (_events, path) = open(&stage.caller()).await?;
    let answer = stage.caller().whole(Method::POST, &path, vec![b' '; 8 * 1024 * 1024 + 1]).await?;
    assert_eq!((answer.status, answer.text()), (StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"));
    assert!(stage.received("ping").is_empty());
    Ok(())
}

#[tokio::test]
async fn a_call_takes_as_long_as_it_takes() -> Result<()> {
    const TIMEOUT: Duration = Duration::from_millis(500);
    let stage = Stage::with(How { timeout: TIMEOUT, ..sse() }).await?;
    let caller = stage.caller();
    let (mut events, path) = open(&caller).await?;
    send(&caller, &path, &request(json!(1), "hold", json!({ "_meta": { "progressToken": "mine" } }))).await?;
    let held = stage.until_received("hold", 1).await?.remove(0);
    let mut passing = tokio::time::interval(TIMEOUT / 4);
    for progress in 0..6 {
        passing.tick().await;
        let params = json!({ "progressToken": held["params"]["_meta"]["progressToken"], "progress": progress });
        stage.say(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })).await?;
        assert_eq!(events.message().await?["params"], json!({ "progressToken": "mine", "progress": progress }));
    }
    stage.say(json!({ "jsonrpc": "2.0", "id": held["id"], "result": { "done": true } })).await?;
    assert_eq!(events.message().await?, json!({ "jsonrpc": "2.0", "id": 1, "result": { "done": true } }));
    // One that is silent does so too: the original never ends it.
    send(&caller, &path, &request(json!(2), "hold", json!({}))).await?;
    let held = stage.until_received("hold", 2).await?.remove(1);
    for _ in 0..6 {
        passing.tick().await;
    }
    stage.say(json!({ "jsonrpc": "2.0", "id": held["id"], "result": { "late": true } })).await?;
    assert_eq!(events.message().await?, json!({ "jsonrpc": "2.0", "id": 2, "result": { "late": true } }));
    assert!(stage.received("notifications/cancelled").is_empty());
    Ok(())
}

#[tokio::test]
async fn a_call_under_way_is_answered_before_the_proxy_ends_and_no_other_one_is_taken() -> Result<()> {
    let stage = Stage::with(sse()).await?;
    let caller = stage.caller();
    let (mut events, path) = open(&caller).await?;
    let (mut idle, _) = open(&caller).await?;
    send(&caller, &path, &request(json!(1), "hold", json!({}))).await?;
    let held = stage.until_received("hold", 1).await?.remove(0);
    stage.drain.start();
    assert!(idle.next().await?.is_none(), "who waits for nothing has nothing to wait for");
    stage.say(json!({ "jsonrpc": "2.0", "id": held["id"], "result": { "done": true } })).await?;
    assert_eq!(events.message().await?["result"]["done"], true);
    assert!(events.next().await?.is_none());
    Ok(())
}
