use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use skep_net::body::{Limit, collect};
use skep_net::serve::{ConnectionLimits, Options};
use skep_net::{Body, BodyError};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{GRACE, Server, raw, rest, start, until};

/// Responds with the length of the body, or the error.
async fn measure() -> Server {
    start(Options::default(), GRACE, |request, _| async move {
        let limit = Limit { bytes: 8, idle: Duration::from_secs(30), pace: 1 };
        let (status, said) = match collect(request.into_body(), limit).await {
            Ok(bytes) => (StatusCode::OK, format!("read {}.", bytes.len())),
            Err(error @ BodyError::TooLarge { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, format!("{error}.")),
            Err(error) => (StatusCode::BAD_REQUEST, format!("{error}.")),
        };
        let mut response = Response::new(Body::full(said));
        *response.status_mut() = status;
        response
    })
    .await
}

fn post(header: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n{body}")
}

#[tokio::test]
async fn the_limit_holds_for_both_ways_to_send_a_body() {
    let server = measure().await;
    let cases = [
        (post("Content-Length: 8", "12345678"), "200", "read 8."),
        (post("Content-Length: 9", "123456789"), "413", "the body is longer than 8 bytes."),
        (post("Transfer-Encoding: chunked", "4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n"), "200", "read 8."),
        (post("Transfer-Encoding: chunked", "4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n"), "413", "longer than 8 bytes."),
        (post("Content-Length: 0", ""), "200", "read 0."),
    ];
    for (request, status, said) in cases {
        let mut stream = raw(server.address, &request).await;
        let answer = until(&mut stream, said).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

#[tokio::test]
async fn an_announced_length_is_refused_before_the_body_comes() {
    let server = measure().await;
    let mut stream = raw(server.address, &post("Content-Length: 1000000000", "")).await;
    assert!(until(&mut stream, "longer than 8 bytes.").await.starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn a_body_shorter_than_announced_is_broken() {
    let server = measure().await;
    let mut stream = raw(server.address, &post("Content-Length: 8", "1234")).await;
    stream.shutdown().await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(!answer.contains("read"), "{answer}");
}

#[tokio::test]
async fn a_body_longer_than_announced_ends_where_announced() {
    let server = measure().await;
    let mut stream = raw(server.address, &post("Content-Length: 4", "12345678\r\n\r\n")).await;
    let answer = rest(&mut stream).await;
    assert!(answer.contains("read 4."), "{answer}");
    assert!(answer.contains("HTTP/1.1 400"), "what follows is not a request: {answer}");
}

#[tokio::test(start_paused = true)]
async fn an_upload_may_be_slow_but_not_stall() {
    let server = measure().await;
    let mut stream = raw(server.address, &post("Content-Length: 8", "")).await;
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_secs(25)).await;
        stream.write_all(b"x").await.unwrap();
    }
    until(&mut stream, "read 8.").await;
    let mut stream = raw(server.address, &post("Content-Length: 8", "1234")).await;
    assert!(until(&mut stream, "arrived for 30 s.").await.starts_with("HTTP/1.1 400"));
}

/// A connection that requests share, and how many of them its server allows.
async fn shared(address: SocketAddr) -> (SendRequest<Empty<Bytes>>, Arc<AtomicUsize>) {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::Builder::new(TokioExecutor::new()).handshake(io).await.unwrap();
    let allowed = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&allowed);
    tokio::spawn(async move {
        let mut connection = pin!(connection);
        let _ended = poll_fn(|context| {
            let polled = connection.as_mut().poll(context);
            noted.store(connection.current_max_send_streams(), Ordering::Relaxed);
            polled
        })
        .await;
    });
    (sender, allowed)
}

fn request(header: &str) -> Request<Empty<Bytes>> {
    Request::get("http://x/").header("x-long", header).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn item_8_requests_that_share_a_connection_count_as_connections() {
    let refused: Arc<AtomicU64> = Arc::default();
    let connections = ConnectionLimits { total: 8, per_peer: 4 };
    let options = Options { connections, refused: refused.clone(), ..Options::default() };
    let server = start(options, GRACE, |_, _| async {
        let (sender, body) = Body::channel(1);
        tokio::spawn(async move { sender.closed().await });
        Response::new(body)
    })
    .await;
    let (mut sender, allowed) = shared(server.address).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        let response = sender.send_request(request("")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        open.push(response);
    }
    assert_eq!(allowed.load(Ordering::Relaxed), 64);
    let response = sender.send_request(request("")).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "2");
    assert!(rest(&mut raw(server.address, "").await).await.starts_with("HTTP/1.1 503"));
    assert_eq!(refused.load(Ordering::Relaxed), 2);
    // Every request that ends makes room, for a request and for a connection.
    open.truncate(2);
    while sender.send_request(request("")).await.unwrap().status() != StatusCode::OK {
        tokio::task::yield_now().await;
    }
    let (mut other, _) = shared(server.address).await;
    assert_eq!(other.send_request(request("")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn item_8_the_longest_head_is_the_same_however_it_comes() {
    let server = measure().await;
    let (mut sender, _) = shared(server.address).await;
    for (bytes, status, end) in [(12 * 1024, 200, "read 0."), (20 * 1024, 431, "\r\n\r\n")] {
        let long = "x".repeat(bytes);
        assert_eq!(sender.send_request(request(&long)).await.unwrap().status(), status, "{bytes}");
        let mut stream = raw(server.address, &format!("GET / HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n")).await;
        assert!(until(&mut stream, end).await.starts_with(&format!("HTTP/1.1 {status}")), "{bytes}");
    }
}

#[tokio::test]
async fn a_health_check_is_answered_beyond_the_connection_limit() {
    let refused: Arc<AtomicU64> = Arc::default();
    let connections = ConnectionLimits { total: 2, per_peer: 2 };
    // What is silent is closed for others, and not for being silent.
    let patient = Options { header_timeout: Duration::from_hours(1), ..Options::default() };
    let options = Options { connections, refused: refused.clone(), probe_path: Some("/health"), ..patient };
    let server = start(options, GRACE, |_, _| async { Response::new(Body::full("well")) }).await;
    let _full = [raw(server.address, "").await, raw(server.address, "").await];
    for _ in 0..40 {
        let mut probe = raw(server.address, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let answer = rest(&mut probe).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("well"), "{answer}");
        let mut other = raw(server.address, "GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(rest(&mut other).await.starts_with("HTTP/1.1 503"));
    }
    assert_eq!(refused.load(Ordering::Relaxed), 40);
    // Those that request nothing make room, the oldest first.
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(raw(server.address, "").await);
    }
    for displaced in 0..20 {
        let answer = rest(&mut raw(server.address, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let closed = tokio::time::timeout(Duration::from_secs(30), rest(&mut silent[displaced])).await;
        assert_eq!(closed.as_deref(), Ok(""));
        silent.push(raw(server.address, "").await);
    }
}

#[tokio::test]
async fn health_checks_beyond_the_connection_limit_that_are_in_flight_are_limited() {
    let connections = ConnectionLimits { total: 1, per_peer: 1 };
    let options = Options { connections, probe_path: Some("/health"), ..Options::default() };
    let (sender, begun) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (hanging, counted) = (sender.clone(), begun.clone());
    let server = start(options, GRACE, move |_, _| {
        let (hanging, counted) = (hanging.clone(), counted.clone());
        async move {
            counted.add_permits(1);
            let _never = hanging.acquire().await;
            Response::new(Body::empty())
        }
    })
    .await;
    let probe = || raw(server.address, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    let _full = raw(server.address, "").await;
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(probe().await);
    }
    let _all = begun.acquire_many(16).await.unwrap();
    assert!(rest(&mut probe().await).await.starts_with("HTTP/1.1 503"));
    drop(sender);
}
