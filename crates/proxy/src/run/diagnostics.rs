//! What is counted, and the port on which it is shown.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::StatusCode;
use skep_net::serve::{ConnectionLimits, Options};
use skep_net::{Drain, Listener, serve};
use skep_runconfig::run_config::TelemetryConfig;

use super::Tasks;
use crate::hosts::Hosts;
use crate::http::text;
use crate::metrics::Metrics;
use crate::router::metrics_page;

/// Where metrics are served when nothing else is said.
const DIAGNOSTICS: u16 = 9464;
/// How many connections there are to that port, and how long the head of a request is: scrapers are few.
const CONNECTIONS: usize = 64;
const HEADER_BYTES: u32 = 8 * 1024;

/// Where what is counted is shown.
#[derive(Debug)]
pub(super) struct Diagnostics {
    pub(super) metrics: Arc<Metrics>,
    /// Whether it is shown on the proxy's own port as well.
    pub(super) on_this_port: bool,
    port: u16,
}

// === impl Diagnostics ===

impl Diagnostics {
    /// Nothing, if what is counted is not shown.
    pub(super) fn of(asked: &TelemetryConfig, metrics: Arc<Metrics>) -> Option<Self> {
        asked.enable_prometheus_metrics_path.then(|| Self {
            metrics,
            on_this_port: asked.metrics_on_transport_port.unwrap_or(true),
            port: port(asked.prometheus_port),
        })
    }

    /// Shows what was counted on a port of its own, and says where. A port that is taken is no reason not to serve: another one
    /// is used.
    pub(super) async fn serve(
        &self,
        ip: IpAddr,
        hosts: &Hosts,
        drain: &Drain,
        tasks: &mut Tasks,
    ) -> Option<SocketAddr> {
        let listener = match Listener::bind(SocketAddr::new(ip, self.port)).await {
            Ok(listener) => Ok(listener),
            Err(_taken) => Listener::bind(SocketAddr::new(ip, 0)).await,
        };
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%error, "metrics port not opened");
                return None;
            }
        };
        let address = listener.address();
        tracing::info!(%address, "serving metrics");
        let (metrics, hosts) = (self.metrics.clone(), hosts.clone());
        let handler = move |request: http::Request<hyper::body::Incoming>, _peer| {
            let (parts, _body) = request.into_parts();
            let page = match (hosts.check(&parts), parts.uri.path()) {
                (Err(error), _) => error.response(),
                (Ok(()), "/metrics") => metrics_page(&metrics),
                (Ok(()), _) => text(StatusCode::NOT_FOUND, "404 page not found"),
            };
            std::future::ready(page)
        };
        tasks.spawn(serve(listener, limits(), drain.clone(), handler));
        Some(address)
    }
}

/// What the port takes. It has no part in the limits of clients, and none of their memory.
fn limits() -> Options {
    Options { header_bytes: HEADER_BYTES, connections: ConnectionLimits::of_total(CONNECTIONS), ..Options::default() }
}

/// Where metrics are served, as far as a RunConfig says.
fn port(port: i64) -> u16 {
    u16::try_from(port).ok().filter(|port| *port > 0).unwrap_or(DIAGNOSTICS)
}

#[cfg(test)]
mod tests {
    #[test]
    fn item_8_the_port_of_metrics_has_small_limits_of_its_own() {
        let limits = super::limits();
        assert_eq!((limits.connections.total, limits.connections.per_peer, limits.header_bytes), (64, 32, 8 * 1024));
    }

    #[test]
    fn metrics_have_the_usual_port_unless_another_one_is_given() {
        for (given, port) in [(0, 9464), (-1, 9464), (70_000, 9464), (9999, 9999), (1, 1)] {
            assert_eq!(super::port(given), port);
        }
    }
}
