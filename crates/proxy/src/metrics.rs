//! What a proxy counts, under the names that the original's dashboards know.

mod labels;
mod limits;
mod optimizer;
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
use skep_telemetry::KeyValue;
use skep_telemetry::otlp::{ExportedMetrics, Measurement};

use self::labels::{NamedLabels, attributes, cut, underscored};
pub use self::limits::LimitCounters;
use self::limits::Shown;
pub(crate) use self::optimizer::FoundTools;
pub use self::optimizer::OptimizerCounters;
pub use self::rate_limits::RateLimitCounters;
pub(crate) use self::rate_limits::{CheckLabels, RATE_LIMIT_SECONDS};
use crate::exchange::{Exchange, Head};
use crate::observe::{Observation, Observer};

/// Bounds of the durations, in seconds.
pub(crate) const SECONDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
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
    operations: Family<NamedLabels, Histogram, fn() -> Histogram>,
    active: Family<Labels, Gauge>,
    series: AtomicUsize,
    limits: Shown,
    rate_limits: RateLimitCounters,
    optimizer: OptimizerCounters,
    /// Where the same is counted for a collector.
    exported: Option<Arc<ExportedMetrics>>,
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
    exported: Option<ActiveExport>,
}

/// The same for a collector.
#[derive(Debug)]
struct ActiveExport {
    metrics: Arc<ExportedMetrics>,
    place: Vec<KeyValue>,
    call: Vec<KeyValue>,
    operation: Vec<KeyValue>,
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
        if let Some(exported) = &self.exported {
            exported.end(self.started.elapsed().as_secs_f64());
        }
    }
}

// === impl ActiveExport ===

impl ActiveExport {
    /// Counts a call whose answer has begun.
    fn count(&mut self, call: &Call, kind: Kind) {
        let all = call.attributes();
        self.metrics.record(Measurement::Request, &all);
        if call.mcp_method == "tools/call" && !call.mcp_resource_id.is_empty() {
            let tool = [
                ("server", call.server.clone()),
                ("tool", call.mcp_resource_id.clone()),
                ("status", call.status.to_owned()),
            ];
            self.metrics.record(Measurement::ToolCall, &attributes(&tool));
        }
        if kind == Kind::Request {
            self.call = all;
        }
    }

    fn end(&self, seconds: f64) {
        self.metrics.record(Measurement::Active(-1), &self.place);
        for (measurement, attributes) in
            [(Measurement::Duration(seconds), &self.call), (Measurement::Operation(seconds), &self.operation)]
        {
            if !attributes.is_empty() {
                self.metrics.record(measurement, attributes);
            }
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
            optimizer: OptimizerCounters::default(),
            exported: None,
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

    /// Counts the same for a collector.
    #[must_use]
    pub fn exported_to(mut self, exported: Option<Arc<ExportedMetrics>>) -> Self {
        self.rate_limits.export_to(exported.clone());
        self.exported = exported;
        self
    }

    /// Shows what searches for tools come to.
    #[must_use]
    pub fn with_optimizer(mut self) -> Self {
        self.optimizer.register(&mut self.registry);
        self
    }

    /// Shows what is behind the proxy counts as well.
    #[must_use]
    pub fn with(mut self, register: impl FnOnce(&mut Registry)) -> Self {
        register(&mut self.registry);
        self
    }

    /// What searches for tools count.
    pub fn optimizer(&self) -> &OptimizerCounters {
        &self.optimizer
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
        let exported = self.exported.clone().map(|metrics| {
            let place = attributes(&place);
            metrics.record(Measurement::Active(1), &place);
            ActiveExport { metrics, place, call: Vec::new(), operation: Vec::new() }
        });
        Active { gauge, started: Instant::now(), times: Vec::new(), exported }
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
                let operation = self.operation(&call, record);
                active.times.push(self.operations.get_or_create(&underscored(&operation)).clone());
                if let Some(exported) = &mut active.exported {
                    exported.operation = attributes(&operation);
                }
            }
        }
        if let Some(exported) = &mut active.exported {
            exported.count(&call, kind);
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
            ("mcp.method.name", call.mcp_method.clone()),
            ("jsonrpc.protocol.version", "2.0".to_owned()),
            ("network.transport", if is_stdio { "pipe" } else { "tcp" }.to_owned()),
        ];
        if !is_stdio {
            labels.push(("network.protocol.name", "http".to_owned()));
        }
        let version = match record.version {
            http::Version::HTTP_2 => "2",
            http::Version::HTTP_10 => "1.0",
            _ => "1.1",
        };
        labels.push(("network.protocol.version", version.to_owned()));
        if record.status >= 500 {
            labels.push(("error.type", call.status_code.clone()));
        }
        if call.mcp_method == "tools/call" {
            labels.push(("gen_ai.operation.name", "execute_tool".to_owned()));
        }
        let named = match call.mcp_method.as_str() {
            "tools/call" => Some("gen_ai.tool.name"),
            "prompts/get" => Some("gen_ai.prompt.name"),
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
        let kind = if head.path.is_stream { Kind::Sse } else { Kind::Request };
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

// === impl Call ===

impl Call {
    fn attributes(&self) -> Vec<KeyValue> {
        attributes(&[
            ("method", self.method.to_owned()),
            ("status_code", self.status_code.clone()),
            ("status", self.status.to_owned()),
            ("mcp_method", self.mcp_method.clone()),
            ("mcp_resource_id", self.mcp_resource_id.clone()),
            ("server", self.server.clone()),
            ("transport", self.transport.clone()),
        ])
    }
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

#[cfg(test)]
mod tests;
