//! The state behind the store: plain maps, and the rules of which change queues which resources.

mod change;
mod pods;
mod unknown;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};
use skep_plan::key::{Key, ObjectKind};
use skep_plan::kinds::{self, Backend};
use skep_plan::world::{DefaultRedis, Found, Live};

use self::change::{concerns_itself, concerns_others};
pub use self::unknown::Unavailable;
use self::unknown::UnavailableKinds;
use super::contents::{Contents, ReferencedKeys};
use super::stored_resource::StoredResource;
use super::{ChildFacts, ChildId, PodFacts, PodId, Snapshot};
use crate::graph::Graph;
use crate::object::Object;
use crate::possible_names::PossibleNames;

/// The resources that a change queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// To be reconciled now: what their plans see has changed.
    pub now: BTreeSet<Key>,
    /// To be reconciled soon: their users may have changed. Many such changes become one reconcile.
    pub soon: BTreeSet<Key>,
}

/// An object of ours.
#[derive(Clone, Debug)]
pub enum Entry {
    /// It can be read.
    Readable(StoredResource),
    /// It cannot, and why.
    Unreadable {
        /// What every object has.
        metadata: Box<ObjectMeta>,
        /// Its status, as it is stored; an empty object if it has none.
        status: Box<Value>,
        /// What is wrong with the rest.
        problem: String,
        /// Every text in it that could be the name of what it refers to.
        names: PossibleNames,
    },
}

#[derive(Debug, Default)]
pub(super) struct State {
    // Hashed, not sorted: a look-up must cost the same however many there are, and names that begin alike are slow to compare.
    resources: HashMap<Key, Entry>,
    /// Those among them that cannot be read.
    unreadable: BTreeSet<Key>,
    /// Kinds whose objects are not known.
    unavailable: UnavailableKinds,
    /// Watches that never listed what there is, by namespace.
    unseen: BTreeMap<String, BTreeSet<String>>,
    /// Resources whose metadata is being written, and what the watch said of them last.
    changing: HashMap<Key, Option<Object>>,
    graph: Graph,
    children: HashMap<ChildId, ChildFacts>,
    by_owner: HashMap<String, BTreeSet<ChildId>>,
    /// Children that are being written.
    writing: HashMap<ChildId, Writing>,
    pods: HashMap<PodId, PodFacts>,
    pods_of: HashMap<Key, BTreeSet<PodId>>,
    /// Pods that the kubelet rejected or evicted, by the resource that they ran for.
    ends: HashMap<Key, BTreeMap<PodId, PodFacts>>,
    contents: Contents,
    /// Secrets and ConfigMaps that are being read.
    reading: HashMap<Key, Reading>,
    /// Uids of resources that went lately. The answer to a write of ours may arrive after the news of the deletion, and
    /// must not bring the resource back.
    gone: VecDeque<String>,
}

/// A child that is being written: by how many, and what the watch said of it last. Two resources can want the same name.
#[derive(Debug, Default)]
struct Writing {
    writers: usize,
    meanwhile: Option<Meanwhile>,
}

#[derive(Debug)]
enum Meanwhile {
    Seen(Box<ChildFacts>),
    Gone,
}

/// A read of a Secret or ConfigMap that has begun.
#[derive(Debug)]
pub struct BegunRead {
    /// How many changes the watch had shown.
    changes: u64,
    /// The keys to be read.
    pub keys: ReferencedKeys,
}

/// A Secret or ConfigMap that is being read: by how many, how often the watch showed a change meanwhile, and which version it showed
/// last.
#[derive(Debug, Default)]
struct Reading {
    readers: usize,
    changes: u64,
    seen: Option<String>,
}

/// How many values the large resources that one resource refers to may have together. They are parsed for each of its reconciles, and a
/// value takes some 600 bytes.
const PARSED_AT_ONCE: usize = 3 * skep_bounds::OBJECT_VALUES;

/// How many deletions are remembered: far more than there can be requests in flight.
const REMEMBERED_DELETIONS: usize = 1024;

// === impl Entry ===

