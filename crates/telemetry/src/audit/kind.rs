//! The types and outcomes of audit events.

use serde::Serialize;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    /// `initialize`
    McpInitialize,
    /// `tools/call`
    McpToolCall,
    /// `tools/list`
    McpToolsList,
    /// `resources/read`
    McpResourceRead,
    /// `resources/list`
    McpResourcesList,
    /// `prompts/get`
    McpPromptGet,
    /// `prompts/list`
    McpPromptsList,
    /// A notification.
    McpNotification,
    /// `ping`
    McpPing,
    /// `logging/setLevel`
    McpLogging,
    /// `completion/complete`
    McpCompletion,
    /// `notifications/roots/list_changed`
    McpRootsListChanged,
    /// Any other request of the protocol.
    McpRequest,
    /// A request without a message of the protocol.
    HttpRequest,
    /// A client opened a stream of events.
    SseConnection,
    /// A workflow of a virtual server started.
    VmcpWorkflowStarted,
    /// A workflow completed.
    VmcpWorkflowCompleted,
    /// A workflow failed.
    VmcpWorkflowFailed,
    /// A workflow timed out.
    VmcpWorkflowTimedOut,
    /// A step of a workflow started.
    VmcpWorkflowStepStarted,
    /// A step completed.
    VmcpWorkflowStepCompleted,
    /// A step failed.
    VmcpWorkflowStepFailed,
    /// A step was skipped.
    VmcpWorkflowStepSkipped,
    /// Earlier events could not be written. Not subject to filters.
    AuditEventsDropped,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A status of 2xx or 3xx, and no error in the reply.
    Success,
    /// 401, 403, or another response of a middleware that denied the request.
    Denied,
    /// Any other 4xx.
    Failure,
    /// 5xx, or the response was not completed by the server.
    Error,
    /// A JSON-RPC error in a response of 2xx.
    ApplicationError,
}

/// What kind of thing a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetType {
    /// A tool.
    Tool,
    /// A resource.
    Resource,
    /// A prompt.
    Prompt,
    /// The endpoint itself.
    Endpoint,
    /// The endpoint that opens a stream of events.
    SseEndpoint,
    /// A composite tool that runs.
    Workflow,
    /// A step of it.
    WorkflowStep,
}

/// The types that a configuration may list, by name.
const NAMES: &[(&str, EventType)] = &[
    ("mcp_initialize", EventType::McpInitialize),
    ("mcp_tool_call", EventType::McpToolCall),
    ("mcp_tools_list", EventType::McpToolsList),
    ("mcp_resource_read", EventType::McpResourceRead),
    ("mcp_resources_list", EventType::McpResourcesList),
    ("mcp_prompt_get", EventType::McpPromptGet),
    ("mcp_prompts_list", EventType::McpPromptsList),
    ("mcp_notification", EventType::McpNotification),
    ("mcp_ping", EventType::McpPing),
    ("mcp_logging", EventType::McpLogging),
    ("mcp_completion", EventType::McpCompletion),
    ("mcp_roots_list_changed", EventType::McpRootsListChanged),
    ("mcp_request", EventType::McpRequest),
    ("http_request", EventType::HttpRequest),
    ("sse_connection", EventType::SseConnection),
    ("vmcp_workflow_started", EventType::VmcpWorkflowStarted),
    ("vmcp_workflow_completed", EventType::VmcpWorkflowCompleted),
    ("vmcp_workflow_failed", EventType::VmcpWorkflowFailed),
    ("vmcp_workflow_timed_out", EventType::VmcpWorkflowTimedOut),
    ("vmcp_workflow_step_started", EventType::VmcpWorkflowStepStarted),
    ("vmcp_workflow_step_completed", EventType::VmcpWorkflowStepCompleted),
    ("vmcp_workflow_step_failed", EventType::VmcpWorkflowStepFailed),
    ("vmcp_workflow_step_skipped", EventType::VmcpWorkflowStepSkipped),
];

// === impl EventType ===

