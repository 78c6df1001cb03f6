use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use skep_net::budget::Purpose;
use skep_net::serve::Options;
use skep_net::{Body, Budget, Listener, Peer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::{GRACE, hello, raw, rest, start, until};

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_cut() {
    let server = start(Options::default(), GRACE, hello).await;
    for begun in ["", "GET", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nHost:"] {
        let started = Instant::now();
        let mut stream = raw(server.address, begun).await;
        assert_eq!(rest(&mut stream).await, "");
        assert!(started.elapsed() >= Duration::from_secs(10));
        assert!(started.elapsed() < Duration::from_secs(100), "cut for being idle, not for being slow");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_is_cut() {
    let server = start(Options::default(), GRACE, hello).await;
    let (mut reader, mut writer) = raw(server.address, "GET / HTTP/1.1\r\nX: ").await.into_split();
    let drip = tokio::spawn(async move {
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let mut answer = Vec::new();
    // Reset or closed: both are an end.
    let _reset = tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut answer).await;
    assert!(answer.is_empty());
    drop(reader);
    drip.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_and_then_closed() {
    let idle_timeout = Duration::from_secs(30);
    let server = start(Options { idle_timeout, ..Options::default() }, GRACE, hello).await;
    let mut stream = raw(server.address, REQUEST).await;
    until(&mut stream, "hello").await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    until(&mut stream, "hello").await;
    let idle = Instant::now();
    assert_eq!(rest(&mut stream).await, "");
    assert!(idle.elapsed() >= idle_timeout);
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_on_a_kept_connection_is_cut() {
    let idle_timeout = Duration::from_hours(1);
    let server = start(Options { idle_timeout, ..Options::default() }, GRACE, hello).await;
    let mut stream = raw(server.address, REQUEST).await;
    until(&mut stream, "hello").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let begun = Instant::now();
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
    assert!(begun.elapsed() >= Duration::from_secs(10));
    assert!(begun.elapsed() < idle_timeout);
}

#[tokio::test(start_paused = true)]
async fn a_response_may_take_forever() {
    let server = start(Options::default(), GRACE, |_, _| async {
        let (sender, body) = Body::channel(1);
        tokio::spawn(async move {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(1000)).await;
                sender.send(Bytes::from_static(b"tick")).await.unwrap();
            }
        });
        tokio::time::sleep(Duration::from_secs(1000)).await;
        Response::new(body)
    })
    .await;
    let mut stream = raw(server.address, REQUEST).await;
    let answer = until(&mut stream, "0\r\n\r\n").await;
    assert_eq!(answer.matches("tick").count(), 3);
}

#[tokio::test]
async fn a_handler_that_panics_results_in_500_and_affects_no_other_request() {
    let server = start(Options::default(), GRACE, |request, peer| {
        // One panic before the future is made and one inside of it.
        assert_ne!(request.uri().path(), "/at-once");
        async move {
            assert_ne!(request.uri().path(), "/later");
            hello(request, peer).await
        }
    })
    .await;
    let mut stream = raw(server.address, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(until(&mut stream, "Internal Server Error").await.starts_with("HTTP/1.1 500"));
    stream.write_all(b"GET /at-once HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(until(&mut stream, "Internal Server Error").await.starts_with("HTTP/1.1 500"));
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    assert!(until(&mut stream, "hello").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn http1_and_http2_share_a_port() {
    let server = start(Options::default(), GRACE, |request, _| async move {
        Response::new(Body::full(format!("{:?}", request.version())))
    })
    .await;
    let mut stream = raw(server.address, REQUEST).await;
    until(&mut stream, "HTTP/1.1").await;

    let stream = TcpStream::connect(server.address).await.unwrap();
    let made = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = made.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let request = http::Request::get("http://x/").body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "HTTP/2.0");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_http2_connection_is_closed_and_a_busy_one_is_not() {
    let server = start(Options::default(), GRACE, |_, _| async {
        tokio::time::sleep(Duration::from_secs(1000)).await;
        Response::new(Body::full("late"))
    })
    .await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let made = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = made.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get("http://x/").body(Empty::<Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "late");
    let idle = Instant::now();
    connection.await.unwrap().unwrap();
    assert!(idle.elapsed() >= Duration::from_mins(2));
}

#[tokio::test]
async fn a_taken_port_is_an_error_with_its_address() {
    let first = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let error = Listener::bind(first.address()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on `{}`", first.address()));
    let cause = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(cause.kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server = start(Options { header_bytes: 8 * 1024, ..Options::default() }, GRACE, hello).await;
    let long = "x".repeat(9 * 1024);
    let mut stream = raw(server.address, &format!("GET / HTTP/1.1\r\nHost: x\r\nX: {long}\r\n\r\n")).await;
    assert!(until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn the_peer_is_known() {
    let server = start(Options::default(), GRACE, |_, peer| async move {
        Response::new(Body::full(format!("{} {}", peer.address, peer.tls)))
    })
    .await;
    let mut stream = raw(server.address, REQUEST).await;
    let expected = format!("{} false", stream.local_addr().unwrap());
    until(&mut stream, &expected).await;
}

#[tokio::test]
async fn an_upgraded_connection_belongs_to_the_handler() {
    let server = start(Options::default(), GRACE, |mut request, _| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            io.write_all(b"other protocol").await.unwrap();
        });
        let response = Response::builder().status(101).header("connection", "upgrade").header("upgrade", "other");
        response.body(Body::empty()).unwrap()
    })
    .await;
    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n";
    let mut stream = raw(server.address, request).await;
    assert!(rest(&mut stream).await.ends_with("\r\n\r\nother protocol"));
}

/// The same program again, with few file descriptors.
#[test]
fn a_server_without_file_handles_recovers() {
    const STARVED: &str = "SKEP_TEST_STARVED";
    if std::env::var_os(STARVED).is_some() {
        return tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(starve());
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$0\" --exact serve::a_server_without_file_handles_recovers --nocapture"])
        .arg(program)
        .env(STARVED, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("starved and recovered"));
}

async fn starve() {
    let server = start(Options::default(), GRACE, hello).await;
    let mut hoard = Vec::new();
    while let Ok(stream) = TcpStream::connect(server.address).await {
        hoard.push(stream);
        tokio::task::yield_now().await;
    }
    assert!(!hoard.is_empty());
    drop(hoard);
    // The file descriptors come back as the server notices that its clients have left.
    let mut stream = loop {
        match TcpStream::connect(server.address).await {
            Ok(stream) => break stream,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    until(&mut stream, "hello").await;
    println!("starved and recovered");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut_only_while_others_are_refused() {
    let budget = Budget::new(1 << 20);
    let options = Options { budget: budget.clone(), ..Options::default() };
    let (cut, mut is_cut) = tokio::sync::mpsc::channel(1);
    let endless = move |_, _| {
        let cut = cut.clone();
        async move {
            let (sender, body) = Body::channel(1);
            tokio::spawn(async move {
                while sender.send(Bytes::from(vec![b'x'; 1 << 20])).await.is_ok() {}
                cut.send(()).await.unwrap();
            });
            Response::new(body)
        }
    };
    let server = start(options, GRACE, endless).await;
    let _stream = raw(server.address, REQUEST).await;
    // It has taken what the kernel takes for it, and nothing for an hour.
    assert!(tokio::time::timeout(Duration::from_hours(1), is_cut.recv()).await.is_err());
    let started = Instant::now();
    while is_cut.try_recv().is_err() {
        // Other requests are refused, again and again.
        assert!(budget.reserve(2 << 20, Purpose::Response).is_err());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }
}

#[test]
fn the_lower_half_of_an_ipv6_address_is_the_clients_to_choose() {
    let network = |text: &str| Peer::network(text.parse().unwrap());
    assert_eq!(network("2001:db8:1:2:3:4:5:6"), network("2001:db8:1:2::"));
    assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
    assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    assert_eq!(network("::1").to_string(), "::1");
}
