//! What one text may make the parser of YAML do.
//!
//! An alias (`*name`) stands for a copy of what its anchor (`&name`) holds, so a text of a megabyte can stand for a gigabyte. All
//! that is read from a text, copies included, comes out of one budget that is in proportion to the text. The parser counts
//! for each call, and each document is a call; what is left goes to the next.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::Value;
use skep_bounds::{CONFIG_MAP_VALUES, MANIFEST_ALIASES, MANIFEST_DEPTH, MANIFEST_EXPANSION, MANIFEST_NODES};

use super::{ManifestError, wording};

/// What a small text may have in any case: values, and bytes of them.
const SMALL: Left = Left { aliases: MANIFEST_ALIASES, nodes: 4 * 1024, scalar_bytes: 64 * 1024 };

/// The budget of a text.
#[derive(Debug)]
pub(super) struct Budget(Left);

/// What is left of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    aliases: usize,
    /// Scalars, lists and objects.
    nodes: usize,
    scalar_bytes: usize,
}

// === impl Budget ===

impl Budget {
    /// The budget of a whole text.
    pub(super) const fn of(text: &str) -> Self {
        Self(Left {
            aliases: SMALL.aliases,
            // Without aliases, no text has more values than bytes.
            nodes: SMALL.nodes + text.len(),
            scalar_bytes: SMALL.scalar_bytes + MANIFEST_EXPANSION * text.len(),
        })
    }

    /// The budget of a text in a ConfigMap, which has few values however long it is.
    pub(super) const fn of_config_map(text: &str) -> Self {
        let Self(left) = Self::of(text);
        Self(Left { nodes: CONFIG_MAP_VALUES, ..left })
    }

    /// The documents of a part of the text, before which there are `offset` lines.
    pub(super) fn read(&mut self, part: &str, offset: usize) -> Result<Vec<Value>, ManifestError> {
        let left = self.0;
        let nodes = left.nodes.min(MANIFEST_NODES);
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: MANIFEST_DEPTH,
                max_aliases: left.aliases,
                max_nodes: nodes,
                max_total_scalar_bytes: left.scalar_bytes,
                // What is kept of anchors, for their aliases.
                max_recorded_anchor_events: nodes,
                max_recorded_anchor_bytes: left.scalar_bytes,
            },
            legacy_octal_numbers: true,
            with_snippet: false,
        };
        let after = Rc::new(Cell::new(left));
        let noted = Rc::clone(&after);
        let options = options.with_budget_report(move |report| {
            noted.set(Left {
                aliases: left.aliases.saturating_sub(report.aliases),
                nodes: left.nodes.saturating_sub(report.nodes),
                scalar_bytes: left.scalar_bytes.saturating_sub(report.total_scalar_bytes),
            });
        });
        let read = serde_saphyr::from_multiple_with_options(part, options);
        self.0 = after.get();
        read.map_err(|error| wording::syntax_error(&error, offset))
    }
}
