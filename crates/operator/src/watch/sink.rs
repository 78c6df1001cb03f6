//! How the objects of a watch get into the store, each under an id that carries its kind.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use serde_json::Value;
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;
use skep_plan::key::{Key, ObjectKind};

use crate::object::{Metadata, Object, Tracked};
use crate::store::{ChildId, PodId, Store, Wake, child_facts, pod_facts};

/// How the objects of a watch get into the store.
pub(super) trait Sink<K> {
    /// What the store calls an object: its kind, namespace and name.
    type Id: Clone + Ord + Send;
    /// Whether the watch itself keeps the set of ids that it has delivered.
    const TRACKS_IDS: bool = true;

    /// What is watched, for logs and checks.
    fn name(&self) -> String;
    /// The id of an object; nothing for one without a namespace.
    fn id(&self, object: &K) -> Option<Self::Id>;
    /// Stores an object.
    fn put(&self, store: &Store, object: K) -> Wake;
    /// Removes an object.
    fn remove(&self, store: &Store, id: &Self::Id) -> Wake;
    /// The ids that the store holds of this watch, where that is less than all objects there are and the watch tracks none
    /// ([`Self::TRACKS_IDS`]).
    fn stored(&self, _: &Store) -> BTreeSet<Self::Id> {
        BTreeSet::new()
    }
}

/// The objects of a kind of ours.
pub(super) struct Resources(pub(super) KindName);
/// Children of a kind, and what the watch of them is called.
pub(super) struct Children(pub(super) ChildKind, pub(super) &'static str);
/// Pods, and of what.
pub(super) struct Pods(pub(super) &'static str);
/// Secrets or ConfigMaps, by metadata.
pub(super) struct Contents(pub(super) ObjectKind);

impl Sink<Object> for Resources {
    type Id = Key;

    fn name(&self) -> String {
        self.0.plural().to_owned()
    }

    fn id(&self, object: &Object) -> Option<Key> {
        Some(Key::resource(self.0, &object.namespace()?, &object.name_any()))
    }

    fn put(&self, store: &Store, object: Object) -> Wake {
        store.see_resource(self.0, object)
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.remove_resource(key)
    }
}

impl Children {
    fn watch_name(&self) -> String {
        format!("{} ({})", self.0.api().2, self.1)
    }

    fn id_of(&self, metadata: &ObjectMeta) -> Option<ChildId> {
        Some(ChildId { kind: self.0, namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
    }

    fn see(&self, store: &Store, metadata: &ObjectMeta, object: Option<&Value>) -> Wake {
        let Some(id) = self.id_of(metadata) else { return Wake::default() };
        store.see_child(id, child_facts(self.0, metadata, object))
    }
}

impl Sink<Tracked> for Children {
    type Id = ChildId;

    fn name(&self) -> String {
        self.watch_name()
    }

    fn id(&self, object: &Tracked) -> Option<ChildId> {
        self.id_of(object.object().metadata())
    }

    fn put(&self, store: &Store, object: Tracked) -> Wake {
        let object = object.object();
        self.see(store, object.metadata(), Some(object.value()))
    }

    fn remove(&self, store: &Store, id: &ChildId) -> Wake {
        store.miss_child(id)
    }
}

impl Sink<Metadata> for Children {
    type Id = ChildId;

    fn name(&self) -> String {
        self.watch_name()
    }

    fn id(&self, object: &Metadata) -> Option<ChildId> {
        self.id_of(&object.metadata)
    }

    fn put(&self, store: &Store, object: Metadata) -> Wake {
        self.see(store, &object.metadata, None)
    }

    fn remove(&self, store: &Store, id: &ChildId) -> Wake {
        store.miss_child(id)
    }
}

impl Sink<Object> for Pods {
    type Id = PodId;

    fn name(&self) -> String {
        format!("pods ({})", self.0)
    }

    fn id(&self, object: &Object) -> Option<PodId> {
        Some(PodId { namespace: object.namespace()?, name: object.name_any() })
    }

    fn put(&self, store: &Store, object: Object) -> Wake {
        let Some(id) = self.id(&object) else { return Wake::default() };
        match read_pod(object).as_ref().and_then(pod_facts) {
            Some(facts) => store.put_pod(facts),
            // Its labels may have been others before.
            None => store.remove_pod(&id),
        }
    }

    fn remove(&self, store: &Store, id: &PodId) -> Wake {
        store.remove_pod(id)
    }
}

impl Sink<Metadata> for Contents {
    type Id = Key;
    const TRACKS_IDS: bool = false;

    fn name(&self) -> String {
        self.0.to_string()
    }

    fn id(&self, object: &Metadata) -> Option<Key> {
        Some(Key { kind: self.0, namespace: object.metadata.namespace.clone()?, name: object.metadata.name.clone()? })
    }

    fn put(&self, store: &Store, object: Metadata) -> Wake {
        let Some(key) = self.id(&object) else { return Wake::default() };
        store.content_changed(&key, object.metadata.resource_version.as_deref())
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.content_changed(key, None)
    }

    fn stored(&self, store: &Store) -> BTreeSet<Key> {
        store.contents(self.0)
    }
}

/// The pod in an object; nothing for one that cannot be read, which costs no other one.
fn read_pod(object: Object) -> Option<Pod> {
    let (metadata, mut value, _) = object.into_parts();
    // It was read already, and more leniently.
    if let Some(members) = value.as_object_mut() {
        members.remove("metadata");
    }
    match serde_json::from_value::<Pod>(value) {
        Ok(pod) => Some(Pod { metadata, ..pod }),
        Err(error) => {
            tracing::warn!(namespace = metadata.namespace, name = metadata.name, %error, "skipping malformed pod");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_runs_for_no_resource_any_more_is_forgotten() {
        let store = Store::default();
        let server = json!({
            "kind": "MCPServer", "metadata": { "name": "s", "namespace": "ns", "uid": "s" }, "spec": { "image": "i" },
        });
        store.see_resource(KindName::MCPServer, serde_json::from_value(server).unwrap());
        let key = Key::resource(KindName::MCPServer, "ns", "s");
        let put = |instance: &str| {
            let labels = json!({ "app": "mcpserver", instance: "s" });
            let pod = json!({ "metadata": { "name": "p", "namespace": "ns", "labels": labels } });
            Pods("of proxies").put(&store, serde_json::from_value(pod).unwrap());
            store.snapshot(&key).unwrap().live.pods.len()
        };
        assert_eq!((put("app.kubernetes.io/instance"), put("another-label")), (1, 0));
    }
}
