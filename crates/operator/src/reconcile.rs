//! One look at one resource: the same lines for all kinds.
//!
//! ```text
//!   snapshot ──▶ plan (pure) ──▶ finalizer ──▶ children: apply, prune ──▶ status ──▶ annotations, release
//! ```
//!
//! An error is only ever "could not read" or "could not write"; it is returned, and the queue tries again. What is wrong with
//! a resource itself is a condition in its status, and is not tried again until something changes.

mod read;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde_json::{Map, Value, json};
use skep_api::resource::{KindName, Resource};
use skep_plan::child::ChildKind;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::plan::{Finalizer, GeneratedSecret, Plan, Verdict, has_children, plan};
use skep_plan::status::Status;
use skep_plan::validate::in_one_line;
use skep_plan::world::{Policies, Settings, World};

use crate::apply::{Applier, Taken, taken};
use crate::events::Events;
use crate::failure::describe;
use crate::metrics::Metrics;
use crate::object::Object;
use crate::queue::{Done, Queue};
use crate::session_key::{self, SessionKeys};
use crate::store::{ChildId, Entry, Snapshot, Store, Wake};
use crate::write::{WriteError, Writer, is_terminating};

/// How long one look may take. The API server may be slow; nobody may hold a resource for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait for the watch to show what somebody else wrote.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

/// How long to wait before anything is created again in a namespace that is being deleted.
const WHILE_TERMINATING: Duration = Duration::from_secs(30);

/// Everything that a look needs.
pub struct Reconciler {
    /// How this operator is set up.
    pub settings: Settings,
    /// Judges authorization policies.
    pub policies: Box<dyn Policies>,
    /// What is known.
    pub store: Arc<Store>,
    /// What to look at next.
    pub queue: Arc<Queue>,
    /// What is counted.
    pub metrics: Metrics,
    /// Reads Secrets and ConfigMaps.
    pub client: Client,
    /// Writes.
    pub writer: Writer,
    /// Applies children.
    pub applier: Applier,
    /// Tells people what happened.
    pub events: Events,
    /// What is known of the session keys of virtual servers.
    pub session_keys: SessionKeys,
    /// How often a blocked deletion is checked again.
    pub recheck: Duration,
}

/// Why a look did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot read or make {kind} `{name}`")]
    Read { kind: ObjectKind, name: String, source: Box<kube::Error> },
    #[error("it took longer than {} s", PATIENCE.as_secs())]
    Timeout,
    #[error("reconcile panicked: {0}")]
    Panic(String),
}

/// How far a plan was carried out.
enum Carried {
    /// To its end.
    Out(Done),
    /// Up to its children, of which these have names that are somebody else's.
    Taken(Vec<Taken>),
}

// === impl Reconciler ===

impl Reconciler {
    /// Takes resources from the queue and looks at them, one after the other, for ever.
    pub async fn work(&self) {
        loop {
            let (key, waited) = self.queue.next().await;
            self.metrics.taken(waited, self.queue.depth());
            let started = Instant::now();
            let (word, done) = match self.attempt(&key).await {
                Ok(done) => ("ok", done),
                Err(Error::Write(WriteError::Conflict { object })) => {
                    tracing::debug!(%key, %object, "changed by somebody else meanwhile");
                    ("conflict", Done::Again(AFTER_CONFLICT))
                }
                Err(Error::Write(error @ WriteError::NotYet { .. })) => {
                    tracing::debug!(%key, %error, "tried again");
                    (error.category(), Done::Failed)
                }
                // It went meanwhile, and the watch will tell; but a watch that is down does not, so with backoff.
                Err(Error::Write(gone)) if gone.is_gone() => ("gone", Done::Failed),
                Err(error) if error.is_terminating() => {
                    tracing::debug!(%key, error = describe(&error), "namespace is terminating");
                    ("terminating", Done::Again(WHILE_TERMINATING))
                }
                Err(error) => {
                    if let Error::Panic(_) = error {
                        self.metrics.panicked(&key.kind.to_string());
                    }
                    tracing::warn!(%key, error = describe(&error), "reconcile failed; retrying with backoff");
                    (error.category(), Done::Failed)
                }
            };
            self.metrics.reconciled(&key.kind.to_string(), word, started.elapsed());
            self.queue.finish(key, done);
        }
    }

    /// One reconcile, no longer than it may take. A panic ends this reconcile alone: what is shared is changed by single calls, and
    /// what is in flight is given up by guards that are dropped.
    async fn attempt(&self, key: &Key) -> Result<Done, Error> {
        let reconcile = AssertUnwindSafe(tokio::time::timeout(PATIENCE, self.look(key))).catch_unwind();
        match reconcile.await {
            Ok(ended) => ended.unwrap_or(Err(Error::Timeout)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(Error::Panic(text.unwrap_or_default()))
            }
        }
    }

