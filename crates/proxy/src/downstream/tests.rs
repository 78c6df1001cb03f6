//! Both endpoints in front of an upstream that is only a queue.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, RETRY_AFTER};
use http::{Method, StatusCode};
use skep_mcp::{Era, Message};
use skep_net::drain::Grace;
use skep_net::{Body, Budget, Drain};
use skep_store::{Memory, SessionLimits};
use skep_upstream::memory::{MemoryUpstream, QUEUE, Received};
use skep_upstream::stdio::{Limits, StdioUpstream};
use skep_upstream::{CallError, ClientContext, SessionId, Upstream, UpstreamState};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::reply::Reply;
use super::{Endpoint, Sse, Streamable};
use crate::chain::reply::ReplyChain;
use crate::exchange::{Content, Exchange, Head};
use crate::http::SESSION;
use crate::sessions::{Kind, Sessions, Store};

const TIMEOUT: Duration = Duration::from_secs(40);
const GRACE: Grace = Grace { linger: Duration::ZERO, finish: Duration::from_secs(20) };

const NEWS: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

fn sessions(kind: Kind) -> Sessions {
    Sessions::new(Store::Memory(Memory::new(Duration::from_hours(9))), kind)
}

fn ready() -> (Arc<MemoryUpstream>, mpsc::Receiver<Received>) {
    MemoryUpstream::new(UpstreamState::ready(Era::Legacy))
}

fn streamable(upstream: &Arc<MemoryUpstream>) -> (Arc<Streamable>, Sessions, Drain) {
    let (sessions, drain) = (sessions(Kind::Streamable), Drain::new(GRACE));
    (Streamable::new(Endpoint::new(upstream.clone(), sessions.clone(), TIMEOUT, drain.clone()), false), sessions, drain)
}

fn sse(upstream: Arc<dyn Upstream>) -> Arc<Sse> {
    Sse::new(Endpoint::new(upstream, sessions(Kind::Sse), TIMEOUT, Drain::new(GRACE)), false)
}

fn exchange(method: Method, uri: &str, body: &'static [u8]) -> Exchange {
    let content = match body {
        b"" => Content::Opaque(Bytes::new()),
        body => Content::Message(Message::parse(Bytes::from_static(body)).unwrap()),
    };
    let peer = skep_net::Peer { address: SocketAddr::from(([127, 0, 0, 1], 1)), tls: false };
    let (parts, ()) = http::Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
    Exchange::new(Head::new(parts, peer), content)
}

