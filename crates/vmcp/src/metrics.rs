//! What a virtual server counts beside what every proxy counts, under the names that the original's dashboards know.
//!
//! Labels are names of backends and of composite tools, which stand in the configuration or in the cluster, and never what clients choose.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Bounds of durations, in seconds.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// The counters of a virtual server. Clones count the same.
#[derive(Clone, Debug)]
pub struct VirtualMetrics {
    backends: Gauge,
    requests: Family<BackendLabels, Counter>,
    errors: Family<BackendLabels, Counter>,
    duration: Family<BackendLabels, Histogram, fn() -> Histogram>,
    /// The same time, under the name that OpenTelemetry has for it.
    operations: Family<OperationLabels, Histogram, fn() -> Histogram>,
    workflows: Family<WorkflowLabels, Counter>,
    workflow_errors: Family<WorkflowLabels, Counter>,
    workflow_duration: Family<WorkflowLabels, Histogram, fn() -> Histogram>,
    embedding_errors: Counter,
    without_meaning: Counter,
}

/// A request to a backend.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct BackendLabels {
    pub(crate) target_workload_id: String,
    pub(crate) target_workload_name: String,
    pub(crate) target_transport_type: &'static str,
    pub(crate) action: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    mcp_method_name: &'static str,
    target_workload_name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WorkflowLabels {
    workflow_name: String,
}

// === impl VirtualMetrics ===

impl Default for VirtualMetrics {
    fn default() -> Self {
        Self {
            backends: Gauge::default(),
            requests: Family::default(),
            errors: Family::default(),
            duration: Family::new_with_constructor(seconds),
            operations: Family::new_with_constructor(seconds),
            workflows: Family::default(),
            workflow_errors: Family::default(),
            workflow_duration: Family::new_with_constructor(seconds),
            embedding_errors: Counter::default(),
            without_meaning: Counter::default(),
        }
    }
}

impl VirtualMetrics {
    /// Shows all of it. What concerns the optimizer is shown where there is one.
    pub(crate) fn register(&self, registry: &mut Registry, has_optimizer: bool) {
        let mut counter = |name: &str, about: &str, family: &Family<BackendLabels, Counter>| {
            registry.register(name, about, family.clone());
        };
        counter("toolhive_vmcp_backend_requests", "Requests to backends", &self.requests);
        counter("toolhive_vmcp_backend_errors", "Requests to backends that failed", &self.errors);
        registry.register("toolhive_vmcp_backends_discovered", "Backends that there are", self.backends.clone());
        let about = "Time of requests to backends";
        registry.register("toolhive_vmcp_backend_requests_duration_seconds", about, self.duration.clone());
        registry.register("mcp_client_operation_duration_seconds", about, self.operations.clone());
        registry.register("toolhive_vmcp_workflow_executions", "Runs of composite tools", self.workflows.clone());
        registry.register("toolhive_vmcp_workflow_errors", "Runs that failed", self.workflow_errors.clone());
        registry.register("toolhive_vmcp_workflow_duration_seconds", "Time of runs", self.workflow_duration.clone());
        if has_optimizer {
            registry.register(
                "toolhive_vmcp_optimizer_embedding_errors",
                "Failures of the embedding service",
                self.embedding_errors.clone(),
            );
            registry.register(
                "toolhive_vmcp_optimizer_keyword_only_searches",
                "Searches by words alone, because the embedding service was not available",
                self.without_meaning.clone(),
            );
        }
    }

    /// How many backends there are.
    pub(crate) fn backends(&self, count: usize) {
        self.backends.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a request to a backend.
    pub(crate) fn called(&self, call: &BackendLabels, method: &'static str, took: Duration, is_error: bool) {
        let seconds = took.as_secs_f64();
        self.requests.get_or_create(call).inc();
        self.duration.get_or_create(call).observe(seconds);
        let operation =
            OperationLabels { mcp_method_name: method, target_workload_name: call.target_workload_name.clone() };
        self.operations.get_or_create(&operation).observe(seconds);
        if is_error {
            self.errors.get_or_create(call).inc();
        }
    }

    /// Counts a run of a composite tool.
    pub(crate) fn ran(&self, workflow: &str, took: Duration, is_error: bool) {
        let labels = WorkflowLabels { workflow_name: workflow.to_owned() };
        self.workflows.get_or_create(&labels).inc();
        self.workflow_duration.get_or_create(&labels).observe(took.as_secs_f64());
        if is_error {
            self.workflow_errors.get_or_create(&labels).inc();
        }
    }

    /// Counts a failure of the embedding service.
    pub(crate) fn embedding_failed(&self) {
        self.embedding_errors.inc();
    }

    /// Counts a search that would have been by meaning as well.
    pub(crate) fn search_without_meaning(&self) {
        self.without_meaning.inc();
    }
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}
