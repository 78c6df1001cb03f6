//! The plans that `skep check` makes, and their errors.
//!
//! The operator refuses what cannot run in a cluster, and what the data plane of its images does not support yet.
//! Neither makes a manifest invalid: `skep run` may run it, or a later version. So three worlds are planned, which
//! differ in that alone:
//!
//! ```text
//!   one machine, everything supported ─▶ errors
//!   a cluster, everything supported   ─▶ what is new: warnings, only `skep run` accepts it
//!   one machine, this version         ─▶ what is new: warnings, not supported yet
//! ```
//!
//! Configuration that is not in force is always a warning: the operator sets a condition and runs the workload.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::{Value, json};
use skep_api::resource::Resource;
use skep_operator::settings::Environment;
use skep_plan::plan::{Plan, Verdict, plan};
use skep_plan::status::clipped;
use skep_plan::world::{Live, Settings, Site, World};
use skep_proxy::unsupported::UNSUPPORTED;

use super::references::Objects;
use crate::commands::operator::Engines;

/// The suffixes of conditions that report an invalid spec. Others are about what runs.
const VALIDATIONS: &[&str] = &["Valid", "Validated"];
/// The suffixes of conditions that report whether the configuration is in force. The operator refuses nothing because
/// of them.
const IN_FORCE: &[&str] = &["InForce"];
/// The suffix of a reason for a missing object. References are checked separately.
const MISSING: &str = "NotFound";

/// Plans as an operator with default settings does.
#[derive(Debug)]
pub(super) struct Planner {
    /// On one machine, where everything is supported.
    lenient: Settings,
    /// In a cluster, where everything is supported.
    cluster: Settings,
    /// On one machine, where this version runs.
    version: Settings,
}

/// The objections to a resource.
#[derive(Debug, Default)]
pub(super) struct Objections {
    /// What no version of Skep accepts anywhere.
    pub(super) errors: Vec<String>,
    /// What the operator refuses, and `skep run` or another version may not; and configuration that is not in force.
    pub(super) warnings: Vec<String>,
    /// What it waits for.
    pub(super) wait: Option<String>,
}

// === impl Planner ===

impl Planner {
    pub(super) fn new() -> Result<Self> {
        let operator = Environment::read(&BTreeMap::new())?.without(UNSUPPORTED).settings;
        let cluster = Settings { unsupported: BTreeSet::new(), unsupported_by_vmcp: None, ..operator.clone() };
        let version = Settings { site: Site::Machine, ..operator };
        Ok(Self { lenient: Settings { site: Site::Machine, ..cluster.clone() }, cluster, version })
    }

    /// What the operator would report about a resource among these objects.
    pub(super) fn check(&self, me: &Resource, found: &Objects) -> Objections {
        let planned = |settings: &Settings| {
            let (users, live) = (BTreeSet::new(), Live::default());
            plan(me, &World { settings, found, users: &users, live: &live, policies: &Engines })
        };
        let lenient = planned(&self.lenient);
        let errors = objections(&lenient);
        let mut warnings = Vec::new();
        for message in objections(&planned(&self.cluster)) {
            if is_new(&message, errors.iter().chain(&warnings)) {
                warnings.push(message);
            }
        }
        for message in &mut warnings {
            *message = format!("a cluster refuses this, only `skep run` accepts it: {message}");
        }
        let version = planned(&self.version);
        let not_in_force = conditions(&lenient, IN_FORCE).into_iter().chain(conditions(&version, IN_FORCE));
        for message in objections(&version).into_iter().chain(not_in_force) {
            if is_new(&message, errors.iter().chain(&warnings)) {
                warnings.push(message);
            }
        }
        let wait = if let Verdict::Wait(why) = lenient.verdict { Some(why) } else { None };
        Objections { errors, warnings, wait }
    }
}

/// Whether a message is not contained in another one. A condition that sums up others is not new.
pub(super) fn is_new<'a>(message: &str, known: impl IntoIterator<Item = &'a String>) -> bool {
    !known.into_iter().any(|known| known.contains(message) || message.contains(known.as_str()))
}

/// The objections of a plan to a spec.
fn objections(plan: &Plan) -> Vec<String> {
    let refused = if let Verdict::Refuse(why) = &plan.verdict { Some(clipped(why).into_owned()) } else { None };
    refused.into_iter().chain(conditions(plan, VALIDATIONS)).collect()
}

/// The messages of a plan's false conditions with one of these suffixes.
fn conditions(plan: &Plan, endings: &[&str]) -> Vec<String> {
    let status = plan.status.onto(&json!({}), 0, "");
    let conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let text =
        |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_against = |condition: &&Value| {
        let (kind, reason) = (text(condition, "type"), text(condition, "reason"));
        text(condition, "status") == "False"
            && endings.iter().any(|ending| kind.ends_with(ending))
            && !reason.ends_with(MISSING)
    };
    conditions.iter().filter(is_against).map(|condition| text(condition, "message")).collect()
}
