//! A call of a client, as the breaker of its backend counts it: whether the backend responded, and in good time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skep_upstream::CallError;
use tokio::time::Instant;

use super::breaker::Permit;
use crate::backend::Backend;
use crate::backends::Backends;

/// The part of a backend's timeout after which a response is late: half of it.
const LATE: u32 = 2;

/// A call at a backend. One that is dropped before it ended was cancelled, and says nothing about the backend.
#[derive(Debug)]
pub(crate) struct ObservedCall {
    backends: Arc<Backends>,
    backend: Arc<Backend>,
    /// What permitted it, until its end is counted.
    permit: Option<Permit>,
    times: Arc<CallTimes>,
}

/// When a backend sent something during a call.
#[derive(Debug)]
pub(crate) struct CallTimes(Mutex<Times>);

#[derive(Clone, Copy, Debug)]
struct Times {
    last_message: Instant,
    /// Whether the backend waited for the client: what it took is not its own time alone.
    asked: bool,
}

/// What a call says about its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It responded in good time.
    Up,
    /// It is not there, or takes longer than it should.
    Failed,
    /// Nothing: it is busy, or the client is at fault.
    Inconclusive,
}

// === impl CallTimes ===

impl CallTimes {
    fn begin() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Times { last_message: Instant::now(), asked: false })))
    }

    /// The backend sent a message before the response; it may be a request for the client.
    pub(crate) fn message(&self, is_request: bool) {
        let mut times = self.lock();
        times.last_message = Instant::now();
        times.asked |= is_request;
    }

    /// Whether a response that comes now is late for a backend with this timeout.
    fn is_late(&self, timeout: Duration) -> bool {
        let times = *self.lock();
        let silent = times.last_message.elapsed();
        // It is cut when it is silent for longer than that, so there was something that is not seen here.
        !times.asked && silent > timeout / LATE && silent <= timeout
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ObservedCall ===

impl ObservedCall {
    /// Begins a call, if the breaker permits it.
    pub(crate) fn begin(backends: &Arc<Backends>, backend: &Arc<Backend>) -> Option<Self> {
        let before = backend.health.known().breaker;
        let permit = backend.health.permit_call();
        // An open breaker may be half-open now.
        if backend.health.known().breaker != before {
            backends.changed();
        }
        let permit = Some(permit?);
        Some(Self { backends: backends.clone(), backend: backend.clone(), permit, times: CallTimes::begin() })
    }

    /// When the backend sent something.
    pub(crate) fn times(&self) -> &Arc<CallTimes> {
        &self.times
    }

    /// The call ended.
    pub(crate) fn end(&mut self, error: Option<&CallError>) {
        let outcome = match error {
            None if self.times.is_late(self.backend.spec.timeout) => Outcome::Failed,
            None => Outcome::Up,
            // The server is not there, or takes longer than it may.
            Some(CallError::Timeout | CallError::Unavailable(_) | CallError::Disconnected) => Outcome::Failed,
            // It answered, or the client is at fault.
            Some(_) => Outcome::Inconclusive,
        };
        self.settle(outcome);
    }

    fn settle(&mut self, outcome: Outcome) {
        let Some(permit) = self.permit.take() else { return };
        if self.backend.health.note_call(&permit, outcome) {
            let breaker = self.backend.health.known().breaker.as_str();
            tracing::warn!(backend = &**self.backend.name(), breaker, "circuit breaker changed by a call of a client");
            self.backends.changed();
        }
    }
}

impl Drop for ObservedCall {
    fn drop(&mut self) {
        self.settle(Outcome::Inconclusive);
    }
}
