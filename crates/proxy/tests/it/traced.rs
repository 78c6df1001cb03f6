//! Traces and metrics at a real collector: one that decodes the official messages.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected};
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, NumberDataPoint, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::{Value, json};
use skep_net::drain::Grace;
use skep_net::serve::Options;
use skep_net::tls::{self, Identity};
use skep_net::{Body, Listener, serve};
use skep_proxy::run::{Place, Ports, Running, start};
use skep_proxy::settings::{Overrides, Settings};
use skep_runconfig::RunConfig;
use skep_testkit::Seen;
use skep_testkit::pki::Authority;

use crate::client::{BOTH, PATIENCE, TestClient, request};
use crate::web::{Got, backend, drain};
use crate::webhooks::{Hook, patch};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const IN_HEADERS: &str = "00-11111111111111111111111111111111-2222222222222222-01";
const UNSAMPLED: &str = "00-33333333333333333333333333333333-4444444444444444-00";

type Requests = Arc<Mutex<Vec<Got>>>;

/// A collector, a server, and a proxy between them and its clients.
struct Stage {
    running: Running,
    collected: Requests,
    served: Requests,
}

/// A server that answers, with an error for tools that fail.
fn answer(got: &Got) -> Response<Body> {
    let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let reply = match message["params"]["name"].as_str() {
        Some("fails") => {
            json!({ "jsonrpc": "2.0", "id": message["id"], "error": { "code": -32000, "message": "it broke" } })
        }
        Some("away") => {
            return Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(Body::empty()).unwrap();
        }
        _ => json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} }),
    };
    let body = format!("event: message\ndata: {reply}\n\n");
    Response::builder().header("content-type", "text/event-stream").body(Body::full(body)).unwrap()
}

async fn proxy(collector: SocketAddr, served: &Requests, more: Value, variables: &[(&str, &str)]) -> Result<Running> {
    proxy_with(collector, served, more, variables, json!({})).await
}

async fn proxy_with(
    collector: SocketAddr,
    served: &Requests,
    more: Value,
    variables: &[(&str, &str)],
    members: Value,
) -> Result<Running> {
    skep_testkit::install_crypto_provider();
    let upstream = backend("127.0.0.1:0".parse()?, Arc::new(answer), served.clone()).await?;
    let mut telemetry = json!({
        "endpoint": format!("{collector}/base"), "insecure": true, "serviceName": "svc", "headers": { "x-tenant": "t" },
        "tracingEnabled": false, "metricsEnabled": false, "useLegacyAttributes": true, "samplingRate": "1.0",
        "customAttributes": { "team": "core" }, "environmentVariables": ["REGION"],
    });
    for (name, value) in more.as_object().unwrap() {
        telemetry[name] = value.clone();
    }
    let mut config = json!({
        "name": "srv", "transport": "streamable-http", "host": "127.0.0.1", "port": 0,
        "remote_url": format!("http://{upstream}"), "telemetry_config": telemetry,
    });
    for (name, value) in members.as_object().unwrap() {
        config[name] = value.clone();
    }
    let common = [
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=ns"),
        ("TOOLHIVE_OTEL_HEADER_X_API_KEY", "hush"),
        ("REGION", "eu"),
    ];
    let variables: BTreeMap<String, String> =
        common.iter().chain(variables).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let config = RunConfig::from_slice(config.to_string().as_bytes())?;
    let settings = Settings::new(config, &Overrides::default(), &variables)?;
    let grace = Grace { linger: Duration::ZERO, finish: Duration::ZERO };
    Ok(start(&settings, &variables, Place::Machine(Ports::default()), grace).await?)
}

impl Stage {
    async fn new(more: Value) -> Result<Self> {
        Self::with(more, json!({})).await
    }

    /// With further members of the RunConfig.
    async fn with(telemetry: Value, config: Value) -> Result<Self> {
        let (collected, served) = (Requests::default(), Requests::default());
        let take = |_: &Got| Response::new(Body::empty());
        let collector = backend("127.0.0.1:0".parse()?, Arc::new(take), collected.clone()).await?;
        let running = proxy_with(collector, &served, telemetry, &[], config).await?;
        Ok(Self { running, collected, served })
    }

