//! What the original makes of 17 manifests, against what this operator makes of them on the same kind of API server.
//!
//! Every path that differs must be known: [`KNOWN`] names it by the line of `docs/differences.md` that explains it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use skep_plan::child::ChildKind;

use crate::helm::repository;
use crate::running::{Running, operator};

/// Differences that are meant: where (kind and path, `*` for anything), and the key in `docs/differences.md` that explains it.
const KNOWN: &[(&str, &str)] = &[
    ("* metadata.labels.toolhive.stacklok.io/managed-by", "managed-by"),
    ("Deployment spec.template.spec.containers.*.command*", "command"),
    ("* metadata.annotations.toolhive.stacklok.dev/consumed-checksum", "consumed-checksum"),
    ("Deployment spec.template.metadata.annotations.toolhive.stacklok.dev/inputs-checksum", "inputs-checksum"),
    (
        "Deployment spec.template.spec.containers.*.k8s-pod-patch.metadata.annotations.toolhive.stacklok.dev/inputs-checksum",
        "inputs-checksum",
    ),
    ("* status.*Hash", "config-hash"),
    ("* status.referencingWorkloads*", "referencing-workloads"),
    ("* status.conditions.*.message", "messages"),
    ("* status.message", "messages"),
    ("Deployment spec.template.spec.containers.*.k8s-pod-patch.spec.*olume*", "volumes"),
    ("Deployment spec.template.spec.containers.00-toolhive.volumeMounts.01-data*", "volumes"),
    ("Deployment spec.template.spec.volumes.01-data*", "volumes"),
    ("ConfigMap data.runconfig.json.*oidc_config.ResourceURL", "resource-url"),
    ("ConfigMap data.runconfig.json.*oidc_config.Required*", "required-subject"),
    ("Deployment spec.template.spec.containers.00-toolhive.volumeMounts.*-whsec-*", "webhook-files"),
    ("MCPServer status.conditions.ToolConfigValidated.*", "reference-conditions"),
    ("MCPServer status.conditions.WebhookConfigValidated.*", "reference-conditions"),
    ("MCPServer status.conditions.ExternalAuthConfigValidated.*", "reference-conditions"),
    ("Deployment spec.template.spec.containers.00-toolhive.env.07-TOOLHIVE_SECRETS_PROVIDER*", "env-once"),
    ("EmbeddingServer status.conditions.Ready.*", "embedding-ready"),
    ("EmbeddingServer status.*observedGeneration", "observed-generation"),
    ("VirtualMCPServer status.conditions.*observedGeneration", "observed-generation"),
    ("* status.readyReplicas", "ready-replicas"),
    ("* status.conditions.OverridesApplied.*", "reserved-names"),
];

#[tokio::test]
async fn manifests_of_the_original_give_the_originals_objects() -> Result<()> {
    let mut unknown = BTreeSet::new();
    let mut known = BTreeMap::new();
    let mut compared = 0;
    for file in manifests()? {
        let name = file.file_stem().and_then(|stem| stem.to_str()).context("a file has no name")?.to_owned();
        // Made on real pods, by the proxies; the end-to-end tests compare those.
        if name.starts_with("20-") {
            continue;
        }
        let operator = operator(&name).await?;
        let manifest = std::fs::read_to_string(&file)?;
        for object in skep_api::manifest::parse(&manifest)? {
            apply(&operator, &object).await?;
        }
        operator.settled().await?;
        let golden = std::fs::read_to_string(repository().join(format!("compat/objects/out/{name}.yaml")))?;
        for theirs in skep_api::manifest::parse(&golden.replace(&name, &operator.namespace))? {
            let kind = theirs["kind"].as_str().context("an object has no kind")?.to_owned();
            let ours = live(&operator, &theirs).await?;
            compared += 1;
            let Some(ours) = ours else {
                unknown.insert(format!("{name}: {kind} {} is missing", theirs["metadata"]["name"]));
                continue;
            };
            let mut paths = Vec::new();
            differences(&tidy(&kind, theirs), &tidy(&kind, ours), String::new(), &mut paths);
            for (path, was, is) in paths {
                match KNOWN.iter().find(|(pattern, _)| matches(pattern, &format!("{kind} {path}"))) {
                    Some((_, line)) => *known.entry(*line).or_insert(0) += 1,
                    None => {
                        unknown.insert(format!("{name}: {kind} {path}: {was} → {is}"));
                    }
                }
            }
        }
        operator.stop().await?;
    }
    println!("{compared} objects; differences by line of docs/differences.md: {known:?}");
    assert!(
        unknown.is_empty(),
        "{} unexplained differences:\n{}",
        unknown.len(),
        unknown.into_iter().collect::<Vec<_>>().join("\n")
    );
    assert!(compared > 100, "only {compared} objects were compared");
    let page = std::fs::read_to_string(repository().join("docs/differences.md"))?;
    for line in known.keys() {
        assert!(page.contains(&format!("`{line}`")), "docs/differences.md does not explain `{line}`");
    }
    Ok(())
}

