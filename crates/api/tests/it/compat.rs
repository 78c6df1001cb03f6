//! Skep's definitions against the table of the system that it is a drop-in for: every field, default, bound, column and name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use skep_api::crd;

/// What Skep has on top: (kind, path), and everything below it.
const ADDED_FIELDS: &[(&str, &str)] = &[
    ("MCPAuthzConfig", ".status.referencingWorkloads"),
    ("MCPExternalAuthConfig", ".status.referencingWorkloads"),
    ("MCPOIDCConfig", ".status.referencingWorkloads"),
    ("MCPRemoteProxy", ".spec.webhookConfigRef"),
    ("MCPRemoteProxy", ".status.webhookConfigHash"),
    ("MCPServer", ".spec.rateLimiting.failurePolicy"),
    ("MCPServer", ".spec.rateLimiting.prompts"),
    ("MCPServer", ".spec.rateLimiting.resources"),
    ("MCPTelemetryConfig", ".status.referencingWorkloads"),
    ("MCPToolConfig", ".status.referencingWorkloads"),
    ("MCPWebhookConfig", ".status.referencingWorkloads"),
    ("VirtualMCPServer", ".spec.config.rateLimiting.failurePolicy"),
    ("VirtualMCPServer", ".spec.config.rateLimiting.prompts"),
    ("VirtualMCPServer", ".spec.config.rateLimiting.resources"),
    ("VirtualMCPServer", ".spec.webhookConfigRef"),
    ("VirtualMCPServer", ".status.webhookConfigHash"),
];

/// Values of enumerations that Skep has on top: (kind, path, value).
const ADDED_VALUES: &[(&str, &str, &str)] =
    &[("VirtualMCPServer", ".spec.config.aggregation.conflictResolution", "prefixOnConflict")];

/// MCPWebhookConfig had only v1alpha1, which was stored; Skep stores v1beta1 and serves both.
const ADDED_VERSION: (&str, &str) = ("MCPWebhookConfig", "v1beta1");

/// A rule that Skep does not have: rate limits count in memory where there is no Redis.
const DROPPED_RULE: &str = "MCPServer .spec";

type Table = BTreeMap<String, Map<String, Value>>;

