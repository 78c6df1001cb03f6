//! A server that speaks HTTP, in the cluster or anywhere else: calls are passed on, and what comes back as well.
//!
//! ```text
//!   method gate ─▶ chain ─▶ era ─▶ session ─▶ target, headers ─▶ send ─▶ redirects ─▶ answer
//!                                     ▲                            │ unknown session, or nobody there
//!                                     └──── a new handshake ◀──────┘
//! ```

mod open;
mod pods;
mod session;
mod stream;
mod target;
mod told;
mod unreachable;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use skep_mcp::{Kind, Malformed, Message, answer, era};
use skep_net::headers::{Forwarded, inbound_host, remove_hop_by_hop, set_forwarded};
use skep_net::{Body, Client, Drain, redirect};

pub use self::pods::{Answer, Pods};
pub use self::target::{NotATarget, Target};
use self::told::Way;
pub(crate) use self::unreachable::reason as unreachable_reason;
use crate::chain::reply::ReplyChain;
use crate::downstream::request::store_unavailable;
use crate::exchange::{Content, Exchange};
use crate::health::Health;
use crate::http::{SESSION, VERSION, is_of_type, json, text};
use crate::sessions::{Sessions, Unavailable};

/// The longest answer that is read as a whole, because somebody must see it, in bytes.
const ANSWER: usize = 64 * 1024 * 1024;

/// The proxy.
#[derive(Debug)]
pub struct Transparent {
    target: Target,
    /// The pods behind the target, if it is a Service that may have several. Streams of events beside calls keep to the Service.
    pods: Option<Pods>,
    client: Client,
    sessions: Sessions,
    options: Options,
    /// Whether the server wants to be called by the name of its own machine: some refuse any other.
    as_local: AtomicBool,
    turns: session::Turns,
    drain: Drain,
}

/// How a proxy passes calls on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether the server speaks HTTP with a stream of events beside it.
    pub sse: bool,
    /// Whether the server answers POST only.
    pub stateless: bool,
    /// Whether `X-Forwarded-*` headers of callers are believed.
    pub trust_proxy_headers: bool,
    /// Put in front of the paths that callers are told.
    pub endpoint_prefix: String,
    /// What is known of the server, which clients are told when it cannot be reached.
    pub health: Option<Arc<Health>>,
}

/// One call, as it is sent: again, if need be.
#[derive(Clone)]
struct Outgoing {
    method: Method,
    uri: Uri,
    /// The pod that the URI names, if it does not name the Service.
    pod: Option<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
    /// Whether it is one of the protocol's.
    is_message: bool,
    /// Whether the page that calls was judged here. If not, that is left to the server.
    origin_allowed: bool,
}

/// Why there is no answer.
enum Failed {
    /// The server cannot be reached, or broke off.
    Server(skep_net::client::Error),
    /// What is known of the session cannot be looked up.
    Store(Unavailable),
}

// === impl Transparent ===

impl Transparent {
    /// A proxy in front of a server.
    pub fn new(
        target: Target,
        pods: Option<Pods>,
        client: Client,
        sessions: Sessions,
        options: Options,
        drain: Drain,
    ) -> Arc<Self> {
        Arc::new(Self {
            target,
            pods: pods.filter(|_| !options.sse),
            client,
            sessions,
            options,
            as_local: AtomicBool::new(false),
            turns: session::Turns::default(),
            drain,
        })
    }

    /// Whether a body should be a message.
    pub(crate) fn expects_message(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        let is_json = is_of_type(headers.get(header::CONTENT_TYPE), "application/json");
        method == Method::POST && (is_json || uri.path().starts_with("/mcp") || !self.options.sse)
    }