fn manifests() -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(repository().join("compat/objects/in"))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

async fn apply(operator: &Running, object: &Value) -> Result<()> {
    let name = object["metadata"]["name"].as_str().context("an object has no name")?;
    api(operator, object).patch(name, &PatchParams::apply("test"), &Patch::Apply(object)).await?;
    Ok(())
}

async fn live(operator: &Running, object: &Value) -> Result<Option<Value>> {
    let name = object["metadata"]["name"].as_str().context("an object has no name")?;
    let found = api(operator, object).get_opt(name).await?;
    Ok(found.map(serde_json::to_value).transpose()?)
}

fn api(operator: &Running, object: &Value) -> Api<DynamicObject> {
    let (version, kind) =
        (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    let plural = ChildKind::ALL.iter().find(|child| child.as_str() == kind).map(|child| child.api().2.to_owned());
    let ours = skep_api::resource::KindName::parse(kind).map(|kind| kind.plural().to_owned());
    let plural = plural.or(ours).unwrap_or_else(|| format!("{}s", kind.to_lowercase()));
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
    Api::namespaced_with(operator.client.clone(), &operator.namespace, &resource)
}

/// Without what differs from run to run; lists with a key become maps; texts that hold JSON or a checksum become comparable.
fn tidy(kind: &str, mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for noise in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "namespace"] {
            metadata.remove(noise);
        }
    }
    if skep_api::resource::KindName::parse(kind).is_some() {
        object.as_object_mut().map(|object| object.remove("spec"));
    }
    if let Some(object) = object
        .as_object_mut()
        .filter(|_| !kind.starts_with("MCP") && !kind.starts_with("Virtual") && kind != "EmbeddingServer")
    {
        object.remove("status");
    }
    walk(&mut object);
    object
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for noise in ["uid", "lastTransitionTime", "clusterIP", "clusterIPs"] {
                fields.remove(noise);
            }
            // Depends on bytes that hold the namespace and the image of this run.
            for checksum in [
                "toolhive.stacklok.dev/runconfig-checksum",
                "toolhive.stacklok.dev/content-checksum",
                "toolhive.stacklok.dev/config-hash",
            ] {
                if let Some(text) = fields.get_mut(checksum) {
                    *text = json!("<checksum>");
                }
            }
            if let Some(Value::String(text)) = fields.get_mut("runconfig.json") {
                let config: Value = serde_json::from_str(text).unwrap_or_default();
                fields.insert("runconfig.json".into(), config);
            }
            fields.values_mut().for_each(walk);
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                if let Value::String(text) = item
                    && let Some((flag, patch)) =
                        text.split_once("--k8s-pod-patch=").map(|(_, patch)| ("k8s-pod-patch", patch))
                {
                    *item = json!({ flag: serde_json::from_str::<Value>(patch).unwrap_or_default() });
                }
                walk(item);
            }
            let key = ["name", "type", "key"]
                .into_iter()
                .find(|key| !items.is_empty() && items.iter().all(|item| item[*key].is_string()));
            if let Some(key) = key {
                let mut map = serde_json::Map::new();
                for (index, item) in items.iter().enumerate() {
                    let name = item[key].as_str().unwrap_or_default().to_owned();
                    // The order of variables and mounts is part of the contract; that of conditions is not.
                    let name = if key == "name" { format!("{index:02}-{name}") } else { name };
                    map.insert(name, item.clone());
                }
                *value = Value::Object(map);
            }
        }
        _ => {}
    }
}

fn differences(theirs: &Value, ours: &Value, path: String, found: &mut Vec<(String, String, String)>) {
    // A map that is not there is an empty one.
    let (none, empty) = (Value::Null, json!({}));
    let theirs = if *theirs == none && ours.is_object() { &empty } else { theirs };
    let ours = if *ours == none && theirs.is_object() { &empty } else { ours };
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (theirs, ours) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                let nothing = Value::Null;
                differences(
                    left.get(name).unwrap_or(&nothing),
                    right.get(name).unwrap_or(&nothing),
                    below(name),
                    found,
                );
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(left, right, below(&index.to_string()), found);
            }
        }
        _ if theirs == ours => {}
        _ => found.push((path, theirs.to_string(), ours.to_string())),
    }
}

/// A pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let escaped: Vec<String> = pattern.split('*').map(regex::escape).collect();
    regex::Regex::new(&format!("^{}$", escaped.join(".*"))).unwrap().is_match(text)
}
