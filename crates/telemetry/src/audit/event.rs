//! One event, and its line.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::data::Data;
use super::kind::{EventType, Outcome, TargetType};
use super::reply::RpcError;

/// The longest message of a JSON-RPC error in an event, in bytes.
const MESSAGE: usize = 256;
/// The longest text of a client in an event, in bytes: a path, a user agent, a name.
const TEXT: usize = 1024;

/// What happened, without when it was logged.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it is about.
    pub kind: EventType,
    /// How it ended.
    pub outcome: Outcome,
    /// What logs it.
    pub component: String,
    /// Where the request came from.
    pub source: Source,
    /// Who sent it.
    pub subjects: Subjects,
    /// Who acted for whom, as JSON.
    pub delegation: Option<Value>,
    /// What it was for.
    pub target: Option<Target>,
    /// What else is known.
    pub extra: Extra,
    /// The request.
    pub request: Option<Data>,
    /// The response.
    pub response: Option<Data>,
}

/// Where a request came from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The address of the client, or what else stands for it.
    pub value: String,
    /// Whether it came over the network, and not from this process.
    pub is_local: bool,
    /// Its `User-Agent`.
    pub user_agent: String,
    /// Its `X-Request-Id`.
    pub request_id: String,
}

/// Who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Subjects {
    /// The subject of its token.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_id: String,
    /// Its name, or `anonymous`.
    pub user: String,
    /// The name of its program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_name: String,
    /// The version of its program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_version: String,
}

/// What a request was for.
#[derive(Clone, Debug)]
pub struct Target {
    /// The path.
    pub endpoint: String,
    /// The MCP method, or else the HTTP method.
    pub method: String,
    /// What kind of thing.
    pub kind: TargetType,
    /// The name of the tool, resource or prompt.
    pub name: String,
}

/// What else is known about a request. Zero and empty values are left out.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// How long it took until its response ended.
    pub duration_ms: u64,
    /// `sse` or `http`.
    pub transport: &'static str,
    /// The length of the response.
    pub response_size_bytes: u64,
    /// The MCP server.
    pub backend_name: String,
    /// The JSON-RPC error in the reply.
    pub error: Option<RpcError>,
    /// The middleware that answered the request instead of the server.
    pub denied_by: String,
    /// Why it denied the request.
    pub denial_reason: String,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// The webhooks that changed the request, which the event shows as they left it.
    pub mutated_by: Vec<String>,
    /// Whether the response did not come to its end: the client disconnected, or the server broke off.
    pub incomplete: bool,
    /// How many events were dropped before this one, in an event about that.
    pub dropped_events: u64,
    /// The workflow, in an event about one.
    pub workflow: Option<Box<WorkflowFacts>>,
}

/// What an event says of a workflow. Of a step, if it is about one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkflowFacts {
    /// The id of the run.
    pub id: String,
    /// The name of the composite tool.
    pub name: String,
    /// The step.
    pub step_id: String,
    /// `tool`, `elicitation` or `forEach`.
    pub step_type: &'static str,
    /// The tool that the step calls.
    pub tool: String,
    /// How long it took.
    pub duration_ms: u64,
    /// How often the step was tried again.
    pub retry_count: u32,
    /// Why it failed.
    pub error: String,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(serialize_with = "displayed")]
    time: Timestamp,
    level: &'static str,
    msg: &'static str,
    #[serde(serialize_with = "displayed")]
    audit_id: Uuid,
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(serialize_with = "displayed")]
    logged_at: Timestamp,
    outcome: Outcome,
    component: &'a str,
    source: SourceLine<'a>,
    subjects: &'a Subjects,
    #[serde(skip_serializing_if = "Option::is_none")]
    delegation: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<TargetLine<'a>>,
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<DataLine<'a>>,
}

#[derive(Serialize)]
struct SourceLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    value: &'a str,
    #[serde(skip_serializing_if = "SourceExtra::is_empty")]
    extra: SourceExtra<'a>,
}

#[derive(Serialize)]
struct SourceExtra<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_id: &'a str,
}

#[derive(Serialize)]
struct TargetLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(rename = "type")]
    kind: TargetType,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(flatten)]
    workflow: Option<WorkflowLine<'a>>,
}

#[derive(Serialize)]
struct WorkflowLine<'a> {
    workflow_id: &'a str,
    workflow_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    step_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    step_type: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tool_name: &'a str,
}

#[derive(Serialize)]
struct Metadata<'a> {
    extra: ExtraLine<'a>,
}

