//! `skep vmcp` with an optimizer, and what a virtual server records: with real servers and clients of both eras.

use std::path::Path;

use serde_json::{Value, json};

use crate::proxy::Proxy;
use crate::skep;
use crate::vmcp::{AGGREGATION, Virtual, config, request, until};

const METRICS: &str = "telemetry: {serviceName: v, enablePrometheusMetricsPath: true}\n";
/// A composite tool of one step that is retried, and one that is left out.
const COMPOSITE: &str = "compositeTools:\n  - name: twice\n    description: calculates an expression in two steps\n    steps:\n      \
    - {id: a, tool: one_calculate, arguments: {expression: '20+1'}}\n      \
    - {id: b, tool: one_uuid, condition: 'false', dependsOn: [a]}\n";

/// The events of an audit log, once there are so many of a type.
fn events(path: &Path, kind: &str, count: usize) -> Vec<Value> {
    let read = || -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["type"] == kind).collect()
    };
    until(&format!("there are {count} events {kind}"), || read().len() >= count);
    read()
}

/// The value of a metric whose line begins like this.
fn metric(served: &Virtual, start: &str) -> f64 {
    let page = served.get("/metrics").text;
    let line = page.lines().find(|line| line.starts_with(start));
    let value = line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("no {start} in\n{page}"));
    value.parse().unwrap()
}

