//! HTTP with a stream of events beside it, in front of any upstream: `/sse` and `/messages`. Deprecated by the protocol, and still in
//! use.
//!
//! Each client sees the answers to its own requests only: ids are changed on the way in and changed back on the way out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use skep_mcp::{Era, Kind, Message, answer, sse};
use skep_net::budget::{OverBudgetError, Purpose};
use skep_net::{Body, BodySender, Budget};
use skep_upstream::{Call, CallError, ClientContext, Replies, SessionId, admission};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::listener::Listener;
use super::reply::{keep_alive, last_moment};
use super::request::{Refusal, find_session, message_of, store_unavailable};
use crate::chain::reply::ReplyChain;
use crate::exchange::Exchange;
use crate::http::{events, json, method_not_allowed, over_budget, over_budget_message, text};
use crate::router::{MESSAGES, STREAM};

/// How many messages may wait to be written to a client.
const QUEUE: usize = 100;
/// How many requests of one client may be in flight.
const REQUESTS: u32 = 100;

/// What a request in flight counts for, in bytes: its connection is free for others, and its body may be too short to be counted.
const IN_FLIGHT: usize = 8 * 1024;

/// The endpoint.
#[derive(Debug)]
pub struct Sse {
    endpoint: Endpoint,
    trust_proxy_headers: bool,
    streams: Mutex<HashMap<SessionId, Stream>>,
}

/// A client's stream, as far as its requests need it.
#[derive(Clone, Debug)]
struct Stream {
    /// Where answers go, as events that are counted.
    answers: mpsc::Sender<Bytes>,
    /// Room for requests.
    room: Arc<Semaphore>,
}

/// A request whose response goes to the client's stream.
struct StreamCall {
    message: Message,
    /// The era that it claims, or the answer to one that contradicts itself: the server could take it for one of another era than the proxy
    /// does.
    claimed: Result<Era, Bytes>,
    session: SessionId,
    client: ClientContext,
    answers: mpsc::Sender<Bytes>,
    replies: ReplyChain,
    budget: Budget,
}

// === impl Sse ===

