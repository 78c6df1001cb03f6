//! `docs/api.md`: every kind and every field, from the definitions.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use serde_json::{Map, Value};

const HEAD: &str = "\
<!-- Written by `cargo xtask gen` from crates/api. Do not edit. -->
# API reference

Every kind of the API group `toolhive.stacklok.dev`, with every field. The same texts are what `kubectl explain` says.

In a path, `[]` stands for the elements of a list and `{}` for the values of a map. **Bold** fields are required where the object around
them is there. Conditions are those of Kubernetes (`type`, `status`, `reason`, `message`, `lastTransitionTime`, `observedGeneration`).
";

/// The whole page.
pub(super) fn page(definitions: &[CustomResourceDefinition]) -> Result<String> {
    let mut page = String::from(HEAD);
    writeln!(page, "\n| kind | what it is | short names |\n| --- | --- | --- |")?;
    for definition in definitions {
        let names = &definition.spec.names;
        let about = stored(definition)?.1.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        let anchor = names.kind.to_lowercase();
        writeln!(page, "| [{}](#{anchor}) | {about} | {} |", names.kind, short_names(definition))?;
    }
    for definition in definitions {
        kind(&mut page, definition)?;
    }
    Ok(page)
}

fn kind(page: &mut String, definition: &CustomResourceDefinition) -> Result<()> {
    let (version, schema) = stored(definition)?;
    let text = |node: &Value| node.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    writeln!(page, "\n## {}\n\n{}\n", definition.spec.names.kind, text(&schema))?;
    if let Some(warning) = &version.deprecation_warning {
        writeln!(page, "**Deprecated.** {warning}.\n")?;
    }
    let served: Vec<String> = definition
        .spec
        .versions
        .iter()
        .map(|version| {
            let state = if version.storage {
                " (stored)"
            } else if version.deprecated == Some(true) {
                " (deprecated)"
            } else {
                ""
            };
            format!("`{}`{state}", version.name)
        })
        .collect();
    let columns: Vec<&str> =
        version.additional_printer_columns.iter().flatten().map(|column| column.name.as_str()).collect();
    writeln!(page, "Versions: {}. `kubectl get` shows: {}.", served.join(", "), columns.join(", "))?;

    let mut rules = Vec::new();
    for part in ["spec", "status"] {
        let Some(node) = schema.get("properties").and_then(|properties| properties.get(part)) else { continue };
        writeln!(
            page,
            "\n### {} {part}\n\n| field | type | default | meaning |\n| --- | --- | --- | --- |",
            definition.spec.names.kind
        )?;
        fields(page, node, "", &mut rules)?;
    }
    if !rules.is_empty() {
        writeln!(page, "\nRules that the API server checks:\n")?;
        for (path, message) in rules {
            writeln!(page, "- {}{message}", if path.is_empty() { String::new() } else { format!("`{path}`: ") })?;
        }
    }
    Ok(())
}

/// The rows of everything below `node`; rules are collected on the way.
fn fields(page: &mut String, node: &Value, path: &str, rules: &mut Vec<(String, String)>) -> Result<()> {
    for rule in node.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
        let message = rule.get("message").and_then(Value::as_str).unwrap_or_default();
        rules.push((path.to_owned(), message.to_owned()));
    }
    let required: Vec<&str> = strings(node, "required").collect();
    for (name, child) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        row(page, child, &below, required.contains(&name.as_str()))?;
        if name != "conditions" {
            descend(page, child, &below, rules)?;
        }
    }
    Ok(())
}

fn descend(page: &mut String, node: &Value, path: &str, rules: &mut Vec<(String, String)>) -> Result<()> {
    fields(page, node, path, rules)?;
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(child) = node.get(key) {
            descend(page, child, &format!("{path}{suffix}"), rules)?;
        }
    }
    Ok(())
}

fn row(page: &mut String, node: &Value, path: &str, required: bool) -> Result<()> {
    let object = node.as_object().context("a schema is not an object")?;
    let field = if required { format!("**`{path}`**") } else { format!("`{path}`") };
    let default = object.get("default").map_or_else(String::new, |value| format!("`{}`", shown(value)));
    let meaning = object.get("description").and_then(Value::as_str).unwrap_or_default();
    let bounds = bounds(object);
    let bounds = if bounds.is_empty() { String::new() } else { format!(" {bounds}.") };
    writeln!(page, "| {field} | {} | {default} | {}{} |", kind_of(object), cell(meaning), cell(&bounds))?;
    Ok(())
}

fn kind_of(node: &Map<String, Value>) -> String {
    let inner = |key: &str| node.get(key).and_then(Value::as_object).map(kind_of);
    match node.get("type").and_then(Value::as_str) {
        Some("array") => format!("list of {}", inner("items").unwrap_or_else(|| "any".into())),
        Some("object") => {
            inner("additionalProperties").map_or_else(|| "object".into(), |values| format!("map of {values}"))
        }
        Some(kind) => kind.to_owned(),
        None => "any".to_owned(),
    }
}

/// The constraints that the schema puts on a value, as text.
fn bounds(node: &Map<String, Value>) -> String {
    let number = |key: &str| node.get(key).and_then(Value::as_f64);
    let mut bounds = Vec::new();
    if let Some(Value::Array(choices)) = node.get("enum") {
        let choices: Vec<String> = choices.iter().map(|choice| format!("`{}`", shown(choice))).collect();
        bounds.push(format!("One of {}", choices.join(", ")));
    }
    for (least, most, what) in [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
        ("minProperties", "maxProperties", " entries"),
    ] {
        match (number(least), number(most)) {
            (Some(least), Some(most)) => bounds.push(format!("{least} to {most}{what}")),
            (Some(least), None) => bounds.push(format!("At least {least}{what}")),
            (None, Some(most)) => bounds.push(format!("At most {most}{what}")),
            (None, None) => {}
        }
    }
    if let Some(Value::String(pattern)) = node.get("pattern") {
        bounds.push(format!("Pattern `{pattern}`"));
    }
    bounds.join("; ")
}

fn stored(definition: &CustomResourceDefinition) -> Result<(&CustomResourceDefinitionVersion, Value)> {
    let version = definition.spec.versions.iter().find(|version| version.storage).context("no version is stored")?;
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    Ok((version, serde_json::to_value(schema)?))
}

fn short_names(definition: &CustomResourceDefinition) -> String {
    let names: Vec<String> =
        definition.spec.names.short_names.iter().flatten().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn strings<'a>(node: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    node.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Text that can stand in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
