//! One client cannot take from others what they need: sessions, memory, connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, ensure};
use http::Response;
use serde_json::{Value, json};
use skep_net::body::PASSING;
use skep_net::budget::Purpose;
use skep_net::serve::{ConnectionLimits, Options};
use skep_net::{Body, Budget};
use skep_proxy::{Guards, InFlight};
use skep_store::{SESSION_BYTES, SessionLimits};
use skep_testkit::{Seen, eventually};

use crate::client::PATIENCE;
use crate::lines::{How, Stage};
use crate::raw::{Raw, client};
use crate::web::{Got, Web};

const MIB: usize = 1024 * 1024;

fn within(budget: &Budget) -> How {
    let listener = Options { budget: budget.clone(), ..Options::default() };
    How { guards: Guards { budget: budget.clone(), ..Guards::default() }, listener, ..How::default() }
}

/// Waits until a budget holds as much as it should.
async fn until_held(budget: &Budget, is_enough: impl Fn(usize) -> bool) -> Result<()> {
    eventually("the budget", PATIENCE, || async {
        let held = budget.held();
        Ok(if is_enough(held) { Seen::Yes(()) } else { Seen::NotYet(held.to_string()) })
    })
    .await
}

/// Waits until something waits for room in a budget.
async fn until_one_waits(budget: &Budget) -> Result<()> {
    eventually("something that waits", PATIENCE, || async {
        let waiters = budget.waiters();
        Ok(if waiters > 0 { Seen::Yes(()) } else { Seen::NotYet(waiters.to_string()) })
    })
    .await
}

/// Waits until so many bytes wait for room in a budget.
async fn until_waiting(budget: &Budget, bytes: usize) -> Result<()> {
    eventually("what waits", PATIENCE, || async {
        let waiting = budget.waiting();
        Ok(if waiting >= bytes { Seen::Yes(()) } else { Seen::NotYet(waiting.to_string()) })
    })
    .await
}

/// The same with 200,000 calls is `cargo xtask bench limits`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn item_7_one_client_that_opens_sessions_without_end_locks_no_other_out() -> Result<()> {
    let limits = SessionLimits::of_total(100 * (SESSION_BYTES + 128));
    let stage = Stage::with(How { session_limits: limits, ..How::default() }).await?;
    let address = stage.address;
    let is_over = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let mut others = Vec::new();
    for number in 2..12 {
        let (is_over, calls) = (is_over.clone(), calls.clone());
        others.push(tokio::spawn(async move {
            let mut raw = Raw::connect(client(number), address).await?;
            let (old, idle, mut id) = (raw.initialize().await?, raw.initialize().await?, 0);
            ensure!(raw.echo(&idle, 0).await?.status == 200, "client {number}: its session is gone");
            while !is_over.load(Ordering::Relaxed) {
                // One session is used all the time, others are opened, used once and closed.
                let new = raw.initialize().await?;
                for session in [&old, &new] {
                    id += 1;
                    let response = raw.echo(session, id).await?;
                    ensure!(response.status == 200, "client {number}, call {id}: {response:?}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                let delete = format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: {new}\r\n\r\n");
                raw.write(delete.as_bytes()).await?;
                ensure!(raw.response().await?.status == 204, "client {number}: its session is gone");
            }
            // One that was used once and then left alone is there as well.
            ensure!(raw.echo(&idle, 0).await?.status == 200, "client {number}: its idle session is gone");
            raw.echo(&old, 0).await.map(|response| response.status)
        }));
    }
    let mut flood = Raw::connect(client(1), address).await?;
    let mut opened = Vec::new();
    for number in 0..600 {
        let session = flood.initialize().await?;
        if number % 2 == 0 {
            // Not even sessions that are used displace those of others.
            assert_eq!(flood.echo(&session, number).await?.status, 200);
        }
        opened.push(session);
    }
    is_over.store(true, Ordering::Relaxed);
    for other in others {
        assert_eq!(other.await??, 200);
    }
    assert!(calls.load(Ordering::Relaxed) > 20);
    // What the client lost were its own sessions, and they are as expired ones; the newest are there.
    assert_eq!(flood.echo(&opened[0], 1).await?.status, 404);
    assert_eq!(flood.echo(opened.last().unwrap(), 1).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn item_8_bodies_that_are_not_sent_to_their_end_hold_no_more_than_the_budget() -> Result<()> {
    let budget = Budget::new(32 * MIB);
    let stage = Stage::with(within(&budget)).await?;
    let mut half_sent = Vec::new();
    // One client may have a quarter in bodies, all of them a half.
    for (number, address) in [(0, 1), (3, 1), (1, 2), (3, 2), (3, 3)] {
        let mut raw = Raw::connect(client(address), stage.address).await?;
        let head = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 8 * MIB);
        raw.write(head.as_bytes()).await?;
        if number < 2 {
            raw.write(&vec![b' '; MIB]).await?;
            until_held(&budget, |held| held >= (number + 1) * 8 * MIB).await?;
            half_sent.push(raw);
            continue;
        }
        // The newcomer is told to come back, before it has sent anything.
        let response = raw.response().await?;
        assert_eq!((response.status, response.header("retry-after").as_deref()), (503, Some("2")), "{response:?}");
        assert_eq!(response.header("connection").as_deref(), Some("close"));
    }
    assert_eq!(budget.held(), 16 * MIB);
    // Small calls find room.
    for address in [1, 3] {
        let mut other = Raw::connect(client(address), stage.address).await?;
        let session = other.initialize().await?;
        assert_eq!(other.echo(&session, 1).await?.status, 200);
    }
    // What had been let in is served, and gives its room back.
    let mut first = half_sent.remove(0);
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    first.write(&vec![b' '; 7 * MIB - call.len()]).await?;
    first.write(call.as_bytes()).await?;
    assert_eq!(first.response().await?.status, 200);
    until_held(&budget, |held| held == 8 * MIB).await?;
    drop(half_sent);
    until_held(&budget, |held| held == 0).await
}

#[tokio::test]
async fn item_8_a_body_without_a_length_counts_as_it_comes() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    let stage = Stage::with(within(&budget)).await?;
    let mut raw = Raw::connect(client(1), stage.address).await?;
    raw.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
    let chunk = [format!("{MIB:x}\r\n").into_bytes(), vec![b' '; MIB], b"\r\n".to_vec()].concat();
    for _ in 0..3 {
        raw.write(&chunk).await?;
    }
    until_held(&budget, |held| (3 * MIB..=4 * MIB).contains(&held)).await?;
    let mut second = Raw::connect(client(1), stage.address).await?;
    let two = 2 * MIB;
    second.write(format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {two}\r\n\r\n").as_bytes()).await?;
    assert_eq!(second.response().await?.status, 503);
    drop(raw);
    until_held(&budget, |held| held == 0).await
}

fn raw_call(id: u64, headers: &str) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "raw" } }).to_string();
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

