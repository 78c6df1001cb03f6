//! Annotations and variables that several parts of Skep must spell alike.

/// The generation of the resource whose consumed content a pod runs with: on the pod template of a proxy, and on the StatefulSet
/// that it applies.
pub const GENERATION: &str = "toolhive.stacklok.dev/mcpserver-generation";
/// The variable through which a pod knows that generation. Frozen when the pod starts.
pub const GENERATION_ENV: &str = "THV_MCPSERVER_GENERATION";
/// What the proxy in front of a backend reports of it, on the backend's StatefulSet: JSON with `pod`, the proxy's own, and `message`.
/// It is there only while the proxy cannot use the backend.
pub const UPSTREAM: &str = "toolhive.stacklok.dev/upstream-degraded";