    fn client(&self) -> TestClient {
        TestClient::new(self.running.address()).taking(BOTH)
    }

    fn collected(&self, path: &str) -> Vec<Got> {
        at(&self.collected, path)
    }

    /// Waits for so many spans.
    async fn until_spans(&self, count: usize) -> Result<Vec<Span>> {
        skep_testkit::eventually("spans", PATIENCE, || async {
            let spans = spans(&self.collected);
            Ok(if spans.len() >= count { Seen::Yes(spans) } else { Seen::NotYet(format!("{} spans", spans.len())) })
        })
        .await
    }

    fn metric(&self, name: &str) -> Option<Data> {
        let last = self.collected("/base/v1/metrics").pop()?;
        let request = ExportMetricsServiceRequest::decode(last.body).unwrap();
        let resources = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
        let mut metrics = resources.flat_map(|scope| scope.metrics);
        metrics.find(|metric| metric.name == name)?.data
    }
}

fn at(collected: &Requests, path: &str) -> Vec<Got> {
    collected.lock().unwrap().iter().filter(|got| got.uri.path() == path).cloned().collect()
}

fn spans(collected: &Requests) -> Vec<Span> {
    let requests = at(collected, "/base/v1/traces");
    let requests = requests.iter().map(|got| ExportTraceServiceRequest::decode(got.body.clone()).unwrap());
    let resources = requests.flat_map(|request| request.resource_spans);
    resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
}

fn map(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &AnyValue| match value {
        AnyValue::StringValue(text) => text.clone(),
        AnyValue::IntValue(number) => number.to_string(),
        AnyValue::DoubleValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let value = |one: &KeyValue| text(one.value.as_ref().unwrap().value.as_ref().unwrap());
    attributes.iter().map(|one| (one.key.clone(), value(one))).collect()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _written = write!(text, "{byte:02x}");
        text
    })
}

fn call(tool: &str, meta: Value) -> String {
    let arguments = json!({ "city": "Bern", "api_key": "hush-hush" });
    request(json!("id-1"), "tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta })).to_string()
}

#[tokio::test]
async fn item_6_a_request_is_a_span_of_the_clients_trace_and_the_server_hears_of_it() -> Result<()> {
    let stage = Stage::new(json!({ "tracingEnabled": true })).await?;
    let client =
        stage.client().with("traceparent", IN_HEADERS).with("baggage", "tenant=t").with("user-agent", "tests/1");
    let body = call("echo", json!({ "traceparent": PARENT, "tracestate": "vendor=1" }));
    let reply = client.whole(Method::POST, "/mcp?token=xyzzy", body).await?;
    assert_eq!(reply.status, StatusCode::OK);
    let [span] = &stage.until_spans(1).await?[..] else { panic!("one span") };
    assert_eq!((span.name.as_str(), span.kind), ("tools/call echo", 2));
    assert_eq!(hex(&span.trace_id), "0af7651916cd43dd8448eb211c80319c", "the message wins over the headers");
    assert_eq!(hex(&span.parent_span_id), "b7ad6b7169203331");
    let found = map(&span.attributes);
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("url.path", "/mcp"),
        ("url.query", "token=REDACTED"),
        ("user_agent.original", "tests/1"),
        ("mcp.method.name", "tools/call"),
        ("jsonrpc.request.id", "id-1"),
        ("gen_ai.tool.name", "echo"),
        ("mcp.tool.name", "echo"),
        ("mcp.server.name", "srv"),
        ("network.transport", "tcp"),
        ("client.address", "127.0.0.1"),
        ("environment.REGION", "eu"),
        ("http.method", "POST"),
        ("http.status_code", "200"),
    ] {
        assert_eq!(found.get(name).map(String::as_str), Some(value), "{name} in {found:?}");
    }
    assert!(found["gen_ai.tool.call.arguments"].contains("city=Bern"), "{found:?}");
    assert_eq!(found["http.response.body.size"], reply.body.len().to_string());
    assert!(!format!("{found:?}").contains("hush") && !format!("{found:?}").contains("xyzzy"), "{found:?}");
    assert!(span.end_time_unix_nano > span.start_time_unix_nano);
    let headers = stage.served.lock().unwrap()[0].headers.clone();
    let parent = format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id));
    assert_eq!(headers["traceparent"], parent, "the server's spans are below this one");
    assert_eq!((&headers["tracestate"], &headers["baggage"]), (&"vendor=1".parse()?, &"tenant=t".parse()?));
    let got = stage.collected("/base/v1/traces").remove(0);
    assert_eq!((&got.headers["x-tenant"], &got.headers["x-api-key"]), (&"t".parse()?, &"hush".parse()?));
    assert_eq!(got.headers["content-type"], "application/x-protobuf");
    let request = ExportTraceServiceRequest::decode(got.body)?;
    let resource = map(&request.resource_spans[0].resource.as_ref().context("a resource")?.attributes);
    for (name, value) in [("service.name", "svc"), ("service.namespace", "ns"), ("team", "core")] {
        assert_eq!(resource.get(name).map(String::as_str), Some(value), "{resource:?}");
    }
    let scope = request.resource_spans[0].scope_spans[0].scope.as_ref().context("a scope")?;
    assert_eq!(scope.name, "github.com/stacklok/toolhive/pkg/telemetry");
    stage.running.end().await;
    Ok(())
}

