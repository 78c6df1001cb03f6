//! A server to talk to, and raw connections for what no proper client sends.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use skep_net::body::{Limit, collect};
use skep_net::drain::Grace;
use skep_net::serve::Options;
use skep_net::{Body, Drain, Listener, Peer, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// More than any test sends.
pub(crate) const PLENTY: Limit = Limit { bytes: 1 << 20, idle: Duration::from_secs(30), pace: 1 };

pub(crate) const GRACE: Grace = Grace { linger: Duration::ZERO, finish: Duration::from_secs(20) };

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) drain: Drain,
    pub(crate) task: JoinHandle<()>,
}

impl Server {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

pub(crate) async fn start<H, F>(options: Options, grace: Grace, handler: H) -> Server
where
    H: Fn(Request<Incoming>, Peer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.address();
    let drain = Drain::new(grace);
    let task = tokio::spawn(serve(listener, options, drain.clone(), handler));
    Server { address, drain, task }
}

/// Responds `hello` to everything.
pub(crate) async fn hello(_request: Request<Incoming>, _peer: Peer) -> Response<Body> {
    Response::new(Body::full("hello"))
}

/// A connection that the test writes to by hand.
pub(crate) async fn raw(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Everything until the peer closes or resets.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset connection is as closed as one that was shut down.
    let _reset = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

/// What arrives up to this text.
pub(crate) async fn until(stream: &mut TcpStream, text: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(text.as_bytes()) {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "closed after {:?}", String::from_utf8_lossy(&bytes));
    }
    String::from_utf8(bytes).unwrap()
}

pub(crate) fn get(url: &str) -> Request<Body> {
    Request::get(url).body(Body::empty()).unwrap()
}

pub(crate) async fn text(response: Response<Body>) -> Bytes {
    collect(response.into_body(), PLENTY).await.unwrap()
}
