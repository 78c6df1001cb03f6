//! Applying children, and removing what is ours and not wanted any more; nothing that has another owner is touched.
//!
//! There is no comparison of fields here. The API server's own server-side apply is the only comparator; we only
//! remember, per child, what we sent last and which of its fields were noted as ours after it. Equal on both sides, nothing is sent:
//! a change of another manager's fields costs no request.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;
use skep_api::resource::Resource;
use skep_plan::canonical;
use skep_plan::child::{Child, ChildKind};
use skep_plan::key::Key;

use super::field_conflict::FieldConflict;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::store::{ChildFacts, ChildId, Store, child_facts};
use crate::write::{ChildResponse, MANAGER, WriteError, Writer};

/// Applies children and remembers what it sent.
#[derive(Debug)]
pub struct Applier {
    queue: Arc<Queue>,
    store: Arc<Store>,
    writer: Writer,
    metrics: Metrics,
    /// By whose child it is, so that to forget a resource costs no more than it has children.
    sent: Mutex<HashMap<Key, BTreeMap<ChildId, Fingerprint>>>,
    /// Namespaces in which nothing could be created lately, as they are being deleted.
    terminating: Mutex<HashSet<String>>,
    /// Children whose fields another manager changes again and again.
    field_conflicts: Mutex<HashMap<ChildId, FieldConflict>>,
    /// Resources of which no name was in use when all names were looked up, with the uid and the generation of that time.
    free_names: Mutex<HashMap<Key, (Option<String>, i64)>>,
}

/// What we sent last, and what the object was after it. Opaque: it compares no fields.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    body: String,
    /// Whether it had a number of replicas.
    has_replicas: bool,
    uid: String,
    version: String,
}

/// How many managers a report names.
const MOST_MANAGERS: usize = 10;
/// A child whose name an object of another owner has: its kind, its name and that owner.
pub(super) type NameConflict = (ChildKind, String, String);

/// How the children of a plan were applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All of them are as planned.
    Applied {
        /// Whether the workload is another one than the plan saw.
        workload_changed: bool,
        /// What to report of children whose fields another manager keeps changing.
        field_conflict_reports: Vec<String>,
        /// When the first of those is to be applied again.
        retry_after: Option<Duration>,
    },
    /// Some names are in use. What was created for this plan is removed again.
    NamesInUse(BTreeSet<NameConflict>),
}

/// How one child was applied.
enum One {
    /// It is as planned.
    Applied { workload_changed: bool, report: Option<String> },
    /// Another manager keeps changing it: it is applied after this time, and that is to be reported, once.
    Contested { wait: Duration, report: Option<String> },
    /// It did not exist before, and does now, with this uid.
    Created(ChildId, String),
    /// Its name is in use.
    NameInUse(NameConflict),
}

/// The conflict about the name of a child, if the object of that name is not this resource's.
pub(super) fn name_conflict(me: &Resource, id: &ChildId, facts: &ChildFacts) -> Option<NameConflict> {
    let is_mine = facts.owner.as_ref().is_some_and(|owner| Some(&owner.uid) == me.metadata().uid.as_ref());
    (!is_mine).then(|| (id.kind, id.name.clone(), facts.owner_text()))
}

/// The id of a child of a resource.
pub(super) fn child_id(me: &Resource, kind: ChildKind, name: &str) -> ChildId {
    ChildId { kind, namespace: me.namespace().to_owned(), name: name.to_owned() }
}

// === impl Applier ===

impl Applier {
    /// One that wakes through this queue every resource that must be reconciled again.
    pub fn new(queue: Arc<Queue>, store: Arc<Store>, writer: Writer, metrics: Metrics) -> Self {
        Self {
            queue,
            store,
            writer,
            metrics,
            sent: Mutex::default(),
            terminating: Mutex::default(),
            field_conflicts: Mutex::default(),
            free_names: Mutex::default(),
        }
    }

