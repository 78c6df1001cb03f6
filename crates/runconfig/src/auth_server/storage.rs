//! Where an authorization server keeps its state.

use crate::document::document;

document! {
    /// Where state is kept.
    pub struct Storage {
        /// `memory` or `redis`.
        pub kind: String = if_set "type",
        /// The Redis for `redis`.
        pub redis_config: Option<RedisConfig> = if_set "redis_config",
    }
}

document! {
    /// A Redis server, or the sentinels that know it.
    pub struct RedisConfig {
        /// Host and port.
        pub addr: String = if_set "addr",
        /// Whether it is a cluster.
        pub cluster_mode: bool = if_set "cluster_mode",
        /// The sentinels that know it.
        pub sentinel_config: Option<RedisSentinel> = if_set "sentinel_config",
        /// The kind of authentication: `aclUser`.
        pub auth_type: String = always "auth_type",
        /// The user to authenticate as.
        pub acl_user_config: Option<RedisAclUser> = if_set "acl_user_config",
        /// Put in front of every key.
        pub key_prefix: String = always "key_prefix",
        /// How long connecting may take, as a Go duration.
        pub dial_timeout: String = if_set "dial_timeout",
        /// How long reading may take.
        pub read_timeout: String = if_set "read_timeout",
        /// How long writing may take.
        pub write_timeout: String = if_set "write_timeout",
        /// TLS to the server.
        pub tls: Option<RedisTls> = if_set "tls",
        /// TLS to the sentinels.
        pub sentinel_tls: Option<RedisTls> = if_set "sentinel_tls",
    }
}

document! {
    /// The sentinels that know a Redis server.
    pub struct RedisSentinel {
        /// The name that they know it by.
        pub master_name: String = always "master_name",
        /// Their hosts and ports.
        pub sentinel_addrs: Vec<String> = always "sentinel_addrs",
        /// Number of the database.
        pub db: i64 = if_set "db",
    }
}

document! {
    /// A Redis user, by environment variables.
    pub struct RedisAclUser {
        /// The variable with the name.
        pub username_env_var: String = always "username_env_var",
        /// The variable with the password.
        pub password_env_var: String = always "password_env_var",
    }
}

document! {
    /// TLS to a Redis server.
    pub struct RedisTls {
        /// Whether any certificate is taken. For development only.
        pub insecure_skip_verify: bool = if_set "insecure_skip_verify",
        /// A file with certificate authorities to trust.
        pub ca_cert_file: String = if_set "ca_cert_file",
    }
}
