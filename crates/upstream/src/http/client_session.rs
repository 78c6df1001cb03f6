//! The sessions of clients, and what the server knows each of them by.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use skep_mcp::{Id, Message};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::HttpUpstream;
use super::kept::Kept;
use super::sse_stream::SseStream;
use crate::error::CallError;
use crate::initialize;
use crate::kept_client::KeptClient;
use crate::listener::Listener;
use crate::upstream::{ClientContext, SessionId};

/// How many requests of the server may wait for the client of one session. More are refused.
const ASKED: usize = 100;

/// The session of a client.
#[derive(Debug)]
pub(super) struct ClientSession {
    pub(super) id: SessionId,
    /// The session at the server. The lock is held during a handshake, so that there is one at a time.
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    state: Mutex<State>,
}

/// A session at the server.
#[derive(Debug)]
pub(super) struct Link {
    /// The server's id of it, if it has one.
    pub(super) session: Option<HeaderValue>,
    /// The protocol version that the server agreed to.
    pub(super) version: Option<HeaderValue>,
    /// The pod that knows it.
    pub(super) pod: Option<SocketAddr>,
    /// The stream that responses come on, over HTTP+SSE.
    pub(super) stream: Option<SseStream>,
}

/// A request that waits for its response.
#[derive(Debug)]
pub(super) struct PendingCall {
    /// Dropped or fired when the client cancels the request.
    pub(super) cancel: oneshot::Sender<()>,
    /// By what the client knows reports of its progress.
    pub(super) token: Option<Id>,
    /// Where messages of an SSE stream go that belong to it.
    pub(super) messages: mpsc::Sender<Message>,
}

/// A task that ends with this.
#[derive(Debug)]
pub(super) struct Task(pub(super) AbortHandle);

#[derive(Debug)]
struct State {
    /// The client's `initialize`, for every handshake with the server in its name. After the first one, what is kept of it.
    initialize: Message,
    client: KeptClient,
    listener: Option<Listener>,
    listening: Option<Task>,
    calls: HashMap<Id, PendingCall>,
    /// Requests of the server that the client has not answered.
    asked: HashSet<Id>,
    answered: Option<Instant>,
    used: Instant,
    kept: Kept,
    /// Cancellations on their way to the server.
    leaving: Vec<JoinHandle<()>>,
}

// === impl Task ===

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// === impl Link ===

impl Link {
    /// Whether requests can be sent by it: the stream for their responses is open.
    fn is_open(&self) -> bool {
        self.stream.as_ref().is_none_or(SseStream::is_open)
    }
}

// === impl ClientSession ===

impl ClientSession {
    pub(super) fn new(id: SessionId, initialize: Message, client: &ClientContext) -> Arc<Self> {
        let state = State {
            initialize,
            client: KeptClient::new(client),
            listener: None,
            listening: None,
            calls: HashMap::new(),
            asked: HashSet::new(),
            answered: None,
            used: Instant::now(),
            kept: Kept::default(),
            leaving: Vec::new(),
        };
        Arc::new(Self { id, link: tokio::sync::Mutex::default(), state: Mutex::new(state) })
    }

    /// The session at the server, opened if there is none.
    pub(super) async fn link(self: &Arc<Self>, upstream: &Arc<HttpUpstream>) -> Result<Arc<Link>, CallError> {
        self.relink(upstream, None).await
    }

    /// The same in place of one that the server forgot, unless another request opened one already.
    pub(super) async fn relink(
        self: &Arc<Self>,
        upstream: &Arc<HttpUpstream>,
        forgotten: Option<&Arc<Link>>,
    ) -> Result<Arc<Link>, CallError> {
        let mut link = self.link.lock().await;
        let is_forgotten = |link: &Arc<Link>| forgotten.is_some_and(|forgotten| Arc::ptr_eq(forgotten, link));
        if let Some(link) = link.as_ref().filter(|link| link.is_open() && !is_forgotten(link)) {
            return Ok(link.clone());
        }
        let is_new = link.take().is_none();
        let (_response, opened) = upstream.handshake(self).await?;
        let opened = Arc::new(opened.ok_or(CallError::NotSent)?);
        *link = Some(opened.clone());
        drop(link);
        if !is_new {
            tracing::info!(session = crate::abbreviate(&self.id), "session re-initialized");
            self.tell_again(upstream);
        }
        Ok(opened)
    }

    /// Sets the session at the server that was just opened.
    pub(super) async fn set_link(&self, link: Link) {
        *self.link.lock().await = Some(Arc::new(link));
    }

    /// Takes the session at the server, to close it.
    pub(super) async fn take_link(&self) -> Option<Arc<Link>> {
        self.link.lock().await.take()
    }