/// The next bytes of an answer, whatever they are.
async fn bytes(body: &mut Body) -> String {
    use http_body_util::BodyExt as _;
    let frame = body.frame().await.unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

/// Opens a stream; returns it with where messages to it go.
async fn open(sse: &Arc<Sse>) -> (Body, String) {
    let mut body = sse.open(&exchange(Method::GET, "/sse", b"")).await.into_body();
    let endpoint = bytes(&mut body).await;
    let path = endpoint.trim_end().rsplit_once("/messages").unwrap().1;
    (body, format!("/messages{path}"))
}

/// How many sessions there is room for, if an endpoint keeps what it keeps of each client.
async fn count_of_sessions(endpoint: impl FnOnce(Endpoint) -> Endpoint) -> usize {
    const INITIALIZE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let (upstream, _received) = ready();
    let memory = Memory::within(Duration::from_hours(1), SessionLimits::of_total(200_000));
    let sessions = Sessions::new(Store::Memory(memory), Kind::Streamable);
    let of_session = Endpoint::new(upstream, sessions.clone(), TIMEOUT, Drain::new(GRACE));
    let streamable = Streamable::new(endpoint(of_session), false);
    for _ in 0..100 {
        let mut opening = exchange(Method::POST, "/mcp", INITIALIZE);
        opening.head.headers.insert("x-padding", "y".repeat(7000).parse().unwrap());
        assert_eq!(streamable.call(&mut opening).await.status(), StatusCode::OK);
    }
    sessions.store().count().await.unwrap()
}

#[tokio::test]
async fn the_headers_that_are_kept_for_a_session_count_in_the_share_of_its_client() {
    let all = count_of_sessions(Endpoint::forwarding).await;
    assert!((8..=12).contains(&all), "{all}");
    let named = count_of_sessions(|endpoint| endpoint.passing(vec!["x-padding".parse().unwrap()])).await;
    assert!((8..=12).contains(&named), "{named}");
    let none = count_of_sessions(|endpoint| endpoint).await;
    assert!(none > 70, "{none}");
}

#[test]
fn a_client_for_whom_there_is_no_room_is_told_when_to_try_again() {
    for as_events in [false, true] {
        let (era, client, budget) = (Era::Modern, ClientContext::default(), Budget::default());
        let replies = ReplyChain::default();
        let reply = Reply { as_events, era, session: None, resumes: false, replies, client, budget };
        let response = reply.error(CallError::Busy("all are in use".into()), None);
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(response.headers().contains_key(RETRY_AFTER));
    }
}

#[tokio::test(start_paused = true)]
async fn no_client_waits_for_ever_for_a_server_that_does_not_read() {
    let (upstream, _received) = ready();
    let news = Message::parse(Bytes::from_static(NEWS)).unwrap();
    for _ in 0..QUEUE {
        upstream.send(None, &news).await.unwrap();
    }
    let since = Instant::now();
    let (streamable, ..) = streamable(&upstream);
    let answer = streamable.call(&mut exchange(Method::POST, "/mcp", NEWS)).await;
    assert_eq!((answer.status(), since.elapsed()), (StatusCode::ACCEPTED, TIMEOUT));
    let sse = sse(upstream);
    let (_stream, path) = open(&sse).await;
    let answer = sse.message(&mut exchange(Method::POST, &path, NEWS)).await;
    assert_eq!((answer.status(), since.elapsed()), (StatusCode::INTERNAL_SERVER_ERROR, 2 * TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_json_only_is_answered_before_the_proxy_ends_and_the_server_is_notified() {
    let (upstream, mut received) = ready();
    let (streamable, sessions, drain) = streamable(&upstream);
    let session = sessions.open(None).await.unwrap();
    let since = Instant::now();
    drain.start();
    for body in [
        &br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}"#[..],
        br#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}"#,
    ] {
        let mut exchange = exchange(Method::POST, "/mcp", body);
        exchange.head.headers.insert(SESSION, session.parse().unwrap());
        let answer = streamable.call(&mut exchange).await;
        assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(since.elapsed().as_secs(), 19);
        let received: Vec<_> = std::iter::from_fn(|| received.try_recv().ok()).collect();
        let cancelled = received.iter().filter(|one| matches!(one, Received::Cancelled(_))).count();
        assert_eq!(cancelled, 1);
    }
}

/// Also one that waits for the server to be initialized.
#[tokio::test(start_paused = true)]
async fn who_waits_for_the_server_is_answered_before_the_proxy_ends() {
    let (upstream, mut received) = MemoryUpstream::new(UpstreamState::Starting);
    let (streamable, _sessions, drain) = streamable(&upstream);
    let since = Instant::now();
    drain.start();
    for (accept, status) in [("application/json", 504), ("application/json, text/event-stream", 200)] {
        for body in [
            &br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#[..],
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}"#,
        ] {
            let mut exchange = exchange(Method::POST, "/mcp", body);
            exchange.head.headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(streamable.call(&mut exchange).await.status().as_u16(), status);
            assert_eq!(since.elapsed().as_secs(), 19);
        }
    }
    assert!(received.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_meets_the_end_of_its_stream_leaves_nothing_behind() {
    let (connect, _heard) = crate::run::tests::agreeable();
    let (upstream, talk) = StdioUpstream::start(connect, Limits::default());
    tokio::spawn(talk);
    let sse = sse(upstream.clone());
    for body in [
        &br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#[..],
        br#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}"#,
    ] {
        let (stream, path) = open(&sse).await;
        // Both are there before either is read.
        drop(stream);
        let answer = sse.message(&mut exchange(Method::POST, &path, body)).await;
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        tokio::time::sleep(2 * TIMEOUT).await;
        assert_eq!(upstream.idle_sessions(Duration::ZERO), Vec::<SessionId>::new(), "sessions are left");
        let answer = sse.message(&mut exchange(Method::POST, &path, body)).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    }
}

/// Balancers on the way cut what is silent for a minute.
#[tokio::test(start_paused = true)]
async fn streams_on_which_nothing_is_said_say_that_they_are_alive() {
    let (upstream, _received) = ready();
    let (streamable, sessions, _drain) = streamable(&upstream);
    let session = sessions.open(None).await.unwrap();
    let call = br#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}"#;
    let mut asked = exchange(Method::POST, "/mcp", call);
    asked.head.headers.insert(ACCEPT, "application/json, text/event-stream".parse().unwrap());
    let mut listening = exchange(Method::GET, "/mcp", b"");
    for exchange in [&mut asked, &mut listening] {
        exchange.head.headers.insert(SESSION, session.parse().unwrap());
    }
    let answer = streamable.call(&mut asked).await.into_body();
    let heard = streamable.call(&mut listening).await.into_body();
    let (stream, _path) = open(&sse(upstream)).await;
    let mut bodies = [answer, heard, stream];
    let since = Instant::now();
    for times in 1..=3 {
        for body in &mut bodies {
            assert_eq!(bytes(body).await, ": keep-alive\n\n");
            let passed = since.elapsed().as_secs();
            assert_eq!(passed, 30 * times);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_session_is_gone_from_the_store() {
    use http_body_util::BodyExt as _;
    let (upstream, _received) = ready();
    let sessions = sessions(Kind::Sse);
    let sse = Sse::new(Endpoint::new(upstream, sessions.clone(), TIMEOUT, Drain::new(GRACE)), false);
    let (mut stream, path) = open(&sse).await;
    assert_eq!(bytes(&mut stream).await, ": keep-alive\n\n");
    assert!(sessions.close(path.rsplit_once('=').unwrap().1).await.unwrap());
    assert!(stream.frame().await.is_none());
}