    /// Applies the children of a plan. Workloads come last: what they mount must be there before they start. So do bindings: the API
    /// server looks up the role that they name, to see that it gives no more than we have, and refuses them without it.
    ///
    /// One that fails does not break off the others, whose requests are in flight: the API server would give them up as well.
    ///
    /// If the name of one is in use, what was created here is removed again; children that were there before stay.
    pub(super) async fn apply(&self, me: &Resource, children: &[Child]) -> Result<Outcome, WriteError> {
        let (last, first): (Vec<&Child>, Vec<&Child>) =
            children.iter().partition(|child| child.kind().has_generation() || child.kind() == ChildKind::RoleBinding);
        let (mut created, mut conflicts, mut changed, mut field_conflict_reports) =
            (Vec::new(), BTreeSet::new(), false, Vec::new());
        let mut retry_after = None::<Duration>;
        for wave in [first, last] {
            let mut failures = Vec::new();
            for one in self.apply_wave(me, wave).await {
                match one {
                    Ok(One::Applied { workload_changed, report }) => {
                        changed |= workload_changed;
                        field_conflict_reports.extend(report);
                    }
                    Ok(One::Contested { wait, report }) => {
                        field_conflict_reports.extend(report);
                        retry_after = retry_after.into_iter().chain([wait]).min();
                    }
                    Ok(One::Created(id, uid)) => {
                        changed |= id.kind.has_generation();
                        created.push((id, uid));
                    }
                    Ok(One::NameInUse(conflict)) => {
                        conflicts.insert(conflict);
                    }
                    Err(error) => failures.push(error),
                }
            }
            if !conflicts.is_empty() {
                for (id, uid) in &created {
                    self.remove(me, id, uid).await?;
                }
                self.free_names().remove(&Key::of(me));
                return Ok(Outcome::NamesInUse(conflicts));
            }
            gravest(failures).map_or(Ok(()), Err)?;
        }
        Ok(Outcome::Applied { workload_changed: changed, field_conflict_reports, retry_after })
    }

    async fn apply_wave(&self, me: &Resource, wave: Vec<&Child>) -> Vec<Result<One, WriteError>> {
        let applied = wave.into_iter().map(|child| self.apply_one(me, child));
        let applied = if self.is_terminating(me.namespace()) {
            until_terminating(applied).await
        } else {
            join_all(applied).await
        };
        self.note_terminating(me.namespace(), &applied);
        applied
    }

    /// Removes what carries our uid and is not wanted any more.
    pub(super) async fn prune(
        &self,
        me: &Resource,
        wanted: &[Child],
        known: &BTreeMap<ChildId, ChildFacts>,
    ) -> Result<(), WriteError> {
        for (id, facts) in known {
            if !wanted.iter().any(|child| child.kind() == id.kind && child.name() == id.name) {
                self.remove(me, id, &facts.uid).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, me: &Resource, id: &ChildId, uid: &str) -> Result<(), WriteError> {
        self.writer.delete(id, uid).await?;
        self.with(me, |sent| sent.remove(id));
        // Another resource may wait for its name.
        let waiting = self.store.remove_child(id).now.into_iter().filter(|key| *key != Key::of(me));
        waiting.for_each(|key| self.queue.add(key));
        Ok(())
    }

    /// Whether nothing could be created in a namespace at the last attempt, as it is being deleted.
    pub(super) fn is_terminating(&self, namespace: &str) -> bool {
        self.terminating.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace)
    }

    fn note_terminating(&self, namespace: &str, applied: &[Result<One, WriteError>]) {
        let mut terminating = self.terminating.lock().unwrap_or_else(PoisonError::into_inner);
        if applied.iter().any(|one| matches!(one, Err(WriteError::NamespaceTerminating { .. }))) {
            if terminating.insert(namespace.to_owned()) {
                tracing::info!(namespace, "namespace is terminating; nothing is created there");
            }
        } else if applied.iter().any(|one| matches!(one, Ok(One::Created(..)))) {
            terminating.remove(namespace);
        }
    }

    /// Whether no name of a resource was in use when all of them were looked up, and no other names are planned since.
    pub(super) fn has_free_names(&self, me: &Resource) -> bool {
        let known = (me.metadata().uid.clone(), me.generation());
        self.free_names().get(&Key::of(me)) == Some(&known)
    }

    /// Remembers that no name of a resource is in use. One that is taken later is noticed when the child is created.
    pub(super) fn note_free_names(&self, me: &Resource) {
        self.free_names().insert(Key::of(me), (me.metadata().uid.clone(), me.generation()));
    }

    fn free_names(&self) -> MutexGuard<'_, HashMap<Key, (Option<String>, i64)>> {
        self.free_names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was sent for a resource that is gone.
    pub(super) fn forget(&self, owner: &Key) {
        let sent = self.lock().remove(owner).unwrap_or_default();
        self.field_conflicts.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| !sent.contains_key(id));
        self.free_names().remove(owner);
    }

