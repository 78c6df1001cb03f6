//! `VirtualMCPCompositeToolDefinition`: a tool made of steps. It has no children; its status says whether
//! it is valid and which virtual servers use it.
//!
//! The same validation applies to tools that are inline in a VirtualMCPServer. Templates are parsed here, and rendered by the virtual
//! server.

mod order;
mod output;
mod step;
mod template;

use serde_json::json;
use skep_api::kinds::{CompositeTool, VirtualMCPCompositeToolDefinition};
use skep_api::resource::{KindName, Resource};
use skep_bounds::{COMPOSITE_SET_STEPS, COMPOSITE_STEPS, COMPOSITE_TOOLS};

use crate::error::PlanError;
use crate::key::ObjectKind;
use crate::plan::Plan;
use crate::status::Status;
use crate::validate::Problems;
use crate::world::World;

/// Plans a definition: no children, a status. Nothing blocks its deletion; the servers that use it say that it is gone.
pub(crate) fn plan(me: &Resource, object: &VirtualMCPCompositeToolDefinition, world: &World<'_>) -> Plan {
    let problems = problems_of(&object.spec);
    let users = world.users.iter().filter(|key| key.kind == ObjectKind::Kind(KindName::VirtualMCPServer));
    let users: Vec<&str> = users.map(|key| key.name.as_str()).collect();
    let mut status = Status::default();
    status.set("referencingVirtualServers", if users.is_empty() { json!(null) } else { json!(users) });
    match problems.message() {
        None => {
            status
                .set("validationStatus", "Valid")
                .set("validationErrors", json!(null))
                .condition("WorkflowValidated", true, "ValidationSucceeded", "the steps fit together")
                .condition("Ready", true, "Ready", "the tool can be used");
        }
        Some(message) => {
            status
                .set("validationStatus", "Invalid")
                .set("validationErrors", json!(problems.list()))
                .condition("WorkflowValidated", false, "ValidationFailed", &message)
                .condition("Ready", false, "ValidationFailed", message);
        }
    }
    Plan::without_children(me, status)
}

/// Everything that is wrong with a composite tool, in the order of its fields; nothing for a good one.
pub fn problems(tool: &CompositeTool) -> Vec<String> {
    problems_of(tool).list()
}

/// The same, with places relative to the tool.
pub(crate) fn problems_of(tool: &CompositeTool) -> Problems {
    let mut problems = Problems::default();
    problems.filled("name", &tool.name, "give the name by which clients see the tool");
    let description = tool.description.as_deref().unwrap_or_default();
    problems.filled("description", description, "say what the tool does; clients choose tools by it");
    if let Some(parameters) = &tool.parameters {
        let is_object = parameters.0.get("type").is_some_and(|kind| kind == "object");
        problems.unless(is_object, "parameters", "it is not the schema of an object; set its `type` to `object`");
    }
    problems.some_time("timeout", tool.timeout.as_deref());
    problems.unless(!tool.steps.is_empty(), "steps", "there is no step; write at least one");
    let count = tool.steps.len();
    if count > COMPOSITE_STEPS {
        problems.add("steps", format_args!("there are {count} steps; write at most {COMPOSITE_STEPS}"));
        // Nothing is checked of steps that are too many: what is refused anyway must cost nothing.
        return problems;
    }
    for (index, step) in tool.steps.iter().enumerate() {
        problems.under(format_args!("steps[{index}]"), step::problems(step));
    }
    problems.under("", order::problems(&tool.steps));
    if let Some(output) = &tool.output {
        problems.under("output", output::problems(output));
    }
    problems
}

/// Refuses more tools, or steps of them, than one virtual server may have. `place` is where they are, or are referred to.
pub(crate) fn check_count(place: &str, tools: usize, steps: usize) -> Result<(), PlanError> {
    if tools <= COMPOSITE_TOOLS && steps <= COMPOSITE_SET_STEPS {
        return Ok(());
    }
    let advice = format_args!("write at most {COMPOSITE_TOOLS} tools and {COMPOSITE_SET_STEPS} steps");
    Err(PlanError::field(place, format_args!("there are {tools} tools with {steps} steps; {advice}")))
}

#[cfg(test)]
mod tests;
