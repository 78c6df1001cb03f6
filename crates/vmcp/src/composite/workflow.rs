//! Running a composite tool: every step as soon as those before it are done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Map, Value, json};
use skep_upstream::BoxFuture;

use super::arguments::holds;
use super::definition::{CompositeTool, Step};
use super::observer::{Effort, NO_EFFORT, StepState, WorkflowObserver};
use super::results::{RESULTS, Status, StepResult};
use super::step::Ran;
use super::{StepCalls, StepError};

/// How many steps run at once.
const PARALLEL: usize = 10;

/// A run of a composite tool.
#[derive(Debug)]
pub struct Workflow {
    tool: Arc<CompositeTool>,
    calls: Arc<dyn StepCalls>,
    params: Map<String, Value>,
    results: BTreeMap<String, StepResult>,
    id: String,
    started: jiff::Timestamp,
    observer: Option<Arc<dyn WorkflowObserver>>,
}

/// Why a composite tool has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkflowError {
    /// A step failed.
    #[error("step `{step}`: {error}")]
    Step {
        /// The step.
        step: String,
        /// Why.
        error: StepError,
    },
    /// It took too long.
    #[error("workflow timed out")]
    Timeout,
    /// Its output cannot be made.
    #[error("output construction failed: {0}")]
    Output(String),
}

