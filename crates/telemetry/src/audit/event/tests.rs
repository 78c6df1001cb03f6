use serde_json::json;

use super::*;

fn event() -> Event {
    Event {
        kind: EventType::McpToolCall,
        outcome: Outcome::ApplicationError,
        component: "toolhive-api".to_owned(),
        source: Source {
            value: "192.0.2.1".to_owned(),
            user_agent: "curl".to_owned(),
            request_id: "r".to_owned(),
            ..Source::default()
        },
        subjects: Subjects { user_id: "u".to_owned(), user: "Ada".to_owned(), ..Subjects::default() },
        delegation: None,
        target: Some(Target {
            endpoint: "/mcp".to_owned(),
            method: "tools/call".to_owned(),
            kind: TargetType::Tool,
            name: "echo".to_owned(),
        }),
        extra: Extra {
            duration_ms: 12,
            transport: "http",
            response_size_bytes: 40,
            backend_name: "srv".to_owned(),
            error: Some(RpcError { code: Some(-32602), message: "no".to_owned() }),
            ..Extra::default()
        },
        request: Data::of_request(b"{\"a\":\n1}", 100),
        response: None,
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

#[test]
fn a_line_has_the_form_that_consumers_know() {
    let line = String::from_utf8(event().line(Uuid::nil(), at(0))).unwrap();
    let start = r#"{"time":"1970-01-01T00:00:00Z","level":"AUDIT","msg":"audit_event","audit_id":"00000000-0000-0000-0000-000000000000","#;
    assert!(line.starts_with(start) && line.ends_with("}\n"), "{line}");
    let value: Value = serde_json::from_str(&line).unwrap();
    let expected = json!({
        "time": "1970-01-01T00:00:00Z", "level": "AUDIT", "msg": "audit_event",
        "audit_id": "00000000-0000-0000-0000-000000000000", "type": "mcp_tool_call",
        "logged_at": "1970-01-01T00:00:00Z", "outcome": "application_error", "component": "toolhive-api",
        "source": { "type": "network", "value": "192.0.2.1", "extra": { "user_agent": "curl", "request_id": "r" } },
        "subjects": { "user_id": "u", "user": "Ada" },
        "target": { "endpoint": "/mcp", "method": "tools/call", "type": "tool", "name": "echo" },
        "metadata": { "extra": { "duration_ms": 12, "transport": "http", "response_size_bytes": 40, "backend_name": "srv",
            "jsonrpc_error_code": -32602, "jsonrpc_error_message": "no" } },
        "data": { "request": { "a": 1 } },
    });
    assert_eq!(value, expected);
}

#[test]
fn what_is_not_known_is_left_out() {
    let mut event = event();
    (event.source.user_agent, event.source.request_id) = (String::new(), String::new());
    (event.request, event.extra, event.target) = (None, Extra::default(), None);
    let value: Value = serde_json::from_slice(&event.line(Uuid::nil(), at(0))).unwrap();
    assert_eq!(value["source"], json!({ "type": "network", "value": "192.0.2.1" }));
    assert_eq!(value["metadata"], json!({ "extra": { "duration_ms": 0 } }));
    assert!(value.get("data").is_none() && value.get("target").is_none() && value.get("delegation").is_none());
}

#[test]
fn texts_of_clients_are_bounded_and_cannot_break_the_line() {
    let mut event = event();
    let long = "é\n\"".repeat(5000);
    event.source.user_agent.clone_from(&long);
    event.subjects.client_name.clone_from(&long);
    event.extra.error = Some(RpcError { code: None, message: long.clone() });
    if let Some(target) = &mut event.target {
        target.name = long;
    }
    let line = event.line(Uuid::nil(), at(0));
    assert!(line.len() < 8 * 1024 && line.split(|byte| *byte == b'\n').count() == 2, "{}", line.len());
    let value: Value = serde_json::from_slice(&line).unwrap();
    assert!(value["metadata"]["extra"]["jsonrpc_error_message"].as_str().unwrap().len() <= 256);
}

#[test]
fn an_event_about_a_workflow_names_it_and_its_step() {
    let facts = WorkflowFacts {
        id: "w".to_owned(),
        name: "twice".to_owned(),
        step_id: "a".to_owned(),
        step_type: "tool",
        tool: "echo".to_owned(),
        duration_ms: 12,
        retry_count: 2,
        error: "it broke".to_owned(),
    };
    let line = |facts: WorkflowFacts, kind: TargetType| {
        let extra = Extra { workflow: Some(Box::new(facts)), ..Extra::default() };
        let target = event().target.map(|target| Target { kind, ..target });
        let event = Event { kind: EventType::VmcpWorkflowStepFailed, target, extra, request: None, ..event() };
        serde_json::from_slice::<Value>(&event.line(Uuid::nil(), at(0))).unwrap()
    };
    let step = line(facts.clone(), TargetType::WorkflowStep);
    let target = json!({ "type": "workflow_step", "workflow_id": "w", "workflow_name": "twice", "step_id": "a", "step_type": "tool", "tool_name": "echo" });
    assert_eq!(step["target"], target);
    assert_eq!(step["metadata"]["extra"], json!({ "duration_ms": 0, "retry_count": 2, "error": "it broke" }));
    let run = WorkflowFacts { id: "w".to_owned(), name: "twice".to_owned(), ..WorkflowFacts::default() };
    let run = line(run, TargetType::Workflow);
    assert_eq!(run["target"], json!({ "type": "workflow", "workflow_id": "w", "workflow_name": "twice" }));
    assert_eq!(run["metadata"]["extra"], json!({ "duration_ms": 0 }));
}