impl Sse {
    /// An endpoint that tells clients the URL by which a trusted proxy in front was called, if it trusts one.
    pub fn new(endpoint: Endpoint, trust_proxy_headers: bool) -> Arc<Self> {
        Arc::new(Self { endpoint, trust_proxy_headers, streams: Mutex::default() })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Answers a call to `/sse`.
    pub async fn open(self: &Arc<Self>, exchange: &Exchange) -> Response<Body> {
        if exchange.head.method != Method::GET {
            return method_not_allowed("GET");
        }
        let session = match self.endpoint.sessions.open(exchange).await {
            Ok(session) => session,
            Err(unavailable) => return store_unavailable(&unavailable),
        };
        let endpoint = format!("{}{MESSAGES}?session_id={session}", self.base(exchange));
        let (sender, body) = Body::channel(QUEUE);
        let (answers, answered) = mpsc::channel(QUEUE);
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
        let mut listener = Listener::new(self.endpoint.upstream.events(&session, budget.clone()), budget);
        let mut stopping = std::pin::pin!(self.endpoint.drain.stopping());
        let mut idle = std::pin::pin!(room.clone().acquire_many_owned(REQUESTS));
        let mut last = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        let mut is_stopping = false;
        let mut over = std::pin::pin!(self.endpoint.sessions.keep_alive(&session));
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
                    // Once the proxy ends, no request is taken any more, and those in flight get the time that is left.
                    _ = &mut idle, if is_stopping => break 'stream,
                    () = &mut last, if is_stopping => break 'stream,
                    // A session that is listened to lives; one that is gone from the store takes no more messages, and its client
                    // hears of that by the end of its stream.
                    () = &mut over => break 'stream,
                    _ = alive.tick() => break sse::comment("keep-alive"),
                }
            };
        }
        self.with_streams(|streams| streams.remove(&session));
        self.endpoint.upstream.clone().close(&session);
        drop((answered, listener));
        if let Err(unavailable) = self.endpoint.sessions.close(&session).await {
            tracing::debug!(%unavailable, "ended session left in the store until it expires");
        }
        // A request that came at the same moment may have brought something about again. There is no room for another one.
        idle.set(room.acquire_many_owned(REQUESTS));
        if let Ok(all) = idle.await {
            all.forget();
        }
        self.endpoint.upstream.clone().close(&session);
    }

    /// Answers a request to `/messages`.
    pub async fn message(self: &Arc<Self>, exchange: &mut Exchange) -> Response<Body> {
        if exchange.head.method != Method::POST {
            return method_not_allowed("POST");
        }
        self.accept(exchange).await.unwrap_or_else(|refusal| *refusal)
    }

    async fn accept(self: &Arc<Self>, exchange: &mut Exchange) -> Result<Response<Body>, Refusal> {
        let query = exchange.head.uri.query().unwrap_or_default();
        let id = query.split('&').find_map(|pair| pair.strip_prefix("session_id=")).map(str::to_owned);
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Ok(text(StatusCode::BAD_REQUEST, "session_id is required"));
        };
        let session = find_session(&self.endpoint, id, exchange, None).await?;
        let Some(stream) = self.with_streams(|streams| streams.get(&session).cloned()) else {
            return Ok(text(StatusCode::SERVICE_UNAVAILABLE, "SSE connection not held by this instance"));
        };
        let message = message_of(exchange)?;
        if message.method().is_some() {
            skep_mcp::headers::check(&exchange.head.headers, &message)
                .map_err(|refusal| json(StatusCode::BAD_REQUEST, refusal.answer(message.id().as_ref())))?;
        }
        match message.kind() {
            Kind::Request => Ok(self.request(exchange, message, session, stream)),
            Kind::Notification | Kind::Response | Kind::Error => {
                let sent =
                    tokio::time::timeout(self.endpoint.timeout, self.endpoint.upstream.send(Some(&session), &message))
                        .await;
                Ok(match sent {
                    Ok(Ok(())) => text(StatusCode::ACCEPTED, "Accepted"),
                    Ok(Err(_)) | Err(_) => {
                        text(StatusCode::INTERNAL_SERVER_ERROR, "Failed to send message to destination")
                    }
                })
            }
        }
    }

    /// Accepts a request, whose response goes to the client's stream.
    fn request(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        message: Message,
        session: SessionId,
        Stream { answers, room }: Stream,
    ) -> Response<Body> {
        let Ok(permit) = room.try_acquire_owned() else {
            return text(StatusCode::TOO_MANY_REQUESTS, "too many requests of this stream are in flight");
        };
        let (replies, budget) = (exchange.reply_chain(), exchange.head.budget.clone());
        let counted = match budget.reserve(IN_FLIGHT, Purpose::Request) {
            Ok(counted) => counted,
            Err(over) => return over_budget(&over, message.id().as_ref()),
        };
        let claimed = exchange.era().unwrap_or(Ok(Era::Legacy));
        let claimed = claimed.map_err(|refusal| refusal.answer(message.id().as_ref()));
        let client = self.endpoint.client(exchange);
        let response = text(StatusCode::ACCEPTED, "Accepted");
        let mut observations = exchange.take_late_observations(&response);
        let call = StreamCall { message, claimed, session, client, answers, replies, budget };
        let answered = self.clone().answer(call);
        tokio::spawn(async move {
            if let Some(reply) = answered.await {
                observations.late_reply(&reply);
            }
            drop((permit, counted));
        });
        response
    }

    /// Gets the answer to a request, and whatever comes before it, onto the client's stream. Returns the event of the answer; nothing if
    /// the client does not get it.
    async fn answer(self: Arc<Self>, call: StreamCall) -> Option<Bytes> {
        let StreamCall { message, claimed, session, client, answers, replies, budget } = call;
        let id = message.id();
        let is_initialize = message.method() == Some("initialize");
        let admitted = tokio::select! {
            admitted = self.admit(&message, claimed) => admitted,
            // The client closed its stream.
            () = answers.closed() => return None,
        };
        let body = match admitted {
            Err(refusal) => refusal,
            Ok(Era::Legacy) if is_initialize => {
                let opened = self.endpoint.upstream.open(&session, &message, &client).await;
                opened.map_or_else(|error| error.answer(id.as_ref()), Message::into_body)
            }
            // 2026-07-28 has no handshake. A server of both eras would take it for one.
            Ok(Era::Modern) if is_initialize => {
                answer::error(id.as_ref(), answer::METHOD_NOT_FOUND, "Method not found", None)
            }
            Ok(era) => {
                let (session, budget) = (Some(session), budget.clone());
                let call = Call { session, takes_interim: true, client, budget, ..Call::new(message.clone(), era) };
                self.forward(call, &answers, &replies).await?
            }
        };
        // Its request is counted as well, for as long as it is there.
        drop(message);
        let event = match counted(&budget, body, &answers).await? {
            Ok(event) => event,
            Err(over) => sse::event(Some("message"), None, &over_budget_message(&over, id.as_ref())),
        };
        answers.send(event.clone()).await.ok().map(|()| event)
    }

    /// The era that a request is admitted in, or the answer to one that goes no further.
    async fn admit(&self, message: &Message, claimed: Result<Era, Bytes>) -> Result<Era, Bytes> {
        let (id, era) = (message.id(), claimed?);
        let mut state = self.endpoint.state.clone();
        match tokio::time::timeout(self.endpoint.timeout, admission::ready(&mut state)).await {
            Ok(Ok(_server)) => Ok(era),
            Ok(Err(error)) => Err(error.answer(id.as_ref())),
            Err(_elapsed) => Err(CallError::Timeout.answer(id.as_ref())),
        }
    }

    /// Forwards a request and returns its answer. Nothing if the client cancelled it or closed its stream.
    async fn forward(&self, call: Call, answers: &mpsc::Sender<Bytes>, replies: &ReplyChain) -> Option<Bytes> {
        let (id, until) = (call.message.id(), Instant::now() + self.endpoint.timeout);
        let budget = call.budget.clone();
        // This waits as well, when many others wait for a server that is away.
        let called = tokio::select! {
            called = tokio::time::timeout_at(until, self.endpoint.upstream.clone().call(call)) => called,
            // The client closed its stream.
            () = answers.closed() => return None,
        };
        let answered = match called.unwrap_or(Err(CallError::Timeout)) {
            Ok(called) => relay(called, until, answers, replies, &budget).await?,
            Err(error) => Err(error),
        };
        match answered {
            Ok(body) => Some(body),
            // A client that cancelled it wants no answer.
            Err(CallError::Cancelled) => None,
            Err(error) => Some(error.answer(id.as_ref())),
        }
    }

    /// How the client reached us: what the first event tells it to use.
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
        let prefix = prefix.trim_end_matches('/').trim_end_matches(STREAM).trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        format!("{scheme}://{host}{prefix}")
    }

    fn with_streams<T>(&self, act: impl FnOnce(&mut HashMap<SessionId, Stream>) -> T) -> T {
        act(&mut self.streams.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends what comes before the response of a call, and returns the response. Nothing if the client closed its stream: the call ends
/// with this.
async fn relay(
    called: Replies,
    until: Instant,
    answers: &mpsc::Sender<Bytes>,
    replies: &ReplyChain,
    budget: &Budget,
) -> Option<Result<Bytes, CallError>> {
    let Replies { mut interim, mut response } = called;
    let answered = async {
        // Once the server has it, it may take as long as its client listens, as in the original.
        let answered = response.response_once_sent(until).await;
        Ok(replies.evaluate(answered?).await.unwrap_or_else(|refusal| refusal))
    };
    let mut answered = std::pin::pin!(answered);
    loop {
        tokio::select! {
            biased;
            Some(before) = next(&mut interim) => tokio::select! {
                biased;
                sent = send_before(budget, before, answers) => sent?,
                // Behind a message that waits, the answer would be in memory and counted nowhere.
                answered = &mut answered => {
                    tracing::warn!("dropping a message before an answer: it waits for room or for its client");
                    return Some(answered);
                }
            },
            answered = &mut answered => return Some(answered),
            () = answers.closed() => return None,
        }
    }
}

/// The next message before a response. Nothing if there will be none.
async fn next(interim: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    interim.as_mut()?.recv().await
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
