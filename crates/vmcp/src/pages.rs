//! The pages of a virtual server beside MCP: whether it lives, whether it can serve, and how its backends are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Map, Value, json};
use skep_net::Body;
use skep_proxy::router::Pages;
use skep_upstream::UpstreamState;

use crate::backend::Backend;
use crate::backends::Backends;
use crate::health::Health;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How the backends of a virtual server are found.
#[derive(Clone, Debug)]
pub enum Mode {
    /// They stand in the configuration.
    Static,
    /// They are found in a cluster; this says whether all that there is to find was seen once.
    Dynamic(Arc<AtomicBool>),
}

/// The pages of a virtual server.
#[derive(Debug)]
pub struct StatusPages {
    backends: Arc<Backends>,
    mode: Mode,
    group: String,
    version: &'static str,
}

// === impl StatusPages ===

impl StatusPages {
    /// The pages of a virtual server of this version.
    pub fn new(backends: Arc<Backends>, mode: Mode, group: String, version: &'static str) -> Self {
        Self { backends, mode, group, version }
    }

    fn ready(&self) -> Response<Body> {
        match &self.mode {
            Mode::Static => page(StatusCode::OK, &json!({ "mode": "static", "status": "ready" })),
            Mode::Dynamic(is_synced) if is_synced.load(Ordering::Acquire) => {
                page(StatusCode::OK, &json!({ "mode": "dynamic", "status": "ready" }))
            }
            Mode::Dynamic(_) => {
                let pending = json!({ "mode": "dynamic", "reason": "cache_sync_pending", "status": "not_ready" });
                page(StatusCode::SERVICE_UNAVAILABLE, &pending)
            }
        }
    }

    fn status(&self) -> Value {
        let all = self.backends.all();
        let backends: Vec<Value> = all.values().map(row).collect();
        let is_healthy = backends.iter().any(|backend| backend.get("health").is_some_and(|health| health == "healthy"));
        json!({
            "backends": backends,
            "group_ref": self.group,
            "healthy": is_healthy,
            "version": self.version,
        })
    }

    fn health(&self) -> Value {
        let all = self.backends.all();
        let count = |health: Health| all.values().filter(|backend| backend.health.known().health == health).count();
        let backends: Map<String, Value> =
            all.iter().map(|(name, backend)| (name.as_ref().to_owned(), details(backend))).collect();
        json!({
            "monitoring_enabled": self.backends.is_monitored(),
            "summary": {
                "Total": all.len(),
                "Healthy": count(Health::Healthy),
                "Degraded": count(Health::Degraded),
                "Unhealthy": count(Health::Unhealthy),
                "Unknown": count(Health::Unknown),
                "Unauthenticated": count(Health::Unauthenticated),
            },
            "backends": backends,
        })
    }
}

impl Pages for StatusPages {
    fn paths(&self) -> &'static [&'static str] {
        &["/health", "/ping", "/readyz", "/status", "/api/backends/health"]
    }

    fn page(&self, method: &Method, path: &str) -> Option<Response<Body>> {
        let content = match path {
            "/health" | "/ping" => return Some(page(StatusCode::OK, &json!({ "status": "ok" }))),
            "/readyz" => return Some(self.ready()),
            "/status" => self.status(),
            "/api/backends/health" => self.health(),
            _ => return None,
        };
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut refused = page(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "method_not_allowed" }));
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Some(refused);
        }
        Some(page(StatusCode::OK, &content))
    }
}

/// A backend on `/status`.
fn row(backend: &Arc<Backend>) -> Value {
    let mut row = json!({
        "name": **backend.name(),
        "health": backend.health.known().health.as_str(),
        "transport": transport(backend),
        "auth_type": backend.spec.auth_type,
    });
    if let (Some(revision), Some(row)) = (revision(backend), row.as_object_mut()) {
        row.insert("mcp_revision".to_owned(), json!(revision));
    }
    row
}

/// How a backend speaks MCP.
pub(crate) fn transport(backend: &Backend) -> &'static str {
    match backend.spec.transport {
        skep_upstream::http::Transport::Sse => "sse",
        skep_upstream::http::Transport::StreamableHttp => "streamable-http",
    }
}

/// The protocol version of a backend, by its era.
pub(crate) fn revision(backend: &Backend) -> Option<&'static str> {
    match &*backend.upstream.state().borrow() {
        UpstreamState::Ready(server) if server.eras.contains(skep_mcp::Era::Modern) => Some(skep_mcp::era::MODERN),
        UpstreamState::Ready(_) => Some("2025-11-25"),
        UpstreamState::Starting | UpstreamState::Failing(_) => None,
    }
}

fn details(backend: &Arc<Backend>) -> Value {
    let known = backend.health.known();
    let time = |time: Option<jiff::Timestamp>| time.map(|time| time.to_string());
    json!({
        "Status": known.health.as_str(),
        "ConsecutiveFailures": known.failures,
        "LastCheckTime": time(known.checked),
        "LastErrorCategory": known.category.map(crate::health::Category::as_str).unwrap_or_default(),
        "LastTransitionTime": time(known.changed),
        "CircuitState": known.breaker.as_str(),
        "CircuitLastChanged": time(known.breaker_changed),
        "MCPRevision": revision(backend).unwrap_or_default(),
    })
}

fn page(status: StatusCode, content: &Value) -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::from(content.to_string())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
