//! References to objects that are not in the files.
//!
//! Files rarely contain everything that a cluster has, Secrets least of all. So a reference is an error only where the
//! files prove it: the namespace has other objects of that kind in the files, so the name is misspelt; or the object
//! exists and lacks the key. Otherwise it is a warning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::reference::{Reference, Target};
use skep_api::resource::{KindName, Resource};
use skep_plan::key::{Key, ObjectKind};
use skep_plan::world::Found;

use crate::manifests::Place;

/// How many names of other objects a message lists.
const LISTED: usize = 5;

/// The objects that a plan may see.
pub(super) type Objects = BTreeMap<Key, Found>;

/// The objects of the files that are not valid, and where they are.
pub(super) type Rejected = BTreeMap<Key, Place>;

/// The references of a resource that the files do not resolve.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Missing(Vec<Gap>);

/// One missing object or key.
#[derive(Debug, PartialEq, Eq)]
struct Gap {
    target: Key,
    /// The field that refers to it.
    field: String,
    /// Whether the files should have it. Otherwise it may be in the cluster.
    is_certain: bool,
    message: String,
}

/// The objects in the files, and the missing ones as far as the cluster can be assumed to have them: Secrets, of which
/// a plan sees no more than the keys, and objects with a [`stand_in`].
pub(super) fn assumed(found: &Objects) -> Objects {
    let mut assumed = found.clone();
    let resources = found.iter().filter_map(|(key, object)| match object {
        Found::Resource(resource) => Some((key, resource)),
        _ => None,
    });
    for (key, resource) in resources {
        for reference in resource.references() {
            let target = Key::target(&reference, &key.namespace);
            if found.contains_key(&target) {
                continue;
            }
            match reference.to {
                Target::Secret { key } => {
                    let secret = assumed.entry(target).or_insert_with(|| Found::Secret(Arc::default()));
                    if let Found::Secret(keys) = secret {
                        Arc::make_mut(keys).insert(key, String::new());
                    }
                }
                Target::Kind(kind) => {
                    let metadata = json!({ "name": target.name, "namespace": target.namespace });
                    if let Some(other) = stand_in(kind).and_then(|spec| of_parts(kind, &metadata, &spec)) {
                        assumed.insert(target, Found::Resource(Arc::new(other)));
                    }
                }
                Target::ConfigMap { .. } | Target::Document { .. } => {}
            }
        }
    }
    assumed
}

/// The spec that is assumed of a missing object whose kind is required. For other kinds the reference can be left out,
/// and their content matters.
fn stand_in(kind: KindName) -> Option<Value> {
    match kind {
        KindName::MCPGroup => Some(json!({})),
        KindName::MCPOIDCConfig => {
            Some(json!({ "type": "inline", "inline": { "issuer": "https://issuer.example.com" } }))
        }
        _ => None,
    }
}

// === impl Missing ===

impl Missing {
    /// The references of a resource that `found` does not resolve.
    pub(super) fn of(me: &Resource, found: &Objects, rejected: &Rejected) -> Self {
        let references = me.references();
        let gaps = references.iter().filter_map(|reference| Gap::of(reference, me.namespace(), found, rejected));
        Self(gaps.collect())
    }

    /// Whether nothing is missing.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the files should have.
    pub(super) fn problems(&self) -> Vec<String> {
        self.messages(true)
    }

    /// What may be in the cluster.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.messages(false)
    }

    /// Whether a message of a plan only reports one of these as missing.
    pub(super) fn explains(&self, message: &str) -> bool {
        let names = |gap: &Gap| {
            let Key { kind, name, .. } = &gap.target;
            message.contains(&format!("{kind} `{name}`")) || message.contains(&format!("{kind} '{name}'"))
        };
        message.contains("not found") && self.0.iter().any(names)
    }

    /// The resource without the references that do not resolve; `None` if none of them can be left out.
    pub(super) fn without(&self, me: &Resource) -> Option<Resource> {
        let mut object = json!({ "spec": me.spec_value() });
        // From the last to the first, so that list indexes stay valid.
        let count = self.0.iter().rev().filter(|gap| !gap.is_assumed() && gap.remove_from(&mut object)).count();
        let metadata = serde_json::to_value(me.metadata()).ok().filter(|_| count > 0)?;
        of_parts(me.kind(), &metadata, object.get("spec")?)
    }

    /// Whether a message is about a field that [`Missing::without`] leaves out.
    pub(super) fn is_about(&self, message: &str) -> bool {
        let is_name = |step: &&str| !step.starts_with(|first: char| first.is_ascii_digit());
        let left_out = self.0.iter().filter(|gap| !gap.is_assumed());
        left_out.filter_map(|gap| gap.steps().into_iter().rfind(is_name)).any(|name| message.contains(name))
    }

    /// The messages about what the files should have, or what may be in the cluster: those once for each object.
    fn messages(&self, is_certain: bool) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let gaps = self.0.iter().filter(|gap| gap.is_certain == is_certain);
        gaps.filter(|gap| is_certain || seen.insert(&gap.target)).map(|gap| gap.message.clone()).collect()
    }
}

