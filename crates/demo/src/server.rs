//! From a message to its response: its era, and its method.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use skep_mcp::era::{self, MODERN, VERSIONS};
use skep_mcp::{Era, Kind, Message, Raw, RequestError, answer};
use uuid::Uuid;

use crate::{library, tool};

/// The legacy error code for a resource that does not exist.
const RESOURCE_NOT_FOUND: i64 = -32002;
/// How long a list may be cached, in milliseconds. Nothing here changes while the server runs.
const FRESH: u64 = 3_600_000;
/// The instructions for a model.
const INSTRUCTIONS: &str = "A server to try things with. Its tools keep nothing and reach nothing: they compute.";

/// The inputs that a line does not contain.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// The time.
    pub now: fn() -> jiff::Timestamp,
    /// Randomness.
    pub uuid: fn() -> Uuid,
}

/// The server. It has no state.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    surroundings: Surroundings,
}

/// Why a request has no result.
#[derive(Debug)]
pub(crate) struct Failure {
    code: i64,
    message: String,
    data: Option<Value>,
}

/// The result of a request.
struct Reply {
    members: Map<String, Value>,
    /// Whether it may be cached.
    keeps: bool,
}

// === impl Server ===

impl Server {
    /// A server.
    pub const fn new(surroundings: Surroundings) -> Self {
        Self { surroundings }
    }

    /// Responds to a line. `None` for one that expects no response.
    pub fn answer(&self, line: &[u8]) -> Option<Bytes> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        let message = match Message::parse(Bytes::copy_from_slice(line)) {
            Ok(message) => message,
            Err(why) => return Some(answer::malformed(why)),
        };
        if message.kind() != Kind::Request {
            return None;
        }
        let id = message.id()?;
        Some(match self.reply(&message) {
            Ok(members) => answer::result(&id, &Raw::value(&Value::Object(members))),
            Err(Failure { code, message, data }) => {
                answer::error(Some(&id), code, &message, data.map(|data| Raw::value(&data)).as_ref())
            }
        })
    }

    fn reply(&self, message: &Message) -> Result<Map<String, Value>, Failure> {
        let era = era::classify(None, message).map_err(|refusal| Failure::refusal(&refusal))?;
        let params = parameters(message)?;
        let method = message.method().unwrap_or_default();
        let reply = match era {
            Era::Legacy => self.legacy(method, &params)?,
            Era::Modern => self.modern(method, &params)?,
        };
        Ok(match era {
            Era::Legacy => reply.members,
            Era::Modern => reply.modern(),
        })
    }

    fn legacy(&self, method: &str, params: &Map<String, Value>) -> Result<Reply, Failure> {
        match method {
            "initialize" => initialize(params),
            "ping" => Ok(Reply::of(json!({}))),
            "resources/read" => library::read(text(params, "uri")?)
                .map(Reply::kept)
                .ok_or_else(|| Failure::no_resource(RESOURCE_NOT_FOUND, params)),
            other => self.common(other, params),
        }
    }

    fn modern(&self, method: &str, params: &Map<String, Value>) -> Result<Reply, Failure> {
        match method {
            "server/discover" => Ok(Reply::kept(json!({
                "supportedVersions": supported(),
                "capabilities": capabilities(),
                "instructions": INSTRUCTIONS,
            }))),
            "resources/read" => library::read(text(params, "uri")?)
                .map(Reply::kept)
                .ok_or_else(|| Failure::no_resource(answer::INVALID_PARAMS, params)),
            other => self.common(other, params),
        }
    }

    /// The methods of both eras. Every list has one page, so a cursor is ignored.
    fn common(&self, method: &str, params: &Map<String, Value>) -> Result<Reply, Failure> {
        match method {
            "tools/list" => Ok(Reply::kept(json!({ "tools": tool::list() }))),
            "tools/call" => self.call(params),
            "resources/list" => Ok(Reply::kept(json!({ "resources": library::resources() }))),
            "resources/templates/list" => Ok(Reply::kept(json!({ "resourceTemplates": [] }))),
            "prompts/list" => Ok(Reply::kept(json!({ "prompts": library::prompts() }))),
            "prompts/get" => library::prompt(text(params, "name")?, params.get("arguments")).map(Reply::of),
            other => Err(Failure::new(answer::METHOD_NOT_FOUND, format!("there is no method `{other}` here"))),
        }
    }

    /// An error inside a tool is a result with `isError`: the model that called it can correct its arguments.
    fn call(&self, params: &Map<String, Value>) -> Result<Reply, Failure> {
        let name = text(params, "name")?;
        let tool = tool::find(name).ok_or_else(|| Failure::invalid(format!("there is no tool `{name}`")))?;
        let none = Map::new();
        let arguments = match params.get("arguments") {
            None | Some(Value::Null) => &none,
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(Failure::invalid("`arguments` must be an object")),
        };
        Ok(Reply::of(match tool.call(arguments, &self.surroundings) {
            Ok(value) => json!({
                "content": [{ "type": "text", "text": value.to_string() }],
                "structuredContent": value,
                "isError": false,
            }),
            Err(problem) => json!({ "content": [{ "type": "text", "text": problem }], "isError": true }),
        }))
    }
}

