//! Streams of a server that speaks HTTP, which stay open for as long as their client likes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::json;
use skep_net::{Body, BodySender};
use skep_testkit::{Seen, eventually};

use crate::client::{BOTH, MODERN, PATIENCE, modern, request};
use crate::forward::{answer, result};
use crate::web::{Got, How, Web};

/// The server's end of each stream, the last one at the end.
type Streams = Arc<Mutex<Vec<BodySender>>>;

/// A server that opens a session when it is initialized, and a stream when it is asked for one.
async fn opening(how: How) -> Result<(Web, Streams)> {
    let streams = Streams::default();
    let kept = streams.clone();
    let web = Web::with(how, move |got: &Got| {
        let said = String::from_utf8_lossy(&got.body);
        if got.method == Method::GET || said.contains("subscriptions/listen") {
            let (sender, body) = Body::channel(8);
            kept.lock().unwrap().push(sender);
            return Response::builder().header("content-type", "text/event-stream").body(body).unwrap();
        }
        answer(200, &[("mcp-session-id", "theirs")], result(got, json!({})))
    })
    .await?;
    Ok((web, streams))
}

fn last(streams: &Streams) -> Result<BodySender> {
    streams.lock().unwrap().pop().context("no stream")
}

/// A message that says this.
fn note(text: &str) -> String {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "data": text } }).to_string()
}

fn over_sse() -> How {
    How { sse: true, ..How::default() }
}

fn filtered() -> How {
    let mut how = How::default();
    how.config.tools_filter = vec!["seen".to_owned()];
    how
}

/// A proxy that cuts nothing while a test can wait.
fn patient() -> How {
    How { finish: PATIENCE * 2, ..How::default() }
}

