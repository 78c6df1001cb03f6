//! The arguments of a step: templates rendered, and what they come to made to fit the schema of the tool.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use skep_template::{RenderLimits, Template};

use super::StepError;
use super::definition::ToolCall;

// === impl ToolCall ===

impl ToolCall {
    /// The arguments for one call.
    pub(super) fn arguments(&self, data: &Value, schema: Option<&Value>) -> Result<Map<String, Value>, StepError> {
        let mut rendered = Map::new();
        for (name, value) in &self.arguments {
            let place = format!("arguments.{name}");
            rendered.insert(name.clone(), render(&place, value, &self.templates, data)?);
        }
        match schema {
            None => Ok(rendered),
            Some(schema) => match coerced(Value::Object(rendered), schema) {
                Value::Object(arguments) => Ok(arguments),
                _ => Ok(Map::new()),
            },
        }
    }
}

/// The value of a template as text.
pub(super) fn render_text(place: &str, template: &Template, data: &Value) -> Result<String, StepError> {
    let rendered = template.render(data, RenderLimits::default());
    rendered.map_err(|error| StepError::Template { place: place.to_owned(), problem: error.to_string() })
}

/// Whether a condition holds. It must say so exactly.
pub(super) fn holds(template: &Template, data: &Value) -> Result<bool, StepError> {
    let text = render_text("condition", template, data)?;
    match text.trim() {
        "true" | "True" | "TRUE" => Ok(true),
        "false" | "False" | "FALSE" => Ok(false),
        other => {
            let shown = skep_mcp::value::clipped(other);
            let problem = format!("condition must evaluate to 'true' or 'false', got: \"{shown}\"");
            Err(StepError::Template { place: "condition".to_owned(), problem })
        }
    }
}

/// INVARIANT: a definition is not deeper than its parser allows, so recursion ends.
fn render(
    place: &str,
    value: &Value,
    templates: &BTreeMap<String, Template>,
    data: &Value,
) -> Result<Value, StepError> {
    Ok(match value {
        Value::String(text) => match templates.get(text) {
            Some(template) => Value::String(render_text(place, template, data)?),
            None => value.clone(),
        },
        Value::Array(items) => {
            let items = items.iter().map(|item| render(place, item, templates, data));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, value)| Ok((name.clone(), render(place, value, templates, data)?)));
            Value::Object(members.collect::<Result<_, StepError>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

/// A value in the type that a schema wants, where a text can be read as one; else it stays as it is. INVARIANT: recursion follows the value,
/// which is bounded in depth.
pub(super) fn coerced(value: Value, schema: &Value) -> Value {
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    match (value, kind) {
        (Value::String(text), "integer") => integer(&text).map_or(Value::String(text), Value::Number),
        (Value::String(text), "number") => number(&text).map_or(Value::String(text), Value::Number),
        (Value::String(text), "boolean") => match text.trim() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => Value::String(text),
        },
        (Value::String(text), "object" | "array") => {
            let parsed = skep_bounds::json(&text).ok().and_then(|()| serde_json::from_str::<Value>(&text).ok());
            match parsed.filter(|parsed| parsed.is_object() || parsed.is_array()) {
                Some(parsed) => coerced(parsed, schema),
                None => Value::String(text),
            }
        }
        (Value::Object(members), _) => {
            let of = |name: &str| schema.get("properties").and_then(|properties| properties.get(name));
            let members = members.into_iter().map(|(name, value)| {
                let value = match of(&name) {
                    Some(schema) => coerced(value, schema),
                    None => value,
                };
                (name, value)
            });
            Value::Object(members.collect())
        }
        (Value::Array(items), _) => match schema.get("items") {
            Some(schema) => Value::Array(items.into_iter().map(|item| coerced(item, schema)).collect()),
            None => Value::Array(items),
        },
        (value, _) => value,
    }
}

fn number(text: &str) -> Option<Number> {
    serde_json::from_str(text.trim()).ok()
}

/// A whole number, also one that is written as `3.0` or `1e3`.
fn integer(text: &str) -> Option<Number> {
    let number = number(text)?;
    if number.is_i64() || number.is_u64() {
        return Some(number);
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0)?;
    format!("{float:.0}").parse::<i64>().ok().map(Number::from)
}
