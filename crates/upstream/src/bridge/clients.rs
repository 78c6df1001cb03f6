//! The sessions of legacy clients at a server that has no sessions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::bridge::LegacyClient;
use skep_mcp::{Id, Message};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::listening::{Granted, Wanted};
use crate::initialize;
use crate::kept_client::KeptClient;
use crate::listener::Listener;
use crate::stdio::subscriptions::{Counted, Subscriptions};
use crate::upstream::{ClientContext, SessionId};

/// All of them.
#[derive(Debug, Default)]
pub(super) struct LegacySessions {
    sessions: Mutex<HashMap<SessionId, Arc<LegacySession>>>,
    /// How much is kept of what they subscribe to.
    pub(super) subscriptions: Subscriptions,
}

/// The session of a legacy client.
#[derive(Debug)]
pub(super) struct LegacySession {
    pub(super) client: LegacyClient,
    /// What is kept of its `initialize`.
    initialize: Option<String>,
    state: Mutex<State>,
    /// Which notifications the server should send for it.
    pub(super) wanted: watch::Sender<Wanted>,
    /// Which of them it sends.
    pub(super) granted: watch::Sender<Granted>,
}

#[derive(Debug)]
struct State {
    client: KeptClient,
    level: Option<String>,
    listener: Option<Listener>,
    listening: Option<Task>,
    subscriptions: BTreeMap<String, Counted>,
    /// What cancels the calls in flight, by the client's ids. A client should not use one twice, but may.
    calls: HashMap<Id, Vec<oneshot::Sender<()>>>,
    used: Instant,
}

