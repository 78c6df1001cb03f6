//! `text_statistics`: how long a text is, by several measures.

use serde_json::{Value, json};

use super::{Arguments, Tool, text};
use crate::server::Surroundings;

pub(super) const TOOL: Tool = Tool {
    name: "text_statistics",
    title: "Count a text",
    description: "Counts the characters, bytes, words and lines of a text, and finds its longest word.",
    repeats: true,
    arguments: || json!({ "text": { "type": "string", "description": "The text." } }),
    required: &["text"],
    output: || {
        json!({
            "characters": { "type": "integer", "description": "Unicode characters." },
            "bytes": { "type": "integer", "description": "Bytes in UTF-8." },
            "words": { "type": "integer", "description": "Runs of characters between white space." },
            "lines": { "type": "integer", "description": "Lines, with or without an end." },
            "longestWord": { "type": "string", "description": "The first of the longest words; empty if there is none." },
        })
    },
    run,
};

fn run(arguments: &Arguments, _: &Surroundings) -> Result<Value, String> {
    let text = text(arguments, "text")?.ok_or("the argument `text` must be a string")?;
    let longest = text.split_whitespace().rev().max_by_key(|word| word.chars().count());
    Ok(json!({
        "characters": text.chars().count(),
        "bytes": text.len(),
        "words": text.split_whitespace().count(),
        "lines": text.lines().count(),
        "longestWord": longest.unwrap_or_default(),
    }))
}
