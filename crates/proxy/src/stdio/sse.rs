//! A stdio server behind HTTP with a stream of events beside it: `/sse` and `/messages`. Deprecated by the protocol, and still
//! spoken.
//!
//! Each caller sees the answers to its own requests only: ids are changed on the way in and changed back on the way out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use skep_mcp::{Era, Kind, Message, Refusal, answer, era, sse};
use skep_net::budget::{OverBudgetError, Purpose};
use skep_net::{Body, BodySender, Budget, Drain};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::abilities::Abilities;
use super::bridge::{Bridge, LISTENER, SessionId};
use super::call::Failed;
use super::listener::Listener;
use super::readiness::NotAdmitted;
use super::reply::{INTERIM, keep_alive, last_moment};
use super::streamable::store_is_away;
use crate::chain::reply::ReplyChain;
use crate::exchange::{Content, Exchange};
use crate::http::{VERSION, events, json, method_not_allowed, over_budget_message, text};
use crate::sessions::Sessions;

/// How many requests of one caller may be under way.
const REQUESTS: u32 = 100;

/// The proxy.
#[derive(Debug)]
pub struct Sse {
    bridge: Arc<Bridge>,
    sessions: Sessions,
    timeout: Duration,
    trust_proxy_headers: bool,
    drain: Drain,
    streams: Mutex<HashMap<SessionId, Stream>>,
}

/// A caller's stream, as far as its requests need it.
#[derive(Clone, Debug)]
struct Stream {
    /// Where answers go, as events that are counted.
    answers: mpsc::Sender<Bytes>,
    /// Room for requests.
    room: Arc<Semaphore>,
}

// === impl Sse ===

impl Sse {
    /// A proxy in front of a server.
    pub fn new(
        bridge: Arc<Bridge>,
        sessions: Sessions,
        timeout: Duration,
        trust_proxy_headers: bool,
        drain: Drain,
    ) -> Arc<Self> {
        Arc::new(Self { bridge, sessions, timeout, trust_proxy_headers, drain, streams: Mutex::default() })
    }

    /// Answers a call to `/sse`.
    pub async fn open(self: &Arc<Self>, exchange: &Exchange) -> Response<Body> {
        if exchange.head.method != Method::GET {
            return method_not_allowed("GET");
        }
        let session = match self.sessions.open(exchange).await {
            Ok(session) => session,
            Err(unavailable) => return store_is_away(&unavailable),
        };
        let endpoint = format!("{}/messages?session_id={session}", self.base(exchange));
        let (sender, body) = Body::channel(LISTENER);
        let (answers, answered) = mpsc::channel(LISTENER);
        let room = Arc::new(Semaphore::new(REQUESTS as usize));
        let stream = Stream { answers, room: room.clone() };
        self.with_streams(|streams| streams.insert(session.clone(), stream));
        let budget = exchange.head.budget.clone();
        tokio::spawn(self.clone().stream(session, endpoint, answered, room, (sender, budget)));
        events(body)
    }

