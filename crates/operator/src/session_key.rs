//! The Secret with which a virtual server binds its sessions: created once with random content, checked, and never changed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use skep_api::resource::Resource;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::kinds;
use skep_plan::plan::GeneratedSecret;
use skep_plan::world::SessionKeyError;

use crate::secret_digest;

/// The session keys that were checked, so that each Secret is read once per change. Values are checked and not kept.
#[derive(Debug, Default)]
pub struct SessionKeys(Mutex<HashMap<Key, Entry>>);

/// What was found when the Secret of a resource was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// The version of the Secret.
    version: String,
    /// The uid of the resource that it was checked for.
    owner: Option<String>,
    checked: CheckedKey,
}

/// A digest of the key, or what is wrong with it.
pub type CheckedKey = Result<String, SessionKeyError>;

/// The Secret of a resource whose pods read a generated one; nothing for other resources.
pub fn secret_of(me: &Resource) -> Option<Key> {
    let wanted = kinds::generated_secret(me).filter(|_| !me.is_deleting())?;
    Some(Key { kind: ObjectKind::Secret, namespace: me.namespace().to_owned(), name: wanted.name })
}

impl SessionKeys {
    /// Checks the Secret of a resource that was just read, and remembers the result.
    pub fn check(&self, secret: &Secret, me: &Resource) -> Option<CheckedKey> {
        let checked = check(secret, me, &kinds::generated_secret(me)?);
        let version = secret.metadata.resource_version.clone().unwrap_or_default();
        let entry = Entry { version, owner: me.metadata().uid.clone(), checked: checked.clone() };
        self.lock().insert(Key::of(me), entry);
        Some(checked)
    }

    /// The result for the Secret of a resource at this version, if it was checked.
    pub fn checked(&self, version: &str, me: &Resource) -> Option<CheckedKey> {
        let entries = self.lock();
        let entry = entries.get(&Key::of(me));
        let entry = entry.filter(|entry| entry.version == version && entry.owner == me.metadata().uid)?;
        Some(entry.checked.clone())
    }

    /// Forgets the Secret of a resource that is gone.
    pub fn forget(&self, owner: &Key) {
        self.lock().remove(owner);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(secret: &Secret, me: &Resource, wanted: &GeneratedSecret) -> CheckedKey {
    let GeneratedSecret { key, bytes: length, .. } = wanted;
    let invalid = SessionKeyError;
    let owners = secret.metadata.owner_references.as_deref().unwrap_or_default();
    if !owners.iter().any(|owner| Some(&owner.uid) == me.metadata().uid.as_ref()) {
        return Err(SessionKeyError("it has another owner".to_owned()));
    }
    let value =
        secret.data.as_ref().and_then(|data| data.get(key)).ok_or_else(|| invalid(format!("it has no key `{key}`")))?;
    let bytes =
        STANDARD.decode(&value.0).map_err(|_not_base64| invalid(format!("the value of `{key}` is not base64")))?;
    if bytes.len() != *length {
        return Err(invalid(format!("the value of `{key}` holds {} bytes instead of {length}", bytes.len())));
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(invalid(format!("the value of `{key}` is all zeros")));
    }
    Ok(secret_digest::of(secret, value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
    use serde_json::json;
    use skep_api::resource::KindName;

    use super::*;

    const KEY: &str = "hmac-secret";
    const BYTES: usize = 32;

    fn checked(uid: &str, key: &str, value: &[u8]) -> CheckedKey {
        let spec = json!({ "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" } });
        let me = json!({ "metadata": { "name": "v", "uid": "mine" }, "spec": spec });
        let me = Resource::from_value(KindName::VirtualMCPServer, me).unwrap();
        let owner = OwnerReference { uid: uid.into(), ..OwnerReference::default() };
        let metadata = ObjectMeta { owner_references: Some(vec![owner]), ..ObjectMeta::default() };
        let data = Some(BTreeMap::from([(key.to_owned(), ByteString(value.to_vec()))]));
        let wanted = kinds::generated_secret(&me).unwrap();
        check(&Secret { metadata, data, ..Secret::default() }, &me, &wanted)
    }

    #[test]
    fn only_a_good_key_of_our_own_is_accepted() {
        let good = STANDARD.encode([7; BYTES]);
        assert!(checked("mine", KEY, good.as_bytes()).is_ok());
        for (uid, key, value, part) in [
            ("other", KEY, good.as_str(), "another owner"),
            ("mine", "else", &good, "no key"),
            ("mine", KEY, "***", "not base64"),
            ("mine", KEY, &STANDARD.encode([7; 16]), "16 bytes"),
            ("mine", KEY, &STANDARD.encode([0; BYTES]), "zeros"),
        ] {
            let problem = checked(uid, key, value.as_bytes()).unwrap_err().to_string();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
