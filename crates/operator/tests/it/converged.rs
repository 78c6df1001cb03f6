//! What is left in a namespace once the operator is silent, in a form in which two runs can be compared.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_operator::write::{api_resource, child_resource};
use skep_plan::child::ChildKind;
use skep_testkit::{Seen, eventually};

use crate::running::PATIENCE;

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
    "nodePort",
];
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
    let mut token = String::new();
    for letter in text.chars().chain(['\0']) {
        if letter.is_ascii_digit() || matches!(letter, 'a'..='f') {
            token.push(letter);
            continue;
        }
        result.push_str(if token.len() >= DIGEST { "<digest>" } else { &token });
        token.clear();
        if letter != '\0' {
            result.push(letter);
        }
    }
    result
}

/// The first difference between two runs.
pub(crate) fn difference(expected: &Objects, found: &Objects) -> Option<String> {
    let names: BTreeSet<&String> = expected.0.keys().chain(found.0.keys()).collect();
    names.into_iter().find_map(|name| match (expected.0.get(name), found.0.get(name)) {
        (Some(_), None) => Some(format!("{name} is missing")),
        (None, Some(_)) => Some(format!("{name} should not be there")),
        (Some(expected), Some(found)) => unlike(expected, found, name),
        (None, None) => None,
    })
}

fn unlike(expected: &Value, found: &Value, path: &str) -> Option<String> {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
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

/// Deletes one of our resources and what it owns, and makes it again as it was, as a user would.
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
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &api_resource(kind));
    delete(&objects, &old).await?;
    collect_garbage(client, namespace).await?;
    let mut new = DynamicObject::new(&old.metadata.name.clone().unwrap_or_default(), &api_resource(kind));
    new.metadata.labels = old.metadata.labels;
    new.metadata.annotations = old.metadata.annotations;
    new.data = json!({ "spec": old.data["spec"] });
    objects.create(&PostParams::default(), &new).await?;
    Ok(())
}

/// Does what the garbage collector of a cluster does: deletes objects whose owner is gone. Returns whether there were any.
pub(crate) async fn collect_garbage(client: &Client, namespace: &str) -> Result<bool> {
    let mut all = Vec::new();
    for (_, resource) in kinds() {
        let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        for object in objects.list(&ListParams::default()).await? {
            all.push((objects.clone(), object));
        }
    }
    let uids: BTreeSet<String> = all.iter().filter_map(|(_, object)| object.metadata.uid.clone()).collect();
    let mut was_any = false;
    for (objects, object) in &all {
        let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
        if !owners.is_empty() && owners.iter().all(|owner| !uids.contains(&owner.uid)) {
            delete(objects, object).await?;
            was_any = true;
        }
    }
    Ok(was_any)
}

/// Deletes an object whatever holds it. The operator may hold it again in between.
async fn delete(objects: &Api<DynamicObject>, object: &DynamicObject) -> Result<()> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let gone = |result: Result<(), kube::Error>| match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other,
    };
    eventually(&format!("{name} is deleted"), PATIENCE, || async {
        gone(objects.delete(name, &DeleteParams::background()).await.map(drop))?;
        gone(objects.patch_metadata(name, &PatchParams::default(), &release).await.map(drop))?;
        let left = objects.get_opt(name).await?.filter(|left| left.metadata.uid == object.metadata.uid);
        Ok(if left.is_none() { Seen::Yes(()) } else { Seen::NotYet("it is held".to_owned()) })
    })
    .await
}
