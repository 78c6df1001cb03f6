//! What the operator knows: every watched object in the smallest shape that a plan needs, and the graph between them.
//!
//! Applying a watched object *returns the resources to reconcile*; nothing here talks to the API server, so all of it is tested without one.
//! An object never goes back to an older version: our own writes put their answers in here at once, and the watch follows.

mod contents;
mod facts;
mod pods;
mod state;
mod stored_resource;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use skep_api::resource::{KindName, Resource};
use skep_plan::child::ChildKind;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::world::{DefaultRedis, Found, Live};

use crate::object::Object;

pub use contents::ReferencedKeys;
pub use facts::{ChildFacts, Owner, child_facts};
pub use pods::{PodFacts, Settling, pod_facts};
pub use state::{BegunRead, Entry, Unavailable, Wake};
pub use stored_resource::StoredResource;

use state::State;

#[cfg(test)]
mod tests;

/// The name of a child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildId {
    /// Its kind.
    pub kind: ChildKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// One consistent snapshot of a resource and what surrounds it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The resource.
    pub me: Arc<Resource>,
    /// What it refers to, however indirectly.
    pub found: BTreeMap<Key, Found>,
    /// The resources that refer to it.
    pub users: BTreeSet<Key>,
    /// What runs for it.
    pub live: Live,
    /// Secrets and ConfigMaps among what it refers to whose content was not read yet.
    pub unread: Vec<Key>,
    /// The children that carry its uid.
    pub children: BTreeMap<ChildId, ChildFacts>,
    /// When a pod counts otherwise though nothing happens to it: one that was started just now counts as ready by then.
    pub settles: Option<Timestamp>,
}

/// What the operator knows, shared by watches and workers.
#[derive(Debug, Default)]
pub struct Store {
    state: Mutex<State>,
}

impl Store {
    /// A store for resources whose sessions are kept in this Redis where they name none.
    pub fn new(default_redis: Option<DefaultRedis>) -> Self {
        Self { state: Mutex::new(State::new(default_redis)) }
    }

    /// A watch shows an object of one of our kinds, readable or not. While its metadata is being written, that waits, as it does
    /// for a child ([`Self::see_child`]).
    pub fn see_resource(&self, kind: KindName, object: Object) -> Wake {
        self.with(|state| state.see_resource(kind, object))
    }

    /// Takes in an object of one of our kinds, as the API server answered a write of its status.
    pub fn put_response(&self, kind: KindName, object: Object) -> Wake {
        self.with(|state| state.put_response(kind, object))
    }

    /// The metadata of a resource is about to be written. [`Self::end_change`] must follow, however that ends.
    pub fn begin_change(&self, key: &Key) {
        self.with(|state| state.begin_change(key));
    }

    /// The metadata of a resource was written, and the resource is like this; nothing if that failed. Returns the resources to reconcile:
    /// the resource itself only if the watch said something else of it meanwhile: the write was refused unless it was at the version
    /// that we knew, so it holds no other change that has to be reconciled.
    pub fn end_change(&self, kind: KindName, key: &Key, written: Option<Object>) -> Wake {
        self.with(|state| state.end_change(kind, key, written))
    }

    /// Forgets an object of one of our kinds.
    pub fn remove_resource(&self, key: &Key) -> Wake {
        self.with(|state| state.remove_resource(key))
    }

    /// The object of that key.
    pub fn entry(&self, key: &Key) -> Option<Entry> {
        self.with(|state| state.entry(key))
    }

    /// How many resources refer to an object.
    pub fn user_count(&self, key: &Key) -> usize {
        self.with(|state| state.user_count(key))
    }

    /// The resources that refer to an object, and what runs for it, whether the object can be read or not.
    pub fn surroundings(&self, key: &Key) -> (BTreeSet<Key>, Live) {
        self.with(|state| state.surroundings(key))
    }

    /// Sets why the objects of a kind are not known, in a namespace or in all; nothing where they are.
    pub fn set_unavailable(&self, kind: KindName, namespace: Option<&str>, why: Option<Unavailable>) -> Wake {
        self.with(|state| state.set_unavailable(kind, namespace, why))
    }

    /// Sets whether a watch has never listed what there is in a namespace. Until every watch has, nothing in it is reconciled: what is
    /// not seen must not pass for what is not there.
    pub fn set_unseen(&self, namespace: &str, watch: &str, is_unseen: bool) -> Wake {
        self.with(|state| state.set_unseen(namespace, watch, is_unseen))
    }

