//! The tools: one table, one file each.

mod calculate;
mod json_query;
mod text_statistics;
mod time;
mod uuid;

use serde_json::{Map, Value, json};

use crate::server::Surroundings;

/// Every tool, in the order in which they are listed.
pub(crate) const TOOLS: &[Tool] = &[calculate::TOOL, json_query::TOOL, text_statistics::TOOL, time::TOOL, uuid::TOOL];

/// The arguments of a call.
type Arguments = Map<String, Value>;

/// A tool. None of them changes anything or reaches beyond this process.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// Whether the same arguments always give the same result.
    repeats: bool,
    /// Schemas of the arguments, by name.
    arguments: fn() -> Value,
    /// The required arguments.
    required: &'static [&'static str],
    /// Schemas of the output, by name. All of it is always present.
    output: fn() -> Value,
    run: fn(&Arguments, &Surroundings) -> Result<Value, String>,
}

/// The list of tools, as clients read it.
pub(crate) fn list() -> Vec<Value> {
    TOOLS.iter().map(Tool::describe).collect()
}

/// The tool of a name.
pub(crate) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

// === impl Tool ===

impl Tool {
    /// Runs the tool. The error says what is wrong with the arguments.
    pub(crate) fn call(&self, arguments: &Arguments, surroundings: &Surroundings) -> Result<Value, String> {
        let known = (self.arguments)();
        if let Some(unknown) = arguments.keys().find(|name| known.get(name.as_str()).is_none()) {
            let names: Vec<&str> = known.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            return Err(format!("`{unknown}` is not an argument of `{}`; it takes {}", self.name, names.join(", ")));
        }
        if let Some(missing) = self.required.iter().find(|name| !arguments.contains_key(**name)) {
            return Err(format!("the argument `{missing}` is missing"));
        }
        (self.run)(arguments, surroundings)
    }

    fn describe(&self) -> Value {
        let output = (self.output)();
        let always: Vec<&String> = output.as_object().into_iter().flatten().map(|(name, _)| name).collect();
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": (self.arguments)(),
                "required": self.required,
                "additionalProperties": false,
            },
            "outputSchema": { "type": "object", "properties": output, "required": always },
            "annotations": {
                "title": self.title,
                "readOnlyHint": true,
                "destructiveHint": false,
                "idempotentHint": self.repeats,
                "openWorldHint": false,
            },
        })
    }
}

/// A string among the arguments, if present.
fn text<'a>(arguments: &'a Arguments, name: &str) -> Result<Option<&'a str>, String> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("the argument `{name}` must be a string")),
    }
}

#[cfg(test)]
mod tests;
