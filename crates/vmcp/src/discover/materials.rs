//! What members are called with: single keys of Secrets and ConfigMaps, read when their object changed. No other value is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::Api;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::world::{ConfigMapValue, Found};

/// How many objects are read at once.
const PARALLEL: usize = 8;
/// How many bytes of values are kept together. What is beyond is not read, and who needs it is left out.
const BYTES: usize = 32 * 1024 * 1024;

/// The values that members are called with.
#[derive(Default)]
pub(super) struct Materials {
    read: BTreeMap<Key, Object>,
}

/// What was read of one object.
struct Object {
    /// The version that was read.
    version: String,
    /// The keys that were asked for.
    wanted: BTreeSet<String>,
    /// All keys that it has.
    keys: BTreeSet<String>,
    /// The values of those that were asked for.
    values: BTreeMap<String, Arc<[u8]>>,
}

// === impl Materials ===

/// Without the values, which are secrets.
impl std::fmt::Debug for Materials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Materials").field("objects", &self.read.len()).finish_non_exhaustive()
    }
}

impl Materials {
    /// Reads what is needed and has changed, and forgets what is not needed any more.
    pub(super) async fn read(
        &mut self,
        client: &Client,
        needed: BTreeMap<Key, BTreeSet<String>>,
        versions: &BTreeMap<Key, String>,
    ) -> Result<(), kube::Error> {
        self.read.retain(|key, _| needed.contains_key(key) && versions.contains_key(key));
        let is_due = |key: &Key, wanted: &BTreeSet<String>| {
            let known = self.read.get(key).map(|known| (&known.version, &known.wanted));
            versions.get(key).is_some_and(|version| known != Some((version, wanted)))
        };
        let due: Vec<_> = needed.into_iter().filter(|(key, wanted)| is_due(key, wanted)).collect();
        let due = due.into_iter().map(|(key, wanted)| async move {
            let read = get(client, &key, wanted).await?;
            Ok::<_, kube::Error>((key, read))
        });
        let mut read = futures_util::stream::iter(due).buffer_unordered(PARALLEL);
        while let Some((key, object)) = read.try_next().await? {
            self.read.remove(&key);
            // One that is gone meanwhile is not kept; its watch will say so.
            let Some(object) = object else { continue };
            if self.bytes() + object.bytes() > BYTES {
                tracing::warn!(name = key.name, "not reading an object: members use more than {BYTES} bytes of them");
                continue;
            }
            self.read.insert(key, object);
        }
        Ok(())
    }

    /// The objects as a plan sees them: which keys they have.
    pub(super) fn found(&self) -> BTreeMap<Key, Found> {
        let found = self.read.iter().map(|(key, object)| {
            // Digests tell versions of pods apart, of which there are none here.
            let found = match key.kind {
                ObjectKind::Secret => {
                    Found::Secret(Arc::new(object.keys.iter().map(|key| (key.clone(), String::new())).collect()))
                }
                ObjectKind::ConfigMap | ObjectKind::Kind(_) => {
                    let value = || ConfigMapValue::Digest(String::new());
                    Found::ConfigMap(Arc::new(object.keys.iter().map(|key| (key.clone(), value())).collect()))
                }
            };
            (key.clone(), found)
        });
        found.collect()
    }

    /// A value that was read.
    pub(super) fn value(&self, kind: ObjectKind, namespace: &str, name: &str, key: &str) -> Option<Arc<[u8]>> {
        let object = Key { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        self.read.get(&object)?.values.get(key).cloned()
    }

    fn bytes(&self) -> usize {
        self.read.values().map(Object::bytes).sum()
    }
}

// === impl Object ===

impl Object {
    fn new(version: Option<String>, wanted: BTreeSet<String>, data: BTreeMap<String, Vec<u8>>) -> Self {
        let keys = data.keys().cloned().collect();
        let values = data.into_iter().filter(|(key, _)| wanted.contains(key));
        let values = values.map(|(key, value)| (key, Arc::from(value))).collect();
        Self { version: version.unwrap_or_default(), wanted, keys, values }
    }

    fn bytes(&self) -> usize {
        self.values.values().map(|value| value.len()).sum()
    }
}

async fn get(client: &Client, key: &Key, wanted: BTreeSet<String>) -> Result<Option<Object>, kube::Error> {
    let client = client.clone();
    if key.kind == ObjectKind::Secret {
        let secret = Api::<Secret>::namespaced(client, &key.namespace).get_opt(&key.name).await?;
        return Ok(secret.map(|secret| {
            let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
            Object::new(secret.metadata.resource_version, wanted, data)
        }));
    }
    let map = Api::<ConfigMap>::namespaced(client, &key.namespace).get_opt(&key.name).await?;
    Ok(map.map(|map| {
        let texts = map.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
        let bytes = map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        Object::new(map.metadata.resource_version, wanted, texts.chain(bytes).collect())
    }))
}
