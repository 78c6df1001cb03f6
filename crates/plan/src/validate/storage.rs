//! Where the embedded authorization server keeps its state: in one Redis, found in one way.

use skep_api::auth_server::{AuthServerStorage, RedisSentinel, RedisStorage};
use skep_api::workload::StorageProvider;

use super::Problems;

pub(super) fn problems(storage: &AuthServerStorage) -> Problems {
    let mut problems = Problems::default();
    match (storage.provider, &storage.redis) {
        (StorageProvider::Redis, Some(redis)) => problems.under(".redis", of_redis(redis)),
        (StorageProvider::Redis, None) => {
            problems.add(".redis", "it is missing; say where the Redis server is, or set type to `memory`");
        }
        // Settings that are not used are not validated: they wait for the type to be changed.
        (StorageProvider::Memory, _) => {}
    }
    problems
}

fn of_redis(redis: &RedisStorage) -> Problems {
    let mut problems = Problems::default();
    let address = redis.addr.as_deref().unwrap_or_default();
    let one = address.is_empty() == redis.sentinel_config.is_some();
    problems.unless(
        one,
        "",
        "exactly one of addr and sentinelConfig says where the server is; set one and remove the other",
    );
    let alone = redis.cluster_mode && address.is_empty();
    problems.unless(!alone, ".clusterMode", "it needs addr, the address of a node of the cluster");
    if let Some(sentinel) = &redis.sentinel_config {
        problems.under(".sentinelConfig", of_sentinel(sentinel));
    }
    problems.secret(".aclUserConfig.usernameSecretRef", redis.acl_user_config.username_secret_ref.as_ref());
    problems.secret(".aclUserConfig.passwordSecretRef", Some(&redis.acl_user_config.password_secret_ref));
    for (field, text) in [
        ("dialTimeout", &redis.dial_timeout),
        ("readTimeout", &redis.read_timeout),
        ("writeTimeout", &redis.write_timeout),
    ] {
        problems.some_time(format_args!(".{field}"), Some(text));
    }
    for (field, tls) in [("tls", &redis.tls), ("sentinelTls", &redis.sentinel_tls)] {
        let secret = tls.as_ref().and_then(|tls| tls.ca_cert_secret_ref.as_ref());
        problems.secret(format_args!(".{field}.caCertSecretRef"), secret);
    }
    problems
}

fn of_sentinel(sentinel: &RedisSentinel) -> Problems {
    let mut problems = Problems::default();
    problems.filled(".masterName", &sentinel.master_name, "write the name under which the sentinels know the server");
    let one = sentinel.sentinel_addrs.is_empty() == sentinel.sentinel_service.is_some();
    problems.unless(
        one,
        "",
        "exactly one of sentinelAddrs and sentinelService says where the sentinels are; set one and remove the other",
    );
    if let Some(service) = &sentinel.sentinel_service {
        problems.filled(".sentinelService.name", &service.name, "name the Service");
    }
    problems
}
