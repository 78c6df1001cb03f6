//! An upstream without a server: it hands every call to a test, which answers it. Everything above can be tested with it, without a
//! process or a socket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::headers::parameters::Parameter;
use skep_mcp::{Message, answer};
use skep_net::Budget;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::admission;
use crate::error::CallError;
use crate::replies::{INTERIM, InFlight, PendingResponse, Replies, Response};
use crate::upstream::{BoxFuture, Call, ClientContext, SessionId, Upstream, UpstreamState};

/// How many calls and notifications may wait for the test.
pub const QUEUE: usize = 100;

/// An upstream that a test answers for.
#[derive(Debug)]
pub struct MemoryUpstream {
    state: watch::Sender<UpstreamState>,
    received: mpsc::Sender<Received>,
    sessions: Mutex<HashMap<SessionId, Option<mpsc::Sender<Bytes>>>>,
}

/// What the server behind the upstream would get.
#[derive(Debug)]
pub enum Received {
    /// A request.
    Call(Box<ReceivedCall>),
    /// A notification, or a response of the client.
    Message(Box<Message>),
    /// The call with this method was cancelled.
    Cancelled(String),
}

/// A request that waits for its response.
#[derive(Debug)]
pub struct ReceivedCall {
    /// What was called.
    pub call: Message,
    /// Who calls.
    pub client: ClientContext,
    /// Where messages before the response go, if the client takes them.
    pub interim: Option<mpsc::Sender<Bytes>>,
    /// Where the response goes.
    pub response: oneshot::Sender<Response>,
}

#[derive(Debug)]
struct Forwarded {
    method: String,
    received: mpsc::Sender<Received>,
}

// === impl MemoryUpstream ===

impl MemoryUpstream {
    /// An upstream in this state, and what it receives.
    pub fn new(state: UpstreamState) -> (Arc<Self>, mpsc::Receiver<Received>) {
        let (received, calls) = mpsc::channel(QUEUE);
        let upstream = Self { state: watch::Sender::new(state), received, sessions: Mutex::default() };
        (Arc::new(upstream), calls)
    }

    /// Changes the state.
    pub fn set_state(&self, state: UpstreamState) {
        self.state.send_replace(state);
    }

    /// Sends a message to a session outside of a call. False if it does not listen.
    pub async fn send_event(&self, session: &str, message: Bytes) -> bool {
        let listener = self.with(|sessions| sessions.get(session).cloned().flatten());
        match listener {
            Some(listener) => listener.send(message).await.is_ok(),
            None => false,
        }
    }

    /// How many sessions listen.
    pub fn listeners(&self) -> usize {
        let is_open =
            |listener: &&Option<mpsc::Sender<Bytes>>| listener.as_ref().is_some_and(|listener| !listener.is_closed());
        self.with(|sessions| sessions.values().filter(is_open).count())
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<SessionId, Option<mpsc::Sender<Bytes>>>) -> T) -> T {
        act(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Upstream for MemoryUpstream {
    fn state(&self) -> watch::Receiver<UpstreamState> {
        self.state.subscribe()
    }

    fn open<'a>(
        &'a self,
        session: &'a SessionId,
        initialize: &'a Message,
        _client: &'a ClientContext,
    ) -> BoxFuture<'a, Result<Message, CallError>> {
        Box::pin(async move {
            admission::ready(&mut self.state()).await?;
            self.with(|sessions| sessions.entry(session.clone()).or_default().take());
            let id = initialize.id().ok_or(CallError::NotSent)?;
            Message::parse(answer::empty_result(&id)).map_err(|_malformed| CallError::NotSent)
        })
    }

    fn restore(&self, session: &SessionId, _initialize: &[u8]) {
        self.with(|sessions| sessions.entry(session.clone()).or_default().take());
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Replies, CallError>> {
        Box::pin(async move {
            admission::ready(&mut self.state()).await?;
            let (sender, interim) =
                if call.takes_interim { Some(mpsc::channel(INTERIM)).unzip() } else { (None, None) };
            let (response, responded) = oneshot::channel();
            let method = call.message.method().unwrap_or_default().to_owned();
            let received = ReceivedCall { call: call.message, client: call.client, interim: sender, response };
            self.received.send(Received::Call(Box::new(received))).await.map_err(|_closed| CallError::NotSent)?;
            let in_flight = Forwarded { method, received: self.received.clone() };
            Ok(Replies { interim, response: PendingResponse::new(responded, Box::new(in_flight)) })
        })
    }

    fn send<'a>(
        &'a self,
        _session: Option<&'a SessionId>,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            let sent = self.received.send(Received::Message(Box::new(message.clone()))).await;
            sent.map_err(|_closed| CallError::NotSent)
        })
    }

    fn events(&self, session: &SessionId, _budget: Budget) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(INTERIM);
        self.with(|sessions| sessions.insert(session.clone(), Some(sender)));
        receiver
    }

    fn close(self: Arc<Self>, session: &SessionId) {
        self.with(|sessions| sessions.remove(session));
    }

    /// All that do not listen.
    fn idle_sessions(&self, _time: Duration) -> Vec<SessionId> {
        self.with(|sessions| {
            let idle = sessions.iter().filter(|(_, listener)| listener.is_none());
            idle.map(|(session, _)| session.clone()).collect()
        })
    }

    fn tool_parameters(
        self: Arc<Self>,
        _call: Message,
        _has_headers: bool,
    ) -> BoxFuture<'static, Result<Arc<[Parameter]>, CallError>> {
        Box::pin(std::future::ready(Ok(Arc::default())))
    }

    fn drain(&self) {}
}

// === impl Forwarded ===

impl InFlight for Forwarded {
    fn cancel(&self) {
        // The test may be over.
        let _unread = self.received.try_send(Received::Cancelled(self.method.clone()));
    }

    fn is_sent(&self) -> bool {
        true
    }

    fn extended_deadline(&self, _timeout: Duration) -> Option<Instant> {
        None
    }
}