    async fn look(&self, key: &Key) -> Result<Done, Error> {
        match self.store.entry(key) {
            None => {
                self.applier.forget(key);
                self.session_keys.forget(key);
                return Ok(Done::Settled);
            }
            // It is queued again when the last watch has listed what there is.
            Some(_) if self.store.is_unseen(&key.namespace) => {
                tracing::debug!(%key, "namespace is not watched");
                return Ok(Done::Settled);
            }
            Some(Entry::Unreadable { metadata, problem, .. }) => {
                tracing::warn!(%key, %problem, "cannot be read");
                return self.look_at_unreadable(key, &metadata, &problem).await;
            }
            Some(Entry::Readable(_)) => {}
        }
        let Some(mut snapshot) = self.read(key).await? else { return Ok(Done::Settled) };
        let mut me = snapshot.me.clone();
        let mut plan = self.plan(&me, &snapshot);
        // Where nothing can be created, no name is looked up either: the first apply says whether that is over.
        if plan.verdict == Verdict::Apply && !plan.children.is_empty() && !self.applier.is_terminating(me.namespace()) {
            let taken = taken(&me, &plan.children, &self.store, &self.writer).await?;
            if !taken.is_empty() {
                snapshot.live.taken = taken.into_iter().collect();
                plan = self.plan(&me, &snapshot);
            }
        }
        if let Some(wanted) = &plan.generated_secret
            && plan.verdict == Verdict::Apply
            && snapshot.live.session_key.is_none()
        {
            if !self.make_secret(&me, wanted).await? {
                return Ok(Done::Again(AFTER_CONFLICT));
            }
            // The pods carry a digest of it from the first: they would roll when it is known.
            let Some(again) = self.read(key).await? else { return Ok(Done::Settled) };
            (me, snapshot) = (again.me.clone(), again);
            plan = self.plan(&me, &snapshot);
        }
        match self.carry_out(&me, &plan, &snapshot).await? {
            Carried::Out(done) => Ok(done),
            Carried::Taken(taken) => {
                snapshot.live.taken = taken.into_iter().collect();
                let me = self.fresh(&me);
                let plan = self.plan(&me, &snapshot);
                match self.carry_out(&me, &plan, &snapshot).await? {
                    Carried::Out(done) => Ok(done),
                    // A plan that was told of it applies nothing.
                    Carried::Taken(_) => Ok(Done::Failed),
                }
            }
        }
    }

    fn plan(&self, me: &Resource, snapshot: &Snapshot) -> Plan {
        let world = World {
            settings: &self.settings,
            found: &snapshot.found,
            users: &snapshot.users,
            live: &snapshot.live,
            policies: self.policies.as_ref(),
        };
        plan(me, &world)
    }

