//! Patches of messages: RFC 6902, scoped to the message and bounded.
//!
//! A patch is applied to a tree that keeps the order of members and the digits of numbers, so that what a webhook does not change
//! reaches the MCP server as the client wrote it. Copies can double a message with every operation, and additions can nest it:
//! both are bounded while the patch is applied.

mod apply;
mod pointer;

use bytes::Bytes;
use skep_mcp::Message;
use skep_runconfig::Json;

use self::pointer::Pointer;
use crate::MOST_BYTES;

/// The most operations of a patch.
pub const MOST_OPERATIONS: usize = 1_000;
/// What the paths of a patch begin with.
const SCOPE: &str = "mcp_request";
/// Members of a message that identify it. The client waits for an answer to them, and policies decide by the method.
const FIXED: [&str; 3] = ["jsonrpc", "id", "method"];

/// A patch whose operations are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch(Vec<Operation>);

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
    #[error("the patch has more than {MOST_OPERATIONS} operations, or makes the message too large or too deep")]
    TooLarge,
}

// === impl Patch ===

impl Patch {
    /// Reads a patch.
    pub fn read(patch: &Json) -> Result<Self, PatchError> {
        let Json::Array(entries) = patch else { return Err(PatchError::Malformed) };
        if entries.len() > MOST_OPERATIONS {
            return Err(PatchError::TooLarge);
        }
        let entries: Vec<Entry<'_>> = entries.iter().map(Entry::read).collect::<Result<_, _>>()?;
        for entry in &entries {
            entry.check()?;
        }
        entries.iter().map(Entry::operation).collect::<Result<_, _>>().map(Self)
    }

    /// The message with the patch applied, as bytes that are still to be parsed. The message itself stays as it is.
    pub fn apply(&self, message: &Message) -> Result<Bytes, PatchError> {
        let body = std::str::from_utf8(message.body()).map_err(|_| PatchError::NotApplicable)?;
        skep_bounds::json(body).map_err(|_| PatchError::TooLarge)?;
        let mut tree = Json::from_slice(body.as_bytes()).map_err(|_| PatchError::NotApplicable)?;
        let mut room = MOST_BYTES;
        for operation in &self.0 {
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
struct Entry<'a> {
    op: &'a str,
    path: &'a str,
    from: Option<&'a str>,
    value: Option<&'a Json>,
}

impl<'a> Entry<'a> {
    fn read(entry: &'a Json) -> Result<Self, PatchError> {
        let text = |name: &str| match entry.get(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(PatchError::Malformed),
        };
        if !matches!(entry, Json::Object(_)) {
            return Err(PatchError::Malformed);
        }
        let op = text("op")?.unwrap_or_default();
        let (path, from) = (text("path")?.unwrap_or_default(), text("from")?);
        Ok(Self { op, path, from, value: entry.get("value") })
    }

    /// Whether it is complete.
    fn check(&self) -> Result<(), PatchError> {
        let is_complete = match self.op {
            "add" | "replace" | "test" => self.value.is_some(),
            "copy" | "move" => self.from.is_some_and(|from| !from.is_empty()),
            "remove" => true,
            _ => false,
        };
        if is_complete && !self.path.is_empty() { Ok(()) } else { Err(PatchError::Invalid) }
    }

    fn operation(&self) -> Result<Operation, PatchError> {
        let path = scoped(self.path)?;
        let from = self.from.map(scoped).transpose()?;
        let value = self.value.cloned();
        let operation = match (self.op, from, value) {
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
