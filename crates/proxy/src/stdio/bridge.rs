//! Who waits for what: the state that all callers of one stdio server share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Edit, Id, Kind, Message, lines, splice};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::abilities::Abilities;
use super::call::{Outcome, Waiter};
use super::catalogue::Catalogue;
use super::concerned::Left;
use super::handshake::Handshake;
use super::interests::{Counted, Subscriptions, Turns};
use super::readiness::Readiness;

/// How many messages may wait to be written to the server. Callers wait beyond that.
pub(crate) const QUEUE: usize = 100;
/// How much of what cannot wait its turn may wait beside them: that calls were taken back, and that requests are refused.
const OVERDUE: usize = 1000;
/// How long a caller's word that it takes a call back may be to be passed on as it is, in bytes.
const REASON: usize = 4 * 1024;
/// How many messages may wait for one listening caller. What comes beyond that is dropped, with a warning.
pub(crate) const LISTENER: usize = 100;

/// One stdio server and everybody who talks to it.
#[derive(Debug)]
pub struct Bridge {
    state: Mutex<State>,
    pub(super) handshake: Handshake,
    pub(super) catalogue: Catalogue,
    pub(super) turns: Turns,
    /// How much is kept of what callers subscribe to.
    pub(super) subscriptions: Subscriptions,
    /// Whether the server can take requests. Changed under the lock of the state.
    pub(super) readiness: watch::Sender<Readiness>,
    pub(super) queue: mpsc::Sender<Line>,
}

/// A line on its way to the server.
#[derive(Debug)]
pub(super) struct Line {
    /// The request in it, if it is one: nobody may wait for it any more when its turn comes.
    pub(super) request: Option<u64>,
    pub(super) bytes: Bytes,
    /// The body that it was made of, which the memory budget counts until the line is written.
    pub(super) source: Bytes,
}

/// The name of a caller's session. Callers without one have none.
pub(crate) type SessionId = Arc<str>;

#[derive(Debug, Default)]
pub(super) struct State {
    last_id: u64,
    /// Who waits for the answer to which request.
    pub(super) waiting: HashMap<u64, Waiter>,
    /// What callers left and the server may still work on.
    pub(super) left: Left,
    /// Requests of the server that a caller was asked to answer: the server's id, and whose answer counts.
    pub(super) asked: BTreeMap<u64, (Id, SessionId)>,
    pub(super) sessions: HashMap<SessionId, Session>,
    /// Who wants to hear of a resource. The server knows of the first one only.
    pub(super) subscriptions: BTreeMap<String, BTreeMap<SessionId, Counted>>,
    /// The log level that the server was told.
    pub(super) level: Option<u8>,
    /// Until when another proxy may speak with the same server, as far as is known.
    pub(super) shared_until: Option<Instant>,
    /// Whether this proxy is on its way out, so that another one has taken over.
    pub(super) is_leaving: bool,
    /// How many requests of the server wait for somebody else's answer.
    pub(super) held_back: usize,
    /// How many servers went away so far: what one asked is not for the next one.
    pub(super) servers: u64,
    /// What found no room in the queue, and goes before it.
    overdue: Vec<Line>,
}

/// What is known of a caller's session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Where it listens.
    pub(super) listener: Option<mpsc::Sender<Bytes>>,
    /// What its client can be asked for. Nothing if the client has not said it here.
    pub(super) abilities: Option<Abilities>,
    pub(super) level: Option<u8>,
    /// When it last answered a question of the server.
    pub(super) answered: Option<Instant>,
    /// How many resources it wants to hear of.
    pub(super) subscriptions: usize,
    /// When it was last heard of here.
    pub(super) used: Option<Instant>,
}

/// A request that could not be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request cannot be passed on")]
pub(crate) struct NotSent;

// === impl Bridge ===

impl Bridge {
    /// A bridge, and the queue of what is to be written to the server.
    pub(super) fn new() -> (Arc<Self>, mpsc::Receiver<Line>) {
        let (queue, queued) = mpsc::channel(QUEUE);
        let state = State { last_id: first_id(), ..State::default() };
        let bridge = Self {
            state: Mutex::new(state),
            handshake: Handshake::default(),
            catalogue: Catalogue::default(),
            turns: Turns::default(),
            subscriptions: Subscriptions::default(),
            readiness: watch::Sender::new(Readiness::Starting),
            queue,
        };
        (Arc::new(bridge), queued)
    }

    /// Takes something of a caller that wants no answer. A server that does not read is not waited for any longer than for a call.
    pub(crate) async fn told(
        &self,
        message: &Message,
        session: Option<&SessionId>,
        timeout: Duration,
    ) -> Result<(), NotSent> {
        let passed = async {
            match (message.kind(), message.method()) {
                (Kind::Response | Kind::Error, _) => self.answer(message, session).await,
                (_, Some("notifications/cancelled")) => self.cancel(message, session),
                // The server was initialized by the proxy, once for all.
                (_, Some("notifications/initialized")) => Ok(()),
                _ => self.tell(message.body(), || Some(lines::frame(message))).await,
            }
        };
        tokio::time::timeout(timeout, passed).await.unwrap_or(Err(NotSent))
    }

