//! A call whose response a task of its own hands on.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::replies::InFlight;

/// A call that a task relays. With the task ends the call at the server.
#[derive(Debug)]
pub struct RelayedCall {
    inner: Option<Arc<dyn InFlight>>,
    task: AbortHandle,
}

// === impl RelayedCall ===

impl RelayedCall {
    /// A call that is in flight as `inner`, and which `task` owns.
    pub fn new(inner: Option<Arc<dyn InFlight>>, task: AbortHandle) -> Self {
        Self { inner, task }
    }
}

impl InFlight for RelayedCall {
    fn cancel(&self) {
        self.task.abort();
    }

    fn is_sent(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.is_sent())
    }

    fn extended_deadline(&self, timeout: Duration) -> Option<Instant> {
        self.inner.as_ref()?.extended_deadline(timeout)
    }
}
