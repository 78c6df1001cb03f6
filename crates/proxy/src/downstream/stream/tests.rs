use std::sync::Arc;

use skep_mcp::{Era, Message};
use skep_net::Body;

use skep_upstream::memory::{MemoryUpstream, Received};
use skep_upstream::{Call, Replies, SessionId, Upstream as _, UpstreamState};

use super::super::resume::Streams;
use super::*;

/// A call of a session that can resume it, where the server reports on it, who reads it, and what the server gets next.
async fn reported(streams: &Arc<Streams>) -> (Stream, mpsc::Sender<Bytes>, Body, mpsc::Receiver<Received>) {
    let (upstream, mut received) = MemoryUpstream::new(UpstreamState::ready(Era::Legacy));
    let request = br#"{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"slow"}}"#;
    let message = Message::parse(Bytes::from_static(request)).unwrap();
    let (id, session) = (message.id(), SessionId::from("a"));
    let (takes_interim, budget) = (true, Budget::default());
    let call = Call { session: Some(session.clone()), takes_interim, budget, ..Call::new(message, Era::Legacy) };
    let Replies { interim, response } = upstream.call(call).await.unwrap();
    let Received::Call(mut call) = received.try_recv().unwrap() else { panic!("no call") };
    assert_eq!(call.call.method(), Some("tools/call"));
    let reports = call.interim.take().unwrap();
    // The server never responds.
    std::mem::forget(call);
    let (reader, body) = Body::channel(INTERIM);
    let kept = streams.open(&session, &Budget::default());
    (Stream::new(response, interim.unwrap(), id, ReplyChain::default(), reader, kept), reports, body, received)
}

async fn call(streams: &Arc<Streams>) -> (Stream, Body, mpsc::Receiver<Received>) {
    let (stream, _, body, received) = reported(streams).await;
    (stream, body, received)
}

fn is_cancelled(received: Option<Received>) -> bool {
    matches!(received, Some(Received::Cancelled(method)) if method == "tools/call")
}

