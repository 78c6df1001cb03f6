//! Patches of messages: RFC 6902, scoped to the message and bounded.
//!
//! A patch is applied to a tree that keeps the order of members and the digits of numbers, so that what a webhook does not change
//! reaches the MCP server as the client wrote it. Copies can double a message with every operation, and additions can nest it:
//! both are bounded while the patch is applied. A tree takes many times the bytes of its text, so a message and a patch have a limit on
//! their values that is checked before either becomes a tree, and [`Patch::memory`] says what to reserve.

mod apply;
mod pointer;

use bytes::Bytes;
use skep_bounds::{PATCH_VALUES, count_json_values};
use skep_mcp::Message;
use skep_runconfig::Json;

use self::pointer::Pointer;
use crate::{MOST_BYTES, VALUE_BYTES};

/// The most operations of a patch.
pub const MOST_OPERATIONS: usize = 1_000;
/// What the paths of a patch begin with.
const SCOPE: &str = "mcp_request";
/// Members of a message that identify it. The client waits for an answer to them, and policies decide by the method.
const FIXED: [&str; 3] = ["jsonrpc", "id", "method"];

/// A patch whose operations are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    operations: Vec<Operation>,
    /// How many values it was read from.
    values: usize,
}

/// What copies may still add to a message.
#[derive(Debug)]
struct Room {
    bytes: usize,
    values: usize,
}

/// One operation, with paths within the message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operation {
    Add { path: Pointer, value: Json },
    Remove { path: Pointer },
    Replace { path: Pointer, value: Json },
    Copy { from: Pointer, path: Pointer },
    Move { from: Pointer, path: Pointer },
    Test { path: Pointer, value: Json },
}

/// Why a patch is not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Its type is not `json_patch`.
    #[error("the patch type is not `json_patch`")]
    UnsupportedType,
    /// It is not a list of operations.
    #[error("the patch is not a list of objects with `op` and `path`")]
    Malformed,
    /// An operation is not one, lacks a member, or changes what identifies a message.
    #[error("an operation is unknown or incomplete, or changes `jsonrpc`, `id` or `method`")]
    Invalid,
    /// A path leads out of the message.
    #[error("a path is not below `/mcp_request/`")]
    OutOfScope,
    /// It does not fit the message.
    #[error("an operation does not apply to the message")]
    NotApplicable,
    /// It has too many operations, or makes the message too large or too deep.
    #[error(
        "the patch has more than {MOST_OPERATIONS} operations, makes the message too large or too deep, or has with the message more than {PATCH_VALUES} values"
    )]
    TooLarge,
}

// === impl Patch ===