    /// The client's `initialize`.
    pub(super) fn initialize(&self) -> Message {
        self.with(|state| state.initialize.clone())
    }

    /// Keeps no more of the client's `initialize` than later handshakes need, and nothing of the request that it came in.
    pub(super) fn keep_less(&self) {
        self.with(|state| state.initialize = initialize::short(&state.initialize));
    }

    pub(super) fn client(&self) -> ClientContext {
        self.with(|state| state.client.clone())
    }

    /// Notes that the client uses the session, and what is known of it now.
    pub(super) fn touch(&self, client: &ClientContext) {
        self.with(|state| {
            state.used = Instant::now();
            state.client.update(client);
        });
    }

    pub(super) fn begin(&self, id: Id, call: PendingCall) {
        self.with(|state| state.calls.insert(id, call));
    }

    pub(super) fn end(&self, id: &Id) -> Option<PendingCall> {
        self.with(|state| state.calls.remove(id))
    }

    /// Notes a cancellation on its way to the server, which must be there before the session is closed.
    pub(super) fn leaves(&self, cancellation: JoinHandle<()>) {
        self.with(|state| {
            state.leaving.retain(|one| !one.is_finished());
            state.leaving.push(cancellation);
        });
    }

    /// Waits until all cancellations are with the server.
    pub(super) async fn left(&self) {
        for cancellation in self.with(|state| std::mem::take(&mut state.leaving)) {
            // It may have failed.
            let _sent = cancellation.await;
        }
    }

    /// Fails all calls in flight: the stream for their responses is closed.
    pub(super) fn end_all(&self) {
        self.with(|state| state.calls.clear());
    }

    /// Where a message goes that came on the stream of the session: the call that it belongs to.
    pub(super) fn owner(&self, message: &Message) -> Option<mpsc::Sender<Message>> {
        self.with(|state| {
            let by_id = |id: Id| state.calls.get(&id);
            let by_token = |token: Id| state.calls.values().find(|call| call.token.as_ref() == Some(&token));
            let owner = match message.method() {
                None => message.id().and_then(by_id),
                Some("notifications/progress") => message.progress_token().and_then(by_token),
                // Without a listener, it belongs to the only call in flight.
                Some(_) if state.listener.is_none() && state.calls.len() == 1 => state.calls.values().next(),
                Some(_) => None,
            };
            owner.map(|call| call.messages.clone())
        })
    }

    /// Notes a request of the server that the client has to answer. False if too many wait already.
    pub(super) fn ask(&self, id: Id) -> bool {
        self.with(|state| state.asked.len() < ASKED && state.asked.insert(id))
    }

    /// Notes the client's response to a request of the server. False if the server has not asked.
    pub(super) fn answer(&self, id: Option<&Id>) -> bool {
        self.with(|state| {
            let is_asked = id.is_some_and(|id| state.asked.remove(id));
            state.answered = is_asked.then(Instant::now).or(state.answered);
            is_asked
        })
    }

    /// Until when the server may be silent although the timeout has passed: while it waits for the client, and as long again.
    pub(super) fn extended_deadline(&self, timeout: Duration) -> Option<Instant> {
        self.with(|state| {
            let now = Instant::now();
            let answered = state.answered.map(|answered| answered + timeout).filter(|until| *until > now);
            if state.asked.is_empty() { answered } else { Some(now + timeout) }
        })
    }

    pub(super) fn listener(&self) -> Option<Listener> {
        self.with(|state| state.listener.clone())
    }

    /// Sets where messages outside of calls go, and the task that reads them.
    pub(super) fn listen(&self, listener: Listener, listening: Option<Task>) {
        // Dropped outside of the lock.
        let _replaced = self.with(|state| {
            state.listener = Some(listener);
            std::mem::replace(&mut state.listening, listening)
        });
    }

    pub(super) fn with_kept<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        self.with(|state| act(&mut state.kept))
    }

    /// Whether it has been idle for so long: neither a request, nor a listener.
    pub(super) fn is_idle(&self, time: Duration) -> bool {
        self.with(|state| {
            if state.listener.as_ref().is_some_and(|listener| !listener.is_closed()) {
                state.used = Instant::now();
            }
            state.calls.is_empty() && state.used.elapsed() >= time
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl HttpUpstream ===

impl HttpUpstream {
    pub(super) fn with_sessions<T>(&self, act: impl FnOnce(&mut HashMap<SessionId, Arc<ClientSession>>) -> T) -> T {
        act(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The session of a client.
    pub(super) fn session(&self, id: &str) -> Option<Arc<ClientSession>> {
        self.with_sessions(|sessions| sessions.get(id).cloned())
    }
}