fn long_result(bytes: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{{"text":"{}"}}}}"#, "x".repeat(bytes))
}

#[tokio::test]
async fn item_8_responses_that_are_not_read_hold_no_more_than_the_budget_and_others_wait_for_theirs() -> Result<()> {
    let budget = Budget::new(40 * MIB);
    let stage = Stage::with(within(&budget)).await?;
    // More than the kernel takes for a client that does not read.
    stage.seen.lock().unwrap().says = Some(long_result(16 * MIB));
    let headers = "Accept: application/json\r\n";
    let mut unread = Vec::new();
    for number in 1..3 {
        let mut raw = Raw::connect(client(number), stage.address).await?;
        raw.write(raw_call(number.into(), headers).as_bytes()).await?;
        until_held(&budget, |held| held >= usize::from(number) * 16 * MIB).await?;
        unread.push(raw);
    }
    // A third one does not fit. Its request was let in, so it waits.
    let mut third = Raw::connect(client(3), stage.address).await?;
    third.write(raw_call(7, headers).as_bytes()).await?;
    until_waiting(&budget, 16 * MIB).await?;
    // What waits is in memory as well, so not everything may: a fourth one is told so, with its id.
    let mut fourth = Raw::connect(client(4), stage.address).await?;
    fourth.write(raw_call(8, headers).as_bytes()).await?;
    let response = fourth.response().await?;
    let said: Value = serde_json::from_slice(&response.body)?;
    assert_eq!((response.status, &said["id"]), (503, &json!(8)), "{response:?}");
    assert_eq!(response.header("retry-after").as_deref(), Some("2"));
    // The others lost nothing.
    unread.push(third);
    for raw in &mut unread {
        let response = raw.response().await?;
        assert!(response.status == 200 && response.body.len() > 16 * MIB, "{}", response.status);
    }
    until_held(&budget, |held| held == 0).await?;
    fourth.write(raw_call(9, headers).as_bytes()).await?;
    assert_eq!(fourth.response().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn item_8_one_client_that_does_not_read_leaves_room_for_others() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    let stage = Stage::with(within(&budget)).await?;
    let headers = "Accept: application/json\r\n";
    let mut unread = Vec::new();
    // The kernel takes some of each, so they are more than would fit.
    stage.seen.lock().unwrap().says = Some(long_result(6 * MIB));
    for number in 1..5 {
        let mut raw = Raw::connect(client(1), stage.address).await?;
        raw.write(raw_call(number, headers).as_bytes()).await?;
        unread.push(raw);
    }
    until_held(&budget, |held| held >= 6 * MIB).await?;
    until_waiting(&budget, MIB).await?;
    for address in 2..5 {
        let mut other = Raw::connect(client(address), stage.address).await?;
        other.write(raw_call(7, headers).as_bytes()).await?;
        let response = other.response().await?;
        assert!(response.status == 200 && response.body.len() > 6 * MIB, "{}", response.status);
    }
    assert!(budget.held() <= 8 * MIB, "{}", budget.held());
    drop(unread);
    until_held(&budget, |held| held == 0).await
}

#[tokio::test]
async fn item_8_a_stream_that_was_opened_waits_for_room_and_loses_nothing() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    let stage = Stage::with(How { sse: true, ..within(&budget) }).await?;
    let caller = stage.caller();
    let mut events = caller.events(http::Method::GET, "/sse", "").await?;
    let (_, endpoint) = events.next().await?.unwrap();
    let path = endpoint.split_once("/messages").unwrap().1.to_owned();
    stage.seen.lock().unwrap().says = Some(long_result(6 * MIB));
    // Other clients hold all of it.
    let others = [1, 2].map(|number| {
        let share = budget.of_client(client(number + 100).into());
        share.reserve(7 * MIB, Purpose::Response).unwrap()
    });
    for id in 1..4 {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }).to_string();
        let answer = caller.whole(http::Method::POST, &format!("/messages{path}"), body).await?;
        assert_eq!(answer.status.as_u16(), 202, "small calls find room");
        let (_, said) = events.next().await?.unwrap();
        assert_eq!(serde_json::from_str::<Value>(&said)?["id"], id);
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "raw" } });
    let answer = caller.whole(http::Method::POST, &format!("/messages{path}"), body.to_string()).await?;
    assert_eq!(answer.status.as_u16(), 202);
    until_waiting(&budget, 6 * MIB).await?;
    assert!(budget.held() <= 16 * MIB);
    drop(others);
    let (_, said) = events.next().await?.unwrap();
    let said: Value = serde_json::from_str(&said)?;
    assert_eq!((&said["id"], said["result"]["text"].as_str().map(str::len)), (&json!(7), Some(6 * MIB)));
    assert_eq!(budget.refused(), 0);
    drop(events);
    until_held(&budget, |held| held == 0).await
}