impl EventType {
    /// The type of a request or notification with this method.
    pub fn of_method(method: &str) -> Self {
        match method {
            "initialize" => Self::McpInitialize,
            "tools/call" => Self::McpToolCall,
            "tools/list" => Self::McpToolsList,
            "resources/read" => Self::McpResourceRead,
            "resources/list" => Self::McpResourcesList,
            "prompts/get" => Self::McpPromptGet,
            "prompts/list" => Self::McpPromptsList,
            "ping" => Self::McpPing,
            "logging/setLevel" => Self::McpLogging,
            "completion/complete" => Self::McpCompletion,
            "notifications/roots/list_changed" => Self::McpRootsListChanged,
            other if other.starts_with("notifications/") => Self::McpNotification,
            _ => Self::McpRequest,
        }
    }

    /// The type of this name, as configurations write it.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// The names that a configuration may list.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }
}

// === impl Outcome ===

impl Outcome {
    /// The outcome of a status, without regard to the body.
    pub const fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Denied,
            ..400 => Self::Success,
            400..500 => Self::Failure,
            _ => Self::Error,
        }
    }

    /// The same, once the reply is known to be a JSON-RPC error.
    #[must_use]
    pub fn with_error_reply(self) -> Self {
        if self == Self::Success { Self::ApplicationError } else { self }
    }
}

// === impl TargetType ===

impl TargetType {
    /// What a message with this method is for.
    pub fn of_method(method: &str) -> Self {
        match method.split('/').next() {
            Some("tools") => Self::Tool,
            Some("resources") => Self::Resource,
            Some("prompts") => Self::Prompt,
            _ => Self::Endpoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_written_under_the_name_that_configurations_list() {
        for (name, kind) in NAMES {
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("\"{name}\""));
            assert_eq!(EventType::named(name), Some(*kind));
        }
        assert_eq!(EventType::named("audit_events_dropped"), None, "it cannot be filtered");
        assert_eq!(EventType::named("MCP_PING"), None);
    }

    #[test]
    fn methods_have_their_types() {
        for (method, kind) in [
            ("initialize", EventType::McpInitialize),
            ("tools/call", EventType::McpToolCall),
            ("tools/list", EventType::McpToolsList),
            ("resources/read", EventType::McpResourceRead),
            ("resources/list", EventType::McpResourcesList),
            ("resources/templates/list", EventType::McpRequest),
            ("prompts/get", EventType::McpPromptGet),
            ("prompts/list", EventType::McpPromptsList),
            ("notifications/initialized", EventType::McpNotification),
            ("notifications/message", EventType::McpNotification),
            ("notifications/roots/list_changed", EventType::McpRootsListChanged),
            ("ping", EventType::McpPing),
            ("logging/setLevel", EventType::McpLogging),
            ("completion/complete", EventType::McpCompletion),
            ("tasks/get", EventType::McpRequest),
            ("Tools/call", EventType::McpRequest),
        ] {
            assert_eq!(EventType::of_method(method), kind, "{method}");
        }
    }

    #[test]
    fn statuses_have_their_outcomes_and_an_error_reply_counts_in_a_success_only() {
        for (status, outcome, with_error) in [
            (200, Outcome::Success, Outcome::ApplicationError),
            (202, Outcome::Success, Outcome::ApplicationError),
            (302, Outcome::Success, Outcome::ApplicationError),
            (400, Outcome::Failure, Outcome::Failure),
            (401, Outcome::Denied, Outcome::Denied),
            (403, Outcome::Denied, Outcome::Denied),
            (404, Outcome::Failure, Outcome::Failure),
            (413, Outcome::Failure, Outcome::Failure),
            (429, Outcome::Failure, Outcome::Failure),
            (500, Outcome::Error, Outcome::Error),
            (504, Outcome::Error, Outcome::Error),
        ] {
            assert_eq!(Outcome::of_status(status), outcome, "{status}");
            assert_eq!(Outcome::of_status(status).with_error_reply(), with_error, "{status}");
        }
    }
}
