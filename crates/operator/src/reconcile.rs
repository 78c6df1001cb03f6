//! Reconciling one resource: the same steps for all kinds, one file per step, one plan.
//!
//! ```text
//!   gather ──▶ plan (pure) ──▶ apply ──▶ prune ──▶ status          worker: queue, timeout, backoff
//! ```
//!
//! An error is only ever "could not read" or "could not write"; it is returned, and the queue retries with backoff. One that comes
//! again is a condition as well ([`failures`]): what is planned is not applied then. What is wrong with
//! a resource itself is a condition in its status, and is not retried until something changes.

mod apply;
mod children;
mod failures;
mod field_conflict;
mod gather;
mod metadata;
mod prune;
mod status;
mod worker;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::plan::plan;
use skep_plan::unplanned::{FIELD_CONFLICT, plan_failing};
use skep_plan::world::{Policies, Settings, World};

pub use self::children::Applier;
use self::children::NameConflict;
pub use self::failures::Failures;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::queue::{Done, Queue};
use crate::session_key::SessionKeys;
use crate::store::{Entry, Snapshot, Store, Wake};
use crate::write::{WriteError, Writer, is_terminating};

/// Everything that a reconcile needs.
pub struct Reconciler {
    /// How this operator is set up.
    pub settings: Settings,
    /// Checks authorization policies.
    pub policies: Box<dyn Policies>,
    /// What the watches have shown.
    pub store: Arc<Store>,
    /// What to reconcile next.
    pub queue: Arc<Queue>,
    /// What is counted.
    pub metrics: Metrics,
    /// Reads Secrets and ConfigMaps.
    pub client: Client,
    /// Sends writes.
    pub writer: Writer,
    /// Applies children.
    pub applier: Applier,
    /// Publishes events.
    pub events: Events,
    /// The session keys that were checked.
    pub session_keys: SessionKeys,
    /// The resources whose reconciles keep failing.
    pub failures: Failures,
    /// How often a blocked deletion is checked again.
    pub recheck: Duration,
    /// How long one reconcile may take.
    pub timeout: Duration,
}

/// Why a reconcile did not come to its end.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot read {kind} `{name}`")]
    Read { kind: ObjectKind, name: String, source: Box<kube::Error> },
    #[error("it took longer than {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("reconcile panicked: {0}")]
    Panic(String),
    /// The status says what is the case, or its write is what failed: the failure itself changes nothing about it.
    #[error(transparent)]
    Reported(Box<Self>),
}

/// How one pass over a resource ended.
#[derive(Debug)]
enum Pass {
    /// At its end.
    Done(Done),
    /// The plan is out of date: applying it brought this to light, or changed what it was made from.
    PlanAgain(Findings),
}

/// What a pass found out that no watch shows, for the plan of the next one.
#[derive(Debug, Default)]
struct Findings {
    /// The children whose names are in use; nothing if the names were not looked up yet.
    conflicts: Option<BTreeSet<NameConflict>>,
    /// The child that the API server rejected.
    rejection: Option<WriteError>,
}

// === impl Reconciler ===

impl Reconciler {
    /// Reconciles a resource: one pass, with one plan.
    ///
    /// | step | what it does | client |
    /// | --- | --- | --- |
    /// | [`gather`](Self::gather) | the resource, what it refers to, who refers to it, what runs for it, and who owns the names of its children | reads what no watch shows |
    /// | [`plan`] | decides | none |
    /// | [`apply`](Self::apply) | finalizer, generated Secret, children, ownership of the backend | writes |
    /// | [`prune`](Self::prune) | children that are not planned any more, the backend of a deleted resource, pods to restart | writes |
    /// | [`report`](Self::report) | status and events, annotations, release of the finalizer | writes |
    async fn reconcile(&self, key: &Key, findings: Findings) -> Result<Pass, ReconcileError> {
        if let Some(done) = self.settle_unplanned(key).await? {
            return Ok(Pass::Done(done));
        }
        let Some(gathered) = self.gather(key, &findings).await? else { return Ok(Pass::Done(Done::Settled)) };
        let me = gathered.me.as_ref();
        let plan = plan(me, &self.world(&gathered));
        if let Some(error) = findings.rejection {
            // The status says so; only people can help. It is still retried, slowly: the API server may accept it with another version
            // or other admission plugins.
            self.write_status(me, &plan).await.map_err(ReconcileError::reported)?;
            return Err(ReconcileError::reported(error.into()));
        }
        let retry_after = match self.apply(me, &plan, &gathered).await? {
            ControlFlow::Continue(retry_after) => retry_after,
            ControlFlow::Break(pass) => return Ok(pass),
        };
        self.prune(me, &plan, &gathered).await?;
        let field_conflicts = self.applier.open_field_conflicts(me, &plan.children);
        let contested =
            field_conflicts.as_ref().and_then(|(why, _)| plan_failing(me, &gathered.live, FIELD_CONFLICT, why));
        match contested {
            Some(contested) => self.write_status(me, &contested).await,
            None => self.report(me, &plan).await,
        }
        .map_err(ReconcileError::reported)?;
        let settles = gathered.settles.map(|at| at.duration_since(jiff::Timestamp::now()));
        let settles = settles.map(|after| Duration::try_from(after).unwrap_or_default());
        let conflict_ends = field_conflicts.map(|(_, left)| left);
        let again =
            [settles, retry_after, conflict_ends, plan.recheck.then_some(self.recheck)].into_iter().flatten().min();
        Ok(Pass::Done(again.map_or(Done::Settled, Done::Again)))
    }

