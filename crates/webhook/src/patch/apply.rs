//! Applying operations to a tree.

use skep_bounds::JSON_DEPTH;
use skep_runconfig::Json;

use super::pointer::{Pointer, index};
use super::{Operation, PatchError, Room};

impl Operation {
    /// Applies the operation.
    pub(super) fn apply(self, tree: &mut Json, room: &mut Room) -> Result<(), PatchError> {
        match self {
            Self::Add { path, value } => add(tree, &path, value),
            Self::Remove { path } => remove(tree, &path).map(drop),
            Self::Replace { path, value } => {
                if path.depth() + depth(&value) > JSON_DEPTH {
                    return Err(PatchError::TooLarge);
                }
                replace(tree, &path, value)
            }
            Self::Copy { from, path } => {
                let value = from.find(tree).ok_or(PatchError::NotApplicable)?;
                room.take(value)?;
                let value = value.clone();
                add(tree, &path, value)
            }
            Self::Move { from, path } if from == path => from.find(tree).map(drop).ok_or(PatchError::NotApplicable),
            // Nothing can be moved into itself.
            Self::Move { from, path } if from.contains(&path) => Err(PatchError::NotApplicable),
            Self::Move { from, path } => {
                let value = remove(tree, &from)?;
                add(tree, &path, value)
            }
            Self::Test { path, value } => {
                let is_equal = path.find(tree).is_some_and(|found| equal(found, &value));
                if is_equal { Ok(()) } else { Err(PatchError::NotApplicable) }
            }
        }
    }
}

impl Room {
    /// Takes what a copy of a value needs.
    fn take(&mut self, value: &Json) -> Result<(), PatchError> {
        self.bytes = self.bytes.checked_sub(size(value)).ok_or(PatchError::TooLarge)?;
        self.values = self.values.checked_sub(count(value)).ok_or(PatchError::TooLarge)?;
        Ok(())
    }
}

fn add(tree: &mut Json, path: &Pointer, value: Json) -> Result<(), PatchError> {
    if path.depth() + depth(&value) > JSON_DEPTH {
        return Err(PatchError::TooLarge);
    }
    match path.parent(tree).ok_or(PatchError::NotApplicable)? {
        (Json::Object(members), name) => members.insert(name, value),
        (Json::Array(items), "-") => items.push(value),
        (Json::Array(items), token) => {
            let at = index(token).filter(|at| *at <= items.len()).ok_or(PatchError::NotApplicable)?;
            items.insert(at, value);
        }
        _ => return Err(PatchError::NotApplicable),
    }
    Ok(())
}

fn remove(tree: &mut Json, path: &Pointer) -> Result<Json, PatchError> {
    let removed = match path.parent(tree) {
        Some((Json::Object(members), name)) => members.remove(name),
        Some((Json::Array(items), token)) => index(token).filter(|at| *at < items.len()).map(|at| items.remove(at)),
        _ => None,
    };
    removed.ok_or(PatchError::NotApplicable)
}

fn replace(tree: &mut Json, path: &Pointer, value: Json) -> Result<(), PatchError> {
    let old = match path.parent(tree) {
        Some((Json::Object(members), name)) => members.get_mut(name),
        Some((Json::Array(items), token)) => index(token).and_then(|at| items.get_mut(at)),
        _ => None,
    };
    *old.ok_or(PatchError::NotApplicable)? = value;
    Ok(())
}

/// Levels of lists and objects in a value.
fn depth(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Json::Object(members) => 1 + members.iter().map(|(_, value)| depth(value)).max().unwrap_or_default(),
        _ => 0,
    }
}

/// About how many bytes a value takes as text. Never less than it has values.
fn size(value: &Json) -> usize {
    match value {
        Json::Null | Json::Bool(_) => 4,
        Json::Number(number) => number.as_str().len(),
        Json::String(text) => text.len() + 2,
        Json::Array(items) => 2 + items.iter().map(|item| size(item) + 1).sum::<usize>(),
        Json::Object(members) => 2 + members.iter().map(|(name, value)| name.len() + size(value) + 4).sum::<usize>(),
    }
}

/// How many values there are in a value, itself among them.
fn count(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Json::Object(members) => 1 + members.iter().map(|(_, value)| count(value)).sum::<usize>(),
        _ => 1,
    }
}

/// Whether two values are the same to RFC 6902: numbers by their value, objects whatever their order.
fn equal(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Number(one), Json::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Json::Object(one), Json::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| equal(value, other)))
        }
        (one, other) => one == other,
    }
}
