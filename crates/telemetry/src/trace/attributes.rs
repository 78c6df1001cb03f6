//! The names and attributes of spans: those of OpenTelemetry, and those that dashboards of before know.

use std::borrow::Cow;

use opentelemetry::{Key, KeyValue, Value};

use crate::audit::RpcError;

/// The longest text of a client in a span, in bytes.
const TEXT: usize = 1024;
/// The longest name of a resource in the name of a span, in bytes.
const NAME: usize = 128;

/// What is known of a request when its span starts.
#[derive(Clone, Debug, Default)]
pub struct SpanFacts {
    /// The HTTP method.
    pub method: String,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The name that the client used.
    pub host: String,
    /// The path.
    pub path: String,
    /// The query, as it was sent.
    pub query: Option<String>,
    /// `User-Agent`
    pub user_agent: String,
    /// The length of the body.
    pub body_size: usize,
    /// `1.1` or `2`.
    pub http_version: &'static str,
    /// The address of the client.
    pub client_address: String,
    /// Its port.
    pub client_port: u16,
    /// `Mcp-Session-Id`
    pub session: String,
    /// `MCP-Protocol-Version`
    pub protocol_version: String,
    /// The MCP server.
    pub server: String,
    /// How it speaks MCP.
    pub transport: String,
    /// The message.
    pub mcp: Option<McpFacts>,
    /// What a rate limit decided, if one applies.
    pub rate_limit: Option<RateLimitFacts>,
    /// Variables of the process, for `environment.<name>`.
    pub environment: Vec<(String, String)>,
}

/// What a rate limit decided about a message.
#[derive(Clone, Copy, Debug)]
pub struct RateLimitFacts {
    /// Whether the message goes on.
    pub is_allowed: bool,
    /// The scope of the bucket that is empty, or `none`.
    pub rejected_by: &'static str,
    /// Whether it goes on because it could not be counted.
    pub fail_open: bool,
}

/// What is known of a message.
#[derive(Clone, Debug, Default)]
pub struct McpFacts {
    /// Its method.
    pub method: String,
    /// Its id.
    pub id: String,
    /// What it is about.
    pub resource: String,
    /// The arguments of a tool, without secrets.
    pub arguments: String,
    /// The program of the client.
    pub client_name: String,
}

/// What is known of a response when it has ended.
#[derive(Clone, Debug, Default)]
pub struct ResponseFacts {
    /// The status.
    pub status: u16,
    /// The length of the body.
    pub body_size: u64,
    /// How long it took.
    pub milliseconds: f64,
    /// The JSON-RPC error in it.
    pub error: Option<RpcError>,
}

/// Attributes that are empty are left out.
#[derive(Debug, Default)]
struct Attributes(Vec<KeyValue>);

// === impl SpanFacts ===

impl SpanFacts {
    /// The name of the span.
    pub fn name(&self) -> Cow<'static, str> {
        match &self.mcp {
            _ if self.path.ends_with("/sse") => Cow::Borrowed("sse.connection_established"),
            Some(mcp) if mcp.resource.is_empty() => Cow::Owned(clip(&mcp.method, NAME).to_owned()),
            Some(mcp) => Cow::Owned(format!("{} {}", clip(&mcp.method, NAME), clip(&mcp.resource, NAME))),
            None => Cow::Owned(format!("{} {}", self.method, clip(&self.path, NAME))),
        }
    }

    /// The attributes of the span, with those of before if they are wanted.
    pub fn attributes(&self, with_legacy: bool) -> Vec<KeyValue> {
        let query = self.query.as_deref().map(redacted_query).unwrap_or_default();
        let target = if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) };
        let url = format!("{}://{}{target}", self.scheme, self.host);
        let mut found = Attributes::default();
        found.texts(&[
            ("http.request.method", &self.method),
            ("url.full", &url),
            ("url.scheme", self.scheme),
            ("server.address", &self.host),
            ("url.path", &self.path),
            ("url.query", &query),
            ("user_agent.original", &self.user_agent),
            ("client.address", &self.client_address),
            ("mcp.session.id", &self.session),
            ("mcp.protocol.version", &self.protocol_version),
            ("mcp.server.name", &self.server),
            ("network.transport", if self.is_stdio() { "pipe" } else { "tcp" }),
            ("network.protocol.name", if self.is_stdio() { "" } else { "http" }),
            ("network.protocol.version", self.http_version),
            // As the original has it, which knows no other version of HTTP there.
            ("mcp.backend.protocol.version", if self.transport == "sse" { "1.1" } else { "" }),
        ]);
        found.number("http.request.body.size", self.body_size as u64);
        found.number("client.port", self.client_port.into());
        if with_legacy {
            found.texts(&[
                ("http.method", &self.method),
                ("http.url", &url),
                ("http.scheme", self.scheme),
                ("http.host", &self.host),
                ("http.target", &target),
                ("http.query", &query),
                ("http.user_agent", &self.user_agent),
                ("mcp.transport", &self.transport),
            ]);
            found.number("http.request_content_length", self.body_size as u64);
        }
        if let Some(mcp) = &self.mcp {
            mcp.add_to(&mut found, with_legacy);
        }
        if let Some(RateLimitFacts { is_allowed, rejected_by, fail_open }) = self.rate_limit {
            let decision = if is_allowed { "allowed" } else { "rejected" };
            found.texts(&[("rate_limit.decision", decision), ("rate_limit.rejected_by", rejected_by)]);
            found.0.push(KeyValue::new("rate_limit.fail_open", fail_open));
        }
        for (name, value) in &self.environment {
            found.0.push(KeyValue::new(format!("environment.{name}"), clip(value, TEXT).to_owned()));
        }
        found.0
    }

    fn is_stdio(&self) -> bool {
        self.transport == "stdio"
    }
}

