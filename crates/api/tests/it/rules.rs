//! Every cross-field rule, both ways, put to a real API server and to the offline admission.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::api::{Api, DynamicObject, PostParams};
use kube::discovery::ApiResource;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use skep_api::admission::Admission;
use skep_api::{crd, manifest};

use crate::plane::plane;

#[derive(Deserialize)]
struct Table {
    bases: BTreeMap<String, Base>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Base {
    kind: String,
    spec: Value,
}

#[derive(Deserialize)]
struct Row {
    rule: String,
    at: Vec<String>,
    accepted: Value,
    refused: Value,
}

/// One row at one place.
struct Case {
    kind: String,
    path: String,
    message: String,
    accepted: Value,
    refused: Value,
}

#[test]
fn every_rule_of_every_definition_has_a_row() {
    let covered: BTreeSet<(String, String)> = cases().into_iter().map(|case| (case.kind, case.message)).collect();
    let missing: Vec<_> = all_rules().into_iter().filter(|rule| !covered.contains(rule)).collect();
    assert!(missing.is_empty(), "rules without a row in rules.yaml: {missing:#?}");
    println!("{} rules, {} rows at their places", covered.len(), cases().len());
}

#[tokio::test]
async fn the_api_server_enforces_every_rule_and_says_what_to_do() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("rules").await?;
    let client = plane.client()?;
    let mut wrong = Vec::new();
    for case in cases() {
        let plural = plural(&case.kind);
        let resource = ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk(crd::GROUP, crd::STORED_VERSION, &case.kind),
            &plural,
        );
        let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        if let Err(error) = objects.create(&dry_run, &serde_json::from_value(case.accepted.clone())?).await {
            wrong.push(format!("{} should be accepted: {error}\n{}", case.message, case.accepted));
        }
        match objects.create(&dry_run, &serde_json::from_value(case.refused.clone())?).await {
            Err(kube::Error::Api(status)) if status.message.contains(&case.message) => {
                if !status.message.contains(&case.path) {
                    wrong.push(format!("{} should name {}", status.message, case.path));
                }
            }
            other => wrong.push(format!("should be refused with `{}`, but: {other:?}\n{}", case.message, case.refused)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

#[test]
fn offline_admission_enforces_every_rule_with_the_same_message() {
    let admission = Admission::new().unwrap();
    let mut wrong = Vec::new();
    for case in cases() {
        if let Err(problems) = admission.admit(&case.accepted) {
            wrong.push(format!("{} should be accepted: {problems:?}", case.message));
        }
        let problems = admission.admit(&case.refused).err().unwrap_or_default();
        if !problems.iter().any(|problem| problem.message.contains(&case.message)) {
            wrong.push(format!("should be refused with `{}`, but: {problems:?}\n{}", case.message, case.refused));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn cases() -> Vec<Case> {
    let table = manifest::parse(include_str!("rules.yaml")).unwrap().remove(0);
    let table: Table = serde_json::from_value(table).unwrap();
    let rules = all_rules();
    let mut cases = Vec::new();
    for row in &table.rows {
        for at in &row.at {
            let (base, place) = at.split_once('/').unwrap_or((at, ""));
            let Base { kind, spec } = &table.bases[base];
            let mut messages = rules.iter().filter(|(owner, message)| owner == kind && message.starts_with(&row.rule));
            let (_, message) = messages.next().unwrap_or_else(|| panic!("{kind} has no rule `{}`", row.rule));
            let object = |patch: &Value| {
                let patch = place
                    .split('/')
                    .rev()
                    .filter(|name| !name.is_empty())
                    .fold(patch.clone(), |patch, name| json!({ name: patch }));
                let mut spec = spec.clone();
                merge(&mut spec, &patch);
                json!({
                    "apiVersion": format!("{}/{}", crd::GROUP, crd::STORED_VERSION),
                    "kind": kind,
                    "metadata": { "name": "row" },
                    "spec": spec,
                })
            };
            cases.push(Case {
                kind: kind.clone(),
                path: std::iter::once("spec")
                    .chain(place.split('/').filter(|name| !name.is_empty()))
                    .collect::<Vec<_>>()
                    .join("."),
                message: message.clone(),
                accepted: object(&row.accepted),
                refused: object(&row.refused),
            });
        }
    }
    cases
}

/// Every rule as (kind, message).
fn all_rules() -> BTreeSet<(String, String)> {
    fn collect(node: &Value, kind: &str, rules: &mut BTreeSet<(String, String)>) {
        for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
            rules.insert((kind.to_owned(), rule["message"].as_str().unwrap().to_owned()));
        }
        for child in node["properties"].as_object().into_iter().flat_map(Map::values) {
            collect(child, kind, rules);
        }
        for child in ["items", "additionalProperties"].iter().filter_map(|name| node.get(*name)) {
            collect(child, kind, rules);
        }
    }
    let mut rules = BTreeSet::new();
    for definition in crd::all().unwrap() {
        for version in &definition.spec.versions {
            let schema = serde_json::to_value(version.schema.as_ref().unwrap()).unwrap();
            collect(&schema["openAPIV3Schema"], &definition.spec.names.kind, &mut rules);
        }
    }
    rules
}

fn plural(kind: &str) -> String {
    let definitions = crd::all().unwrap();
    definitions.iter().find(|definition| definition.spec.names.kind == kind).unwrap().spec.names.plural.clone()
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name.as_str()], value);
        }
    }
}
