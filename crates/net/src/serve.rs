//! The listener and the accept loop.
//!
//! Every connection is one task. Time limits cost a request nothing: a connection records its state, and the accept
//! loop checks all of them once a second (see `serve/registry.rs`). The timeout of a body is set where it is read: see
//! [`crate::body::Limit`].

mod connection;
mod registry;
mod stream;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_rustls::TlsAcceptor;

use self::registry::{Order, Registry, TICK};
use self::stream::StreamExecutor;
use crate::{Body, Budget, Drain};

/// The response to a client whose connection exceeds the limit.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// How long to wait when connections cannot be accepted, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many streams one HTTP/2 connection may have. A client that wants more waits, or opens another connection.
const STREAMS: u32 = 64;
/// How many bytes of a response are buffered on one HTTP/2 stream until its client reads, beside what its body counts.
const SEND_BUFFER: usize = 64 * 1024;

/// The length of the accept queue.
const BACKLOG: u32 = 1024;

/// When TCP keepalive probes of a silent connection start, and how often they are sent.
pub(crate) const KEEPALIVE: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(15));

/// The limits of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a client may take to send the head of a request, TLS handshake included.
    pub header_timeout: Duration,
    /// How long a connection may stay open with no request in flight.
    pub idle_timeout: Duration,
    /// The maximum length of a request head, at least 8 KiB. A longer one gets 431. It is also the read size for bodies
    /// on HTTP/1.
    pub header_bytes: u32,
    /// The connection limits. A request on HTTP/2 that is in flight beside others of its connection counts as a
    /// connection of its own: so the heads of all requests in flight take no more than `total` times `header_bytes`.
    pub connections: ConnectionLimits,
    /// The budget that its responses are counted in. While a reservation in it fails, clients that do not read their
    /// response are cut: on HTTP/1 the connection of one that has not taken a byte for [`STALLED`], on HTTP/2 the
    /// stream that has not taken 16 KiB in that time. If only the share of one client is full, only that client is cut;
    /// a handler that counts for another client than the peer sets [`ForwardedFor`].
    pub budget: Budget,
    /// How many connections and HTTP/2 requests were refused by the limits. Clones of it can be read elsewhere.
    pub refused: Arc<AtomicU64>,
    /// The path of the health check, which a few connections beyond the limits may request: the kubelet must not
    /// restart a process that is merely busy. Each of them gets one response.
    pub probe_path: Option<&'static str>,
    /// Serve TLS with these settings.
    pub tls: Option<Arc<ServerConfig>>,
}

/// How many connections there may be at once. Connections beyond that are closed when they are accepted, and HTTP/2
/// requests beyond that get 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In total.
    pub total: usize,
    /// Of one peer: of an IPv4 address, or of the /64 of an IPv6 address.
    pub per_peer: usize,
}

/// How long a client may take no byte of a response (on HTTP/2, less than 16 KiB of it) while others are refused for
/// lack of memory.
pub const STALLED: Duration = Duration::from_secs(30);

impl ConnectionLimits {
    /// A total, of which one peer may have half.
    pub const fn of_total(total: usize) -> Self {
        Self { total, per_peer: total.div_ceil(2) }
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self::of_total(8192)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(2),
            header_bytes: 16 * 1024,
            connections: ConnectionLimits::default(),
            budget: Budget::default(),
            refused: Arc::default(),
            probe_path: None,
            tls: None,
        }
    }
}

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

/// A port cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on `{address}`")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address; an IPv4 address even on an IPv6 socket.
    pub address: SocketAddr,
    /// Whether the connection is TLS.
    pub tls: bool,
}

/// The network of the client that a response is for, as an extension of the response: it differs from the peer's if the
/// peer is a proxy that forwards for many clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedFor(pub IpAddr);

impl Peer {
    /// The network that identifies a client: an IPv4 address, or the /64 of an IPv6 address, whose other half a client
    /// can choose freely.
    pub fn network(address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::from([a, b, c, d, 0, 0, 0, 0])
            }
            address => address,
        }
    }
}

