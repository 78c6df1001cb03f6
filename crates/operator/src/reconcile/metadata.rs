//! Changes of a resource's own metadata, for the steps that make them: finalizers and annotations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_plan::key::Key;

use super::{ReconcileError, Reconciler};
use crate::object::Object;

impl Reconciler {
    /// Adds or removes our finalizer; those of other controllers stay.
    pub(super) async fn set_finalizer(
        &self,
        kind: KindName,
        known: &ObjectMeta,
        hold: bool,
    ) -> Result<(), ReconcileError> {
        let Some(ours) = kind.finalizer() else { return Ok(()) };
        let before = known.finalizers.clone().unwrap_or_default();
        if before.iter().any(|name| name == ours) == hold {
            return Ok(());
        }
        let mut finalizers = before;
        finalizers.retain(|name| name != ours);
        if hold {
            finalizers.push(ours.to_owned());
        }
        self.change_metadata(kind, known, "finalizers", json!(finalizers)).await
    }

    /// Changes a member of a resource's metadata.
    pub(super) async fn change_metadata(
        &self,
        kind: KindName,
        known: &ObjectMeta,
        member: &str,
        value: Value,
    ) -> Result<(), ReconcileError> {
        let mut changing = Changing::begin(kind, known, self);
        let written = self.writer.metadata(kind, known, [(member.to_owned(), value)].into_iter().collect()).await?;
        changing.written = Some(written);
        Ok(())
    }

    /// The resource as the store has it now: our own writes of this pass have moved its version.
    pub(super) fn fresh(&self, me: &Resource) -> Resource {
        let known = self.store.entry(&Key::of(me)).and_then(|entry| entry.resource());
        known.map_or_else(|| me.clone(), |resource| resource.as_ref().clone())
    }
}

/// A resource whose metadata is being written, from the request to the end of whatever becomes of it.
struct Changing<'a> {
    kind: KindName,
    key: Key,
    reconciler: &'a Reconciler,
    written: Option<Object>,
}

impl<'a> Changing<'a> {
    fn begin(kind: KindName, known: &ObjectMeta, reconciler: &'a Reconciler) -> Self {
        let namespace = known.namespace.as_deref().unwrap_or_default();
        let key = Key::resource(kind, namespace, known.name.as_deref().unwrap_or_default());
        reconciler.store.begin_change(&key);
        Self { kind, key, reconciler, written: None }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let wake = self.reconciler.store.end_change(self.kind, &self.key, self.written.take());
        self.reconciler.wake(wake);
    }
}
