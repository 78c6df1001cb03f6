//! The chart's values, its schema, its documentation and its generated file say the same.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use skep_operator::rbac;

use crate::helm::{chart, repository};

/// Values that have no default: absent means something of its own, or nothing at all.
const WITHOUT_DEFAULT: &[&str] = &[
    "global",
    "operator.autoscaling.targetMemoryUtilizationPercentage",
    "operator.features.experimental",
    "operator.gc",
    "operator.podDisruptionBudget.maxUnavailable",
    "operator.podDisruptionBudget.minAvailable",
];

fn read(path: &str) -> String {
    fs::read_to_string(chart("skep").join(path)).unwrap()
}

/// Dotted paths of the values that the schema describes, down to lists, scalars and free objects.
fn described(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    match schema.get("properties").and_then(Value::as_object) {
        Some(properties) => {
            for (name, property) in properties {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                assert!(property["description"].is_string(), "{path} has no description");
                described(property, &path, found);
            }
        }
        None => assert!(found.insert(path.to_owned())),
    }
}

#[test]
fn the_rules_in_the_chart_are_the_generated_ones() {
    let stale = read("templates/_rbac.tpl") != rbac::helm_template();
    assert!(!stale, "charts/skep/templates/_rbac.tpl is not what the table says: run `cargo xtask gen`");
}

#[test]
fn every_value_is_described_has_a_default_and_is_documented() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let defaults: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let documentation = fs::read_to_string(repository().join("docs/charts.md")).unwrap();
    let mut paths = BTreeSet::new();
    described(&schema, "", &mut paths);
    assert!(paths.len() > 50);
    for path in paths {
        let has_default = defaults.pointer(&format!("/{}", path.replace('.', "/"))).is_some();
        assert_eq!(has_default, !WITHOUT_DEFAULT.contains(&path.as_str()), "{path}");
        assert!(documentation.contains(&format!("`{path}`")), "{path} is not in docs/charts.md");
    }
}

#[test]
fn versions_of_charts_and_images_are_that_of_the_workspace() {
    let version = env!("CARGO_PKG_VERSION");
    for name in ["skep", "skep-crds"] {
        let text = fs::read_to_string(chart(name).join("Chart.yaml")).unwrap();
        let chart: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!((&chart["version"], &chart["appVersion"]), (&version.into(), &version.into()), "{name}");
    }
    let defaults: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    for name in ["image", "toolhiveRunnerImage", "vmcpImage"] {
        assert_eq!(defaults["operator"][name], format!("localhost/skep:{version}"), "{name}");
    }
}