#[tokio::test]
async fn item_8_what_waits_on_a_stream_counts_as_well() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    let stage = Stage::with(How { sse: true, ..within(&budget) }).await?;
    let caller = stage.caller();
    let mut events = caller.events(http::Method::GET, "/sse", "").await?;
    let (_, endpoint) = events.next().await?.unwrap();
    let path = endpoint.split_once("/messages").unwrap().1.to_owned();
    stage.seen.lock().unwrap().says = Some(long_result(6 * MIB));
    for id in 1..4 {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "raw" } });
        let answer = caller.whole(http::Method::POST, &format!("/messages{path}"), body.to_string()).await?;
        assert_eq!(answer.status.as_u16(), 202);
    }
    until_held(&budget, |held| (6 * MIB..8 * MIB).contains(&held)).await?;
    drop(events);
    until_held(&budget, |held| held == 0).await
}

#[tokio::test]
async fn item_8_a_response_that_waits_for_room_is_refused_before_the_proxy_ends() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    let stage = Stage::with(within(&budget)).await?;
    stage.seen.lock().unwrap().says = Some(long_result(6 * MIB));
    let _others = budget.reserve(14 * MIB, Purpose::Response)?;
    let mut raw = Raw::connect(client(1), stage.address).await?;
    raw.write(raw_call(7, "Accept: application/json\r\n").as_bytes()).await?;
    until_waiting(&budget, 6 * MIB).await?;
    stage.drain.start();
    let response = raw.response().await?;
    let said: Value = serde_json::from_slice(&response.body)?;
    assert_eq!((response.status, &said["id"]), (503, &json!(7)), "{response:?}");
    Ok(())
}

