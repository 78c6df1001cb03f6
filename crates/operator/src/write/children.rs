//! Writes to children, to backends and their pods, and of generated Secrets.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ApiResource;
use serde_json::{Value, json};
use skep_api::crd::STORED_VERSION;
use skep_api::resource::{KindName, Resource};
use skep_plan::child::Child;
use skep_plan::plan::GeneratedSecret;
use skep_plan::world::LivePod;

use super::{ChildResponse, MANAGER, WriteError, Writer, child_resource};
use crate::adopt::{handover, leave_replicas};
use crate::object::{FullMetadata, Metadata};
use crate::store::ChildId;

/// A version that no object has. An apply that asks for it is refused where there is an object, with a conflict, and makes one
/// where there is none.
const NO_VERSION: &str = "1";

impl Writer {
    /// Creates a child by applying it, if there is no object of its name; nothing if there is one, which is left as it is.
    pub async fn create_child(&self, namespace: &str, child: &Child) -> Result<Option<ChildResponse>, WriteError> {
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
    pub async fn apply(&self, namespace: &str, child: &Child) -> Result<ChildResponse, WriteError> {
        self.send(namespace, child, child.body()).await
    }

    async fn send(&self, namespace: &str, child: &Child, body: &Value) -> Result<ChildResponse, WriteError> {
        let object = format!("{} {namespace}/{}", child.kind(), child.name());
        self.metrics.request("apply", child.kind().api().2);
        let body = self.with_served_owners(body);
        self.children(child.kind(), namespace)
            .patch(child.name(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&*body))
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

    /// Makes a resource the controller of an object that its proxy made for it, so that it is garbage collected with the resource.
    pub async fn adopt(&self, me: &Resource, id: &ChildId, uid: &str) -> Result<(), WriteError> {
        let object = format!("{} {}/{}", id.kind, id.namespace, id.name);
        // The uid makes the API server refuse to create the object, should it be gone.
        let owner = self.owner_reference(me);
        let body = json!({
            "apiVersion": id.kind.api_version(), "kind": id.kind.as_str(),
            "metadata": { "name": id.name, "uid": uid, "ownerReferences": [owner] },
        });
        self.metrics.request("apply", id.kind.api().2);
        let children = self.children(id.kind, &id.namespace);
        let written = children.patch(&id.name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(body)).await;
        written.map(|_| ()).map_err(|error| WriteError::from(error, "adopt", object))
    }

    /// Reads the metadata of a child that no watch has shown us.
    pub async fn look_up(&self, id: &ChildId) -> Result<Option<FullMetadata>, WriteError> {
        self.metrics.request("get", id.kind.api().2);
        let object = format!("{} {}/{}", id.kind, id.namespace, id.name);
        let children: Api<FullMetadata> =
            Api::namespaced_with(self.client.clone(), &id.namespace, &child_resource(id.kind));
        let found = children.get_opt(&id.name).await;
        found.map_err(|error| WriteError::from(error, "read", object))
    }

    /// Makes the fields that the operator before us wrote into a child our own, so that applying it removes what we do not send.
    pub async fn take_over(&self, id: &ChildId, found: &FullMetadata, sends_replicas: bool) -> Result<(), WriteError> {
        let Some(operations) = handover(&found.value, sends_replicas) else { return Ok(()) };
        self.change_owners(id, operations, "taken over from the operator before").await
    }

    /// Leaves the number of replicas of a child to others, as it is, where it was ours until now.
    pub async fn leave_replicas(&self, id: &ChildId) -> Result<(), WriteError> {
        let Some(found) = self.look_up(id).await? else { return Ok(()) };
        let Some(operations) = leave_replicas(&found.value) else { return Ok(()) };
        self.change_owners(id, operations, "its replicas are left to others").await
    }

    /// Changes the owners of fields of a child.
    async fn change_owners(&self, id: &ChildId, operations: Value, why: &'static str) -> Result<(), WriteError> {
        let object = format!("{} {}/{}", id.kind, id.namespace, id.name);
        // INVARIANT: the patch was written as JSON patch operations.
        let Ok(patch) = serde_json::from_value::<json_patch::Patch>(operations) else { return Ok(()) };
        tracing::info!(%object, why, "field ownership changed");
        self.metrics.request("patch", id.kind.api().2);
        let children = self.children(id.kind, &id.namespace);
        let written = children.patch(&id.name, &PatchParams::default(), &Patch::<()>::Json(patch)).await;
        written.map(|_| ()).map_err(|error| WriteError::from(error, "change the field ownership of", object))
    }

    /// Deletes pods, so that others are started in their place. One that is gone already is fine, and so is a new one of the same name,
    /// which stays.
    pub async fn delete_pods(&self, namespace: &str, pods: &[LivePod]) -> Result<(), WriteError> {
        let api: Api<Metadata> = Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
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

    /// Creates a Secret with random content, and returns its version; nothing if there is one already, which is left as it is.
    pub async fn create_secret(&self, me: &Resource, wanted: &GeneratedSecret) -> Result<Option<String>, WriteError> {
        let object = format!("Secret {}/{}", me.namespace(), wanted.name);
        let failed = |error| WriteError::from(error, "create", object.clone());
        let mut bytes = vec![0; wanted.bytes];
        let filled = aws_lc_rs::rand::fill(&mut bytes);
        filled.map_err(|_unspecified| failed(kube::Error::Service("no randomness to be had".into())))?;
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(wanted.name.clone()),
                labels: Some(wanted.labels.clone()),
                annotations: Some(wanted.annotations.clone()),
                owner_references: Some(vec![self.owner_reference(me)]),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".into()),
            data: Some(BTreeMap::from([(wanted.key.clone(), ByteString(STANDARD.encode(bytes).into_bytes()))])),
            ..Secret::default()
        };
        self.metrics.request("create", "secrets");
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), me.namespace());
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(created) => Ok(created.metadata.resource_version),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// The reference that makes a resource the controller of an object, in the version that is served.
    fn owner_reference(&self, me: &Resource) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version(me.kind()),
            kind: me.kind().as_str().to_owned(),
            name: me.name().to_owned(),
            uid: me.metadata().uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}