/// A step that is running.
type Running<'a> = BoxFuture<'a, (&'a Step, Result<Ran, StepError>, Effort)>;

// === impl Workflow ===

impl Workflow {
    /// A run with these arguments. Missing ones have the defaults of the schema.
    pub fn new(tool: Arc<CompositeTool>, mut params: Map<String, Value>, calls: Arc<dyn StepCalls>) -> Self {
        let properties = tool.parameters.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            if let Some(default) = schema.get("default").filter(|_| !params.contains_key(name)) {
                params.insert(name.clone(), default.clone());
            }
        }
        let id = uuid::Uuid::new_v4().to_string();
        Self { tool, calls, params, results: BTreeMap::new(), id, started: jiff::Timestamp::now(), observer: None }
    }

    /// The same run, with its steps reported.
    #[must_use]
    pub fn observed(mut self, observer: Arc<dyn WorkflowObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The same run under this id.
    #[must_use]
    pub fn named(mut self, id: String) -> Self {
        self.id = id;
        self
    }

    fn report(&self, step: &Step, state: StepState, effort: Effort, error: Option<&StepError>) {
        if let Some(observer) = &self.observer {
            observer.step(&step.report(state, effort, error));
        }
    }

    /// Runs all steps, and returns the output. Steps that run when another one fails are cancelled.
    pub async fn run(mut self) -> Result<Value, WorkflowError> {
        let timeout = self.tool.timeout;
        match tokio::time::timeout(timeout, self.run_steps()).await {
            Ok(ran) => ran?,
            Err(_elapsed) => return Err(WorkflowError::Timeout),
        }
        match &self.tool.output {
            Some(output) => output.of(&self.data(None)).map_err(WorkflowError::Output),
            None => Ok(self.last_output()),
        }
    }

    async fn run_steps(&mut self) -> Result<(), WorkflowError> {
        let (tool, calls) = (self.tool.clone(), self.calls.clone());
        let mut waiting: Vec<&Step> = tool.steps.iter().collect();
        let mut running: FuturesUnordered<Running<'_>> = FuturesUnordered::new();
        loop {
            let (ready, others): (Vec<&Step>, Vec<&Step>) = waiting
                .into_iter()
                .partition(|step| step.depends_on.iter().all(|name| self.results.contains_key(name)));
            let mut later = others;
            for step in ready {
                if running.len() >= PARALLEL {
                    later.push(step);
                    continue;
                }
                if let Some(run) = self.begin(step, &calls) {
                    self.report(step, StepState::Started, NO_EFFORT, None);
                    running.push(run);
                } else {
                    self.report(step, StepState::Skipped, NO_EFFORT, None);
                    self.keep(step, StepResult::replaced(Status::Skipped, step.defaults.as_ref(), None))?;
                }
            }
            waiting = later;
            let Some((step, ran, effort)) = running.next().await else {
                // Steps that were left out may have made others ready.
                let is_ready = |step: &&Step| step.depends_on.iter().all(|name| self.results.contains_key(name));
                if waiting.iter().any(is_ready) {
                    continue;
                }
                return Ok(());
            };
            let state = if ran.is_ok() { StepState::Completed } else { StepState::Failed };
            self.report(step, state, effort, ran.as_ref().err());
            match ran {
                Ok(Ran { result, skips_rest }) => {
                    self.keep(step, result)?;
                    if skips_rest {
                        self.skip(&waiting);
                        return Ok(());
                    }
                }
                Err(error) if step.continues => {
                    let text = error.to_string();
                    tracing::debug!(step = step.id, error = text, "step failed, the others go on");
                    self.keep(step, StepResult::replaced(Status::Failed, step.defaults.as_ref(), Some(text)))?;
                }
                Err(error) => return Err(WorkflowError::Step { step: step.id.clone(), error }),
            }
        }
    }

    /// Begins a step. Nothing if its condition leaves it out.
    fn begin<'a>(&self, step: &'a Step, calls: &'a Arc<dyn StepCalls>) -> Option<Running<'a>> {
        let data = self.data(None);
        let is_wanted = step.condition.as_ref().map_or(Ok(true), |condition| holds(condition, &data));
        match is_wanted {
            Ok(true) => Some(
                async move {
                    let (ran, effort) = step.run_measured(&**calls, &data).await;
                    (step, ran, effort)
                }
                .boxed(),
            ),
            Ok(false) => None,
            Err(error) => Some(async move { (step, Err(error), NO_EFFORT) }.boxed()),
        }
    }

    fn keep(&mut self, step: &Step, result: StepResult) -> Result<(), WorkflowError> {
        self.results.insert(step.id.clone(), result);
        let bytes: usize = self.results.values().map(|result| result.output.to_string().len()).sum();
        if bytes > RESULTS {
            return Err(WorkflowError::Step { step: step.id.clone(), error: StepError::TooLarge(RESULTS) });
        }
        Ok(())
    }

    fn skip(&mut self, steps: &[&Step]) {
        for step in steps {
            self.report(step, StepState::Skipped, NO_EFFORT, None);
            let skipped = StepResult::replaced(Status::Skipped, step.defaults.as_ref(), None);
            self.results.entry(step.id.clone()).or_insert(skipped);
        }
    }

    /// What templates see.
    fn data(&self, status: Option<&str>) -> Value {
        let known: BTreeSet<&String> = self.results.keys().collect();
        let mut steps: Map<String, Value> =
            self.results.iter().map(|(id, result)| (id.clone(), result.shown())).collect();
        for step in self.tool.steps.iter().filter(|step| !known.contains(&step.id)) {
            steps.insert(step.id.clone(), StepResult::default().shown());
        }
        let elapsed = jiff::Timestamp::now().duration_since(self.started).as_millis();
        json!({
            "params": self.params,
            "steps": steps,
            "vars": {},
            "workflow": {
                "id": self.id,
                "duration_ms": u64::try_from(elapsed).unwrap_or_default(),
                "step_count": self.tool.steps.len(),
                "status": status.unwrap_or("running"),
                "start_time": self.started.to_string(),
            },
        })
    }

    /// The output of the last step that completed, in the order of the definition.
    fn last_output(&self) -> Value {
        let completed = self.tool.steps.iter().rev().filter_map(|step| self.results.get(&step.id));
        let mut completed = completed.filter(|result| result.status == Status::Completed);
        completed.next().map_or_else(|| json!({}), |result| result.output.clone())
    }
}
