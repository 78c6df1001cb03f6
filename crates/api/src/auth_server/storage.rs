//! Where the embedded authorization server keeps its state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DURATION;
use crate::reference::SecretKeyRef;
use crate::schema::{Rule, atomic, is_false, rules};
use crate::workload::StorageProvider;

const REDIS_STORAGE_RULES: &[Rule] = &[
    Rule {
        cel: "(has(self.addr) && self.addr != '') != has(self.sentinelConfig)",
        message: "redis needs exactly one of addr and sentinelConfig: set one and remove the other",
    },
    Rule {
        cel: "!(has(self.clusterMode) && self.clusterMode) || (has(self.addr) && self.addr != '')",
        message: "clusterMode needs addr, the address of a node of the cluster",
    },
];

/// Where its state is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthServerStorage {
    /// The store. With memory, all users have to sign in again after a restart.
    #[serde(default, rename = "type")]
    pub provider: StorageProvider,
    /// The Redis server; for type `redis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisStorage>,
}

/// A Redis server, a Redis cluster, or a set of sentinels that know one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules(REDIS_STORAGE_RULES))]
pub struct RedisStorage {
    /// Host and port of the server, or of a node of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<String>,
    /// The sentinels that know the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_config: Option<RedisSentinel>,
    /// Whether the server is a node of a Redis cluster.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cluster_mode: bool,
    /// The Redis user.
    pub acl_user_config: RedisAcl,
    /// How long to wait for a connection.
    #[serde(default = "five_seconds")]
    #[schemars(regex(pattern = DURATION))]
    pub dial_timeout: String,
    /// How long to wait for an answer.
    #[serde(default = "three_seconds")]
    #[schemars(regex(pattern = DURATION))]
    pub read_timeout: String,
    /// How long to wait until a request is sent.
    #[serde(default = "three_seconds")]
    #[schemars(regex(pattern = DURATION))]
    pub write_timeout: String,
    /// TLS to the server. Left out, there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<RedisTls>,
    /// TLS to the sentinels. Left out, there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_tls: Option<RedisTls>,
}

/// Sentinels that know the current Redis server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisSentinel {
    /// The name under which the sentinels know the server.
    pub master_name: String,
    /// Host and port of each sentinel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub sentinel_addrs: Vec<String>,
    /// A Service in front of the sentinels, instead of their addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_service: Option<SentinelService>,
    /// Number of the Redis database.
    #[serde(default)]
    pub db: i32,
}

/// A Service in front of sentinels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentinelService {
    /// Name of the Service.
    pub name: String,
    /// Namespace of the Service. Left out, it is the namespace of this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Port of the Service.
    #[serde(default = "sentinel_port")]
    pub port: i32,
}

/// The Redis user that authenticates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisAcl {
    /// The Secret key with the user's name. Left out, the default user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username_secret_ref: Option<SecretKeyRef>,
    /// The Secret key with the user's password.
    pub password_secret_ref: SecretKeyRef,
}

/// TLS to a Redis server or sentinel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisTls {
    /// The Secret key with the certificate authorities to trust. Left out, the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_secret_ref: Option<SecretKeyRef>,
    /// Whether any certificate is believed. For development only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure_skip_verify: bool,
}

fn five_seconds() -> String {
    "5s".into()
}

fn three_seconds() -> String {
    "3s".into()
}

fn sentinel_port() -> i32 {
    26379
}