    /// Passes on what wants no answer. What to say is asked when there is room for it: a caller may leave before, and then nothing
    /// is said and nothing has changed. Its source is the counted body that the line is made of.
    pub(super) async fn tell(&self, source: &Bytes, line: impl FnOnce() -> Option<Bytes>) -> Result<(), NotSent> {
        self.ready().await.map_err(|_unavailable| NotSent)?;
        let permit = self.queue.reserve().await.map_err(|_closed| NotSent)?;
        let Some(line) = line() else { return Ok(()) };
        self.with(|_locked| {
            if !self.is_ready() {
                return Err(NotSent);
            }
            permit.send(Line::telling(line, source.clone()));
            Ok(())
        })
    }

    /// Passes on what belongs to the handshake.
    pub(super) async fn tell_unprepared(&self, line: Bytes) {
        let _closed = self.queue.send(Line::telling(line, Bytes::new())).await;
    }

    /// Passes on a caller's word that it does not want the answer to a request any more, which ends the request: servers do not
    /// answer it then. One without a session says so by leaving: ids are not its own, and it could mean anybody's request.
    fn cancel(&self, message: &Message, session: Option<&SessionId>) -> Result<(), NotSent> {
        let (Some(id), Some(_)) = (message.cancels(), session) else { return Ok(()) };
        let taken = self.with(|state| {
            let mut waiting = state.waiting.iter();
            let (wire, _) = waiting.find(|(_, one)| one.id == id && one.session.as_ref() == session)?;
            let wire = *wire;
            state.take_back(wire).map(|waiter| (wire, waiter))
        });
        let Some((wire, waiter)) = taken else { return Ok(()) };
        waiter.settle(Outcome::Cancelled);
        let number = Id::number(wire);
        let mapped = splice::apply(message, &[Edit::set(&["params", "requestId"], &number)]).map_err(|_| NotSent)?;
        // It may wait beside the queue, where there is no room for long reasons.
        let is_short = mapped.body().len() <= REASON;
        self.enqueue_at_once(if is_short {
            Line::telling(lines::frame(&mapped), message.body().clone())
        } else {
            Line::telling(cancellation(wire), Bytes::new())
        });
        Ok(())
    }

