//! Bringing children about: apply what a plan wants, remove what is ours and not wanted, touch nothing that is not ours.
//!
//! There is no comparison of fields here. The API server's own server-side apply is the only judge of what differs; we only
//! remember, per child, what we sent last and which of its fields were noted as ours after it. Equal on both sides, nothing is sent:
//! a change of another manager's fields costs no request.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{join_all, try_join_all};
use serde_json::Map;
use skep_api::resource::Resource;
use skep_plan::canonical;
use skep_plan::child::{Child, ChildKind};
use skep_plan::key::Key;

use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::store::{ChildFacts, ChildId, Store, child_facts};
use crate::write::{WriteError, Writer};

/// Applies plans and remembers what it sent.
#[derive(Debug)]
pub struct Applier {
    queue: Arc<Queue>,
    /// By whose child it is, so that to forget a resource costs no more than it has children.
    sent: Mutex<HashMap<Key, BTreeMap<ChildId, Fingerprint>>>,
    /// Namespaces in which nothing could be created lately, as they are being deleted.
    terminating: Mutex<HashSet<String>>,
}

/// What we sent last, and what the object was after it. Opaque: it never looks at a field of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    body: String,
    /// Whether it had a number of replicas.
    has_replicas: bool,
    uid: String,
    version: String,
}

/// A child whose name somebody else uses.
pub type Taken = (ChildKind, String, String);

/// What became of one child.
enum One {
    /// It is as wanted.
    There,
    /// It was not there before, and is now, with this uid.
    Made(ChildId, String),
    /// Its name is somebody else's.
    Taken(Taken),
}

/// The children whose names are taken by objects that are not this resource's, as far as is known without trying.
///
/// Objects that no watch has shown us are looked up, but not for a resource that is new: its children are hardly ever there, and
/// what is there is found when they are made ([`Applier::apply`]). A resource that was refused before is not new, so nothing is
/// made and unmade for it again and again.
pub async fn taken(
    me: &Resource,
    children: &[Child],
    store: &Store,
    writer: &Writer,
) -> Result<Vec<Taken>, WriteError> {
    let is_new = || me.stored_status().as_object().is_some_and(Map::is_empty);
    let looked_up = children.iter().map(|child| async {
        let id = id(me, child);
        let facts = match store.child(&id) {
            None if !is_new() => look_up(me, child, &id, writer).await?,
            known => known,
        };
        Ok::<_, WriteError>(facts.and_then(|facts| taken_by(me, &id, &facts)))
    });
    Ok(try_join_all(looked_up).await?.into_iter().flatten().collect())
}

/// Looks up a child that no watch has shown us. One that the operator before us made for this resource is taken over.
async fn look_up(
    me: &Resource,
    child: &Child,
    id: &ChildId,
    writer: &Writer,
) -> Result<Option<ChildFacts>, WriteError> {
    let Some(found) = writer.look_up(id).await? else { return Ok(None) };
    let facts = child_facts(id.kind, &found.metadata, None);
    if taken_by(me, id, &facts).is_none() {
        writer.take_over(id, &found.metadata, sends_replicas(child)).await?;
    }
    Ok(Some(facts))
}

fn sends_replicas(child: &Child) -> bool {
    child.body().pointer("/spec/replicas").is_some()
}

/// Whose an object is, if it is not this resource's.
fn taken_by(me: &Resource, id: &ChildId, facts: &ChildFacts) -> Option<Taken> {
    let is_mine = facts.owner.as_ref().is_some_and(|owner| Some(&owner.uid) == me.metadata().uid.as_ref());
    (!is_mine).then(|| (id.kind, id.name.clone(), facts.owner_in_words()))
}

// === impl Applier ===

impl Applier {
    /// One that wakes through this queue whoever must be looked at again.
    pub fn new(queue: Arc<Queue>) -> Self {
        Self { queue, sent: Mutex::default(), terminating: Mutex::default() }
    }

