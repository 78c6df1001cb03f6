//! One request on its way to the server and back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Edit, Era, Id, Message, answer, lines, splice};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::bridge::{Bridge, Line, SessionId};
use super::logging;
use super::readiness::Readiness;

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The server answered. The id is the caller's own again.
    Answer(Box<Message>),
    /// What the server answered is no message.
    Malformed,
    /// The server went away before it answered.
    Gone,
    /// The caller took it back.
    Cancelled,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The request could not be handed over.
    NotSent,
    /// The server cannot be used now, and why.
    Unavailable(Arc<str>),
    /// What the server answered is no message.
    Malformed,
    /// The server went away before it answered.
    Gone,
    /// It did not answer in time.
    Timeout,
    /// The caller took the request back. Over Streamable HTTP an error says so, as JSON and in a stream: the POST wants an end, and
    /// a stream without an answer would be come back to. Over SSE nothing is said.
    Cancelled,
}

/// Who waits for the answer to a request.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The caller's id of it.
    pub(super) id: Id,
    /// Whether it opens the conversation with the server: such a request is never cancelled.
    pub(super) is_handshake: bool,
    pub(super) session: Option<SessionId>,
    /// What the caller knows reports of progress by.
    pub(super) token: Option<Id>,
    /// Where goes what comes before the answer. Nothing for callers that take an answer only.
    pub(super) interim: Option<mpsc::Sender<Bytes>>,
    /// Whether its answer says what tools there are, and how their calls are to be judged.
    pub(super) is_learnt_from: bool,
    /// Whether the server has the request, as far as is known.
    pub(super) is_taken: bool,
    pub(super) work: Work,
    /// How much of the server's log it asked for, of 2026-07-28.
    pub(super) logs: Option<u8>,
    pub(super) outcome: oneshot::Sender<Outcome>,
}

/// What the server may have to say to a caller because of a request, beside the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing: it is the proxy's own, the handshake, which has no session yet, or a subscription of 2026-07-28.
    Nobodys,
    /// It may tell something. Today's protocol has no requests of servers.
    Told,
    /// It may ask something, too.
    Asked,
}

/// A request under way. Dropping it tells the server that nobody waits any longer.
#[derive(Debug)]
pub(crate) struct Call {
    bridge: Arc<Bridge>,
    wire: u64,
    outcome: oneshot::Receiver<Outcome>,
    settled: bool,
}

/// Whose a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A client's, admitted in this era. What the body says of its version counts no more from here on.
    Client(Era),
    /// The proxy's own.
    Proxy,
    /// The proxy's own, to open the conversation: before it is answered, nothing else is sent.
    Handshake,
}

// === impl Bridge ===

impl Bridge {
    /// Forwards a client's request that was admitted in this era. The call ends with the answer, or when it is dropped, which tells
    /// the server to stop.
    pub(crate) async fn call(
        self: &Arc<Self>,
        message: &Message,
        era: Era,
        session: Option<SessionId>,
        interim: Option<mpsc::Sender<Bytes>>,
    ) -> Result<Call, Failed> {
        self.send(message, session, interim, Origin::Client(era)).await
    }

    /// The same for a request of the proxy's own: nobody is at work meanwhile whom the server could ask something.
    pub(super) async fn call_for_ourselves(self: &Arc<Self>, message: &Message) -> Result<Call, Failed> {
        self.send(message, None, None, Origin::Proxy).await
    }

    /// The same for a request that opens the conversation with a server.
    pub(super) async fn call_to_open(self: &Arc<Self>, message: &Message) -> Result<Call, Failed> {
        self.send(message, None, None, Origin::Handshake).await
    }

    async fn send(
        self: &Arc<Self>,
        message: &Message,
        session: Option<SessionId>,
        interim: Option<mpsc::Sender<Bytes>>,
        origin: Origin,
    ) -> Result<Call, Failed> {
        loop {
            if origin != Origin::Handshake {
                self.ready().await?;
            }
            let permit = self.queue.reserve().await.map_err(|_closed| Failed::NotSent)?;
            // The server may have gone meanwhile.
            if let Some(call) = self.enqueue(message, session.clone(), interim.clone(), origin, permit)? {
                return Ok(call);
            }
        }
    }

