//! How large and how deep a text of a user may be, checked before a parser sees it.
//!
//! Parsers of nested languages recurse, and a stack that overflows ends the process: one object in one namespace would
//! stop the operator for all of them, at every restart. Others take two hundred bytes of memory for each byte of input.
//! So every text of a user that is parsed recursively goes through a linear scan first:
//!
//! ```text
//!   text ─▶ size ─▶ tokens (strings and comments skipped) ─▶ Nesting (depth, chains) ─▶ the parser
//! ```
//!
//! This crate owns all limits and the scans of [`cedar`], [`cel`], [`json`] and [`template`]. It never parses, and it has no dependency
//! that does.

mod cedar;
mod cel;
mod json;
mod nesting;
mod template;

pub use cedar::cedar;
pub use cel::cel;
pub use json::{count_json_values, json, json_values};
pub use nesting::{Nesting, NestingLimits, Token};
pub use template::template;

/// The largest Cedar policy, in bytes.
pub const POLICY_BYTES: usize = 64 * 1024;
/// The largest set of Cedar policies, in bytes: all texts of one configuration together.
pub const POLICY_SET_BYTES: usize = 256 * 1024;
/// How many texts of Cedar policies a configuration may have. Each costs a run of the parser, however short it is.
pub const POLICY_COUNT: usize = 1_000;
/// How many tokens a Cedar policy may have. The parser takes up to two kilobytes for each.
pub const POLICY_TOKENS: usize = 32 * 1024;
/// How many operators of a Cedar policy may follow each other. Each is a level of the tree that the parser makes.
pub const POLICY_CHAIN: usize = 512;
/// The largest Cedar entities, in bytes.
pub const ENTITIES_BYTES: usize = 256 * 1024;
/// How many levels of parents Cedar entities may have.
pub const ENTITY_LEVELS: usize = 32;
/// How many pairs of an entity and one of its ancestors there may be. All of them are kept in memory.
pub const ENTITY_ANCESTORS: usize = 64 * 1024;
/// How deep brackets, blocks and conditionals may be nested in Cedar, CEL and templates.
pub const EXPRESSION_DEPTH: usize = 32;
/// The largest matcher in CEL, in bytes.
pub const MATCHER_BYTES: usize = 10_000;
/// How many operators of a matcher may follow each other.
pub const MATCHER_CHAIN: usize = 256;
/// How many tokens a matcher may have. The parser takes some 3 µs for each.
pub const MATCHER_TOKENS: usize = 2 * 1024;
/// How many tokens a minus sign in front of an operand counts for. `-1` can be read as one number or as an operator and a number, and
/// the parser tries both anew each time.
pub const MATCHER_MINUS_TOKENS: usize = 16;
/// The longest regular expression in a matcher (`matches`), in bytes, and how many bytes it may take when it is compiled.
pub const PATTERN_BYTES: usize = 1024;
/// See [`PATTERN_BYTES`].
pub const COMPILED_PATTERN_BYTES: usize = 1024 * 1024;
/// How many steps a matcher may take for one token, as far as can be seen before: an operator or a function is one step, and a macro takes
/// those of its arguments for each element of its list.
pub const MATCHER_STEPS: u64 = 1_000_000;
/// How many matchers one configuration may have.
pub const MATCHER_COUNT: usize = 100;
/// The largest size of all matchers of one configuration together, in bytes.
pub const MATCHER_SET_BYTES: usize = 64 * 1024;
/// How many tokens all matchers of one configuration may have together.
pub const MATCHER_SET_TOKENS: usize = 16 * 1024;
/// How many tokens the matchers of all configurations that one virtual server refers to may have together.
pub const REFERENCED_MATCHER_TOKENS: usize = 64 * 1024;
/// How many bytes of other objects one virtual server may take over, counted at each place that refers to one. No ConfigMap holds
/// more.
pub const REFERENCED_BYTES: usize = 1024 * 1024;
/// How many values (scalars, lists and objects) of other objects one virtual server may take over, counted in the same way. A thousand
/// members take some ten each.
pub const REFERENCED_VALUES: usize = 32 * 1024;
/// How many headers one object may forward, plain ones and those from Secrets each.
pub const FORWARDED_HEADERS: usize = 100;
/// How many bytes the names and values of the plain headers that one object forwards may have.
pub const FORWARDED_HEADER_BYTES: usize = 16 * 1024;
/// The longest URL of a remote MCP server, in bytes.
pub const REMOTE_URL_BYTES: usize = 8 * 1024;
/// How many values (scalars, lists and objects) Cedar entities may have. Cedar takes several hundred bytes for each.
pub const ENTITY_VALUES: usize = 16 * 1024;
/// How many values the attributes and tags of Cedar entities may have if each counts once for every list and object around it, its
/// attribute included. Cedar's reader buffers a value once for each of them.
pub const ENTITY_NESTED_VALUES: usize = 64 * 1024;
/// How many variables a user may set in one container.
pub const ENV_VARIABLES: usize = 1_000;
/// How many values (scalars, lists and objects) a message of a client and the patch of a webhook may have together, with all that the patch
/// copies. A value takes up to 320 bytes in a tree, and is written with two.
pub const PATCH_VALUES: usize = 16 * 1024;
/// How many Secrets and ConfigMaps an object may refer to. Each is read, one request each, before the object is planned.
pub const CONTENT_REFERENCES: usize = 256;
/// How many composite tools one virtual server may have, in its own spec and by reference each.
pub const COMPOSITE_TOOLS: usize = 100;
/// How many steps one composite tool may have.
pub const COMPOSITE_STEPS: usize = 100;
/// How many steps all composite tools of one virtual server may have together, in its own spec and by reference each.
pub const COMPOSITE_SET_STEPS: usize = 1_000;
/// How many backends one virtual server may have, and how many entries each of its lists of them.
pub const BACKENDS: usize = 1_000;
/// The largest template of a composite tool, in bytes.
pub const TEMPLATE_BYTES: usize = 64 * 1024;
/// How many steps rendering a template may take. A second is enough for all of them.
pub const TEMPLATE_STEPS: u64 = 1_000_000;
/// The largest text that a template may render to, in bytes, and the largest string that it may make on the way.
pub const TEMPLATE_OUTPUT_BYTES: usize = 10 * 1024 * 1024;
/// How deep templates may call each other.
pub const TEMPLATE_CALLS: usize = 100;
/// How deep lists and objects may be nested in data that a template prints or encodes. `serde_json` parses no deeper ones.
pub const TEMPLATE_DATA_DEPTH: usize = 128;
/// The largest JSON text inside a string, in bytes. No object of the API server is larger.
pub const JSON_BYTES: usize = 1024 * 1024;
/// How deep lists and objects may be nested in JSON inside a string.
pub const JSON_DEPTH: usize = 64;
/// How deep lists and objects may be nested in an object of the API server. `serde_json` itself gives up at 128.
pub const OBJECT_DEPTH: usize = 100;
/// How many values (scalars, lists and objects) the spec of an object of the API server may have. An object of one member takes more than
/// 600 bytes, as often as it is copied, and it is written with seven.
pub const OBJECT_VALUES: usize = 20_000;
/// The largest file of manifests, in bytes.
pub const MANIFEST_BYTES: usize = 16 * 1024 * 1024;
/// How deep lists and objects may be nested in a manifest. The parser of YAML takes more stack than that of JSON.
pub const MANIFEST_DEPTH: usize = 64;
/// How many aliases (`*name`) a file of manifests may have, in all of its documents together.
pub const MANIFEST_ALIASES: usize = 1_000;
/// How many times its own size a file of manifests may have when its aliases are written out.
pub const MANIFEST_EXPANSION: usize = 4;
/// How many values (scalars, lists and objects) a document of a file of manifests may have.
pub const MANIFEST_NODES: usize = 250_000;
/// The largest text in a ConfigMap, in bytes: what is read from one, and what is written to one. No object of the API server is larger.
pub const CONFIG_MAP_BYTES: usize = 1024 * 1024;
/// How many values (scalars, lists and objects, and names of members in YAML) a document in a ConfigMap may have. It is copied as often as
/// a spec is.
pub const CONFIG_MAP_VALUES: usize = OBJECT_VALUES;
/// How many documents YAML in a ConfigMap may have, of which all but one are empty. Each costs a run of the parser, and is written with
/// six bytes.
pub const CONFIG_MAP_DOCUMENTS: usize = 16;

