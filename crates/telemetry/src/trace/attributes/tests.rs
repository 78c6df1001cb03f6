use std::collections::BTreeMap;

use super::*;

fn call() -> SpanFacts {
    SpanFacts {
        method: "POST".to_owned(),
        scheme: "http",
        host: "h:1".to_owned(),
        path: "/mcp".to_owned(),
        query: Some("token=xyzzy&a&b=".to_owned()),
        body_size: 10,
        http_version: "1.1",
        transport: "stdio".to_owned(),
        server: "srv".to_owned(),
        mcp: Some(McpFacts {
            method: "tools/call".to_owned(),
            id: "7".to_owned(),
            resource: "echo".to_owned(),
            arguments: "a=1".to_owned(),
            client_name: "c".to_owned(),
        }),
        environment: vec![("REGION".to_owned(), "eu".to_owned())],
        ..SpanFacts::default()
    }
}

fn map(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|one| (one.key.to_string(), one.value.to_string())).collect()
}

#[test]
fn spans_are_named_after_what_is_done() {
    let mut facts = call();
    assert_eq!(facts.name(), "tools/call echo");
    facts.mcp = Some(McpFacts { method: "ping".to_owned(), ..McpFacts::default() });
    assert_eq!(facts.name(), "ping");
    facts.mcp = None;
    assert_eq!(facts.name(), "POST /mcp");
    facts.path = "/sse".to_owned();
    assert_eq!(facts.name(), "sse.connection_established");
}

#[test]
fn attributes_have_the_names_of_opentelemetry_and_on_request_those_of_before() {
    let modern = map(call().attributes(false));
    for (name, value) in [
        ("http.request.method", "POST"),
        ("url.full", "http://h:1/mcp?token=REDACTED&REDACTED&b=REDACTED"),
        ("url.query", "token=REDACTED&REDACTED&b=REDACTED"),
        ("mcp.method.name", "tools/call"),
        ("jsonrpc.request.id", "7"),
        ("gen_ai.tool.name", "echo"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.call.arguments", "a=1"),
        ("network.transport", "pipe"),
        ("mcp.server.name", "srv"),
        ("environment.REGION", "eu"),
        ("http.request.body.size", "10"),
    ] {
        assert_eq!(modern.get(name).map(String::as_str), Some(value), "{name}");
    }
    for name in [
        "http.method",
        "mcp.tool.name",
        "mcp.resource.uri",
        "user_agent.original",
        "gen_ai.prompt.name",
        "network.protocol.name",
        "mcp.backend.protocol.version",
    ] {
        assert!(!modern.contains_key(name), "{name}");
    }
    let sse = SpanFacts { transport: "sse".to_owned(), ..call() };
    assert_eq!(map(sse.attributes(false))["mcp.backend.protocol.version"], "1.1");
    let both = map(call().attributes(true));
    for (name, value) in [
        ("http.method", "POST"),
        ("http.target", "/mcp?token=REDACTED&REDACTED&b=REDACTED"),
        ("mcp.tool.name", "echo"),
        ("mcp.tool.arguments", "a=1"),
        ("rpc.service", "mcp"),
        ("mcp.transport", "stdio"),
        ("http.request_content_length", "10"),
    ] {
        assert_eq!(both.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!both.values().any(|value| value.contains("xyzzy")), "{both:?}");
}

#[test]
fn a_response_fails_by_its_status_or_by_the_error_in_it() {
    let of = |status, error: Option<RpcError>| ResponseFacts { status, error, ..ResponseFacts::default() };
    assert_eq!(of(200, None).failure(), None);
    assert_eq!(of(404, None).failure().as_deref(), Some("HTTP 404"));
    let error = RpcError { code: Some(-32601), message: "no".to_owned() };
    assert_eq!(of(200, Some(error.clone())).failure().as_deref(), Some("JSON-RPC error -32601"));
    let attributes = map(of(503, Some(error)).attributes(true));
    for (name, value) in [("error.type", "503"), ("http.status_code", "503"), ("rpc.jsonrpc.error_code", "-32601")] {
        assert_eq!(attributes.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!map(of(404, None).attributes(false)).contains_key("error.type"));
}
