//! Step 5, status: what a plan says about a resource, and whatever of its metadata changes with that.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};
use skep_api::resource::Resource;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::plan::{Finalizer, Plan};
use skep_plan::unplanned::{Unreadable, plan_unreadable};

use super::{ReconcileError, Reconciler};
use crate::queue::Done;

impl Reconciler {
    /// Writes the status, then the annotations, then releases the finalizer: once that is gone, so is a resource that is being deleted.
    pub(super) async fn report(&self, me: &Resource, plan: &Plan) -> Result<(), ReconcileError> {
        self.write_status(me, plan).await?;
        let changed: Map<String, Value> = plan
            .annotations
            .iter()
            .filter(|(name, value)| {
                let known = me.metadata().annotations.as_ref().and_then(|known| known.get(*name));
                known.map(String::as_str) != value.as_str()
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !changed.is_empty() {
            self.change_metadata(me.kind(), self.fresh(me).metadata(), "annotations", Value::Object(changed)).await?;
        }
        if plan.finalizer == Finalizer::Release {
            self.set_finalizer(me.kind(), self.fresh(me).metadata(), false).await?;
        }
        Ok(())
    }

    /// Writes a status, if it differs, and publishes the conditions that turned.
    pub(super) async fn write_status(&self, me: &Resource, plan: &Plan) -> Result<(), ReconcileError> {
        let old = me.status_value();
        let new = plan.status.onto(&old, me.generation(), &now());
        // The difference to what is stored: a status of another release that cannot be read is replaced.
        let written = self.writer.status(me.kind(), me.metadata(), &me.stored_status(), &new).await?;
        if let Some(written) = written {
            self.events.transitions(me, &old, &plan.status).await;
            let is_new = old.get("observedGeneration") != Some(&me.generation().into());
            if let Some(notice) = plan.notice.as_ref().filter(|_| is_new) {
                self.events.notice(me, notice).await;
            }
            // What else changed was written by another client; when the watch shows it later, it is nothing new.
            self.wake(self.store.put_response(me.kind(), written));
        }
        Ok(())
    }

    /// Writes the status of an object that cannot be read, and releases its finalizer if its plan does. Nothing else of it is touched.
    pub(super) async fn report_unreadable(
        &self,
        key: &Key,
        metadata: &ObjectMeta,
        status: &Value,
        problem: &str,
    ) -> Result<Done, ReconcileError> {
        let ObjectKind::Kind(kind) = key.kind else { return Ok(Done::Settled) };
        let (users, live) = self.store.surroundings(key);
        let is_deleting = metadata.deletion_timestamp.is_some();
        let plan = plan_unreadable(&Unreadable { kind, problem, status, is_deleting, users: &users, live: &live });
        if plan.finalizer == Finalizer::Release {
            self.set_finalizer(kind, metadata, false).await?;
            return Ok(Done::Settled);
        }
        let new = plan.status.onto(status, metadata.generation.unwrap_or_default(), &now());
        if let Some(written) = self.writer.status(kind, metadata, status, &new).await? {
            self.wake(self.store.put_response(kind, written));
        }
        Ok(if plan.recheck { Done::Again(self.recheck) } else { Done::Settled })
    }
}

/// The time, as conditions carry it.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
