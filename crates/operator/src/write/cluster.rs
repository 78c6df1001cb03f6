//! Writes that concern no single resource of ours: the Lease, definitions, the operator's own Deployment, and events.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::{Event, Recorder};
use serde_json::{Value, json};
use skep_api::crd::STORED_VERSION;

/// Creates a Lease. Returns whether it was created; else another candidate was quicker.
pub(crate) async fn create_lease(leases: &Api<Lease>, name: &str, spec: LeaseSpec) -> Result<bool, kube::Error> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    match leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Changes the spec of a Lease if it is still at this version. Returns whether it was; else another candidate was quicker.
pub(crate) async fn patch_lease(
    leases: &Api<Lease>,
    name: &str,
    version: Option<&str>,
    spec: Value,
) -> Result<bool, kube::Error> {
    let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "spec": spec }));
    match leases.patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes a Lease if it is still as it was read. One that is gone already is fine.
pub(crate) async fn delete_lease(leases: &Api<Lease>, name: &str, metadata: ObjectMeta) -> Result<(), kube::Error> {
    let ObjectMeta { uid, resource_version, .. } = metadata;
    let parameters = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
    match leases.delete(name, &parameters).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Strikes all versions but today's off the list of those in which objects of a definition are stored. Returns whether that was done;
/// else the definition was changed meanwhile.
pub(crate) async fn strike_stored_versions(
    definitions: &Api<CustomResourceDefinition>,
    name: &str,
    version: Option<&str>,
) -> Result<bool, kube::Error> {
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": version },
        "status": { "storedVersions": [STORED_VERSION] },
    }));
    match definitions.patch_status(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Scales a Deployment to zero.
pub(crate) async fn scale_to_zero(deployments: &Api<Deployment>, name: &str) -> Result<(), kube::Error> {
    let scale = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    deployments.patch_scale(name, &PatchParams::default(), &scale).await.map(drop)
}

/// Publishes an event about an object.
pub(crate) async fn publish(recorder: &Recorder, event: &Event, about: &ObjectReference) -> Result<(), kube::Error> {
    recorder.publish(event, about).await
}