// === impl McpFacts ===

impl McpFacts {
    fn add_to(&self, found: &mut Attributes, with_legacy: bool) {
        let of = |method: &str| if self.method == method { self.resource.as_str() } else { "" };
        let is_tool = self.method == "tools/call";
        let (tool, prompt) = (of("tools/call"), of("prompts/get"));
        let uri = if self.method.starts_with("resources/") { self.resource.as_str() } else { "" };
        found.texts(&[
            ("mcp.method.name", &self.method),
            ("rpc.system.name", "jsonrpc"),
            ("jsonrpc.protocol.version", "2.0"),
            ("jsonrpc.request.id", &self.id),
            ("mcp.resource.uri", uri),
            ("mcp.client.name", &self.client_name),
            ("gen_ai.tool.name", tool),
            ("gen_ai.operation.name", if is_tool { "execute_tool" } else { "" }),
            ("gen_ai.tool.call.arguments", &self.arguments),
            ("gen_ai.prompt.name", prompt),
        ]);
        if with_legacy {
            found.texts(&[
                ("mcp.method", &self.method),
                ("rpc.system", "jsonrpc"),
                ("rpc.service", "mcp"),
                ("mcp.request.id", &self.id),
                ("mcp.resource.id", &self.resource),
                ("mcp.tool.name", tool),
                ("mcp.tool.arguments", &self.arguments),
                ("mcp.prompt.name", prompt),
            ]);
        }
    }
}

// === impl ResponseFacts ===

impl ResponseFacts {
    /// The attributes of the response.
    pub fn attributes(&self, with_legacy: bool) -> Vec<KeyValue> {
        let mut found = Attributes::default();
        let status = u64::from(self.status);
        found.number("http.response.status_code", status);
        found.number("http.response.body.size", self.body_size);
        if self.status >= 500 {
            found.texts(&[("error.type", &self.status.to_string())]);
        }
        if let Some(error) = &self.error {
            let code = error.code.map(|code| code.to_string()).unwrap_or_default();
            found.texts(&[("rpc.jsonrpc.error_code", &code), ("rpc.jsonrpc.error_message", clip(&error.message, 256))]);
        }
        if with_legacy {
            found.number("http.status_code", status);
            found.number("http.response_content_length", self.body_size);
            found.0.push(KeyValue::new("http.duration_ms", self.milliseconds));
        }
        found.0
    }

    /// Why the span is one of a failure.
    pub fn failure(&self) -> Option<String> {
        match &self.error {
            _ if self.status >= 400 => Some(format!("HTTP {}", self.status)),
            Some(error) => Some(format!("JSON-RPC error {}", error.code.unwrap_or_default())),
            None => None,
        }
    }
}

// === impl Attributes ===

impl Attributes {
    fn texts(&mut self, pairs: &[(&'static str, &str)]) {
        let named = pairs.iter().filter(|(_, value)| !value.is_empty());
        self.0.extend(named.map(|(name, value)| KeyValue::new(*name, clip(value, TEXT).to_owned())));
    }

    fn number(&mut self, name: &'static str, value: u64) {
        self.0.push(KeyValue::new(Key::from_static_str(name), Value::I64(i64::try_from(value).unwrap_or(i64::MAX))));
    }
}

/// A query without the values in it, which may be tokens.
fn redacted_query(query: &str) -> String {
    let shown = |pair: &str| match pair.split_once('=') {
        Some((name, _)) => format!("{name}=REDACTED"),
        None => "REDACTED".to_owned(),
    };
    query.split('&').filter(|pair| !pair.is_empty()).map(shown).collect::<Vec<_>>().join("&")
}

/// The start of a text, between two characters.
fn clip(text: &str, longest: usize) -> &str {
    text.get(..text.floor_char_boundary(longest)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
