//! From a target to a connection: resolve, check the address, connect, open the proxy's tunnel, TLS handshake.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, TlsStream};

use super::pool::{Host, STREAMS, Sender};
use super::{Error, Inner, Step, Target};
use crate::body::PASSING;
use crate::io::Io;
use crate::proxies::HttpProxy;
use crate::serve::set_keepalive;
use crate::tls::{self, TlsError};
use crate::{Addresses, Body};

/// How long to wait for one address before the next one is tried in parallel.
const HEAD_START: Duration = Duration::from_millis(250);

/// The maximum length of a proxy's response to `CONNECT`.
const PROXY_ANSWER: usize = 8 * 1024;

/// The end of its head.
const END: &[u8] = b"\r\n\r\n";

/// The interval of HTTP/2 pings on a shared connection while requests wait on it.
const PING: Duration = Duration::from_secs(30);

/// How long a backend may leave sent bytes unacknowledged. Otherwise every call on a pooled connection would wait for a
/// backend whose machine is gone. Not for clients: it counts as well while a peer pauses and takes no more, which they
/// may.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(45);

/// The read size for a response on HTTP/1: one part waits to be sent while the next one is read. It is also the maximum
/// length of a head.
const READ_BUFFER: usize = PASSING / 2;
/// How much of a response arrives on HTTP/2 before it is read.
const STREAM_WINDOW: u32 = 64 * 1024;
const _: () = assert!(STREAM_WINDOW as usize == PASSING);
/// How much of all responses together a shared connection takes before they are read: as much as its streams, since
/// streams that are not read must not block the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 64;
const _: () = assert!(CONNECTION_WINDOW as usize == PASSING * STREAMS);

impl Inner {
    /// A new connection to a target.
    pub(super) async fn connect(&self, target: &Target, host: &Host) -> Result<Sender, Error> {
        let dialled = timeout(self.options.dial_timeout, dial(target, self.proxy(target), self.options.addresses));
        let stream = dialled.await.map_err(|_| Error::Timeout { step: Step::Dial })??;
        if !target.https {
            return http1(target, Io::Plain(stream)).await;
        }
        let settings = self.tls.get_or_try_init(|| self.settings()).await?;
        let shaken = timeout(self.options.handshake_timeout, handshake(settings, target, stream));
        let stream = shaken.await.map_err(|_| Error::Timeout { step: Step::Handshake })??;
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = Io::Tls(Box::new(stream));
        if !speaks_http2 {
            return http1(target, io).await;
        }
        let (sender, allowed) = http2(target, io).await?;
        Ok(host.share(sender, allowed))
    }

    /// The TLS settings of the client. Reading the system roots blocks, so it does not run on the runtime.
    async fn settings(&self) -> Result<Arc<ClientConfig>, Error> {
        let (trust, identity, http2) = (self.options.trust.clone(), self.options.identity.clone(), self.options.http2);
        let read = tokio::task::spawn_blocking(move || tls::client(&trust, identity, http2)).await;
        read.unwrap_or(Err(TlsError::NoSystemRoots)).map_err(Error::Settings)
    }
}

/// A TCP connection to the target, directly or through a tunnel of the proxy.
async fn dial(target: &Target, proxy: Option<&HttpProxy>, rule: Addresses) -> Result<TcpStream, Error> {
    let host = target.host().trim_start_matches('[').trim_end_matches(']');
    // INVARIANT: the rule is relaxed for this dial only. Another target of the same client may be reached without the
    // proxy.
    let of_name = match (proxy, rule) {
        (Some(_), Addresses::PublicOnly) => Addresses::Cluster,
        _ => rule,
    };
    of_name.check_host(host).map_err(|scope| Error::RefusedHost { host: host.to_owned(), scope })?;
    let Some(proxy) = proxy else {
        return connect(host, target.port(), rule).await;
    };
    // Proxies are configured by the administrator, and are often local.
    let stream = connect(&proxy.host, proxy.port, Addresses::Machine).await?;
    if target.https { tunnel(stream, target, proxy).await } else { Ok(stream) }
}

async fn connect(host: &str, port: u16, rule: Addresses) -> Result<TcpStream, Error> {
    let resolved = lookup_host((host, port)).await;
    let addresses = match resolved {
        Ok(addresses) => addresses.collect::<Vec<SocketAddr>>(),
        Err(source) => return Err(Error::Resolve { host: host.to_owned(), source }),
    };
    let mut refused = None;
    let mut allowed = Vec::with_capacity(addresses.len());
    for address in addresses {
        match rule.check(address.ip()) {
            Ok(()) => allowed.push(address),
            Err(scope) => refused = refused.or(Some((address.ip(), scope))),
        }
    }
    if let (true, Some((address, scope))) = (allowed.is_empty(), refused) {
        return Err(Error::RefusedAddress { host: host.to_owned(), address, scope });
    }
    // INVARIANT: the connected address is the one that was checked; the name is not resolved again.
    let stream = race(&allowed).await;
    stream.map_err(|source| Error::Connect { target: format!("{host}:{port}"), source })
}

