//! `EmbeddingServer`: a StatefulSet that serves a model, and its Service.

mod children;
mod state;

use serde_json::Value;
use skep_api::kinds::{EmbeddingServer, EmbeddingServerSpec};
use skep_api::resource::Resource;

use crate::child::Child;
use crate::error::{PlanError, check_name, check_names};
use crate::merge::check_pod_template;
use crate::names;
use crate::overrides::DroppedOverrides;
use crate::plan::Plan;
use crate::pod::check_env_count;
use crate::readiness::set_url;
use crate::status::Status;
use crate::validate::reference_problems;
use crate::world::World;

/// The longest name: pods carry it in a label, with a hash of ten digits behind it.
const LONGEST_NAME: usize = 52;

/// Plans an embedding server.
pub(crate) fn plan(me: &Resource, object: &EmbeddingServer, world: &World<'_>) -> Plan {
    if me.is_deleting() {
        // Everything is removed but the volumes, which hold what was downloaded and are the user's to remove.
        return Plan::terminating(me, "Embedding server is being terminated");
    }
    let spec = &object.spec;
    let mut status = Status::default();
    let mut dropped = DroppedOverrides::default();
    let built = build(me, spec, world, &mut dropped);
    dropped.report(&mut status);
    report_template(&mut status, spec, built.as_ref().err());
    let change = built.as_ref().ok().and_then(|_| forbidden_change(me, spec, world));
    if let Some(error) = &change {
        status.condition("VolumeReady", false, error.reason(), error.to_string());
    }
    let built = match change {
        Some(error) => built.and(Err(error)),
        None => built,
    };
    state::add(&mut status, me, object, built.as_ref().err(), world);

    let mut plan = Plan::without_children(me, Status::default());
    match built {
        Err(error) => plan.verdict = error.verdict(),
        Ok(children) => plan.children = children,
    }
    // It follows the port of the spec.
    let url = format!("http://{}:{}", names::host(me.name(), me.namespace()), spec.port);
    set_url(&mut status, url, &plan.verdict, me.name(), world.live);
    plan.status = status;
    plan
}

fn build(
    me: &Resource,
    spec: &EmbeddingServerSpec,
    world: &World<'_>,
    dropped: &mut DroppedOverrides,
) -> Result<Vec<Child>, PlanError> {
    check_name(me, LONGEST_NAME)?;
    reference_problems(me).result()?;
    check_env_count("spec.env", spec.env.len())?;
    let template = spec.pod_template_spec.as_ref().map(|template| Value::Object(template.0.clone()));
    if let Some(template) = &template {
        check_pod_template(template)?;
    }
    let children = children::build(me, spec, template.as_ref(), world.settings, dropped)?;
    check_names(me, world)?;
    Ok(children)
}

fn report_template(status: &mut Status, spec: &EmbeddingServerSpec, error: Option<&PlanError>) {
    const CONDITION: &str = "PodTemplateValid";
    if let Some(error) = error.filter(|error| error.is_of_template()) {
        status.condition(CONDITION, false, error.reason(), error.to_string());
    } else {
        let message =
            if spec.pod_template_spec.is_some() { "PodTemplateSpec is valid" } else { "No PodTemplateSpec provided" };
        status.condition(CONDITION, true, "ValidPodTemplateSpec", message);
    }
}

/// Refuses a spec whose volumes are not those of the live StatefulSet. They cannot be changed in place, and
/// replacing them is not ours to decide: what was downloaded, or put there by hand, would be gone. Meanwhile everything
/// stays as it is.
fn forbidden_change(me: &Resource, spec: &EmbeddingServerSpec, world: &World<'_>) -> Option<PlanError> {
    let noted = world.live.workload.as_ref()?.consumed.as_deref()?;
    if noted == children::digest_of_claims(me, spec) {
        return None;
    }
    let (name, namespace) = (me.name(), me.namespace());
    Some(PlanError::ImmutableVolumeClaim(format!(
        "the volume of StatefulSet `{name}` cannot be changed to what spec.modelCache and the overrides of its claim \
         say: undo the change, or delete the StatefulSet (`kubectl delete statefulset {name} --namespace {namespace}`) \
         and its claims `model-cache-{name}-…`, and both are made anew"
    )))
}

#[cfg(test)]
mod tests;
