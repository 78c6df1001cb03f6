//! Templates of a composite tool: they are rendered when the tool is called, and must be bounded before.

use serde_json::Value;
use skep_api::kinds::Step;

use crate::validate::Problems;

/// Checks every template of a step. Places are told from the step.
pub(super) fn all_in_step(problems: &mut Problems, step: &Step) {
    for (place, text) in
        [(".condition", &step.condition), (".message", &step.message), (".collection", &step.collection)]
    {
        problems.check(place, text.as_deref().map_or(Ok(()), skep_bounds::template));
    }
    for (name, value) in step.arguments.iter().flat_map(|arguments| &arguments.0) {
        all_in_value(problems, &format!(".arguments.{name}"), value);
    }
}

/// INVARIANT: an object is not deeper than `OBJECT_DEPTH`, so recursion ends.
fn all_in_value(problems: &mut Problems, place: &str, value: &Value) {
    match value {
        Value::String(text) => problems.check(place, skep_bounds::template(text)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, item)| all_in_value(problems, &format!("{place}[{index}]"), item)),
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| all_in_value(problems, &format!("{place}.{name}"), value));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
