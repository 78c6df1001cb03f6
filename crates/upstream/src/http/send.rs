//! Sending a request under the name that the server answers to.

use std::sync::atomic::Ordering;

use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use skep_mcp::headers::SESSION_ID;
use skep_net::Body;

use super::{HttpUpstream, ServerRequest};

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Sends a request, and finds out by which `Host` the server wants to be called.
    pub(super) async fn send(&self, request: &ServerRequest) -> Result<Response<Body>, skep_net::client::Error> {
        let as_local = self.as_local.load(Ordering::Relaxed);
        let response = self.send_as(request, as_local).await?;
        let is_refused = matches!(response.status(), StatusCode::MISDIRECTED_REQUEST | StatusCode::FORBIDDEN);
        // A server that guards against DNS rebinding refuses names that it does not know. It may as well refuse the origin of the
        // page: that refusal stands, unless the proxy allowed that origin.
        let is_page = request.headers.contains_key(header::ORIGIN) && !request.origin_allowed;
        // Only messages find it out: pages that the server keeps to its own machine stay there.
        if !is_refused || as_local || self.target.is_remote() || is_page || !request.is_message {
            return Ok(response);
        }
        match Box::pin(self.send_as(request, true)).await {
            Ok(again) if again.status().is_success() => {
                tracing::info!("server answers to `localhost` only; using that as its host from now on");
                self.as_local.store(true, Ordering::Relaxed);
                Ok(again)
            }
            // It does not mind the name, but has forgotten the session, which can be re-initialized.
            Ok(again) if again.status() == StatusCode::NOT_FOUND && request.headers.contains_key(SESSION_ID) => {
                Ok(again)
            }
            Ok(_) | Err(_) => Ok(response),
        }
    }

    pub(super) async fn send_once(
        &self,
        outgoing: &ServerRequest,
        uri: &Uri,
        host: Option<&HeaderValue>,
        as_local: bool,
    ) -> Result<Response<Body>, skep_net::client::Error> {
        let mut request = Request::new(Body::full(outgoing.body.clone()));
        *request.method_mut() = outgoing.method.clone();
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = outgoing.headers.clone();
        if let Some(host) = host {
            request.headers_mut().insert(header::HOST, host.clone());
        }
        if as_local && outgoing.origin_allowed {
            // The proxy allowed the origin, under the name that the page knows.
            request.headers_mut().remove(header::ORIGIN);
        }
        self.client.send(request).await
    }
}
