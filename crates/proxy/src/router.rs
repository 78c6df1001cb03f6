//! Which part of the proxy owns a path. Decided once, before anything is read of a request but its head.
//!
//! | group | paths | body | requests of pages |
//! | --- | --- | --- | --- |
//! | health | `/health` | not read | of any origin |
//! | metrics | `/metrics` | not read | of any origin |
//! | well-known | `/.well-known/*` | not read | of any origin |
//! | MCP | those of the endpoint | as the chain limits it | of origins that the chain allows |
//! | pages | those that what is behind the proxy has | not read | of any origin |
//! | none | all others | not read | of any origin |
//!
//! Only MCP goes through the chain. What a path of it names is decided here as well, see [`McpPath`]: no other part of the proxy compares
//! paths. A page of an origin that the chain allows may read the response of any group.

mod well_known;

use std::fmt::Debug;

use http::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use skep_auth::metadata::ProtectedResource;
use skep_net::Body;

use crate::health::Health;
use crate::http::text;
use crate::metrics::Metrics;

/// Pages of what is behind the proxy, beside those of the proxy. They come first.
pub trait Pages: Debug + Send + Sync {
    /// Their paths.
    fn paths(&self) -> &'static [&'static str];

    /// The page at one of the paths. Nothing if there is none.
    fn page(&self, method: &Method, path: &str) -> Option<Response<Body>>;
}

/// What the path of a request to the MCP server names. Servers that speak HTTP may have other paths, and other names in front of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct McpPath {
    /// The endpoint of streamable HTTP: `/mcp`.
    pub(crate) is_endpoint: bool,
    /// It, or what begins like it, so that a POST to it carries a message whatever its media type.
    pub(crate) takes_messages: bool,
    /// The stream of events of HTTP+SSE: `/sse`, below whatever.
    pub(crate) is_stream: bool,
}

/// The owner of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// How the proxy and its server are.
    Health,
    /// What the proxy counts.
    Metrics,
    /// Documents about the proxy.
    WellKnown,
    /// What is behind the proxy, beside MCP.
    Pages,
    /// The MCP server.
    Mcp,
    /// No owner.
    None,
}

/// The paths of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    /// These only.
    These(&'static [&'static str]),
    /// All that no other group owns: what there is is for the server to say.
    All,
}

/// What holds for the requests to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) body: BodyRule,
    pub(crate) origin: OriginRule,
}

/// What pages are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnPages<'a> {
    pub(crate) health: &'a Health,
    /// What is counted, if it is shown on this port.
    pub(crate) metrics: Option<&'a Metrics>,
    /// The resource that authentication protects.
    pub(crate) resource: Option<&'a ProtectedResource>,
    /// Those of what is behind the proxy.
    pub(crate) others: Option<&'a dyn Pages>,
}

/// How long the body of a request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyRule {
    /// It is not read.
    Unread,
    /// As long as the chain allows.
    Chain,
}

/// Pages of which origins may send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginRule {
    /// Of any.
    Any,
    /// Of those that the chain allows.
    Chain,
}

/// The path of the health check.
pub(crate) const HEALTH: &str = "/health";
/// The endpoint of streamable HTTP.
pub(crate) const ENDPOINT: &str = "/mcp";
/// The stream of HTTP+SSE in front of a stdio server, and where its messages go.
pub(crate) const STREAM: &str = "/sse";
pub(crate) const MESSAGES: &str = "/messages";

// === impl McpPath ===

impl McpPath {
    /// What a path names.
    pub(crate) fn of(path: &str) -> Self {
        Self {
            is_endpoint: path == ENDPOINT,
            takes_messages: path.starts_with(ENDPOINT),
            is_stream: path.ends_with(STREAM),
        }
    }
}

// === impl Group ===

impl Group {
    /// The owner of a path, in front of an endpoint that has these, and of pages of what is behind it.
    pub(crate) fn of(path: &str, endpoint: Paths, pages: Option<&dyn Pages>) -> Self {
        match (path, endpoint) {
            (path, _) if pages.is_some_and(|pages| pages.paths().contains(&path)) => Self::Pages,
            (HEALTH, _) => Self::Health,
            ("/metrics", _) => Self::Metrics,
            (path, _) if path.starts_with("/.well-known/") => Self::WellKnown,
            (_, Paths::All) => Self::Mcp,
            (path, Paths::These(these)) if these.contains(&path) => Self::Mcp,
            _ => Self::None,
        }
    }

    /// What holds for requests to it.
    pub(crate) const fn rules(self) -> Rules {
        match self {
            Self::Mcp => Rules { body: BodyRule::Chain, origin: OriginRule::Chain },
            Self::Health | Self::Metrics | Self::WellKnown | Self::Pages | Self::None => {
                Rules { body: BodyRule::Unread, origin: OriginRule::Any }
            }
        }
    }

    /// The response of a group that has handlers of its own. Nothing for MCP.
    pub(crate) fn response(self, parts: &Parts, pages: &OwnPages<'_>) -> Option<Response<Body>> {
        let OwnPages { health, metrics, resource, others } = pages;
        Some(match self {
            Self::Pages => {
                others.and_then(|pages| pages.page(&parts.method, parts.uri.path())).unwrap_or_else(not_found)
            }
            Self::Health => health.page(&parts.method),
            Self::Metrics => metrics.map_or_else(no_metrics, metrics_page),
            Self::WellKnown => well_known::response(parts, *resource),
            Self::None => not_found(),
            Self::Mcp => return None,
        })
    }
}

fn not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found")
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
            assert_eq!(Group::of(path, Paths::All, None), group, "{path}");
            // An endpoint that has one path owns no other.
            let one = if group == Group::Mcp && path != "/mcp" { Group::None } else { group };
            assert_eq!(Group::of(path, Paths::These(&["/mcp"]), None), one, "{path}");
        }
    }

    /// Pages of what is behind the proxy come first, also where the proxy has a page of that name.
    #[test]
    fn pages_own_the_paths_that_they_name() {
        #[derive(Debug)]
        struct Status;
        impl Pages for Status {
            fn paths(&self) -> &'static [&'static str] {
                &["/health", "/status"]
            }
            fn page(&self, _: &Method, _: &str) -> Option<Response<Body>> {
                None
            }
        }
        let of = |path| Group::of(path, Paths::These(&["/mcp"]), Some(&Status));
        assert_eq!(
            ["/health", "/status", "/statuses", "/mcp"].map(of),
            [Group::Pages, Group::Pages, Group::None, Group::Mcp]
        );
    }

    #[test]
    fn a_path_names_the_endpoint_or_the_stream_of_events() {
        let named = |path| {
            let McpPath { is_endpoint, takes_messages, is_stream } = McpPath::of(path);
            (is_endpoint, takes_messages, is_stream)
        };
        assert_eq!(named("/mcp"), (true, true, false));
        assert_eq!(named("/mcp/"), (false, true, false));
        assert_eq!(named("/sse"), (false, false, true));
        assert_eq!(named("/below/sse"), (false, false, true));
        assert_eq!(named("/sse/"), (false, false, false));
        assert_eq!(named("/mcp/sse"), (false, true, true));
    }

    #[test]
    fn only_mcp_reads_a_body_and_asks_the_chain_for_the_origin() {
        for group in [Group::Health, Group::Metrics, Group::WellKnown, Group::Pages, Group::None, Group::Mcp] {
            let chain = Rules { body: BodyRule::Chain, origin: OriginRule::Chain };
            assert_eq!(group.rules() == chain, group == Group::Mcp, "{group:?}");
        }
    }
}