#[tokio::test]
async fn item_6_a_span_is_about_the_request_that_was_sent_and_says_what_its_rate_limit_decided() -> Result<()> {
    let rename = json!([{ "op": "replace", "path": "/mcp_request/params/name", "value": "safe" }]);
    let hook = Hook::new(vec![(200, patch(rename))]).await?;
    let limits = json!({ "tools": [{ "name": "echo", "shared": { "maxTokens": 1, "refillPeriod": "1h0m0s" } }] });
    let config = json!({ "mutating_webhooks": [hook.entry("fail")], "rate_limit_config": limits });
    let stage = Stage::with(json!({ "tracingEnabled": true }), config).await?;
    let client = stage.client();
    assert_eq!(client.post(call("echo", json!({}))).await?.status, StatusCode::OK);
    assert_eq!(client.post(call("echo", json!({}))).await?.status, StatusCode::TOO_MANY_REQUESTS);
    client.ask(json!(1), "ping", json!({})).await?;
    let spans = stage.until_spans(3).await?;
    let summary: Vec<_> = spans.iter().map(|span| (span.name.as_str(), map(&span.attributes))).collect();
    let decided = |index: usize, name: &str| summary[index].1.get(&format!("rate_limit.{name}")).map(String::as_str);
    assert_eq!(summary[0].0, "tools/call safe");
    assert_eq!(summary[0].1["gen_ai.tool.name"], "safe");
    assert_eq!((decided(0, "decision"), decided(0, "rejected_by")), (Some("allowed"), Some("none")));
    assert_eq!(decided(0, "fail_open"), Some("BoolValue(false)"));
    assert_eq!(summary[1].0, "tools/call echo");
    assert_eq!((decided(1, "decision"), decided(1, "rejected_by")), (Some("rejected"), Some("shared_tool")));
    assert_eq!(decided(2, "decision"), None, "no limit applies to it");
    stage.running.end().await;
    Ok(())
}

#[tokio::test]
async fn item_6_failures_are_in_spans_and_what_the_client_does_not_sample_is_not_sent() -> Result<()> {
    let stage = Stage::new(json!({ "tracingEnabled": true, "useLegacyAttributes": false })).await?;
    let client = stage.client();
    client.clone().with("traceparent", UNSAMPLED).post(call("echo", json!({}))).await?;
    let sent = stage.served.lock().unwrap()[0].headers["traceparent"].to_str()?.to_owned();
    assert!(sent.starts_with("00-33333333333333333333333333333333-") && sent.ends_with("-00"), "{sent}");
    client.post(call("fails", json!({}))).await?;
    client.post(call("away", json!({}))).await?;
    client.ask(json!(1), "ping", json!({})).await?;
    // The end of the proxy sends what was not sent.
    let collected = stage.collected.clone();
    stage.running.end().await;
    let spans = spans(&collected);
    let summary: Vec<_> = spans
        .iter()
        .map(|span| {
            let status = span.status.as_ref().map(|status| (status.code, status.message.clone())).unwrap_or_default();
            (span.name.as_str(), status.0, status.1)
        })
        .collect();
    assert_eq!(
        summary,
        [
            ("tools/call fails", 2, "JSON-RPC error -32000".to_owned()),
            ("tools/call away", 2, "HTTP 503".to_owned()),
            ("ping ping", 0, String::new()),
        ]
    );
    let found = map(&spans[1].attributes);
    assert_eq!(found["error.type"], "503");
    assert!(!found.contains_key("http.method") && !found.contains_key("mcp.tool.name"), "{found:?}");
    Ok(())
}