fn found(served: &Virtual, description: &str) -> Vec<String> {
    let arguments = json!({ "tool_description": description });
    let called = served.post(None, &request(1, "tools/call", &json!({ "name": "find_tool", "arguments": arguments })));
    let tools = called.body["result"]["structuredContent"]["tools"].clone();
    tools
        .as_array()
        .unwrap_or_else(|| panic!("{}", called.body))
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn clients_of_both_eras_find_and_call_tools_of_several_servers() {
    let (one, two) = (Proxy::start_in("streamable-http"), Proxy::start_in("streamable-http"));
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let audit = format!("audit: {{enabled: true, logFile: {}}}\n", log.display());
    let more = format!("{AGGREGATION}{METRICS}{COMPOSITE}{audit}optimizer: {{maxToolsToReturn: 3}}\n");
    let backends = [("one", one.address.as_str()), ("two", two.address.as_str())];
    let served = Virtual::start_with(&config(&backends, &more));
    assert_eq!(served.tools(), ["call_tool", "find_tool"]);

    // A modern client.
    let search = skep(&["call", &served.url(), "find_tool", "--arg", "tool_description=calculating expressions"]);
    assert!(search.succeeded().contains("one_calculate") && search.out.contains("token_metrics"), "{}", search.out);
    let parameters = json!({ "tool_name": "two_calculate", "parameters": { "expression": "2 ^ 10" } }).to_string();
    let called = skep(&["call", &served.url(), "call_tool", "--json", &parameters]);
    assert!(called.succeeded().contains("1024"), "{}", called.out);

    // A legacy one.
    let best = found(&served, "calculate an expression in two steps");
    assert!(best.contains(&"twice".to_owned()) && best.len() == 3, "{best:?}");
    let call = |arguments: Value| {
        served.post(None, &request(2, "tools/call", &json!({ "name": "call_tool", "arguments": arguments }))).body
    };
    let flat = call(json!({ "parameters": { "tool_name": "one_calculate", "expression": "6*7" } }));
    assert_eq!(flat["result"]["structuredContent"]["result"], 42, "{flat}");
    let nothing = call(json!({ "tool_name": "three_calculate" }));
    assert_eq!(nothing["result"]["content"][0]["text"], "tool not found: three_calculate", "{nothing}");
    assert_eq!(nothing["result"]["isError"], true);
    assert_eq!(call(json!({ "tool_name": "twice" }))["result"]["structuredContent"]["result"], 21);
    let resources = served.post(None, &request(3, "resources/list", &json!({}))).body;
    assert!(!resources["result"]["resources"].as_array().unwrap().is_empty(), "resources stay: {resources}");

    // The audit log has what was called, and where.
    let calls = events(&log, "mcp_tool_call", 6);
    let named =
        |name: &str| calls.iter().find(|event| event["target"]["name"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(named("two_calculate")["metadata"]["extra"]["backend_name"], "two");
    assert_eq!(named("one_calculate")["metadata"]["extra"]["backend_name"], "one");
    for no_backend in ["find_tool", "twice"] {
        assert_eq!(named(no_backend)["metadata"]["extra"].get("backend_name"), None, "{no_backend}");
    }
    assert!(calls.iter().all(|event| event["target"]["name"] != "call_tool"));
    assert!(metric(&served, "toolhive_vmcp_optimizer_find_tool_requests_total ") >= 2.0);
    assert!(metric(&served, "toolhive_vmcp_optimizer_call_tool_not_found_total ") >= 1.0);
    assert!(metric(&served, "toolhive_vmcp_optimizer_token_savings_percent_count ") >= 2.0);
}

#[test]
fn a_search_finds_what_policies_permit_by_name_and_by_backend() {
    let (one, two) = (Proxy::start_in("streamable-http"), Proxy::start_in("streamable-http"));
    let policies = r#"policies: ['permit(principal, action, resource in MCP::"one");', 'permit(principal, action, resource == Tool::"two_uuid");', 'forbid(principal, action, resource == Tool::"one_uuid");']"#;
    let auth = format!("incomingAuth: {{type: anonymous, authz: {{type: cedar, {policies}}}}}");
    let backends = [("one", one.address.as_str()), ("two", two.address.as_str())];
    let plain = config(&backends, AGGREGATION).replace("incomingAuth: {type: anonymous}", &auth);
    let listed = Virtual::start_with(&plain).tools();
    assert!(listed.contains(&"one_calculate".to_owned()) && listed.contains(&"two_uuid".to_owned()), "{listed:?}");
    assert!(!listed.contains(&"one_uuid".to_owned()) && !listed.contains(&"two_calculate".to_owned()), "{listed:?}");
    let served = Virtual::start_with(&format!("{plain}optimizer: {{maxToolsToReturn: 50}}\n"));
    let mut all = found(&served, "one two");
    all.sort();
    assert_eq!(all, listed, "every tool has the name of its backend");
    let call = |name: &str| {
        let arguments = json!({ "tool_name": name, "parameters": { "expression": "1+1" } });
        served.post(None, &request(1, "tools/call", &json!({ "name": "call_tool", "arguments": arguments }))).status
    };
    assert_eq!((call("one_calculate"), call("two_uuid")), (200, 200));
    assert_eq!((call("two_calculate"), call("one_uuid"), call("no_tool")), (403, 403, 403));
}

#[test]
fn runs_of_composite_tools_and_their_steps_are_recorded_and_counted() {
    let one = Proxy::start_in("streamable-http");
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let audit = format!("audit: {{enabled: true, component: everything, logFile: {}}}\n", log.display());
    let served =
        Virtual::start_with(&config(&[("one", &one.address)], &format!("{AGGREGATION}{METRICS}{COMPOSITE}{audit}")));
    let called = served.post(None, &request(1, "tools/call", &json!({ "name": "twice", "arguments": {} }))).body;
    assert_eq!(called["result"]["structuredContent"]["result"], 21, "{called}");
    let completed = events(&log, "vmcp_workflow_completed", 1).remove(0);
    let run = completed["target"]["workflow_id"].as_str().unwrap().to_owned();
    assert_eq!(completed["target"]["workflow_name"], "twice");
    assert_eq!((&completed["component"], &completed["outcome"]), (&json!("everything"), &json!("success")));
    assert!(completed["subjects"]["user"].is_string() && completed["target"]["type"] == "workflow");
    for (kind, step, tool) in [
        ("vmcp_workflow_started", Value::Null, Value::Null),
        ("vmcp_workflow_step_started", json!("a"), json!("one_calculate")),
        ("vmcp_workflow_step_completed", json!("a"), json!("one_calculate")),
        ("vmcp_workflow_step_skipped", json!("b"), json!("one_uuid")),
    ] {
        let target = events(&log, kind, 1).remove(0)["target"].clone();
        assert_eq!(
            (&target["workflow_id"], &target["step_id"], &target["tool_name"]),
            (&json!(run), &step, &tool),
            "{kind}"
        );
    }
    assert!(metric(&served, "toolhive_vmcp_workflow_executions_total{workflow_name=\"twice\"}") >= 1.0);
    assert!(metric(&served, "toolhive_vmcp_backends_discovered ") >= 1.0);
    let page = served.get("/metrics").text;
    let requests = page.lines().find(|line| line.starts_with("toolhive_vmcp_backend_requests_total{"));
    let requests = requests.unwrap_or_else(|| panic!("{page}"));
    for label in
        [r#"target_workload_name="one""#, r#"action="call_tool""#, r#"target_transport_type="streamable-http""#]
    {
        assert!(requests.contains(label), "{requests}");
    }
    assert!(!page.contains("toolhive_vmcp_optimizer"), "there is no optimizer");
}
