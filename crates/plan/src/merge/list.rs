//! Strategic merge of lists, and the order of what comes out.
//!
//! Elements of the patch keep the order of the patch, all others keep theirs. Where the two meet, an element of the base
//! goes before an element of the patch that stood behind it in the base; a new element goes before the rest of the base.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::schema::{Member, Schema};
use super::strategic::{Directive, PATCH, cleaned, directive, kind, merge_objects, mismatch, without_directives};
use super::{MergeError, PatchError};

type Object = Map<String, Value>;

/// The place of each element of a list, by its name: of one name, the first. A list may have as many elements as an object has room for.
struct Order(BTreeMap<String, usize>);

// === impl Order ===

impl Order {
    fn of(names: &[Value]) -> Self {
        let mut order = Self(BTreeMap::new());
        names.iter().enumerate().for_each(|(place, name)| order.push(name, place));
        order
    }

    fn push(&mut self, name: &Value, place: usize) {
        self.0.entry(name.to_string()).or_insert(place);
    }

    fn place(&self, name: &Value) -> Option<usize> {
        self.0.get(&name.to_string()).copied()
    }
}

/// Merges a list of the patch into that of the base.
pub(super) fn merge_lists(base: &[Value], patch: &[Value], member: Option<Member>) -> Result<Vec<Value>, MergeError> {
    match member {
        Some(Member::Keyed(key, schema)) => merge_keyed(base, patch, key, schema),
        Some(Member::Set) => merge_sets(base, patch),
        Some(Member::Object(_)) | None => Ok(patch.iter().filter_map(cleaned).collect()),
    }
}

/// The same, for a list with a `$setElementOrder`.
pub(super) fn merge_in_order(
    name: &str,
    base: Option<&[Value]>,
    patch: Option<&[Value]>,
    order: &[Value],
    member: Option<Member>,
) -> Result<Vec<Value>, MergeError> {
    let key = key_of(member);
    let wanted = identities(order, key)?;
    if !order.is_empty() && !is_subsequence(&kept(patch.unwrap_or_default(), key)?, &wanted) {
        return Err(MergeError::here(PatchError::Order(name.to_owned())));
    }
    let merged = match (base, patch) {
        (base, None) => base.unwrap_or_default().to_vec(),
        (None, Some(patch)) => patch.iter().filter_map(cleaned).collect(),
        (Some(base), Some(patch)) => merge_lists(base, patch, member)?,
    };
    arrange(merged, &wanted, &identities(base.unwrap_or_default(), key)?, key)
}

fn merge_sets(base: &[Value], patch: &[Value]) -> Result<Vec<Value>, MergeError> {
    let scalar = |value: &Value| std::mem::discriminant(value);
    let first = base.iter().chain(patch).next().map(scalar);
    if let Some(odd) = patch.iter().find(|value| kind(value) != "a single value" || Some(scalar(value)) != first) {
        return Err(mismatch("a text like the others", odd));
    }
    let mut seen = BTreeSet::new();
    let merged = base.iter().chain(patch).filter(|value| seen.insert(value.to_string())).cloned().collect();
    arrange(merged, &identities(patch, None)?, &identities(base, None)?, None)
}

