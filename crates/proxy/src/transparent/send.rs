//! A request as the server gets it: its headers, the pod that it goes to, the name that the server is called by, redirects.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use skep_net::headers::{Forwarded, inbound_host, set_forwarded};
use skep_net::{Body, redirect};

use super::{Pods, Transparent, session};
use crate::exchange::Exchange;
use crate::http::SESSION;

/// A request as it is sent: again, if need be.
#[derive(Clone)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// The pod that the URI names, if it does not name the Service.
    pub(super) pod: Option<SocketAddr>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether it is one of the protocol's.
    pub(super) is_message: bool,
    /// Whether the page that calls was judged here. If not, that is left to the server.
    pub(super) origin_allowed: bool,
}

// === impl Transparent ===

impl Transparent {
    /// The call as the server gets it.
    pub(super) fn outgoing(
        &self,
        exchange: &mut Exchange,
        uri: Uri,
        session: Option<&str>,
        is_initialize: bool,
    ) -> Outgoing {
        let mut headers = std::mem::take(&mut exchange.head.headers);
        if self.options.sse {
            exchange.head.headers = kept(&headers);
        }
        let host = inbound_host(&exchange.head.uri, &headers);
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        if exchange.is_watched() || self.options.sse {
            // What must be read must not be packed. Without the header, a server may choose.
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        set_forwarded(
            &mut headers,
            &Forwarded {
                peer: exchange.head.peer.address.ip(),
                host: host.as_ref(),
                tls: exchange.head.peer.tls,
                remote: self.target.remote_scheme(),
                trusted: self.options.trust_proxy_headers,
            },
        );
        match session {
            _ if is_initialize => {
                headers.remove(SESSION);
            }
            Some(session) => session::name(&mut headers, session),
            None => {}
        }
        let body = exchange.content.bytes().clone();
        let (is_message, origin_allowed) = (exchange.message().is_some(), exchange.head.origin_allowed);
        Outgoing { method: exchange.head.method.clone(), uri, pod: None, headers, body, is_message, origin_allowed }
    }

    /// A session stays with the pod that it was opened at. Calls without one take turns. Says whether the session's pod is gone, so
    /// that the server does not know the session.
    pub(super) async fn choose_pod(
        &self,
        pods: &Pods,
        session: Option<&session::ClientSession>,
        outgoing: &mut Outgoing,
    ) -> bool {
        let pod = match session {
            None => pods.next().await,
            Some(session) => session.pod(),
        };
        let is_gone = match pod {
            Some(pod) => !pods.has(pod).await,
            None => false,
        };
        self.go_to(pod.filter(|_| !is_gone), outgoing);
        // There is nothing left to delete.
        is_gone && outgoing.method != Method::DELETE
    }

    /// Sends a call to a pod, or to the Service.
    pub(super) fn go_to(&self, pod: Option<SocketAddr>, outgoing: &mut Outgoing) {
        if pod == outgoing.pod {
            return;
        }
        if let Some(uri) = self.target.at(&outgoing.uri, pod) {
            outgoing.uri = uri;
            outgoing.pod = pod;
        }
    }

    /// Sends a call, and finds out by which name the server wants to be called.
    pub(super) async fn send(&self, outgoing: &Outgoing) -> Result<Response<Body>, skep_net::client::Error> {
        let as_local = self.as_local.load(Ordering::Relaxed);
        let response = self.send_by_name(outgoing, as_local).await?;
        let is_refused = matches!(response.status(), StatusCode::MISDIRECTED_REQUEST | StatusCode::FORBIDDEN);
        // A server that guards against rebinding refuses names that it does not know. It may as well refuse the page that calls:
        // that refusal stands, unless the page was judged here.
        let is_page = outgoing.headers.contains_key(header::ORIGIN) && !outgoing.origin_allowed;
        // Only messages find it out: pages that the server keeps to its own machine stay there.
        if !is_refused || as_local || self.target.is_remote() || is_page || !outgoing.is_message {
            return Ok(response);
        }
        match Box::pin(self.send_by_name(outgoing, true)).await {
            Ok(again) if again.status().is_success() => {
                tracing::info!("the server answers only to the name of its own machine; it is called so from now on");
                self.as_local.store(true, Ordering::Relaxed);
                Ok(again)
            }
            // It does not mind the name, but has forgotten the session, which can be opened again.
            Ok(again) if again.status() == StatusCode::NOT_FOUND && outgoing.headers.contains_key(SESSION) => Ok(again),
            Ok(_) | Err(_) => Ok(response),
        }
    }

    /// Sends a call, and follows where it is sent to.
    async fn send_by_name(
        &self,
        outgoing: &Outgoing,
        as_local: bool,
    ) -> Result<Response<Body>, skep_net::client::Error> {
        let host = self.host(outgoing, as_local);
        let mut uri = outgoing.uri.clone();
        for _ in 0..redirect::MOST {
            let response = self.send_once(outgoing, &uri, host.as_ref(), as_local).await?;
            let location = response.headers().get(header::LOCATION);
            match redirect::next_named(&uri, host.as_ref(), response.status(), location) {
                Ok(next) => uri = next,
                Err(_) => return Ok(response),
            }
        }
        self.send_once(outgoing, &uri, host.as_ref(), as_local).await
    }

    async fn send_once(
        &self,
        outgoing: &Outgoing,
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
            // Whether the page may call was judged here, by the name that it knows.
            request.headers_mut().remove(header::ORIGIN);
        }
        self.client.send(request).await
    }

    /// What the server is called by, if that is not the address that is asked.
    fn host(&self, outgoing: &Outgoing, as_local: bool) -> Option<HeaderValue> {
        if as_local {
            let port = outgoing.uri.port_u16().unwrap_or(80);
            return HeaderValue::from_str(&format!("localhost:{port}")).ok();
        }
        outgoing.pod.and_then(|_| self.target.name())
    }
}

/// The headers that are still needed after a call was sent: those that say how it came in.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let names = ["x-forwarded-prefix", "x-forwarded-host", "x-forwarded-proto"];
    let found =
        names.iter().filter_map(|name| Some((header::HeaderName::from_static(name), headers.get(*name)?.clone())));
    found.collect()
}
