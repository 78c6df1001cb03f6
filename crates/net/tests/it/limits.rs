use std::time::Duration;

use http::{Response, StatusCode};
use skep_net::body::{Limit, collect};
use skep_net::serve::Options;
use skep_net::{Body, BodyError};
use tokio::io::AsyncWriteExt as _;

use crate::support::{GRACE, Server, raw, rest, start, until};

/// Answers how long the body was, or what was wrong with it.
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
async fn an_upload_may_be_slow_but_not_silent() {
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
