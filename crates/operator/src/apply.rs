//! Bringing children about: apply what a plan wants, remove what is ours and not wanted, touch nothing that is not ours.
//!
//! There is no comparison of fields here. The API server's own server-side apply is the only judge of what differs; we only
//! remember, per child, what we sent last and at which version the object was after it. Equal on both sides, nothing is sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::{join_all, try_join_all};
use skep_api::resource::Resource;
use skep_plan::canonical;
use skep_plan::child::{Child, ChildKind};
use skep_plan::key::Key;

use crate::metrics::Metrics;
use crate::store::{ChildFacts, ChildId, Store, child_facts};
use crate::write::{WriteError, Writer};

/// Applies plans and remembers what it sent.
#[derive(Debug, Default)]
pub struct Applier {
    /// By whose child it is, so that to forget a resource costs no more than it has children.
    sent: Mutex<HashMap<Key, BTreeMap<ChildId, Fingerprint>>>,
}

/// What we sent last, and what the object was after it. Opaque: it never looks at a field of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    body: String,
    uid: String,
    version: String,
}

/// A child whose name somebody else uses.
pub type Taken = (ChildKind, String, String);

// === impl Applier ===

impl Applier {
    /// The children whose names are taken by objects that are not this resource's. Objects that no watch has shown us, and
    /// those that went since, are looked up, so that nobody's object is ever overwritten.
    pub async fn taken(
        &self,
        me: &Resource,
        children: &[Child],
        store: &Store,
        writer: &Writer,
    ) -> Result<Vec<Taken>, WriteError> {
        let mut taken = Vec::new();
        let looked_up = children.iter().map(|child| async {
            let id = id(me, child);
            let facts = match store.child(&id) {
                Some(facts) => Some(facts),
                None => match writer.look_up(&id).await? {
                    None => None,
                    Some(found) => {
                        let facts = child_facts(id.kind, &found.metadata, None);
                        let mine =
                            facts.owner.as_ref().is_some_and(|owner| Some(&owner.uid) == me.metadata().uid.as_ref());
                        if mine {
                            let sends_replicas = child.body().pointer("/spec/replicas").is_some();
                            writer.take_over(&id, &found.metadata, sends_replicas).await?;
                        }
                        Some(facts)
                    }
                },
            };
            Ok::<_, WriteError>((id, facts))
        });
        for (id, facts) in try_join_all(looked_up).await? {
            let Some(facts) = facts else { continue };
            match &facts.owner {
                Some(owner) if Some(&owner.uid) == me.metadata().uid.as_ref() => {}
                Some(owner) => taken.push((id.kind, id.name.clone(), format!("{} `{}`", owner.kind, owner.name))),
                None => taken.push((id.kind, id.name.clone(), "nobody that Skep knows".to_owned())),
            }
        }
        Ok(taken)
    }

    /// Applies the children of a plan. Workloads come last: what they mount must be there before they start. So do bindings: the API
    /// server looks up the role that they name, to see that it gives no more than we have, and refuses them without it.
    ///
    /// One that fails does not break off the others, whose requests are on their way: the API server would give them up as well.
    pub async fn apply(
        &self,
        me: &Resource,
        children: &[Child],
        store: &Store,
        writer: &Writer,
        metrics: &Metrics,
    ) -> Result<(), WriteError> {
        let (last, first): (Vec<&Child>, Vec<&Child>) =
            children.iter().partition(|child| child.kind().has_generation() || child.kind() == ChildKind::RoleBinding);
        for wave in [first, last] {
            let applied = wave.into_iter().map(|child| self.apply_one(me, child, store, writer, metrics));
            join_all(applied).await.into_iter().collect::<Result<(), WriteError>>()?;
        }
        Ok(())
    }

    /// Removes what carries our uid and is not wanted any more.
    pub async fn prune(
        &self,
        me: &Resource,
        wanted: &[Child],
        known: &BTreeMap<ChildId, ChildFacts>,
        store: &Store,
        writer: &Writer,
    ) -> Result<(), WriteError> {
        for (id, facts) in known {
            if !wanted.iter().any(|child| child.kind() == id.kind && child.name() == id.name) {
                writer.delete(id, &facts.uid).await?;
                self.with(me, |sent| sent.remove(id));
                store.remove_child(id);
            }
        }
        Ok(())
    }

    /// Forgets what was sent for a resource that is gone.
    pub fn forget(&self, owner: &Key) {
        self.lock().remove(owner);
    }

    async fn apply_one(
        &self,
        me: &Resource,
        child: &Child,
        store: &Store,
        writer: &Writer,
        metrics: &Metrics,
    ) -> Result<(), WriteError> {
        let id = id(me, child);
        let body = canonical::sha256_hex(canonical::to_string(child.body()).as_bytes());
        let live = store.child(&id);
        let unchanged = self.with(me, |sent| {
            sent.get(&id).zip(live.as_ref()).is_some_and(|(known, live)| {
                known.body == body && known.uid == live.uid && known.version == live.version
            })
        });
        if unchanged {
            metrics.skipped(child.kind().api().2);
            return Ok(());
        }
        let answer = writer.apply(me.namespace(), child).await?;
        let mut facts = child_facts(child.kind(), &answer.metadata, Some(child.body()));
        // The answer has no status and no replicas of an autoscaler; what the watch has shown of them stays until it
        // shows more. What we stamped is known at once: the next plan must not take a stale stamp for a change.
        if let (Some(sent), Some(seen)) = (&mut facts.workload, live.and_then(|live| live.workload)) {
            sent.ready = seen.ready;
            if child.body().pointer("/spec/replicas").is_none() {
                sent.replicas = seen.replicas;
            }
        }
        let fingerprint = Fingerprint { body, uid: facts.uid.clone(), version: facts.version.clone() };
        self.with(me, |sent| sent.insert(id.clone(), fingerprint));
        // Whom this wakes is the resource at hand, which is being looked at.
        let _self_inflicted = store.put_child(id, facts);
        Ok(())
    }

    fn with<T>(&self, me: &Resource, act: impl FnOnce(&mut BTreeMap<ChildId, Fingerprint>) -> T) -> T {
        act(self.lock().entry(Key::of(me)).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, BTreeMap<ChildId, Fingerprint>>> {
        // A thread that panicked left the map whole: every change of it is one call.
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(me: &Resource, child: &Child) -> ChildId {
    ChildId { kind: child.kind(), namespace: me.namespace().to_owned(), name: child.name().to_owned() }
}
