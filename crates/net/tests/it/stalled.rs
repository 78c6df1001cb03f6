//! Clients that do not read their responses.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use skep_net::budget::Purpose;
use skep_net::serve::{ForwardedFor, Options, STALLED};
use skep_net::{Body, Budget, Peer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::support::{GRACE, Server, start};

const LONG: usize = 400_000;

/// A client with an initial window of so many bytes per stream.
async fn client(server: &Server, window: u32) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let made = builder.initial_stream_window_size(window).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = made.unwrap();
    tokio::spawn(connection);
    sender
}

async fn get(sender: &mut SendRequest<Empty<Bytes>>, path: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://x{path}")).body(Empty::new()).unwrap();
    sender.send_request(request).await.unwrap()
}

/// A server with one long response, whole and as a stream, and short ones.
async fn serve(budget: &Budget) -> Server {
    let (options, budget) = (Options { budget: budget.clone(), ..Options::default() }, budget.clone());
    start(options, GRACE, move |request: Request<Incoming>, peer: Peer| {
        let budget = budget.of_client(Peer::network(peer.address.ip()));
        async move {
            let long = Bytes::from(vec![b'x'; LONG]);
            Response::new(match request.uri().path() {
                "/long" => Body::full(long).within(&budget).await.unwrap(),
                "/stream" => {
                    let (sender, body) = Body::channel(1);
                    sender.send(budget.hold(long, Purpose::Response).unwrap()).await.unwrap();
                    body
                }
                _ => Body::full("short"),
            })
        }
    })
    .await
}

/// Has others refused, again and again, until the condition holds.
async fn refuse_until(budget: &Budget, mut is_true: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_true() {
        assert!(budget.reserve(2 << 20, Purpose::Response).is_err());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(started.elapsed() < 3 * STALLED, "nothing is given back");
    }
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_read_is_reset_while_others_are_refused_and_its_connection_goes_on() {
    for (path, window) in [("/long", 0), ("/long", 1), ("/long", 65_535), ("/stream", 0), ("/stream", 65_535)] {
        let budget = Budget::new(1 << 20);
        let server = serve(&budget).await;
        let mut client = client(&server, window).await;
        let unread = get(&mut client, path).await;
        // It blocks no other request, so it may take its time.
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(budget.held(), LONG, "{path} {window}");
        let mut other = client.clone();
        let time = refuse_until(&budget, || budget.held() == 0).await;
        assert!(time < Duration::from_secs(5), "{path} {window}: {time:?}");
        assert!(unread.into_body().collect().await.is_err(), "{path} {window}: it must not look complete");
        // The other streams of the connection are unaffected.
        assert_eq!(get(&mut other, "/short").await.status(), 200);
    }
}

fn network(number: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, number])
}

/// A server whose clients come through one proxy in front of it: the path is the last part of their address. Responses
/// on HTTP/1 have no end, so that the kernel cannot take all of one; it reports which of them were cut.
async fn serve_behind_proxy(budget: &Budget) -> (Server, mpsc::Receiver<u8>) {
    let (options, budget) = (Options { budget: budget.clone(), ..Options::default() }, budget.clone());
    let (cut, cuts) = mpsc::channel(2);
    let handler = move |request: Request<Incoming>, _: Peer| {
        let number: u8 = request.uri().path().trim_start_matches('/').parse().unwrap();
        let (budget, cut) = (budget.of_client(network(number)), cut.clone());
        async move {
            let (long, (sender, body)) = (Bytes::from(vec![b'x'; LONG]), Body::channel(1));
            let held = budget.hold(long.clone(), Purpose::Response).unwrap();
            if request.version() == http::Version::HTTP_2 {
                sender.send(held).await.unwrap();
            } else {
                tokio::spawn(async move {
                    while sender.send(long.clone()).await.is_ok() {}
                    drop(held);
                    cut.send(number).await.unwrap();
                });
            }
            let mut response = Response::new(body);
            response.extensions_mut().insert(ForwardedFor(network(number)));
            response
        }
    };
    (start(options, GRACE, handler).await, cuts)
}

/// Uses up the share of one client, until only the response of another one is held.
async fn press_share(budget: &Budget, number: u8) {
    let (share, started) = (budget.of_client(network(number)), Instant::now());
    while budget.held() > LONG {
        assert!(share.reserve(100_000, Purpose::Response).is_err());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(started.elapsed() < 3 * STALLED, "nothing is given back");
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(budget.held(), LONG, "no other stream is cut");
    assert!(share.reserve(100_000, Purpose::Response).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_client_behind_a_proxy_is_cut_for_its_own_share_and_others_of_that_proxy_are_not() {
    let budget = Budget::new(1 << 20);
    let (server, mut cuts) = serve_behind_proxy(&budget).await;
    let mut proxy = client(&server, 0).await;
    let (one, other) = (get(&mut proxy, "/1").await, get(&mut proxy, "/2").await);
    tokio::time::sleep(Duration::from_hours(1)).await;
    press_share(&budget, 1).await;
    assert!(one.into_body().collect().await.is_err());
    drop((proxy, other));
    while budget.held() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    let mut connections = Vec::new();
    for number in [1, 2] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(format!("GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        connections.push(stream);
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(budget.held(), 2 * LONG);
    press_share(&budget, 2).await;
    assert_eq!(cuts.recv().await, Some(2));
    assert!(cuts.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_read_slowly_is_not_reset() {
    let budget = Budget::new(1 << 20);
    let server = serve(&budget).await;
    let mut client = client(&server, 65_535).await;
    let mut body = get(&mut client, "/long").await.into_body();
    let (mut read, started) = (0, Instant::now());
    while let Some(frame) = body.frame().await {
        read += frame.unwrap().into_data().unwrap().len();
        // It reads 2 KiB a second, and opens the window again after half of it: every 16 s.
        while started.elapsed().as_secs() < (read / 2048) as u64 {
            assert!(budget.reserve(2 << 20, Purpose::Response).is_err());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    assert_eq!(read, LONG);
}

/// A backend whose response has no end, and a server that forwards it.
async fn serve_passing(budget: &Budget) -> (Server, Server) {
    let backend = start(Options::default(), GRACE, |_, _| async {
        let (sender, body) = Body::channel(1);
        tokio::spawn(async move { while sender.send(Bytes::from(vec![b'x'; LONG])).await.is_ok() {} });
        Response::new(body)
    })
    .await;
    let (options, budget) = (Options { budget: budget.clone(), ..Options::default() }, budget.clone());
    let (client, target) = (skep_net::Client::new(skep_net::client::Options::default()), backend.url("/"));
    let front = start(options, GRACE, move |_, peer: Peer| {
        let budget = budget.of_client(Peer::network(peer.address.ip()));
        let (client, target) = (client.clone(), target.clone());
        async move {
            let (parts, body) = client.send(crate::support::get(&target)).await.unwrap().into_parts();
            Response::from_parts(parts, body.within(&budget).await.unwrap())
        }
    })
    .await;
    (backend, front)
}

#[tokio::test(start_paused = true)]
async fn item_8_a_response_that_passes_through_is_cut_if_it_is_not_read_while_others_are_refused() {
    let budget = Budget::new(1 << 20);
    let (_backend, server) = serve_passing(&budget).await;
    let mut http2 = client(&server, 65_535).await;
    let unread = get(&mut http2, "/").await;
    let mut http1 = TcpStream::connect(server.address).await.unwrap();
    http1.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    // There is room for all others, so both may take their time.
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(budget.held(), 2 * skep_net::body::PASSING);
    refuse_until(&budget, || budget.held() == 0).await;
    assert!(unread.into_body().collect().await.is_err());
}
