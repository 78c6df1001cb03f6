//! The chart with the custom resource definitions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use skep_operator::rbac::{GROUP, plurals as kinds};
use skep_testkit::ControlPlane;

use crate::helm::{Objects, chart, helm, template, text};

/// Braces, which a template would take for its own, and a number that does not fit into 32 bits.
const SAMPLE: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: samples.example.com
  annotations: {a: b}
spec:
  group: example.com
  names: {kind: Sample, plural: samples}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: |
          Takes {{ .params.name }}.

          And more.
        properties:
          count: {type: integer, maximum: 9007199254740991}
";

fn files(chart: &Path) -> Vec<Value> {
    let mut files = Vec::new();
    for entry in chart.join("files/crds").read_dir().into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap());
        }
    }
    files
}

/// The chart as it is, with one more definition.
fn chart_with_sample() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for directory in ["", "templates", "files/crds"] {
        fs::create_dir_all(copy.path().join(directory)).unwrap();
        for entry in chart("skep-crds").join(directory).read_dir().into_iter().flatten() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), copy.path().join(directory).join(entry.file_name())).unwrap();
            }
        }
    }
    fs::write(copy.path().join("files/crds/sample.yaml"), SAMPLE).unwrap();
    copy
}

/// The sample, as a chart with these values renders it.
fn sample(values: &str) -> Value {
    let rendered = Objects::parse(&template(chart_with_sample().path(), values).unwrap());
    rendered.named("CustomResourceDefinition", "samples.example.com").clone()
}

#[test]
fn the_linter_is_content() {
    helm(&["lint", "--strict", chart("skep-crds").to_str().unwrap()], "").unwrap();
}

#[test]
fn every_definition_is_rendered_and_kept() {
    let chart = chart("skep-crds");
    let rendered = Objects::parse(&template(&chart, "").unwrap());
    assert_eq!(rendered.0.len(), files(&chart).len());
    for definition in &rendered.0 {
        assert_eq!(definition["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
}

#[test]
fn definitions_and_permissions_are_about_the_same_kinds() {
    let files = files(&chart("skep-crds"));
    let plurals: BTreeSet<_> = files.iter().map(|file| text(file, "/spec/names/plural")).collect();
    assert_eq!(plurals, kinds().into_iter().collect());
    assert!(files.iter().all(|file| file["spec"]["group"] == GROUP));
}

#[test]
fn a_definition_is_rendered_as_it_is_in_its_file() {
    let file: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    assert_eq!(sample("{crds: {keep: false}}"), file);

    let mut kept = sample("");
    let annotations = kept["metadata"]["annotations"].as_object_mut().unwrap();
    assert_eq!(annotations.remove("helm.sh/resource-policy"), Some("keep".into()));
    assert_eq!(kept, file);
}

#[tokio::test]
async fn the_api_server_accepts_every_definition() {
    let plane = ControlPlane::shared().await.unwrap();
    let manifests = template(chart_with_sample().path(), "").unwrap();
    let arguments = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-"];
    let applied = plane.kubectl_with_input(&arguments, &manifests).await.unwrap().success().unwrap();
    assert_eq!(applied.lines().count(), Objects::parse(&manifests).0.len());
}

#[test]
fn definitions_can_be_left_out() {
    let chart = chart_with_sample();
    assert!(Objects::parse(&template(chart.path(), "{crds: {install: false}}").unwrap()).0.is_empty());
}

#[test]
fn a_broken_definition_is_refused_with_its_path() {
    let chart = chart_with_sample();
    fs::write(chart.path().join("files/crds/broken.yaml"), "a: [").unwrap();
    let message = template(chart.path(), "").unwrap_err();
    assert!(message.contains("files/crds/broken.yaml is not valid YAML"), "{message}");
}
