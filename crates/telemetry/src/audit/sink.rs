//! The audit log, for events that no request of a client is.

use super::event::{Event, Extra, Source, Subjects, Target, WorkflowFacts};
use super::filter::EventFilter;
use super::kind::{EventType, Outcome, TargetType};
use super::log::AuditLog;

/// Where events go that are not about one request, with what they have in common with those that are.
#[derive(Clone, Debug)]
pub struct AuditSink {
    log: AuditLog,
    filter: EventFilter,
    component: String,
}

// === impl AuditSink ===

impl AuditSink {
    /// Events of a component that pass a filter.
    pub fn new(log: AuditLog, filter: EventFilter, component: String) -> Self {
        Self { log, filter, component }
    }

    /// Writes what became of a workflow or of a step of it, in the name of who called it.
    pub fn workflow(&self, kind: EventType, outcome: Outcome, subjects: &Subjects, facts: WorkflowFacts) {
        if !self.filter.writes(kind) {
            return;
        }
        let target_kind = if facts.step_id.is_empty() { TargetType::Workflow } else { TargetType::WorkflowStep };
        let target =
            Target { endpoint: String::new(), method: String::new(), kind: target_kind, name: facts.tool.clone() };
        self.log.write(&Event {
            kind,
            outcome,
            component: self.component.clone(),
            source: Source { value: self.component.clone(), is_local: true, ..Source::default() },
            subjects: subjects.clone(),
            delegation: None,
            target: Some(target),
            extra: Extra { duration_ms: facts.duration_ms, workflow: Some(Box::new(facts)), ..Extra::default() },
            request: None,
            response: None,
        });
    }
}
