//! `json_query`: one value out of a document.

use serde_json::{Value, json};

use super::{Arguments, Tool, text};
use crate::server::Surroundings;

pub(super) const TOOL: Tool = Tool {
    name: "json_query",
    title: "Query JSON",
    description: "Finds the value at a JSON Pointer (RFC 6901) in a JSON document.",
    repeats: true,
    arguments: || {
        json!({
            "document": { "description": "The document: any JSON value." },
            "pointer": {
                "type": "string",
                "description": "Where the value is, such as /items/0/name. Empty for the whole document.",
            },
        })
    },
    required: &["document", "pointer"],
    output: || {
        json!({
            "found": { "type": "boolean", "description": "Whether there is a value at that place." },
            "value": { "description": "The value; null if there is none." },
        })
    },
    run,
};

fn run(arguments: &Arguments, _: &Surroundings) -> Result<Value, String> {
    let document = arguments.get("document").unwrap_or(&Value::Null);
    let pointer = text(arguments, "pointer")?.unwrap_or_default();
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(format!("`{pointer}` is not a JSON Pointer; it starts with /, as in /items/0"));
    }
    let value = document.pointer(pointer);
    Ok(json!({ "found": value.is_some(), "value": value }))
}
