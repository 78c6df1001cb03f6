//! How the MCP server of the proxy runs: replicas, permissions, image builds.

use std::collections::BTreeMap;

use crate::document::document;
use crate::json::Json;

document! {
    /// Replicas, and where they share sessions.
    pub struct ScalingConfig {
        /// How many replicas the server has. `None`: another field manager decides; 0 is a number like any other.
        pub backend_replicas: Option<i32> = if_set "backend_replicas",
        /// The Redis that sessions are kept in.
        pub session_redis: Option<SessionRedis> = if_set "session_redis",
    }
}

document! {
    /// The Redis that sessions are kept in. Its password travels in the environment.
    pub struct SessionRedis {
        /// Host and port.
        pub address: String = if_set "address",
        /// Number of the database.
        pub db: i32 = if_set "db",
        /// Put in front of every key; ends with `:`.
        pub key_prefix: String = if_set "key_prefix",
    }
}

document! {
    /// What a container may reach. Kubernetes has other means, and carries this along.
    pub struct PermissionProfile {
        /// Name of the profile.
        pub name: String = if_set "name",
        /// What it may read: `path`, `host:container` or `scheme://resource:container`.
        pub read: Vec<String> = if_set "read",
        /// What it may read and write.
        pub write: Vec<String> = if_set "write",
        /// What it may connect to.
        pub network: Option<NetworkPermissions> = if_set "network",
        /// Whether it may do everything.
        pub privileged: bool = if_set "privileged",
    }
}

document! {
    /// What a container may connect to.
    pub struct NetworkPermissions {
        /// The container engine's network.
        pub mode: String = if_set "mode",
        /// What it may call.
        pub outbound: Option<OutboundPermissions> = if_set "outbound",
        /// Its permitted clients.
        pub inbound: Option<InboundPermissions> = if_set "inbound",
    }
}

document! {
    /// What a container may call.
    pub struct OutboundPermissions {
        /// Whether it may call everything.
        pub insecure_allow_all: bool = if_set "insecure_allow_all",
        /// Hosts that it may call.
        pub allow_host: Vec<String> = if_set "allow_host",
        /// Ports that it may call.
        pub allow_port: Vec<i64> = if_set "allow_port",
    }
}

document! {
    /// The permitted clients of a container.
    pub struct InboundPermissions {
        /// Hosts that may.
        pub allow_host: Vec<String> = if_set "allow_host",
    }
}

document! {
    /// Which files containers do not see; Docker only.
    pub struct IgnoreConfig {
        /// Whether the user's global list counts.
        pub load_global: bool = always "LoadGlobal",
        /// Whether what is hidden is shown.
        pub print_overlays: bool = always "PrintOverlays",
    }
}

document! {
    /// How an image is built from a package.
    pub struct RuntimeConfig {
        /// The image to build in.
        pub builder_image: String = always "builder_image",
        /// Packages of the system to add.
        pub additional_packages: Vec<String> = if_set "additional_packages",
        /// What to build with; kept as it came.
        pub build_with: Json = if_set "build_with",
        /// Environment of the built image.
        pub runtime_env: BTreeMap<String, String> = if_set "runtime_env",
    }
}
