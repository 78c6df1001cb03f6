//! `MCPAuthzConfig`: an engine that is known, and a configuration that it accepts.

use serde_json::Value;
use skep_api::kinds::MCPAuthzConfigSpec;

use super::Problems;
use crate::world::Policies;

/// The authorization engines.
const ENGINES: &[&str] = &["cedarv1", "httpv1"];

pub(super) fn problems(spec: &MCPAuthzConfigSpec, policies: &dyn Policies) -> Problems {
    let mut problems = Problems::default();
    if !ENGINES.contains(&spec.engine.as_str()) {
        let known = ENGINES.join("` or `");
        problems.add("spec.type", format_args!("there is no engine `{}`; choose `{known}`", spec.engine));
    } else if spec.config.0.is_empty() {
        problems.add("spec.config", format_args!("it is empty; write the configuration of `{}`", spec.engine));
    } else {
        problems.check("spec.config", policies.check(&spec.engine, &Value::Object(spec.config.0.clone())));
    }
    problems
}
