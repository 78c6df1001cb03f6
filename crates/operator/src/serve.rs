//! The operator's own pages: `/healthz`, `/readyz` and `/metrics`. Nothing else is answered.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
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
use crate::readiness::Readiness;

/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The content type of short answers.
const PLAIN: &str = "text/plain; charset=utf-8";

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
pub async fn serve(listener: TcpListener, readiness: Readiness, metrics: Metrics) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file handles, most likely; the next one may be freed meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (readiness, metrics) = (readiness.clone(), metrics.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let response = answer(&request, &readiness, &metrics);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the metrics or health endpoint lost");
            }
        });
    }
}

fn answer<B>(request: &Request<B>, readiness: &Readiness, metrics: &Metrics) -> Response<Full<Bytes>> {
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
        "/readyz" => {
            let is_ready = readiness.is_ready();
            let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            // The reasons are in the response if it is verbose, or not ready.
            let is_verbose = request.uri().query().is_some_and(|query| query.split('&').any(is_verbose));
            text(status, PLAIN, if is_ready && !is_verbose { "ok\n".into() } else { readiness.report() })
        }
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

/// Whether a parameter of a query asks for all checks: `verbose`, with any value, as the API server takes it.
fn is_verbose(parameter: &str) -> bool {
    parameter == "verbose" || parameter.starts_with("verbose=")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::readiness::Check;

    async fn asked(path: &str, readiness: &Readiness) -> (u16, String) {
        let request = Request::get(path).body(()).unwrap();
        let (head, body) = answer(&request, readiness, &Metrics::new()).into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readyz_is_true_for_the_role_and_verbose_lists_the_checks() {
        let readiness = Readiness::default();
        assert_eq!(asked("/readyz", &readiness).await.0, 503, "a process without a role");
        assert_eq!(asked("/healthz", &readiness).await.0, 200);
        readiness.set("leader-election", Check::Passed("standby".into()));
        assert_eq!(asked("/readyz", &readiness).await, (200, "ok\n".to_owned()));
        let (code, body) = asked("/readyz?verbose", &readiness).await;
        assert_eq!((code, body.as_str()), (200, "[+]leader-election ok: standby\nreadyz check passed\n"));
        readiness.set("cache/secrets", Check::Failed("not synced yet".into()));
        let (code, body) = asked("/readyz", &readiness).await;
        assert!(code == 503 && body.contains("[-]cache/secrets failed: not synced yet"), "{body}");
    }
}