impl Entry {
    fn of(kind: KindName, object: Object) -> Self {
        let excess = object.excess();
        let (metadata, mut value, mut names) = object.into_parts();
        let problem = match excess {
            Some(excess) => excess.to_string(),
            None => match StoredResource::read(kind, &value) {
                Ok(held) => return Self::Readable(held),
                Err(problem) => problem,
            },
        };
        // What is left out of an object that is too deep is deeper than any reference.
        names.collect(value.get("spec").unwrap_or(&Value::Null));
        names.compact();
        let status = value.get_mut("status").map_or_else(|| json!({}), Value::take);
        Self::Unreadable { metadata: Box::new(metadata), status: Box::new(status), problem, names }
    }

    /// Whether it can be read.
    const fn is_readable(&self) -> bool {
        matches!(self, Self::Readable(_))
    }

    /// The resource, if it can be read.
    pub fn resource(&self) -> Option<Arc<Resource>> {
        match self {
            Self::Readable(held) => held.resource().ok(),
            Self::Unreadable { .. } => None,
        }
    }

    /// What every object has.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Readable(held) => held.metadata(),
            Self::Unreadable { metadata, .. } => metadata,
        }
    }
}

// === impl State ===

impl State {
    pub(super) fn new(default_redis: Option<DefaultRedis>) -> Self {
        Self { graph: Graph::new(default_redis), ..Self::default() }
    }

    /// Takes in the answer to a write of ours.
    pub(super) fn put_response(&mut self, kind: KindName, object: Object) -> Wake {
        // Only answers can come after the news of the deletion. A watch shows the deletion of what it has shown.
        if object.metadata().uid.as_ref().is_some_and(|uid| self.gone.contains(uid)) {
            return Wake::default();
        }
        self.put_resource(kind, object)
    }

    fn put_resource(&mut self, kind: KindName, object: Object) -> Wake {
        let key = key_of(kind, object.metadata());
        let before = self.resources.get(&key);
        if before.is_some_and(|before| is_known(object.metadata(), before.metadata())) {
            return Wake::default();
        }
        let entry = Entry::of(kind, object);
        let mut wake = Wake::default();
        let is_another = before.is_some_and(|before| before.metadata().uid != entry.metadata().uid);
        if before.is_none_or(|before| concerns_itself(before, &entry)) {
            wake.now.insert(key.clone());
        }
        let seen_by_others = before.is_none_or(|before| concerns_others(before, &entry));
        if seen_by_others {
            // The resources that refer to it as it was, and as it is: a member that leaves a group concerns both groups.
            let saw_it = self.graph.dependants(&key);
            let touched = match entry.resource() {
                Some(resource) => self.graph.set(&key, Some(resource.as_ref())),
                None if is_another => self.graph.set(&key, None),
                // It still refers to what it referred to when it could be read last.
                None => self.graph.targets(&key),
            };
            self.forget_unused(&touched);
            wake.soon.extend(touched.into_iter().filter(|target| matches!(target.kind, ObjectKind::Kind(_))));
            wake.now.extend(saw_it.into_iter().chain(self.graph.dependants(&key)));
        }
        let is_readable = entry.is_readable();
        self.resources.insert(key.clone(), entry);
        if seen_by_others {
            self.require_keys(&key);
        }
        wake.now.extend(self.note_readability(&key, is_readable));
        self.known_only(wake)
    }

    /// A watch shows a resource.
    pub(super) fn see_resource(&mut self, kind: KindName, object: Object) -> Wake {
        if !self.changing.is_empty()
            && let Some(meanwhile) = self.changing.get_mut(&key_of(kind, object.metadata()))
        {
            *meanwhile = Some(object);
            return Wake::default();
        }
        self.put_resource(kind, object)
    }

    pub(super) fn begin_change(&mut self, key: &Key) {
        self.changing.insert(key.clone(), None);
    }

    pub(super) fn end_change(&mut self, kind: KindName, key: &Key, written: Option<Object>) -> Wake {
        let meanwhile = self.changing.remove(key).flatten();
        let mut wake = written.map(|object| self.put_response(kind, object)).unwrap_or_default();
        wake.now.remove(key);
        if let Some(object) = meanwhile {
            let more = self.put_resource(kind, object);
            wake.now.extend(more.now);
            wake.soon.extend(more.soon);
        }
        wake
    }

