//! The worker: takes keys from the queue, reconciles them, and decides by the outcome when each is due again.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use skep_plan::key::Key;

use super::{Findings, Pass, ReconcileError, Reconciler};
use crate::failure::describe;
use crate::queue::Done;
use crate::write::WriteError;

/// How long to wait for the watch to show what another client wrote.
pub(super) const AFTER_CONFLICT: Duration = Duration::from_millis(50);
/// How long to wait before anything is created again in a namespace that is being deleted.
const WHILE_TERMINATING: Duration = Duration::from_secs(30);
/// How many passes one reconcile may take: one that creates the session key, one that applies the workload, one that reports, and as
/// many again for what changes meanwhile.
const PASSES: usize = 6;

impl Reconciler {
    /// Takes resources from the queue and reconciles them, one after the other, for ever.
    pub async fn work(&self) {
        loop {
            let (key, waited) = self.queue.next().await;
            self.metrics.taken(waited, self.queue.depth());
            let started = Instant::now();
            let ended = self.attempt(&key).await;
            self.note_failure(&key, ended.as_ref().err()).await;
            let (category, done) = self.outcome(&key, ended.map_err(ReconcileError::into_cause));
            self.metrics.reconciled(&key.kind.to_string(), category, started.elapsed());
            self.queue.finish(key, done);
        }
    }

    /// One reconcile, no longer than it may take.
    async fn attempt(&self, key: &Key) -> Result<Done, ReconcileError> {
        // Boxed: it is large, and every worker would carry the room for it.
        bounded(self.timeout, Box::pin(self.passes(key))).await
    }

    /// Reconciles until a pass comes to its end. A pass that changes what its plan was made from stops there, and the next one plans
    /// with what it found.
    async fn passes(&self, key: &Key) -> Result<Done, ReconcileError> {
        let mut findings = Findings::default();
        for _ in 0..PASSES {
            match self.reconcile(key, findings).await? {
                Pass::Done(done) => return Ok(done),
                Pass::PlanAgain(found) => findings = found,
            }
        }
        Ok(Done::Failed)
    }

    /// The category of an outcome for metrics, and when the resource is due again.
    fn outcome(&self, key: &Key, ended: Result<Done, ReconcileError>) -> (&'static str, Done) {
        match ended {
            Ok(done) => ("ok", done),
            Err(ReconcileError::Write(WriteError::Conflict { object })) => {
                tracing::debug!(%key, %object, "write conflict; reconciling again");
                ("conflict", Done::Again(AFTER_CONFLICT))
            }
            Err(ReconcileError::Write(error @ WriteError::NotYet { .. })) => {
                tracing::debug!(%key, %error, "retrying with backoff");
                (error.category(), Done::Failed)
            }
            // It was deleted meanwhile, and the watch will show that; a watch that is down does not, so retry with backoff.
            Err(ReconcileError::Write(gone)) if gone.is_gone() => ("gone", Done::Failed),
            Err(error) if error.is_terminating() => {
                tracing::debug!(%key, error = describe(&error), "namespace is terminating");
                ("terminating", Done::Again(WHILE_TERMINATING))
            }
            Err(error) => {
                if let ReconcileError::Panic(_) = error {
                    self.metrics.panicked(&key.kind.to_string());
                }
                tracing::warn!(%key, error = describe(&error), "reconcile failed; retrying with backoff");
                (error.category(), Done::Failed)
            }
        }
    }
}

/// Runs one reconcile, or a part of one, no longer than it may take. A panic ends it alone: what is shared is changed by single calls,
/// and what is in flight is given up by guards that are dropped.
pub(super) async fn bounded<T>(
    timeout: Duration,
    reconcile: impl Future<Output = Result<T, ReconcileError>>,
) -> Result<T, ReconcileError> {
    match AssertUnwindSafe(tokio::time::timeout(timeout, reconcile)).catch_unwind().await {
        Ok(ended) => ended.unwrap_or(Err(ReconcileError::Timeout(timeout))),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(ReconcileError::Panic(text.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reconcile_that_waits_for_ever_is_ended() {
        let ended = bounded(Duration::ZERO, std::future::pending::<Result<(), _>>()).await;
        assert_eq!(ended.unwrap_err().to_string(), "it took longer than 0 s");
    }
}
