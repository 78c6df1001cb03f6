//! Who waits for what: the state that all clients of one stdio server share.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Edit, Kind, Message, splice};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::call::PendingCall;
use super::handshake::Handshake;
use super::line::{Line, LineText};
use super::routing::AbandonedCalls;
use super::server_requests::ServerRequest;
use super::session::Session;
use super::subscriptions::{Counted, SubscriptionLocks, Subscriptions};
use crate::error::CallError;
use crate::tool_catalogue::ToolCatalogue;
use crate::upstream::{SessionId, UpstreamState};

/// How many messages may wait to be written to the server. Clients wait beyond that.
pub(crate) const QUEUE: usize = 100;

/// One stdio server and all of its sessions.
#[derive(Debug)]
pub struct StdioUpstream {
    state: Mutex<State>,
    pub(super) handshake: Handshake,
    pub(super) catalogue: ToolCatalogue,
    pub(super) turns: SubscriptionLocks,
    /// How much is kept of what clients subscribe to.
    pub(super) subscriptions: Subscriptions,
    /// Whether the server can take requests. Changed under the lock of the state.
    pub(super) upstream_state: watch::Sender<UpstreamState>,
    pub(super) queue: mpsc::Sender<Line>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    last_id: u64,
    /// Who waits for the answer to which request.
    pub(super) waiting: HashMap<u64, PendingCall>,
    /// What clients left and the server may still work on.
    pub(super) left: AbandonedCalls,
    /// Requests of the server that a client was asked to answer.
    pub(super) asked: BTreeMap<u64, ServerRequest>,
    pub(super) sessions: HashMap<SessionId, Session>,
    /// Who subscribed to a resource. The server knows of the first one only.
    pub(super) subscriptions: BTreeMap<String, BTreeMap<SessionId, Counted>>,
    /// The log level that was sent to the server.
    pub(super) level: Option<u8>,
    /// Whether it is being sent, by the one task that does.
    pub(super) is_sending_level: bool,
    /// Until when another proxy may be connected to the same server, as far as is known.
    pub(super) shared_until: Option<Instant>,
    /// Whether this proxy is on its way out, so that another one has taken over.
    pub(super) is_leaving: bool,
    /// How many requests of the server are left to another proxy.
    pub(super) held_back: usize,
    /// How many connections ended so far: what one server asked is not for the next one.
    pub(super) servers: u64,
    /// Lines for which the queue was full. They are written before it.
    pub(super) urgent: Vec<Line>,
}

// === impl StdioUpstream ===

impl StdioUpstream {
    /// A upstream, and the queue of what is to be written to the server.
    pub(super) fn new() -> (Arc<Self>, mpsc::Receiver<Line>) {
        let (queue, queued) = mpsc::channel(QUEUE);
        let state = State { last_id: first_id(), ..State::default() };
        let upstream = Self {
            state: Mutex::new(state),
            handshake: Handshake::default(),
            catalogue: ToolCatalogue::default(),
            turns: SubscriptionLocks::default(),
            subscriptions: Subscriptions::default(),
            upstream_state: watch::Sender::new(UpstreamState::Starting),
            queue,
        };
        (Arc::new(upstream), queued)
    }

    /// Takes something of a client that wants no answer. A server that does not read is not waited for any longer than for a call.
    pub(super) async fn forward_notification(
        &self,
        message: &Message,
        session: Option<&SessionId>,
    ) -> Result<(), CallError> {
        match (message.kind(), message.method()) {
            (Kind::Response | Kind::Error, _) => self.answer(message, session).await,
            (_, Some("notifications/cancelled")) => {
                self.cancel(message, session);
                Ok(())
            }
            // The server was initialized by the proxy, once for all.
            (_, Some("notifications/initialized")) => Ok(()),
            _ => self.send_line(|| Some(LineText::of(message, Vec::new()))).await,
        }
    }

    /// Sends a line that has no response. The line is made when there is room for it: a client may leave before, and then nothing
    /// is said and nothing has changed.
    pub(super) async fn send_line(&self, line: impl FnOnce() -> Option<LineText>) -> Result<(), CallError> {
        self.ready().await.map_err(|_unavailable| CallError::NotSent)?;
        let permit = self.queue.reserve().await.map_err(|_closed| CallError::NotSent)?;
        let Some(line) = line() else { return Ok(()) };
        self.with(|_locked| {
            if !self.is_ready() {
                return Err(CallError::NotSent);
            }
            permit.send(Line { request: None, text: line });
            Ok(())
        })
    }

    /// Sends a line of the handshake.
    pub(super) async fn send_in_handshake(&self, line: Bytes) {
        let _closed = self.queue.send(Line::whole(line)).await;
    }

    /// Takes a message of the server to whom it concerns. Returns the proxy's own response to it, if there is one.
    pub(super) fn dispatch(self: &Arc<Self>, message: &Message) -> Option<Bytes> {
        match message.kind() {
            Kind::Response | Kind::Error => {
                self.settle(message);
                None
            }
            Kind::Notification => {
                self.route_notification(message);
                None
            }
            Kind::Request => self.ask(message),
        }
    }