/// A text exceeds a limit, or cannot be split into tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundsError {
    /// It is too large.
    #[error("it has {found} bytes, and {most} are the most; write less, or split it")]
    Bytes {
        /// Its size.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// It has too many values.
    #[error("it has more than {most} values (texts, numbers, lists and objects); write less")]
    Values {
        /// The limit.
        most: usize,
    },
    /// It has too many tokens.
    #[error("it has more than {most} tokens; split it")]
    Tokens {
        /// The limit.
        most: usize,
    },
    /// It is nested too deep.
    #[error("more than {most} brackets and choices stand inside each other; write it flatter")]
    Depth {
        /// The limit.
        most: usize,
    },
    /// Too many operators follow each other.
    #[error("more than {most} operators hang on each other; write it shorter")]
    Chain {
        /// The limit.
        most: usize,
    },
    /// Tests that the parser writes out twice are nested.
    #[error("more than {most} `is … in …` tests are nested in each other; test each entity on its own")]
    Doubled {
        /// The limit.
        most: usize,
    },
    /// A bracket is closed that was not opened.
    #[error("`{0}` closes nothing that is open; remove it, or open its bracket")]
    NotOpen(char),
    /// A bracket is not closed.
    #[error("a bracket is not closed; `{0}` is missing")]
    NotClosed(char),
    /// A string is not closed on its line, or at all.
    #[error("a string is not closed; `{0}` is missing")]
    OpenString(char),
    /// A character that begins no token.
    #[error("`{0}` does not belong here; remove it, or put it in quotes")]
    Character(char),
    /// An escape that the language does not know.
    #[error("`\\{0}` in a string is not an escape; for a backslash write `\\\\`")]
    Escape(char),
    /// A carriage return in a string.
    #[error("a string has a carriage return; write `\\r`, or save the text with line feeds only")]
    CarriageReturn,
    /// The parser could take it for something else than its author.
    #[error("{0}")]
    Unclear(String),
    /// A separator without an operand before it.
    #[error("nothing is before a `,` or `:`; remove it, or write what belongs there")]
    NoOperand,
    /// A semicolon without a policy.
    #[error("a `;` has no policy before it; remove it")]
    EmptyPolicy,
}

/// Checks the size of a text.
pub fn size(text: &str, most: usize) -> Result<(), BoundsError> {
    let found = text.len();
    if found > most { Err(BoundsError::Bytes { found, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