    /// Queues a request. Nothing if the server cannot take it now.
    fn enqueue(
        self: &Arc<Self>,
        message: &Message,
        session: Option<SessionId>,
        interim: Option<mpsc::Sender<Bytes>>,
        origin: Origin,
        permit: mpsc::Permit<'_, Line>,
    ) -> Result<Option<Call>, Failed> {
        let id = message.id().ok_or(Failed::NotSent)?;
        let (outcome, answered) = oneshot::channel();
        let token = message.progress_token();
        let wire = self.with(|state| {
            match (origin, &*self.readiness.borrow()) {
                // The server that it was admitted for is gone, and its successor is of the other era.
                (Origin::Client(Era::Modern), Readiness::Ready(Era::Legacy)) => return Err(Failed::Gone),
                (Origin::Handshake, _) | (_, Readiness::Ready(_)) => {}
                _ => return Ok(None),
            }
            if let Some(one) = session.as_ref().and_then(|session| state.sessions.get_mut(session)) {
                one.used = Some(Instant::now());
            }
            let wire = state.new_id();
            let number = Id::number(wire);
            let mut edits = vec![Edit::set(&["id"], &number)];
            // Also where nobody hears of progress: the caller's own token could be somebody else's number.
            if token.is_some() {
                edits.push(Edit::set(&["params", "_meta", "progressToken"], &number));
            }
            let changed = splice::apply(message, &edits).map_err(|_| Failed::NotSent)?;
            let method = message.method().unwrap_or_default();
            // The proxy's own lists are of the server's era. Clients of the legacy era repeat nothing in headers.
            let is_learnt_from = method == "tools/list" && origin != Origin::Client(Era::Legacy);
            let work = Work::of(method, origin);
            // Only 2026-07-28 has requests that ask for a log.
            let logs = if work == Work::Told { logging::asked_for(message) } else { None };
            let is_handshake = method == "initialize";
            let waiter = Waiter {
                id,
                is_handshake,
                session,
                token,
                interim,
                is_learnt_from,
                is_taken: false,
                work,
                logs,
                outcome,
            };
            state.waiting.insert(wire, waiter);
            let source = message.body().clone();
            permit.send(Line { request: Some(wire), bytes: lines::frame(&changed), source });
            Ok(Some(wire))
        })?;
        Ok(wire.map(|wire| Call::new(self.clone(), wire, answered)))
    }
}

// === impl Failed ===

impl Failed {
    /// What to answer instead.
    pub(crate) fn body(self, id: Option<&Id>) -> Bytes {
        match self {
            Self::NotSent => answer::internal(id),
            Self::Unavailable(why) => {
                answer::error(id, answer::INTERNAL_ERROR, &format!("the server is not available: {why}"), None)
            }
            Self::Gone => {
                let text = "the server went away before it answered; it is being started again, so try once more";
                answer::error(id, answer::INTERNAL_ERROR, text, None)
            }
            Self::Malformed => {
                let text = "the server answered with something that is no message; its log may say why";
                answer::error(id, answer::INTERNAL_ERROR, text, None)
            }
            Self::Timeout => answer::timeout(id),
            Self::Cancelled => answer::error(id, answer::TIMEOUT, "the request was cancelled", None),
        }
    }
}

// === impl Work ===

impl Work {
    /// What may come of a request. A subscription of 2026-07-28 stays open while nothing is done for it: what it is about names it.
    fn of(method: &str, origin: Origin) -> Self {
        match (origin, method) {
            (Origin::Proxy | Origin::Handshake, _)
            | (Origin::Client(_), "initialize")
            | (Origin::Client(Era::Modern), "subscriptions/listen") => Self::Nobodys,
            (Origin::Client(Era::Modern), _) => Self::Told,
            (Origin::Client(Era::Legacy), _) => Self::Asked,
        }
    }
}

// === impl Outcome ===

impl Outcome {
    /// The answer, or why there is none.
    pub(crate) fn answer(self) -> Result<Message, Failed> {
        match self {
            Self::Answer(answer) => Ok(*answer),
            Self::Malformed => Err(Failed::Malformed),
            Self::Gone => Err(Failed::Gone),
            Self::Cancelled => Err(Failed::Cancelled),
        }
    }
}

// === impl Waiter ===

impl Waiter {
    /// Whether the server may have something to tell because of it.
    pub(super) fn is_work(&self) -> bool {
        self.work != Work::Nobodys
    }

    /// Whether it may have something to ask because of it.
    pub(super) fn can_be_asked(&self) -> bool {
        self.work == Work::Asked
    }

    pub(super) fn settle(self, outcome: Outcome) {
        // The caller may have gone.
        let _gone = self.outcome.send(outcome);
    }
}

// === impl Call ===

impl Call {
    pub(super) fn new(bridge: Arc<Bridge>, wire: u64, outcome: oneshot::Receiver<Outcome>) -> Self {
        Self { bridge, wire, outcome, settled: false }
    }

    /// Waits for the answer. Can be given up and taken up again.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        let outcome = (&mut self.outcome).await.unwrap_or(Outcome::Gone);
        self.settled = true;
        outcome
    }

    /// Waits for the answer until then, and longer while the server waits for the caller.
    pub(crate) async fn outcome_by(&mut self, mut until: Instant, timeout: Duration) -> Result<Message, Failed> {
        loop {
            if let Ok(outcome) = tokio::time::timeout_at(until, self.outcome()).await {
                return outcome.answer();
            }
            until = self.more_time(timeout).ok_or(Failed::Timeout)?;
        }
    }

    /// Waits for the answer as long as it takes once the server has the request, and until then for that.
    pub(crate) async fn outcome_once_taken(&mut self, until: Instant) -> Result<Message, Failed> {
        match tokio::time::timeout_at(until, self.outcome()).await {
            Ok(outcome) => outcome.answer(),
            Err(_elapsed) if self.bridge.is_taken(self.wire) => self.outcome().await.answer(),
            Err(_elapsed) => Err(Failed::Timeout),
        }
    }

    /// Until when the server may still be silent, now that its time is over.
    pub(super) fn more_time(&self, timeout: Duration) -> Option<Instant> {
        self.bridge.more_time(self.wire, timeout)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.settled {
            self.bridge.abandon(self.wire);
        }
    }
}
