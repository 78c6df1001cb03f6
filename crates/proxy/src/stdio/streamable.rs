//! A stdio server behind Streamable HTTP: `/mcp`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use skep_mcp::{Era, Kind, Malformed, Message, Raw, answer, era, headers, splice, sse};
use skep_net::{Body, BodySender, Drain};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::bridge::{Bridge, SessionId, level_name, level_of, parameter, short};
use super::call::{Call, Outcome};
use crate::exchange::{Content, Exchange, Watchers};
use crate::http::{SESSION, VERSION, accepts, empty, events, json, method_not_allowed, text};
use crate::sessions::{Sessions, Unavailable};

/// How often a silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long an answer may take before its head is sent ahead of it.
const HEAD_AFTER: Duration = Duration::from_secs(1);
/// How many messages may come before an answer and not be read yet. What comes beyond that is dropped.
const INTERIM: usize = 16;

/// The proxy.
#[derive(Debug)]
pub struct Streamable {
    bridge: Arc<Bridge>,
    sessions: Sessions,
    timeout: Duration,
    strict: bool,
    drain: Drain,
    /// One handshake at a time: the second caller gets what the first one got.
    greeting: Mutex<()>,
    /// Subscriptions change one after the other, or a last unsubscribe could overtake a first subscribe.
    subscribing: Mutex<()>,
}

/// Where an answer goes.
struct Reply {
    /// As events, or as JSON.
    as_events: bool,
    era: Era,
    session: Option<SessionId>,
    watchers: Watchers,
}

// === impl Streamable ===

impl Streamable {
    /// A proxy in front of a server.
    pub fn new(bridge: Arc<Bridge>, sessions: Sessions, timeout: Duration, strict: bool, drain: Drain) -> Arc<Self> {
        Arc::new(Self {
            bridge,
            sessions,
            timeout,
            strict,
            drain,
            greeting: Mutex::default(),
            subscribing: Mutex::default(),
        })
    }

    /// Answers a call to `/mcp`.
    pub async fn call(self: &Arc<Self>, exchange: &mut Exchange) -> Response<Body> {
        match exchange.method {
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
        match message.kind() {
            Kind::Request => self.request(exchange, message, version, named).await,
            Kind::Notification | Kind::Response | Kind::Error => self.told(exchange, &message, named).await,
        }
    }

    /// Something that wants no answer.
    async fn told(&self, exchange: &Exchange, message: &Message, named: Option<String>) -> Response<Body> {
        let session: Option<SessionId> = match named {
            None => None,
            Some(name) => match self.sessions.find(&name, exchange.identity.as_ref()).await {
                Ok(Some(_)) => Some(name.into()),
                Ok(None) => return not_found(None),
                Err(unavailable) => return store_is_away(&unavailable),
            },
        };
        let passed = match (message.kind(), message.method()) {
            (Kind::Response | Kind::Error, _) => self.bridge.answer(message, session.as_ref()).await,
            (_, Some("notifications/cancelled")) => self.bridge.cancel(message, session.as_ref()).await,
            (_, Some("notifications/initialized")) if !self.bridge.must_tell_initialized() => Ok(()),
            _ => self.bridge.tell(message).await,
        };
        match passed {
            Ok(()) => empty(StatusCode::ACCEPTED),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "Failed to process request"),
        }
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
        if era == Era::Modern {
            let judged = headers::require(&exchange.headers, &message)
                .and_then(|()| headers::check(&exchange.headers, &message));
            if let Err(refusal) = judged {
                return json(StatusCode::BAD_REQUEST, refusal.answer(id.as_ref()));
            }
        }
        let as_events = accepts(&exchange.headers, "text/event-stream");
        let watchers = exchange.watchers();
        if era == Era::Modern {
            return self.pass_on(message, Reply { as_events, era, session: None, watchers }).await;
        }
        if message.method() == Some("initialize") {
            return Box::pin(self.greet(exchange, &message, as_events, watchers)).await;
        }
        let session: Option<SessionId> = match named {
            None => None,
            Some(name) => match self.sessions.find(&name, exchange.identity.as_ref()).await {
                Ok(Some(_)) => Some(name.into()),
                Ok(None) => return not_found(id.as_ref()),
                Err(unavailable) => return store_is_away(&unavailable),
            },
        };
        let reply = Reply { as_events, era, session: session.clone(), watchers };
        match (message.method(), session) {
            (Some("resources/subscribe" | "resources/unsubscribe"), Some(session)) => {
                Box::pin(self.subscription(message, &session, reply)).await
            }
            (Some("logging/setLevel"), Some(session)) => self.set_level(&message, &session, &reply),
            _ => self.pass_on(message, reply).await,
        }
    }

