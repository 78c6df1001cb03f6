//! What the watches have seen: resources, and the versions of Secrets and ConfigMaps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use skep_plan::key::Key;
use skep_plan::world::Found;
use tokio::sync::watch;

/// What the watches have seen so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    contents: Mutex<Contents>,
    changes: watch::Sender<u64>,
}

/// The objects themselves.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The resources that matter.
    pub(super) found: BTreeMap<Key, Found>,
    /// The versions of Secrets and ConfigMaps.
    pub(super) versions: BTreeMap<Key, String>,
    /// The watches that have not listed all of their objects yet.
    pending: BTreeSet<&'static str>,
    is_started: bool,
}

// === impl Seen ===

impl Seen {
    /// Tells of every change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A watch exists, and must list its objects before anything is resolved.
    pub(super) fn expect(&self, watched: &'static str) {
        self.with(|contents| {
            contents.is_started = true;
            contents.pending.insert(watched);
        });
    }

    /// A watch has listed all of its objects.
    pub(super) fn listed(&self, watched: &'static str) {
        self.change(|contents| contents.pending.remove(watched));
    }

    /// Changes what is known. What returns `true` is a change.
    pub(super) fn change(&self, act: impl FnOnce(&mut Contents) -> bool) {
        if self.with(act) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// All that is known, once every watch has listed its objects: what is missing then does not exist.
    pub(super) fn complete(&self) -> Option<(BTreeMap<Key, Found>, BTreeMap<Key, String>)> {
        self.with(|contents| {
            let is_complete = contents.is_started && contents.pending.is_empty();
            is_complete.then(|| (contents.found.clone(), contents.versions.clone()))
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Contents) -> T) -> T {
        act(&mut self.contents.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Contents ===

impl Contents {
    /// Forgets an object. Says whether it was known.
    pub(super) fn remove(&mut self, key: &Key) -> bool {
        self.found.remove(key).is_some() | self.versions.remove(key).is_some()
    }

    /// Forgets the objects of a kind that are not among these.
    pub(super) fn retain(&mut self, kind: skep_plan::key::ObjectKind, listed: &BTreeSet<Key>) -> bool {
        let before = self.found.len() + self.versions.len();
        let stays = |key: &Key| key.kind != kind || listed.contains(key);
        self.found.retain(|key, _| stays(key));
        self.versions.retain(|key, _| stays(key));
        before != self.found.len() + self.versions.len()
    }
}