// === impl Gap ===

impl Gap {
    /// Whether [`assumed`] fills it, so that a plan does not stop at it.
    fn is_assumed(&self) -> bool {
        match self.target.kind {
            ObjectKind::Secret => true,
            ObjectKind::Kind(kind) => stand_in(kind).is_some(),
            ObjectKind::ConfigMap => false,
        }
    }

    /// The path to the value that is useless without the missing object.
    fn steps(&self) -> Vec<&str> {
        let mut steps: Vec<&str> = self.field.split(['.', '[', ']']).filter(|step| !step.is_empty()).collect();
        // `authzConfig.configMap` and `caBundleRef.configMapRef` are the only content of their objects.
        if matches!(steps.as_slice(), [_, .., "configMap" | "configMapRef"]) {
            steps.pop();
        }
        steps
    }

    /// Removes the reference from a spec, if it is there.
    fn remove_from(&self, spec: &mut Value) -> bool {
        let steps = self.steps();
        let Some((last, way)) = steps.split_last() else { return false };
        let place = way.iter().try_fold(spec, |value, step| match value {
            Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
            other => other.get_mut(*step),
        });
        match place {
            Some(Value::Object(members)) => members.remove(*last).is_some(),
            Some(Value::Array(items)) => match last.parse::<usize>() {
                Ok(index) if index < items.len() => {
                    items.remove(index);
                    true
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// What is missing for a reference, if anything.
    fn of(reference: &Reference, namespace: &str, found: &Objects, rejected: &Rejected) -> Option<Self> {
        let target = Key::target(reference, namespace);
        let (field, Key { kind, name, .. }) = (&reference.field, &target);
        let (is_certain, message) = match found.get(&target) {
            Some(object) => {
                let key = missing_key(&reference.to, object)?;
                (true, format!("{field}: {kind} `{name}` has no key `{key}`; add it, or correct the key"))
            }
            None => match (rejected.get(&target), others(*kind, namespace, found)) {
                (Some(place), _) => {
                    (true, format!("{field}: {kind} `{name}` ({place}) is not valid; correct it there"))
                }
                (None, known) if known.is_empty() => {
                    let place = format!("it must exist in namespace `{namespace}`");
                    (false, format!("{field}: {kind} `{name}` is not in these files; {place}"))
                }
                (None, known) => {
                    let advice = "add it, or correct the name";
                    (true, format!("{field}: {kind} `{name}` is not in these files, which have {known}; {advice}"))
                }
            },
        };
        Some(Self { field: field.clone(), target, is_certain, message })
    }
}

/// A resource from its parts.
fn of_parts(kind: KindName, metadata: &Value, spec: &Value) -> Option<Resource> {
    let version = format!("{GROUP}/{STORED_VERSION}");
    let object = json!({ "apiVersion": version, "kind": kind.as_str(), "metadata": metadata, "spec": spec });
    Resource::from_value(kind, object).ok()
}

/// The key that a Secret or ConfigMap should have and does not.
fn missing_key<'a>(to: &'a Target, object: &Found) -> Option<&'a str> {
    let (Target::Secret { key } | Target::ConfigMap { key } | Target::Document { key }) = to else { return None };
    let has_key = match object {
        Found::Secret(keys) => keys.contains_key(key),
        Found::ConfigMap(data) => data.contains_key(key),
        _ => return None,
    };
    (!key.is_empty() && !has_key).then_some(key.as_str())
}

/// The objects of a kind that the files have in a namespace, for a message.
fn others(kind: ObjectKind, namespace: &str, found: &Objects) -> String {
    let others = found.keys().filter(|key| key.kind == kind && key.namespace == namespace);
    others.take(LISTED).map(|key| format!("`{}`", key.name)).collect::<Vec<_>>().join(", ")
}
