//! One request on its way to the server and back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Id, Message, answer};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::bridge::{Bridge, SessionId};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The request could not be handed over.
    NotSent,
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
    pub(super) method: String,
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
    pub(super) outcome: oneshot::Sender<Outcome>,
}

/// What the server may have to say to a caller because of a request, beside the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing: it is the proxy's own, or the handshake, which has no session yet.
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

// === impl Failed ===

impl Failed {
    /// What to answer instead.
    pub(crate) fn body(self, id: Option<&Id>) -> Bytes {
        match self {
            Self::NotSent => answer::internal(id),
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
