//! How what a watch brings goes into the store.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::{PartialObjectMeta, Resource as KubeResource};
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;
use skep_plan::key::{Key, ObjectKind};

use crate::object::{Object, Tracked};
use crate::store::{ChildId, Store, Wake, child_facts, pod_facts};

/// How the objects of a watch go into the store.
pub(super) trait Take<K> {
    /// What it watches, for logs.
    fn name(&self) -> String;
    /// What the store calls an object.
    fn key(&self, object: &K) -> Option<Key>;
    /// Takes an object in.
    fn put(&self, store: &Store, object: K) -> Wake;
    /// Forgets an object.
    fn remove(&self, store: &Store, key: &Key) -> Wake;
    /// What the store remembers of this watch, where that is less than all objects there are and the watch keeps no list of
    /// its own ([`Self::KEEPS_LIST`]).
    fn remembered(&self, _: &Store) -> BTreeSet<Key> {
        BTreeSet::new()
    }
    /// Whether the watch itself keeps a list of what it has brought.
    const KEEPS_LIST: bool = true;
}

/// The objects of a kind of ours.
pub(super) struct Resources(pub(super) KindName);
/// Children of a kind, and what to call the watch of them.
pub(super) struct Children(pub(super) ChildKind, pub(super) &'static str);
/// Pods, and of what.
pub(super) struct Pods(pub(super) &'static str);
/// Secrets or ConfigMaps, by metadata.
pub(super) struct Contents(pub(super) ObjectKind);

impl Take<Object> for Resources {
    fn name(&self) -> String {
        self.0.plural().to_owned()
    }

    fn key(&self, object: &Object) -> Option<Key> {
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
    /// Children share the shape of a key; their kind is known by the watch.
    fn key_of(metadata: &ObjectMeta) -> Option<Key> {
        Some(Key { kind: ObjectKind::ConfigMap, namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
    }

    fn id(&self, key: &Key) -> ChildId {
        ChildId { kind: self.0, namespace: key.namespace.clone(), name: key.name.clone() }
    }
}

impl Take<Tracked> for Children {
    fn name(&self) -> String {
        format!("{} ({})", self.0.api().2, self.1)
    }

    fn key(&self, object: &Tracked) -> Option<Key> {
        Self::key_of(object.object().metadata())
    }

    fn put(&self, store: &Store, object: Tracked) -> Wake {
        let Some(key) = self.key(&object) else { return Wake::default() };
        let object = object.object();
        store.see_child(self.id(&key), child_facts(self.0, object.metadata(), Some(object.value())))
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.miss_child(&self.id(key))
    }
}

impl Take<PartialObjectMeta<DynamicObject>> for Children {
    fn name(&self) -> String {
        format!("{} ({})", self.0.api().2, self.1)
    }

    fn key(&self, object: &PartialObjectMeta<DynamicObject>) -> Option<Key> {
        Self::key_of(&object.metadata)
    }

    fn put(&self, store: &Store, object: PartialObjectMeta<DynamicObject>) -> Wake {
        let Some(key) = self.key(&object) else { return Wake::default() };
        store.see_child(self.id(&key), child_facts(self.0, &object.metadata, None))
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.miss_child(&self.id(key))
    }
}

impl Take<Pod> for Pods {
    fn name(&self) -> String {
        format!("pods ({})", self.0)
    }

    fn key(&self, object: &Pod) -> Option<Key> {
        Some(Key { kind: ObjectKind::ConfigMap, namespace: object.namespace()?, name: object.name_any() })
    }

    fn put(&self, store: &Store, object: Pod) -> Wake {
        let Some(namespace) = object.namespace() else { return Wake::default() };
        match pod_facts(&object) {
            Some(facts) => store.put_pod(&namespace, facts),
            // Its labels may have been others before.
            None => store.remove_pod(&namespace, &object.name_any()),
        }
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.remove_pod(&key.namespace, &key.name)
    }
}

impl<K: KubeResource> Take<PartialObjectMeta<K>> for Contents {
    fn name(&self) -> String {
        self.0.to_string()
    }

    fn key(&self, object: &PartialObjectMeta<K>) -> Option<Key> {
        Some(Key { kind: self.0, namespace: object.metadata.namespace.clone()?, name: object.metadata.name.clone()? })
    }

    fn put(&self, store: &Store, object: PartialObjectMeta<K>) -> Wake {
        let Some(key) = self.key(&object) else { return Wake::default() };
        store.content_changed(&key, object.metadata.resource_version.as_deref())
    }

    fn remove(&self, store: &Store, key: &Key) -> Wake {
        store.content_changed(key, None)
    }

    fn remembered(&self, store: &Store) -> BTreeSet<Key> {
        store.contents(self.0)
    }

    const KEEPS_LIST: bool = false;
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
