//! Writes to resources of ours: metadata, status, finalizers, and their stored version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Map, Value, json};
use skep_api::resource::KindName;
use skep_plan::merge::merge_diff;

use super::{WriteError, Writer, place};
use crate::object::Object;

impl Writer {
    /// Changes metadata of one of our resources; fails with a conflict when it is not at the version we know.
    pub async fn metadata(
        &self,
        kind: KindName,
        known: &ObjectMeta,
        changes: Map<String, Value>,
    ) -> Result<Object, WriteError> {
        let (namespace, name) = place(known);
        let mut metadata = changes;
        metadata.insert("resourceVersion".into(), json!(known.resource_version));
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let object = format!("{kind} {namespace}/{name}");
        self.metrics.request("patch", kind.plural());
        let written = self.resources(kind, namespace).patch(name, &PatchParams::default(), &patch).await;
        written.map_err(|error| WriteError::from(error, "change", object))
    }

    /// Writes the difference between two statuses. Nothing is sent, and nothing returned, when there is none.
    pub async fn status(
        &self,
        kind: KindName,
        known: &ObjectMeta,
        old: &Value,
        new: &Value,
    ) -> Result<Option<Object>, WriteError> {
        let difference = merge_diff(old, new);
        if difference.as_object().is_some_and(Map::is_empty) {
            self.metrics.skipped(kind.plural());
            return Ok(None);
        }
        let (namespace, name) = place(known);
        let patch = Patch::Merge(json!({ "status": difference }));
        let object = format!("the status of {kind} {namespace}/{name}");
        self.metrics.request("patch", &format!("{}/status", kind.plural()));
        let written = self.resources(kind, namespace).patch_status(name, &PatchParams::default(), &patch).await;
        written.map(Some).map_err(|error| WriteError::from(error, "write", object))
    }
}

/// Removes the finalizer of a kind and leaves those of others, if the object is still as it was read.
///
/// The answer is the whole object: the reader of [`Object`] skips `managedFields`, which nest as deep as the object does.
pub(crate) async fn release_finalizer(
    objects: &Api<Object>,
    kind: KindName,
    metadata: &ObjectMeta,
) -> Result<(), kube::Error> {
    let held = metadata.finalizers.iter().flatten();
    let others: Vec<&String> = held.filter(|finalizer| Some(finalizer.as_str()) != kind.finalizer()).collect();
    let patch =
        Patch::Merge(json!({ "metadata": { "resourceVersion": metadata.resource_version, "finalizers": others } }));
    let name = metadata.name.as_deref().unwrap_or_default();
    objects.patch(name, &PatchParams::default(), &patch).await.map(drop)
}

/// A patch that changes nothing makes the API server store the object in today's version. The answer is the whole object, as above.
pub(crate) async fn store_anew(objects: &Api<Object>, name: &str) -> Result<(), kube::Error> {
    objects.patch(name, &PatchParams::default(), &Patch::Merge(json!({}))).await.map(drop)
}
