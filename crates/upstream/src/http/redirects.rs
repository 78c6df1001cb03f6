//! Redirects, which are followed to the same host only.

use http::{HeaderValue, Response, header};
use skep_net::{Body, redirect};

use super::{HttpUpstream, ServerRequest};

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Sends a request under a `Host`, and follows redirects.
    pub(super) async fn send_as(
        &self,
        request: &ServerRequest,
        as_local: bool,
    ) -> Result<Response<Body>, skep_net::client::Error> {
        let host = self.host(request, as_local);
        let mut uri = request.uri.clone();
        for _ in 0..redirect::MOST {
            let response = self.send_once(request, &uri, host.as_ref(), as_local).await?;
            let location = response.headers().get(header::LOCATION);
            match redirect::next_named(&uri, host.as_ref(), response.status(), location) {
                Ok(next) => uri = next,
                Err(_) => return Ok(response),
            }
        }
        self.send_once(request, &uri, host.as_ref(), as_local).await
    }

    /// The name that the server is called by, if that is not the address that is dialled.
    fn host(&self, request: &ServerRequest, as_local: bool) -> Option<HeaderValue> {
        if as_local {
            let port = request.uri.port_u16().unwrap_or(80);
            return HeaderValue::from_str(&format!("localhost:{port}")).ok();
        }
        request.pod.and_then(|_| self.target.name())
    }
}
