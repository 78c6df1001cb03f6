//! What a composite tool returns: members with a value or members of their own.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use skep_api::kinds::{Output, OutputProperty, OutputType};

use super::template::template;
use crate::validate::{Place, Problems};

/// How deep members may stand in each other.
const DEEPEST: usize = 10;

/// What is wrong with an output. Places are relative to the output.
pub(super) fn problems(output: &Output) -> Problems {
    let mut problems = Problems::default();
    let properties = Place::Root(".properties");
    for (name, property) in &output.properties {
        member(&mut problems, Place::Member(&properties, name), property, 1);
    }
    for name in output.required.iter().filter(|name| !output.properties.contains_key(*name)) {
        problems.add(".required", format_args!("there is no member `{name}`; add it to properties, or remove it here"));
    }
    problems
}

fn member(problems: &mut Problems, place: Place<'_>, property: &OutputProperty, depth: usize) {
    if depth > DEEPEST {
        problems.add(place, format_args!("it stands deeper than {DEEPEST} members; flatten the output"));
        return;
    }
    let description = property.description.as_deref().unwrap_or_default();
    problems.filled(format_args!("{place}.description"), description, "say what the member means");
    let value = property.value.as_deref().filter(|value| !value.is_empty());
    match (value, &property.properties) {
        (Some(_), Some(_)) => problems.add(place, "it has both value and properties; keep one of them"),
        (None, None) => {
            problems.add(place, "it has neither value nor properties; write a template that gives its value");
        }
        (None, Some(inner)) => {
            let fits = property.kind == OutputType::Object;
            problems.unless(fits, format_args!("{place}.type"), "only an object has properties; set type to `object`");
            members(problems, place, &inner.0, depth);
        }
        (Some(value), None) => problems.check(format_args!("{place}.value"), template(value)),
    }
}

fn members(problems: &mut Problems, place: Place<'_>, inner: &Map<String, Value>, depth: usize) {
    let properties = Place::Member(&place, "properties");
    let sorted: BTreeMap<&String, &Value> = inner.iter().collect();
    for (name, property) in sorted {
        let place = Place::Member(&properties, name);
        match serde_json::from_value::<OutputProperty>(property.clone()) {
            Err(problem) => problems.add(place, format_args!("it cannot be read: {problem}")),
            Ok(property) => member(problems, place, &property, depth + 1),
        }
    }
}
