//! Step 4, prune: children that are not planned any more, the backend of a deleted resource, and pods that are to be replaced.

use skep_api::resource::Resource;
use skep_plan::kinds::Backend;
use skep_plan::plan::{BackendAction, Plan, Verdict};

use super::children::child_id;
use super::{ReconcileError, Reconciler};
use crate::store::Snapshot;

impl Reconciler {
    /// Deletes what a plan no longer has. Every object is deleted by its uid, so a new one of the same name stays.
    pub(super) async fn prune(&self, me: &Resource, plan: &Plan, gathered: &Snapshot) -> Result<(), ReconcileError> {
        if plan.verdict == Verdict::Apply {
            self.applier.prune(me, &plan.children, &gathered.children).await?;
        }
        if plan.backend == BackendAction::Delete {
            self.delete_backend(me).await?;
        }
        self.writer.delete_pods(me.namespace(), &plan.delete_pods).await?;
        Ok(())
    }

    /// Deletes the StatefulSet that a proxy made for this resource, and none that only has its name; what it owns goes with it.
    async fn delete_backend(&self, me: &Resource) -> Result<(), ReconcileError> {
        let id = child_id(me, Backend::KIND, me.name());
        if let Some(facts) = self.store.child(&id)
            && facts.is_backend_of(me.name(), me.metadata().uid.as_deref())
        {
            self.writer.delete(&id, &facts.uid).await?;
        }
        Ok(())
    }
}
