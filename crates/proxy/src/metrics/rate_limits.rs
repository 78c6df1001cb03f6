//! What rate limits decided, under the names that the original's dashboards know.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use skep_telemetry::KeyValue;
use skep_telemetry::otlp::{ExportedMetrics, Measurement};

/// Bounds of the latency, in seconds.
pub(crate) const RATE_LIMIT_SECONDS: [f64; 10] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// The counters of rate limits. Clones count the same.
#[derive(Clone, Debug)]
pub struct RateLimitCounters {
    decisions: Family<CheckLabels, Counter>,
    errors: Family<Failure, Counter>,
    fail_open: Family<Server, Counter>,
    latency: Family<Server, Histogram, fn() -> Histogram>,
    /// Where the same is counted for a collector.
    exported: Option<Arc<ExportedMetrics>>,
}

/// Labels of a check.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct CheckLabels {
    pub(crate) namespace: String,
    pub(crate) server: String,
    pub(crate) decision: &'static str,
    pub(crate) scope: &'static str,
    pub(crate) operation_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Failure {
    namespace: String,
    server: String,
    error_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Server {
    namespace: String,
    server: String,
}

// === impl RateLimitCounters ===

impl Default for RateLimitCounters {
    fn default() -> Self {
        Self {
            decisions: Family::default(),
            errors: Family::default(),
            fail_open: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(RATE_LIMIT_SECONDS)),
            exported: None,
        }
    }
}

impl RateLimitCounters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "toolhive_rate_limit_decisions",
            "Calls that rate limits let pass or refused",
            self.decisions.clone(),
        );
        registry.register("toolhive_rate_limit_redis_errors", "Failures of Redis to count calls", self.errors.clone());
        registry.register(
            "toolhive_rate_limit_fail_open",
            "Calls that passed without being counted",
            self.fail_open.clone(),
        );
        registry.register(
            "toolhive_rate_limit_check_latency_seconds",
            "Time of checking rate limits",
            self.latency.clone(),
        );
    }

    /// Counts the same for a collector.
    pub(super) fn export_to(&mut self, exported: Option<Arc<ExportedMetrics>>) {
        self.exported = exported;
    }

    pub(crate) fn decided(&self, check: &CheckLabels, took: Duration) {
        let server = Server { namespace: check.namespace.clone(), server: check.server.clone() };
        self.latency.get_or_create(&server).observe(took.as_secs_f64());
        self.decisions.get_or_create(check).inc();
        if let Some(exported) = &self.exported {
            let mut labels = place(&check.namespace, &check.server);
            exported.record(Measurement::RateLimitCheck(took.as_secs_f64()), &labels);
            let decision = [("decision", check.decision), ("scope", check.scope)];
            labels.extend(decision.map(|(name, value)| KeyValue::new(name, value)));
            labels.push(KeyValue::new("operation_type", check.operation_type));
            exported.record(Measurement::RateLimitDecision, &labels);
        }
    }

    /// Counts a failure of the store, and whether the call passed all the same.
    pub(crate) fn failed(&self, namespace: &str, server: &str, error_type: &'static str, is_open: bool) {
        if let Some(exported) = &self.exported {
            let mut labels = place(namespace, server);
            if is_open {
                exported.record(Measurement::RateLimitFailOpen, &labels);
            }
            labels.push(KeyValue::new("error_type", error_type));
            exported.record(Measurement::RateLimitError, &labels);
        }
        let (namespace, server) = (namespace.to_owned(), server.to_owned());
        self.errors.get_or_create(&Failure { namespace: namespace.clone(), server: server.clone(), error_type }).inc();
        if is_open {
            self.fail_open.get_or_create(&Server { namespace, server }).inc();
        }
    }
}

fn place(namespace: &str, server: &str) -> Vec<KeyValue> {
    vec![KeyValue::new("namespace", namespace.to_owned()), KeyValue::new("server", server.to_owned())]
}
