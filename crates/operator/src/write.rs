//! Every write that the operator sends, in four shapes and no other. Nothing is ever replaced whole.
//!
//! - [`Writer::metadata`]: finalizers and annotations of our own resources, as a merge patch that carries the resource version
//!   it was computed from. A merge patch replaces `metadata.finalizers` whole, so without that precondition two controllers
//!   that add theirs at the same time would lose one. The loser gets a conflict, and starts again from a fresh read.
//! - [`Writer::status`]: the difference between two statuses, as a merge patch without a precondition, so that the operator and
//!   a program that reports on other fields of the same status do not disturb each other. No difference, no request.
//!   Two traps, both pinned by tests: arrays are replaced whole, so `conditions` must have one writer; and a difference that
//!   was computed from a stale status overwrites scalars that changed since. The store keeps our own writes for that reason.
//! - [`Writer::apply`]: children, by server-side apply with our field manager. [`Writer::make`] is the same for one that is not
//!   there, and never touches one that is.
//! - [`Writer::delete`]: children and pods, by uid, so that a new object of the same name is never hit.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta, Status};
use serde_json::{Map, Value, json};
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::{KindName, Resource};
use skep_plan::child::{Child, ChildKind, owner_reference};
use skep_plan::merge::merge_diff;
use skep_plan::status::clipped;
use skep_plan::world::LivePod;

use crate::adopt::{handover, leave_replicas};
use crate::metrics::Metrics;
use crate::object::Object;
use crate::served::{Served, resource_in};
use crate::store::ChildId;

/// The field manager of everything that the operator writes.
pub const MANAGER: &str = "skep-operator";

/// A version that no object has. An apply that asks for it is refused where there is an object, with a conflict, and makes one
/// where there is none.
const NO_VERSION: &str = "1";

/// A write that failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Somebody else wrote in between. Not a fault: start again from a fresh read.
    #[error("`{object}` was changed by somebody else meanwhile")]
    Conflict {
        /// Which object.
        object: String,
    },
    /// What an object names is not there, as far as the API server has seen. It looks at its own memory, which is a moment
    /// behind.
    #[error("cannot apply `{object}` yet: {message}")]
    NotYet {
        /// Which object.
        object: String,
        /// What is not there.
        message: String,
    },
    /// Nothing can be created, as the namespace is being deleted.
    #[error("cannot apply `{object}`: its namespace is terminating")]
    NamespaceTerminating {
        /// Which object.
        object: String,
    },
    /// The API server refused, or could not be reached.
    #[error("cannot {verb} `{object}`")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// On which object.
        object: String,
        /// What came back.
        source: Box<kube::Error>,
    },
}

/// Sends writes and counts them.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    metrics: Metrics,
    served: Arc<Served>,
}

/// How kube addresses a kind of ours in the stored version.
pub fn api_resource(kind: KindName) -> ApiResource {
    resource_in(kind, STORED_VERSION)
}

/// How kube addresses a kind of child.
pub fn child_resource(kind: ChildKind) -> ApiResource {
    let (group, version, plural) = kind.api();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind.as_str()), plural)
}

// === impl Writer ===

