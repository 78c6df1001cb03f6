//! The Kubernetes client of a proxy. All output of a stdio server comes through it, so it is tuned for throughput.

use std::io::{IoSlice, Result as IoResult};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tower::util::option_layer;
use tower::{Layer as _, ServiceExt as _};

/// The read size of a connection, in bytes. TLS by itself reads 4 KiB at a time.
const CHUNK: usize = 64 * 1024;
/// The interval of keepalive probes on an idle connection.
const ALIVE: Duration = Duration::from_secs(15);
/// How long the peer may acknowledge nothing, neither data nor keepalive probes.
#[cfg(target_os = "linux")]
const SILENCE: Duration = Duration::from_secs(45);

/// A client that reads in large chunks, and that detects within a minute when the network is gone.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_keepalive(Some(ALIVE));
    connector.set_keepalive_interval(Some(ALIVE));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(SILENCE));
    let connector = connector.map_response(Buffered::new as fn(TokioIo<TcpStream>) -> Buffered);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client = legacy::Builder::new(TokioExecutor::new()).build::<_, Body>(connector);
    let service = config.extra_headers_layer()?.layer(client);
    let service = option_layer(config.auth_layer()?).layer(service.map_err(tower::BoxError::from));
    let service = config.base_uri_layer().layer(service);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// A connection with a read buffer.
#[derive(Debug)]
struct Buffered(TokioIo<BufReader<TcpStream>>);

// === impl Buffered ===

impl Buffered {
    fn new(stream: TokioIo<TcpStream>) -> Self {
        Self(TokioIo::new(BufReader::with_capacity(CHUNK, stream.into_inner())))
    }
}

impl Connection for Buffered {
    fn connected(&self) -> Connected {
        self.0.inner().get_ref().connected()
    }
}

impl Read for Buffered {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl Write for Buffered {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<IoResult<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<IoResult<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }
}
