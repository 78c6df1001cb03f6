//! `uuid`: unique identifiers.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Arguments, Tool, text};
use crate::server::Surroundings;

/// The maximum per call.
const MOST: u64 = 100;

pub(super) const TOOL: Tool = Tool {
    name: "uuid",
    title: "Make UUIDs",
    description: "Makes random UUIDs (version 4), or the one UUID that belongs to a domain name (version 5).",
    repeats: false,
    arguments: || {
        json!({
            "count": { "type": "integer", "minimum": 1, "maximum": MOST, "default": 1, "description": "How many." },
            "name": { "type": "string", "description": "A domain name. The same name always gives the same UUID." },
        })
    },
    required: &[],
    output: || json!({ "uuids": { "type": "array", "items": { "type": "string", "format": "uuid" }, "description": "The UUIDs." } }),
    run,
};

fn run(arguments: &Arguments, surroundings: &Surroundings) -> Result<Value, String> {
    let name = text(arguments, "name")?;
    let count = count(arguments)?;
    let uuids: Vec<String> = match name {
        Some(_) if count.is_some() => return Err("a `name` has one UUID: leave `count` out".to_owned()),
        Some(name) => vec![Uuid::new_v5(&Uuid::NAMESPACE_DNS, name.as_bytes()).to_string()],
        None => (0..count.unwrap_or(1)).map(|_| (surroundings.uuid)().to_string()).collect(),
    };
    Ok(json!({ "uuids": uuids }))
}

fn count(arguments: &Arguments) -> Result<Option<u64>, String> {
    let Some(count) = arguments.get("count").filter(|count| !count.is_null()) else { return Ok(None) };
    let count = count.as_u64().filter(|count| (1..=MOST).contains(count));
    count.map(Some).ok_or_else(|| format!("the argument `count` must be a whole number from 1 to {MOST}"))
}
