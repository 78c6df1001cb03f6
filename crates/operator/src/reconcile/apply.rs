//! Step 3, apply: the finalizer, the generated Secret, the children, and the ownership of a backend.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use skep_api::resource::Resource;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::kinds::Backend;
use skep_plan::plan::{BackendAction, Finalizer, GeneratedSecret, Notice, Plan, Verdict};

use super::children::{NameConflict, Outcome, child_id};
use super::worker::AFTER_CONFLICT;
use super::{Findings, Pass, ReconcileError, Reconciler};
use crate::queue::Done;
use crate::store::Snapshot;
use crate::write::WriteError;

impl Reconciler {
    /// Applies a plan. Returns after which time to apply it again, if another manager keeps changing a child. Breaks off where the plan is out of date: what it could not know is found out by applying it.
    pub(super) async fn apply(
        &self,
        me: &Resource,
        plan: &Plan,
        gathered: &Snapshot,
    ) -> Result<ControlFlow<Pass, Option<Duration>>, ReconcileError> {
        if plan.finalizer == Finalizer::Hold && !me.is_deleting() {
            self.set_finalizer(me.kind(), me.metadata(), true).await?;
        }
        if let Verdict::Wait(why) | Verdict::Refuse(why) = &plan.verdict {
            tracing::debug!(kind = %me.kind(), namespace = me.namespace(), name = me.name(), why, "children left as they are");
            return Ok(ControlFlow::Continue(None));
        }
        let names = &gathered.live.name_conflicts;
        if let Some(wanted) = plan.generated_secret.as_ref().filter(|_| gathered.live.session_key.is_none()) {
            // The pods carry a digest of it from the first: they would roll when it is known.
            return Ok(ControlFlow::Break(self.create_secret(me, wanted, names).await?));
        }
        let retry_after = match self.applier.apply(me, &plan.children).await {
            Ok(Outcome::Applied { workload_changed: false, field_conflict_reports, retry_after }) => {
                for message in field_conflict_reports {
                    let notice = Notice { reason: "FieldConflict".to_owned(), message };
                    self.events.notice(me, &notice).await;
                }
                retry_after
            }
            // The plan was made when all pods were of the workload's template before, and calls them those of its own.
            Ok(Outcome::Applied { workload_changed: true, .. }) => {
                return Ok(ControlFlow::Break(plan_again(names.clone(), None)));
            }
            Ok(Outcome::NamesInUse(conflicts)) => return Ok(ControlFlow::Break(plan_again(conflicts, None))),
            Err(error) if error.refusal().is_some() => {
                return Ok(ControlFlow::Break(plan_again(names.clone(), Some(error))));
            }
            Err(error) => return Err(error.into()),
        };
        if plan.backend == BackendAction::Adopt {
            self.adopt_backend(me).await?;
        }
        Ok(ControlFlow::Continue(retry_after))
    }

    /// Creates a Secret with random content. If another client was quicker, the watch will show theirs.
    async fn create_secret(
        &self,
        me: &Resource,
        wanted: &GeneratedSecret,
        names: &BTreeSet<NameConflict>,
    ) -> Result<Pass, ReconcileError> {
        let Some(version) = self.writer.create_secret(me, wanted).await? else {
            return Ok(Pass::Done(Done::Again(AFTER_CONFLICT)));
        };
        let namespace = me.namespace().to_owned();
        let key = Key { kind: ObjectKind::Secret, namespace, name: wanted.name.clone() };
        let mut wake = self.store.content_changed(&key, Some(&version));
        wake.now.remove(&Key::of(me));
        self.wake(wake);
        Ok(plan_again(names.clone(), None))
    }

    /// Makes a resource the controller of the StatefulSet that its proxy made, in the version that is served, so that it is garbage
    /// collected with the resource.
    async fn adopt_backend(&self, me: &Resource) -> Result<(), ReconcileError> {
        let id = child_id(me, Backend::KIND, me.name());
        let api_version = self.writer.api_version(me.kind());
        if let Some(facts) = self.store.child(&id)
            && facts.is_backend_of(me.name(), me.metadata().uid.as_deref())
            && facts.owner.as_ref().is_none_or(|owner| owner.api_version != api_version)
        {
            self.writer.adopt(me, &id, &facts.uid).await?;
        }
        Ok(())
    }
}

const fn plan_again(conflicts: BTreeSet<NameConflict>, rejection: Option<WriteError>) -> Pass {
    Pass::PlanAgain(Findings { conflicts: Some(conflicts), rejection })
}