impl Patch {
    /// Reads a patch. What is no list of operations is malformed, and one with too many values is not read.
    pub fn read(text: &str) -> Result<Self, PatchError> {
        skep_bounds::json(text).map_err(|_| PatchError::TooLarge)?;
        skep_bounds::json_values(text, PATCH_VALUES).map_err(|_| PatchError::TooLarge)?;
        let Ok(Json::Array(entries)) = Json::from_slice(text.as_bytes()) else { return Err(PatchError::Malformed) };
        if entries.len() > MOST_OPERATIONS {
            return Err(PatchError::TooLarge);
        }
        let entries: Vec<Entry> = entries.into_iter().map(Entry::read).collect::<Result<_, _>>()?;
        for entry in &entries {
            entry.check()?;
        }
        let operations = entries.into_iter().map(Entry::operation).collect::<Result<_, _>>()?;
        Ok(Self { operations, values: count_json_values(text) })
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// How many bytes [`Self::apply`] takes for a message, at most. Copies may take all that there is.
    pub fn memory(&self, message: &Message) -> usize {
        let copies = self.operations.iter().any(|operation| matches!(operation, Operation::Copy { .. }));
        let values = std::str::from_utf8(message.body()).map_or(0, count_json_values);
        let values = if copies { PATCH_VALUES } else { values.min(PATCH_VALUES) };
        // The text of the values, and what becomes of it.
        values * VALUE_BYTES + 2 * message.body().len()
    }

    /// The message with the patch applied, as bytes that are still to be parsed. The message itself stays as it is.
    pub fn apply(self, message: &Message) -> Result<Bytes, PatchError> {
        let body = std::str::from_utf8(message.body()).map_err(|_| PatchError::NotApplicable)?;
        skep_bounds::json(body).map_err(|_| PatchError::TooLarge)?;
        let values = PATCH_VALUES.saturating_sub(self.values);
        skep_bounds::json_values(body, values).map_err(|_| PatchError::TooLarge)?;
        let mut room = Room { bytes: MOST_BYTES, values: values.saturating_sub(count_json_values(body)) };
        let mut tree = Json::from_slice(body.as_bytes()).map_err(|_| PatchError::NotApplicable)?;
        for operation in self.operations {
            operation.apply(&mut tree, &mut room)?;
        }
        let patched = tree.to_compact();
        if patched.len() > MOST_BYTES {
            return Err(PatchError::TooLarge);
        }
        Ok(patched.into())
    }
}

/// An operation as it is written.
struct Entry {
    op: String,
    path: String,
    from: Option<String>,
    value: Option<Json>,
}

impl Entry {
    fn read(entry: Json) -> Result<Self, PatchError> {
        let Json::Object(mut members) = entry else { return Err(PatchError::Malformed) };
        let mut text = |name: &str| match members.remove(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(PatchError::Malformed),
        };
        let (op, path, from) = (text("op")?.unwrap_or_default(), text("path")?.unwrap_or_default(), text("from")?);
        Ok(Self { op, path, from, value: members.remove("value") })
    }

    /// Whether it is complete.
    fn check(&self) -> Result<(), PatchError> {
        let is_complete = match self.op.as_str() {
            "add" | "replace" | "test" => self.value.is_some(),
            "copy" | "move" => self.from.as_ref().is_some_and(|from| !from.is_empty()),
            "remove" => true,
            _ => false,
        };
        if is_complete && !self.path.is_empty() { Ok(()) } else { Err(PatchError::Invalid) }
    }

    fn operation(self) -> Result<Operation, PatchError> {
        let path = scoped(&self.path)?;
        let from = self.from.as_deref().map(scoped).transpose()?;
        let operation = match (self.op.as_str(), from, self.value) {
            ("test", _, Some(value)) => return Ok(Operation::Test { path, value }),
            ("add", _, Some(value)) => Operation::Add { path, value },
            ("replace", _, Some(value)) => Operation::Replace { path, value },
            ("remove", _, _) => Operation::Remove { path },
            ("copy", Some(from), _) => Operation::Copy { from, path },
            ("move", Some(from), _) => Operation::Move { from, path },
            _ => return Err(PatchError::Invalid),
        };
        if operation.changed().any(|path| FIXED.contains(&path.first())) {
            return Err(PatchError::Invalid);
        }
        Ok(operation)
    }
}

impl Operation {
    /// The paths that it changes.
    fn changed(&self) -> impl Iterator<Item = &Pointer> {
        let (one, other) = match self {
            Self::Add { path, .. } | Self::Remove { path } | Self::Replace { path, .. } | Self::Copy { path, .. } => {
                (Some(path), None)
            }
            Self::Move { from, path } => (Some(path), Some(from)),
            Self::Test { .. } => (None, None),
        };
        one.into_iter().chain(other)
    }
}

/// A path within the message.
fn scoped(path: &str) -> Result<Pointer, PatchError> {
    let within = path.strip_prefix('/').and_then(|path| path.strip_prefix(SCOPE)).filter(|rest| rest.starts_with('/'));
    Pointer::parse(within.ok_or(PatchError::OutOfScope)?).ok_or(PatchError::Invalid)
}

#[cfg(test)]
mod tests;