fn point<'a, T>(points: &'a [T], of: impl Fn(&T) -> &[KeyValue], wanted: &[(&str, &str)]) -> Option<&'a T> {
    points.iter().find(|point| {
        let found = map(of(point));
        wanted.iter().all(|(name, value)| found.get(*name).map(String::as_str) == Some(*value))
    })
}

fn sum(data: Option<Data>, wanted: &[(&str, &str)]) -> Option<i64> {
    let Some(Data::Sum(sum)) = data else { return None };
    let point: &NumberDataPoint = point(&sum.data_points, |point| &point.attributes, wanted)?;
    match point.value? {
        number_data_point::Value::AsInt(number) => Some(number),
        number_data_point::Value::AsDouble(_) => None,
    }
}

fn histogram(data: Option<Data>, wanted: &[(&str, &str)]) -> Option<HistogramDataPoint> {
    let Some(Data::Histogram(histogram)) = data else { return None };
    point(&histogram.data_points, |point: &HistogramDataPoint| &point.attributes, wanted).cloned()
}

#[tokio::test]
async fn item_6_metrics_go_to_the_collector_under_the_names_that_dashboards_know() -> Result<()> {
    let stage = Stage::new(json!({ "metricsEnabled": true })).await?;
    for _ in 0..2 {
        stage.client().post(call("echo", json!({}))).await?;
    }
    let labels = [
        ("method", "POST"),
        ("status_code", "200"),
        ("status", "success"),
        ("mcp_method", "tools/call"),
        ("mcp_resource_id", "echo"),
        ("server", "srv"),
        ("transport", "streamable-http"),
    ];
    skep_testkit::eventually("metrics", PATIENCE, || async {
        let requests = sum(stage.metric("toolhive_mcp_requests"), &labels);
        let active = sum(stage.metric("toolhive_mcp_active_connections"), &[("server", "srv")]);
        let is_there = requests == Some(2) && active == Some(0);
        Ok(if is_there { Seen::Yes(()) } else { Seen::NotYet(format!("{requests:?} {active:?}")) })
    })
    .await?;
    let tools = [("server", "srv"), ("tool", "echo"), ("status", "success")];
    assert_eq!(sum(stage.metric("toolhive_mcp_tool_calls"), &tools), Some(2));
    let duration = histogram(stage.metric("toolhive_mcp_request_duration"), &labels).context("durations")?;
    assert_eq!((duration.count, duration.explicit_bounds.len()), (2, 14));
    assert_eq!((duration.explicit_bounds.first(), duration.explicit_bounds.last()), (Some(&0.01), Some(&300.0)));
    let operation = [
        ("mcp.method.name", "tools/call"),
        ("jsonrpc.protocol.version", "2.0"),
        ("gen_ai.tool.name", "echo"),
        ("network.transport", "tcp"),
    ];
    assert_eq!(histogram(stage.metric("mcp.server.operation.duration"), &operation).context("operations")?.count, 2);
    assert!(stage.collected("/base/v1/traces").is_empty(), "traces were not asked for");
    assert!(!stage.served.lock().unwrap()[0].headers.contains_key("traceparent"));
    let page = stage.client().whole(Method::GET, "/metrics", "").await?;
    assert_eq!(page.status, StatusCode::NOT_FOUND, "Prometheus was not asked for");
    stage.running.end().await;
    Ok(())
}

