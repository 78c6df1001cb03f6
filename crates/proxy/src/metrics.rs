//! What a proxy counts, under the names that the original's dashboards know.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Bounds of the durations, in seconds.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// The longest label that a caller can choose, in bytes.
const LABEL: usize = 128;
/// How many different calls are told apart. Callers choose the names: beyond this, all others are one.
const SERIES: usize = 2000;

/// One call, when it is over.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// The status of the answer.
    pub status: u16,
    /// The method of the message, if there was one.
    pub mcp_method: Option<&'a str>,
    /// What the message was about.
    pub resource: Option<&'a str>,
    /// How long it took.
    pub duration: Duration,
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
    active: Family<Place, Gauge>,
    series: AtomicUsize,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Call {
    method: String,
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

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Place {
    server: String,
    transport: String,
}

/// A call under way. Counts down when it is dropped.
#[derive(Debug)]
pub(crate) struct Active(Gauge);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
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
            active: Family::default(),
            series: AtomicUsize::new(0),
        };
        let registry = &mut metrics.registry;
        registry.register("toolhive_mcp_requests", "MCP requests", metrics.requests.clone());
        registry.register("toolhive_mcp_request_duration_seconds", "Time of MCP requests", metrics.duration.clone());
        registry.register("toolhive_mcp_tool_calls", "Calls of tools", metrics.tool_calls.clone());
        registry.register("toolhive_mcp_active_connections", "Requests under way", metrics.active.clone());
        metrics
    }

    /// Counts a call that begins.
    pub(crate) fn begin(&self) -> Active {
        let place = Place { server: self.server.clone(), transport: self.transport.clone() };
        let gauge = self.active.get_or_create(&place).clone();
        gauge.inc();
        Active(gauge)
    }

    /// Counts a call that is over.
    pub fn finish(&self, record: &Record<'_>) {
        let status = if record.status >= 400 { "error" } else { "success" };
        let is_room = self.series.load(Ordering::Relaxed) < SERIES;
        let resource = record.resource.filter(|_| is_room).map(cut).unwrap_or_default();
        let call = Call {
            method: record.method.to_owned(),
            status_code: record.status.to_string(),
            status,
            mcp_method: record.mcp_method.map_or_else(|| "unknown".to_owned(), cut),
            mcp_resource_id: resource.clone(),
            server: self.server.clone(),
            transport: self.transport.clone(),
        };
        if self.requests.get(&call).is_none() {
            self.series.fetch_add(1, Ordering::Relaxed);
        }
        self.requests.get_or_create(&call).inc();
        self.duration.get_or_create(&call).observe(record.duration.as_secs_f64());
        if record.mcp_method == Some("tools/call") {
            let tool = ToolCall { server: self.server.clone(), tool: resource, status };
            self.tool_calls.get_or_create(&tool).inc();
        }
    }

    /// The page.
    pub fn page(&self) -> String {
        let mut page = String::new();
        // Writing into a text cannot fail.
        let _written = encode(&mut page, &self.registry);
        page
    }
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

/// A label of a bounded length: callers choose it.
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

    fn record(resource: &str) -> Record<'_> {
        let duration = Duration::from_millis(3);
        Record { method: "POST", status: 200, mcp_method: Some("tools/call"), resource: Some(resource), duration }
    }

    #[test]
    fn calls_are_counted_under_the_names_that_dashboards_know() {
        let metrics = Metrics::new("s", "stdio");
        let active = metrics.begin();
        metrics.finish(&record("echo"));
        let page = metrics.page();
        let labels = r#"method="POST",status_code="200",status="success",mcp_method="tools/call",mcp_resource_id="echo",server="s",transport="stdio""#;
        for line in [
            format!("toolhive_mcp_requests_total{{{labels}}} 1"),
            format!("toolhive_mcp_request_duration_seconds_count{{{labels}}} 1"),
            r#"toolhive_mcp_tool_calls_total{server="s",tool="echo",status="success"} 1"#.to_owned(),
            r#"toolhive_mcp_active_connections{server="s",transport="stdio"} 1"#.to_owned(),
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
        drop(active);
        assert!(metrics.page().contains(r#"toolhive_mcp_active_connections{server="s",transport="stdio"} 0"#));
    }

    #[test]
    fn callers_cannot_fill_the_memory_with_names() {
        let metrics = Metrics::new("s", "stdio");
        metrics.finish(&record(&"ü".repeat(100)));
        let page = metrics.page();
        let label = page.split("mcp_resource_id=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(label.len() <= LABEL && label.ends_with("..."), "{label}");
        for index in 0..SERIES + 100 {
            metrics.finish(&record(&format!("tool-{index}")));
        }
        let lines = metrics.page().lines().filter(|line| line.starts_with("toolhive_mcp_requests_total")).count();
        assert!(lines <= SERIES + 1, "{lines}");
    }
}
