use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select;
use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use skep_net::drain::{Drained, Grace};
use skep_net::serve::Options;
use skep_net::{Body, Drain, Listener, serve};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::support::{GRACE, hello, raw, rest, start, until};

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn requests_in_flight_finish_and_new_ones_are_refused() {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (arriving, going) = (Arc::clone(&arrived), Arc::clone(&go));
    let server = start(Options::default(), GRACE, move |_, _| {
        let (arrived, go) = (Arc::clone(&arriving), Arc::clone(&going));
        async move {
            arrived.notify_one();
            go.acquire().await.unwrap().forget();
            Response::new(Body::full("done"))
        }
    })
    .await;
    let mut busy = raw(server.address, REQUEST).await;
    arrived.notified().await;
    assert!(server.drain.is_ready());
    server.drain.start();
    assert!(!server.drain.is_ready());
    // The listener is closed as soon as the accept loop has had its turn.
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    go.add_permits(1);
    let answer = rest(&mut busy).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("done"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(server.drain.drained().await, Drained { cut: 0 });
    server.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn readiness_goes_before_the_listener() {
    let grace = Grace { linger: Duration::from_secs(5), finish: Duration::from_secs(20) };
    let server = start(Options::default(), grace, hello).await;
    let begun = Instant::now();
    server.drain.start();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!server.drain.is_ready());
    let mut late = raw(server.address, REQUEST).await;
    until(&mut late, "hello").await;
    // It has no request in flight, so it is closed when the lingering is over.
    assert_eq!(rest(&mut late).await, "");
    assert_eq!(server.drain.drained().await, Drained { cut: 0 });
    assert!(begun.elapsed() >= Duration::from_secs(5));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// Streams forever. With a polite path it ends when the drain asks for it; else it has to be cut.
fn streams(drain: Drain, request: &Request<hyper::body::Incoming>) -> Response<Body> {
    let (sender, body) = Body::channel(1);
    let polite = request.uri().path() == "/polite";
    tokio::spawn(async move {
        sender.send(Bytes::from_static(b"begun\n")).await.unwrap();
        let deadline = drain.stopping().await;
        if polite {
            assert!(deadline > Instant::now());
            sender.send(Bytes::from_static(b"bye\n")).await.unwrap();
        } else {
            sender.closed().await;
        }
    });
    Response::new(body)
}

#[tokio::test(start_paused = true)]
async fn streams_are_notified_and_cut_at_their_deadline() {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let (address, drain) = (listener.address(), Drain::new(GRACE));
    let told = drain.clone();
    let task = tokio::spawn(serve(listener, Options::default(), drain.clone(), move |request, _| {
        std::future::ready(streams(told.clone(), &request))
    }));
    let mut polite = raw(address, "GET /polite HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut stubborn = raw(address, "GET /stubborn HTTP/1.1\r\nHost: x\r\n\r\n").await;
    until(&mut polite, "begun\n\r\n").await;
    until(&mut stubborn, "begun\n\r\n").await;
    let begun = Instant::now();
    drain.start();
    assert!(rest(&mut polite).await.ends_with("bye\n\r\n0\r\n\r\n"));
    assert!(begun.elapsed() < GRACE.finish);
    // Cut in the middle: the chunk that would end the body does not come.
    assert_eq!(rest(&mut stubborn).await, "");
    assert!(begun.elapsed() >= GRACE.finish);
    assert_eq!(drain.drained().await, Drained { cut: 1 });
    task.await.unwrap();
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_the_end() {
    let server = start(Options::default(), GRACE, hello).await;
    let mut idle = raw(server.address, REQUEST).await;
    until(&mut idle, "hello").await;
    let mut silent = raw(server.address, "").await;
    let mut unfinished = raw(server.address, "").await;
    until(&mut { raw(server.address, REQUEST).await }, "hello").await;
    server.drain.start();
    server.drain.start();
    assert_eq!(server.drain.drained().await, Drained { cut: 0 });
    for stream in [&mut idle, &mut silent, &mut unfinished] {
        assert_eq!(rest(stream).await, "");
    }
}

#[tokio::test]
async fn http2_calls_finish_too() {
    let go = Arc::new(Semaphore::new(0));
    let going = Arc::clone(&go);
    let server = start(Options::default(), GRACE, move |_, _| {
        let go = Arc::clone(&going);
        async move {
            go.acquire().await.unwrap().forget();
            Response::new(Body::full("done"))
        }
    })
    .await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let made = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = made.unwrap();
    tokio::spawn(connection);
    let ask = || http::Request::get("http://x/").body(Body::empty()).unwrap();
    let first = tokio::spawn(sender.send_request(ask()));
    let second = tokio::spawn(sender.send_request(ask()));
    go.add_permits(1);
    // Whichever responded: the connection is in use by the other.
    let (answered, waiting) = select(first, second).await.factor_first();
    assert_eq!(answered.unwrap().unwrap().status(), 200);
    server.drain.start();
    go.add_permits(1);
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    assert_eq!(server.drain.drained().await, Drained { cut: 0 });
}

#[tokio::test]
async fn a_drain_ends_when_its_last_listener_has() {
    let drain = Drain::new(GRACE);
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        tasks.push(tokio::spawn(serve(listener, Options::default(), drain.clone(), hello)));
    }
    tokio::task::yield_now().await;
    drain.start();
    drain.drained().await;
    for task in tasks {
        assert!(task.is_finished() || task.await.is_ok());
    }
}

#[tokio::test]
async fn a_server_that_is_dropped_takes_its_connections_along() {
    let server = start(Options::default(), GRACE, hello).await;
    let mut idle = raw(server.address, REQUEST).await;
    until(&mut idle, "hello").await;
    server.task.abort();
    assert_eq!(rest(&mut idle).await, "");
}
