//! Step 1, gather: everything that a plan of a resource needs, read before it is made.
//!
//! The store holds most of it. What no watch shows is read here: the content of Secrets and ConfigMaps, once per change and kept as
//! digests; the session key; and the owners of objects that have the names of children and not our label.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::try_join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::GetParams;
use kube::core::{Request, Resource as KubeResource};
use serde::de::DeserializeOwned;
use serde_json::Map;
use skep_api::resource::Resource;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::kinds;
use skep_plan::world::Found;

use super::children::{NameConflict, child_id, name_conflict};
use super::{Findings, ReconcileError, Reconciler};
use crate::object::Content;
use crate::secret_digest;
use crate::session_key::{self, CheckedKey};
use crate::store::{BegunRead, ReferencedKeys, Snapshot, Store, child_facts};
use crate::write::WriteError;

/// How many Secrets and ConfigMaps one reconcile reads at a time.
const CONCURRENT_READS: usize = 8;

impl Reconciler {
    /// Everything that a plan needs; nothing for a resource that is gone or cannot be read.
    pub(super) async fn gather(&self, key: &Key, findings: &Findings) -> Result<Option<Snapshot>, ReconcileError> {
        let Some(mut gathered) = self.read_contents(key).await? else { return Ok(None) };
        gathered.live.session_key = self.session_key(&gathered).await?;
        // Beside the name of the backend, which the store knows to be in use.
        gathered.live.name_conflicts.extend(match &findings.conflicts {
            Some(conflicts) => conflicts.clone(),
            None => self.name_conflicts(&gathered.me).await?,
        });
        gathered.live.refused = findings.rejection.as_ref().and_then(rejection_message);
        Ok(Some(gathered))
    }

    /// One consistent snapshot, with the Secrets and ConfigMaps read that were not read yet.
    async fn read_contents(&self, key: &Key) -> Result<Option<Snapshot>, ReconcileError> {
        self.store.trim_contents(&key.namespace);
        loop {
            let Some(snapshot) = self.store.snapshot(key) else { return Ok(None) };
            if snapshot.unread.is_empty() || !kinds::reads_contents(&snapshot.me) {
                return Ok(Some(snapshot));
            }
            // What changes while it, or another one, is read is read again: what is not known must not pass for what is not there.
            for some in snapshot.unread.chunks(CONCURRENT_READS) {
                try_join_all(some.iter().map(|near| self.read_content(near, &snapshot.me))).await?;
            }
        }
    }

    /// The children of a resource whose names objects of other owners have.
    ///
    /// Objects that no watch has shown us are looked up, but not for a resource that is new: its children are hardly ever there, and
    /// what is there is found when they are created. A resource that was refused before is not new, so nothing is created and deleted
    /// for it again and again. Names that were free are looked up once per generation: the resource may wait for long, and be
    /// reconciled often meanwhile.
    async fn name_conflicts(&self, me: &Resource) -> Result<BTreeSet<NameConflict>, ReconcileError> {
        // Where nothing can be created, no name is looked up either: the first apply says whether that is over.
        if me.is_deleting() || self.applier.is_terminating(me.namespace()) {
            return Ok(BTreeSet::new());
        }
        let is_new = me.stored_status().as_object().is_some_and(Map::is_empty);
        let looks_up = !is_new && !self.applier.has_free_names(me);
        let conflicts = kinds::children_of(me).map(|(kind, name)| async move {
            let id = child_id(me, kind, &name);
            let facts = match self.store.child(&id) {
                None if looks_up => {
                    let found = self.writer.look_up(&id).await?;
                    found.map(|found| child_facts(kind, &found.metadata, None))
                }
                known => known,
            };
            Ok::<_, WriteError>(facts.and_then(|facts| name_conflict(me, &id, &facts)))
        });
        let conflicts: BTreeSet<NameConflict> = try_join_all(conflicts).await?.into_iter().flatten().collect();
        if looks_up && conflicts.is_empty() {
            self.applier.note_free_names(me);
        }
        Ok(conflicts)
    }

