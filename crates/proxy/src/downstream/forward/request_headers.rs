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
    pub(super) fn request(
        &self,
        exchange: &mut Exchange,
        uri: Uri,
        is_initialize: bool,
        may_be_read: bool,
    ) -> ServerRequest {
        let named = self.upstream.is_sse().then(|| kept(&exchange.head.headers));
        self.renew_headers(exchange);
        let mut headers = std::mem::replace(&mut exchange.head.headers, named.unwrap_or_default());
        if may_be_read {
            // What must be read must not be compressed. Without the header, a server may choose.
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
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

    /// Renews the headers that say how a request came in, as any server behind the proxy gets them.
    pub(super) fn renew_headers(&self, exchange: &mut Exchange) {
        let head = &mut exchange.head;
        let host = inbound_host(&head.uri, &head.headers);
        head.headers.remove(header::HOST);
        head.headers.remove(header::CONTENT_LENGTH);
        set_forwarded(
            &mut head.headers,
            &Forwarded {
                peer: head.peer.address.ip(),
                host: host.as_ref(),
                tls: head.peer.tls,
                remote: self.upstream.target().remote_scheme(),
                trusted: self.options.trust_proxy_headers,
            },
        );
    }
}

/// The headers that are still needed after a request was sent: those that say how it came in.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let names = ["x-forwarded-prefix", "x-forwarded-host", "x-forwarded-proto"];
    let found =
        names.iter().filter_map(|name| Some((header::HeaderName::from_static(name), headers.get(*name)?.clone())));
    found.collect()
}
