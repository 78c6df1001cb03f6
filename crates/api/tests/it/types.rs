//! The Rust types against the schemas made from them: an object with every field goes through the types unchanged.

use anyhow::Result;
use serde_json::{Map, Value, json};
use skep_api::crd;
use skep_api::custom::{Custom, Kind};
use skep_api::kinds::{
    CompositeTool, EmbeddingServerSpec, MCPAuthzConfigSpec, MCPExternalAuthConfigSpec, MCPGroupSpec, MCPOIDCConfigSpec,
    MCPRegistrySpec, MCPRemoteProxySpec, MCPServerEntrySpec, MCPServerSpec, MCPTelemetryConfigSpec, MCPToolConfigSpec,
    MCPWebhookConfigSpec, VirtualMCPServerSpec,
};

/// Values that between them match every pattern of the schemas.
const WORDS: &[&str] =
    &["https://a.example/b", "1m", "0.5", "a", "eu-west-1", "arn:aws:iam::123456789012:role/a", "a.example", "jwt"];

#[test]
fn an_object_with_every_field_goes_through_the_types_unchanged() {
    for definition in crd::all().unwrap() {
        let kind = definition.spec.names.kind.as_str();
        let schema = serde_json::to_value(definition.spec.versions[0].schema.as_ref().unwrap()).unwrap();
        // Booleans that are left out when false need a true, and those that default to true a false: try both.
        for flag in [true, false] {
            let mut object = full(&schema["openAPIV3Schema"], flag);
            object["apiVersion"] = json!(format!("{}/{}", crd::GROUP, crd::STORED_VERSION));
            object["kind"] = json!(kind);
            object["metadata"] = json!({ "name": "full" });
            let mut back = through_types(kind, &object).unwrap();
            if !flag {
                drop_false(&mut object);
                drop_false(&mut back);
            }
            assert_eq!(back, object, "{kind}");
        }
    }
}

/// An object read into our types and written again.
pub(crate) fn through_types(kind: &str, object: &Value) -> Result<Value> {
    fn through<S: Kind>(object: &Value) -> Result<Value> {
        Ok(serde_json::to_value(serde_json::from_value::<Custom<S>>(object.clone())?)?)
    }
    match kind {
        "EmbeddingServer" => through::<EmbeddingServerSpec>(object),
        "MCPAuthzConfig" => through::<MCPAuthzConfigSpec>(object),
        "MCPExternalAuthConfig" => through::<MCPExternalAuthConfigSpec>(object),
        "MCPGroup" => through::<MCPGroupSpec>(object),
        "MCPOIDCConfig" => through::<MCPOIDCConfigSpec>(object),
        "MCPRegistry" => through::<MCPRegistrySpec>(object),
        "MCPRemoteProxy" => through::<MCPRemoteProxySpec>(object),
        "MCPServer" => through::<MCPServerSpec>(object),
        "MCPServerEntry" => through::<MCPServerEntrySpec>(object),
        "MCPTelemetryConfig" => through::<MCPTelemetryConfigSpec>(object),
        "MCPToolConfig" => through::<MCPToolConfigSpec>(object),
        "MCPWebhookConfig" => through::<MCPWebhookConfigSpec>(object),
        "VirtualMCPCompositeToolDefinition" => through::<CompositeTool>(object),
        "VirtualMCPServer" => through::<VirtualMCPServerSpec>(object),
        other => anyhow::bail!("`{other}` is no kind of ours"),
    }
}

/// A value that has everything the schema speaks of. Cross-field rules are not asked: they would forbid it.
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