    /// Begins to listen for a session. Whoever listened before hears nothing more.
    pub(crate) fn listen(&self, session: &SessionId) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(LISTENER);
        self.with(|state| state.known(session).listener = Some(sender));
        receiver
    }

    /// Remembers what the client of a session can do.
    pub(crate) fn introduce(&self, session: &SessionId, abilities: Abilities) {
        self.with(|state| {
            state.known(session).abilities = Some(abilities);
        });
    }

    /// The sessions that nobody listens for and that were not heard of for so long. A store that others share tells nobody
    /// when a session is over.
    pub(crate) fn unused(&self, time: Duration) -> Vec<SessionId> {
        let now = Instant::now();
        self.with(|state| {
            for one in state.sessions.values_mut() {
                // One whose stream just broke comes back.
                if one.listener.as_ref().is_some_and(|listener| !listener.is_closed()) {
                    one.used = Some(now);
                }
            }
            let is_unused = |one: &Session| one.used.is_none_or(|used| now.duration_since(used) >= time);
            let unused = state.sessions.iter().filter(|(_, one)| is_unused(one));
            unused.map(|(session, _)| session.clone()).collect()
        })
    }

    /// Takes a message of the server to whom it concerns. Returns what the server is to be told in return.
    pub(super) fn dispatch(self: &Arc<Self>, message: &Message) -> Option<Bytes> {
        match message.kind() {
            Kind::Response | Kind::Error => {
                self.settle(message);
                None
            }
            Kind::Notification => {
                self.spread(message);
                None
            }
            Kind::Request => self.ask(message),
        }
    }

    /// Whether a line should still be sent, now that its turn has come. On a request that is not, the server does not work.
    pub(super) fn wants(&self, line: &Line) -> bool {
        let Some(wire) = line.request else { return true };
        self.with(|state| {
            let waiter = state.waiting.get_mut(&wire);
            let is_waited_for = waiter.is_some();
            match waiter {
                Some(waiter) => waiter.is_taken = true,
                None => state.left.remove(wire),
            }
            is_waited_for
        })
    }

    /// Whether the server has a request.
    pub(super) fn is_taken(&self, wire: u64) -> bool {
        self.with(|state| state.waiting.get(&wire).is_some_and(|waiter| waiter.is_taken))
    }

    /// There is a server now. For so long, another proxy may speak with it as well.
    pub(super) fn connected(&self, shared: Option<Duration>) {
        self.with(|state| state.shared_until = shared.map(|time| Instant::now() + time));
    }

    /// This proxy is on its way out. If another one speaks with the server, it is that one's from now on.
    pub fn leave(&self) {
        self.with(|state| state.is_leaving = true);
    }

    /// What goes to the server before all that waits in the queue. A call that was taken back is not sent any more, if it still waits
    /// there, so nothing overtakes what it is about.
    pub(super) fn overdue(&self) -> Vec<Line> {
        self.with(|state| std::mem::take(&mut state.overdue))
    }

    /// Tells the server something that nobody can wait for.
    pub(super) fn tell_at_once(&self, line: Bytes) {
        self.enqueue_at_once(Line::telling(line, Bytes::new()));
    }

    fn enqueue_at_once(&self, line: Line) {
        self.with(|state| {
            // What it is about went with the server.
            if !self.is_ready() {
                return;
            }
            let Err(full) = self.queue.try_send(line) else { return };
            if state.overdue.len() < OVERDUE {
                state.overdue.push(full.into_inner());
            } else {
                tracing::warn!("the server is not told that a call is taken back: it does not read");
            }
        });
    }

    /// The server went away: nobody waits any longer for what it was asked, nor for what it asked.
    pub(super) fn disconnected(&self, queued: &mut mpsc::Receiver<Line>) {
        self.catalogue.forget();
        self.with(|state| {
            self.readiness.send_replace(Readiness::Starting);
            while queued.try_recv().is_ok() {}
            state.servers += 1;
            state.asked.clear();
            state.left = Left::default();
            state.overdue.clear();
            for (_, waiter) in state.waiting.drain() {
                waiter.settle(Outcome::Gone);
            }
        });
    }

    /// Until when the server may be silent about a request although its time is over, if it may: while it waits for its caller, it has
    /// nothing to say. Its time begins anew with the caller's answer.
    pub(super) fn more_time(&self, wire: u64, timeout: Duration) -> Option<Instant> {
        self.with(|state| {
            let session = state.waiting.get(&wire)?.session.as_ref()?;
            let now = Instant::now();
            if state.asked.values().any(|(_, whom)| whom == session) {
                return Some(now + timeout);
            }
            let answered = state.sessions.get(session)?.answered?;
            Some(answered + timeout).filter(|until| *until > now)
        })
    }

    /// Takes a call back. The server is told, if it still works on it.
    pub(super) fn abandon(&self, wire: u64) {
        let Some(waiter) = self.with(|state| state.take_back(wire)) else { return };
        // The handshake must not be cancelled.
        if !waiter.is_handshake {
            self.tell_at_once(cancellation(wire));
        }
    }

    /// An answer of the server.
    fn settle(&self, message: &Message) {
        let wire = message.id().and_then(|id| id.raw().parse::<u64>().ok());
        let waiter = wire.and_then(|wire| {
            self.with(|state| {
                state.left.remove(wire);
                state.waiting.remove(&wire)
            })
        });
        let Some(waiter) = waiter else {
            tracing::debug!("an answer that nobody waits for is dropped");
            return;
        };
        if waiter.is_learnt_from {
            self.catalogue.learn(message);
        }
        let restored = splice::apply(message, &[Edit::set(&["id"], &waiter.id)]);
        waiter.settle(restored.map_or(Outcome::Malformed, |answer| Outcome::Answer(Box::new(answer))));
    }

    /// An answer of the server that is no message: there will be no other one.
    pub(super) fn settle_malformed(&self, wire: u64) {
        let waiter = self.with(|state| {
            state.left.remove(wire);
            state.waiting.remove(&wire)
        });
        if let Some(waiter) = waiter {
            waiter.settle(Outcome::Malformed);
        }
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // Every change is complete when it panics: what is in the maps can be used.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Line ===

impl Line {
    /// One that nobody waits for.
    fn telling(bytes: Bytes, source: Bytes) -> Self {
        Self { request: None, bytes, source }
    }
}

// === impl State ===

impl State {
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// What is known of a session, which is in use.
    pub(super) fn known(&mut self, session: &SessionId) -> &mut Session {
        let one = self.sessions.entry(session.clone()).or_default();
        one.used = Some(Instant::now());
        one
    }

    /// Nobody waits for a request any more. The server may work on it for a while.
    fn take_back(&mut self, wire: u64) -> Option<Waiter> {
        let waiter = self.waiting.remove(&wire)?;
        self.left.add(wire, &waiter);
        Some(waiter)
    }

    /// Whether another proxy may speak with the server.
    pub(super) fn is_shared(&self) -> bool {
        self.shared_until.is_some_and(|until| self.is_leaving || Instant::now() < until)
    }
}

/// Where the numbers of this proxy begin. Two proxies can speak with one server for a while, when one takes over from the other, and
/// each hears the answers to both: their numbers must not meet. They are small enough for servers that think little of numbers.
fn first_id() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 >> 34
}

/// What the server is told when nobody waits for an answer any longer.
fn cancellation(wire: u64) -> Bytes {
    let params = format!(r#"{{"requestId":{wire},"reason":"the caller does not wait any longer"}}"#);
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{params}}}\n").into()
}

/// A text among the parameters of a message.
pub(crate) fn parameter(message: &Message, name: &str) -> Option<String> {
    let params: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(message.params()?).ok()?;
    params.get(name)?.as_str().map(str::to_owned)
}

/// Enough of a session's name to find it in a log, and too little to use it.
pub(crate) fn short(session: &str) -> &str {
    session.get(..8).unwrap_or(session)
}

#[cfg(test)]
pub(super) mod tests;