impl Writer {
    /// A writer that counts into `metrics`, and writes every kind in its stored version.
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self::serving(client, metrics, Arc::default())
    }

    /// A writer that writes every kind in the version that is served.
    pub const fn serving(client: Client, metrics: Metrics, served: Arc<Served>) -> Self {
        Self { client, metrics, served }
    }

    /// The API version in which a kind of ours is read and written.
    pub fn api_version(&self, kind: KindName) -> String {
        format!("{GROUP}/{}", self.served.version(kind))
    }

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
    pub async fn status(&self, me: &Resource, old: &Value, new: &Value) -> Result<Option<Object>, WriteError> {
        let difference = merge_diff(old, new);
        if difference.as_object().is_some_and(Map::is_empty) {
            self.metrics.skipped(me.kind().plural());
            return Ok(None);
        }
        let patch = Patch::Merge(json!({ "status": difference }));
        let object = format!("the status of {} {}/{}", me.kind(), me.namespace(), me.name());
        self.metrics.request("patch", &format!("{}/status", me.kind().plural()));
        let resources = self.resources(me.kind(), me.namespace());
        let written = resources.patch_status(me.name(), &PatchParams::default(), &patch).await;
        written.map(Some).map_err(|error| WriteError::from(error, "write", object))
    }

    /// Says on an object that cannot be read what is wrong with it. Its other conditions are unreadable to us as well, and
    /// no other controller writes them, so this one stands alone.
    pub async fn unreadable(&self, kind: KindName, metadata: &ObjectMeta, problem: &str) -> Result<(), WriteError> {
        let (namespace, name) = place(metadata);
        let objects = self.resources(kind, namespace);
        let object = format!("the status of {kind} {namespace}/{name}");
        let message = format!("this object cannot be read: {problem}; correct its spec");
        let message = clipped(&message);
        self.metrics.request("get", kind.plural());
        let known = objects.get(name).await.map_err(|error| WriteError::from(error, "read", object.clone()))?;
        let said = known.value().pointer("/status/conditions/0/message").and_then(Value::as_str) == Some(&*message);
        if said {
            self.metrics.skipped(kind.plural());
            return Ok(());
        }
        let conditions = json!([{
            "type": if kind.is_config() { "Valid" } else { "Ready" },
            "status": "False",
            "reason": "SpecInvalid",
            "message": message,
            "observedGeneration": metadata.generation,
            "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]);
        self.metrics.request("patch", &format!("{}/status", kind.plural()));
        let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
        let written = objects.patch_status(name, &PatchParams::default(), &patch).await;
        written.map(|_| ()).map_err(|error| WriteError::from(error, "write", object))
    }

    /// Makes a child by applying it, if there is no object of its name; nothing if there is one, which is left as it is.
    pub async fn make(
        &self,
        namespace: &str,
        child: &Child,
    ) -> Result<Option<PartialObjectMeta<DynamicObject>>, WriteError> {
        let mut body = child.body().clone();
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), NO_VERSION.into());
        }
        match self.send(namespace, child, &body).await {
            Ok(answer) => Ok(Some(answer)),
            Err(WriteError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies a child. What we own of it and no longer send is removed by the API server.
    pub async fn apply(&self, namespace: &str, child: &Child) -> Result<PartialObjectMeta<DynamicObject>, WriteError> {
        self.send(namespace, child, child.body()).await
    }

    async fn send(
        &self,
        namespace: &str,
        child: &Child,
        body: &Value,
    ) -> Result<PartialObjectMeta<DynamicObject>, WriteError> {
        let object = format!("{} {namespace}/{}", child.kind(), child.name());
        self.metrics.request("apply", child.kind().api().2);
        let body = self.with_served_owners(body);
        self.children(child.kind(), namespace)
            .patch_metadata(child.name(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&*body))
            .await
            .map_err(|error| match error {
                kube::Error::Api(status) if status.is_not_found() => {
                    WriteError::NotYet { object, message: status.message.clone() }
                }
                error => WriteError::from(error, "apply", object),
            })
    }

    /// Deletes a child, if it is still the one we know. One that is gone already is fine.
    pub async fn delete(&self, id: &ChildId, uid: &str) -> Result<(), WriteError> {
        let object = format!("{} {}/{}", id.kind, id.namespace, id.name);
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        self.metrics.request("delete", id.kind.api().2);
        match self.children(id.kind, &id.namespace).delete(&id.name, &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(WriteError::from(error, "delete", object)),
        }
    }

    /// Makes a resource the controller of an object that somebody else made for it, so that it goes with the resource.
    pub async fn own(&self, me: &Resource, id: &ChildId, uid: &str) -> Result<(), WriteError> {
        let object = format!("{} {}/{}", id.kind, id.namespace, id.name);
        // The uid makes the API server refuse to create the object, should it be gone.
        let mut owner = owner_reference(me);
        if let Some(owner) = owner.as_object_mut() {
            owner.insert("apiVersion".to_owned(), self.api_version(me.kind()).into());
        }
        let body = json!({
            "apiVersion": id.kind.api_version(), "kind": id.kind.as_str(),
            "metadata": { "name": id.name, "uid": uid, "ownerReferences": [owner] },
        });
        self.metrics.request("apply", id.kind.api().2);
        let children = self.children(id.kind, &id.namespace);
        let written =
            children.patch_metadata(&id.name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(body)).await;
        written.map(|_| ()).map_err(|error| WriteError::from(error, "own", object))
    }

    /// Reads the metadata of a child that no watch has shown us.
    pub async fn look_up(&self, id: &ChildId) -> Result<Option<PartialObjectMeta<DynamicObject>>, WriteError> {
        self.metrics.request("get", id.kind.api().2);
        let object = format!("{} {}/{}", id.kind, id.namespace, id.name);
        let found = self.children(id.kind, &id.namespace).get_metadata_opt(&id.name).await;
        found.map_err(|error| WriteError::from(error, "read", object))
    }

    /// Makes the fields that the operator before us wrote into a child our own, so that applying it removes what we do not send.
    pub async fn take_over(&self, id: &ChildId, metadata: &ObjectMeta, sends_replicas: bool) -> Result<(), WriteError> {
        let metadata = serde_json::to_value(metadata).unwrap_or_default();
        let Some(operations) = handover(&metadata, sends_replicas) else { return Ok(()) };
        self.change_owners(id, operations, "taken over from the operator before").await
    }

    /// Leaves the number of replicas of a child to others, as it is, where it was ours until now.
    pub async fn leave_replicas(&self, id: &ChildId) -> Result<(), WriteError> {
        let Some(found) = self.look_up(id).await? else { return Ok(()) };
        let metadata = serde_json::to_value(&found.metadata).unwrap_or_default();
        let Some(operations) = leave_replicas(&metadata) else { return Ok(()) };
        self.change_owners(id, operations, "its replicas are left to others").await
    }

    /// Changes who owns which field of a child.
    async fn change_owners(&self, id: &ChildId, operations: Value, why: &'static str) -> Result<(), WriteError> {
        let object = format!("{} {}/{}", id.kind, id.namespace, id.name);
        // INVARIANT: the patch was written as JSON patch operations.
        let Ok(patch) = serde_json::from_value::<json_patch::Patch>(operations) else { return Ok(()) };
        tracing::info!(%object, why, "fields change their owner");
        self.metrics.request("patch", id.kind.api().2);
        let children = self.children(id.kind, &id.namespace);
        let written = children.patch_metadata(&id.name, &PatchParams::default(), &Patch::<()>::Json(patch)).await;
        written.map(|_| ()).map_err(|error| WriteError::from(error, "take over", object))
    }

    /// Deletes pods, so that others are started in their place. One that is gone already is fine, and so is a new one of the same name,
    /// which stays.
    pub async fn delete_pods(&self, namespace: &str, pods: &[LivePod]) -> Result<(), WriteError> {
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(self.client.clone(), namespace);
        for LivePod { name, uid, .. } in pods {
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            self.metrics.request("delete", "pods");
            match api.delete(name, &parameters).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(WriteError::from(error, "delete", format!("Pod {namespace}/{name}"))),
            }
        }
        Ok(())
    }

    /// An object whose owners are named in the version that is served: the garbage collector finds them in no other.
    pub fn with_served_owners<'a>(&self, body: &'a Value) -> Cow<'a, Value> {
        let owners = body.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
        let kinds = owners.filter_map(|owner| KindName::parse(owner.get("kind")?.as_str()?));
        if kinds.into_iter().all(|kind| self.served.version(kind) == STORED_VERSION) {
            return Cow::Borrowed(body);
        }
        let mut body = body.clone();
        let owners = body.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            let kind = owner.get("kind").and_then(Value::as_str).and_then(KindName::parse);
            if let Some(kind) = kind {
                owner.insert("apiVersion".to_owned(), self.api_version(kind).into());
            }
        }
        Cow::Owned(body)
    }

    fn resources(&self, kind: KindName, namespace: &str) -> Api<Object> {
        Api::namespaced_with(self.client.clone(), namespace, &resource_in(kind, self.served.version(kind)))
    }

    fn children(&self, kind: ChildKind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &child_resource(kind))
    }
}

/// The namespace and the name of an object.
fn place(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Writer").finish_non_exhaustive()
    }
}

/// Whether the API server refused to create an object because its namespace is being deleted.
pub fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

// === impl WriteError ===

impl WriteError {
    fn from(error: kube::Error, verb: &'static str, object: String) -> Self {
        match error {
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict { object },
            kube::Error::Api(status) if is_terminating(&status) => Self::NamespaceTerminating { object },
            other => Self::Api { verb, object, source: Box::new(other) },
        }
    }

    /// One word for metrics.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::NotYet { .. } => "not yet",
            Self::NamespaceTerminating { .. } => "terminating",
            Self::Api { .. } => "api",
        }
    }

    /// What the API server said, where it refused what was sent as such, and what to do: trying the same again cannot help.
    pub fn refusal(&self) -> Option<(&str, &'static str)> {
        let Self::Api { source, .. } = self else { return None };
        let kube::Error::Api(status) = source.as_ref() else { return None };
        let advice = match status.code {
            400 | 422 => "correct the spec",
            403 => "a policy, a quota or the operator's rights stand in the way",
            _ => return None,
        };
        Some((&status.message, advice))
    }

    /// Whether what we wanted to change does not exist any more.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.is_not_found()))
    }
}