    async fn apply_one(&self, me: &Resource, child: &Child) -> Result<One, WriteError> {
        let id = child_id(me, child.kind(), child.name());
        // As it is sent: an owner that is served in another version now is another body.
        let body = self.writer.with_served_owners(child.body());
        let body = canonical::sha256_hex(canonical::to_string(&body).as_bytes());
        let has_replicas = sends_replicas(child);
        let mut writing = Writing::begin(&id, &self.store, &self.queue);
        // Not before: what the watch shows between the two would be lost.
        let live = self.store.child(&id);
        let unchanged = self.with(me, |sent| {
            sent.get(&id).zip(live.as_ref()).is_some_and(|(known, live)| {
                known.body == body && known.uid == live.uid && known.version == live.version
            })
        });
        if unchanged {
            self.metrics.skipped(child.kind().api().2);
            return Ok(One::Applied { workload_changed: false, report: None });
        }
        let is_contested = self.with(me, |sent| {
            sent.get(&id).zip(live.as_ref()).is_some_and(|(known, live)| {
                known.body == body && known.uid == live.uid && known.version != live.version
            })
        });
        let mut report = None;
        if is_contested {
            let (now, is_news) = self.field_conflict(&id, Instant::now());
            if is_news {
                let text = self.report_field_conflict(&id).await?;
                self.note_field_conflict(&id, &text);
                report = Some(text);
            }
            if let ControlFlow::Break(wait) = now {
                return Ok(One::Contested { wait, report });
            }
        }
        // An object that we do not know does not exist, or has another owner: it is created, but never changed before it was read.
        let created = if live.is_none() { self.writer.create_child(me.namespace(), child).await? } else { None };
        let is_created = created.is_some();
        let answer = match created {
            Some(answer) => answer,
            None => match self.apply_existing(me, child, &id, live.as_ref()).await? {
                Ok(answer) => answer,
                Err(conflict) => return Ok(One::NameInUse(conflict)),
            },
        };
        let facts = facts_after(child, &answer, live.as_ref());
        let workload_changed = live.is_none_or(|live| live.workload != facts.workload) && facts.workload.is_some();
        let uid = facts.uid.clone();
        let fingerprint = Fingerprint { body, has_replicas, uid: uid.clone(), version: facts.version.clone() };
        self.with(me, |sent| sent.insert(id.clone(), fingerprint));
        writing.written = Some(facts);
        drop(writing);
        Ok(if is_created { One::Created(id, uid) } else { One::Applied { workload_changed, report } })
    }

    /// Whether a child that another manager changed is applied again now; if not, after which time. And whether that is to be reported.
    fn field_conflict(&self, id: &ChildId, now: Instant) -> (ControlFlow<Duration>, bool) {
        let mut field_conflicts = self.field_conflicts.lock().unwrap_or_else(PoisonError::into_inner);
        field_conflicts.entry(id.clone()).or_insert(FieldConflict::new(now)).next(now)
    }

    fn note_field_conflict(&self, id: &ChildId, report: &str) {
        if let Some(field_conflict) = self.field_conflicts.lock().unwrap_or_else(PoisonError::into_inner).get_mut(id) {
            field_conflict.report = Some(report.into());
        }
    }