    /// Refuses what a server without sessions cannot answer, before anybody looks at it.
    pub(crate) fn gate(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        let is_modern = headers.get(VERSION).is_some_and(|version| version == era::MODERN);
        let needs_session = matches!(*method, Method::GET | Method::HEAD | Method::DELETE);
        if !needs_session || !(self.options.stateless || is_modern) {
            return None;
        }
        let words = "method not allowed: server is stateless / stateless MCP revision (POST only)";
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, words);
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, OPTIONS"));
        Some(answer)
    }

    /// Answers a call.
    pub async fn call(self: &Arc<Self>, exchange: &mut Exchange) -> Response<Body> {
        let wrong = match &exchange.content {
            Content::Malformed(_, why) if crate::middleware::parser::is_ambiguous(*why) => Some(*why),
            // Whatever it is called: servers may look at the body only.
            Content::Opaque(bytes) if is_list(bytes) => Some(Malformed::Batch),
            _ => None,
        };
        if let Some(why) = wrong {
            return json(StatusCode::BAD_REQUEST, answer::malformed(why));
        }
        let request = exchange.message().filter(|message| message.kind() == Kind::Request);
        let id = request.and_then(Message::id);
        let is_greeting = request.is_some_and(|message| message.method() == Some("initialize"));
        if let Some(message) = exchange.message().filter(|message| message.method().is_some()) {
            let version = exchange.head.headers.get(VERSION).and_then(|version| version.to_str().ok());
            // Also of a legacy request: whoever routes or authorizes by these headers does not look at the era first.
            let checked = request.map_or(Ok(()), |request| era::classify(version, request).map(drop));
            let checked = checked.and_then(|()| skep_mcp::headers::check(&exchange.head.headers, message));
            if let Err(refusal) = checked {
                return json(StatusCode::BAD_REQUEST, refusal.answer(id.as_ref()));
            }
        }
        let named = exchange.head.headers.get(SESSION).and_then(|name| name.to_str().ok()).map(str::to_owned);
        let session = match named.filter(|name| !name.is_empty() && !is_greeting) {
            None => None,
            Some(name) => match self.find(name, exchange).await {
                Ok(Some(session)) => Some(session),
                Ok(None) => return json(StatusCode::NOT_FOUND, answer::session_not_found(id.as_ref())),
                Err(unavailable) => return store_unavailable(&unavailable),
            },
        };
        let at_server = session.as_ref().map(session::Known::at_server);
        let told = if self.may_be_told(exchange) { Box::pin(self.told(exchange)).await } else { Ok(Way::Any) };
        let told = match told {
            Ok(Way::Any) => None,
            Ok(Way::To(endpoint)) => Some(endpoint),
            Ok(Way::None) => return json(StatusCode::NOT_FOUND, answer::session_not_found(id.as_ref())),
            Err(unavailable) => return store_unavailable(&unavailable),
        };
        let Some(uri) = self.target.uri(&exchange.head.uri, told.as_deref()) else {
            return text(StatusCode::BAD_REQUEST, "the path cannot be passed on");
        };
        let mut outgoing = self.outgoing(exchange, uri, at_server, is_greeting);
        let is_forgotten = match &self.pods {
            Some(pods) => Box::pin(self.choose_pod(pods, session.as_ref(), &mut outgoing)).await,
            None => false,
        };
        let replies = exchange.reply_chain();
        let renewed = match &session {
            Some(session) if is_forgotten => Box::pin(self.greet_again(session, &outgoing)).await,
            _ => None,
        };
        let sent = match renewed {
            Some(sent) => sent,
            None => self.send(&outgoing).await.map_err(Failed::Server),
        };
        let sent = match sent {
            // The Service knows who else is there.
            Err(Failed::Server(error)) if error.never_reached() && outgoing.pod.is_some() && session.is_none() => {
                self.go_to(None, &mut outgoing);
                Box::pin(self.send(&outgoing)).await.map_err(Failed::Server)
            }
            Err(Failed::Server(error)) if error.never_reached() && !is_greeting => {
                let again = match &session {
                    Some(session) => Box::pin(self.greet_again(session, &outgoing)).await,
                    None => None,
                };
                again.unwrap_or(Err(Failed::Server(error)))
            }
            Ok(response) if response.status() == StatusCode::NOT_FOUND && outgoing.method != Method::DELETE => {
                let again = match &session {
                    Some(session) => Box::pin(self.greet_again(session, &outgoing)).await,
                    None => None,
                };
                again.unwrap_or(Ok(response))
            }
            sent => sent,
        };
        let mut response = match sent {
            Ok(response) => response,
            Err(Failed::Store(unavailable)) => return store_unavailable(&unavailable),
            Err(Failed::Server(error)) => {
                tracing::warn!(%error, cause = ?std::error::Error::source(&error), "the server cannot be reached");
                let body = unreachable::body(id.as_ref(), &error, self.options.health.as_deref());
                return json(StatusCode::BAD_GATEWAY, body);
            }
        };
        if let Err(unavailable) = self.follow(exchange, session.as_ref(), is_greeting, &outgoing, &mut response).await {
            return store_unavailable(&unavailable);
        }
        remove_hop_by_hop(response.headers_mut());
        exchange.is_passed_through = true;
        // It has the body of the request, which is counted for as long as it is there.
        drop(outgoing);
        self.answer(exchange, session.as_ref(), response, replies).await
    }

    /// The call as the server gets it.
    fn outgoing(&self, exchange: &mut Exchange, uri: Uri, session: Option<&str>, is_greeting: bool) -> Outgoing {
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
            _ if is_greeting => {
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
    /// that nobody knows the session.
    async fn choose_pod(&self, pods: &Pods, session: Option<&session::Known>, outgoing: &mut Outgoing) -> bool {
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
    fn go_to(&self, pod: Option<SocketAddr>, outgoing: &mut Outgoing) {
        if pod == outgoing.pod {
            return;
        }
        if let Some(uri) = self.target.at(&outgoing.uri, pod) {
            outgoing.uri = uri;
            outgoing.pod = pod;
        }
    }

    /// Sends a call, and finds out by which name the server wants to be called.
    async fn send(&self, outgoing: &Outgoing) -> Result<Response<Body>, skep_net::client::Error> {
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

    /// The answer as the caller gets it. What nobody must see is passed on as it comes.
    async fn answer(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        session: Option<&session::Known>,
        response: Response<Body>,
        replies: ReplyChain,
    ) -> Response<Body> {
        let is_stream = is_of_type(response.headers().get(header::CONTENT_TYPE), "text/event-stream");
        if is_stream {
            let replies = if self.options.sse { exchange.other_reply_chain() } else { replies };
            return self.clone().stream(exchange, session, response, replies);
        }
        if replies.is_empty() {
            return response;
        }
        if exchange.message().is_none() {
            // Nothing was asked: answers come as events only.
            return response;
        }
        Box::pin(self.whole(exchange, response, &replies)).await
    }
}

/// Whether a body is a list, as far as it is JSON at all.
fn is_list(body: &Bytes) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// The headers that are still needed after a call was sent: those that say how it came in.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let names = ["x-forwarded-prefix", "x-forwarded-host", "x-forwarded-proto"];
    let found =
        names.iter().filter_map(|name| Some((header::HeaderName::from_static(name), headers.get(*name)?.clone())));
    found.collect()
}
