//! The specification of a server, whatever runs it.

use std::collections::BTreeMap;

/// A server to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Its name: that of the StatefulSet, and of what is derived from it.
    pub name: String,
    /// The container image.
    pub image: String,
    /// Arguments of the container.
    pub args: Vec<String>,
    /// The user's environment variables.
    pub env: BTreeMap<String, String>,
    /// Labels for all objects.
    pub labels: BTreeMap<String, String>,
    /// Its transport.
    pub speaks: Speaks,
    /// The host to listen on. Empty leaves it to the server.
    pub host: String,
    /// More ports: `hostPort:containerPort` or `containerPort`.
    pub publish: Vec<String>,
    /// A pod template, as JSON, that the pods are based on. Empty means none.
    pub patch: String,
    /// How many pods; `None` leaves the number to others.
    pub replicas: Option<i32>,
    /// The generation of the spec that this was made from; 0 means unknown.
    pub generation: i64,
}

/// The transport of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// Lines on standard input and output.
    #[default]
    Stdio,
    /// HTTP with SSE, on a port.
    Sse(u16),
    /// Streamable HTTP, on a port.
    StreamableHttp(u16),
}

// === impl Speaks ===

impl Speaks {
    /// The name in RunConfigs and in the server's environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Sse(_) => "sse",
            Self::StreamableHttp(_) => "streamable-http",
        }
    }

    /// The port, if there is one.
    pub const fn port(self) -> Option<u16> {
        match self {
            Self::Stdio => None,
            Self::Sse(port) | Self::StreamableHttp(port) => Some(port),
        }
    }
}

// === impl Server ===

impl Server {
    /// The variables that the server runs with: the user's, and the address to listen on.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let mut variables = self.env.clone();
        variables.insert("MCP_TRANSPORT".to_owned(), self.speaks.name().to_owned());
        if let Some(port) = self.speaks.port() {
            variables.insert("MCP_PORT".to_owned(), port.to_string());
            variables.insert("FASTMCP_PORT".to_owned(), port.to_string());
            variables.insert("MCP_HOST".to_owned(), self.host.clone());
        }
        variables
    }

    /// The Service of the server.
    pub fn service_name(&self) -> String {
        format!("mcp-{}", self.name)
    }

    /// The headless Service of the server's pods.
    pub fn headless_name(&self) -> String {
        format!("mcp-{}-headless", self.name)
    }

    /// The URL of the server inside its namespace; `None` for a stdio server.
    pub fn url(&self) -> Option<String> {
        self.speaks.port().map(|port| format!("http://{}:{port}", self.service_name()))
    }
}

/// Whether a variable sets the address to listen on: these are never the pod template's.
pub(crate) fn is_ours(variable: &str) -> bool {
    matches!(variable, "MCP_TRANSPORT" | "MCP_PORT" | "MCP_HOST" | "FASTMCP_PORT")
}
