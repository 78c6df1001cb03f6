//! What the document and the pod of one virtual server take over from other objects: one budget for all references.
//!
//! Each reference copies what it names, so a few bytes in a spec can stand for a megabyte, and a hundred objects that are each within their
//! limits for gigabytes. Bytes bound the texts, and values the memory that trees of them take.

use serde::Serialize;
use skep_bounds::{REFERENCED_BYTES, REFERENCED_VALUES, count_json_values};

use crate::canonical;

/// What is left of the budget.
#[derive(Debug)]
pub(super) struct ReferenceBudget {
    left: Size,
}

/// What a copy takes: bytes as JSON, and values (scalars, lists and objects).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    bytes: usize,
    values: usize,
}

/// A virtual server takes over more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "with it, this virtual server takes over more than {REFERENCED_BYTES} bytes or {REFERENCED_VALUES} values by reference; refer to fewer or \
     smaller objects"
)]
pub(super) struct ReferenceBudgetError;

// === impl ReferenceBudget ===

impl Default for ReferenceBudget {
    fn default() -> Self {
        Self { left: Size { bytes: REFERENCED_BYTES, values: REFERENCED_VALUES } }
    }
}

impl ReferenceBudget {
    /// Pays for one copy; nothing is paid for one that is too large.
    pub(super) fn charge(&mut self, size: Size) -> Result<(), ReferenceBudgetError> {
        let bytes = self.left.bytes.checked_sub(size.bytes);
        let (bytes, values) = bytes.zip(self.left.values.checked_sub(size.values)).ok_or(ReferenceBudgetError)?;
        self.left = Size { bytes, values };
        Ok(())
    }
}

// === impl Size ===

impl Size {
    /// The size of what is copied.
    pub(super) fn of(copied: &impl Serialize) -> Self {
        let text = canonical::encoded(copied);
        Self { bytes: text.len(), values: count_json_values(&text) }
    }
}
