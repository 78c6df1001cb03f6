//! Streamable HTTP: `/mcp`.

mod header_check;
mod listen;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use skep_mcp::headers::{self, LAST_EVENT_ID};
use skep_mcp::{Era, Id, Kind, Message, answer, era};
use skep_net::Body;
use skep_upstream::admission;
use skep_upstream::{Call, CallError, PendingResponse, Replies, SessionId, UpstreamState};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::reply::{INTERIM, Reply, last_moment};
use super::request::{Refusal, find_session, header, message_of, store_unavailable};
use super::resume::{Resume, Streams};
use super::stream::Stream;
use crate::exchange::Exchange;
use crate::http::{SESSION, VERSION, accepts, empty, events, json, method_not_allowed, text};
use crate::router::ENDPOINT;
use crate::sessions::Client;

/// How long a response may take before its head is sent ahead of it.
const HEAD_AFTER: Duration = Duration::from_secs(1);
/// How long it may take for a client that can resume it: the sooner it knows how, the less can be lost. But a stream is kept
/// for a minute, and takes twice the time of a response in one piece; a busy server's calls take tens of milliseconds each.
const RESUMABLE_AFTER: Duration = Duration::from_millis(75);
/// The version whose clients can resume any stream. Older ones take the event that says how for a malformed message.
const RESUMES: &str = "2025-11-25";

/// The endpoint.
#[derive(Debug)]
pub struct Streamable {
    endpoint: Endpoint,
    strict: bool,
    streams: Arc<Streams>,
    paths: &'static [&'static str],
}

/// Where the endpoint is.
const PATHS: &[&str] = &[ENDPOINT];

// === impl Streamable ===

impl Streamable {
    /// An endpoint that refuses unknown protocol versions if it is `strict`.
    pub fn new(endpoint: Endpoint, strict: bool) -> Arc<Self> {
        Self::at(PATHS, endpoint, strict)
    }