    pub(super) fn remove_resource(&mut self, key: &Key) -> Wake {
        if let Some(meanwhile) = self.changing.get_mut(key) {
            *meanwhile = None;
        }
        let mut wake = Wake { now: self.graph.dependants(key), soon: self.graph.set(key, None) };
        self.forget_unused(&wake.soon);
        self.ends.remove(key);
        if let Some(uid) = self.resources.remove(key).and_then(|entry| entry.metadata().uid.clone()) {
            self.gone.push_back(uid);
            if self.gone.len() > REMEMBERED_DELETIONS {
                self.gone.pop_front();
            }
        }
        wake.now.extend(self.waiting_for_release(&wake.soon));
        wake.now.extend(self.note_readability(key, true));
        let mut wake = self.known_only(wake);
        // Its reconcile finds that it is gone, and forgets it.
        wake.now.insert(key.clone());
        wake
    }

    pub(super) fn entry(&self, key: &Key) -> Option<Entry> {
        self.resources.get(key).cloned()
    }

    pub(super) fn user_count(&self, key: &Key) -> usize {
        self.graph.user_count(key)
    }

    /// A watch shows a child.
    pub(super) fn see_child(&mut self, id: ChildId, facts: ChildFacts) -> Wake {
        if let Some(writing) = self.writing.get_mut(&id) {
            writing.meanwhile = Some(Meanwhile::Seen(Box::new(facts)));
            return Wake::default();
        }
        self.put_child(id, facts)
    }

    /// A watch shows that a child was deleted.
    pub(super) fn miss_child(&mut self, id: &ChildId) -> Wake {
        if let Some(writing) = self.writing.get_mut(id) {
            writing.meanwhile = Some(Meanwhile::Gone);
            return Wake::default();
        }
        self.remove_child(id)
    }

    pub(super) fn begin_write(&mut self, id: &ChildId) {
        self.writing.entry(id.clone()).or_default().writers += 1;
    }

    pub(super) fn end_write(&mut self, id: &ChildId, written: Option<ChildFacts>) -> Wake {
        let Some(writing) = self.writing.get_mut(id) else { return Wake::default() };
        writing.writers -= 1;
        let meanwhile = writing.meanwhile.take();
        if writing.writers == 0 {
            self.writing.remove(id);
        }
        let mut wake = Wake::default();
        if let Some(facts) = written {
            // The owner wrote it, and is not woken. The resource that needs the name for its backend is.
            let owner = owner_key(id, &facts);
            wake = self.put_child(id.clone(), facts);
            wake.now.retain(|key| Some(key) != owner.as_ref() && Some(key) == backend_owner(id).as_ref());
        }
        let more = match meanwhile {
            None => Wake::default(),
            Some(Meanwhile::Seen(facts)) => self.put_child(id.clone(), *facts),
            // It was the one before, or the one that was written: the next reconcile will find out.
            Some(Meanwhile::Gone) => self.remove_child(id),
        };
        wake.now.extend(more.now);
        wake
    }

    fn put_child(&mut self, id: ChildId, facts: ChildFacts) -> Wake {
        let before = self.children.get(&id);
        if before
            .is_some_and(|before| before.uid == facts.uid && older(&facts.resource_version, &before.resource_version))
        {
            return Wake::default();
        }
        let observed = |facts: &ChildFacts| (facts.version.clone(), facts.workload.clone(), facts.upstream.clone());
        let changed = before.is_none_or(|before| observed(before) != observed(&facts));
        let mut wake = Wake::default();
        if changed {
            wake.now.extend(before.and_then(|before| owner_key(&id, before)));
            wake.now.extend(owner_key(&id, &facts));
            wake.now.extend(backend_owner(&id));
        }
        self.forget_owner(&id);
        if let Some(owner) = &facts.owner {
            self.by_owner.entry(owner.uid.clone()).or_default().insert(id.clone());
        }
        self.children.insert(id, facts);
        self.known_only(wake)
    }

    pub(super) fn remove_child(&mut self, id: &ChildId) -> Wake {
        self.forget_owner(id);
        let Some(facts) = self.children.remove(id) else { return Wake::default() };
        self.forget_ends_of_workload(id, &facts);
        self.known_only(Wake {
            now: owner_key(id, &facts).into_iter().chain(backend_owner(id)).collect(),
            ..Wake::default()
        })
    }

    pub(super) fn child(&self, id: &ChildId) -> Option<ChildFacts> {
        self.children.get(id).cloned()
    }

