//! The queue of a session that listens to what the server sends outside of calls.

use bytes::Bytes;
use skep_net::Budget;
use skep_net::budget::Purpose;
use tokio::sync::mpsc;

/// How many messages may wait for one session that listens. What comes beyond that is dropped, with a warning.
pub(crate) const LISTENER: usize = 100;

/// How many bytes the framing of an event adds to its message, at most.
const FRAMING: usize = 64;

/// The queue of a session that listens. What waits in it counts in the share of its client: a client that does not read would otherwise
/// keep as many messages as it can make the server send.
#[derive(Clone, Debug)]
pub struct Listener {
    queue: mpsc::Sender<Bytes>,
    budget: Budget,
}

/// Why a message was not queued for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The session does not listen any more.
    #[error("the session does not listen")]
    Closed,
    /// Too many wait.
    #[error("its client is behind: the queue is full")]
    Full,
    /// There is no room in the share of the client, or at all.
    #[error("its client is behind: no room in the memory budget")]
    OverBudget,
}

// === impl Listener ===

impl Listener {
    /// A queue, and what reads it.
    pub fn new(budget: Budget) -> (Self, mpsc::Receiver<Bytes>) {
        let (queue, receiver) = mpsc::channel(LISTENER);
        (Self { queue, budget }, receiver)
    }

    /// What its messages count in.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Queues a message, without waiting.
    pub fn queue(&self, message: &Bytes) -> Result<(), QueueError> {
        if self.queue.is_closed() {
            return Err(QueueError::Closed);
        }
        // The event that it becomes is a little longer.
        let room = self.budget.try_reserve(message.len() + FRAMING, Purpose::Response);
        let room = room.ok_or(QueueError::OverBudget)?;
        self.queue.try_send(room.over(message.clone())).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => QueueError::Full,
            mpsc::error::TrySendError::Closed(_) => QueueError::Closed,
        })
    }

    /// Whether the session does not listen any more.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Waits until the session does not listen any more.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }
}