/// Lets time pass, with a moment for every task in each step.
async fn pass(whole: Duration, step: Duration) {
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    while start.elapsed() < whole {
        tokio::time::advance(step).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    tokio::time::resume();
}

#[tokio::test]
async fn streams_end_in_good_order_when_the_proxy_does() -> Result<()> {
    let listen = || modern(json!(1), "subscriptions/listen", MODERN).to_string();
    for (how, method, body) in [
        (patient as fn() -> How, Method::GET, String::new()),
        (patient, Method::POST, listen()),
        (|| How { finish: PATIENCE * 2, ..filtered() }, Method::GET, String::new()),
        (over_sse, Method::GET, String::new()),
    ] {
        let (web, streams) = opening(how()).await?;
        let caller = web.caller().taking(BOTH);
        let caller = if body.is_empty() { caller } else { caller.with("mcp-protocol-version", MODERN) };
        let mut listening = caller.events(method.clone(), "/sse", body).await?;
        let sender = last(&streams)?;
        sender.send(format!(": welcome\n\ndata: {}\n\n", note("")).into()).await?;
        assert_eq!(listening.next().await?.context("ended")?.1, note(""));
        web.drain.start();
        // A stream that was cut is broken, not ended.
        assert!(listening.next().await?.is_none(), "{method}");
        assert_eq!(web.drain.drained().await.cut, 0);
        tokio::time::timeout(PATIENCE, sender.closed()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_event_that_has_begun_comes_to_its_end_before_the_stream_does() -> Result<()> {
    let (web, streams) = opening(patient()).await?;
    let mut body = web.caller().send(Method::GET, "/mcp", "").await?.into_body();
    let sender = last(&streams)?;
    let mut next = async || -> Result<Option<Bytes>> {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.context("nothing came")?;
        Ok(frame.transpose()?.map(|frame| frame.into_data().unwrap_or_default()))
    };
    sender.send("data: 1\n\ndata: {\"ha".into()).await?;
    assert_eq!(next().await?.as_deref(), Some(&b"data: 1\n\ndata: {\"ha"[..]), "as it comes");
    let mut other = web.caller().events(Method::GET, "/mcp", "").await?;
    web.drain.start();
    assert!(other.next().await?.is_none(), "one on which nothing has begun");
    for half in ["lf\":", "1}\n", "\n"] {
        sender.send(half.into()).await?;
        assert_eq!(next().await?.as_deref(), Some(half.as_bytes()));
    }
    assert_eq!(next().await?, None);
    assert_eq!(web.drain.drained().await.cut, 0);
    Ok(())
}

#[tokio::test]
async fn an_event_that_no_middleware_sees_may_have_any_length() -> Result<()> {
    const PIECES: usize = 65;
    let (web, streams) = opening(How::default()).await?;
    let mut body = web.caller().send(Method::GET, "/mcp", "").await?.into_body();
    let sender = last(&streams)?;
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    tokio::spawn(async move {
        for _ in 0..PIECES {
            sender.send(piece.clone()).await.unwrap();
        }
    });
    let mut length = 0;
    while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame()).await? {
        length += frame?.into_data().map_or(0, |bytes| bytes.len());
    }
    assert_eq!(length, PIECES << 20);
    Ok(())
}

#[tokio::test]
async fn a_reader_that_is_behind_is_not_waited_for_when_the_proxy_ends() -> Result<()> {
    let (web, streams) = opening(How { finish: PATIENCE / 2, ..filtered() }).await?;
    let mut body = web.caller().send(Method::GET, "/mcp", "").await?.into_body();
    let sender = last(&streams)?;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let server = tokio::spawn(async move {
        let event = Bytes::from(format!("data: {}\n\n", note(&"x".repeat(1 << 20))));
        while sender.send(event.clone()).await.is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let seen = Mutex::new((0, 0));
    eventually("nothing passes any more", PATIENCE, || async {
        let (now, mut seen) = (sent.load(Ordering::SeqCst), seen.lock().unwrap());
        *seen = if now == seen.0 { (now, seen.1 + 1) } else { (now, 0) };
        Ok(if now > 0 && seen.1 > 5 { Seen::Yes(()) } else { Seen::NotYet(format!("{seen:?}")) })
    })
    .await?;
    web.drain.start();
    // The connection to the server is closed before the client reads on.
    tokio::time::timeout(PATIENCE, server).await??;
    while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame()).await? {
        frame?;
    }
    assert_eq!(web.drain.drained().await.cut, 0);
    Ok(())
}

#[tokio::test]
async fn a_session_lives_while_a_stream_is_open_for_it_and_its_stream_ends_with_it() -> Result<()> {
    let (hour, ten_minutes, seconds) = (Duration::from_hours(1), Duration::from_mins(10), Duration::from_secs(10));
    for (how, session_ttl, step) in [
        (How::default as fn() -> How, ten_minutes, Duration::from_mins(1)),
        (How::default, seconds, Duration::from_secs(4)),
        (filtered, seconds, Duration::from_secs(4)),
    ] {
        let (web, streams) = opening(How { session_ttl, ..how() }).await?;
        let caller = web.caller().initialized().await?;
        let mut events = caller.events(Method::GET, "/mcp", "").await?;
        let sender = last(&streams)?;
        pass(hour.min(session_ttl * 5), step).await;
        assert_eq!(caller.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK, "{session_ttl:?}");
        sender.send(format!("data: {}\n\n", note("")).into()).await?;
        assert_eq!(events.next().await?.context("ended")?.1, note(""));

        assert_eq!(caller.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::OK);
        pass(Duration::from_mins(2), step).await;
        assert!(events.next().await?.is_none(), "in good order");
        tokio::time::timeout(PATIENCE, sender.closed()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn where_messages_for_a_stream_go_is_known_for_as_long_as_it_is_open() -> Result<()> {
    let how = How { remote: Some("/their/sse"), session_ttl: Duration::from_secs(10), ..over_sse() };
    let (web, streams) = opening(how).await?;
    let mut events = web.caller().events(Method::GET, "/sse", "").await?;
    let sender = last(&streams)?;
    sender.send("event: endpoint\ndata: /messages?session_id=abc\n\n".into()).await?;
    assert_eq!(events.next().await?.context("ended")?.1, "/messages?session_id=abc");
    pass(Duration::from_secs(100), Duration::from_secs(4)).await;
    let ping = request(json!(1), "ping", json!({})).to_string();
    web.caller().whole(Method::POST, "/messages?session_id=abc", ping).await?;
    assert_eq!(web.got().last().context("nothing")?.uri, "/messages?session_id=abc");
    Ok(())
}

/// HTTP+SSE has no header for the version: a client that tries 2026-07-28 first learns from the server that it is not served.
#[tokio::test]
async fn a_request_of_2026_07_28_over_sse_is_the_servers_to_answer() -> Result<()> {
    let streams = Streams::default();
    let kept = streams.clone();
    let web = Web::with(How { remote: Some("/their/sse"), bridged: true, ..over_sse() }, move |got: &Got| {
        if got.method != Method::GET {
            return answer(202, &[], "Accepted");
        }
        let (sender, body) = Body::channel(8);
        kept.lock().unwrap().push(sender);
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    })
    .await?;
    let mut events = web.caller().events(Method::GET, "/sse", "").await?;
    last(&streams)?.send("event: endpoint\ndata: /messages?session_id=abc\n\n".into()).await?;
    assert_eq!(events.next().await?.context("ended")?.1, "/messages?session_id=abc");
    // Also what a server without HTTP+SSE would be spared: a version that there is not.
    for version in [MODERN, "2099-01-01"] {
        let discover = modern(json!(1), "server/discover", version).to_string();
        let answer = web.caller().whole(Method::POST, "/messages?session_id=abc", discover.clone()).await?;
        assert_eq!((answer.status, answer.text()), (StatusCode::ACCEPTED, "Accepted"), "{version}");
        assert_eq!(web.got().last().context("nothing")?.body, discover);
    }
    Ok(())
}

/// Servers that know their streams otherwise name the same endpoint to all of them.
#[tokio::test]
async fn the_end_of_one_stream_does_not_misroute_messages_of_another() -> Result<()> {
    let how = How { remote: Some("/their/sse"), ..over_sse() };
    let (web, streams) = opening(how).await?;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut events = web.caller().events(Method::GET, "/sse", "").await?;
        let sender = last(&streams)?;
        sender.send("event: endpoint\ndata: /messages\n\n".into()).await?;
        assert_eq!(events.next().await?.context("ended")?.1, "/messages");
        open.push((events, sender));
    }
    let (first, ended) = open.remove(0);
    drop(first);
    tokio::time::timeout(PATIENCE, ended.closed()).await?;
    let ping = request(json!(1), "ping", json!({})).to_string();
    web.caller().whole(Method::POST, "/messages", ping).await?;
    assert_eq!(web.got().last().context("nothing")?.uri, "/messages");
    Ok(())
}
