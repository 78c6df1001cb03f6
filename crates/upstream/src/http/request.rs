//! A request as the server gets it, and the pod that it goes to.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use skep_auth::Caller;

use super::HttpUpstream;

/// A request to the server. It can be sent again.
#[derive(Clone, Debug)]
pub struct ServerRequest {
    /// The HTTP method.
    pub method: Method,
    /// The URI at the server.
    pub uri: Uri,
    /// The pod that the URI names, if it does not name the Service.
    pub(super) pod: Option<SocketAddr>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The client that it is sent for, if it was authenticated. Nothing for requests of the proxy's own.
    pub caller: Option<Caller>,
    /// The credentials that it was sent with, for what issued them: it may have to withdraw them.
    pub sent: Option<Arc<dyn Any + Send + Sync>>,
    /// Whether the body is an MCP message.
    pub is_message: bool,
    /// Whether the `Origin` of the request was allowed by the proxy. If not, that is left to the server.
    pub origin_allowed: bool,
}

// === impl ServerRequest ===

impl ServerRequest {
    /// A request without headers and body.
    pub fn new(method: Method, uri: Uri) -> Self {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        Self {
            method,
            uri,
            pod: None,
            headers,
            body,
            caller: None,
            sent: None,
            is_message: false,
            origin_allowed: false,
        }
    }

    /// A message that goes where this request goes.
    pub(super) fn with_message(&self, headers: HeaderMap, body: Bytes) -> Self {
        Self { method: Method::POST, headers, body, is_message: true, ..self.clone() }
    }
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Sends a request to a pod, or to the Service.
    pub(super) fn route_to(&self, pod: Option<SocketAddr>, request: &mut ServerRequest) {
        if pod == request.pod {
            return;
        }
        if let Some(uri) = self.target.at(&request.uri, pod) {
            request.uri = uri;
            request.pod = pod;
        }
    }
}