/// A task that ends with this.
#[derive(Debug)]
pub(super) struct Task(pub(super) AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// === impl LegacySessions ===

impl LegacySessions {
    /// Keeps the session of a client that sent this `initialize`.
    pub(super) fn register(&self, session: &SessionId, initialize: &[u8], context: &ClientContext) {
        let opened = LegacySession::new(initialize::kept(initialize), context);
        self.with(|sessions| sessions.insert(session.clone(), opened));
    }

    /// The same for one that another replica opened, unless it is known.
    pub(super) fn restore(&self, session: &SessionId, initialize: &[u8]) {
        self.with(|sessions| {
            let new = || LegacySession::new(initialize::kept(initialize), &ClientContext::default());
            sessions.entry(session.clone()).or_insert_with(new);
        });
    }

    /// A session, if it is known.
    pub(super) fn find(&self, session: &SessionId) -> Option<Arc<LegacySession>> {
        self.with(|sessions| sessions.get(session).cloned())
    }

    /// The same of a session that its client may use. It may have been opened while the server was of another era.
    pub(super) fn known(&self, session: &SessionId) -> Arc<LegacySession> {
        let new = || LegacySession::new(None, &ClientContext::default());
        self.with(|sessions| sessions.entry(session.clone()).or_insert_with(new).clone())
    }

    /// Forgets a session, if it is known.
    pub(super) fn remove(&self, session: &SessionId) {
        if let Some(session) = self.with(|sessions| sessions.remove(session)) {
            session.end();
        }
    }

    /// Takes out a session that the server serves itself from now on, with what is kept of its `initialize`.
    pub(super) fn hand_over(&self, session: &SessionId) -> Option<(SessionId, String)> {
        let (id, taken) = self.with(|sessions| sessions.remove_entry(session))?;
        taken.end();
        Some((id, taken.initialize.clone()?))
    }

    /// Those that have been idle for so long: neither a call, nor a listener.
    pub(super) fn idle(&self, time: Duration) -> Vec<SessionId> {
        self.with(|sessions| {
            let idle = sessions.iter().filter(|(_, session)| session.is_idle(time));
            idle.map(|(id, _)| id.clone()).collect()
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<SessionId, Arc<LegacySession>>) -> T) -> T {
        act(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl LegacySession ===

impl LegacySession {
    fn new(initialize: Option<String>, client: &ClientContext) -> Arc<Self> {
        let message = initialize.clone().and_then(|initialize| Message::parse(initialize.into()).ok());
        let state = State {
            client: KeptClient::new(client),
            level: None,
            listener: None,
            listening: None,
            subscriptions: BTreeMap::new(),
            calls: HashMap::new(),
            used: Instant::now(),
        };
        Arc::new(Self {
            client: message.as_ref().map(LegacyClient::of).unwrap_or_default(),
            initialize,
            state: Mutex::new(state),
            wanted: watch::Sender::default(),
            granted: watch::Sender::default(),
        })
    }

    /// Notes that the client uses the session, and what is known of it now.
    pub(super) fn touch(&self, client: &ClientContext) {
        self.with(|state| {
            state.used = Instant::now();
            state.client.update(client);
        });
    }

    /// What the client sends that has no response. A modern server takes none of it; a cancellation ends the call.
    pub(super) fn take(&self, message: &Message) {
        let Some(id) = message.cancels() else { return };
        for call in self.with(|state| state.calls.remove(&id)).into_iter().flatten() {
            // The call may be over.
            let _over = call.send(());
        }
    }

    /// Notes a call in flight. Returns what fires when its client cancels it.
    pub(super) fn begin(&self, id: Id) -> oneshot::Receiver<()> {
        let (cancel, cancelled) = oneshot::channel();
        self.with(|state| state.calls.entry(id).or_default().push(cancel));
        cancelled
    }

    /// Forgets a call that is over.
    pub(super) fn end_call(&self, id: &Id) {
        self.with(|state| {
            state.used = Instant::now();
            let Some(calls) = state.calls.get_mut(id) else { return };
            calls.retain(|call| !call.is_closed());
            if calls.is_empty() {
                state.calls.remove(id);
            }
        });
    }

    pub(super) fn context(&self) -> ClientContext {
        self.with(|state| state.client.clone())
    }

    pub(super) fn level(&self) -> Option<String> {
        self.with(|state| state.level.clone())
    }

    pub(super) fn set_level(&self, level: &str) {
        self.with(|state| state.level = Some(level.to_owned()));
    }

    /// Where the client listens from now on. An earlier receiver gets nothing more.
    pub(super) fn set_listener(&self, listener: Listener) {
        self.with(|state| {
            state.used = Instant::now();
            state.listener = Some(listener);
        });
    }

    /// Has a task listen for the session, unless one does.
    pub(super) fn listen_by(&self, start: impl FnOnce() -> Task) {
        self.with(|state| {
            state.listening.get_or_insert_with(start);
        });
    }

    /// Hands a notification to the client, if it listens.
    pub(super) fn deliver(&self, notification: &Bytes) {
        let Some(listener) = self.with(|state| state.listener.clone()) else { return };
        if let Err(error) = listener.queue(notification) {
            tracing::debug!(%error, "dropping a message for a listening session");
        }
    }

    /// How many resources the client subscribes to, and whether this one is among them.
    pub(super) fn subscriptions(&self, uri: &str) -> (usize, bool) {
        self.with(|state| (state.subscriptions.len(), state.subscriptions.contains_key(uri)))
    }

    /// Adds a subscription. Returns the generation of what is wanted now.
    pub(super) fn subscribe(&self, uri: &str, counted: Counted) -> u64 {
        self.change(|subscriptions| subscriptions.insert(uri.to_owned(), counted))
    }

    /// Removes a subscription.
    pub(super) fn unsubscribe(&self, uri: &str) {
        self.change(|subscriptions| subscriptions.remove(uri));
    }

    fn change(&self, act: impl FnOnce(&mut BTreeMap<String, Counted>) -> Option<Counted>) -> u64 {
        let uris: BTreeSet<String> = self.with(|state| {
            // Dropped under the lock: it only gives room back.
            drop(act(&mut state.subscriptions));
            state.subscriptions.keys().cloned().collect()
        });
        let mut generation = 0;
        self.wanted.send_modify(|wanted| {
            wanted.generation += 1;
            wanted.uris = uris;
            generation = wanted.generation;
        });
        generation
    }

    /// Whether it has been idle for so long.
    fn is_idle(&self, time: Duration) -> bool {
        self.with(|state| {
            if state.listener.as_ref().is_some_and(|listener| !listener.is_closed()) {
                state.used = Instant::now();
            }
            state.calls.is_empty() && state.used.elapsed() >= time
        })
    }

    /// Ends what was begun for the session: its listening, and its calls.
    fn end(&self) {
        // Dropped outside of the lock.
        let _ended = self.with(|state| {
            let calls = std::mem::take(&mut state.calls);
            (state.listener.take(), state.listening.take(), std::mem::take(&mut state.subscriptions), calls)
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
