//! The Secret with which a virtual server binds its sessions: made once, by chance, and never changed.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, PostParams};
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::Resource;
use skep_plan::canonical;
use skep_plan::plan::GeneratedSecret;

/// The key of the Secret, and how many bytes it must hold.
const KEY: &str = "hmac-secret";
const BYTES: usize = 32;

/// Looks at the Secret: nothing if it is not there, else a digest of its value, or what is wrong with it.
pub async fn look(client: &Client, me: &Resource, name: &str) -> Result<Option<Result<String, String>>, kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), me.namespace());
    Ok(secrets.get_opt(name).await?.map(|secret| judge(&secret, me)))
}

/// Makes the Secret, and returns its version. Somebody who was quicker is fine: then theirs is judged at the next look.
pub async fn create(client: &Client, me: &Resource, wanted: &GeneratedSecret) -> Result<Option<String>, kube::Error> {
    let mut bytes = vec![0; wanted.bytes];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_unspecified| kube::Error::Service("no randomness to be had".into()))?;
    let owner = OwnerReference {
        api_version: format!("{GROUP}/{STORED_VERSION}"),
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
    Ok(canonical::sha256_hex(&value.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skep_api::resource::KindName;

    use super::*;

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
