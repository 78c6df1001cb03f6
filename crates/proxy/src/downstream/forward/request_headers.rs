//! The headers of a request as the server gets them.

use http::{HeaderMap, HeaderValue, Uri, header};
use skep_net::headers::{Forwarded, inbound_host, set_forwarded};
use skep_upstream::http::ServerRequest;

use super::Forward;
use crate::exchange::Exchange;
use crate::http::SESSION;

// === impl Forward ===

impl Forward {
    /// The request as the server gets it.
    pub(super) fn request(&self, exchange: &mut Exchange, uri: Uri, is_initialize: bool) -> ServerRequest {
        let mut headers = std::mem::take(&mut exchange.head.headers);
        if self.upstream.is_sse() {
            exchange.head.headers = kept(&headers);
        }
        let host = inbound_host(&exchange.head.uri, &headers);
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        if exchange.is_watched() || exchange.is_response_observed() || self.upstream.is_sse() {
            // What must be read must not be compressed. Without the header, a server may choose.
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        set_forwarded(
            &mut headers,
            &Forwarded {
                peer: exchange.head.peer.address.ip(),
                host: host.as_ref(),
                tls: exchange.head.peer.tls,
                remote: self.upstream.target().remote_scheme(),
                trusted: self.options.trust_proxy_headers,
            },
        );
        if is_initialize {
            headers.remove(SESSION);
        }
        let mut request = ServerRequest::new(exchange.head.method.clone(), uri);
        request.headers = headers;
        request.body = exchange.content.bytes().clone();
        request.is_message = exchange.message().is_some();
        request.origin_allowed = exchange.head.origin_allowed;
        request
    }
}

/// The headers that are still needed after a request was sent: those that say how it came in.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let names = ["x-forwarded-prefix", "x-forwarded-host", "x-forwarded-proto"];
    let found =
        names.iter().filter_map(|name| Some((header::HeaderName::from_static(name), headers.get(*name)?.clone())));
    found.collect()
}
