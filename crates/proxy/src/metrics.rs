//! What a proxy counts, under the names that the original's dashboards know.

mod limits;
mod rate_limits;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use skep_net::Body;

pub use self::limits::LimitCounters;
use self::limits::Shown;
pub(crate) use self::rate_limits::CheckLabels;
pub use self::rate_limits::RateLimitCounters;
use crate::exchange::{Exchange, Head};
use crate::observe::{Observation, Observer};

/// Bounds of the durations, in seconds.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// The longest label that a client can choose, in bytes.
const LABEL: usize = 128;
/// How many different calls have labels of their own. Clients choose the names: beyond this, all others are one.
const SERIES: usize = 2000;
/// The method of a call that is none of the protocol's, or one too many.
const UNKNOWN: &str = "unknown";
/// The HTTP methods that have labels of their own. Clients can make up any other.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
/// All other ones.
const OTHER: &str = "other";

/// One call.
#[derive(Clone, Debug)]
struct Record<'a> {
    /// The HTTP method.
    method: &'a str,
    /// The status of the answer.
    status: u16,
    /// The method of the message, if there was one.
    mcp_method: Option<&'a str>,
    /// What the message was about.
    resource: Option<&'a str>,
    /// The version of HTTP that it came by.
    version: http::Version,
}

/// What is open between a client and the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A request, and its answer to its end.
    Request,
    /// The stream of a session over SSE. It lasts as long as the session, so its time says nothing.
    Sse,
}

