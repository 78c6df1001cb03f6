//! From Rust types to structural schemas: what serde and schemars know, said the way the API server wants it.
//!
//! `schemars` describes a Rust type; Kubernetes wants a *structural schema*: one type per node, no `null`, no references, lists
//! that say how they merge. [`structural`] makes one from the other. The rest are the transforms with which the types of this
//! crate add what a Rust type cannot say: [`atomic`], [`set`], [`map_by`], [`rules`], [`Object`], [`Any`].

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::transform::Transform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// One cross-field rule, in the Common Expression Language that the API server runs, and its message for the user.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The expression; `self` is the object it stands on.
    pub cel: &'static str,
    /// What is wrong and what to do, shown when the expression is false.
    pub message: &'static str,
}

/// A JSON object of another schema: kept as it is, unknown fields included.
///
/// Embedded Kubernetes objects (`podTemplateSpec`), JSON Schemas and the arguments of tools travel in it untouched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Object(pub Map<String, Value>);

/// Any JSON value, kept as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Any(pub Value);

/// The structural schema of a Rust type.
pub fn structural<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    normalise(&mut schema);
    schema
}

/// Rules that the API server checks whenever the object is written.
pub(crate) fn rules(rules: &'static [Rule]) -> impl Transform {
    move |schema: &mut Schema| {
        let rules: Vec<Value> = rules.iter().map(|rule| json!({ "rule": rule.cel, "message": rule.message })).collect();
        schema.insert("x-kubernetes-validations".into(), Value::Array(rules));
    }
}

/// A list that a field manager replaces as a whole.
pub(crate) fn atomic(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".into(), json!("atomic"));
}

/// A list of distinct scalars, merged by value.
pub(crate) fn set(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".into(), json!("set"));
}

/// A list of objects, merged by the value of `key`.
pub(crate) fn map_by(key: &'static str) -> impl Transform {
    move |schema: &mut Schema| {
        schema.insert("x-kubernetes-list-type".into(), json!("map"));
        schema.insert("x-kubernetes-list-map-keys".into(), json!([key]));
    }
}

/// An object that a field manager replaces as a whole.
pub(crate) fn atomic_object(schema: &mut Schema) {
    schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
}

/// Fields that the schema does not know are kept instead of pruned.
pub(crate) fn keep_unknown(schema: &mut Schema) {
    schema.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
}

/// A bound on every value of a map, which `inner(…)` only puts on the elements of a list.
pub(crate) fn each_value(bound: &'static str, value: impl Into<Value>) -> impl Transform {
    let value = value.into();
    move |schema: &mut Schema| {
        if let Some(Value::Object(values)) = schema.get_mut("additionalProperties") {
            values.insert(bound.into(), value.clone());
        }
    }
}

/// A whole number of no declared width.
pub(crate) fn unsized_integer(schema: &mut Schema) {
    schema.remove("format");
}

/// True for `false`, so that an optional flag without a default stays out of serialised objects.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !*flag
}

// === impl Object, Any ===

impl JsonSchema for Object {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Object".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}

impl JsonSchema for Any {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Any".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
    }
}

// === the walk from schemars' dialect to the API server's ===

/// Rewrites one schema and everything below it. Total: a node that is not understood is left for the API server to refuse.
fn normalise(schema: &mut Value) {
    let Some(node) = schema.as_object_mut() else { return };
    unwrap_option(node);
    collect_variants(node);
    if let Some(Value::Array(types)) = node.get("type") {
        let single = types.iter().find(|kind| *kind != "null").cloned();
        if let Some(single) = single {
            node.insert("type".into(), single);
        }
    }
    if node.get("default").is_some_and(Value::is_null) {
        node.remove("default");
    }
    node.remove("title");
    node.remove("$schema");
    if node.get("additionalProperties").is_some_and(Value::is_boolean) {
        node.remove("additionalProperties");
    }
    if let Some(Value::Object(properties)) = node.get_mut("properties") {
        properties.values_mut().for_each(normalise);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = node.get_mut(inner) {
            normalise(inner);
        }
    }
    if let Some(Value::Array(required)) = node.get_mut("required") {
        required.sort_by(|left, right| left.as_str().cmp(&right.as_str()));
    }
}

/// `Option<T>` arrives as "T or null"; an absent field is how Kubernetes says null.
fn unwrap_option(node: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = node.get("anyOf") else { return };
    let mut present = choices.iter().filter(|choice| choice.get("type") != Some(&json!("null")));
    let (Some(Value::Object(inner)), None) = (present.next(), present.next()) else { return };
    let inner = inner.clone();
    node.remove("anyOf");
    for (key, value) in inner {
        // The field's own description, default and rules win over those of its type.
        node.entry(key).or_insert(value);
    }
}

/// An enum whose variants are documented arrives as a choice of constants; Kubernetes wants one list.
fn collect_variants(node: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = node.get("oneOf") else { return };
    let mut values = Vec::new();
    for choice in choices {
        match (choice.get("const"), choice.get("enum")) {
            (Some(constant), _) => values.push(constant.clone()),
            (None, Some(Value::Array(several))) => values.extend(several.iter().cloned()),
            _ => return,
        }
    }
    node.remove("oneOf");
    node.insert("type".into(), json!("string"));
    node.insert("enum".into(), Value::Array(values));
}
