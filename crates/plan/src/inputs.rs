//! What pods read from Secrets and ConfigMaps of others: the variables that carry it, and a digest that rolls the pods when it changes.

use std::collections::BTreeSet;

use skep_api::kinds::MCPTelemetryConfigSpec;
use skep_api::reference::{Reference, Target};
use skep_api::resource::{KindName, Resource};
use skep_api::workload::{SessionStorage, StorageProvider};

use crate::canonical;
use crate::key::Key;
use crate::kinds;
use crate::pod::Env;
use crate::text::sanitise;
use crate::world::{ConfigMapValue, DefaultRedis, Found, Settings, World};

/// Digest of every Secret key and ConfigMap key that a pod of this resource reads when it starts, by content. None where it
/// reads nothing, so that such pods carry no stamp. The Secrets of webhooks are not among it: a proxy reads their files again.
pub(crate) fn digest_of_inputs(me: &Resource, world: &World<'_>) -> Option<String> {
    digest_with(me, Vec::new(), world)
}

/// As [`digest_of_inputs`], with what the pod reads through references of others as well.
pub(crate) fn digest_with(me: &Resource, mut others: Vec<Reference>, world: &World<'_>) -> Option<String> {
    others.extend(implied(me, world.settings.default_redis.as_ref()));
    let own = me.references();
    for reference in &own {
        if let Target::Kind(kind) = reference.to
            && kind.is_config()
            && kind != KindName::MCPWebhookConfig
            && let Some(Found::Resource(config)) = world.found.get(&Key::target(reference, me.namespace()))
        {
            others.extend(config.references());
        }
    }
    others.extend(own);
    digest_of(me, &others, world)
}

/// Digest of the content of every Secret key and ConfigMap key that references lead to; none if they lead to none.
pub(crate) fn digest_of(me: &Resource, references: &[Reference], world: &World<'_>) -> Option<String> {
    let digest = |(key, item): (Key, String)| {
        let digest = match world.found.get(&key) {
            Some(Found::Secret(keys)) => keys.get(&item).cloned(),
            Some(Found::ConfigMap(data)) => data.get(&item).map(ConfigMapValue::digest),
            _ => None,
        };
        format!("{}/{}/{item}={}", key.kind, key.name, digest.unwrap_or_default())
    };
    let mut lines: Vec<String> = distinct_inputs(me, references).into_iter().map(digest).collect();
    lines.sort();
    (!lines.is_empty()).then(|| canonical::sha256_hex(lines.join("\n").as_bytes()))
}

/// The keys of Secrets and ConfigMaps that references lead to, each once: a thousand entries may name one bundle of a megabyte.
fn distinct_inputs(me: &Resource, references: &[Reference]) -> BTreeSet<(Key, String)> {
    let input = |reference: &Reference| match &reference.to {
        Target::Secret { key } | Target::ConfigMap { key } | Target::Document { key } => {
            Some((Key::target(reference, me.namespace()), key.clone()))
        }
        Target::Kind(_) => None,
    };
    references.iter().filter_map(input).collect()
}

/// How many Secrets and ConfigMaps a resource refers to. Of one that exceeds [`skep_bounds::CONTENT_REFERENCES`] none is read, and its plan is refused.
pub fn count_contents(me: &Resource) -> usize {
    let references = me.references();
    let contents = references.iter().filter(|reference| !matches!(reference.to, Target::Kind(_)));
    contents.map(|reference| Key::target(reference, me.namespace())).collect::<BTreeSet<Key>>().len()
}

/// What the pods of a resource read though its spec does not name it: the key that a virtual server binds its sessions with, and the
/// password of the Redis for all who name none.
pub fn implied(me: &Resource, default_redis: Option<&DefaultRedis>) -> Vec<Reference> {
    let secret = |name: &str, key: &str, field: &str| Reference {
        to: Target::Secret { key: key.to_owned() },
        name: name.to_owned(),
        field: field.to_owned(),
    };
    let storage = match me {
        Resource::MCPServer(object) => Some(&object.spec.session_storage),
        Resource::MCPRemoteProxy(object) => Some(&object.spec.session_storage),
        Resource::VirtualMCPServer(object) => Some(&object.spec.session_storage),
        _ => None,
    };
    let password =
        default_redis.and_then(|redis| redis.secret.as_ref()).filter(|_| storage.is_some_and(Option::is_none));
    let password = password.map(|(name, key)| secret(name, key, "spec.sessionStorage"));
    let generated = kinds::generated_secret(me).map(|wanted| secret(&wanted.name, &wanted.key, "metadata.name"));
    generated.into_iter().chain(password).collect()
}

/// Variables of the telemetry exporter: what the process is called, and headers whose values are secret.
pub(crate) fn telemetry_env(env: &mut Env, service: &str, namespace: &str, spec: &MCPTelemetryConfigSpec) {
    let Some(otel) = spec.open_telemetry.as_ref().filter(|otel| otel.enabled) else { return };
    env.value("OTEL_RESOURCE_ATTRIBUTES", &format!("service.name={service},service.namespace={namespace}"));
    for header in &otel.sensitive_headers {
        let variable = format!("TOOLHIVE_OTEL_HEADER_{}", sanitise(&header.name));
        env.secret(&variable, &header.secret_key_ref.name, &header.secret_key_ref.key);
    }
}

/// The password of the Redis that sessions are kept in.
pub(crate) fn redis_env(env: &mut Env, storage: Option<&SessionStorage>, settings: &Settings) {
    const PASSWORD: &str = "THV_SESSION_REDIS_PASSWORD";
    match storage {
        Some(storage) if storage.provider == StorageProvider::Redis => {
            if let Some(secret) = &storage.password_ref {
                env.secret(PASSWORD, &secret.name, &secret.key);
            }
        }
        Some(_) => {}
        None => {
            if let Some((name, key)) = settings.default_redis.as_ref().and_then(|redis| redis.secret.as_ref()) {
                env.secret(PASSWORD, name, key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::testing::resource;

    #[test]
    fn an_input_is_read_once_however_often_it_is_named() {
        let me = resource(KindName::MCPServer, "s", &json!({ "image": "i" }));
        let reference = |index: usize| Reference {
            to: Target::ConfigMap { key: "ca.crt".to_owned() },
            name: "bundle".to_owned(),
            field: format!("spec.{index}"),
        };
        let secret = Reference { to: Target::Secret { key: "ca.crt".to_owned() }, ..reference(0) };
        let references: Vec<Reference> = (0..1_000).map(reference).chain([secret]).collect();
        assert_eq!(distinct_inputs(&me, &references).len(), 2);
    }
}
