//! What a composite tool returns.

use serde_json::{Map, Value, json};
use skep_api::kinds::OutputType;

use super::arguments::{coerced, render_text};
use super::definition::{Output, Property};

/// What templates write where there is no value.
const NO_VALUE: &str = "<no value>";

// === impl Output ===

impl Output {
    /// The result of a workflow whose templates see these data.
    pub(super) fn of(&self, data: &Value) -> Result<Value, String> {
        let mut result = Map::new();
        for (name, property) in &self.properties {
            let value = property.of(name, data)?;
            if value.is_null() && self.required.contains(name) {
                return Err(format!("required member `{name}` has no value"));
            }
            result.insert(name.clone(), value);
        }
        Ok(Value::Object(result))
    }
}

// === impl Property ===

impl Property {
    fn of(&self, place: &str, data: &Value) -> Result<Value, String> {
        if self.value.is_none() {
            let mut members = Map::new();
            for (name, member) in &self.members {
                members.insert(name.clone(), member.of(&format!("{place}.{name}"), data)?);
            }
            return Ok(Value::Object(members));
        }
        match self.rendered(place, data) {
            Ok(value) => Ok(value),
            Err(problem) => self.default.clone().ok_or(problem),
        }
    }

    fn rendered(&self, place: &str, data: &Value) -> Result<Value, String> {
        let Some(template) = &self.value else { return Ok(Value::Null) };
        let text = render_text(place, template, data).map_err(|error| error.to_string())?;
        if text == NO_VALUE {
            return Err(format!("{place}: the template has no value"));
        }
        let kind = name(self.kind);
        let value = coerced(Value::String(text), &json!({ "type": kind }));
        let fits = match self.kind {
            OutputType::String => value.is_string(),
            OutputType::Integer | OutputType::Number => value.is_number(),
            OutputType::Boolean => value.is_boolean(),
            OutputType::Object => value.is_object(),
            OutputType::Array => value.is_array(),
        };
        if fits { Ok(value) } else { Err(format!("{place}: the value is not of type {kind}")) }
    }
}

/// The name of a type in a schema.
pub(super) fn name(kind: OutputType) -> &'static str {
    match kind {
        OutputType::String => "string",
        OutputType::Integer => "integer",
        OutputType::Number => "number",
        OutputType::Boolean => "boolean",
        OutputType::Object => "object",
        OutputType::Array => "array",
    }
}
