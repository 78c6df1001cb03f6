//! `MCPRegistry`: the API of a registry server, with its configuration and its rights. Deprecated, and kept running.

mod check;
mod children;
mod fill;
mod state;

use serde_json::Value;
use skep_api::kinds::{MCPRegistry, MCPRegistrySpec};
use skep_api::resource::Resource;

use crate::child::Child;
use crate::error::{PlanError, check_name, check_names};
use crate::merge::check_pod_template;
use crate::overrides::DroppedOverrides;
use crate::plan::{Notice, Plan};
use crate::status::Status;
use crate::validate::reference_problems;
use crate::world::World;

/// The longest name: `<name>-registry-api` is a label.
const LONGEST_NAME: usize = 50;

/// Plans a registry. Deletion comes first: however wrong a registry is, it can go.
pub(crate) fn plan(me: &Resource, object: &MCPRegistry, world: &World<'_>) -> Plan {
    if me.is_deleting() {
        let plan = Plan::terminating(me, "MCPRegistry is being terminated");
        return Plan { notice: Some(deprecation(me)), ..plan };
    }
    let mut status = Status::default();
    let mut dropped = DroppedOverrides::default();
    let built = build(me, &object.spec, world, &mut dropped);
    dropped.report(&mut status);
    report_template(&mut status, &object.spec, built.as_ref().err());
    state::add(&mut status, me, object, &built, world);
    let mut plan = Plan::without_children(me, status);
    match built {
        Ok(children) => plan.children = children,
        Err(error) => plan.verdict = error.verdict(),
    }
    plan.notice = Some(deprecation(me));
    plan
}

/// The warning that this kind is deprecated.
fn deprecation(me: &Resource) -> Notice {
    let kind = me.kind();
    let message = format!("{kind} is deprecated: run the registry server with its own chart");
    Notice { reason: format!("{kind}Deprecated"), message }
}

fn build(
    me: &Resource,
    spec: &MCPRegistrySpec,
    world: &World<'_>,
    dropped: &mut DroppedOverrides,
) -> Result<Vec<Child>, PlanError> {
    check_name(me, LONGEST_NAME)?;
    let template = spec.pod_template_spec.as_ref().map(|template| Value::Object(template.0.clone()));
    if let Some(template) = &template {
        check_pod_template(template)?;
    }
    let failed = |problem| PlanError::field("Spec validation failed", problem);
    let mut problems = reference_problems(me);
    problems.under("", check::problems(spec, template.as_ref()));
    problems.result().map_err(failed)?;
    let children = children::build(me, spec, template.as_ref(), world, dropped)?;
    check_names(me, world)?;
    Ok(children)
}

/// A registry without a template says nothing about templates.
fn report_template(status: &mut Status, spec: &MCPRegistrySpec, error: Option<&PlanError>) {
    const CONDITION: &str = "PodTemplateValid";
    if let Some(error) = error.filter(|error| error.is_of_template()) {
        status.condition(CONDITION, false, error.reason(), error.to_string());
    } else if spec.pod_template_spec.is_some() {
        status.condition(CONDITION, true, "ValidPodTemplateSpec", "PodTemplateSpec is valid");
    }
}

#[cfg(test)]
mod tests;