    pub(super) fn content_changed(&mut self, key: &Key, version: Option<&str>) -> Wake {
        if let Some(reading) = self.reading.get_mut(key) {
            reading.changes += 1;
            reading.seen = version.map(str::to_owned);
        }
        if !self.graph.is_used(key) {
            self.contents.remove(key);
            return Wake::default();
        }
        if let Some(known) = self.contents.get(key).map(|content| &content.version)
            && (known.as_deref() == version
                || known.as_deref().zip(version).is_some_and(|(known, new)| older(new, known)))
        {
            return Wake::default();
        }
        self.contents.remove(key);
        self.known_only(Wake { now: self.graph.dependants(key), soon: BTreeSet::new() })
    }

    /// Returns the argument of [`Self::end_read`].
    pub(super) fn begin_read(&mut self, key: &Key) -> BegunRead {
        let keys = self.referenced_keys(key);
        let reading = self.reading.entry(key.clone()).or_default();
        reading.readers += 1;
        BegunRead { changes: reading.changes, keys }
    }

    pub(super) fn end_read(&mut self, key: &Key, began: BegunRead, read: Option<(Option<Found>, Option<String>)>) {
        let Some(reading) = self.reading.get_mut(key) else { return };
        reading.readers -= 1;
        // What was read is no older than what the watch showed last: it may be the very change.
        let is_current = |read: &str| reading.seen.as_deref().is_some_and(|seen| seen == read || older(seen, read));
        let version = read.as_ref().and_then(|(_, version)| version.as_deref());
        let changed = reading.changes != began.changes && !version.is_some_and(is_current);
        if reading.readers == 0 {
            self.reading.remove(key);
        }
        // The last resource that refers to it may have gone meanwhile.
        if let Some((found, version)) = read.filter(|_| !changed).filter(|_| self.graph.is_used(key))
            && began.keys.covers(&self.referenced_keys(key))
        {
            self.contents.insert(key.clone(), found, version, began.keys);
        }
    }

    /// The keys of a Secret or ConfigMap that resources refer to.
    fn referenced_keys(&self, key: &Key) -> ReferencedKeys {
        let mut keys = ReferencedKeys::default();
        for user in self.graph.users(key) {
            if let Some(resource) = self.resources.get(&user).and_then(Entry::resource) {
                keys.extend(ReferencedKeys::among(&self.graph.references(&resource), &user.namespace, key));
            }
        }
        keys
    }

    /// Has what was read without the keys that a resource refers to read again.
    fn require_keys(&mut self, of: &Key) {
        let Some(resource) = self.resources.get(of).and_then(Entry::resource) else { return };
        let references = self.graph.references(&resource);
        for target in self.graph.targets(of) {
            if matches!(target.kind, ObjectKind::Secret | ObjectKind::ConfigMap) {
                self.contents.require(&target, &ReferencedKeys::among(&references, &of.namespace, &target));
            }
        }
    }

    pub(super) fn trim_contents(&mut self, namespace: &str) {
        self.contents.trim(namespace);
    }

    pub(super) fn content_version(&self, key: &Key) -> Option<String> {
        self.contents.get(key).and_then(|content| content.version.clone())
    }

    pub(super) fn contents(&self, kind: ObjectKind) -> BTreeSet<Key> {
        self.contents.keys(kind).cloned().collect()
    }

    pub(super) fn snapshot(&self, key: &Key) -> Option<Snapshot> {
        let me = self.resources.get(key)?.resource()?;
        let mut left = PARSED_AT_ONCE;
        let mut found = BTreeMap::new();
        let mut unread = Vec::new();
        for near in self.graph.surroundings(key) {
            let object = match near.kind {
                ObjectKind::Kind(kind) => match self.resources.get(&near) {
                    Some(Entry::Readable(held)) => Some(parsed(held, &mut left)),
                    Some(Entry::Unreadable { problem, .. }) => Some(Found::Unreadable(problem.clone())),
                    None => self.unavailable(kind, &near.namespace).map(|why| Found::Unlisted(why.to_string())),
                },
                // What cannot exist is not asked for; the plan says so.
                ObjectKind::Secret | ObjectKind::ConfigMap if !near.can_exist() => None,
                ObjectKind::Secret | ObjectKind::ConfigMap => {
                    let held = self.contents.held(&near);
                    if held.is_none() {
                        unread.push(near.clone());
                    }
                    held.and_then(|held| held.found.clone())
                }
            };
            if let Some(object) = object {
                found.insert(near, object);
            }
        }
        let children = self.children_of(me.kind(), me.metadata());
        let (live, settles) = self.live(key, &children);
        Some(Snapshot { me, found, users: self.graph.users(key), live, unread, children, settles })
    }