    /// The handshake. The server hears it once; everybody gets its answer, and a session of their own.
    async fn greet(
        self: &Arc<Self>,
        exchange: &Exchange,
        message: &Message,
        as_events: bool,
        watchers: Watchers,
    ) -> Response<Body> {
        let greeting = match self.bridge.greeting() {
            Some(greeting) => Ok(greeting),
            None => self.first_greeting(message).await,
        };
        let reply = Reply { as_events, era: Era::Legacy, session: None, watchers };
        let Some(id) = message.id() else { return text(StatusCode::BAD_REQUEST, "Invalid JSON-RPC 2.0 message") };
        let greeting = match greeting {
            Ok(greeting) => greeting,
            Err(failed) => return reply.whole(failed.unwrap_or_else(|| answer::internal(Some(&id)))),
        };
        let Ok(own) = splice::apply(&greeting, &[skep_mcp::Edit::set(&["id"], &id)]) else {
            return reply.whole(answer::internal(Some(&id)));
        };
        let session = match self.sessions.open(exchange.identity.as_ref()).await {
            Ok(session) => session,
            Err(unavailable) => return store_is_away(&unavailable),
        };
        let capabilities = capabilities(message);
        self.bridge.introduce(&session, capabilities);
        let mut response = reply.message(own);
        if let Ok(value) = HeaderValue::from_str(&session) {
            response.headers_mut().insert(SESSION, value);
        }
        response
    }

    /// Asks the server, unless somebody else just did. It is asked on its own: the caller may go, the answer is everybody's.
    async fn first_greeting(self: &Arc<Self>, message: &Message) -> Result<Message, Option<Bytes>> {
        let (proxy, message) = (self.clone(), message.clone());
        let asked = tokio::spawn(async move {
            let _one_at_a_time = proxy.greeting.lock().await;
            if let Some(greeting) = proxy.bridge.greeting() {
                return Ok(greeting);
            }
            let id = message.id();
            let mut call = proxy.bridge.call(&message, None, None).await.map_err(|_| None)?;
            match tokio::time::timeout(proxy.timeout, call.outcome()).await {
                Ok(Outcome::Answer(greeting)) if greeting.kind() == Kind::Response => {
                    proxy.bridge.greeted(&message, &greeting);
                    Ok(*greeting)
                }
                Ok(Outcome::Answer(refusal)) => Err(Some(refusal.into_body())),
                Ok(Outcome::Gone) => Err(Some(gone(id.as_ref()))),
                Err(_) => Err(Some(answer::timeout(id.as_ref()))),
            }
        });
        asked.await.unwrap_or(Err(None))
    }

    /// The server hears of the first who wants to hear of a resource, and of the last who does not any more.
    async fn subscription(self: &Arc<Self>, message: Message, session: &SessionId, reply: Reply) -> Response<Body> {
        let Some(uri) = parameter(&message, "uri").filter(|uri| !uri.is_empty()) else {
            return self.pass_on(message, reply).await;
        };
        let subscribes = message.method() == Some("resources/subscribe");
        let _one_at_a_time = self.subscribing.lock().await;
        let concerns_server =
            if subscribes { self.bridge.subscribe(&uri, session) } else { self.bridge.unsubscribe(&uri, session) };
        let Some(id) = message.id().filter(|_| !concerns_server) else {
            let response = self.pass_on_whole(&message, &reply).await;
            if subscribes && !matches!(&response, Ok(message) if message.kind() == Kind::Response) {
                self.bridge.unsubscribe(&uri, session);
            }
            return match response {
                Ok(message) => reply.message(message),
                Err(failed) => failed.response(&reply, message.id().as_ref()),
            };
        };
        reply.whole(answer::empty_result(&id))
    }

