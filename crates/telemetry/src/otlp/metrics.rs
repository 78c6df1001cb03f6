//! Metrics on their way to a collector.

use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider as _, UpDownCounter};
use opentelemetry_otlp::{ExporterBuildError, MetricExporter};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter as _;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Temporality};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::{Collector, FLUSH, SCOPE};

/// The instruments of a proxy. Clones measure the same.
#[derive(Clone, Debug)]
pub struct ExportedMetrics {
    requests: Counter<u64>,
    duration: Histogram<f64>,
    operation: Histogram<f64>,
    tool_calls: Counter<u64>,
    active: UpDownCounter<i64>,
    rate_limits: RateLimitInstruments,
    meter: Meter,
    flush: mpsc::Sender<oneshot::Sender<()>>,
    /// Kept for as long as there are instruments.
    _provider: SdkMeterProvider,
}

#[derive(Clone, Debug)]
struct RateLimitInstruments {
    decisions: Counter<u64>,
    errors: Counter<u64>,
    fail_open: Counter<u64>,
    latency: Histogram<f64>,
}

/// The bounds of histograms, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// Those of requests.
    pub requests: &'a [f64],
    /// Those of the checks of rate limits.
    pub rate_limits: &'a [f64],
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measurement {
    /// A request was answered.
    Request,
    /// How long a request took, in seconds.
    Duration(f64),
    /// The same, under the name that OpenTelemetry has for it.
    Operation(f64),
    /// A tool was called.
    ToolCall,
    /// A connection opened (1) or closed (-1).
    Active(i64),
    /// Rate limits let a call pass or refused it.
    RateLimitDecision,
    /// How long that took, in seconds.
    RateLimitCheck(f64),
    /// Redis did not count a call.
    RateLimitError,
    /// A call passed without being counted.
    RateLimitFailOpen,
}

/// Sends metrics, for as long as there are [`ExportedMetrics`].
#[derive(Debug)]
pub struct MetricTask {
    reader: SharedReader,
    exporter: MetricExporter,
    interval: Duration,
    flush: mpsc::Receiver<oneshot::Sender<()>>,
    is_failing: bool,
}

#[derive(Clone, Debug)]
struct SharedReader(Arc<ManualReader>);

// === impl ExportedMetrics ===

impl ExportedMetrics {
    /// Metrics that are sent at an interval.
    pub fn new(
        collector: &Collector,
        bounds: Bounds<'_>,
        interval: Duration,
    ) -> Result<(Self, MetricTask), ExporterBuildError> {
        let exporter = collector.metric_exporter()?;
        let reader = SharedReader(Arc::new(ManualReader::builder().build()));
        let provider =
            SdkMeterProvider::builder().with_resource(collector.resource.clone()).with_reader(reader.clone()).build();
        let meter = provider.meter(SCOPE);
        let seconds = |name: &'static str, about: &'static str| {
            let histogram = meter.f64_histogram(name).with_description(about).with_unit("s");
            histogram.with_boundaries(bounds.requests.to_vec()).build()
        };
        let rate_limits = RateLimitInstruments::new(&meter, bounds.rate_limits);
        let (flush, flushed) = mpsc::channel(1);
        let metrics = Self {
            requests: meter.u64_counter("toolhive_mcp_requests").with_description("MCP requests").build(),
            duration: seconds("toolhive_mcp_request_duration", "Time of MCP requests"),
            operation: seconds("mcp.server.operation.duration", "Time of MCP requests"),
            tool_calls: meter.u64_counter("toolhive_mcp_tool_calls").with_description("Calls of tools").build(),
            active: meter
                .i64_up_down_counter("toolhive_mcp_active_connections")
                .with_description("Requests in flight")
                .build(),
            rate_limits,
            meter,
            flush,
            _provider: provider,
        };
        Ok((metrics, MetricTask { reader, exporter, interval, flush: flushed, is_failing: false }))
    }

    /// Measures something.
    pub fn record(&self, measurement: Measurement, attributes: &[KeyValue]) {
        match measurement {
            Measurement::Request => self.requests.add(1, attributes),
            Measurement::Duration(seconds) => self.duration.record(seconds, attributes),
            Measurement::Operation(seconds) => self.operation.record(seconds, attributes),
            Measurement::ToolCall => self.tool_calls.add(1, attributes),
            Measurement::Active(change) => self.active.add(change, attributes),
            Measurement::RateLimitDecision => self.rate_limits.decisions.add(1, attributes),
            Measurement::RateLimitCheck(seconds) => self.rate_limits.latency.record(seconds, attributes),
            Measurement::RateLimitError => self.rate_limits.errors.add(1, attributes),
            Measurement::RateLimitFailOpen => self.rate_limits.fail_open.add(1, attributes),
        }
    }

    /// Reads a number that only grows whenever metrics are sent.
    pub fn observe(&self, name: &'static str, about: &'static str, read: impl Fn() -> u64 + Send + Sync + 'static) {
        let counter = self.meter.u64_observable_counter(name).with_description(about);
        // The meter keeps it.
        let _kept = counter.with_callback(move |observer| observer.observe(read(), &[])).build();
    }

    /// Sends what was measured, for a bounded time.
    pub async fn flush(&self) {
        let (sender, sent) = oneshot::channel();
        let flushed = async {
            if self.flush.send(sender).await.is_ok() {
                // A task that ended has nothing to send.
                let _ended = sent.await;
            }
        };
        if tokio::time::timeout(FLUSH, flushed).await.is_err() {
            tracing::warn!("last metrics lost: the collector did not accept them in time");
        }
    }
}

// === impl RateLimitInstruments ===

impl RateLimitInstruments {
    fn new(meter: &Meter, bounds: &[f64]) -> Self {
        let counter = |name: &'static str, about: &'static str| meter.u64_counter(name).with_description(about).build();
        let latency = meter.f64_histogram("toolhive_rate_limit_check_latency").with_unit("s");
        Self {
            decisions: counter("toolhive_rate_limit_decisions", "Calls that rate limits let pass or refused"),
            errors: counter("toolhive_rate_limit_redis_errors", "Failures of Redis to count calls"),
            fail_open: counter("toolhive_rate_limit_fail_open", "Calls that passed without being counted"),
            latency: latency.with_description("Time of checking rate limits").with_boundaries(bounds.to_vec()).build(),
        }
    }
}

// === impl MetricTask ===

impl MetricTask {
    /// Runs until there are no metrics any more.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let flushed = tokio::select! {
                asked = self.flush.recv() => match asked {
                    Some(flushed) => Some(flushed),
                    None => return,
                },
                _ = ticks.tick() => None,
            };
            self.send().await;
            if let Some(flushed) = flushed {
                // The caller may not wait any more.
                let _gone = flushed.send(());
            }
        }
    }

    /// Sends all metrics as they are. They are cumulative: what is not sent now is in the next ones.
    async fn send(&mut self) {
        let mut metrics = ResourceMetrics::default();
        let sent = match self.reader.collect(&mut metrics) {
            Ok(()) => self.exporter.export(&metrics).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("metrics exported again");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "metrics not exported: sending them with the next ones");
                }
            }
        }
    }
}

// === impl SharedReader ===

impl MetricReader for SharedReader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}