    async fn carry_out(&self, me: &Resource, plan: &Plan, snapshot: &Snapshot) -> Result<Carried, Error> {
        if plan.finalizer == Finalizer::Hold && !me.is_deleting() {
            self.set_finalizers(me.kind(), me.metadata(), true).await?;
        }
        let mut observed = None;
        if plan.verdict == Verdict::Apply && has_children(me.kind()) {
            let applied = self.applier.apply(me, &plan.children, &self.store, &self.writer, &self.metrics).await;
            match applied {
                Ok(taken) if taken.is_empty() => {}
                Ok(taken) => return Ok(Carried::Taken(taken)),
                Err(error @ WriteError::NamespaceTerminating { .. }) => return Err(error.into()),
                Err(error) => {
                    self.tell_refusal(me, snapshot, &error).await?;
                    return Err(error.into());
                }
            }
            observed = self.observe_applied(me, snapshot);
            self.applier.prune(me, &plan.children, &snapshot.children, &self.store, &self.writer).await?;
        }
        if plan.verdict == Verdict::Apply && me.kind() == KindName::MCPServer {
            self.own_backend(me).await?;
        }
        if plan.remove_backend {
            self.remove_backend(me).await?;
        }
        if plan.restart_pods {
            self.writer.delete_pods(me.namespace(), &snapshot.live.pods).await?;
        }
        if let Verdict::Wait(why) | Verdict::Refuse(why) = &plan.verdict {
            tracing::debug!(kind = %me.kind(), namespace = me.namespace(), name = me.name(), why, "children left as they are");
        }
        let plan = observed.as_ref().unwrap_or(plan);
        self.write_status(me, &plan.status).await?;
        let changed: Map<String, Value> = plan
            .annotations
            .iter()
            .filter(|(name, value)| {
                let known = me.metadata().annotations.as_ref().and_then(|known| known.get(*name));
                known.map(String::as_str) != value.as_str()
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !changed.is_empty() {
            self.change(me.kind(), self.fresh(me).metadata(), "annotations", Value::Object(changed)).await?;
        }
        if plan.finalizer == Finalizer::Release {
            self.set_finalizers(me.kind(), self.fresh(me).metadata(), false).await?;
        }
        let settles = snapshot.settles.map(|at| at.duration_since(jiff::Timestamp::now()));
        Ok(Carried::Out(match settles.map(Duration::try_from) {
            Some(after) => Done::Again(after.unwrap_or_default()),
            None if plan.recheck => Done::Again(self.recheck),
            None => Done::Settled,
        }))
    }

    /// The same plan once its children are applied, where that changed the workload: it was made before, when all pods were of the
    /// workload's template, and must not call them those of its own.
    fn observe_applied(&self, me: &Resource, snapshot: &Snapshot) -> Option<Plan> {
        let mut after = self.store.snapshot(&Key::of(me)).filter(|after| after.unread.is_empty())?;
        if after.live.workload == snapshot.live.workload {
            return None;
        }
        after.live.session_key.clone_from(&snapshot.live.session_key);
        Some(self.plan(me, &after))
    }

    /// Makes a Secret that nobody but chance can fill. Returns whether it was made; else somebody was quicker.
    async fn make_secret(&self, me: &Resource, wanted: &GeneratedSecret) -> Result<bool, Error> {
        self.metrics.request("create", "secrets");
        let api_version = self.writer.api_version(me.kind());
        let made = session_key::create(&self.client, me, api_version, wanted).await.map_err(|source| Error::Read {
            kind: ObjectKind::Secret,
            name: wanted.name.clone(),
            source: Box::new(source),
        })?;
        let Some(version) = made else { return Ok(false) };
        let namespace = me.namespace().to_owned();
        let key = Key { kind: ObjectKind::Secret, namespace, name: wanted.name.clone() };
        let mut wake = self.store.content_changed(&key, Some(&version));
        wake.now.remove(&Key::of(me));
        self.wake(wake);
        Ok(true)
    }

    /// Writes a status, if it differs, and tells people what turned.
    async fn write_status(&self, me: &Resource, status: &Status) -> Result<(), Error> {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let old = me.status_value();
        let new = status.onto(&old, me.generation(), &now);
        // The difference to what is stored: a status of another release that cannot be read is replaced.
        if let Some(written) = self.writer.status(me, &me.stored_status(), &new).await? {
            self.events.transitions(me, &old, status).await;
            if me.kind() == KindName::MCPRegistry && old.get("observedGeneration") != Some(&me.generation().into()) {
                self.events.deprecated(me).await;
            }
            // What is not of the status is somebody else's doing, of which the watch may tell us later, and then tells nothing new.
            self.wake(self.store.put_answer(me.kind(), written));
        }
        Ok(())
    }

    /// Changes a member of a resource's metadata.
    async fn change(&self, kind: KindName, known: &ObjectMeta, member: &str, value: Value) -> Result<(), Error> {
        let mut changing = Changing::begin(kind, known, self);
        let written = self.writer.metadata(kind, known, [(member.to_owned(), value)].into_iter().collect()).await?;
        changing.written = Some(written);
        Ok(())
    }

    fn wake(&self, wake: Wake) {
        wake.now.into_iter().chain(wake.soon).for_each(|key| self.queue.add(key));
    }

    /// Says in the status that the API server does not take a child as it is planned: only people can mend that. It is
    /// still tried again, slowly, as the API server's mind may change with its version or its admission plugins.
    async fn tell_refusal(&self, me: &Resource, snapshot: &Snapshot, error: &WriteError) -> Result<(), Error> {
        let Some((refusal, advice)) = error.refusal() else { return Ok(()) };
        let message = format!("{error}: the API server refused it: {refusal}; {advice}");
        let mut refused = snapshot.clone();
        if let Some(now) = self.store.snapshot(&Key::of(me)) {
            refused.live.services = now.live.services;
        }
        refused.live.refused = Some(message);
        self.write_status(me, &self.plan(me, &refused).status).await
    }

    /// Owns the StatefulSet that a proxy made for this server, in the version that is served, so that it is collected with the server
    /// whatever happens.
    async fn own_backend(&self, me: &Resource) -> Result<(), Error> {
        let id = backend_of(me);
        let api_version = self.writer.api_version(me.kind());
        if let Some(facts) = self.store.child(&id)
            && facts.is_backend_of(me.name(), me.metadata().uid.as_deref())
            && facts.owner.as_ref().is_none_or(|owner| owner.api_version != api_version)
        {
            self.writer.own(me, &id, &facts.uid).await?;
        }
        Ok(())
    }

    /// Deletes the StatefulSet that a proxy made for this resource; what it owns goes with it.
    async fn remove_backend(&self, me: &Resource) -> Result<(), Error> {
        let id = backend_of(me);
        if let Some(facts) = self.store.child(&id)
            && facts.is_backend_of(me.name(), me.metadata().uid.as_deref())
        {
            self.writer.delete(&id, &facts.uid).await?;
        }
        Ok(())
    }

    /// Adds or removes our finalizer; everybody else's stay.
    async fn set_finalizers(&self, kind: KindName, known: &ObjectMeta, hold: bool) -> Result<(), Error> {
        let Some(ours) = kind.finalizer() else { return Ok(()) };
        let before = known.finalizers.clone().unwrap_or_default();
        if before.iter().any(|name| name == ours) == hold {
            return Ok(());
        }
        let mut finalizers = before;
        finalizers.retain(|name| name != ours);
        if hold {
            finalizers.push(ours.to_owned());
        }
        self.change(kind, known, "finalizers", json!(finalizers)).await
    }

    /// The resource as the store has it now: our own writes of this look have moved its version.
    fn fresh(&self, me: &Resource) -> Resource {
        match self.store.entry(&Key::of(me)) {
            Some(Entry::Readable(resource)) => resource.as_ref().clone(),
            _ => me.clone(),
        }
    }

    /// Says on an object that cannot be read what is wrong with it. Nothing else of it is touched, but that it is let go when somebody
    /// deletes it and nobody uses it: its children go by their owner references.
    async fn look_at_unreadable(&self, key: &Key, metadata: &ObjectMeta, problem: &str) -> Result<Done, Error> {
        let ObjectKind::Kind(kind) = key.kind else { return Ok(Done::Settled) };
        if metadata.deletion_timestamp.is_none() {
            self.writer.unreadable(kind, metadata, problem).await?;
            return Ok(Done::Settled);
        }
        let users = self.store.user_count(key);
        let mut why: Vec<String> = self.store.possible_users(key).into_iter().collect();
        if users > 0 {
            why.insert(0, format!("{users} objects refer to it"));
        }
        if why.is_empty() {
            self.set_finalizers(kind, metadata, false).await?;
            return Ok(Done::Settled);
        }
        let problem = format!("{problem}; its deletion is blocked: {}", in_one_line(&why));
        self.writer.unreadable(kind, metadata, &problem).await?;
        Ok(Done::Again(self.recheck))
    }
}

/// The StatefulSet that a proxy makes for its server.
fn backend_of(me: &Resource) -> ChildId {
    ChildId { kind: ChildKind::StatefulSet, namespace: me.namespace().to_owned(), name: me.name().to_owned() }
}

/// A resource whose metadata is being written, from the request to the end of whatever becomes of it.
struct Changing<'a> {
    kind: KindName,
    key: Key,
    reconciler: &'a Reconciler,
    written: Option<Object>,
}

impl<'a> Changing<'a> {
    fn begin(kind: KindName, known: &ObjectMeta, reconciler: &'a Reconciler) -> Self {
        let namespace = known.namespace.as_deref().unwrap_or_default();
        let key = Key::resource(kind, namespace, known.name.as_deref().unwrap_or_default());
        reconciler.store.begin_change(&key);
        Self { kind, key, reconciler, written: None }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let wake = self.reconciler.store.end_change(self.kind, &self.key, self.written.take());
        self.reconciler.wake(wake);
    }
}

impl std::fmt::Debug for Reconciler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reconciler").field("settings", &self.settings).finish_non_exhaustive()
    }
}

// === impl Error ===

impl Error {
    const fn category(&self) -> &'static str {
        match self {
            Self::Write(error) => error.category(),
            Self::Read { .. } => "read",
            Self::Timeout => "timeout",
            Self::Panic(_) => "panic",
        }
    }

    /// Whether nothing could be created because the namespace is being deleted.
    fn is_terminating(&self) -> bool {
        match self {
            Self::Write(error) => matches!(error, WriteError::NamespaceTerminating { .. }),
            Self::Read { source, .. } => matches!(source.as_ref(), kube::Error::Api(status) if is_terminating(status)),
            Self::Timeout | Self::Panic(_) => false,
        }
    }
}
