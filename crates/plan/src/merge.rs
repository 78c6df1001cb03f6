//! Merging a person's changes into what was generated, as JSON.
//!
//! * [`strategic`] is Kubernetes' strategic merge patch over a pod template: lists are merged by their keys, `$patch`
//!   and its kin direct it. It works on JSON and not on types, so that fields newer than this build come through.
//! * [`merge_patch`] and [`merge_diff`] are the plain merge patch of RFC 7396 and its inverse.
//! * [`check_pod_template`] says whether a value is a pod template at all.
//!
//! [`strategic`] gives what Kubernetes' own implementation gives, with four exceptions where that one leaves the template
//! in pieces: a directive inside a new or replaced value is carried out instead of being left behind; `$patch: merge` is
//! accepted; a list or object where the other belongs is refused instead of taken; and an element that is deleted does
//! not disturb the order of the others under `$setElementOrder`.
//!
//! Nothing here knows what a template is for, or which of its fields are ours: the code that stamps a template enforces that.

mod check;
mod list;
mod plain;
mod schema;
mod strategic;

pub use check::check_pod_template;
pub use plain::{merge_diff, merge_patch};
pub use strategic::strategic;

/// A strategic merge patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", if path.is_empty() { "podTemplateSpec" } else { path })]
pub struct MergeError {
    /// Where in the template, such as `spec.containers[mcp].env`.
    pub path: String,
    /// What is wrong there.
    pub problem: PatchError,
}

/// What can be wrong with a patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch has one kind of value where another belongs.
    #[error("the patch has {found} where {expected} belongs")]
    Shape {
        /// What belongs there.
        expected: &'static str,
        /// What the patch has.
        found: &'static str,
    },
    /// An element of a list lacks the merge key.
    #[error("an element has no `{0}`, the merge key of this list; add it")]
    NoKey(&'static str),
    /// A `$patch` says something else than it can.
    #[error("`$patch` cannot be {0}; write `replace`, `delete` or `merge`, or leave it out")]
    Directive(String),
    /// A directive that lists something is not a list.
    #[error("`{0}` must be a list")]
    NotAList(String),
    /// `$retainKeys` leaves out what the patch sets.
    #[error("`$retainKeys` does not name `{0}`, which the patch sets; add it there")]
    NotRetained(String),
    /// `$setElementOrder` does not have the elements of the patch in their order.
    #[error("`$setElementOrder/{0}` must name the elements of the patch, in the same order")]
    Order(String),
}

// === impl MergeError ===

impl MergeError {
    fn here(problem: PatchError) -> Self {
        Self { path: String::new(), problem }
    }

    /// The same error, seen from the object that holds the member.
    fn under(self, member: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("{member}{dot}{}", self.path), ..self }
    }
}

#[cfg(test)]
mod tests;