// === impl Reply ===

impl Reply {
    fn of(value: Value) -> Self {
        let members = if let Value::Object(members) = value { members } else { Map::new() };
        Self { members, keeps: false }
    }

    fn kept(value: Value) -> Self {
        Self { keeps: true, ..Self::of(value) }
    }

    /// With the members that every modern result has.
    fn modern(mut self) -> Map<String, Value> {
        self.members.insert("resultType".to_owned(), json!("complete"));
        self.members.insert("_meta".to_owned(), json!({ "io.modelcontextprotocol/serverInfo": about() }));
        if self.keeps {
            self.members.insert("ttlMs".to_owned(), json!(FRESH));
            self.members.insert("cacheScope".to_owned(), json!("public"));
        }
        self.members
    }
}

// === impl Failure ===

impl Failure {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The parameters do not fit the method.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(answer::INVALID_PARAMS, message)
    }

    fn no_resource(code: i64, params: &Map<String, Value>) -> Self {
        Self {
            data: Some(json!({ "uri": params.get("uri") })),
            ..Self::new(code, "there is no such resource; see resources/list")
        }
    }

    /// A request that contradicts itself. The error for an unknown version lists every supported version.
    fn refusal(refusal: &RequestError) -> Self {
        match refusal {
            RequestError::Unsupported { requested } => Self {
                data: Some(json!({ "requested": requested, "supported": supported() })),
                ..Self::new(refusal.code(), format!("version `{requested}` is not supported"))
            },
            _ => Self { data: refusal.data(), ..Self::new(refusal.code(), refusal.to_string()) },
        }
    }
}

/// Negotiates the version that the client requests, or else the newest that has a handshake.
fn initialize(params: &Map<String, Value>) -> Result<Reply, Failure> {
    let asked = text(params, "protocolVersion")?;
    let mut legacy = supported().into_iter().filter(|version| *version != MODERN);
    let newest = legacy.clone().next();
    let agreed = legacy.find(|version| *version == asked).or(newest);
    Ok(Reply::of(json!({
        "protocolVersion": agreed,
        "capabilities": capabilities(),
        "serverInfo": about(),
        "instructions": INSTRUCTIONS,
    })))
}

/// Every supported version, the newest first.
fn supported() -> Vec<&'static str> {
    VERSIONS.into_iter().rev().collect()
}

fn capabilities() -> Value {
    json!({ "tools": {}, "resources": {}, "prompts": {} })
}

fn about() -> Value {
    json!({ "name": "skep-demo", "title": "Skep's demo server", "version": env!("CARGO_PKG_VERSION") })
}

fn parameters(message: &Message) -> Result<Map<String, Value>, Failure> {
    let Some(params) = message.params() else { return Ok(Map::new()) };
    serde_json::from_slice(params).map_err(|_| Failure::invalid("`params` must be an object"))
}

fn text<'a>(params: &'a Map<String, Value>, name: &str) -> Result<&'a str, Failure> {
    params.get(name).and_then(Value::as_str).ok_or_else(|| Failure::invalid(format!("`{name}` must be a string")))
}

#[cfg(test)]
mod tests;