fn merge_keyed(
    base: &[Value],
    patch: &[Value],
    key: &'static str,
    schema: &'static Schema,
) -> Result<Vec<Value>, MergeError> {
    let mut elements: Vec<Object> = base.iter().map(object).collect::<Result<_, _>>()?;
    let mut changes = Vec::new();
    let mut replace = false;
    for value in patch {
        let change = object(value)?;
        match directive(&change)? {
            Some(Directive::Delete) => {
                let unwanted = identity(&change, key)?;
                elements.retain(|element| element.get(key) != Some(&unwanted));
            }
            Some(Directive::Replace) => replace = true,
            // An element that says `merge` and nothing else is about the list, not in it.
            Some(Directive::Merge) if change.len() == 1 => {}
            Some(Directive::Merge) | None => changes.push(change),
        }
    }
    if replace {
        return Ok(changes.iter().map(|change| Value::Object(without_directives(change))).collect());
    }
    let before = elements.iter().map(|element| identity(element, key)).collect::<Result<Vec<_>, _>>()?;
    let mut places = Order::of(&before);
    let mut wanted = Vec::new();
    for change in &changes {
        let name = identity(change, key)?;
        if let Some(element) = places.place(&name).and_then(|place| elements.get_mut(place)) {
            *element = merge_objects(element, change, schema).map_err(|error| error.under(&step(&name)))?;
        } else {
            places.push(&name, elements.len());
            elements.push(merge_new(change, schema).map_err(|error| error.under(&step(&name)))?);
        }
        wanted.push(name);
    }
    arrange(elements.into_iter().map(Value::Object).collect(), &wanted, &before, Some(key))
}

/// An element that is merged into nothing; its directives are read all the same, so that a mistake is found.
fn merge_new(change: &Object, schema: &'static Schema) -> Result<Object, MergeError> {
    let mut plain = change.clone();
    plain.remove(PATCH);
    merge_objects(&Object::new(), &plain, schema)
}

/// Puts elements into order: those in `wanted` as they are there, the others as they are in `before`.
fn arrange(
    elements: Vec<Value>,
    wanted: &[Value],
    before: &[Value],
    key: Option<&'static str>,
) -> Result<Vec<Value>, MergeError> {
    let (wanted, before) = (Order::of(wanted), Order::of(before));
    let mut named = Vec::new();
    for element in elements {
        named.push((name_of(&element, key)?, element));
    }
    let (mut ours, mut theirs): (Vec<_>, Vec<_>) =
        named.into_iter().partition(|(name, _)| wanted.place(name).is_some());
    ours.sort_by_cached_key(|(name, _)| wanted.place(name));
    theirs.sort_by_cached_key(|(name, _)| before.place(name));

    let mut arranged = Vec::new();
    let mut theirs = theirs.into_iter().peekable();
    for (name, element) in ours {
        if let Some(limit) = before.place(&name) {
            while let Some((_, earlier)) = theirs.next_if(|(name, _)| before.place(name).is_some_and(|at| at < limit)) {
                arranged.push(earlier);
            }
        }
        arranged.push(element);
    }
    arranged.extend(theirs.map(|(_, element)| element));
    Ok(arranged)
}

fn key_of(member: Option<Member>) -> Option<&'static str> {
    match member {
        Some(Member::Keyed(key, _)) => Some(key),
        _ => None,
    }
}

/// The merge key of an element: a member of it, or all of it.
fn name_of(element: &Value, key: Option<&'static str>) -> Result<Value, MergeError> {
    match key {
        Some(key) => identity(&object(element)?, key),
        None => Ok(element.clone()),
    }
}

fn identities(elements: &[Value], key: Option<&'static str>) -> Result<Vec<Value>, MergeError> {
    elements.iter().map(|element| name_of(element, key)).collect()
}

fn identity(element: &Object, key: &'static str) -> Result<Value, MergeError> {
    element.get(key).cloned().ok_or(MergeError::here(PatchError::NoKey(key)))
}

fn object(value: &Value) -> Result<Object, MergeError> {
    value.as_object().cloned().ok_or_else(|| mismatch("an object", value))
}

/// The names of a patch's elements that have no directive.
fn kept(patch: &[Value], key: Option<&'static str>) -> Result<Vec<Value>, MergeError> {
    let has_directive = |value: &&Value| value.get(PATCH).is_some();
    patch.iter().filter(|value| !has_directive(value)).map(|value| name_of(value, key)).collect()
}

fn is_subsequence(parts: &[Value], of: &[Value]) -> bool {
    let mut rest = of.iter();
    parts.iter().all(|part| rest.any(|other| other == part))
}

/// An element in a path, by its name.
fn step(name: &Value) -> String {
    match name {
        Value::String(name) => format!("[{name}]"),
        other => format!("[{other}]"),
    }
}