/// Connects to the first address that accepts. The next one is tried when one failed or is slow.
async fn race(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut attempts = FuturesUnordered::new();
    let mut failed = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        attempts.push(TcpStream::connect(address));
        match timeout(HEAD_START, attempts.next()).await {
            Ok(Some(Ok(stream))) => return prepared(stream),
            Ok(Some(Err(error))) => failed = error,
            Ok(None) | Err(_) => {}
        }
    }
    while let Some(attempt) = attempts.next().await {
        match attempt {
            Ok(stream) => return prepared(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn prepared(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    set_keepalive(&socket)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(stream)
}

/// Asks a proxy for a tunnel to the target.
async fn tunnel(mut stream: TcpStream, target: &Target, proxy: &HttpProxy) -> Result<TcpStream, Error> {
    let refused = |reason: String| Error::Proxy { target: target.to_string(), reason };
    let broke = |error: std::io::Error| refused(error.to_string());
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(authorization) = &proxy.authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await.map_err(broke)?;

    let mut answer = Vec::new();
    // Only the head matters: a refusal may have a body, and keep the connection open.
    let end = loop {
        if let Some(end) = answer.windows(END.len()).position(|bytes| bytes == END) {
            break end + END.len();
        }
        if answer.len() >= PROXY_ANSWER {
            return Err(refused("its response is too long".to_owned()));
        }
        if stream.read_buf(&mut answer).await.map_err(broke)? == 0 {
            return Err(refused("it closed the connection".to_owned()));
        }
    };
    let head = answer.get(..end).unwrap_or_default();
    let status = head.split(|byte| *byte == b' ').nth(1).and_then(|status| std::str::from_utf8(status).ok());
    match status {
        // The target speaks only after the client did, so nothing of it can follow the response.
        Some(status) if status.len() == 3 && status.starts_with('2') && answer.len() > end => {
            Err(refused("it sent data after its response".to_owned()))
        }
        Some(status) if status.len() == 3 && status.starts_with('2') => Ok(stream),
        Some(status) => Err(refused(format!("it responded `{}`", status.chars().take(3).collect::<String>()))),
        None => Err(refused("its response is not HTTP".to_owned())),
    }
}

async fn handshake(
    settings: &Arc<ClientConfig>,
    target: &Target,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Error> {
    let failed = |source: std::io::Error| Error::Tls { target: target.to_string(), source };
    let host = target.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(|error| failed(std::io::Error::other(error)))?;
    let connector = TlsConnector::from(Arc::clone(settings));
    Ok(TlsStream::Client(connector.connect(name, stream).await.map_err(failed)?))
}

async fn http1(target: &Target, io: Io) -> Result<Sender, Error> {
    let made = http1::Builder::new().max_buf_size(READ_BUFFER).handshake(TokioIo::new(io)).await;
    let (sender, connection) = made.map_err(|source| Error::Send { target: target.to_string(), source })?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            // The waiting request gets the error too.
            tracing::debug!(%error, "backend connection broke");
        }
    });
    Ok(Sender::Http1(sender))
}

/// An HTTP/2 connection, and how many streams its peer allows, as far as that is known by then.
async fn http2(target: &Target, io: Io) -> Result<(http2::SendRequest<Body>, Arc<AtomicUsize>), Error> {
    let made = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(TokioIo::new(io))
        .await;
    let (sender, connection) = made.map_err(|source| Error::Send { target: target.to_string(), source })?;
    let allowed = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
    let noted = Arc::clone(&allowed);
    tokio::spawn(async move {
        let mut connection = pin!(connection);
        let ended = poll_fn(|context| {
            let polled = connection.as_mut().poll(context);
            // A peer sends its settings once, after the handshake.
            noted.store(connection.current_max_send_streams(), Ordering::Relaxed);
            polled
        });
        if let Err(error) = ended.await {
            tracing::debug!(%error, "backend connection broke");
        }
    });
    Ok((sender, allowed))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_backend_whose_machine_is_gone_is_not_waited_for_for_long() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = race(&[listener.local_addr().unwrap()]).await.unwrap();
        assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
    }
}