    /// The server logs as much as the most curious of its callers wants.
    fn set_level(&self, message: &Message, session: &SessionId, reply: &Reply) -> Response<Body> {
        let Some(id) = message.id() else { return text(StatusCode::BAD_REQUEST, "Invalid JSON-RPC 2.0 message") };
        let level = parameter(message, "level").map_or(7, |level| level_of(&level));
        if let Some(most) = self.bridge.set_level(session, level) {
            let name = Raw::string(level_name(most));
            let edit = skep_mcp::Edit::set(&["params", "level"], name);
            if let Ok(widened) = splice::apply(message, &[edit]) {
                let (bridge, timeout) = (self.bridge.clone(), self.timeout);
                tokio::spawn(async move {
                    if let Ok(mut call) = bridge.call(&widened, None, None).await {
                        let _whatever = tokio::time::timeout(timeout, call.outcome()).await;
                    }
                });
            }
        }
        reply.whole(answer::empty_result(&id))
    }

    /// Passes a request on and waits for its answer, and nothing but its answer.
    async fn pass_on_whole(self: &Arc<Self>, message: &Message, reply: &Reply) -> Result<Message, Failed> {
        let answered = async {
            let mut call = self.bridge.call(message, reply.session.clone(), None).await.map_err(|_| Failed::NotSent)?;
            match call.outcome().await {
                Outcome::Answer(answer) => Ok(*answer),
                Outcome::Gone => Err(Failed::Gone),
            }
        };
        tokio::time::timeout(self.timeout, answered).await.unwrap_or(Err(Failed::Timeout))
    }

    /// Passes a request on. A caller that takes events gets whatever comes before the answer as well.
    async fn pass_on(self: &Arc<Self>, message: Message, reply: Reply) -> Response<Body> {
        let id = message.id();
        if !reply.as_events {
            return match self.pass_on_whole(&message, &reply).await {
                Ok(answer) => reply.message(answer),
                Err(failed) => failed.response(&reply, id.as_ref()),
            };
        }
        // A subscription of today's protocol is answered when it ends.
        let stays_open = message.method() == Some("subscriptions/listen");
        let (sender, mut interim) = mpsc::channel(INTERIM);
        let called = self.bridge.call(&message, reply.session.clone(), Some(sender));
        let mut call = match tokio::time::timeout(self.timeout, called).await {
            Ok(Ok(call)) => call,
            Ok(Err(_)) => return Failed::NotSent.response(&reply, id.as_ref()),
            Err(_) => return Failed::Timeout.response(&reply, id.as_ref()),
        };
        // Most answers come at once: they need no stream.
        let first = tokio::select! {
            biased;
            outcome = call.outcome() => {
                return match (outcome, interim.try_recv()) {
                    (Outcome::Answer(answer), Err(_)) => reply.message(*answer),
                    (Outcome::Answer(answer), Ok(first)) => reply.after(&first, &mut interim, *answer),
                    (Outcome::Gone, _) => Failed::Gone.response(&reply, id.as_ref()),
                };
            }
            Some(first) = interim.recv() => Some(first),
            () = tokio::time::sleep(HEAD_AFTER.min(self.timeout)) => None,
        };
        let (sender, body) = Body::channel(INTERIM);
        let timeout = if stays_open { None } else { Some(self.timeout) };
        let stopping = self.drain.stopping();
        let watchers = reply.watchers;
        tokio::spawn(async move {
            stream(call, interim, first, &sender, timeout, stopping, id, &watchers).await;
        });
        events(body)
    }