    /// The resources that refer to an object, and what runs for it, whether the object can be read or not.
    pub(super) fn surroundings(&self, key: &Key) -> (BTreeSet<Key>, Live) {
        let children = match (key.kind, self.resources.get(key)) {
            (ObjectKind::Kind(kind), Some(entry)) => self.children_of(kind, entry.metadata()),
            _ => BTreeMap::new(),
        };
        (self.graph.users(key), self.live(key, &children).0)
    }

    /// Forgets the content of Secrets and ConfigMaps that no resource refers to any more.
    fn forget_unused(&mut self, targets: &BTreeSet<Key>) {
        for target in targets.iter().filter(|target| !self.graph.is_used(target)) {
            self.contents.remove(target);
        }
    }

    /// The children that carry the uid of a resource.
    fn children_of(&self, kind: KindName, owner: &ObjectMeta) -> BTreeMap<ChildId, ChildFacts> {
        let (entry, uid) = (kinds::entry(kind), owner.uid.as_deref().unwrap_or_default());
        let ids = self.by_owner.get(uid).into_iter().flatten().filter(|id| entry.prunes(id.kind));
        ids.filter_map(|id| self.children.get(id).map(|facts| (id.clone(), facts.clone()))).collect()
    }

    /// Configurations that are being deleted and wait for their last user: the one that is gone may have been it.
    fn waiting_for_release(&self, targets: &BTreeSet<Key>) -> BTreeSet<Key> {
        let deleting =
            |key: &Key| self.resources.get(key).is_some_and(|entry| entry.metadata().deletion_timestamp.is_some());
        targets.iter().filter(|key| deleting(key)).cloned().collect()
    }

    fn forget_owner(&mut self, id: &ChildId) {
        let Some(owner) = self.children.get(id).and_then(|facts| facts.owner.as_ref()) else { return };
        if let Some(ids) = self.by_owner.get_mut(&owner.uid) {
            ids.remove(id);
            if ids.is_empty() {
                let uid = owner.uid.clone();
                self.by_owner.remove(&uid);
            }
        }
    }

    fn known_only(&self, mut wake: Wake) -> Wake {
        wake.now.retain(|key| self.resources.contains_key(key));
        wake.soon.retain(|key| self.resources.contains_key(key) && !wake.now.contains(key));
        wake
    }
}

/// What a plan sees of a resource that another one refers to. Of too many large ones together the rest is not parsed.
fn parsed(held: &StoredResource, left: &mut usize) -> Found {
    let Some(rest) = left.checked_sub(held.values_to_parse()) else {
        return Found::Unreadable(format!(
            "what is referred to has more than {PARSED_AT_ONCE} values (texts, numbers, lists and objects) together; write less"
        ));
    };
    *left = rest;
    held.resource().map_or_else(Found::Unreadable, Found::Resource)
}

fn key_of(kind: KindName, metadata: &ObjectMeta) -> Key {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    Key::resource(kind, namespace, metadata.name.as_deref().unwrap_or_default())
}

fn owner_key(id: &ChildId, facts: &ChildFacts) -> Option<Key> {
    let owner = facts.owner.as_ref()?;
    Some(Key::resource(KindName::parse(&owner.kind)?, &id.namespace, &owner.name))
}

/// The resource that a StatefulSet concerns as its backend, whichever its owner is: it is that backend, or has the name that its proxy
/// needs.
fn backend_owner(id: &ChildId) -> Option<Key> {
    Backend::owner(&id.namespace, &id.name).filter(|_| id.kind == Backend::KIND)
}

/// Whether an object says nothing new: it is older than what is known, or the very same, as the watch brings back all that
/// we wrote.
fn is_known(new: &ObjectMeta, known: &ObjectMeta) -> bool {
    let version = |metadata: &ObjectMeta| metadata.resource_version.clone().unwrap_or_default();
    let (new_version, known_version) = (version(new), version(known));
    new.uid == known.uid
        && (older(&new_version, &known_version) || (!new_version.is_empty() && new_version == known_version))
}

/// Whether a resource version came before another. They are opaque in principle and counted in practice; what cannot be
/// compared is taken as new.
fn older(new: &str, known: &str) -> bool {
    matches!((new.parse::<u64>(), known.parse::<u64>()), (Ok(new), Ok(known)) if new < known)
}
