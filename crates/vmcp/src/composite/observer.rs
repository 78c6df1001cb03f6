//! The outcome of each step of a run, for the audit log and the metrics.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use skep_upstream::BoxFuture;

use super::definition::{Action, Step};
use super::results::{ResultBudget, ToolResult};
use super::step::Ran;
use super::{Answer, StepCalls, StepError};

/// Sees the steps of a run.
pub trait WorkflowObserver: Debug + Send + Sync {
    /// A step began or ended.
    fn step(&self, step: &StepReport<'_>);
}

/// What became of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepReport<'a> {
    /// Its id.
    pub id: &'a str,
    /// `tool`, `elicitation` or `forEach`.
    pub kind: &'static str,
    /// The tool that it calls.
    pub tool: &'a str,
    /// What became of it.
    pub state: StepState,
    /// How long it took.
    pub took: Duration,
    /// How often its calls were tried again.
    pub retries: u32,
    /// Why it failed.
    pub error: Option<&'a StepError>,
}

/// The state of a step that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepState {
    /// It began.
    Started,
    /// It completed.
    Completed,
    /// It failed.
    Failed,
    /// It was left out.
    Skipped,
}

/// How much a step took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    took: Duration,
    retries: u32,
}

/// The calls of one step, counted.
#[derive(Debug)]
struct CountedCalls<'a> {
    calls: &'a dyn StepCalls,
    count: AtomicU32,
}

/// No effort, of a step that has not run.
pub(super) const NO_EFFORT: Effort = Effort { took: Duration::ZERO, retries: 0 };

// === impl Step ===

impl Step {
    /// Runs the step, and measures what that takes.
    pub(super) async fn run_measured(
        &self,
        calls: &dyn StepCalls,
        data: Arc<Value>,
        budget: &ResultBudget,
    ) -> (Result<Ran, StepError>, Effort) {
        let counted = CountedCalls { calls, count: AtomicU32::new(0) };
        let started = Instant::now();
        let ran = self.run(&counted, data, budget).await;
        let expected = match (&self.action, &ran) {
            (Action::ForEach(_), Ok(Ran { result, .. })) => {
                result.output.get("count").and_then(Value::as_u64).and_then(|count| u32::try_from(count).ok())
            }
            // How many elements there were is not known any more.
            (Action::ForEach(_), Err(_)) => None,
            (Action::Tool(_) | Action::Elicitation { .. }, _) => Some(1),
        };
        let calls = counted.count.load(Ordering::Relaxed);
        (ran, Effort { took: started.elapsed(), retries: calls.saturating_sub(expected.unwrap_or(calls)) })
    }

    /// A report about the step.
    pub(super) fn report<'a>(
        &'a self,
        state: StepState,
        effort: Effort,
        error: Option<&'a StepError>,
    ) -> StepReport<'a> {
        let (kind, tool) = match &self.action {
            Action::Tool(call) => ("tool", call.tool.as_str()),
            Action::Elicitation { .. } => ("elicitation", ""),
            Action::ForEach(each) => ("forEach", each.call.tool.as_str()),
        };
        StepReport { id: &self.id, kind, tool, state, took: effort.took, retries: effort.retries, error }
    }
}

impl StepCalls for CountedCalls<'_> {
    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'a, Result<ToolResult, StepError>> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.calls.call(tool, arguments)
    }

    fn elicit<'a>(&'a self, message: &'a str, schema: &'a Value) -> BoxFuture<'a, Result<Answer, StepError>> {
        self.calls.elicit(message, schema)
    }

    fn schema(&self, tool: &str) -> Option<Value> {
        self.calls.schema(tool)
    }
}
