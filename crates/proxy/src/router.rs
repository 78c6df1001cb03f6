//! Which part of the proxy owns a path. Decided once, before anything is read of a request but its head.
//!
//! | group | paths | body | pages of allowed origins |
//! | --- | --- | --- | --- |
//! | health | `/health` | none | may read it |
//! | metrics | `/metrics` | none | may read it |
//! | well-known | `/.well-known/*` | none | may read it |
//! | MCP | all others | as the chain allows | as the chain allows |
//!
//! Only MCP goes through the chain.

use http::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{Response, StatusCode};
use skep_net::Body;

use crate::health::Health;
use crate::http::{json, text};
use crate::metrics::Metrics;

/// The owner of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// How the proxy and its server are.
    Health,
    /// What the proxy counts.
    Metrics,
    /// Documents about the proxy.
    WellKnown,
    /// The MCP server.
    Mcp,
}

/// The path of the health check.
pub(crate) const HEALTH: &str = "/health";

// === impl Group ===

impl Group {
    /// The owner of a path.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            HEALTH => Self::Health,
            "/metrics" => Self::Metrics,
            path if path.starts_with("/.well-known/") => Self::WellKnown,
            _ => Self::Mcp,
        }
    }

    /// The response of a group that has handlers of its own. Nothing for MCP.
    pub(crate) fn response(self, parts: &Parts, health: &Health, metrics: Option<&Metrics>) -> Option<Response<Body>> {
        Some(match self {
            Self::Health => health.page(&parts.method),
            Self::Metrics => metrics.map_or_else(no_metrics, metrics_page),
            Self::WellKnown => json(StatusCode::NOT_FOUND, bytes::Bytes::from_static(br#"{"error":"not_found"}"#)),
            Self::Mcp => return None,
        })
    }
}

/// The response where metrics are not served.
fn no_metrics() -> Response<Body> {
    let mut page = text(StatusCode::NOT_FOUND, "metrics are not served on this port; see the diagnostics port");
    page.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    page
}

/// The page of metrics.
pub(crate) fn metrics_page(metrics: &Metrics) -> Response<Body> {
    let mut page = text(StatusCode::OK, &metrics.page());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    page.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_one_owner() {
        for (path, group) in [
            ("/health", Group::Health),
            ("/health/", Group::Mcp),
            ("/metrics", Group::Metrics),
            ("/.well-known/oauth-protected-resource", Group::WellKnown),
            ("/.well-known", Group::Mcp),
            ("/mcp", Group::Mcp),
            ("/", Group::Mcp),
        ] {
            assert_eq!(Group::of(path), group, "{path}");
        }
    }
}
