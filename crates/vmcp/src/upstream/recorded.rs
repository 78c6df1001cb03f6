//! Runs of composite tools, as they are counted, traced and recorded in the audit log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skep_telemetry::KeyValue;
use skep_telemetry::audit::{EventType, Outcome, Subjects, WorkflowFacts};
use skep_telemetry::trace::{Carrier, ChildSpan};
use skep_upstream::ClientContext;

use crate::composite::{StepReport, StepState, WorkflowError, WorkflowObserver};
use crate::instruments::VirtualInstruments;

/// A run. One that is dropped before it ended was cancelled.
#[derive(Debug)]
pub(super) struct RecordedRun {
    instruments: Arc<VirtualInstruments>,
    subjects: Subjects,
    id: String,
    name: String,
    started: Instant,
    has_ended: AtomicBool,
    span: std::sync::Mutex<Option<ChildSpan>>,
}

// === impl RecordedRun ===

impl RecordedRun {
    /// A run that begins, for this client. Its requests are below its span.
    pub(super) fn begin(
        instruments: &Arc<VirtualInstruments>,
        client: &mut ClientContext,
        id: &str,
        name: &str,
    ) -> Arc<Self> {
        let span = instruments.traces().map(|traces| {
            let attributes = vec![KeyValue::new("workflow.name", name.to_owned())];
            let span =
                ChildSpan::internal(traces, &Carrier::of_headers(&client.trace), "core.ExecuteWorkflow", attributes);
            span.inject(&mut client.trace);
            span
        });
        let run = Self {
            instruments: instruments.clone(),
            subjects: subjects(client),
            id: id.to_owned(),
            name: name.to_owned(),
            started: Instant::now(),
            has_ended: AtomicBool::new(false),
            span: std::sync::Mutex::new(span),
        };
        run.write(EventType::VmcpWorkflowStarted, Outcome::Success, run.facts());
        Arc::new(run)
    }

    /// The run ended.
    pub(super) fn end(&self, error: Option<&WorkflowError>) {
        let (kind, outcome) = match error {
            None => (EventType::VmcpWorkflowCompleted, Outcome::Success),
            Some(WorkflowError::Timeout) => (EventType::VmcpWorkflowTimedOut, Outcome::Failure),
            Some(_) => (EventType::VmcpWorkflowFailed, Outcome::Failure),
        };
        self.ended(kind, outcome, error.map(ToString::to_string).unwrap_or_default());
    }

    fn ended(&self, kind: EventType, outcome: Outcome, error: String) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let took = self.started.elapsed();
        self.instruments.metrics.ran(&self.name, took, outcome != Outcome::Success);
        let span = self.span.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(mut span) = span.filter(|_| !error.is_empty()) {
            span.fail(error.clone());
        }
        self.write(kind, outcome, WorkflowFacts { duration_ms: milliseconds(took), error, ..self.facts() });
    }

    fn facts(&self) -> WorkflowFacts {
        WorkflowFacts { id: self.id.clone(), name: self.name.clone(), ..WorkflowFacts::default() }
    }

    fn write(&self, kind: EventType, outcome: Outcome, facts: WorkflowFacts) {
        if let Some(audit) = self.instruments.audit() {
            audit.workflow(kind, outcome, &self.subjects, facts);
        }
    }
}

impl WorkflowObserver for RecordedRun {
    fn step(&self, step: &StepReport<'_>) {
        let (kind, outcome) = match step.state {
            StepState::Started => (EventType::VmcpWorkflowStepStarted, Outcome::Success),
            StepState::Completed => (EventType::VmcpWorkflowStepCompleted, Outcome::Success),
            StepState::Failed => (EventType::VmcpWorkflowStepFailed, Outcome::Failure),
            StepState::Skipped => (EventType::VmcpWorkflowStepSkipped, Outcome::Success),
        };
        let facts = WorkflowFacts {
            step_id: step.id.to_owned(),
            step_type: step.kind,
            tool: step.tool.to_owned(),
            duration_ms: milliseconds(step.took),
            retry_count: step.retries,
            error: step.error.map(ToString::to_string).unwrap_or_default(),
            ..self.facts()
        };
        self.write(kind, outcome, facts);
    }
}

impl Drop for RecordedRun {
    fn drop(&mut self) {
        self.ended(EventType::VmcpWorkflowFailed, Outcome::Failure, "cancelled".to_owned());
    }
}

fn milliseconds(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

/// Who called the composite tool.
fn subjects(client: &ClientContext) -> Subjects {
    let identity = client.caller.as_ref().map(|caller| &caller.identity);
    let name = identity.map(|identity| identity.name.to_string()).filter(|name| !name.is_empty());
    Subjects {
        user_id: identity.map(|identity| identity.subject.to_string()).unwrap_or_default(),
        user: name.unwrap_or_else(|| skep_auth::ANONYMOUS.to_owned()),
        ..Subjects::default()
    }
}