    async fn stream(
        self: Arc<Self>,
        session: SessionId,
        endpoint: String,
        mut answered: mpsc::Receiver<Bytes>,
        room: Arc<Semaphore>,
        (sender, budget): (BodySender, Budget),
    ) {
        let mut listener = Listener::new(self.bridge.listen(&session), budget);
        let mut stopping = std::pin::pin!(self.drain.stopping());
        let mut idle = std::pin::pin!(room.clone().acquire_many_owned(REQUESTS));
        let mut last = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        let mut is_stopping = false;
        let mut over = std::pin::pin!(self.sessions.keep_alive(&session));
        let mut alive = keep_alive();
        let mut next = sse::event(Some("endpoint"), None, endpoint.as_bytes());
        'stream: while sender.send(next).await.is_ok() {
            next = loop {
                tokio::select! {
                    // Answers that are there are written before the stream ends.
                    biased;
                    Some(event) = answered.recv() => break event,
                    Some(event) = listener.next() => break event,
                    () = sender.closed() => break 'stream,
                    until = &mut stopping, if !is_stopping => {
                        is_stopping = true;
                        last.as_mut().reset(last_moment(until));
                    }
                    // Once the proxy ends, no request is taken any more, and those that are under way get the time that is left.
                    _ = &mut idle, if is_stopping => break 'stream,
                    () = &mut last, if is_stopping => break 'stream,
                    // A session that is listened to lives; one that is gone from the store takes no more messages, and its caller
                    // hears of that by the end of its stream.
                    () = &mut over => break 'stream,
                    _ = alive.tick() => break sse::comment("keep-alive"),
                }
            };
        }
        self.with_streams(|streams| streams.remove(&session));
        self.bridge.end(&session, self.timeout);
        drop((answered, listener));
        if let Err(unavailable) = self.sessions.close(&session).await {
            tracing::debug!(%unavailable, "a session that ended stays in the store until it expires");
        }
        // A request that came at the same moment may have brought something about again. There is no room for another one.
        idle.set(room.acquire_many_owned(REQUESTS));
        if let Ok(all) = idle.await {
            all.forget();
        }
        self.bridge.end(&session, self.timeout);
    }

    /// Answers a call to `/messages`.
    pub async fn message(self: &Arc<Self>, exchange: &mut Exchange) -> Response<Body> {
        if exchange.head.method != Method::POST {
            return method_not_allowed("POST");
        }
        let query = exchange.head.uri.query().unwrap_or_default();
        let name = query.split('&').find_map(|pair| pair.strip_prefix("session_id=")).map(str::to_owned);
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return text(StatusCode::BAD_REQUEST, "session_id is required");
        };
        match self.sessions.find(&name, &*exchange).await {
            Ok(Some(_)) => {}
            Ok(None) => return json(StatusCode::NOT_FOUND, answer::session_not_found(None)),
            Err(unavailable) => return store_is_away(&unavailable),
        }
        let session: SessionId = name.into();
        let Some(Stream { answers, room }) = self.with_streams(|streams| streams.get(&session).cloned()) else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "SSE connection not held by this instance");
        };
        let message = match &exchange.content {
            Content::Message(message) => message.clone(),
            Content::Malformed(_, why @ skep_mcp::Malformed::Batch) => {
                return json(StatusCode::BAD_REQUEST, answer::malformed(*why));
            }
            _ => return text(StatusCode::BAD_REQUEST, "Invalid JSON-RPC 2.0 message"),
        };
        if message.method().is_some()
            && let Err(refusal) = skep_mcp::headers::check(&exchange.head.headers, &message)
        {
            return json(StatusCode::BAD_REQUEST, refusal.answer(message.id().as_ref()));
        }
        let passed = match message.kind() {
            Kind::Request => {
                let Ok(permit) = room.try_acquire_owned() else {
                    return text(StatusCode::TOO_MANY_REQUESTS, "too many requests of this stream are under way");
                };
                let (replies, budget) = (exchange.reply_chain(), exchange.head.budget.clone());
                let claimed = era::classify(first(&exchange.head.headers, VERSION.as_str()).as_deref(), &message);
                let answered = self.clone().answer(message, claimed, session, answers, replies, budget);
                tokio::spawn(async move {
                    answered.await;
                    drop(permit);
                });
                Ok(())
            }
            Kind::Notification | Kind::Response | Kind::Error => {
                self.bridge.told(&message, Some(&session), self.timeout).await
            }
        };
        match passed {
            Ok(()) => text(StatusCode::ACCEPTED, "Accepted"),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "Failed to send message to destination"),
        }
    }

    /// Gets the answer to a request, and whatever comes before it, onto the client's stream.
    async fn answer(
        self: Arc<Self>,
        message: Message,
        claimed: Result<Era, Refusal>,
        session: SessionId,
        answers: mpsc::Sender<Bytes>,
        replies: ReplyChain,
        budget: Budget,
    ) {
        let id = message.id();
        let is_greeting = message.method() == Some("initialize");
        let admitted = tokio::select! {
            admitted = self.admit(&message, claimed, &session) => admitted,
            // The client closed its stream.
            () = answers.closed() => return,
        };
        let body = match admitted {
            Err(refusal) => refusal,
            Ok(Era::Legacy) if is_greeting => {
                let answer = self.bridge.initialized(&message);
                answer.map_or_else(|| Failed::NotSent.body(id.as_ref()), Message::into_body)
            }
            // 2026-07-28 has no handshake. A server of both eras would take it for one.
            Ok(Era::Modern) if is_greeting => {
                answer::error(id.as_ref(), answer::METHOD_NOT_FOUND, "Method not found", None)
            }
            Ok(era) => {
                let answered = self.forward(&message, era, &session, &answers, &replies, &budget).await;
                let Some(body) = answered else { return };
                body
            }
        };
        // Its request is counted as well, for as long as it is there.
        drop(message);
        let event = match counted(&budget, body, &answers).await {
            Some(Ok(event)) => event,
            Some(Err(over)) => sse::event(Some("message"), None, &over_budget_message(&over, id.as_ref())),
            None => return,
        };
        let _gone = answers.send(event).await;
    }

    /// The era that a request is admitted in, or the answer to one that goes no further. `claimed` is what it says itself: a request
    /// that contradicts itself is refused, since the server could take it for one of another era than the proxy does.
    async fn admit(&self, message: &Message, claimed: Result<Era, Refusal>, session: &SessionId) -> Result<Era, Bytes> {
        let id = message.id();
        let era = claimed.map_err(|refusal| refusal.answer(id.as_ref()))?;
        if era == Era::Legacy && message.method() == Some("initialize") {
            self.bridge.introduce(session, Abilities::of(message));
        }
        match tokio::time::timeout(self.timeout, self.bridge.admit(message, era)).await {
            Ok(Ok(())) => Ok(era),
            Ok(Err(NotAdmitted::Era(mismatch))) => Err(mismatch.body),
            Ok(Err(NotAdmitted::Failed(failed))) => Err(failed.body(id.as_ref())),
            Err(_elapsed) => Err(Failed::Timeout.body(id.as_ref())),
        }
    }

    /// Forwards a request and returns its answer. Nothing if the client cancelled it or closed its stream.
    async fn forward(
        &self,
        message: &Message,
        era: Era,
        session: &SessionId,
        answers: &mpsc::Sender<Bytes>,
        replies: &ReplyChain,
        budget: &Budget,
    ) -> Option<Bytes> {
        let (sender, mut interim) = mpsc::channel(INTERIM);
        let answered = async {
            if era == Era::Legacy
                && let Some(answered) = self.bridge.interest(message, session, budget, self.timeout).await
            {
                return answered.map(Message::into_body);
            }
            let until = Instant::now() + self.timeout;
            // This waits as well, when many others wait for a server that is away.
            let called = self.bridge.call(message, era, Some(session.clone()), Some(sender));
            let called = tokio::time::timeout_at(until, called).await.map_err(|_elapsed| Failed::Timeout)?;
            // Once the server has it, it may take as long as its client listens, as in the original.
            let answered = called?.outcome_once_taken(until).await;
            Ok(replies.evaluate(answered?).await)
        };
        let mut answered = std::pin::pin!(answered);
        let answered = loop {
            tokio::select! {
                biased;
                Some(before) = interim.recv() => tokio::select! {
                    biased;
                    sent = send_before(budget, before, answers) => sent?,
                    // Behind a message that waits, the answer would be in memory and counted nowhere.
                    answered = &mut answered => {
                        tracing::warn!("dropping a message before an answer: it waits for room or for its client");
                        break answered;
                    }
                },
                answered = &mut answered => break answered,
                // The client closed its stream: the call ends with this.
                () = answers.closed() => return None,
            }
        };
        match answered {
            Ok(body) => Some(body),
            // A client that cancelled it wants no answer.
            Err(Failed::Cancelled) => None,
            Err(failed) => Some(failed.body(message.id().as_ref())),
        }
    }

    /// How the caller reached us: what the first event tells it to use.
    fn base(&self, exchange: &Exchange) -> String {
        let headers = &exchange.head.headers;
        let said = |name: &str| first(headers, name).filter(|_| self.trust_proxy_headers);
        let host = exchange.head.uri.authority().map(|authority| authority.as_str().to_owned());
        let host = host.or_else(|| first(headers, "host")).unwrap_or_else(|| "localhost".to_owned());
        let host = match (said("x-forwarded-host"), said("x-forwarded-port")) {
            (Some(host), Some(port)) if !host.contains(':') => format!("{host}:{port}"),
            (Some(host), _) => host,
            (None, _) => host,
        };
        let scheme =
            said("x-forwarded-proto").unwrap_or_else(|| (if exchange.head.peer.tls { "https" } else { "http" }).into());
        let prefix = said("x-forwarded-prefix").unwrap_or_default();
        let prefix = prefix.trim_end_matches('/').trim_end_matches("/sse").trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        format!("{scheme}://{host}{prefix}")
    }

    fn with_streams<T>(&self, act: impl FnOnce(&mut HashMap<SessionId, Stream>) -> T) -> T {
        act(&mut self.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends a message that comes before an answer, if there is room for it in time. Nothing if the client closed its stream.
async fn send_before(budget: &Budget, message: Bytes, answers: &mpsc::Sender<Bytes>) -> Option<()> {
    match counted(budget, message, answers).await? {
        Ok(event) => answers.send(event).await.ok(),
        Err(error) => {
            tracing::warn!(%error, "dropping a message before an answer: over the memory budget");
            Some(())
        }
    }
}

/// A message as an event, once there is room for it. Nothing if the client closed its stream.
async fn counted(
    budget: &Budget,
    message: Bytes,
    answers: &mpsc::Sender<Bytes>,
) -> Option<Result<Bytes, OverBudgetError>> {
    let event = sse::event(Some("message"), None, &message);
    drop(message);
    tokio::select! {
        held = budget.hold_or_wait(event, Purpose::Response) => Some(held),
        () = answers.closed() => None,
    }
}

fn first(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    let value = value.split(',').next()?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests;