#[tokio::test]
async fn metrics_of_rate_limits_and_of_the_audit_log_go_to_the_collector() -> Result<()> {
    let limits = json!({ "tools": [{ "name": "echo", "shared": { "maxTokens": 1, "refillPeriod": "1h0m0s" } }] });
    let config = json!({ "rate_limit_config": limits, "rate_limit_namespace": "ns", "audit_config": {} });
    let stage = Stage::with(json!({ "metricsEnabled": true }), config).await?;
    for _ in 0..2 {
        stage.client().post(call("echo", json!({}))).await?;
    }
    let server = [("namespace", "ns"), ("server", "srv")];
    let of = |decision, scope| {
        let [namespace, server] = server;
        [namespace, server, ("decision", decision), ("scope", scope), ("operation_type", "tool")]
    };
    skep_testkit::eventually("metrics", PATIENCE, || async {
        let decisions = || stage.metric("toolhive_rate_limit_decisions");
        let counts = [of("allowed", "none"), of("rejected", "shared_tool")].map(|wanted| sum(decisions(), &wanted));
        Ok(if counts == [Some(1), Some(1)] { Seen::Yes(()) } else { Seen::NotYet(format!("{counts:?}")) })
    })
    .await?;
    let latency = histogram(stage.metric("toolhive_rate_limit_check_latency"), &server).context("latency")?;
    assert_eq!((latency.count, latency.explicit_bounds.first()), (2, Some(&0.0001)));
    assert_eq!(sum(stage.metric("skep_audit_events_dropped"), &[]), Some(0));
    stage.running.end().await;
    Ok(())
}

#[tokio::test]
async fn item_6_a_collector_that_hangs_delays_no_call_and_the_end_only_a_little() -> Result<()> {
    // It takes connections, as the kernel does, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let served = Requests::default();
    let both = json!({ "tracingEnabled": true, "metricsEnabled": true, "enablePrometheusMetricsPath": true, "prometheusPort": 1 });
    let running = proxy(silent.local_addr()?, &served, both, &[]).await?;
    let client = TestClient::new(running.address()).taking(BOTH);
    let began = std::time::Instant::now();
    for _ in 0..200 {
        assert_eq!(client.post(call("echo", json!({}))).await?.status, StatusCode::OK);
    }
    assert!(began.elapsed() < Duration::from_secs(9), "no call waited for the collector: {:?}", began.elapsed());
    let page = client.whole(Method::GET, "/metrics", "").await?;
    assert!(page.text().contains("skep_spans_dropped_total 0"), "{}", page.text());
    let began = std::time::Instant::now();
    running.end().await;
    assert!(began.elapsed() < Duration::from_secs(8), "the end is bounded: {:?}", began.elapsed());
    Ok(())
}

/// A collector over TLS, with a certificate of this authority.
async fn secure_collector(authority: &Authority, collected: &Requests) -> Result<SocketAddr> {
    let issued = authority.issue("collector", None, &["127.0.0.1"])?;
    let identity = Identity::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes())?;
    let options = Options { tls: Some(tls::server(identity, None)?), ..Options::default() };
    let listener = Listener::bind("127.0.0.1:0".parse()?).await?;
    let (address, collected) = (listener.address(), collected.clone());
    let handler = move |request: Request<Incoming>, _peer| {
        let collected = collected.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
            let got = Got { method: parts.method, uri: parts.uri, headers: parts.headers, body };
            collected.lock().unwrap().push(got);
            Response::new(Body::empty())
        }
    };
    tokio::spawn(serve(listener, options, drain(), handler));
    Ok(address)
}

#[tokio::test]
async fn item_6_a_collector_over_tls_is_trusted_by_the_configured_authority_alone() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let (ours, another) = (Authority::generate()?, Authority::generate()?);
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("ca.crt");
    std::fs::write(&path, ours.certificate())?;
    for (authority, spans_sent) in [(&ours, 1), (&another, 0)] {
        let collected = Requests::default();
        let collector = secure_collector(authority, &collected).await?;
        let more = json!({ "tracingEnabled": true, "insecure": false, "caCertPath": path });
        let running = proxy(collector, &Requests::default(), more, &[]).await?;
        TestClient::new(running.address()).taking(BOTH).post(call("echo", json!({}))).await?;
        running.end().await;
        assert_eq!(spans(&collected).len(), spans_sent);
    }
    Ok(())
}
