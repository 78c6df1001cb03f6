//! HTTP/2 backends: many streams on few connections, and none of them blocks another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use skep_net::client::Options;
use skep_net::tls::{Trust, server};
use skep_net::{Body, Client};
use skep_testkit::pki::Authority;
use skep_testkit::{Seen, eventually};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::support::{get, text};
use crate::tls::{identity, roots};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than is buffered of a response that is not read.
const BIG: usize = 16 * 1024 * 1024;

/// A server that speaks HTTP/2 and nothing else.
struct Backend {
    port: u16,
    authority: Authority,
    /// How many connections are open.
    connections: Arc<AtomicUsize>,
}

impl Backend {
    /// A server that allows so many streams on a connection.
    async fn start(streams: u32) -> Self {
        let authority = Authority::generate().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut config = (*server(identity(&authority, "server", &["localhost"]), None).unwrap()).clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let connections = Arc::new(AtomicUsize::new(0));
        let open = connections.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                open.fetch_add(1, Ordering::SeqCst);
                let (acceptor, open) = (acceptor.clone(), open.clone());
                tokio::spawn(async move {
                    let io = TokioIo::new(acceptor.accept(stream).await.unwrap());
                    let mut http = http2::Builder::new(TokioExecutor::new());
                    http.timer(TokioTimer::new()).max_concurrent_streams(streams);
                    // It ends as the client wants it to, or breaks with the test.
                    let _ended = http.serve_connection(io, service_fn(answer)).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, authority, connections }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    fn client(&self) -> Client {
        let trust = Trust::Roots(roots(&self.authority));
        let options = Options { trust, idle_timeout: Duration::from_secs(20), ..Options::default() };
        Client::new(options)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, &'static str> {
    match request.uri().path() {
        // An event stream without events.
        "/open" => {
            let (sender, body) = Body::channel(1);
            tokio::spawn(async move { sender.closed().await });
            Ok(Response::new(body))
        }
        "/big" => Ok(Response::new(Body::full(vec![0; BIG]))),
        "/never" => std::future::pending().await,
        "/fail" => Err("no"),
        _ => Ok(Response::new(Body::full("hello"))),
    }
}

async fn call(client: &Client, backend: &Backend) {
    let answer = timeout(PATIENCE, client.send(get(&backend.url("/")))).await.unwrap().unwrap();
    assert_eq!(timeout(PATIENCE, text(answer)).await.unwrap(), "hello");
}

#[tokio::test]
async fn calls_are_answered_while_streams_hold_all_that_a_connection_allows() {
    for (allowed, expected) in [(100, 3), (10, 15)] {
        let (backend, open) = (Backend::start(allowed).await, 141);
        let client = backend.client();
        let mut streams = Vec::new();
        for _ in 0..open {
            streams.push(timeout(PATIENCE, client.send(get(&backend.url("/open")))).await.unwrap().unwrap());
        }
        assert_eq!(backend.connections(), expected);
        for _ in 0..20 {
            call(&client, &backend).await;
        }
        assert_eq!(backend.connections(), expected, "calls that have ended make room for the next");
        assert!(streams.iter().all(|stream| !stream.body().is_end_stream()));
    }
}

#[tokio::test]
async fn a_request_that_was_left_or_failed_takes_no_room() {
    let backend = Backend::start(100).await;
    let client = backend.client();
    call(&client, &backend).await;
    for _ in 0..2 {
        let never = join_all((0..60).map(|_| client.send(get(&backend.url("/never")))));
        assert!(timeout(Duration::from_millis(1), never).await.is_err());
        join_all((0..60).map(|_| async { client.send(get(&backend.url("/fail"))).await.unwrap_err() })).await;
        join_all((0..60).map(|_| async { client.send(get(&backend.url("/open"))).await.unwrap() })).await;
    }
    assert_eq!(backend.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn connections_that_are_not_needed_any_more_are_closed() {
    let backend = Backend::start(100).await;
    let client = backend.client();
    let mut streams = Vec::new();
    for _ in 0..130 {
        streams.push(client.send(get(&backend.url("/open"))).await.unwrap());
    }
    assert_eq!(backend.connections(), 3);
    // Open streams keep their connection, and others may use it.
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(backend.connections(), 3);
    streams.truncate(1);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        call(&client, &backend).await;
    }
    eventually("one connection is left", PATIENCE, || async {
        let open = backend.connections();
        Ok(if open == 1 { Seen::Yes(()) } else { Seen::NotYet(open.to_string()) })
    })
    .await
    .unwrap();
    drop(streams);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(backend.connections(), 0);
}

#[tokio::test]
async fn clients_that_do_not_read_do_not_block_others() {
    let backend = Backend::start(100).await;
    let client = backend.client();
    let mut unread = Vec::new();
    for _ in 0..8 {
        let mut answer = client.send(get(&backend.url("/big"))).await.unwrap();
        // As much of it arrives as is buffered.
        let first = std::future::poll_fn(|context| std::pin::Pin::new(answer.body_mut()).poll_frame(context));
        assert!(timeout(PATIENCE, first).await.unwrap().unwrap().is_ok());
        unread.push(answer);
    }
    for _ in 0..20 {
        call(&client, &backend).await;
    }
    assert_eq!(backend.connections(), 1);
}
