//! The plain merge patch of RFC 7396, and the smallest one that leads from one value to another.

use serde_json::{Map, Value};

/// Merges a patch: members of objects are merged, null removes a member, everything else replaces.
pub fn merge_patch(target: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut merged = target.as_object().cloned().unwrap_or_default();
    for (name, change) in changes {
        match change {
            Value::Null => merged.remove(name),
            change => {
                let old = merged.get(name).unwrap_or(&Value::Null);
                let new = merge_patch(old, change);
                merged.insert(name.clone(), new)
            }
        };
    }
    Value::Object(merged)
}

/// The patch that makes `old` into `new`. `{}` when there is nothing to do.
///
/// A merge patch cannot set a member to null, so a null in `new` is as good as a member that is not there.
pub fn merge_diff(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(before) if before == value => {}
            Some(before @ Value::Object(_)) if value.is_object() => {
                patch.insert(name.clone(), merge_diff(before, value));
            }
            None if value.is_null() => {}
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}
