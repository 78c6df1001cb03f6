//! The language of Go's text/template, in which composite tools of a virtual MCP server are written.
//!
//! ```text
//!   text ─▶ skep_bounds::template ─▶ lexer ─▶ parser ─▶ tree ─┬─▶ references: what of the data it reads
//!                                                             └─▶ render: evaluate (functions, print) ─▶ text
//! ```
//!
//! This crate owns the whole language and its limits: no text exhausts the stack when it is parsed, and no template takes more
//! steps, bytes or nested calls than its [`RenderLimits`] when it is rendered. It never does I/O, and its output depends on the
//! template and the data alone.
//!
//! It renders as Go 1.26 does, with the functions of `text/template` and with `json`, `quote` and `fromJson`; the vectors in
//! `tests/golden` come from there. What differs on purpose:
//!
//! - an integral number of data is written with all of its digits (`1000000`, not `1e+06`), also one that a `float64` cannot hold;
//! - integers and numbers of data are compared by value: `eq .count 3` is no error;
//! - imaginary numbers are refused, and `printf "%p"` writes no address.

mod arena;
mod builtin;
mod error;
mod evaluate;
mod function;
mod lexer;
mod literal;
mod members;
mod meter;
mod parser;
mod print;
mod references;
mod render;
mod scope;
mod tree;
mod utf8;
mod value;

use serde_json::Value;

pub use error::{EvaluationError, ParseError, Position, RenderError, SyntaxError};
pub use meter::RenderLimits;

/// A template, ready to be rendered.
#[derive(Clone, Debug)]
pub struct Template {
    tree: tree::Tree,
}

// === impl Template ===

impl Template {
    /// Parses a text.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        skep_bounds::template(text)?;
        Ok(Self { tree: parser::parse(text)? })
    }

    /// Renders it with data, which are at most as deep as `serde_json` parses.
    pub fn render(&self, data: &Value, limits: RenderLimits) -> Result<String, RenderError> {
        render::render(&self.tree, data, limits)
    }

    /// The members of the data that it reads, each as the names that lead there, in order and without duplicates: `.steps.a.output`
    /// and `index .steps "a" "output"` both as `["steps", "a", "output"]`. Followed are variables, `with` and `template`, and at
    /// most eight names; what is only known when it is rendered ends a path.
    pub fn references(&self) -> impl Iterator<Item = Vec<&str>> {
        references::of(&self.tree).into_iter()
    }
}
