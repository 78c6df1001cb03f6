use skep_telemetry::audit::{AuditLog, Output};
use skep_telemetry::otlp::{Collector, Endpoint, ResourceFacts, Traces};

use super::*;

fn record<'a>(mcp_method: &'a str, resource: &'a str) -> Record<'a> {
    let version = http::Version::HTTP_11;
    Record { method: "POST", status: 200, mcp_method: Some(mcp_method), resource: Some(resource), version }
}

fn call(metrics: &Metrics, mcp_method: &str, resource: &str) {
    metrics.count(Kind::Request, &record(mcp_method, resource), &mut metrics.open(Kind::Request));
}

#[track_caller]
fn assert_has(metrics: &Metrics, line: &str) {
    let page = metrics.page();
    assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
}

#[test]
fn calls_are_counted_under_the_names_that_dashboards_know() {
    let metrics = Metrics::new("s", "stdio");
    let mut active = metrics.open(Kind::Request);
    assert_has(&metrics, r#"toolhive_mcp_active_connections{server="s",transport="stdio"} 1"#);
    metrics.count(Kind::Request, &record("tools/call", "echo"), &mut active);
    let labels = r#"method="POST",status_code="200",status="success",mcp_method="tools/call",mcp_resource_id="echo",server="s",transport="stdio""#;
    assert_has(&metrics, &format!("toolhive_mcp_requests_total{{{labels}}} 1"));
    assert_has(&metrics, r#"toolhive_mcp_tool_calls_total{server="s",tool="echo",status="success"} 1"#);
    // The answer has begun, and has not ended.
    assert_has(&metrics, &format!("toolhive_mcp_request_duration_seconds_count{{{labels}}} 0"));
    drop(active);
    assert_has(&metrics, &format!("toolhive_mcp_request_duration_seconds_count{{{labels}}} 1"));
    assert_has(&metrics, r#"toolhive_mcp_active_connections{server="s",transport="stdio"} 0"#);
}

#[test]
fn the_time_of_a_call_has_the_name_that_opentelemetry_gives_it_too() {
    for (transport, record, labels) in [
        (
            "stdio",
            record("tools/call", "echo"),
            r#"network_transport="pipe",network_protocol_version="1.1",gen_ai_operation_name="execute_tool",gen_ai_tool_name="echo""#,
        ),
        (
            "streamable-http",
            Record { status: 502, version: http::Version::HTTP_2, ..record("prompts/get", "greet") },
            r#"network_transport="tcp",network_protocol_name="http",network_protocol_version="2",error_type="502",gen_ai_prompt_name="greet""#,
        ),
        (
            "sse",
            record("tools/list", ""),
            r#"network_transport="tcp",network_protocol_name="http",network_protocol_version="1.1""#,
        ),
    ] {
        let metrics = Metrics::new("s", transport);
        metrics.count(Kind::Request, &record, &mut metrics.open(Kind::Request));
        let first = format!(r#"mcp_method_name="{}",jsonrpc_protocol_version="2.0""#, record.mcp_method.unwrap());
        assert_has(&metrics, &format!("mcp_server_operation_duration_seconds_count{{{first},{labels}}} 1"));
    }
    let metrics = Metrics::new("s", "sse");
    let unknown = Record { mcp_method: None, ..record("", "") };
    metrics.count(Kind::Request, &unknown, &mut metrics.open(Kind::Request));
    assert!(!metrics.page().contains("operation_duration_seconds_count"), "{}", metrics.page());
}

#[test]
fn a_stream_over_sse_is_counted_apart_and_has_no_time() {
    let metrics = Metrics::new("s", "sse");
    let mut active = metrics.open(Kind::Sse);
    let record =
        Record { method: "GET", status: 200, mcp_method: None, resource: None, version: http::Version::HTTP_11 };
    metrics.count(Kind::Sse, &record, &mut active);
    let place = r#"toolhive_mcp_active_connections{server="s",transport="sse",connection_type="sse"}"#;
    assert_has(&metrics, &format!("{place} 1"));
    let labels = r#"method="GET",status_code="200",status="success",mcp_method="sse_connection",mcp_resource_id="",server="s",transport="sse""#;
    assert_has(&metrics, &format!("toolhive_mcp_requests_total{{{labels}}} 1"));
    drop(active);
    assert_has(&metrics, &format!("{place} 0"));
    assert!(!metrics.page().contains("duration_seconds_count{"));
}

#[test]
fn clients_cannot_fill_the_memory_with_names() {
    let metrics = Metrics::new("s", "stdio");
    call(&metrics, "tools/call", &"ü".repeat(100));
    let page = metrics.page();
    let label = page.split("mcp_resource_id=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(label.len() <= labels::LABEL && label.ends_with("..."), "{label}");
    for index in 0..SERIES + 100 {
        call(&metrics, "tools/call", &format!("tool-{index}"));
        call(&metrics, &format!("method-{index}"), "");
    }
    let lines = metrics.page().lines().filter(|line| line.starts_with("toolhive_mcp_requests_total")).count();
    assert!(lines <= SERIES + 1, "{lines}");
    let tools = metrics.page().lines().filter(|line| line.starts_with("toolhive_mcp_tool_calls_total")).count();
    assert!(tools <= SERIES + 1, "{tools}");
}

#[test]
fn http_methods_that_clients_make_up_are_one() {
    let metrics = Metrics::new("s", "stdio");
    let made_up = ["AAAA1", "AAAA2", "get", "PROPFIND"];
    for method in ["GET", "PATCH"].into_iter().chain(made_up) {
        let record = Record { method, status: 405, mcp_method: None, resource: None, version: http::Version::HTTP_11 };
        metrics.count(Kind::Request, &record, &mut metrics.open(Kind::Request));
    }
    let rest =
        r#"status_code="405",status="error",mcp_method="unknown",mcp_resource_id="",server="s",transport="stdio""#;
    for (method, count) in [("GET", 1), ("PATCH", 1), ("other", 4)] {
        assert_has(&metrics, &format!("toolhive_mcp_requests_total{{method=\"{method}\",{rest}}} {count}"));
    }
    assert!(made_up.iter().all(|method| !metrics.page().contains(&format!("\"{method}\""))), "{}", metrics.page());
}

/// Every name in the dashboards is one that a proxy exposes, so that a renamed metric does not leave an empty panel behind.
#[tokio::test]
async fn dashboards_show_metrics_that_exist() {
    let metrics = Metrics::new("s", "stdio").with_optimizer();
    call(&metrics, "tools/call", "echo");
    let check = CheckLabels {
        namespace: "ns".to_owned(),
        server: "s".to_owned(),
        decision: "allowed",
        scope: "none",
        operation_type: "tool",
    };
    metrics.rate_limits().decided(&check, std::time::Duration::ZERO);
    metrics.rate_limits().failed("ns", "s", "timeout", true);
    let (endpoint, none) = (Endpoint::parse("collector:4318", true).unwrap(), std::collections::BTreeMap::new());
    let collector = Collector::new(
        endpoint,
        &none,
        &none,
        &ResourceFacts::default(),
        skep_net::Client::new(skep_net::client::Options::default()),
    );
    let (traces, _task) = Traces::new(&collector, 1.0, std::time::Duration::from_secs(1)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let audit_log = AuditLog::open(Output::File(directory.path().join("audit.log")), "test").unwrap();
    metrics.add_limits(LimitCounters::new(skep_net::Budget::default(), Some(audit_log), Some(traces)));
    let page = metrics.page();
    let dashboards = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/grafana");
    let mut names = std::collections::BTreeSet::new();
    for file in std::fs::read_dir(dashboards).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = text.split(|letter| !is_of_name(letter)).map(str::to_owned);
        names
            .extend(words.filter(|word| ["toolhive_", "skep_", "mcp_server_"].iter().any(|own| word.starts_with(own))));
    }
    assert!(names.len() > 10 && names.contains("toolhive_rate_limit_fail_open_total"), "{names:?}");
    for name in names {
        assert!(page.lines().any(|line| line.split(['{', ' ']).next() == Some(&name)), "{name} is not in\n{page}");
    }
}