/// The metrics of one proxy.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    server: String,
    transport: String,
    requests: Family<Call, Counter>,
    duration: Family<Call, Histogram, fn() -> Histogram>,
    tool_calls: Family<ToolCall, Counter>,
    /// The same time, under the name that OpenTelemetry has for it.
    operations: Family<Labels, Histogram, fn() -> Histogram>,
    active: Family<Labels, Gauge>,
    series: AtomicUsize,
    limits: Shown,
    rate_limits: RateLimitCounters,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Call {
    method: &'static str,
    status_code: String,
    status: &'static str,
    mcp_method: String,
    mcp_resource_id: String,
    server: String,
    transport: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ToolCall {
    server: String,
    tool: String,
    status: &'static str,
}

/// Labels of which not every one has all.
type Labels = Vec<(&'static str, String)>;

/// A request in flight. Counts down when it is dropped.
#[derive(Debug)]
struct Active {
    gauge: Gauge,
    started: Instant,
    /// Where its duration is recorded, once its labels are known.
    times: Vec<Histogram>,
}

/// A call that is counted.
#[derive(Debug)]
struct Counted {
    metrics: Arc<Metrics>,
    kind: Kind,
    active: Active,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.gauge.dec();
        for time in &self.times {
            time.observe(self.started.elapsed().as_secs_f64());
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// All at zero.
    pub fn new(server: &str, transport: &str) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            server: server.to_owned(),
            transport: transport.to_owned(),
            requests: Family::default(),
            duration: Family::new_with_constructor(histogram),
            tool_calls: Family::default(),
            operations: Family::new_with_constructor(histogram),
            active: Family::default(),
            series: AtomicUsize::new(0),
            limits: Shown::default(),
            rate_limits: RateLimitCounters::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("toolhive_mcp_requests", "MCP requests", metrics.requests.clone());
        registry.register("toolhive_mcp_request_duration_seconds", "Time of MCP requests", metrics.duration.clone());
        registry.register("toolhive_mcp_tool_calls", "Calls of tools", metrics.tool_calls.clone());
        registry.register("mcp_server_operation_duration_seconds", "Time of MCP requests", metrics.operations.clone());
        registry.register("toolhive_mcp_active_connections", "Requests in flight", metrics.active.clone());
        registry.register_collector(Box::new(metrics.limits.clone()));
        metrics.rate_limits.register(registry);
        metrics
    }

    /// Shows what the limits of the proxy refused as well.
    pub fn add_limits(&self, limits: LimitCounters) {
        // A proxy has its limits once.
        let _added = self.limits.0.set(limits);
    }

    /// What rate limits count.
    pub fn rate_limits(&self) -> &RateLimitCounters {
        &self.rate_limits
    }

    /// Counts what begins.
    fn open(&self, kind: Kind) -> Active {
        let mut place: Labels = vec![("server", self.server.clone()), ("transport", self.transport.clone())];
        if kind == Kind::Sse {
            place.push(("connection_type", "sse".to_owned()));
        }
        let gauge = self.active.get_or_create(&place).clone();
        gauge.inc();
        Active { gauge, started: Instant::now(), times: Vec::new() }
    }

    /// Counts a call whose answer has begun. If it is a request, its duration is recorded when `active` is dropped.
    fn count(&self, kind: Kind, record: &Record<'_>, active: &mut Active) {
        let status = if record.status >= 400 { "error" } else { "success" };
        let mut call = Call {
            method: METHODS.into_iter().find(|known| *known == record.method).unwrap_or(OTHER),
            status_code: record.status.to_string(),
            status,
            mcp_method: match kind {
                Kind::Sse => "sse_connection".to_owned(),
                Kind::Request => record.mcp_method.map_or_else(|| UNKNOWN.to_owned(), cut),
            },
            mcp_resource_id: record.resource.map(cut).unwrap_or_default(),
            server: self.server.clone(),
            transport: self.transport.clone(),
        };
        if self.requests.get(&call).is_none() && self.series.fetch_add(1, Ordering::Relaxed) >= SERIES {
            call.mcp_resource_id.clear();
            UNKNOWN.clone_into(&mut call.mcp_method);
        }
        self.requests.get_or_create(&call).inc();
        if kind == Kind::Request {
            active.times.push(self.duration.get_or_create(&call).clone());
            if call.mcp_method != UNKNOWN {
                active.times.push(self.operations.get_or_create(&self.operation(&call, record)).clone());
            }
        }
        if call.mcp_method == "tools/call" && !call.mcp_resource_id.is_empty() {
            let tool = ToolCall { server: self.server.clone(), tool: call.mcp_resource_id, status };
            self.tool_calls.get_or_create(&tool).inc();
        }
    }

    /// The labels that OpenTelemetry gives to a call.
    fn operation(&self, call: &Call, record: &Record<'_>) -> Labels {
        let is_stdio = self.transport == "stdio";
        let mut labels: Labels = vec![
            ("mcp_method_name", call.mcp_method.clone()),
            ("jsonrpc_protocol_version", "2.0".to_owned()),
            ("network_transport", if is_stdio { "pipe" } else { "tcp" }.to_owned()),
        ];
        if !is_stdio {
            labels.push(("network_protocol_name", "http".to_owned()));
        }
        let version = match record.version {
            http::Version::HTTP_2 => "2",
            http::Version::HTTP_10 => "1.0",
            _ => "1.1",
        };
        labels.push(("network_protocol_version", version.to_owned()));
        if record.status >= 500 {
            labels.push(("error_type", call.status_code.clone()));
        }
        if call.mcp_method == "tools/call" {
            labels.push(("gen_ai_operation_name", "execute_tool".to_owned()));
        }
        let named = match call.mcp_method.as_str() {
            "tools/call" => Some("gen_ai_tool_name"),
            "prompts/get" => Some("gen_ai_prompt_name"),
            _ => None,
        };
        labels.extend(
            named.filter(|_| !call.mcp_resource_id.is_empty()).map(|name| (name, call.mcp_resource_id.clone())),
        );
        labels
    }

    /// The page.
    pub fn page(&self) -> String {
        let mut page = String::new();
        // Writing into a text cannot fail.
        let _written = encode(&mut page, &self.registry);
        page
    }
}

impl Observer for Metrics {
    fn begin(self: Arc<Self>, head: &mut Head) -> Box<dyn Observation> {
        let kind = if head.uri.path().ends_with("/sse") { Kind::Sse } else { Kind::Request };
        Box::new(Counted { kind, active: self.open(kind), metrics: self })
    }
}

impl Observation for Counted {
    fn answered(&mut self, exchange: &Exchange, answer: &http::Response<Body>) {
        let resource = exchange.resource();
        let record = Record {
            method: exchange.head.method.as_str(),
            status: answer.status().as_u16(),
            mcp_method: exchange.mcp_method(),
            resource: resource.as_deref(),
            version: exchange.head.version,
        };
        self.metrics.count(self.kind, &record, &mut self.active);
    }
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

/// A label of a bounded length: clients choose it.
fn cut(text: &str) -> String {
    if text.len() <= LABEL {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LABEL - 3);
    format!("{}...", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
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
        assert!(label.len() <= LABEL && label.ends_with("..."), "{label}");
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
            let record =
                Record { method, status: 405, mcp_method: None, resource: None, version: http::Version::HTTP_11 };
            metrics.count(Kind::Request, &record, &mut metrics.open(Kind::Request));
        }
        let rest =
            r#"status_code="405",status="error",mcp_method="unknown",mcp_resource_id="",server="s",transport="stdio""#;
        for (method, count) in [("GET", 1), ("PATCH", 1), ("other", 4)] {
            assert_has(&metrics, &format!("toolhive_mcp_requests_total{{method=\"{method}\",{rest}}} {count}"));
        }
        assert!(made_up.iter().all(|method| !metrics.page().contains(&format!("\"{method}\""))), "{}", metrics.page());
    }
}