    /// Whether a watch has never listed what there is in a namespace.
    pub fn is_unseen(&self, namespace: &str) -> bool {
        self.with(|state| state.is_unseen(namespace))
    }

    /// Whether objects of a kind are known, in a namespace or in any.
    pub fn has_kind(&self, kind: KindName, namespace: Option<&str>) -> bool {
        self.with(|state| state.has_kind(kind, namespace))
    }

    /// Wakes all objects of a kind, in a namespace or in all: the kind is served in another version.
    pub fn wake_kind(&self, kind: KindName, namespace: Option<&str>) -> Wake {
        self.with(|state| state.wake_kind(kind, namespace))
    }

    /// Forgets all objects of a kind, in a namespace or in all: they are gone with its definition.
    pub fn remove_kind(&self, kind: KindName, namespace: Option<&str>) -> Wake {
        self.with(|state| state.remove_kind(kind, namespace))
    }

    /// A watch shows a child. While it is being written, that waits: it may be what we write, which the watch can bring back
    /// before the answer comes, and would pass for a change by another client.
    pub fn see_child(&self, id: ChildId, facts: ChildFacts) -> Wake {
        self.with(|state| state.see_child(id, facts))
    }

    /// A watch shows that a child was deleted.
    pub fn miss_child(&self, id: &ChildId) -> Wake {
        self.with(|state| state.miss_child(id))
    }

    /// A child is about to be written. [`Self::end_write`] must follow, however that ends.
    pub fn begin_write(&self, id: &ChildId) {
        self.with(|state| state.begin_write(id));
    }

    /// A child was written, and is like this; nothing if that failed. Returns the resources to reconcile because the watch
    /// said something else of it meanwhile.
    pub fn end_write(&self, id: &ChildId, written: Option<ChildFacts>) -> Wake {
        self.with(|state| state.end_write(id, written))
    }

    /// Forgets a child that was removed.
    pub fn remove_child(&self, id: &ChildId) -> Wake {
        self.with(|state| state.remove_child(id))
    }

    /// What is known of a child.
    pub fn child(&self, id: &ChildId) -> Option<ChildFacts> {
        self.with(|state| state.child(id))
    }

    /// Takes in what is known of a pod.
    pub fn put_pod(&self, facts: PodFacts) -> Wake {
        self.with(|state| state.put_pod(facts))
    }

    /// Forgets a pod.
    pub fn remove_pod(&self, id: &PodId) -> Wake {
        self.with(|state| state.remove_pod(id))
    }

    /// Hears that a Secret or ConfigMap changed: what was read of it is forgotten, and its users are woken to read it anew.
    pub fn content_changed(&self, key: &Key, version: Option<&str>) -> Wake {
        self.with(|state| state.content_changed(key, version))
    }

    /// A Secret or ConfigMap is about to be read. [`Self::end_read`] must follow, however that ends, and is given what this returns.
    pub fn begin_read(&self, key: &Key) -> BegunRead {
        self.with(|state| state.begin_read(key))
    }

    /// A Secret or ConfigMap was read: what it holds of the keys that [`Self::begin_read`] returned, `None` if it does not exist, and its
    /// version; nothing if that failed. It is not kept, and so must be read again, if the watch showed a change meanwhile, since either
    /// of the two may be newer, or if a resource refers to another key by now.
    pub fn end_read(&self, key: &Key, began: BegunRead, read: Option<(Option<Found>, Option<String>)>) {
        self.with(|state| state.end_read(key, began, read));
    }

    /// The version of a Secret or ConfigMap that was read; nothing for one that was not, or does not exist.
    pub fn content_version(&self, key: &Key) -> Option<String> {
        self.with(|state| state.content_version(key))
    }

    /// Forgets the documents of a namespace if they are more than is to be remembered.
    pub fn trim_contents(&self, namespace: &str) {
        self.with(|state| state.trim_contents(namespace));
    }

    /// The objects of a kind whose content is remembered.
    pub fn contents(&self, kind: ObjectKind) -> BTreeSet<Key> {
        self.with(|state| state.contents(kind))
    }

    /// One consistent snapshot of a resource; `None` if it is not known or cannot be read.
    pub fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        self.with(|state| state.snapshot(key))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // A thread that panicked left the state whole: every change of it is one call.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
