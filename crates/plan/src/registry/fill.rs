//! The user's pod first, ours where it has gaps.
//!
//! This kind does not merge as the others do: whatever the user's template says of the container wins whole, the lists
//! below are put together with the user's entries first, and everything else is taken from ours only where the user says
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Lists of a pod that are merged, and their merge keys.
const POD_LISTS: &[(&str, &str)] = &[("volumes", "name"), ("initContainers", "name"), ("containers", "name")];
/// Lists of a container that are merged, and their merge keys.
const CONTAINER_LISTS: &[(&str, &str)] = &[("env", "name"), ("ports", "containerPort"), ("volumeMounts", "mountPath")];

/// The pod spec of a user's template with ours in its gaps.
pub(super) fn pod(user: &Value, ours: &Value) -> Value {
    fill(user, ours, POD_LISTS)
}

fn fill(user: &Value, ours: &Value, lists: &[(&str, &str)]) -> Value {
    let Some(ours) = ours.as_object() else { return user.clone() };
    let mut filled: Map<String, Value> = user.as_object().cloned().unwrap_or_default();
    filled.retain(|_, value| !value.is_null());
    for (name, value) in ours {
        let key = lists.iter().find_map(|(list, key)| (list == name).then_some(*key));
        let together = match (filled.get(name), key) {
            (None, _) => value.clone(),
            (Some(theirs), Some(key)) => union(theirs, value, key, name == "containers"),
            (Some(theirs), None) => theirs.clone(),
        };
        filled.insert(name.clone(), together);
    }
    Value::Object(filled)
}

/// The user's entries, then those of ours that are not among them. Containers of one name become one.
fn union(user: &Value, ours: &Value, key: &str, containers: bool) -> Value {
    let (user, ours) = (entries(user), entries(ours));
    let name = |entry: &Value| entry.get(key).map(Value::to_string);
    // Of one name, the first.
    let by_name: BTreeMap<String, &Value> = ours.iter().rev().filter_map(|one| Some((name(one)?, one))).collect();
    let same = |theirs: &Value| by_name.get(&name(theirs)?).copied();
    let mut all: Vec<Value> = user
        .iter()
        .map(|theirs| match same(theirs).filter(|_| containers) {
            Some(one) => fill(theirs, one, CONTAINER_LISTS),
            None => theirs.clone(),
        })
        .collect();
    let known: BTreeSet<String> = user.iter().filter_map(name).collect();
    all.extend(ours.iter().filter(|one| name(one).is_none_or(|name| !known.contains(&name))).cloned());
    Value::Array(all)
}

fn entries(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}