    /// The same at other paths.
    pub fn at(paths: &'static [&'static str], endpoint: Endpoint, strict: bool) -> Arc<Self> {
        Arc::new(Self { endpoint, strict, streams: Arc::default(), paths })
    }

    /// Its paths.
    pub(crate) fn paths(&self) -> &'static [&'static str] {
        self.paths
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Answers a request to `/mcp`.
    pub async fn call(self: &Arc<Self>, exchange: &mut Exchange) -> Response<Body> {
        match exchange.head.method {
            Method::POST => self.post(exchange).await,
            // What is rare is boxed here and below: every call would carry the room for it.
            Method::GET => Box::pin(self.get(exchange)).await,
            Method::DELETE => Box::pin(self.delete(exchange)).await,
            _ => method_not_allowed("GET, POST, DELETE"),
        }
    }

    async fn post(self: &Arc<Self>, exchange: &mut Exchange) -> Response<Body> {
        let version = header(exchange, &VERSION);
        if self.strict && version.as_deref().is_some_and(|version| !era::VERSIONS.contains(&version)) {
            return text(StatusCode::BAD_REQUEST, "Unsupported MCP-Protocol-Version");
        }
        let message = match message_of(exchange) {
            Ok(message) => message,
            Err(refusal) => return *refusal,
        };
        match message.kind() {
            Kind::Request => self.request(exchange, message, version).await,
            Kind::Notification | Kind::Response | Kind::Error => {
                Box::pin(self.notify(exchange, &message)).await.unwrap_or_else(|refusal| *refusal)
            }
        }
    }

    /// Forwards what has no response.
    async fn notify(&self, exchange: &Exchange, message: &Message) -> Result<Response<Body>, Refusal> {
        if message.kind() == Kind::Notification {
            headers::check(&exchange.head.headers, message)
                .map_err(|refusal| json(StatusCode::BAD_REQUEST, refusal.answer(None)))?;
        }
        let session = self.session(exchange, None).await?;
        let sent =
            tokio::time::timeout(self.endpoint.timeout, self.endpoint.upstream.send(session.as_ref(), message)).await;
        if let Err(error) = sent.unwrap_or(Err(CallError::Timeout)) {
            // As the original has it: what has no response is not refused for that.
            tracing::warn!(%error, "dropping a notification of a client");
        }
        Ok(empty(StatusCode::ACCEPTED))
    }

    async fn request(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        message: Message,
        version: Option<String>,
    ) -> Response<Body> {
        let era = match exchange.era().unwrap_or(Ok(Era::Legacy)) {
            Ok(era) => era,
            Err(refusal) => return json(StatusCode::BAD_REQUEST, refusal.answer(message.id().as_ref())),
        };
        let as_events = accepts(&exchange.head.headers, "text/event-stream");
        let (replies, budget) = (exchange.reply_chain(), exchange.head.budget.clone());
        let client = self.endpoint.client(exchange);
        let mut reply = Reply { as_events, era, session: None, resumes: false, replies, client, budget };
        if era == Era::Legacy && message.method() == Some("initialize") {
            return Box::pin(self.open(exchange, &message, &reply)).await.unwrap_or_else(|refusal| *refusal);
        }
        let session = match era {
            Era::Modern => self.accept_modern(exchange, &message, &reply).await.map(|()| None),
            Era::Legacy => self.accept_legacy(exchange, &message, &reply).await,
        };
        match session {
            Err(refusal) => *refusal,
            Ok(session) => {
                reply.resumes = as_events && session.is_some() && version.as_deref() == Some(RESUMES);
                reply.session = session;
                self.forward(message, &mut reply).await
            }
        }
    }

    /// Whether a modern request goes to the server, which would not see its headers.
    async fn accept_modern(&self, exchange: &Exchange, message: &Message, reply: &Reply) -> Result<(), Refusal> {
        self.admit(message, reply).await?;
        self.check_headers(exchange, message, reply).await?;
        // There is no handshake any more. A server of both eras would take it for one.
        if message.method() == Some("initialize") {
            let error = answer::error(message.id().as_ref(), answer::METHOD_NOT_FOUND, "Method not found", None);
            return Err(Box::new(json(StatusCode::NOT_FOUND, error)));
        }
        Ok(())
    }

    /// Whether a legacy request goes to the server, and the session that it belongs to.
    async fn accept_legacy(
        &self,
        exchange: &Exchange,
        message: &Message,
        reply: &Reply,
    ) -> Result<Option<SessionId>, Refusal> {
        self.check_headers(exchange, message, reply).await?;
        let session = self.session(exchange, message.id().as_ref()).await?;
        self.admit(message, reply).await?;
        Ok(session)
    }

    /// The session that a request names.
    async fn session(&self, exchange: &Exchange, request: Option<&Id>) -> Result<Option<SessionId>, Refusal> {
        match header(exchange, &SESSION) {
            None => Ok(None),
            Some(id) => find_session(&self.endpoint, id, exchange, request).await.map(Some),
        }
    }

    /// Waits until the server can take a request.
    async fn admit(&self, message: &Message, reply: &Reply) -> Result<(), Refusal> {
        if matches!(&*self.endpoint.state.borrow(), UpstreamState::Ready(_)) {
            return Ok(());
        }
        let mut state = self.endpoint.state.clone();
        let admitted = admission::ready(&mut state);
        let mut admitted = Box::pin(tokio::time::timeout(self.endpoint.timeout, admitted));
        let id = message.id();
        let error = match self.before_shutdown(admitted.as_mut()).await {
            Some(Ok(Ok(_server))) => return Ok(()),
            Some(Ok(Err(error))) => error,
            Some(Err(_)) | None => CallError::Timeout,
        };
        Err(Box::new(reply.error(error, id.as_ref())))
    }

    /// Opens a session. The server was initialized before; every client gets its response, and a session of its own.
    async fn open(&self, exchange: &Exchange, message: &Message, reply: &Reply) -> Result<Response<Body>, Refusal> {
        self.check_headers(exchange, message, reply).await?;
        self.admit(message, reply).await?;
        let client = Client { kept: self.endpoint.kept(exchange, Some(message.body())), ..Client::from(exchange) };
        let opened = self.endpoint.sessions.open_by(message.body(), client).await;
        let session = opened.map_err(|unavailable| store_unavailable(&unavailable))?;
        let initialized = match self.endpoint.upstream.open(&session, message, &self.endpoint.client(exchange)).await {
            Ok(initialized) => initialized,
            Err(error) => {
                // It expires if it cannot be closed.
                let _unavailable = self.endpoint.sessions.close(&session).await;
                return Ok(reply.error(error, message.id().as_ref()));
            }
        };
        let mut response = reply.message(initialized).await;
        if let Ok(value) = HeaderValue::from_str(&session) {
            response.headers_mut().insert(SESSION, value);
        }
        Ok(response)
    }

    /// Waits for something, but not so long that the client would be cut without a response when the proxy ends.
    async fn before_shutdown<T>(&self, awaited: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let shutdown = async { tokio::time::sleep_until(last_moment(self.endpoint.drain.stopping().await)).await };
        tokio::select! {
            biased;
            value = awaited => Some(value),
            () = shutdown => None,
        }
    }

    /// Forwards a request. A client that takes events gets what comes before the response as well.
    async fn forward(self: &Arc<Self>, message: Message, reply: &mut Reply) -> Response<Body> {
        let (id, until) = (message.id(), Instant::now() + self.endpoint.timeout);
        // A subscription of 2026-07-28 is answered when it ends.
        let stays_open = message.method() == Some("subscriptions/listen");
        let (session, budget, client) = (reply.session.clone(), reply.budget.clone(), reply.client.clone());
        let call = Call { session, takes_interim: reply.as_events, client, budget, ..Call::new(message, reply.era) };
        let mut called = pin!(tokio::time::timeout_at(until, self.endpoint.upstream.clone().call(call)));
        let called = self.before_shutdown(called.as_mut()).await;
        let called = called.and_then(Result::ok).unwrap_or(Err(CallError::Timeout));
        let Replies { interim, response } = match called {
            Ok(replies) => replies,
            Err(error) => return reply.error(error, id.as_ref()),
        };
        match interim {
            None => self.respond(response, until, reply, id).await,
            // Boxed: every call would carry the room for it.
            Some(interim) => Box::pin(self.respond_with_events(response, interim, reply, id, stays_open)).await,
        }
    }

    /// Waits for a response, and nothing but the response.
    async fn respond(
        &self,
        mut response: PendingResponse,
        until: Instant,
        reply: &Reply,
        id: Option<Id>,
    ) -> Response<Body> {
        let responded = {
            let mut responded = pin!(response.response_by(until, self.endpoint.timeout));
            self.before_shutdown(responded.as_mut()).await.unwrap_or(Err(CallError::Timeout))
        };
        // Nothing of the response is held while it is evaluated.
        let written = match responded {
            Ok(message) => reply.message(message),
            Err(error) => return reply.error(error, id.as_ref()),
        };
        written.await
    }

    /// Responds in one piece if the response comes at once, and else by a stream of events.
    async fn respond_with_events(
        &self,
        mut response: PendingResponse,
        mut interim: mpsc::Receiver<Bytes>,
        reply: &mut Reply,
        id: Option<Id>,
        stays_open: bool,
    ) -> Response<Body> {
        let head_after = if reply.resumes { RESUMABLE_AFTER } else { HEAD_AFTER };
        let first = tokio::select! {
            biased;
            responded = response.response() => {
                let written = match (responded, interim.try_recv()) {
                    (Ok(message), Err(_)) => reply.message(message),
                    (Ok(message), Ok(first)) => return Box::pin(reply.after(&first, &mut interim, message)).await,
                    (Err(error), _) => return reply.error(error, id.as_ref()),
                };
                return written.await;
            }
            Some(first) = interim.recv() => Some(first),
            () = tokio::time::sleep(head_after.min(self.endpoint.timeout)) => None,
        };
        let (reader, body) = Body::channel(INTERIM);
        let timeout = if stays_open { None } else { Some(self.endpoint.timeout) };
        let kept = reply
            .session
            .as_ref()
            .filter(|_| reply.resumes)
            .and_then(|session| self.streams.open(session, &reply.budget));
        let replies = std::mem::take(&mut reply.replies);
        let stream = Stream::new(response, interim, id, replies, reader, kept).within(reply.budget.clone());
        tokio::spawn(stream.run(first, timeout, self.endpoint.drain.stopping()));
        events(body)
    }

    async fn get(&self, exchange: &Exchange) -> Response<Body> {
        let session = match self.session(exchange, None).await {
            Ok(Some(session)) => session,
            Ok(None) => return text(StatusCode::BAD_REQUEST, "Mcp-Session-Id header required for standalone SSE"),
            Err(refusal) => return *refusal,
        };
        match header(exchange, &LAST_EVENT_ID) {
            Some(last) => self.resume(&session, &last).await,
            None => self.listen(session, exchange.head.budget.clone()),
        }
    }

    /// Resumes a stream that the client lost.
    async fn resume(&self, session: &str, last: &str) -> Response<Body> {
        if let Some((stream, after)) = self.streams.find(session, last) {
            let (reader, body) = Body::channel(INTERIM);
            if stream.send(Resume { after, reader }).await.is_ok() {
                return events(body);
            }
        }
        let text = "there is nothing left of the stream that `Last-Event-ID` names; send the request again";
        json(StatusCode::BAD_REQUEST, answer::error(None, answer::INVALID_REQUEST, text, None))
    }

    async fn delete(&self, exchange: &Exchange) -> Response<Body> {
        let session = match self.session(exchange, None).await {
            Ok(Some(session)) => session,
            Ok(None) => return text(StatusCode::BAD_REQUEST, "Mcp-Session-Id header required for DELETE"),
            Err(refusal) => return *refusal,
        };
        if let Err(unavailable) = self.endpoint.sessions.close(&session).await {
            return store_unavailable(&unavailable);
        }
        self.close(&session);
        empty(StatusCode::NO_CONTENT)
    }

    /// Closes sessions that have been idle here for so long. A store that replicas share does not say when a session ends.
    pub fn close_idle(&self, time: Duration) {
        for session in self.endpoint.upstream.idle_sessions(time) {
            self.close(&session);
        }
    }

    /// Closes a session that ended.
    pub fn close(&self, session: &str) {
        self.streams.forget(session);
        self.endpoint.upstream.clone().close(&session.into());
    }
}
