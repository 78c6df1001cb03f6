//! How close a proxy is to its limits, and what it refused because of them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use skep_net::Budget;
use skep_telemetry::audit::AuditLog;
use skep_telemetry::otlp::Traces;

use crate::sessions::Sessions;

/// What is counted where limits are. Clones count the same.
#[derive(Clone, Debug)]
pub struct LimitCounters {
    /// How many connections were closed for being too many.
    pub refused_connections: Arc<AtomicU64>,
    /// How many requests were refused to clients that have too many in flight.
    pub refused_requests: Arc<AtomicU64>,
    budget: Budget,
    sessions: Arc<OnceLock<Sessions>>,
    audit_log: Option<AuditLog>,
    traces: Option<Traces>,
}

/// The counters of a proxy, once it has some.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown(pub(super) Arc<OnceLock<LimitCounters>>);

// === impl LimitCounters ===

impl LimitCounters {
    /// Those of a budget, and of an audit log and of traces if there are any.
    pub fn new(budget: Budget, audit_log: Option<AuditLog>, traces: Option<Traces>) -> Self {
        let (refused_connections, refused_requests) = Default::default();
        Self { refused_connections, refused_requests, budget, sessions: Arc::default(), audit_log, traces }
    }

    /// Shows how many of these sessions were evicted.
    pub fn watch(&self, sessions: &Sessions) {
        // There is one store, and it is set once.
        let _told = self.sessions.set(sessions.clone());
    }

    /// Name, meaning and value of each counter.
    fn counters(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let evicted = self.sessions.get().map_or(0, |sessions| sessions.store().evictions());
        let dropped = self.audit_log.as_ref().map(AuditLog::dropped);
        let dropped =
            dropped.map(|dropped| ("skep_audit_events_dropped", "Audit events that were not written", dropped));
        let others = [
            ("skep_proxy_sessions_evicted", "Sessions that made room for newer ones of the same client", evicted),
            ("skep_proxy_over_budget", "Bodies and responses refused by the memory budget", self.budget.refused()),
            (
                "skep_proxy_connections_refused",
                "Connections closed by the connection limit",
                self.refused_connections.load(Ordering::Relaxed),
            ),
            (
                "skep_proxy_requests_refused",
                "Requests refused to clients with too many in flight",
                self.refused_requests.load(Ordering::Relaxed),
            ),
        ];
        let spans = self.traces.as_ref().map(Traces::dropped);
        let spans = spans.map(|dropped| ("skep_spans_dropped", "Spans that the collector did not take", dropped));
        others.into_iter().chain(dropped).chain(spans)
    }
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(limits) = self.0.get() else { return Ok(()) };
        for (name, help, value) in limits.counters() {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let bytes = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        for (name, help, value) in [
            ("skep_proxy_buffered_bytes", "Bytes held for clients", bytes(limits.budget.held())),
            ("skep_proxy_buffered_bytes_limit", "The memory budget", bytes(limits.budget.limit())),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use skep_net::budget::Purpose;

    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn what_is_refused_is_shown() {
        let metrics = Metrics::new("s", "stdio");
        assert!(!metrics.page().contains("skep_proxy"));
        let limits = LimitCounters::new(Budget::new(100_000), None, None);
        metrics.add_limits(limits.clone());
        let _held = limits.budget.reserve(60_000, Purpose::Request);
        assert!(limits.budget.reserve(60_000, Purpose::Request).is_err());
        limits.refused_connections.fetch_add(2, Ordering::Relaxed);
        limits.refused_requests.fetch_add(3, Ordering::Relaxed);
        let page = metrics.page();
        for line in [
            "skep_proxy_sessions_evicted_total 0",
            "skep_proxy_over_budget_total 1",
            "skep_proxy_connections_refused_total 2",
            "skep_proxy_requests_refused_total 3",
            "skep_proxy_buffered_bytes 60000",
            "skep_proxy_buffered_bytes_limit 100000",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
    }
}
