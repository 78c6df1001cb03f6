//! Why a store has no answer.

use crate::redis::Cause;

/// A store has no answer. Not that the answer is "nothing": that is no error.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The server is down, unreachable, too slow, or does not let us in. It may answer later.
    #[error("the store does not answer: {0}")]
    Unavailable(Cause),
    /// A session is larger than the share of one client in the memory of this process.
    #[error("the session is larger than all sessions of one client may be together")]
    Full,
    /// What is stored there was not written by us, or is damaged.
    #[error("session `{id}` is stored in a form that cannot be read")]
    Unreadable {
        /// The session.
        id: String,
        /// Where reading it stopped.
        source: serde_json::Error,
    },
}

impl StoreError {
    /// What went wrong, in one word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Full => "full",
            Self::Unreadable { .. } => "unreadable",
        }
    }
}
