//! A stdio server behind Streamable HTTP: `/mcp`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Response, StatusCode};
use skep_mcp::headers::{self, LAST_EVENT_ID, parameters};
use skep_mcp::{Era, Kind, Malformed, Message, answer, era, sse};
use skep_net::{Body, Drain};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::abilities::Abilities;
use super::bridge::{Bridge, SessionId, short};
use super::call::Failed;
use super::interests::is_interest;
use super::listener::Listener;
use super::readiness::NotAdmitted;
use super::replay::{Resume, Streams};
use super::reply::{INTERIM, Reply, keep_alive, last_moment};
use super::stream::Stream;
use crate::exchange::{Content, Exchange};
use crate::http::{SESSION, VERSION, accepts, empty, events, json, method_not_allowed, text};
use crate::sessions::{Sessions, Unavailable};

/// How long an answer may take before its head is sent ahead of it.
const HEAD_AFTER: Duration = Duration::from_secs(1);
/// How long it may take for a caller that can come back to it: the sooner it knows how, the less can be lost. But a stream is kept
/// for a minute, and takes twice the time of an answer in one piece; a busy server's calls take tens of milliseconds each.
const RESUMABLE_AFTER: Duration = Duration::from_millis(75);
/// The version whose clients can come back to any stream. Older ones take the event that tells them how for a broken message.
const RESUMES: &str = "2025-11-25";

/// The proxy.
#[derive(Debug)]
pub struct Streamable {
    bridge: Arc<Bridge>,
    sessions: Sessions,
    timeout: Duration,
    strict: bool,
    drain: Drain,
    streams: Arc<Streams>,
}

// === impl Streamable ===

impl Streamable {
    /// A proxy in front of a server.
    pub fn new(bridge: Arc<Bridge>, sessions: Sessions, timeout: Duration, strict: bool, drain: Drain) -> Arc<Self> {
        Arc::new(Self { bridge, sessions, timeout, strict, drain, streams: Arc::default() })
    }

