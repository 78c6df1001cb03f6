//! Step 5, status: what a plan says about a resource, and whatever of its metadata changes with that.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};
use skep_api::resource::Resource;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::plan::{Finalizer, Plan};
use skep_plan::validate::in_one_line;

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
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let old = me.status_value();
        let new = plan.status.onto(&old, me.generation(), &now);
        // The difference to what is stored: a status of another release that cannot be read is replaced.
        if let Some(written) = self.writer.status(me, &me.stored_status(), &new).await? {
            self.events.transitions(me, &old, &plan.status).await;
            let is_new = old.get("observedGeneration") != Some(&me.generation().into());
            if let Some(notice) = plan.notice.as_ref().filter(|_| is_new) {
                self.events.notice(me, notice).await;
            }
            // What is not of the status was changed by another client, of which the watch may tell later, and then tells nothing new.
            self.wake(self.store.put_answer(me.kind(), written));
        }
        Ok(())
    }

    /// Says on an object that cannot be read what is wrong with it. Nothing else of it is touched, but that its finalizer is released
    /// when it is deleted and nothing uses it: its children go by their owner references.
    pub(super) async fn report_unreadable(
        &self,
        key: &Key,
        metadata: &ObjectMeta,
        problem: &str,
    ) -> Result<Done, ReconcileError> {
        let ObjectKind::Kind(kind) = key.kind else { return Ok(Done::Settled) };
        if metadata.deletion_timestamp.is_none() {
            self.writer.unreadable(kind, metadata, problem).await?;
            return Ok(Done::Settled);
        }
        let users = self.store.user_count(key);
        let mut why: Vec<String> = self.store.possible_users(key).into_iter().collect();
        if users > 0 {
            why.insert(0, format!("{users} objects refer to it"));
        }
        if why.is_empty() {
            self.set_finalizer(kind, metadata, false).await?;
            return Ok(Done::Settled);
        }
        let problem = format!("{problem}; its deletion is blocked: {}", in_one_line(&why));
        self.writer.unreadable(kind, metadata, &problem).await?;
        Ok(Done::Again(self.recheck))
    }
}
