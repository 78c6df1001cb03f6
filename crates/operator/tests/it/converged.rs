//! What is left in a namespace once the operator is silent, in a form in which two runs can be compared.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_operator::write::{api_resource, child_resource};
use skep_plan::child::ChildKind;

/// Objects by kind and name.
#[derive(Debug)]
pub(crate) struct Objects(BTreeMap<String, Value>);

/// Members that differ from run to run.
const VOLATILE: &[&str] = &[
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
    "lastTransitionTime",
    "clusterIP",
    "clusterIPs",
];
/// Members that count how often a resource was changed.
const COUNTING: &[&str] = &["observedGeneration", "toolhive.stacklok.dev/mcpserver-generation"];
/// How long a text of hexadecimal digits must be to be a digest. Some are keyed by the uid of a Secret, so none is compared: what
/// they are made of is.
const DIGEST: usize = 12;

// === impl Objects ===

impl Objects {
    /// What a namespace holds of ours and of children.
    pub(crate) async fn of(client: &Client, namespace: &str) -> Result<Self> {
        let mut found = BTreeMap::new();
        for (kind, resource) in kinds() {
            let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            for object in objects.list(&ListParams::default()).await? {
                let name = object.metadata.name.clone().unwrap_or_default();
                let mut value = serde_json::to_value(object)?;
                normalize(&mut value, namespace);
                if kind == "Secret" {
                    // A key that was drawn at random.
                    value["data"] =
                        json!(value["data"].as_object().map(|data| data.keys().cloned().collect::<Vec<_>>()));
                }
                found.insert(format!("{kind} {name}"), value);
            }
        }
        Ok(Self(found))
    }
}

fn kinds() -> Vec<(&'static str, ApiResource)> {
    let ours = KindName::ALL.iter().map(|kind| (kind.as_str(), api_resource(*kind)));
    let children = ChildKind::ALL.iter().map(|kind| (kind.as_str(), child_resource(*kind)));
    let secrets = ("Secret", ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret")));
    ours.chain(children).chain([secrets]).collect()
}

fn normalize(value: &mut Value, namespace: &str) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !VOLATILE.contains(&name.as_str()));
            members.values_mut().for_each(|member| normalize(member, namespace));
        }
        Value::Array(members) => members.iter_mut().for_each(|member| normalize(member, namespace)),
        Value::String(text) => *text = without_digests(&text.replace(namespace, "<namespace>")),
        _ => {}
    }
}

fn without_digests(text: &str) -> String {
    let mut result = String::new();
    let mut word = String::new();
    for letter in text.chars().chain(['\0']) {
        if letter.is_ascii_digit() || matches!(letter, 'a'..='f') {
            word.push(letter);
            continue;
        }
        result.push_str(if word.len() >= DIGEST { "<digest>" } else { &word });
        word.clear();
        if letter != '\0' {
            result.push(letter);
        }
    }
    result
}

/// The first difference between two runs. A resource that was made again has another generation, and nothing that runs for it.
pub(crate) fn difference(expected: &Objects, found: &Objects, is_recreated: bool) -> Option<String> {
    let names = expected.0.keys().chain(found.0.keys());
    names.into_iter().find_map(|name| match (expected.0.get(name), found.0.get(name)) {
        (Some(_), None) => Some(format!("{name} is missing")),
        (None, Some(_)) => Some(format!("{name} should not be there")),
        (Some(expected), Some(found)) => {
            let (mut expected, mut found) = (expected.clone(), found.clone());
            if is_recreated {
                for object in [&mut expected, &mut found] {
                    without_counts(object);
                    if let Some(object) = object.as_object_mut() {
                        object.remove("status");
                    }
                }
            }
            unlike(&expected, &found, name)
        }
        (None, None) => None,
    })
}

fn without_counts(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !COUNTING.contains(&name.as_str()));
            members.values_mut().for_each(without_counts);
        }
        Value::Array(members) => members.iter_mut().for_each(without_counts),
        Value::String(text) if text.starts_with('{') => {
            // A document in a ConfigMap, which names the generation as well.
            if let Ok(mut document) = serde_json::from_str::<Value>(text) {
                if let Some(members) = document.as_object_mut() {
                    members.remove("mcpserver_generation");
                }
                *text = document.to_string();
            }
        }
        _ => {}
    }
}

fn unlike(expected: &Value, found: &Value, path: &str) -> Option<String> {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            let names: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            names.into_iter().find_map(|name| {
                let (one, other) = (one.get(name).unwrap_or(&Value::Null), other.get(name).unwrap_or(&Value::Null));
                unlike(one, other, &format!("{path}.{name}"))
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let mut pairs = one.iter().zip(other).enumerate();
            pairs.find_map(|(index, (one, other))| unlike(one, other, &format!("{path}[{index}]")))
        }
        (one, other) => (one != other).then(|| format!("{path} is {other}, and was {one} without the fault")),
    }
}

/// Deletes one of our resources with all that it owns, and makes it again as it was: what a user and the garbage collector do.
pub(crate) async fn recreate(client: &Client, namespace: &str, seed: u64) -> Result<()> {
    let mut ours = Vec::new();
    for kind in KindName::ALL {
        let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &api_resource(*kind));
        for object in objects.list(&ListParams::default()).await? {
            if object.metadata.deletion_timestamp.is_none() {
                ours.push((*kind, object));
            }
        }
    }
    let Some(chosen) = usize::try_from(seed).ok().and_then(|seed| seed.checked_rem(ours.len())) else { return Ok(()) };
    let (kind, old) = ours.swap_remove(chosen);
    let uid = old.metadata.uid.clone().context("no uid")?;
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &api_resource(kind));
    delete(&objects, &old).await?;
    for (_, resource) in kinds() {
        let children: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        for child in children.list(&ListParams::default()).await? {
            if child.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid) {
                delete(&children, &child).await?;
            }
        }
    }
    let mut new = DynamicObject::new(&old.metadata.name.clone().unwrap_or_default(), &api_resource(kind));
    new.metadata.labels = old.metadata.labels;
    new.metadata.annotations = old.metadata.annotations;
    new.data = json!({ "spec": old.data["spec"] });
    objects.create(&PostParams::default(), &new).await?;
    Ok(())
}

/// Deletes an object whatever holds it.
async fn delete(objects: &Api<DynamicObject>, object: &DynamicObject) -> Result<()> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    if object.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()) {
        objects.patch(name, &PatchParams::default(), &release).await?;
    }
    match objects.delete(name, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop).map_err(Into::into),
    }
}
