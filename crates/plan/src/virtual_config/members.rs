//! Members of a configuration that do not exist, found by the schema that the definitions are made of.

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use skep_api::virtual_config::{ResolvedWebhooks, VirtualConfig};
use skep_runconfig::VirtualDocument;
use skep_runconfig::json::JsonError;

/// How many are reported.
const MOST: usize = 20;
/// How deep a configuration may be nested.
const DEPTH: usize = 64;

/// The schema of the document: that of the definitions, and what only the operator fills in.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let generator =
        || SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true).into_generator();
    let mut schema = generator().into_root_schema_for::<VirtualConfig>();
    if let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        members.insert("webhooks".to_owned(), generator().into_root_schema_for::<ResolvedWebhooks>().to_value());
    }
    schema
});

/// The places of members that do not exist, such as `backends[0].ulr`.
pub(super) fn unknown(document: &VirtualDocument) -> Result<Vec<String>, JsonError> {
    let value: Value = document.decode()?;
    let mut found = Vec::new();
    walk(&value, SCHEMA.as_value(), "", DEPTH, &mut found);
    found.truncate(MOST);
    Ok(found)
}

/// INVARIANT: the depth is bounded, so recursion ends.
fn walk(value: &Value, schema: &Value, place: &str, depth: usize, found: &mut Vec<String>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match value {
        Value::Object(members) => walk_object(members, schema, place, depth, found),
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item, schema, &format!("{place}[{index}]"), depth, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn walk_object(members: &Map<String, Value>, schema: &Value, place: &str, depth: usize, found: &mut Vec<String>) {
    let known = schema.get("properties").and_then(Value::as_object);
    // What has no list of members is free: a map, a JSON schema, arguments.
    let Some(known) = known else {
        let Some(each) = schema.get("additionalProperties").filter(|each| each.is_object()) else { return };
        for (name, value) in members {
            walk(value, each, &path(place, name), depth, found);
        }
        return;
    };
    for (name, value) in members {
        match known.get(name) {
            Some(schema) => walk(value, schema, &path(place, name), depth, found),
            None => found.push(path(place, name)),
        }
    }
}

fn path(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}