impl Listener {
    /// Binds a port. From here on connections queue up; [`serve`] accepts them.
    #[expect(clippy::unused_async, reason = "it needs a runtime, and says so")]
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        open(address).map_err(|source| BindError { address, source })
    }

    /// The address that it listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn open(address: SocketAddr) -> io::Result<Listener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    // Connections inherit this from their listener.
    set_keepalive(&SockRef::from(&socket))?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok(Listener { listener, address })
}

/// Detects a peer that vanished without closing, however long its stream is silent. Keepalive probes do not run while
/// sent bytes are unacknowledged: the kernel retransmits them for a quarter of an hour. A client may pause for as long
/// as that; for backends, see `client/dial.rs`.
pub(crate) fn set_keepalive(socket: &SockRef<'_>) -> io::Result<()> {
    let (time, interval) = KEEPALIVE;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(interval))
}

/// Serves every request on this port with the handler until the drain is complete.
///
/// A handler that panics results in 500. Dropping the future cuts every connection.
pub async fn serve<H, F>(listener: Listener, options: Options, drain: Drain, handler: H)
where
    H: Fn(Request<Incoming>, Peer) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let server = drain.enter();
    let registry = registry::Owner::new(Registry::new(&options));
    let http = Arc::new(http(&options));
    let acceptor = options.tls.map(TlsAcceptor::from);
    let handler = Arc::new(handler);
    let mut tick = ticks();

    let mut stopping = std::pin::pin!(drain.stopping());
    let deadline = loop {
        tokio::select! {
            deadline = &mut stopping => break deadline,
            () = registry.tick(&mut tick) => {}
            (stream, address) = accept(&listener.listener) => {
                let peer = Peer { address: canonical(address), tls: acceptor.is_some() };
                let Some(registered) = registry.register(peer.address.ip()) else {
                    refuse(stream, peer.tls);
                    continue;
                };
                let (http, acceptor, handler) = (Arc::clone(&http), acceptor.clone(), Arc::clone(&handler));
                tokio::spawn(connection::run(stream, peer, registered, http, acceptor, handler));
            }
        }
    };

    drop(listener);
    registry.order(Order::Finish);
    let mut cut = std::pin::pin!(tokio::time::sleep_until(deadline));
    while !registry.is_empty() {
        tokio::select! {
            () = &mut cut => {
                let calls = registry.order(Order::Cut);
                if calls > 0 {
                    tracing::warn!(calls, "in-flight requests cut at the drain deadline");
                }
                server.cut(calls);
                break;
            }
            () = registry.tick(&mut tick) => {}
            () = registry.emptied() => {}
        }
    }
}

/// The next connection. Errors of accept are not fatal: those of one connection are skipped, the others retried after a
/// pause.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // Only ever fails on a connection that is already closed, which its task will notice.
                let _gone = stream.set_nodelay(true);
                return (stream, address);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "failed to accept connections");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Sends 503 to a client beyond the connection limit; dropping the stream then closes it. Nothing is awaited, and a TLS
/// client could not read it.
fn refuse(stream: TcpStream, tls: bool) {
    if !tls && let Ok(mut stream) = stream.into_std() {
        let _best_effort = io::Write::write(&mut stream, BUSY);
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = address.ip().to_canonical();
    SocketAddr::new(ip, address.port())
}

fn http(options: &Options) -> auto::Builder<StreamExecutor> {
    let header_bytes = options.header_bytes.max(8 * 1024);
    let mut builder = auto::Builder::new(StreamExecutor);
    // Hyper's own header timeout allocates a timer per request and runs while a connection is idle: ours does neither.
    builder.http1().header_read_timeout(None).max_buf_size(header_bytes as usize);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_header_list_size(header_bytes);
    http2.max_concurrent_streams(STREAMS).max_send_buf_size(SEND_BUFFER);
    builder
}

fn ticks() -> Interval {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
