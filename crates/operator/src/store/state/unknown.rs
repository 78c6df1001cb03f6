//! What the operator does not know, so that it is not taken for what does not exist: kinds that it cannot list, and objects that it
//! cannot read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use skep_api::resource::KindName;
use skep_plan::key::{Key, ObjectKind};

use super::{Entry, State, Wake};

/// Why the objects of a kind are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The API server has no such kind, so there are no objects of it.
    NotServed,
    /// The API server refuses to list or watch it; what it said. There may be objects.
    Forbidden(String),
    /// The API server serves it only in a version that this operator does not know; which one. There may be objects.
    UnknownVersion(String),
}

/// The kinds that cannot be listed, by namespace; no namespace stands for all of them.
pub(in crate::store) type UnavailableKinds = BTreeMap<(KindName, Option<String>), Unavailable>;

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed => formatter.write_str("the API server does not serve it; install its definition"),
            Self::Forbidden(why) => write!(formatter, "{why}; grant the operator the right to list and watch it"),
            Self::UnknownVersion(version) => {
                write!(formatter, "served as {version} only, which this version of Skep does not know; update Skep")
            }
        }
    }
}

impl State {
    /// Sets whether the objects of a kind can be known, in a namespace or in all. Returns the resources to reconcile: all that may
    /// refer to them or be referred to by them.
    pub(in crate::store) fn set_unavailable(
        &mut self,
        kind: KindName,
        namespace: Option<&str>,
        why: Option<Unavailable>,
    ) -> Wake {
        let id = (kind, namespace.map(str::to_owned));
        let is_same = match why {
            Some(why) => self.unavailable.insert(id, why.clone()).as_ref() == Some(&why),
            None => self.unavailable.remove(&id).is_none(),
        };
        if is_same {
            return Wake::default();
        }
        let concerned =
            self.resources.keys().filter(|key| namespace.is_none_or(|namespace| key.namespace == namespace));
        Wake { now: concerned.cloned().collect(), soon: BTreeSet::new() }
    }

    /// Sets whether a watch has never listed what there is in a namespace. Returns the resources to reconcile: everything in it, once all have.
    pub(in crate::store) fn set_unseen(&mut self, namespace: &str, watch: &str, is_unseen: bool) -> Wake {
        if is_unseen {
            self.unseen.entry(namespace.to_owned()).or_default().insert(watch.to_owned());
            return Wake::default();
        }
        let Some(watches) = self.unseen.get_mut(namespace) else { return Wake::default() };
        watches.remove(watch);
        if !watches.is_empty() {
            return Wake::default();
        }
        self.unseen.remove(namespace);
        let held_back = self.resources.keys().filter(|key| key.namespace == namespace);
        Wake { now: held_back.cloned().collect(), soon: BTreeSet::new() }
    }

    /// Whether a watch has never listed what there is in a namespace.
    pub(in crate::store) fn is_unseen(&self, namespace: &str) -> bool {
        self.unseen.contains_key(namespace)
    }

    /// Whether objects of a kind are known, in a namespace or in any.
    pub(in crate::store) fn has_kind(&self, kind: KindName, namespace: Option<&str>) -> bool {
        self.keys_of(kind, namespace).next().is_some()
    }

    /// All objects of a kind, in a namespace or in all.
    pub(in crate::store) fn wake_kind(&self, kind: KindName, namespace: Option<&str>) -> Wake {
        Wake { now: self.keys_of(kind, namespace).cloned().collect(), soon: BTreeSet::new() }
    }

    /// Forgets all objects of a kind, in a namespace or in all: they are gone with its definition. Returns the resources to
    /// reconcile.
    pub(in crate::store) fn remove_kind(&mut self, kind: KindName, namespace: Option<&str>) -> Wake {
        let gone: Vec<Key> = self.keys_of(kind, namespace).cloned().collect();
        let mut wake = Wake::default();
        for key in gone {
            let more = self.remove_resource(&key);
            wake.now.extend(more.now);
            wake.soon.extend(more.soon);
        }
        wake
    }

    fn keys_of(&self, kind: KindName, namespace: Option<&str>) -> impl Iterator<Item = &Key> {
        let is_here = move |key: &&Key| namespace.is_none_or(|namespace| key.namespace == namespace);
        self.resources.keys().filter(move |key| key.kind == ObjectKind::Kind(kind)).filter(is_here)
    }

    /// Why the objects of a kind are not known in a namespace, if they are not.
    pub(super) fn unavailable(&self, kind: KindName, namespace: &str) -> Option<&Unavailable> {
        let here = self.unavailable.get(&(kind, Some(namespace.to_owned())));
        here.or_else(|| self.unavailable.get(&(kind, None)))
    }

    /// The kinds of which there may be objects in a namespace that are not known, and why not.
    pub(super) fn unlisted(&self, namespace: &str) -> BTreeMap<KindName, String> {
        let known = |kind: &KindName| match self.unavailable(*kind, namespace) {
            Some(why @ (Unavailable::Forbidden(_) | Unavailable::UnknownVersion(_))) => Some((*kind, why.to_string())),
            Some(Unavailable::NotServed) | None => None,
        };
        if self.unavailable.is_empty() {
            return BTreeMap::new();
        }
        KindName::ALL.iter().filter_map(known).collect()
    }

    /// What may refer to a configuration though it is not known to: objects that cannot be read and have its name somewhere in
    /// them, and objects of kinds that cannot be listed. A reference is a name in the same namespace, so nothing else can.
    pub(in crate::store) fn possible_users(&self, of: &Key) -> BTreeSet<String> {
        let ObjectKind::Kind(kind) = of.kind else { return BTreeSet::new() };
        if !kind.is_config() {
            return BTreeSet::new();
        }
        let unlisted = self.unlisted(&of.namespace).into_iter().filter(|(kind, _)| kind.may_use_configs());
        let unlisted = unlisted.map(|(kind, why)| format!("{kind}s cannot be listed: {why}"));
        let unreadable = self.unreadable.iter().filter(|key| key.namespace == of.namespace && *key != of);
        let unreadable = unreadable.filter_map(|key| match (self.resources.get(key), key.kind) {
            (Some(Entry::Unreadable { names, .. }), ObjectKind::Kind(user))
                if user.may_use_configs() && names.contains(&of.name) =>
            {
                Some(format!("{user} `{}` cannot be read and may refer to it; correct or delete it", key.name))
            }
            _ => None,
        });
        unlisted.chain(unreadable).collect()
    }

    /// Notes whether an object can be read, and returns the configurations whose deletion may have waited for that.
    pub(super) fn note_readability(&mut self, key: &Key, is_readable: bool) -> BTreeSet<Key> {
        let was_readable = !self.unreadable.contains(key);
        if is_readable {
            self.unreadable.remove(key);
        } else {
            self.unreadable.insert(key.clone());
        }
        if is_readable && was_readable {
            return BTreeSet::new();
        }
        let is_waiting = |other: &Key, entry: &Entry| {
            other.namespace == key.namespace && entry.metadata().deletion_timestamp.is_some()
        };
        self.resources
            .iter()
            .filter(|(other, entry)| is_waiting(other, entry))
            .map(|(other, _)| other.clone())
            .collect()
    }
}
