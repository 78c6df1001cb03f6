//! Strategic merge of one object into another.
//!
//! The order of steps is Kubernetes' own: `$patch` decides for the whole object, `$retainKeys` clears the base,
//! `$setElementOrder` merges the lists that it orders, and then come the other members.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::schema::{POD_TEMPLATE, Schema};
use super::{MergeError, PatchError, list};

type Object = Map<String, Value>;

pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";

/// What a `$patch` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directive {
    /// What happens anyway.
    Merge,
    /// The patch instead of the base.
    Replace,
    /// Nothing instead of the base.
    Delete,
}

/// Merges a patch into a pod template. No directive and no null of the patch is in the result.
pub fn strategic(base: &Value, patch: &Value) -> Result<Value, MergeError> {
    merge_objects(&object(base)?, &object(patch)?, &POD_TEMPLATE).map(Value::Object)
}

/// A whole template; null stands for an empty one.
fn object(value: &Value) -> Result<Object, MergeError> {
    match value {
        Value::Object(object) => Ok(object.clone()),
        Value::Null => Ok(Object::new()),
        other => Err(mismatch("an object", other)),
    }
}

pub(super) fn merge_objects(base: &Object, patch: &Object, schema: &Schema) -> Result<Object, MergeError> {
    match directive(patch)? {
        Some(Directive::Replace) => return Ok(without_directives(patch)),
        Some(Directive::Delete) => return Ok(Object::new()),
        Some(Directive::Merge) | None => {}
    }
    let mut merged = retained(base, patch)?;
    let ordered = merge_ordered(&mut merged, patch, schema)?;
    for (name, names) in directed(patch, DELETE_FROM_LIST) {
        if let Some(Value::Array(elements)) = merged.get_mut(name) {
            let unwanted = names.as_array().ok_or_else(|| not_a_list(DELETE_FROM_LIST, name))?;
            let unwanted: BTreeSet<String> = unwanted.iter().map(ToString::to_string).collect();
            elements.retain(|element| !unwanted.contains(&element.to_string()));
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$') && !ordered.contains(*name)) {
        merge_member(&mut merged, name, value, schema).map_err(|error| error.under(name))?;
    }
    Ok(merged)
}

fn merge_member(merged: &mut Object, name: &str, patch: &Value, schema: &Schema) -> Result<(), MergeError> {
    let value = match (merged.get(name).filter(|value| !value.is_null()), patch) {
        (_, Value::Null) => None,
        (None, new) => cleaned(new),
        (Some(Value::Object(old)), Value::Object(new)) => {
            Some(Value::Object(merge_objects(old, new, schema.object(name))?))
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            Some(Value::Array(list::merge_lists(old, new, schema.member(name))?))
        }
        (Some(old), new) if kind(old) == kind(new) => Some(new.clone()),
        (Some(old), new) => return Err(mismatch(kind(old), new)),
    };
    match value {
        Some(value) => merged.insert(name.to_owned(), value),
        None => merged.remove(name),
    };
    Ok(())
}

/// The base without what `$retainKeys` does not name. The patch may set nothing else.
fn retained(base: &Object, patch: &Object) -> Result<Object, MergeError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(base.clone()) };
    let keys = keys.as_array().ok_or_else(|| MergeError::here(PatchError::NotAList(RETAIN_KEYS.into())))?;
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_kept = |name: &str| keys.contains(name);
    let sets = patch.iter().filter(|(name, value)| !value.is_null() && !name.starts_with('$'));
    if let Some((name, _)) = sets.into_iter().find(|(name, _)| !is_kept(name)) {
        return Err(MergeError::here(PatchError::NotRetained(name.clone())));
    }
    Ok(base.iter().filter(|(name, _)| is_kept(name)).map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Merges and orders the lists that have a `$setElementOrder`, and returns their names.
fn merge_ordered(merged: &mut Object, patch: &Object, schema: &Schema) -> Result<BTreeSet<String>, MergeError> {
    let mut names = BTreeSet::new();
    for (name, order) in directed(patch, SET_ELEMENT_ORDER) {
        let order = order.as_array().ok_or_else(|| not_a_list(SET_ELEMENT_ORDER, name))?;
        let old = elements(merged.get(name)).map_err(|error| error.under(name))?;
        let new = elements(patch.get(name)).map_err(|error| error.under(name))?;
        if old.is_some() || new.is_some() {
            let list = list::merge_in_order(name, old, new, order, schema.member(name));
            merged.insert(name.to_owned(), Value::Array(list.map_err(|error| error.under(name))?));
        }
        names.insert(name.to_owned());
    }
    Ok(names)
}

fn elements(value: Option<&Value>) -> Result<Option<&[Value]>, MergeError> {
    match value {
        None => Ok(None),
        Some(Value::Array(elements)) => Ok(Some(elements)),
        Some(other) => Err(mismatch("a list", other)),
    }
}

/// The members of a patch that direct what happens to another one, by its name.
fn directed<'a>(patch: &'a Object, prefix: &'static str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    patch.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value)))
}

/// What the `$patch` of an object asks for.
pub(super) fn directive(patch: &Object) -> Result<Option<Directive>, MergeError> {
    match patch.get(PATCH) {
        None => Ok(None),
        Some(Value::String(text)) if text == "merge" => Ok(Some(Directive::Merge)),
        Some(Value::String(text)) if text == "replace" => Ok(Some(Directive::Replace)),
        Some(Value::String(text)) if text == "delete" => Ok(Some(Directive::Delete)),
        Some(Value::String(text)) => Err(MergeError::here(PatchError::Directive(format!("`{text}`")))),
        Some(other) => Err(MergeError::here(PatchError::Directive(kind(other).to_owned()))),
    }
}

/// A value that the base does not have: without nulls, without directives, and without what they are about.
pub(super) fn cleaned(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(object) if object.contains_key(PATCH) => None,
        Value::Object(object) => Some(Value::Object(without_directives(object))),
        Value::Array(elements) => Some(Value::Array(elements.iter().filter_map(cleaned).collect())),
        scalar => Some(scalar.clone()),
    }
}

pub(super) fn without_directives(object: &Object) -> Object {
    let members = object.iter().filter(|(name, _)| !name.starts_with('$'));
    members.filter_map(|(name, value)| Some((name.clone(), cleaned(value)?))).collect()
}

pub(super) fn mismatch(expected: &'static str, found: &Value) -> MergeError {
    MergeError::here(PatchError::Shape { expected, found: kind(found) })
}

fn not_a_list(prefix: &str, name: &str) -> MergeError {
    MergeError::here(PatchError::NotAList(format!("{prefix}{name}")))
}

/// What a value is, as far as merging cares.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "an object",
        Value::Array(_) => "a list",
        _ => "a single value",
    }
}
