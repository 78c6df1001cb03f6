//! Annotations and variables that several parts of Skep must spell alike.

/// The generation of the resource whose consumed content a pod runs with: on the pod template of a proxy, and on the StatefulSet
/// that it applies.
pub const GENERATION: &str = "toolhive.stacklok.dev/mcpserver-generation";
/// The variable through which a pod knows that generation. Frozen when the pod starts.
pub const GENERATION_ENV: &str = "THV_MCPSERVER_GENERATION";
