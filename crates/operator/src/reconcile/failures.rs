//! Reconciles that keep failing: the status of a resource says so, or it would go on saying that the current plan is ready.
//!
//! A single failure is not reported: most are over with the next retry. Neither is each of a series: its first message stands for all of
//! them, as the API server's own may name a port or an id that is another one each time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use skep_plan::key::Key;
use skep_plan::unplanned;

use super::worker::bounded;
use super::{ReconcileError, Reconciler};
use crate::failure::describe;

/// The failures in a row of each resource whose last reconcile failed.
#[derive(Debug, Default)]
pub struct Failures(Mutex<HashMap<Key, Series>>);

/// Failures in a row.
#[derive(Debug, Default)]
struct Series {
    count: u32,
    /// What could not be done, without its cause.
    attempt: String,
    /// The same with the cause that it had first.
    message: String,
}

// === impl Failures ===

impl Failures {
    /// Notes a failure. Returns what the status is to say of it, if that is due.
    fn note(&self, key: &Key, error: &ReconcileError) -> Option<String> {
        let mut all = self.lock();
        let Some(tolerated) = error.tolerated() else {
            // The status reports it already, so the series ends.
            all.remove(key);
            return None;
        };
        let series = all.entry(key.clone()).or_default();
        series.count = series.count.saturating_add(1);
        let attempt = error.to_string();
        if series.attempt != attempt {
            (series.attempt, series.message) = (attempt, describe(error));
        }
        (series.count > tolerated).then(|| series.message.clone())
    }

    /// Forgets the failures of a resource that was reconciled, or is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Series>> {
        // A thread that panicked left the map whole: every change of it is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Reconciler ===

impl Reconciler {
    /// Notes how a reconcile ended, and writes to the status that it keeps failing, if it does.
    pub(super) async fn note_failure(&self, key: &Key, failed: Option<&ReconcileError>) {
        let Some(error) = failed else { return self.failures.forget(key) };
        let Some(message) = self.failures.note(key, error) else { return };
        if let Err(error) = bounded(self.timeout, self.report_failure(key, &message)).await {
            // It is due again with the next retry.
            tracing::debug!(%key, error = describe(&error), "failure not reported");
        }
    }

    async fn report_failure(&self, key: &Key, message: &str) -> Result<(), ReconcileError> {
        let Some(seen) = self.store.snapshot(key).filter(|seen| !seen.me.is_deleting()) else { return Ok(()) };
        let me = seen.me.as_ref();
        match unplanned::plan_failing(me, &seen.live, unplanned::APPLY_FAILED, message) {
            Some(plan) => self.write_status(me, &plan).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use skep_api::resource::KindName;

    use super::*;
    use crate::write::WriteError;

    fn failed(object: &str, cause: &str) -> ReconcileError {
        let source = Box::new(kube::Error::Service(cause.into()));
        WriteError::Api { verb: "write", object: object.into(), source }.into()
    }

    #[test]
    fn a_failure_is_reported_when_it_repeats_with_its_first_message() {
        let (failures, key) = (Failures::default(), Key::resource(KindName::MCPServer, "ns", "s"));
        let note = |error: &ReconcileError| failures.note(&key, error);
        assert_eq!(note(&failed("Service a", "request 1")), None);
        let reported = Some("cannot write `Service a`: request 1".to_owned());
        assert_eq!(note(&failed("Service a", "request 2")), reported);
        assert_eq!(note(&failed("Service a", "request 3")), reported);
        assert_eq!(note(&failed("Role a", "request 4")), Some("cannot write `Role a`: request 4".to_owned()));
        failures.forget(&key);
        assert_eq!(note(&failed("Service a", "request 5")), None);
    }

    #[test]
    fn failures_that_the_status_reports_already_or_that_pass_are_not_reported() {
        let (failures, key) = (Failures::default(), Key::resource(KindName::MCPServer, "ns", "s"));
        let not_yet = || WriteError::NotYet { object: "RoleBinding a".into(), message: "no role".into() }.into();
        let conflict = WriteError::Conflict { object: "a".into() }.into();
        for error in [ReconcileError::reported(failed("Service a", "refused")), conflict] {
            assert!((0..9).all(|_| failures.note(&key, &error).is_none()), "{error}");
        }
        assert!((0..5).all(|_| failures.note(&key, &not_yet()).is_none()));
        assert!(failures.note(&key, &not_yet()).is_some());
    }
}