#[derive(Serialize)]
struct ExtraLine<'a> {
    duration_ms: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    transport: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    response_size_bytes: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    backend_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    jsonrpc_error_code: Option<i64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    jsonrpc_error_message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    denied_by: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    denial_reason: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    policies: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    mutated_by: &'a [String],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
    #[serde(skip_serializing_if = "is_zero")]
    dropped_events: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_count: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct DataLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a Data>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a Data>,
}

// === impl Event ===

impl Event {
    /// The report of events that could not be written.
    pub(super) fn dropped(count: u64, component: &str) -> Self {
        Self {
            kind: EventType::AuditEventsDropped,
            outcome: Outcome::Error,
            component: component.to_owned(),
            source: Source { value: component.to_owned(), is_local: true, ..Source::default() },
            subjects: Subjects { user: component.to_owned(), ..Subjects::default() },
            delegation: None,
            target: None,
            extra: Extra { dropped_events: count, ..Extra::default() },
            request: None,
            response: None,
        }
    }

    /// Its line, with the line feed.
    pub fn line(&self, audit_id: Uuid, now: Timestamp) -> Vec<u8> {
        let Source { value, is_local, user_agent, request_id } = &self.source;
        let source = SourceLine {
            kind: if *is_local { "local" } else { "network" },
            value: clip(value, TEXT),
            extra: SourceExtra { user_agent: clip(user_agent, TEXT), request_id: clip(request_id, TEXT) },
        };
        let workflow = self.extra.workflow.as_deref();
        let is_request = workflow.is_none();
        let target = self.target.as_ref().map(|target| TargetLine {
            endpoint: is_request.then(|| clip(&target.endpoint, TEXT)),
            method: is_request.then(|| clip(&target.method, TEXT)),
            kind: target.kind,
            name: if workflow.is_some() { "" } else { clip(&target.name, TEXT) },
            workflow: workflow.map(WorkflowFacts::line),
        });
        let has_data = self.request.is_some() || self.response.is_some();
        let line = Line {
            time: now,
            level: "AUDIT",
            msg: "audit_event",
            audit_id,
            kind: self.kind,
            logged_at: now,
            outcome: self.outcome,
            component: &self.component,
            source,
            subjects: &self.subjects.clipped(),
            delegation: self.delegation.as_ref(),
            target,
            metadata: Metadata { extra: self.extra.line() },
            data: has_data.then_some(DataLine { request: self.request.as_ref(), response: self.response.as_ref() }),
        };
        // Every part of it can be written as JSON.
        let mut line = serde_json::to_vec(&line).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

// === impl WorkflowFacts ===

impl WorkflowFacts {
    fn line(&self) -> WorkflowLine<'_> {
        WorkflowLine {
            workflow_id: &self.id,
            workflow_name: clip(&self.name, TEXT),
            step_id: clip(&self.step_id, TEXT),
            step_type: self.step_type,
            tool_name: clip(&self.tool, TEXT),
        }
    }
}

// === impl Subjects ===

impl Subjects {
    fn clipped(&self) -> Self {
        let clipped = |text: &String| clip(text, TEXT).to_owned();
        Self {
            user_id: clipped(&self.user_id),
            user: clipped(&self.user),
            client_name: clipped(&self.client_name),
            client_version: clipped(&self.client_version),
        }
    }
}

// === impl SourceExtra ===

impl SourceExtra<'_> {
    fn is_empty(&self) -> bool {
        self.user_agent.is_empty() && self.request_id.is_empty()
    }
}

// === impl Extra ===

impl Extra {
    fn line(&self) -> ExtraLine<'_> {
        let error = self.error.as_ref();
        let workflow = self.workflow.as_deref();
        ExtraLine {
            duration_ms: self.duration_ms,
            transport: self.transport,
            response_size_bytes: self.response_size_bytes,
            backend_name: &self.backend_name,
            jsonrpc_error_code: error.and_then(|error| error.code),
            jsonrpc_error_message: error.map_or("", |error| clip(&error.message, MESSAGE)),
            denied_by: &self.denied_by,
            denial_reason: clip(&self.denial_reason, TEXT),
            policies: &self.policies,
            mutated_by: &self.mutated_by,
            incomplete: self.incomplete,
            dropped_events: self.dropped_events,
            retry_count: workflow.map(|facts| facts.retry_count).filter(|count| *count > 0),
            error: workflow.map_or("", |facts| clip(&facts.error, MESSAGE)),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn displayed<S: serde::Serializer>(value: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// The start of a text, between two characters.
fn clip(text: &str, longest: usize) -> &str {
    text.get(..text.floor_char_boundary(longest)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