#[tokio::test]
async fn item_8_a_response_that_must_be_filtered_is_counted_once_and_waits_for_room() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    // Most of what one client may have.
    let list = |tools: Value| json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": tools } }).to_string();
    let seen = json!({ "name": "seen", "description": "x".repeat(6 * MIB) });
    let (same, filtered) = (list(json!([seen])), list(json!([seen, { "name": "hidden" }])));
    let as_event = |body: &str| ("text/event-stream", format!("event: message\ndata: {body}\n\n"));
    for (kind, body) in [
        ("application/json", same.clone()),
        ("application/json", filtered.clone()),
        as_event(&same),
        as_event(&filtered),
    ] {
        let guards = Guards { budget: budget.clone(), ..Guards::default() };
        let mut how = crate::web::How { guards, ..crate::web::How::default() };
        how.config.tools_filter = vec!["seen".to_owned()];
        let answer =
            move |_: &Got| Response::builder().header("content-type", kind).body(Body::full(body.clone())).unwrap();
        let web = Web::with(how, answer).await?;
        let others = [1, 2].map(|number| {
            let share = budget.of_client(client(number + 100).into());
            share.reserve(7 * MIB, Purpose::Response).unwrap()
        });
        let refused = budget.refused();
        let asked = tokio::spawn({
            let caller = web.caller();
            async move { caller.ask(json!(1), "tools/list", json!({})).await }
        });
        until_one_waits(&budget).await?;
        assert!(!asked.is_finished(), "{kind}");
        drop(others);
        let answer = asked.await??;
        assert!(answer.status.is_success() && answer.text().len() > 6 * MIB, "{kind}: {}", answer.status);
        assert!(!answer.text().contains("hidden"), "{kind}");
        assert_eq!(budget.refused(), refused);
        until_held(&budget, |held| held == 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn item_8_a_response_that_can_never_fit_is_not_to_be_retried() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    let expected = format!("the response is longer than {} bytes", 7 * MIB);
    let stage = Stage::with(within(&budget)).await?;
    stage.seen.lock().unwrap().says = Some(long_result(8 * MIB));
    let mut raw = Raw::connect(client(1), stage.address).await?;
    raw.write(raw_call(7, "Accept: application/json\r\n").as_bytes()).await?;
    let response = raw.response().await?;
    let said: Value = serde_json::from_slice(&response.body)?;
    assert_eq!((response.status, &said["id"], response.header("retry-after")), (502, &json!(7), None), "{response:?}");
    assert!(said["error"]["message"].as_str().unwrap().starts_with(&expected), "{said}");

    let stage = Stage::with(How { sse: true, ..within(&budget) }).await?;
    stage.seen.lock().unwrap().says = Some(long_result(8 * MIB));
    let caller = stage.caller();
    let mut events = caller.events(http::Method::GET, "/sse", "").await?;
    let (_, endpoint) = events.next().await?.unwrap();
    let path = endpoint.split_once("/messages").unwrap().1.to_owned();
    let body = json!({ "jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": { "name": "raw" } });
    caller.whole(http::Method::POST, &format!("/messages{path}"), body.to_string()).await?;
    let (_, said) = events.next().await?.unwrap();
    let said: Value = serde_json::from_str(&said)?;
    assert_eq!(said["id"], 8);
    assert!(said["error"]["message"].as_str().unwrap().starts_with(&expected), "{said}");

    // What is read ahead of a response that has to be filtered counts beside it, so one that is almost as long does not fit either.
    let expected = format!("the response is longer than {} bytes", 7 * MIB - skep_net::body::PASSING);
    for length in [8 * MIB, 7 * MIB - skep_net::body::PASSING / 2] {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":9,"result":{{"tools":[],"x":"{}"}}}}"#, "x".repeat(length));
        let web = filtering(&budget, answer).await?;
        let answer = web.caller().ask(json!(9), "tools/list", json!({})).await?;
        assert_eq!((answer.status.as_u16(), answer.headers.get("retry-after")), (502, None));
        assert!(answer.text().contains(&expected), "{}", answer.text());
    }
    Ok(())
}

/// A server that speaks HTTP and gives one answer, behind a proxy that filters tools.
async fn filtering(budget: &Budget, answer: String) -> Result<Web> {
    let guards = Guards { budget: budget.clone(), ..Guards::default() };
    let mut how = crate::web::How { guards, ..crate::web::How::default() };
    how.config.tools_filter = vec!["seen".to_owned()];
    Web::with(how, move |_: &Got| {
        Response::builder().header("content-type", "application/json").body(Body::full(answer.clone())).unwrap()
    })
    .await
}

#[tokio::test]
async fn item_8_a_call_does_not_wait_for_the_room_of_its_own_request() -> Result<()> {
    // Together they are more than one client may have.
    let (budget, long) = (Budget::new(16 * MIB), "x".repeat(3 * MIB));
    let stage = Stage::with(within(&budget)).await?;
    stage.seen.lock().unwrap().says = Some(long_result(5 * MIB));
    let params = json!({ "name": "raw", "arguments": { "long": long } });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
    let mut raw = Raw::connect(client(1), stage.address).await?;
    let length = body.len();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    raw.write(head.as_bytes()).await?;
    raw.write(body.as_bytes()).await?;
    let response = tokio::time::timeout(PATIENCE, raw.response()).await??;
    assert!(response.status == 200 && response.body.len() > 5 * MIB, "{}", response.status);

    let answer = format!(r#"{{"jsonrpc":"2.0","id":9,"result":{{"tools":[],"x":"{}"}}}}"#, "x".repeat(5 * MIB));
    let web = filtering(&budget, answer).await?;
    let caller = web.caller();
    let asked = caller.ask(json!(9), "tools/list", json!({ "cursor": long }));
    let answer = tokio::time::timeout(PATIENCE, asked).await??;
    assert!(answer.status.is_success() && answer.text().len() > 5 * MIB, "{}", answer.status);
    Ok(())
}

/// A stream of events that stays open.
fn open_stream() -> Response<Body> {
    let (sender, body) = Body::channel(1);
    tokio::spawn(async move {
        let _gone = sender.send(bytes::Bytes::from_static(b"event: message\ndata: {}\n\n")).await;
        sender.closed().await;
    });
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

#[tokio::test]
async fn item_8_responses_that_pass_through_count_while_they_are_open() -> Result<()> {
    // The least budget that a proxy has.
    let budget = Budget::new(16 * MIB);
    for (filter, sse) in [(None, false), (Some("seen"), false), (None, true)] {
        let guards = Guards { budget: budget.clone(), ..Guards::default() };
        let mut how = crate::web::How { guards, ..crate::web::How::default() };
        how.config.tools_filter = filter.into_iter().map(str::to_owned).collect();
        how.sse = sse;
        let web = Web::with(how, |got: &Got| match got.method {
            http::Method::GET => open_stream(),
            _ => Response::new(Body::full("x".repeat(10_000))),
        })
        .await?;
        let mut streams = Vec::new();
        // As many as a client may listen on, and more.
        for number in 1..=100 {
            let mut events = web.caller().events(http::Method::GET, "/mcp", "").await?;
            assert!(events.next().await?.is_some());
            streams.push(events);
            until_held(&budget, |held| held == number * PASSING).await?;
        }
        // Short responses need no room.
        let answer = web.caller().ask(json!(1), "ping", json!({})).await?;
        assert_eq!((answer.text().len(), budget.held()), (10_000, 100 * PASSING));
        drop(streams);
        until_held(&budget, |held| held == 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn item_8_a_call_does_not_wait_for_the_room_of_its_own_request_when_its_response_passes_through() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    let share = budget.of_client(client(1).into());
    let others: Arc<std::sync::Mutex<Vec<_>>> = Arc::default();
    let guards = Guards { budget: budget.clone(), ..Guards::default() };
    let (filled, all) = (share.clone(), others.clone());
    let web = Web::with(crate::web::How { guards, ..crate::web::How::default() }, move |_: &Got| {
        // The client's other calls take all that is left while this one is at the server.
        all.lock().unwrap().extend(std::iter::from_fn(|| filled.try_reserve(32 * 1024, Purpose::Response)));
        let (sender, body) = Body::channel(1);
        tokio::spawn(async move { sender.send(bytes::Bytes::from_static(b"{}")).await });
        Response::new(body)
    })
    .await?;
    let params = json!({ "long": "x".repeat(3 * MIB) });
    let (caller, id) = (web.caller(), json!(1));
    let answer = tokio::time::timeout(PATIENCE, caller.ask(id, "ping", params)).await??;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "{}"));
    assert_eq!(budget.refused(), 0);
    others.lock().unwrap().clear();
    until_held(&budget, |held| held == 0).await
}

#[tokio::test]
async fn item_8_connections_have_a_total_and_a_share_for_each_peer() -> Result<()> {
    let connections = ConnectionLimits { total: 6, per_peer: 4 };
    let refused: Arc<AtomicU64> = Arc::default();
    let listener = Options { connections, refused: refused.clone(), ..Options::default() };
    let stage = Stage::with(How { listener, ..How::default() }).await?;
    let mut one = Vec::new();
    for _ in 0..4 {
        let mut raw = Raw::connect(client(1), stage.address).await?;
        raw.initialize().await?;
        one.push(raw);
    }
    assert!(Raw::connect(client(1), stage.address).await?.is_refused().await?);
    let mut other = Raw::connect(client(2), stage.address).await?;
    let session = other.initialize().await?;
    let mut third = Raw::connect(client(3), stage.address).await?;
    third.initialize().await?;
    assert!(Raw::connect(client(4), stage.address).await?.is_refused().await?);
    assert_eq!(refused.load(Ordering::Relaxed), 2);
    // No connected client loses anything, and a place that is given up is free again.
    assert_eq!(other.echo(&session, 1).await?.status, 200);
    assert_eq!(one[0].echo(&session, 1).await?.status, 200);
    drop(third);
    eventually("a free place", PATIENCE, || async {
        let mut raw = Raw::connect(client(4), stage.address).await?;
        Ok(match raw.initialize().await {
            Ok(_) => Seen::Yes(()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await
}

/// All connections are those of the ingress.
#[tokio::test]
async fn item_8_requests_of_a_client_behind_a_trusted_proxy_have_a_share() -> Result<()> {
    let config = skep_runconfig::RunConfig::from_slice(br#"{"trust_proxy_headers":true}"#)?;
    let in_flight = InFlight::new(3);
    let guards = Guards { in_flight: in_flight.clone(), ..Guards::default() };
    let stage = Stage::with(How { config, guards, ..How::default() }).await?;
    // A body that never comes keeps its request in flight.
    let begin = async |user: u8| -> Result<Raw> {
        let mut raw = Raw::connect(client(1), stage.address).await?;
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 10.0.0.{user}\r\nContent-Type: application/json\r\n\
             Expect: 100-continue\r\nContent-Length: 100\r\n\r\n"
        );
        raw.write(head.as_bytes()).await?;
        Ok(raw)
    };
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut raw = begin(1).await?;
        assert_eq!(raw.response().await?.status, 100, "its body is read");
        held.push(raw);
    }
    let refused = begin(1).await?.response().await?;
    assert_eq!((refused.status, in_flight.refused().load(Ordering::Relaxed)), (503, 1));
    assert_eq!(begin(2).await?.response().await?.status, 100, "another client is not concerned");
    drop(held);
    eventually("a free place", PATIENCE, || async {
        let status = begin(1).await?.response().await?.status;
        Ok(if status == 100 { Seen::Yes(()) } else { Seen::NotYet(status.to_string()) })
    })
    .await
}

#[tokio::test]
async fn a_request_that_is_denied_by_its_head_costs_no_body() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    let config = skep_runconfig::RunConfig::from_slice(br#"{"allowed_origins":["http://a.example"]}"#)?;
    let stage = Stage::with(How { config, ..within(&budget) }).await?;
    let mut raw = Raw::connect(client(1), stage.address).await?;
    // Nothing of the body is ever sent.
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://b.example\r\nContent-Type: application/json\r\n\
                Content-Length: 4194304\r\n\r\n";
    raw.write(head.as_bytes()).await?;
    assert_eq!(raw.response().await?.status, 403);
    assert_eq!(budget.held(), 0);
    Ok(())
}

#[tokio::test]
async fn a_client_behind_a_trusted_proxy_keeps_its_share_whatever_it_names_in_connection() -> Result<()> {
    let budget = Budget::new(16 * MIB);
    let config = skep_runconfig::RunConfig::from_slice(br#"{"trust_proxy_headers":true}"#)?;
    let stage = Stage::with(How { config, ..within(&budget) }).await?;
    let share = budget.of_client("10.0.0.9".parse()?);
    let mut full = Vec::new();
    while let Ok(reservation) = share.reserve(64 * 1024, Purpose::Request) {
        full.push(reservation);
    }
    let mut raw = Raw::connect(client(1), stage.address).await?;
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: x-forwarded-for\r\nX-Forwarded-For: 10.0.0.9\r\n\
                Content-Type: application/json\r\nContent-Length: 200000\r\n\r\n";
    raw.write(head.as_bytes()).await?;
    assert_eq!(raw.response().await?.status, 503, "counted in the share of another client");
    drop(full);
    Ok(())
}
