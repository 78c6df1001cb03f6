//! Writing JSON text, byte for byte as Go's `encoding/json` does: characters that mean something in HTML are escaped, the
//! indentation is two spaces, empty lists and objects stay on one line, and nothing follows the last brace.

use std::fmt::Write as _;

use serde_json::Value;

use super::Json;

const INDENT: &str = "  ";

impl Json {
    /// On one line, without a space.
    pub fn to_compact(&self) -> String {
        let mut text = String::new();
        append(&mut text, self, None);
        text
    }

    /// One member or element a line.
    pub fn to_pretty(&self) -> String {
        let mut text = String::new();
        append(&mut text, self, Some(0));
        text
    }
}

/// A value on one line, its members sorted by name: the text of [`Json::from`] it, without a copy of the value.
pub fn sorted(value: &Value) -> String {
    let mut text = String::new();
    append_sorted(&mut text, value);
    text
}

fn append_sorted(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => write_string(text, string),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                append_sorted(text, item);
            }
            text.push(']');
        }
        Value::Object(map) => {
            let mut members: Vec<(&String, &Value)> = map.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_string(text, name);
                text.push(':');
                append_sorted(text, value);
            }
            text.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => append(text, &Json::from(value), None),
    }
}

/// `level` is how deep a value stands, if lines are to be indented.
fn append(text: &mut String, json: &Json, level: Option<usize>) {
    let inner = level.map(|level| level + 1);
    match json {
        Json::Null => text.push_str("null"),
        Json::Bool(true) => text.push_str("true"),
        Json::Bool(false) => text.push_str("false"),
        Json::Number(number) => text.push_str(number.as_str()),
        Json::String(string) => write_string(text, string),
        Json::Array(items) if items.is_empty() => text.push_str("[]"),
        Json::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                text.push(if index == 0 { '[' } else { ',' });
                new_line(text, inner);
                append(text, item, inner);
            }
            new_line(text, level);
            text.push(']');
        }
        Json::Object(members) if members.is_empty() => text.push_str("{}"),
        Json::Object(members) => {
            for (index, (name, value)) in members.iter().enumerate() {
                text.push(if index == 0 { '{' } else { ',' });
                new_line(text, inner);
                write_string(text, name);
                text.push_str(if level.is_some() { ": " } else { ":" });
                append(text, value, inner);
            }
            new_line(text, level);
            text.push('}');
        }
    }
}

fn new_line(text: &mut String, level: Option<usize>) {
    if let Some(level) = level {
        text.push('\n');
        text.extend(std::iter::repeat_n(INDENT, level));
    }
}

fn write_string(text: &mut String, string: &str) {
    text.push('"');
    let mut rest = string;
    while let Some(at) = rest.find(is_escaped) {
        let (plain, special) = rest.split_at(at);
        text.push_str(plain);
        let mut characters = special.chars();
        match characters.next() {
            Some('"') => text.push_str("\\\""),
            Some('\\') => text.push_str("\\\\"),
            Some('\n') => text.push_str("\\n"),
            Some('\r') => text.push_str("\\r"),
            Some('\t') => text.push_str("\\t"),
            Some('\u{8}') => text.push_str("\\b"),
            Some('\u{c}') => text.push_str("\\f"),
            Some(character) => {
                // Writing to a `String` cannot fail.
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            None => {}
        }
        rest = characters.as_str();
    }
    text.push_str(rest);
    text.push('"');
}

fn is_escaped(character: char) -> bool {
    matches!(character, '\0'..='\u{1f}' | '"' | '\\' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}
