//! The Rust types against the schemas made from them: an object with every field goes through the types unchanged.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use skep_api::resource::{KindName, Resource};

/// Values that between them match every pattern of the schemas.
const WORDS: &[&str] =
    &["https://a.example/b", "1m", "0.5", "a", "eu-west-1", "arn:aws:iam::123456789012:role/a", "a.example", "jwt"];

#[test]
fn an_object_with_every_field_goes_through_the_types_unchanged() {
    for kind in KindName::ALL {
        let schema = schema(*kind);
        // Flags that are left out when false need a true, and those that default to true a false: try both.
        for flag in [true, false] {
            let mut object = full(&schema, flag);
            let resource = Resource::from_value(*kind, object.clone()).unwrap();
            let mut back = json!({ "spec": resource.spec_value(), "status": resource.status_value() });
            object.as_object_mut().unwrap().retain(|name, _| name == "spec" || name == "status");
            if !flag {
                drop_false(&mut object);
                drop_false(&mut back);
            }
            assert_eq!(back, object, "{kind}");
        }
    }
}

fn schema(kind: KindName) -> Value {
    let definition = kind.definition().unwrap();
    let schema = serde_json::to_value(definition.spec.versions[0].schema.as_ref().unwrap()).unwrap();
    schema["openAPIV3Schema"].clone()
}

/// The spec of an object read into our types and written again.
pub(crate) fn through_types(kind: &str, object: &Value) -> Result<Value> {
    let kind = KindName::parse(kind).context("no kind of ours")?;
    Ok(Resource::from_value(kind, object.clone())?.spec_value())
}

/// A value that has everything the schema speaks of. Cross-field rules are not evaluated: they would refuse it.
fn full(schema: &Value, flag: bool) -> Value {
    if let Some(choices) = schema["enum"].as_array() {
        return choices.last().unwrap().clone();
    }
    match schema["type"].as_str() {
        Some("boolean") => json!(flag),
        // Within every bound of every integer field.
        Some("integer") => json!(schema["minimum"].as_f64().map_or(7, |least| if least > 7.0 { 900 } else { 7 })),
        Some("string") if schema["format"] == "date-time" => json!("2026-01-02T03:04:05Z"),
        Some("string") => {
            let pattern = schema["pattern"].as_str().unwrap_or(".");
            let pattern = regex::Regex::new(pattern).unwrap();
            json!(WORDS.iter().find(|word| pattern.is_match(word)).unwrap_or_else(|| panic!("no word for {pattern}")))
        }
        Some("array") => json!([full(&schema["items"], flag)]),
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let mut object: Map<String, Value> =
                fields.map(|(name, field)| (name.clone(), full(field, flag))).collect();
            if schema["x-kubernetes-preserve-unknown-fields"] == true {
                object.insert("fieldOfTomorrow".into(), json!({ "deep": [1.5, null] }));
            }
            if let Some(values) = schema.get("additionalProperties") {
                object.insert("key".into(), full(values, flag));
            }
            Value::Object(object)
        }
        _ => json!({ "anything": [1] }),
    }
}

/// Without the flags that are false: some types leave them out.
fn drop_false(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| *field != Value::Bool(false));
            fields.values_mut().for_each(drop_false);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_false),
        _ => {}
    }
}

#[test]
fn every_field_that_names_another_object_is_among_the_references() {
    for kind in KindName::ALL {
        let object = full(&schema(*kind), true);
        let declared: BTreeSet<String> = Resource::from_value(*kind, object.clone())
            .unwrap()
            .references()
            .into_iter()
            .map(|one| one.field)
            .collect();
        let mut written = BTreeSet::new();
        named_objects(&object["spec"], "spec", &mut written);
        assert_eq!(declared, written, "{kind}");
    }
}

/// The paths of all objects that name another one: fields that end in `Ref` or `Refs`, and the few that do not.
fn named_objects(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    let field = path.rsplit('.').next().unwrap_or_default();
    let list = field.trim_end_matches("[0]");
    let names_another =
        list.ends_with("Ref") || list.ends_with("Refs") || path == "spec.secrets[0]" || list == "permissionProfile";
    let inner = value.as_object().is_some_and(|fields| fields.keys().any(|key| key.ends_with("Ref")));
    if value.get("name").is_some() && (names_another || path.ends_with("authzConfig.configMap")) && !inner {
        found.insert(path.to_owned());
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| *name != "fieldOfTomorrow") {
                let below = if name == "key" { format!("{path}[key]") } else { format!("{path}.{name}") };
                named_objects(field, &below, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                named_objects(item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}