    /// Settles a resource that cannot be planned: it is gone, in a namespace that is not watched, or cannot be read. Nothing for one
    /// that can.
    async fn settle_unplanned(&self, key: &Key) -> Result<Option<Done>, ReconcileError> {
        match self.store.entry(key) {
            None => {
                self.applier.forget(key);
                self.session_keys.forget(key);
                self.failures.forget(key);
                Ok(Some(Done::Settled))
            }
            // It is queued again when the last watch has listed what there is.
            Some(_) if self.store.is_unseen(&key.namespace) => {
                tracing::debug!(%key, "namespace is not watched");
                Ok(Some(Done::Settled))
            }
            Some(Entry::Unreadable { metadata, status, problem, .. }) => {
                tracing::warn!(%key, %problem, "skipping malformed object");
                self.report_unreadable(key, &metadata, &status, &problem).await.map(Some)
            }
            Some(Entry::Readable(_)) => Ok(None),
        }
    }

    fn world<'a>(&'a self, gathered: &'a Snapshot) -> World<'a> {
        World {
            settings: &self.settings,
            found: &gathered.found,
            users: &gathered.users,
            live: &gathered.live,
            policies: self.policies.as_ref(),
        }
    }

    fn wake(&self, wake: Wake) {
        wake.now.into_iter().chain(wake.soon).for_each(|key| self.queue.add(key));
    }
}

impl std::fmt::Debug for Reconciler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reconciler").field("settings", &self.settings).finish_non_exhaustive()
    }
}

// === impl ReconcileError ===

impl ReconcileError {
    const fn category(&self) -> &'static str {
        match self {
            Self::Write(error) => error.category(),
            Self::Read { .. } => "read",
            Self::Timeout(_) => "timeout",
            Self::Panic(_) => "panic",
            Self::Reported(cause) => cause.category(),
        }
    }

    /// A failure that the status does not have to report.
    fn reported(cause: Self) -> Self {
        Self::Reported(Box::new(cause))
    }

    /// What failed, whether the status reports it or not.
    fn into_cause(self) -> Self {
        if let Self::Reported(cause) = self { *cause } else { self }
    }

    /// After how many failures in a row the status reports one; nothing for one that it never reports. A single one may be over with
    /// the next retry, and what the API server does not know yet it learns within seconds.
    fn tolerated(&self) -> Option<u32> {
        match self {
            Self::Reported(_) | Self::Write(WriteError::Conflict { .. }) => None,
            _ if self.is_terminating() => None,
            Self::Write(WriteError::NotYet { .. }) => Some(5),
            Self::Write(error) if error.is_gone() => Some(5),
            Self::Write(_) | Self::Read { .. } | Self::Timeout(_) | Self::Panic(_) => Some(1),
        }
    }

    /// Whether nothing could be created because the namespace is being deleted.
    fn is_terminating(&self) -> bool {
        match self {
            Self::Write(error) => matches!(error, WriteError::NamespaceTerminating { .. }),
            Self::Read { source, .. } => matches!(source.as_ref(), kube::Error::Api(status) if is_terminating(status)),
            Self::Timeout(_) | Self::Panic(_) => false,
            Self::Reported(cause) => cause.is_terminating(),
        }
    }
}