    /// The children of a plan whose fields another manager keeps changing: what was reported, and after which time the first of them
    /// is to be reconciled again.
    pub(super) fn open_field_conflicts(&self, me: &Resource, children: &[Child]) -> Option<(String, Duration)> {
        let field_conflicts = self.field_conflicts.lock().unwrap_or_else(PoisonError::into_inner);
        if field_conflicts.is_empty() {
            return None;
        }
        let ids = children.iter().map(|child| child_id(me, child.kind(), child.name()));
        let now = Instant::now();
        let open = ids.filter_map(|id| field_conflicts.get(&id)?.open(now));
        open.reduce(|(text, left), (more, other)| (format!("{text}; {more}").into(), left.min(other)))
            .map(|(text, left)| (text.to_string(), left))
    }

    /// What to report of a child whose fields another manager keeps changing, with the names of its managers.
    async fn report_field_conflict(&self, id: &ChildId) -> Result<String, WriteError> {
        let found = self.writer.look_up(id).await?;
        let entries = found.as_ref().and_then(|found| found.value.get("managedFields")).and_then(Value::as_array);
        let managers = entries.into_iter().flatten().filter_map(|entry| entry.get("manager")).filter_map(Value::as_str);
        let others: BTreeSet<&str> = managers.filter(|manager| *manager != MANAGER).take(MOST_MANAGERS).collect();
        let others: Vec<String> = others.into_iter().map(|manager| format!("`{manager}`")).collect();
        let (kind, name) = (id.kind, &id.name);
        tracing::warn!(child = %format_args!("{kind} {}/{name}", id.namespace), managers = others.join(", "), "field conflict; applying with backoff");
        Ok(format!(
            "another field manager keeps changing fields of {kind} `{name}` that the operator applies (managers: {}); it is applied again \
             with backoff, remove the fields from the other manager or from the spec",
            others.join(", ")
        ))
    }

    /// Applies a child that exists. One that no watch has shown us is read first: it may have another owner, or be the child that the
    /// operator before us made for this resource, whose fields are taken over.
    async fn apply_existing(
        &self,
        me: &Resource,
        child: &Child,
        id: &ChildId,
        live: Option<&ChildFacts>,
    ) -> Result<Result<ChildResponse, NameConflict>, WriteError> {
        let has_replicas = sends_replicas(child);
        if live.is_none()
            && let Some(found) = self.writer.look_up(id).await?
        {
            if let Some(conflict) = name_conflict(me, id, &child_facts(id.kind, &found.metadata, None)) {
                return Ok(Err(conflict));
            }
            self.writer.take_over(id, &found, has_replicas).await?;
        }
        // What we do not know to have left before may be ours. One is what it would be anyway.
        if !has_replicas
            && live.and_then(|live| live.workload.as_ref()).is_some_and(|live| live.replicas != 1)
            && self.with(me, |sent| sent.get(id).is_none_or(|known| known.has_replicas))
        {
            self.writer.leave_replicas(id).await?;
        }
        self.writer.apply(me.namespace(), child).await.map(Ok)
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

/// The failure of a wave that decides what becomes of the reconcile: that nothing can be created at all, then a refusal, which no retry
/// can help, then the first one.
fn gravest(failures: Vec<WriteError>) -> Option<WriteError> {
    failures.into_iter().min_by_key(|failure| match failure {
        WriteError::NamespaceTerminating { .. } => 0,
        refused if refused.refusal().is_some() => 1,
        _ => 2,
    })
}

/// What is known of a child after it was applied.
///
/// The answer has no status and no replicas of an autoscaler; what the watch has shown of them stays until it shows more. What we
/// stamped is known at once: the next plan must not take a stale stamp for a change.
fn facts_after(child: &Child, answer: &ChildResponse, live: Option<&ChildFacts>) -> ChildFacts {
    let mut facts = child_facts(child.kind(), &answer.metadata, Some(child.body()));
    if let (Some(sent), Some(seen)) = (&mut facts.workload, live.and_then(|live| live.workload.clone())) {
        sent.ready = seen.ready;
        sent.is_paused = seen.is_paused;
        sent.progress = seen.progress;
        sent.upstream = seen.upstream;
        if !sends_replicas(child) {
            sent.replicas = seen.replicas;
        }
    }
    facts
}

fn sends_replicas(child: &Child) -> bool {
    child.body().pointer("/spec/replicas").is_some()
}
