//! What a plan needs of Secrets and ConfigMaps: read once per change, and remembered as digests.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use skep_api::resource::Resource;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::world::Found;

use super::{Error, Reconciler};
use crate::secret_digest;
use crate::session_key::{self, CheckedKey};
use crate::store::{Snapshot, Store};

impl Reconciler {
    /// One consistent look, with the Secrets and ConfigMaps read that nobody has read yet.
    pub(super) async fn read(&self, key: &Key) -> Result<Option<Snapshot>, Error> {
        loop {
            let Some(mut snapshot) = self.store.snapshot(key) else { return Ok(None) };
            if snapshot.unread.is_empty() {
                snapshot.live.session_key = self.session_key(&snapshot).await?;
                return Ok(Some(snapshot));
            }
            // What changes while it, or another one, is read is read again: what is not known must not pass for what is not there.
            for near in &snapshot.unread {
                self.read_content(near, &snapshot.me).await?;
            }
        }
    }

    /// How the key is with which a virtual server binds its sessions; nothing if it does not exist. Its content was read before, so
    /// a request is only sent where somebody else read it.
    async fn session_key(&self, snapshot: &Snapshot) -> Result<Option<CheckedKey>, Error> {
        let me = snapshot.me.as_ref();
        let Some(key) = session_key::secret_of(me).filter(|key| snapshot.found.contains_key(key)) else {
            return Ok(None);
        };
        let version = self.store.content_version(&key).unwrap_or_default();
        if let Some(checked) = self.session_keys.checked(&version, me) {
            return Ok(Some(checked));
        }
        let found = self.get_secret(&key).await?;
        Ok(found.and_then(|secret| self.session_keys.check(&secret, me)))
    }

    async fn get_secret(&self, key: &Key) -> Result<Option<Secret>, Error> {
        self.metrics.request("get", "secrets");
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let failed = |source| Error::Read { kind: key.kind, name: key.name.clone(), source: Box::new(source) };
        secrets.get_opt(&key.name).await.map_err(failed)
    }

    /// Reads a Secret or ConfigMap that `me` refers to.
    async fn read_content(&self, key: &Key, me: &Resource) -> Result<(), Error> {
        let mut reading = Reading::begin(key, &self.store);
        let failed =
            |source: kube::Error| Error::Read { kind: key.kind, name: key.name.clone(), source: Box::new(source) };
        match key.kind {
            ObjectKind::Secret => {
                let found = self.get_secret(key).await?;
                let version = found.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
                if let Some(secret) = found.as_ref().filter(|_| session_key::secret_of(me).as_ref() == Some(key)) {
                    let _kept_until_planning = self.session_keys.check(secret, me);
                }
                // Only digests are kept: a plan needs to know that a value changed, never what it is.
                let digests = found.map(|secret| {
                    let data = secret.data.iter().flatten();
                    Found::Secret(data.map(|(name, value)| (name.clone(), secret_digest::of(&secret, value))).collect())
                });
                reading.read = Some((digests, version));
            }
            ObjectKind::ConfigMap => {
                self.metrics.request("get", "configmaps");
                let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
                let found = maps.get_opt(&key.name).await.map_err(failed)?;
                let version = found.as_ref().and_then(|map| map.metadata.resource_version.clone());
                let data = found.map(|map| Found::ConfigMap(map.data.unwrap_or_default()));
                reading.read = Some((data, version));
            }
            ObjectKind::Kind(_) => {}
        }
        Ok(())
    }
}

/// A Secret or ConfigMap that is being read, from the request to the end of whatever becomes of it.
struct Reading<'a> {
    key: &'a Key,
    store: &'a Store,
    began: u64,
    read: Option<(Option<Found>, Option<String>)>,
}

impl<'a> Reading<'a> {
    fn begin(key: &'a Key, store: &'a Store) -> Self {
        Self { key, store, began: store.begin_read(key), read: None }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.store.end_read(self.key, self.began, self.read.take());
    }
}