#[tokio::test(start_paused = true)]
async fn who_does_not_come_back_in_time_ends_the_work() {
    let streams = Arc::default();
    let (stream, body, mut received) = call(&streams).await;
    drop(body);
    let since = Instant::now();
    stream.run(None, Some(10 * AWAY), std::future::pending()).await;
    assert_eq!(since.elapsed().as_secs(), AWAY.as_secs());
    assert!(is_cancelled(received.try_recv().ok()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_cancelled_at_once_and_what_was_said_is_kept() {
    let streams: Arc<Streams> = Arc::default();
    let (stream, body, mut received) = call(&streams).await;
    let timeout = Duration::from_secs(5);
    let running = tokio::spawn(stream.run(None, Some(timeout), std::future::pending()));
    let since = Instant::now();
    assert!(is_cancelled(received.recv().await));
    assert_eq!(since.elapsed().as_secs(), timeout.as_secs());
    assert!(!running.is_finished());
    drop(body);
    running.await.unwrap();
    assert_eq!(since.elapsed().as_secs(), (timeout + AWAY).as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_ends_waits_for_no_client_that_is_away() {
    let streams = Arc::default();
    let (stream, body, mut received) = call(&streams).await;
    drop(body);
    let stopping = async { Instant::now() + Duration::from_secs(20) };
    let since = Instant::now();
    stream.run(None, Some(10 * AWAY), stopping).await;
    assert_eq!(since.elapsed(), Duration::ZERO);
    assert!(is_cancelled(received.try_recv().ok()));
}

#[tokio::test(start_paused = true)]
async fn reports_are_taken_while_no_client_reads_and_extend_the_time() {
    let streams = Arc::default();
    let (stream, reports, body, mut received) = reported(&streams).await;
    drop(body);
    let since = Instant::now();
    tokio::spawn(stream.run(None, Some(AWAY / 10), std::future::pending()));
    // More of them than any queue holds.
    tokio::spawn(async move {
        while reports.send(Bytes::from_static(b"{}")).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    assert!(is_cancelled(received.recv().await), "it is cancelled");
    assert_eq!(since.elapsed().as_secs(), AWAY.as_secs());
}

fn long(bytes: usize) -> Message {
    let text = format!(r#"{{"jsonrpc":"2.0","id":"mine","result":"{}"}}"#, "x".repeat(bytes));
    Message::parse(Bytes::from(text)).unwrap()
}

/// The next event of a body.
async fn event(body: &mut Body) -> String {
    use http_body_util::BodyExt as _;
    let bytes = body.frame().await.unwrap().unwrap().into_data().unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn item_8_an_answer_that_finds_no_room_waits_for_it_and_what_came_before_is_dropped() {
    let (stream, reports, mut body, _received) = reported(&Arc::default()).await;
    let budget = Budget::new(1024 * 1024);
    let mut stream = stream.within(budget.clone());
    let held = budget.reserve(900_000, Purpose::Response).unwrap();
    stream.enqueue(Bytes::from("r".repeat(200_000)), false);
    // It takes no more meanwhile.
    drop(reports);
    assert!(!stream.takes_more());
    stream.settle(Ok(long(300_000)));
    let running = tokio::spawn(stream.run(None, None, std::future::pending()));
    assert!(event(&mut body).await.contains("retry"));
    // Others hold it for longer than a stream is silent.
    let patience = KEEP_ALIVE + KEEP_ALIVE / 2;
    assert_eq!(tokio::time::timeout(patience, event(&mut body)).await.unwrap(), ": keep-alive\n\n");
    assert!(tokio::time::timeout(KEEP_ALIVE / 2, event(&mut body)).await.is_err());
    // What waits is the answer, and it is counted as such.
    assert_eq!((budget.waiters(), budget.waiting()), (1, long(300_000).body().len()));
    drop(held);
    assert!(event(&mut body).await.contains("xxx"));
    assert_eq!(budget.refused(), 0);
    drop(body);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(budget.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn item_8_an_answer_that_finds_no_room_in_time_is_an_error_in_its_place() {
    let (stream, mut body, _received) = call(&Arc::default()).await;
    let budget = Budget::new(1024 * 1024);
    let mut stream = stream.within(budget.clone());
    let _held = budget.reserve(900_000, Purpose::Response).unwrap();
    stream.enqueue(Bytes::from("r".repeat(200_000)), false);
    stream.settle(Ok(long(300_000)));
    tokio::spawn(stream.run(None, None, std::future::pending()));
    assert!(event(&mut body).await.contains("retry"));
    let started = Instant::now();
    let said = loop {
        let said = event(&mut body).await;
        if !said.starts_with(": keep-alive") {
            break said;
        }
    };
    assert!(said.contains(r#""id":"mine""#) && said.contains("try again"), "{said}");
    assert_eq!(started.elapsed(), skep_net::budget::ROOM_TIMEOUT);
    assert!(budget.held() < 901_000);
}

#[tokio::test(start_paused = true)]
async fn item_8_an_answer_that_can_never_fit_is_an_error_that_says_so() {
    let (stream, mut body, _received) = call(&Arc::default()).await;
    let budget = Budget::new(1024 * 1024);
    let mut stream = stream.within(budget.clone());
    stream.settle(Ok(long(2 * 1024 * 1024)));
    let started = Instant::now();
    tokio::spawn(stream.run(None, None, std::future::pending()));
    assert!(event(&mut body).await.contains("retry"));
    let said = event(&mut body).await;
    assert!(said.contains(r#""id":"mine""#) && said.contains("longer than 917504 bytes"), "{said}");
    assert!(!said.contains("try again") && started.elapsed().is_zero(), "{said}");
}

#[tokio::test(start_paused = true)]
async fn item_8_a_proxy_that_ends_does_not_wait_for_room() {
    let (stream, mut body, _received) = call(&Arc::default()).await;
    let budget = Budget::new(1024 * 1024);
    let mut stream = stream.within(budget.clone());
    let _held = budget.reserve(900_000, Purpose::Response).unwrap();
    stream.settle(Ok(long(300_000)));
    let stopping = async { Instant::now() + Duration::from_secs(20) };
    let started = Instant::now();
    tokio::spawn(stream.run(None, Some(AWAY), stopping));
    assert!(event(&mut body).await.contains("retry"));
    assert!(event(&mut body).await.contains("try again"));
    assert_eq!(started.elapsed().as_secs(), 19);
}