    /// Whether a line should still be sent, now that its turn has come. On a request that is not, the server does not work.
    pub(super) fn is_wanted(&self, line: &Line) -> bool {
        let Some(wire) = line.request else { return true };
        self.with(|state| {
            let pending = state.waiting.get_mut(&wire);
            let is_waited_for = pending.is_some();
            match pending {
                Some(pending) => pending.is_sent = true,
                None => state.left.remove(wire),
            }
            is_waited_for
        })
    }

    /// Whether the server has a request.
    pub(super) fn is_sent(&self, wire: u64) -> bool {
        self.with(|state| state.waiting.get(&wire).is_some_and(|pending| pending.is_sent))
    }

    /// There is a server now. For so long, another proxy may be connected to it as well.
    pub(super) fn connected(&self, shared: Option<Duration>) {
        self.with(|state| state.shared_until = shared.map(|time| Instant::now() + time));
    }

    /// This proxy is on its way out. If another one is connected to the server, it is that one's from now on.
    pub fn leave(&self) {
        self.with(|state| state.is_leaving = true);
    }

    /// The connection was lost: calls in flight fail, and requests of the server are forgotten.
    pub(super) fn disconnected(&self, queued: &mut mpsc::Receiver<Line>) {
        self.catalogue.forget();
        self.with(|state| {
            self.upstream_state.send_replace(UpstreamState::Starting);
            while queued.try_recv().is_ok() {}
            state.servers += 1;
            state.asked.clear();
            state.left = AbandonedCalls::default();
            state.urgent.clear();
            for (_, pending) in state.waiting.drain() {
                pending.settle(Err(CallError::Disconnected));
            }
        });
    }

    /// Until when the server may be silent about a request although its time is over, if it may: while it waits for its client, it has
    /// nothing to say. Its time begins anew with the client's answer.
    pub(super) fn extended_deadline(&self, wire: u64, timeout: Duration) -> Option<Instant> {
        self.with(|state| {
            let session = state.waiting.get(&wire)?.session.as_ref()?;
            let now = Instant::now();
            if state.asked.values().any(|request| request.session == *session) {
                return Some(now + timeout);
            }
            let answered = state.sessions.get(session)?.answered?;
            Some(answered + timeout).filter(|until| *until > now)
        })
    }

    /// An answer of the server.
    fn settle(&self, message: &Message) {
        let wire = message.id().and_then(|id| id.raw().parse::<u64>().ok());
        let pending = wire.and_then(|wire| {
            self.with(|state| {
                state.left.remove(wire);
                state.waiting.remove(&wire)
            })
        });
        let Some(pending) = pending else {
            tracing::debug!("dropping a response to no call in flight");
            return;
        };
        if pending.is_learnt_from {
            self.catalogue.learn(message);
        }
        let restored = splice::apply(message, &[Edit::set(&["id"], &pending.id)]);
        pending.settle(restored.map(Box::new).map_err(|_malformed| CallError::Malformed));
    }

    /// A response of the server that was too long to be read, and what it responds to if that is known.
    pub(super) fn settle_too_long(&self, wire: Option<u64>, limit: usize) {
        let Some(wire) = wire.or_else(|| self.with(|state| state.only_sent())) else {
            tracing::warn!("a call whose response was too long is not known: it waits for its timeout");
            return;
        };
        self.settle_failed(wire, CallError::TooLarge { limit });
    }

    /// A call fails: there will be no response to it, or no other one.
    pub(super) fn settle_failed(&self, wire: u64, error: CallError) {
        let pending = self.with(|state| {
            state.left.remove(wire);
            state.waiting.remove(&wire)
        });
        if let Some(pending) = pending {
            pending.settle(Err(error));
        }
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // Every change is complete when it panics: what is in the maps can be used.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl State ===

impl State {
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The only call that the server works on. None if there are others, here or at another proxy, or if a client left one that may still
    /// be answered.
    fn only_sent(&self) -> Option<u64> {
        let mut sent = self.waiting.iter().filter(|(_, pending)| pending.is_sent);
        let (wire, _) = sent.next()?;
        let is_only = sent.next().is_none() && self.left.lately().next().is_none() && !self.is_shared();
        is_only.then_some(*wire)
    }

    /// Whether another proxy may be connected to the server.
    pub(super) fn is_shared(&self) -> bool {
        self.shared_until.is_some_and(|until| self.is_leaving || Instant::now() < until)
    }
}

/// Where the numbers of this proxy begin. Two proxies can be connected to one server for a while, when one takes over from the other, and
/// each reads the responses to both: their numbers must differ. They are small enough for servers that think little of numbers.
fn first_id() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 >> 34
}

/// A text among the parameters of a message.
pub(crate) fn parameter(message: &Message, name: &str) -> Option<String> {
    skep_mcp::value::find_text(message.params()?, &[name]).map(Cow::into_owned)
}

#[cfg(test)]
pub(crate) mod tests;