    async fn get(self: &Arc<Self>, exchange: &Exchange) -> Response<Body> {
        let Some(name) = header(exchange, &SESSION) else {
            return text(StatusCode::BAD_REQUEST, "Mcp-Session-Id header required for standalone SSE");
        };
        match self.sessions.find(&name, exchange.identity.as_ref()).await {
            Ok(Some(_)) => {}
            Ok(None) => return not_found(None),
            Err(unavailable) => return store_is_away(&unavailable),
        }
        let session: SessionId = name.into();
        let mut heard = self.bridge.listen(&session);
        let (sender, body) = Body::channel(INTERIM);
        let stopping = self.drain.stopping();
        let sessions = self.sessions.clone();
        tokio::spawn(async move {
            let mut stopping = std::pin::pin!(stopping);
            loop {
                let bytes = tokio::select! {
                    message = heard.recv() => match message {
                        Some(message) => sse::event(Some("message"), None, &message),
                        // Somebody else listens for this session now, or it ended.
                        None => return,
                    },
                    () = tokio::time::sleep(KEEP_ALIVE) => {
                        // A session that is listened to lives; one that ended elsewhere is not listened to any more.
                        if matches!(sessions.store().touch(&session).await, Ok(None)) {
                            tracing::debug!(session = short(&session), "the session ended");
                            return;
                        }
                        sse::comment("keep-alive")
                    }
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

    async fn delete(&self, exchange: &Exchange) -> Response<Body> {
        let Some(name) = header(exchange, &SESSION) else {
            return text(StatusCode::BAD_REQUEST, "Mcp-Session-Id header required for DELETE");
        };
        match self.sessions.find(&name, exchange.identity.as_ref()).await {
            Ok(Some(_)) => {}
            Ok(None) => return not_found(None),
            Err(unavailable) => return store_is_away(&unavailable),
        }
        if let Err(unavailable) = self.sessions.close(&name).await {
            return store_is_away(&unavailable);
        }
        self.forget(&name).await;
        empty(StatusCode::NO_CONTENT)
    }

    /// Lets go of what was kept for a session that ended.
    pub async fn forget(&self, session: &str) {
        for uri in self.bridge.forget(session) {
            let uri = Raw::string(&uri);
            let ask = format!(
                r#"{{"jsonrpc":"2.0","id":"end","method":"resources/unsubscribe","params":{{"uri":{}}}}}"#,
                uri.as_str()
            );
            let Ok(message) = Message::parse(ask.into()) else { continue };
            if let Ok(mut call) = self.bridge.call(&message, None, None).await {
                let timeout = self.timeout;
                tokio::spawn(async move {
                    let _whatever = tokio::time::timeout(timeout, call.outcome()).await;
                });
            }
        }
    }
}

// === impl Reply ===

impl Reply {
    /// The whole answer at once.
    fn whole(&self, body: Bytes) -> Response<Body> {
        if self.as_events {
            return events(Body::parts(sse::parts(Some("message"), None, body)));
        }
        json(StatusCode::OK, body)
    }

    fn message(&self, message: Message) -> Response<Body> {
        // Today's protocol says in the status what kind of refusal it is.
        let status = match (self.era, error_code(&message)) {
            (Era::Modern, Some(answer::METHOD_NOT_FOUND)) => StatusCode::NOT_FOUND,
            (Era::Modern, Some(answer::HEADER_MISMATCH | answer::MISSING_CAPABILITY | answer::UNSUPPORTED_VERSION)) => {
                StatusCode::BAD_REQUEST
            }
            _ => return self.whole(seen(&self.watchers, message)),
        };
        json(status, seen(&self.watchers, message))
    }

    /// The answer, with what came before it.
    fn after(&self, first: &Bytes, interim: &mut mpsc::Receiver<Bytes>, message: Message) -> Response<Body> {
        let mut body = bytes::BytesMut::from(sse::event(Some("message"), None, first).as_ref());
        while let Ok(next) = interim.try_recv() {
            body.extend_from_slice(&sse::event(Some("message"), None, &next));
        }
        body.extend_from_slice(&sse::event(Some("message"), None, &seen(&self.watchers, message)));
        events(Body::full(body.freeze()))
    }
}

/// The code of an error.
fn error_code(message: &Message) -> Option<i64> {
    let error: serde_json::Value = serde_json::from_slice(message.error()?).ok()?;
    error.get("code")?.as_i64()
}

/// An answer as the caller should see it; an error instead of one that could not be judged.
pub(super) fn seen(watchers: &Watchers, message: Message) -> Bytes {
    if watchers.is_empty() {
        return message.into_body();
    }
    let id = message.id();
    match watchers.answer(message) {
        Ok(message) => message.into_body(),
        Err(withheld) => {
            tracing::error!(%withheld, "an answer is withheld");
            answer::internal(id.as_ref())
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug)]
enum Failed {
    NotSent,
    Gone,
    Timeout,
}

impl Failed {
    fn response(self, reply: &Reply, id: Option<&skep_mcp::Id>) -> Response<Body> {
        if reply.as_events {
            return reply.whole(self.body(id));
        }
        match self {
            Self::NotSent => text(StatusCode::INTERNAL_SERVER_ERROR, "Failed to process request"),
            Self::Gone => json(StatusCode::BAD_GATEWAY, gone(id)),
            Self::Timeout => text(StatusCode::GATEWAY_TIMEOUT, "Timeout waiting for response from container"),
        }
    }

    fn body(self, id: Option<&skep_mcp::Id>) -> Bytes {
        match self {
            Self::NotSent => answer::internal(id),
            Self::Gone => gone(id),
            Self::Timeout => answer::timeout(id),
        }
    }
}

/// Writes whatever comes of a call until its answer has come. The caller that goes ends the call.
#[expect(clippy::too_many_arguments, reason = "everything that a stream is about, in one place")]
async fn stream(
    mut call: Call,
    mut interim: mpsc::Receiver<Bytes>,
    first: Option<Bytes>,
    sender: &BodySender,
    timeout: Option<Duration>,
    stopping: impl Future<Output = Instant>,
    id: Option<skep_mcp::Id>,
    watchers: &Watchers,
) {
    if let Some(first) = first
        && sender.send(sse::event(Some("message"), None, &first)).await.is_err()
    {
        return;
    }
    let mut stopping = std::pin::pin!(stopping);
    let mut deadline = std::pin::pin!(tokio::time::sleep(timeout.unwrap_or(Duration::MAX)));
    let mut last = std::pin::pin!(tokio::time::sleep(Duration::MAX));
    let mut is_stopping = false;
    let body = loop {
        let bytes = tokio::select! {
            outcome = call.outcome() => {
                while let Ok(message) = interim.try_recv() {
                    if sender.send(sse::event(Some("message"), None, &message)).await.is_err() {
                        return;
                    }
                }
                break match outcome {
                    Outcome::Answer(message) => seen(watchers, *message),
                    Outcome::Gone => gone(id.as_ref()),
                };
            }
            Some(message) = interim.recv() => {
                // A server that reports is at work.
                if let Some(timeout) = timeout {
                    deadline.as_mut().reset(Instant::now() + timeout);
                }
                sse::event(Some("message"), None, &message)
            }
            () = &mut deadline => break answer::timeout(id.as_ref()),
            () = &mut last => break answer::timeout(id.as_ref()),
            () = tokio::time::sleep(KEEP_ALIVE) => sse::comment("keep-alive"),
            until = &mut stopping, if !is_stopping => {
                is_stopping = true;
                // A subscription would never end by itself; a call gets the time that is left.
                if timeout.is_none() {
                    return;
                }
                last.as_mut().reset(until.checked_sub(Duration::from_secs(1)).unwrap_or(until));
                continue;
            }
            () = sender.closed() => return,
        };
        if sender.send(bytes).await.is_err() {
            return;
        }
    };
    let _gone = sender.send(sse::event(Some("message"), None, &body)).await;
}

/// What the client said that it can do.
pub(super) fn capabilities(message: &Message) -> Option<Bytes> {
    let params: std::collections::HashMap<String, Box<serde_json::value::RawValue>> =
        serde_json::from_slice(message.params()?).ok()?;
    params.get("capabilities").map(|raw| Bytes::copy_from_slice(raw.get().as_bytes()))
}

/// The server went away in the middle of a call.
pub(super) fn gone(id: Option<&skep_mcp::Id>) -> Bytes {
    let text = "the server went away before it answered; it is being started again, so try once more";
    answer::error(id, answer::INTERNAL_ERROR, text, None)
}

fn header(exchange: &Exchange, name: &http::HeaderName) -> Option<String> {
    let value = exchange.headers.get(name)?.to_str().ok()?;
    (!value.is_empty()).then(|| value.to_owned())
}

fn not_found(id: Option<&skep_mcp::Id>) -> Response<Body> {
    json(StatusCode::NOT_FOUND, answer::session_not_found(id))
}

pub(crate) fn store_is_away(unavailable: &Unavailable) -> Response<Body> {
    tracing::warn!(%unavailable, "sessions cannot be looked up");
    text(StatusCode::SERVICE_UNAVAILABLE, "session store unavailable")
}
