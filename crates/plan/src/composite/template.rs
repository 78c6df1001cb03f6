//! Templates of a composite tool: they are rendered when the tool is called, and must be bounded and parse before.

use serde_json::Value;
use skep_api::kinds::Step;

use crate::validate::{Place, Problems};

/// A text is no template that can be rendered.
#[derive(Debug, thiserror::Error)]
pub(super) enum TemplateError {
    #[error(transparent)]
    Bounds(#[from] skep_bounds::BoundsError),
    #[error(transparent)]
    Syntax(#[from] skep_template::ParseError),
}

/// Whether a text is a template that can be rendered.
pub(super) fn template(text: &str) -> Result<(), TemplateError> {
    skep_bounds::template(text)?;
    if !text.contains("{{") {
        return Ok(());
    }
    skep_template::Template::parse(text).map(drop).map_err(TemplateError::from)
}

/// Checks every template of a step. Places are relative to the step.
pub(super) fn all_in_step(problems: &mut Problems, step: &Step) {
    for (place, text) in
        [(".condition", &step.condition), (".message", &step.message), (".collection", &step.collection)]
    {
        problems.check(place, text.as_deref().map_or(Ok(()), template));
    }
    let arguments = Place::Root(".arguments");
    for (name, value) in step.arguments.iter().flat_map(|arguments| &arguments.0) {
        all_in_value(problems, Place::Member(&arguments, name), value);
    }
}

/// INVARIANT: an object is not deeper than `OBJECT_DEPTH`, so recursion ends.
fn all_in_value(problems: &mut Problems, place: Place<'_>, value: &Value) {
    match value {
        Value::String(text) => problems.check(place, template(text)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                all_in_value(problems, Place::Element(&place, index), item);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                all_in_value(problems, Place::Member(&place, name), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
