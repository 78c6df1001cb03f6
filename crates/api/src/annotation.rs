//! Annotations and variables that several parts of Skep must spell alike.

use serde::{Deserialize, Serialize};

/// The generation of the resource whose consumed content a pod runs with: on the pod template of a proxy, and on the StatefulSet
/// that it applies.
pub const GENERATION: &str = "toolhive.stacklok.dev/mcpserver-generation";
/// The variable through which a pod knows that generation. Frozen when the pod starts.
pub const GENERATION_ENV: &str = "THV_MCPSERVER_GENERATION";
/// The proxy's report on its backend, on the backend's StatefulSet, or on its own Service ([`proxy_service`]) while no
/// StatefulSet exists: an [`UpstreamReport`] as JSON. It is set only while the proxy cannot use the backend.
pub const UPSTREAM: &str = "toolhive.stacklok.dev/upstream-state";

/// The Service of the proxy of an MCPServer.
pub fn proxy_service(server: &str) -> String {
    format!("mcp-{server}-proxy")
}

/// A proxy's report on its MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamReport {
    /// The pod of the proxy. A report of a pod that is gone says nothing.
    pub pod: String,
    /// The health of the server.
    pub state: UpstreamState,
    /// Whether the server ever answered this proxy.
    #[serde(default)]
    pub answered: bool,
    /// Why, for people.
    pub message: String,
}

/// The health of an MCP server that its proxy cannot use, with the values of the proxy's `/health`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamState {
    /// It has not answered so far.
    Starting,
    /// It does not answer, or cannot be run as it should be.
    Degraded,
}
