//! Errors of the store.

use crate::redis::UnavailableError;

/// A store could not respond. A missing session is not an error.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The server is down, unreachable, too slow, or denies access. A retry may succeed.
    #[error("the store is unavailable: {0}")]
    Unavailable(UnavailableError),
    /// A session is larger than the share of one client in the memory of this process.
    #[error("the session is larger than all sessions of one client may be together")]
    Full,
    /// The stored value was not written by us, or is damaged.
    #[error("session `{id}` cannot be decoded from the store")]
    Unreadable {
        /// The session.
        id: String,
        /// The decoding error.
        source: serde_json::Error,
    },
}

impl StoreError {
    /// A constant name for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Full => "full",
            Self::Unreadable { .. } => "unreadable",
        }
    }
}