#[test]
fn every_field_is_as_in_the_compatibility_table() {
    let (heads, fields) = read_table(&repository().join("compat/crds.jsonl"));
    let (our_heads, our_fields) = our_table();
    let mut differences = compare("version", &heads, &our_heads);
    differences.extend(compare("field", &fields, &our_fields));
    println!("{} versions, {} fields, {} differences", heads.len(), fields.len(), differences.len());
    assert!(fields.len() > 1500, "the table has shrunk to {} fields", fields.len());
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn the_copy_for_users_is_the_original_table() {
    let original = repository().join("../shared/compat/crds.jsonl");
    if original.exists() {
        let copy = std::fs::read_to_string(repository().join("compat/crds.jsonl")).unwrap();
        assert_eq!(std::fs::read_to_string(original).unwrap(), copy, "compat/crds.jsonl is not the original any more");
    }
}

#[test]
fn every_field_explains_itself() {
    let mut silent = Vec::new();
    for definition in crd::all().unwrap() {
        let kind = definition.spec.names.kind.clone();
        let stored = definition.spec.versions.iter().find(|version| version.storage).unwrap();
        let schema = serde_json::to_value(stored.schema.as_ref().unwrap()).unwrap();
        walk(&schema["openAPIV3Schema"], ".", &mut |path, node| {
            let element = path.ends_with("[]") || path.ends_with("{}");
            let explained = node["description"].as_str().is_some_and(|text| text.ends_with(['.', ':', ')']));
            if !element && path != ".metadata" && !explained {
                silent.push(format!("{kind} {path}"));
            }
        });
    }
    assert!(silent.is_empty(), "fields without a description that is a sentence:\n{}", silent.join("\n"));
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The table as (kind and version → names and columns, kind and version and path → the field).
fn read_table(path: &Path) -> (Table, Table) {
    let (mut heads, mut fields) = (Table::new(), Table::new());
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let mut row: Map<String, Value> = serde_json::from_str(line).unwrap();
        let kind = row["kind"].as_str().unwrap().to_owned();
        let version = row["version"].as_str().unwrap().to_owned();
        if let Some(path) = row.remove("path") {
            row.retain(|key, _| !matches!(key.as_str(), "kind" | "version"));
            let place = format!("{kind} {}", path.as_str().unwrap());
            if place == DROPPED_RULE {
                row["celRules"] = json!(row["celRules"].as_u64().unwrap() - 1);
            }
            fields.insert(place, row);
        } else {
            row.remove("fields");
            if kind == ADDED_VERSION.0 {
                row.insert("storage".into(), json!(false));
            }
            heads.insert(format!("{kind} {version}"), row);
        }
    }
    (heads, fields)
}

/// The same from our definitions; the versions of a kind must agree in every field.
fn our_table() -> (Table, Table) {
    let (mut heads, mut fields) = (Table::new(), Table::new());
    for definition in crd::all().unwrap() {
        let names = &definition.spec.names;
        let kind = names.kind.clone();
        let mut schemas = BTreeSet::new();
        for version in &definition.spec.versions {
            if (kind.as_str(), version.name.as_str()) == ADDED_VERSION {
                assert!(version.storage && version.served, "the added version is the stored one");
            } else {
                heads.insert(format!("{kind} {}", version.name), head(&definition, version));
            }
            let schema = serde_json::to_value(version.schema.as_ref().unwrap()).unwrap();
            walk(&schema["openAPIV3Schema"], ".", &mut |path, node| {
                let added = ADDED_FIELDS.iter().any(|(owner, added)| *owner == kind && path.starts_with(added));
                if !added {
                    fields.insert(format!("{kind} {path}"), without_added_values(&kind, path, field(node)));
                }
            });
            schemas.insert(schema.to_string());
        }
        assert_eq!(schemas.len(), 1, "the versions of {kind} differ in their schema");
    }
    (heads, fields)
}

/// A field without the values that Skep has on top.
fn without_added_values(kind: &str, path: &str, mut field: Map<String, Value>) -> Map<String, Value> {
    let added = ADDED_VALUES.iter().filter(|(owner, place, _)| *owner == kind && *place == path);
    for (_, _, value) in added {
        let values = field.get_mut("enum").and_then(Value::as_array_mut).expect("an enumeration");
        let count = values.len();
        values.retain(|known| known != value);
        assert_eq!(values.len(), count - 1, "{kind} {path} has no `{value}`");
    }
    field
}

fn head(
    definition: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    version: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion,
) -> Map<String, Value> {
    let names = &definition.spec.names;
    let columns: Vec<Value> = version
        .additional_printer_columns
        .iter()
        .flatten()
        .map(|column| json!({ "name": column.name, "jsonPath": column.json_path, "type": column.type_ }))
        .collect();
    let head = json!({
        "kind": names.kind,
        "group": definition.spec.group,
        "scope": definition.spec.scope,
        "plural": names.plural,
        "singular": names.singular,
        "shortNames": names.short_names,
        "categories": names.categories,
        "version": version.name,
        "served": version.served,
        "storage": version.storage,
        "deprecated": version.deprecated.unwrap_or(false),
        "subresources": version.subresources,
        "printerColumns": columns,
    });
    head.as_object().unwrap().clone()
}

/// What the table records of a schema node. `required` was noted by the walk.
fn field(node: &Value) -> Map<String, Value> {
    const KEPT: &[&str] = &[
        "type",
        "required?",
        "default",
        "enum",
        "format",
        "pattern",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "maxProperties",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
    ];
    let mut field = Map::new();
    for (key, value) in node.as_object().unwrap() {
        if KEPT.contains(&key.as_str()) {
            let key = key.trim_end_matches('?').to_owned();
            // The API server's bounds are floating point numbers; the table has whole ones.
            let whole = value.as_f64().filter(|number| number.fract() == 0.0 && key != "default");
            #[expect(clippy::cast_possible_truncation, reason = "bounds in the table are small whole numbers")]
            let value = whole.map_or_else(|| value.clone(), |number| json!(number as i64));
            field.insert(key, value);
        }
        if key == "x-kubernetes-validations" {
            field.insert("celRules".into(), json!(value.as_array().unwrap().len()));
        }
        assert!(
            KEPT.contains(&key.as_str())
                || [
                    "description",
                    "properties",
                    "items",
                    "additionalProperties",
                    "required",
                    "x-kubernetes-validations"
                ]
                .contains(&key.as_str()),
            "the schema says `{key}`, which the table does not know: {node}"
        );
    }
    field
}

/// Calls `visit` with the path and the schema of every field, `required?` added.
fn walk(node: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    fn step(node: &Value, path: &str, required: bool, visit: &mut dyn FnMut(&str, &Value)) {
        let mut noted = node.clone();
        noted["required?"] = json!(required);
        visit(path, &noted);
        let wanted: Vec<&str> = node["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, child) in node["properties"].as_object().into_iter().flatten() {
            let below = format!("{}.{name}", path.trim_end_matches('.'));
            step(child, &below, wanted.contains(&name.as_str()), visit);
        }
        for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
            if let Some(child) = node.get(key) {
                step(child, &format!("{path}{suffix}"), false, visit);
            }
        }
    }
    step(node, path, false, visit);
}

fn compare(what: &str, theirs: &Table, ours: &Table) -> Vec<String> {
    let mut differences = Vec::new();
    for (key, expected) in theirs {
        match ours.get(key) {
            None => differences.push(format!("{what} {key}: missing; expected {}", json!(expected))),
            Some(found) => {
                let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
                for name in names.into_iter().filter(|name| expected.get(*name) != found.get(*name)) {
                    let show = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
                    let (expected, found) = (show(expected.get(name)), show(found.get(name)));
                    differences.push(format!("{what} {key}: {name} is {found}, expected {expected}"));
                }
            }
        }
    }
    differences.extend(ours.keys().filter(|key| !theirs.contains_key(*key)).map(|key| format!("{what} {key}: added")));
    differences
}
