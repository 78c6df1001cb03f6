//! The Secret with which a virtual server binds its sessions: made once, by chance, and never changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, PostParams};
use skep_api::resource::{KindName, Resource};
use skep_plan::key::{Key, ObjectKind};
use skep_plan::names;
use skep_plan::plan::GeneratedSecret;

use crate::secret_digest;

/// The key of the Secret, and how many bytes it must hold.
const KEY: &str = "hmac-secret";
const BYTES: usize = 32;

/// What is known of the Secrets of virtual servers, so that each is read once per change. Values are judged and not kept.
#[derive(Debug, Default)]
pub struct SessionKeys(Mutex<HashMap<Key, Known>>);

/// What was found when a Secret was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    version: String,
    /// The virtual server that it was judged for.
    owner: Option<String>,
    judged: Judged,
}

/// A digest of the key, or what is wrong with it.
pub type Judged = Result<String, String>;

/// The Secret of a virtual server; nothing for other resources.
pub fn secret_of(me: &Resource) -> Option<Key> {
    let is_virtual = me.kind() == KindName::VirtualMCPServer && !me.is_deleting();
    let name = is_virtual.then(|| names::virtual_session_key(me.name()))?;
    Some(Key { kind: ObjectKind::Secret, namespace: me.namespace().to_owned(), name })
}

impl SessionKeys {
    /// Judges the Secret of a virtual server that was just read, and remembers the verdict.
    pub fn judge(&self, key: &Key, secret: &Secret, me: &Resource) -> Judged {
        let judged = judge(secret, me);
        let version = secret.metadata.resource_version.clone().unwrap_or_default();
        let known = Known { version, owner: me.metadata().uid.clone(), judged: judged.clone() };
        self.lock().insert(key.clone(), known);
        judged
    }

    /// What is known of a Secret at this version, for this virtual server.
    pub fn known(&self, key: &Key, version: &str, me: &Resource) -> Option<Judged> {
        let known = self.lock();
        let known = known.get(key).filter(|known| known.version == version && known.owner == me.metadata().uid)?;
        Some(known.judged.clone())
    }

    /// Forgets the Secret of a virtual server that is gone.
    pub fn forget(&self, owner: &Key) {
        let name = names::virtual_session_key(&owner.name);
        self.lock().remove(&Key { kind: ObjectKind::Secret, namespace: owner.namespace.clone(), name });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the Secret, and returns its version. Somebody who was quicker is fine: then theirs is judged at the next look.
pub async fn create(
    client: &Client,
    me: &Resource,
    api_version: String,
    wanted: &GeneratedSecret,
) -> Result<Option<String>, kube::Error> {
    let mut bytes = vec![0; wanted.bytes];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_unspecified| kube::Error::Service("no randomness to be had".into()))?;
    let owner = OwnerReference {
        api_version,
        kind: me.kind().as_str().to_owned(),
        name: me.name().to_owned(),
        uid: me.metadata().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(wanted.name.clone()),
            labels: Some(wanted.labels.clone()),
            annotations: Some(wanted.annotations.clone()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".into()),
        data: Some(BTreeMap::from([(wanted.key.clone(), ByteString(STANDARD.encode(bytes).into_bytes()))])),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), me.namespace());
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(made) => Ok(made.metadata.resource_version),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(error) => Err(error),
    }
}

fn judge(secret: &Secret, me: &Resource) -> Result<String, String> {
    let owners = secret.metadata.owner_references.as_deref().unwrap_or_default();
    if !owners.iter().any(|owner| Some(&owner.uid) == me.metadata().uid.as_ref()) {
        return Err("it belongs to somebody else".to_owned());
    }
    let value = secret.data.as_ref().and_then(|data| data.get(KEY)).ok_or_else(|| format!("it has no key `{KEY}`"))?;
    let bytes = STANDARD.decode(&value.0).map_err(|_not_base64| format!("the value of `{KEY}` is not base64"))?;
    if bytes.len() != BYTES {
        return Err(format!("the value of `{KEY}` holds {} bytes instead of {BYTES}", bytes.len()));
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(format!("the value of `{KEY}` is all zeros"));
    }
    Ok(secret_digest::of(secret, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(uid: &str, key: &str, value: &[u8]) -> Result<String, String> {
        let spec = json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" } });
        let me = json!({ "metadata": { "name": "v", "uid": "mine" }, "spec": spec });
        let me = Resource::from_value(KindName::VirtualMCPServer, me).unwrap();
        let owner = OwnerReference { uid: uid.into(), ..OwnerReference::default() };
        let metadata = ObjectMeta { owner_references: Some(vec![owner]), ..ObjectMeta::default() };
        let data = Some(BTreeMap::from([(key.to_owned(), ByteString(value.to_vec()))]));
        judge(&Secret { metadata, data, ..Secret::default() }, &me)
    }

    #[test]
    fn only_a_good_key_of_our_own_is_accepted() {
        let good = STANDARD.encode([7; BYTES]);
        assert!(judged("mine", KEY, good.as_bytes()).is_ok());
        for (uid, key, value, words) in [
            ("other", KEY, good.as_str(), "somebody else"),
            ("mine", "else", &good, "no key"),
            ("mine", KEY, "***", "not base64"),
            ("mine", KEY, &STANDARD.encode([7; 16]), "16 bytes"),
            ("mine", KEY, &STANDARD.encode([0; BYTES]), "zeros"),
        ] {
            let problem = judged(uid, key, value.as_bytes()).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