    /// Applies the children of a plan. Workloads come last: what they mount must be there before they start. So do bindings: the API
    /// server looks up the role that they name, to see that it gives no more than we have, and refuses them without it.
    ///
    /// One that fails does not break off the others, whose requests are on their way: the API server would give them up as well.
    ///
    /// Returns the children whose names are somebody else's. If there are any, what was made here is removed again; children that
    /// were there before stay.
    pub async fn apply(
        &self,
        me: &Resource,
        children: &[Child],
        store: &Store,
        writer: &Writer,
        metrics: &Metrics,
    ) -> Result<Vec<Taken>, WriteError> {
        let (last, first): (Vec<&Child>, Vec<&Child>) =
            children.iter().partition(|child| child.kind().has_generation() || child.kind() == ChildKind::RoleBinding);
        let (mut made, mut taken) = (Vec::new(), Vec::new());
        for wave in [first, last] {
            let applied = wave.into_iter().map(|child| self.apply_one(me, child, store, writer, metrics));
            let applied = if self.is_terminating(me.namespace()) {
                until_terminating(applied).await
            } else {
                join_all(applied).await
            };
            self.note_terminating(me.namespace(), &applied);
            let mut failed = Ok(());
            for one in applied {
                match one {
                    Ok(One::There) => {}
                    Ok(One::Made(id, uid)) => made.push((id, uid)),
                    Ok(One::Taken(one)) => taken.push(one),
                    Err(error @ WriteError::NamespaceTerminating { .. }) => failed = Err(error),
                    Err(error) => failed = failed.and(Err(error)),
                }
            }
            if !taken.is_empty() {
                for (id, uid) in &made {
                    self.remove(me, id, uid, store, writer).await?;
                }
                return Ok(taken);
            }
            failed?;
        }
        Ok(taken)
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
                self.remove(me, id, &facts.uid, store, writer).await?;
            }
        }
        Ok(())
    }

    async fn remove(
        &self,
        me: &Resource,
        id: &ChildId,
        uid: &str,
        store: &Store,
        writer: &Writer,
    ) -> Result<(), WriteError> {
        writer.delete(id, uid).await?;
        self.with(me, |sent| sent.remove(id));
        // Another resource may wait for its name.
        let waiting = store.remove_child(id).now.into_iter().filter(|key| *key != Key::of(me));
        waiting.for_each(|key| self.queue.add(key));
        Ok(())
    }

    /// Whether nothing could be created in a namespace at the last try, as it is being deleted.
    pub fn is_terminating(&self, namespace: &str) -> bool {
        self.terminating.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace)
    }

    fn note_terminating(&self, namespace: &str, applied: &[Result<One, WriteError>]) {
        let mut terminating = self.terminating.lock().unwrap_or_else(PoisonError::into_inner);
        if applied.iter().any(|one| matches!(one, Err(WriteError::NamespaceTerminating { .. }))) {
            if terminating.insert(namespace.to_owned()) {
                tracing::info!(namespace, "namespace is terminating; nothing is created there");
            }
        } else if applied.iter().any(|one| matches!(one, Ok(One::Made(..)))) {
            terminating.remove(namespace);
        }
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
    ) -> Result<One, WriteError> {
        let id = id(me, child);
        // As it is sent: an owner that is served in another version now is another body.
        let body = writer.with_served_owners(child.body());
        let body = canonical::sha256_hex(canonical::to_string(&body).as_bytes());
        let has_replicas = sends_replicas(child);
        let mut writing = Writing::begin(&id, store, &self.queue);
        // Not before: what the watch shows between the two would be lost.
        let live = store.child(&id);
        let unchanged = self.with(me, |sent| {
            sent.get(&id).zip(live.as_ref()).is_some_and(|(known, live)| {
                known.body == body && known.uid == live.uid && known.version == live.version
            })
        });
        if unchanged {
            metrics.skipped(child.kind().api().2);
            return Ok(One::There);
        }
        // What we do not know of is not there, or somebody else's: it is made, but never changed before it was looked at.
        let made = if live.is_none() { writer.make(me.namespace(), child).await? } else { None };
        let is_made = made.is_some();
        let answer = if let Some(answer) = made {
            answer
        } else {
            if live.is_none()
                && let Some(facts) = look_up(me, child, &id, writer).await?
                && let Some(taken) = taken_by(me, &id, &facts)
            {
                return Ok(One::Taken(taken));
            }
            // What we do not know to have left before may be ours. One is what it would be anyway.
            if !has_replicas
                && live.as_ref().and_then(|live| live.workload.as_ref()).is_some_and(|live| live.replicas != 1)
                && self.with(me, |sent| sent.get(&id).is_none_or(|known| known.has_replicas))
            {
                writer.leave_replicas(&id).await?;
            }
            writer.apply(me.namespace(), child).await?
        };
        let mut facts = child_facts(child.kind(), &answer.metadata, Some(child.body()));
        // The answer has no status and no replicas of an autoscaler; what the watch has shown of them stays until it
        // shows more. What we stamped is known at once: the next plan must not take a stale stamp for a change.
        if let (Some(sent), Some(seen)) = (&mut facts.workload, live.and_then(|live| live.workload)) {
            sent.ready = seen.ready;
            sent.progress = seen.progress;
            sent.upstream = seen.upstream;
            if !has_replicas {
                sent.replicas = seen.replicas;
            }
        }
        let fingerprint = Fingerprint { body, has_replicas, uid: facts.uid.clone(), version: facts.version.clone() };
        self.with(me, |sent| sent.insert(id.clone(), fingerprint));
        let uid = facts.uid.clone();
        writing.written = Some(facts);
        drop(writing);
        Ok(if is_made { One::Made(id, uid) } else { One::There })
    }

    fn with<T>(&self, me: &Resource, act: impl FnOnce(&mut BTreeMap<ChildId, Fingerprint>) -> T) -> T {
        act(self.lock().entry(Key::of(me)).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, BTreeMap<ChildId, Fingerprint>>> {
        // A thread that panicked left the map whole: every change of it is one call.
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child that is being written, from the request to the end of whatever becomes of it.
struct Writing<'a> {
    id: &'a ChildId,
    store: &'a Store,
    queue: &'a Queue,
    written: Option<ChildFacts>,
}

impl<'a> Writing<'a> {
    fn begin(id: &'a ChildId, store: &'a Store, queue: &'a Queue) -> Self {
        store.begin_write(id);
        Self { id, store, queue, written: None }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        for key in self.store.end_write(self.id, self.written.take()).now {
            self.queue.add(key);
        }
    }
}

/// One after the other, up to the first that fails because the namespace is being deleted: the others would fail as well.
async fn until_terminating(
    applied: impl Iterator<Item = impl Future<Output = Result<One, WriteError>>>,
) -> Vec<Result<One, WriteError>> {
    let mut all = Vec::new();
    for one in applied {
        all.push(one.await);
        if matches!(all.last(), Some(Err(WriteError::NamespaceTerminating { .. }))) {
            break;
        }
    }
    all
}

fn id(me: &Resource, child: &Child) -> ChildId {
    ChildId { kind: child.kind(), namespace: me.namespace().to_owned(), name: child.name().to_owned() }
}
