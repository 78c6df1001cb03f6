//! What searches for tools come to, under the names that the original's dashboards know. None has a label: clients choose the names.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::SECONDS;

/// Bounds of the numbers of results, and of savings in percent.
const RESULTS: [f64; 8] = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 50.0];
const PERCENT: [f64; 8] = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0];

/// The counters of the optimizer. Clones count the same.
#[derive(Clone, Debug)]
pub struct OptimizerCounters {
    find_requests: Counter,
    find_errors: Counter,
    find_duration: Histogram,
    find_results: Histogram,
    savings: Histogram,
    call_requests: Counter,
    call_errors: Counter,
    call_not_found: Counter,
    call_duration: Histogram,
}

/// What a search found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundTools {
    /// How many tools.
    pub(crate) results: usize,
    /// By how much smaller they are than all tools, in percent.
    pub(crate) savings: f64,
}

// === impl OptimizerCounters ===

impl Default for OptimizerCounters {
    fn default() -> Self {
        Self {
            find_requests: Counter::default(),
            find_errors: Counter::default(),
            find_duration: Histogram::new(SECONDS),
            find_results: Histogram::new(RESULTS),
            savings: Histogram::new(PERCENT),
            call_requests: Counter::default(),
            call_errors: Counter::default(),
            call_not_found: Counter::default(),
            call_duration: Histogram::new(SECONDS),
        }
    }
}

impl OptimizerCounters {
    pub(super) fn register(&self, registry: &mut Registry) {
        const FIND: &str = "toolhive_vmcp_optimizer_find_tool";
        const CALL: &str = "toolhive_vmcp_optimizer_call_tool";
        registry.register(format!("{FIND}_requests"), "Searches for tools", self.find_requests.clone());
        registry.register(format!("{FIND}_errors"), "Searches that failed", self.find_errors.clone());
        registry.register(format!("{FIND}_duration_seconds"), "Time of searches", self.find_duration.clone());
        registry.register(format!("{FIND}_results"), "Tools that a search found", self.find_results.clone());
        registry.register(
            "toolhive_vmcp_optimizer_token_savings_percent",
            "By how much smaller the tools of a search are than all tools",
            self.savings.clone(),
        );
        registry.register(format!("{CALL}_requests"), "Calls of tools that were found", self.call_requests.clone());
        registry.register(format!("{CALL}_errors"), "Those that failed", self.call_errors.clone());
        registry.register(
            format!("{CALL}_not_found"),
            "Those of tools that are not there",
            self.call_not_found.clone(),
        );
        registry.register(format!("{CALL}_duration_seconds"), "Time of those calls", self.call_duration.clone());
    }

    /// Counts a search. Nothing was found if it failed.
    pub(crate) fn found(&self, took: Duration, found: Option<FoundTools>) {
        self.find_requests.inc();
        self.find_duration.observe(took.as_secs_f64());
        match found {
            None => drop(self.find_errors.inc()),
            Some(FoundTools { results, savings }) => {
                self.find_results.observe(u32::try_from(results).map_or(f64::from(u32::MAX), f64::from));
                self.savings.observe(savings);
            }
        }
    }

    /// Counts a call.
    pub(crate) fn called(&self, took: Duration, is_error: bool, is_missing: bool) {
        self.call_requests.inc();
        self.call_duration.observe(took.as_secs_f64());
        if is_error {
            self.call_errors.inc();
        }
        if is_missing {
            self.call_not_found.inc();
        }
    }
}
