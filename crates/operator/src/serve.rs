//! The operator's own pages: `/healthz`, `/readyz` and `/metrics`. Nothing else is answered.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The content type of short answers.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Whether the operator has seen the world and may be relied on.
#[derive(Clone, Debug, Default)]
pub struct Ready(Arc<AtomicBool>);

impl Ready {
    /// From now on it may.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An address as flags give it: `:8080` means every address of this machine, of either family.
pub fn address(text: &str) -> Result<SocketAddr> {
    let text = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
    text.parse().with_context(|| format!("`{text}` is not an address; write it like :8080 or 127.0.0.1:8080"))
}

/// Opens a port; fails at once if it cannot.
pub async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let opened = match TcpListener::bind(address).await {
        // A machine without IPv6.
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        opened => opened,
    };
    opened.with_context(|| format!("cannot listen on `{address}`"))
}

/// Answers until it is cancelled.
pub async fn serve(listener: TcpListener, ready: Ready, metrics: Metrics) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file handles, most likely; the next one may be freed meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (ready, metrics) = (ready.clone(), metrics.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let response = answer(&request, &ready, &metrics);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to our pages broke");
            }
        });
    }
}

fn answer(request: &Request<Incoming>, ready: &Ready, metrics: &Metrics) -> Response<Full<Bytes>> {
    let text = |status: StatusCode, kind: &'static str, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
        response
    };
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET is answered\n".into());
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, PLAIN, "ok\n".into()),
        "/readyz" if ready.get() => text(StatusCode::OK, PLAIN, "ok\n".into()),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, PLAIN, "not all objects have been seen yet\n".into()),
        "/metrics" => {
            text(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.page())
        }
        other => text(
            StatusCode::NOT_FOUND,
            PLAIN,
            format!("`{other}` is not here; there are /healthz, /readyz and /metrics\n"),
        ),
    }
}