    /// The session key of a resource that has one; nothing if it does not exist. Its content was read before, so a request is only sent
    /// where it was read for another resource.
    async fn session_key(&self, gathered: &Snapshot) -> Result<Option<CheckedKey>, ReconcileError> {
        let me = gathered.me.as_ref();
        let Some(key) = session_key::secret_of(me).filter(|key| gathered.found.contains_key(key)) else {
            return Ok(None);
        };
        let version = self.store.content_version(&key).unwrap_or_default();
        if let Some(checked) = self.session_keys.checked(&version, me) {
            return Ok(Some(checked));
        }
        let found = self.get_secret(&key).await?;
        Ok(found.and_then(|secret| self.session_keys.check(&secret, me)))
    }

    async fn get_secret(&self, key: &Key) -> Result<Option<Secret>, ReconcileError> {
        let found = self.get_content::<Secret, ByteString>(key).await?;
        Ok(found.map(|Content { metadata, data }| Secret { metadata, data: Some(data), ..Secret::default() }))
    }

    /// What a Secret or ConfigMap holds; nothing if it does not exist. Its metadata cannot make it unreadable ([`Content`]).
    async fn get_content<K, T>(&self, key: &Key) -> Result<Option<Content<T>>, ReconcileError>
    where
        K: KubeResource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        self.metrics.request("get", &K::plural(&()));
        let failed = |source: kube::Error| ReconcileError::Read {
            kind: key.kind,
            name: key.name.clone(),
            source: Box::new(source),
        };
        let request = Request::new(K::url_path(&(), Some(&key.namespace))).get(&key.name, &GetParams::default());
        let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        match self.client.request(request).await {
            Ok(content) => Ok(Some(content)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Reads a Secret or ConfigMap that `me` refers to.
    async fn read_content(&self, key: &Key, me: &Resource) -> Result<(), ReconcileError> {
        let mut reading = Reading::begin(key, &self.store);
        match key.kind {
            ObjectKind::Secret => {
                let found = self.get_secret(key).await?;
                let version = found.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
                if let Some(secret) = found.as_ref().filter(|_| session_key::secret_of(me).as_ref() == Some(key)) {
                    let _kept_until_planning = self.session_keys.check(secret, me);
                }
                // Only digests are kept: a plan needs to know that a value changed, never what it is.
                let digests = found.map(|secret| {
                    let data = secret.data.iter().flatten().filter(|(name, _)| reading.keys().has(name));
                    let digests = data.map(|(name, value)| (name.clone(), secret_digest::of(&secret, value)));
                    Found::Secret(Arc::new(digests.collect()))
                });
                reading.read = Some((digests, version));
            }
            ObjectKind::ConfigMap => {
                let found = self.get_content::<ConfigMap, String>(key).await?;
                let version = found.as_ref().and_then(|map| map.metadata.resource_version.clone());
                let data = found.map(|map| Found::ConfigMap(reading.keys().select(map.data).into()));
                reading.read = Some((data, version));
            }
            ObjectKind::Kind(_) => {}
        }
        Ok(())
    }
}

/// What the status of a resource says about a child that the API server rejected.
fn rejection_message(error: &WriteError) -> Option<String> {
    let (refusal, advice) = error.refusal()?;
    Some(format!("{error}: the API server refused it: {refusal}; {advice}"))
}

/// A Secret or ConfigMap that is being read, from the request to the end of whatever becomes of it.
struct Reading<'a> {
    key: &'a Key,
    store: &'a Store,
    /// Until it has ended.
    began: Option<BegunRead>,
    read: Option<(Option<Found>, Option<String>)>,
}

impl<'a> Reading<'a> {
    fn begin(key: &'a Key, store: &'a Store) -> Self {
        Self { key, store, began: Some(store.begin_read(key)), read: None }
    }

    /// The keys to be read.
    fn keys(&self) -> ReferencedKeys {
        self.began.as_ref().map(|began| began.keys.clone()).unwrap_or_default()
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(began) = self.began.take() {
            self.store.end_read(self.key, began, self.read.take());
        }
    }
}