    /// Answers a call to `/mcp`.
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
        let message = match &exchange.content {
            Content::Message(message) => message.clone(),
            Content::Malformed(_, why @ Malformed::Batch) => {
                return json(StatusCode::BAD_REQUEST, answer::malformed(*why));
            }
            _ => return text(StatusCode::BAD_REQUEST, "Invalid JSON-RPC 2.0 message"),
        };
        let named = header(exchange, &SESSION);
        if message.kind() == Kind::Notification
            && let Err(refusal) = headers::check(&exchange.head.headers, &message)
        {
            return json(StatusCode::BAD_REQUEST, refusal.answer(None));
        }
        match message.kind() {
            Kind::Request => self.request(exchange, message, version, named).await,
            Kind::Notification | Kind::Response | Kind::Error => self.told(exchange, &message, named).await,
        }
    }

    /// Something that wants no answer.
    async fn told(&self, exchange: &Exchange, message: &Message, named: Option<String>) -> Response<Body> {
        let session: Option<SessionId> = match named {
            None => None,
            Some(name) => match self.sessions.find(&name, exchange).await {
                Ok(Some(_)) => Some(name.into()),
                Ok(None) => return not_found(None),
                Err(unavailable) => return store_is_away(&unavailable),
            },
        };
        if let Err(not_sent) = self.bridge.told(message, session.as_ref(), self.timeout).await {
            // As the original has it: what wants no answer is not refused for that.
            tracing::warn!(%not_sent, "what a caller told the server is dropped: the server does not read");
        }
        empty(StatusCode::ACCEPTED)
    }

    async fn request(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        message: Message,
        version: Option<String>,
        named: Option<String>,
    ) -> Response<Body> {
        let id = message.id();
        let era = match era::classify(version.as_deref(), &message) {
            Ok(era) => era,
            Err(refusal) => return json(StatusCode::BAD_REQUEST, refusal.answer(id.as_ref())),
        };
        let as_events = accepts(&exchange.head.headers, "text/event-stream");
        let (replies, budget) = (exchange.reply_chain(), exchange.head.budget.clone());
        let mut reply = Reply { as_events, era, session: None, resumes: false, replies, budget };
        if era == Era::Modern {
            if let Some(refusal) = self.admit(&message, &reply).await {
                return refusal;
            }
            return match self.refused(exchange, &message, &reply).await {
                Some(response) => response,
                None => self.pass_on(&message, reply).await,
            };
        }
        if let Some(response) = self.contradicted(exchange, &message, &reply).await {
            return response;
        }
        if message.method() == Some("initialize") {
            return Box::pin(self.greet(exchange, &message, &reply)).await;
        }
        let session: Option<SessionId> = match named {
            None => None,
            Some(name) => match self.sessions.find(&name, &*exchange).await {
                Ok(Some(found)) => {
                    let session = name.into();
                    self.bridge.recognize(&session, &found);
                    Some(session)
                }
                Ok(None) => return not_found(id.as_ref()),
                Err(unavailable) => return store_is_away(&unavailable),
            },
        };
        if session.is_none() && is_interest(&message) {
            let text = format!("{} needs a session: begin one with `initialize`", message.method().unwrap_or_default());
            return reply.whole(answer::error(id.as_ref(), answer::INVALID_REQUEST, &text, None));
        }
        if let Some(refusal) = self.admit(&message, &reply).await {
            return refusal;
        }
        reply.resumes = as_events && session.is_some() && version.as_deref() == Some(RESUMES);
        reply.session.clone_from(&session);
        if let Some(session) = &session
            && is_interest(&message)
        {
            let mut interest = Box::pin(self.bridge.interest(&message, session, &reply.budget, self.timeout));
            match self.before_the_end(interest.as_mut()).await.unwrap_or(Some(Err(Failed::Timeout))) {
                Some(Ok(answer)) => return reply.message(answer).await,
                Some(Err(failed)) => return failed.response(&reply, id.as_ref()),
                None => {}
            }
        }
        self.pass_on(&message, reply).await
    }

    /// Why a modern request goes no further, if it does not: the server would not see its headers.
    async fn refused(
        self: &Arc<Self>,
        exchange: &Exchange,
        message: &Message,
        reply: &Reply,
    ) -> Option<Response<Body>> {
        let id = message.id();
        let refuse = |refusal: &skep_mcp::Refusal| json(StatusCode::BAD_REQUEST, refusal.answer(id.as_ref()));
        let judged = headers::require(&exchange.head.headers, message)
            .and_then(|()| headers::check(&exchange.head.headers, message));
        if let Err(refusal) = judged {
            return Some(refuse(&refusal));
        }
        match message.method()? {
            // There is no handshake any more. A server of both eras would take it for one.
            "initialize" => {
                let error = answer::error(id.as_ref(), answer::METHOD_NOT_FOUND, "Method not found", None);
                Some(json(StatusCode::NOT_FOUND, error))
            }
            "tools/call" => {
                let is_claimed = parameters::any(&exchange.head.headers);
                let known = std::pin::pin!(self.bridge.parameters(message, is_claimed, self.timeout));
                match self.before_the_end(known).await.unwrap_or(Err(Failed::Timeout)) {
                    Ok(known) => parameters::check(&exchange.head.headers, message, &known).err().as_ref().map(refuse),
                    Err(failed) => Some(failed.response(reply, id.as_ref())),
                }
            }
            _ => None,
        }
    }

    /// Why a legacy request goes no further, if it does not: it need not repeat its body in headers, but what it sends must agree.
    async fn contradicted(
        self: &Arc<Self>,
        exchange: &Exchange,
        message: &Message,
        reply: &Reply,
    ) -> Option<Response<Body>> {
        let id = message.id();
        let refuse = |refusal: &skep_mcp::Refusal| json(StatusCode::BAD_REQUEST, refusal.answer(id.as_ref()));
        if let Err(refusal) = headers::check(&exchange.head.headers, message) {
            return Some(refuse(&refusal));
        }
        if message.method() != Some("tools/call") || !parameters::any(&exchange.head.headers) {
            return None;
        }
        // Boxed: hardly any legacy client sends such headers, and every call would carry the room for it.
        let mut known = Box::pin(self.bridge.parameters(message, true, self.timeout));
        match self.before_the_end(known.as_mut()).await.unwrap_or(Err(Failed::Timeout)) {
            Ok(known) => parameters::check_sent(&exchange.head.headers, message, &known).err().as_ref().map(refuse),
            Err(failed) => Some(failed.response(reply, id.as_ref())),
        }
    }

    /// Waits until the server can take a request. The response, if it never will.
    async fn admit(&self, message: &Message, reply: &Reply) -> Option<Response<Body>> {
        if self.bridge.is_ready_for(reply.era) {
            return None;
        }
        let mut admitted = Box::pin(tokio::time::timeout(self.timeout, self.bridge.admit(message, reply.era)));
        let id = message.id();
        match self.before_the_end(admitted.as_mut()).await {
            Some(Ok(Ok(()))) => None,
            Some(Ok(Err(NotAdmitted::Era(mismatch)))) => Some(json(mismatch.status, mismatch.body)),
            Some(Ok(Err(NotAdmitted::Failed(failed)))) => Some(failed.response(reply, id.as_ref())),
            Some(Err(_)) | None => Some(Failed::Timeout.response(reply, id.as_ref())),
        }
    }

    /// The handshake. The server was initialized by the proxy; every client gets its answer, and a session of its own.
    async fn greet(self: &Arc<Self>, exchange: &Exchange, message: &Message, reply: &Reply) -> Response<Body> {
        if let Some(refusal) = self.admit(message, reply).await {
            return refusal;
        }
        let Some(greeting) = self.bridge.initialized(message) else {
            return Failed::NotSent.response(reply, message.id().as_ref());
        };
        let session = match self.sessions.open_by(message.body(), exchange).await {
            Ok(session) => session,
            Err(unavailable) => return store_is_away(&unavailable),
        };
        self.bridge.introduce(&session, Abilities::of(message));
        let mut response = reply.message(greeting).await;
        if let Ok(value) = HeaderValue::from_str(&session) {
            response.headers_mut().insert(SESSION, value);
        }
        response
    }

    /// Passes a request on and waits for its answer, and nothing but its answer.
    async fn pass_on_whole(self: &Arc<Self>, message: &Message, reply: &Reply) -> Result<Message, Failed> {
        let until = Instant::now() + self.timeout;
        let answered = async {
            let called = self.bridge.call(message, reply.era, reply.session.clone(), None);
            let called = tokio::time::timeout_at(until, called).await.map_err(|_elapsed| Failed::Timeout)?;
            called?.outcome_by(until, self.timeout).await
        };
        let answered = std::pin::pin!(answered);
        self.before_the_end(answered).await.unwrap_or(Err(Failed::Timeout))
    }

    /// Waits for something, but not so long that the caller would be cut without an answer when the proxy ends.
    async fn before_the_end<T>(&self, answered: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let end = async { tokio::time::sleep_until(last_moment(self.drain.stopping().await)).await };
        tokio::select! {
            biased;
            answered = answered => Some(answered),
            () = end => None,
        }
    }

    /// Passes a request on. A caller that takes events gets whatever comes before the answer as well.
    async fn pass_on(self: &Arc<Self>, message: &Message, reply: Reply) -> Response<Body> {
        let id = message.id();
        if !reply.as_events {
            // Nothing of the response is held while it is evaluated.
            let written = match self.pass_on_whole(message, &reply).await {
                Ok(answer) => reply.message(answer),
                Err(failed) => return failed.response(&reply, id.as_ref()),
            };
            return written.await;
        }
        // A subscription of today's protocol is answered when it ends.
        let stays_open = message.method() == Some("subscriptions/listen");
        let (sender, mut interim) = mpsc::channel(INTERIM);
        let called = self.bridge.call(message, reply.era, reply.session.clone(), Some(sender));
        let mut call = match tokio::time::timeout(self.timeout, called).await {
            Ok(Ok(call)) => call,
            Ok(Err(failed)) => return failed.response(&reply, id.as_ref()),
            Err(_) => return Failed::Timeout.response(&reply, id.as_ref()),
        };
        // Most answers come at once: they need no stream.
        let head_after = if reply.resumes { RESUMABLE_AFTER } else { HEAD_AFTER };
        let first = tokio::select! {
            biased;
            outcome = call.outcome() => {
                let written = match (outcome.answer(), interim.try_recv()) {
                    (Ok(answer), Err(_)) => reply.message(answer),
                    (Ok(answer), Ok(first)) => return Box::pin(reply.after(&first, &mut interim, answer)).await,
                    (Err(failed), _) => return failed.response(&reply, id.as_ref()),
                };
                return written.await;
            }
            Some(first) = interim.recv() => Some(first),
            () = tokio::time::sleep(head_after.min(self.timeout)) => None,
        };
        let (reader, body) = Body::channel(INTERIM);
        let timeout = if stays_open { None } else { Some(self.timeout) };
        let kept = reply.session.as_ref().filter(|_| reply.resumes).and_then(|session| self.streams.open(session));
        let stream = Stream::new(call, interim, id, reply.replies, reader, kept).within(reply.budget);
        tokio::spawn(stream.run(first, timeout, self.drain.stopping()));
        events(body)
    }

    async fn get(self: &Arc<Self>, exchange: &Exchange) -> Response<Body> {
        let Some(name) = header(exchange, &SESSION) else {
            return text(StatusCode::BAD_REQUEST, "Mcp-Session-Id header required for standalone SSE");
        };
        let found = match self.sessions.find(&name, exchange).await {
            Ok(Some(found)) => found,
            Ok(None) => return not_found(None),
            Err(unavailable) => return store_is_away(&unavailable),
        };
        let session: SessionId = name.into();
        self.bridge.recognize(&session, &found);
        if let Some(last) = header(exchange, &LAST_EVENT_ID) {
            return self.resume(&session, &last).await;
        }
        let mut listener = Listener::new(self.bridge.listen(&session), exchange.head.budget.clone());
        let (sender, body) = Body::channel(INTERIM);
        let stopping = self.drain.stopping();
        let sessions = self.sessions.clone();
        tokio::spawn(async move {
            let mut stopping = std::pin::pin!(stopping);
            // A session that is listened to lives; one that ended elsewhere is not listened to any more.
            let mut over = std::pin::pin!(sessions.keep_alive(&session));
            let mut alive = keep_alive();
            loop {
                let bytes = tokio::select! {
                    event = listener.next() => match event {
                        Some(event) => event,
                        // Somebody else listens for this session now, or it ended.
                        None => return,
                    },
                    () = &mut over => {
                        tracing::debug!(session = short(&session), "the session ended");
                        return;
                    }
                    _ = alive.tick() => sse::comment("keep-alive"),
                    () = sender.closed() => return,
                    _ = &mut stopping => return,
                };
                if sender.send(bytes).await.is_err() {
                    return;
                }
            }
        });
        events(body)
    }

    /// Goes on with a stream that the caller lost.
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
        let Some(name) = header(exchange, &SESSION) else {
            return text(StatusCode::BAD_REQUEST, "Mcp-Session-Id header required for DELETE");
        };
        match self.sessions.find(&name, exchange).await {
            Ok(Some(_)) => {}
            Ok(None) => return not_found(None),
            Err(unavailable) => return store_is_away(&unavailable),
        }
        if let Err(unavailable) = self.sessions.close(&name).await {
            return store_is_away(&unavailable);
        }
        self.forget(&name);
        empty(StatusCode::NO_CONTENT)
    }

    /// Lets go of what was kept for sessions that nobody used here for so long.
    pub fn forget_unused(&self, time: Duration) {
        for session in self.bridge.unused(time) {
            self.forget(&session);
        }
    }

    /// Lets go of what was kept for a session that ended.
    pub fn forget(&self, session: &str) {
        self.streams.forget(session);
        self.bridge.end(&session.into(), self.timeout);
    }
}

fn header(exchange: &Exchange, name: &http::HeaderName) -> Option<String> {
    let value = exchange.head.headers.get(name)?.to_str().ok()?;
    (!value.is_empty()).then(|| value.to_owned())
}

fn not_found(id: Option<&skep_mcp::Id>) -> Response<Body> {
    json(StatusCode::NOT_FOUND, answer::session_not_found(id))
}

pub(crate) fn store_is_away(unavailable: &Unavailable) -> Response<Body> {
    tracing::warn!(%unavailable, "sessions cannot be looked up");
    text(StatusCode::SERVICE_UNAVAILABLE, "session store unavailable")
}
