//! Manifests as text: YAML as Kubernetes reads it, in and out.
//!
//! Kubernetes parses YAML with the habits of YAML 1.1 (`0644` is octal, `yes` is true) and so does this; duplicate keys are
//! refused. Nothing here knows a kind.

mod budget;
#[cfg(test)]
mod tests;
mod wording;

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::Value;
use skep_bounds::{BoundsError, CONFIG_MAP_BYTES, CONFIG_MAP_DOCUMENTS, MANIFEST_BYTES};

use self::budget::Budget;

/// A manifest cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The text is larger than it may be.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// The text is not YAML.
    #[error("not valid YAML or JSON at line {line}, column {column}: {problem}")]
    Syntax {
        /// The line, counted from 1 over the whole text.
        line: usize,
        /// The column in it, counted from 1.
        column: usize,
        /// What is wrong there, and what to do.
        problem: String,
    },
    /// A document is a scalar or a list, not an object.
    #[error("document {number} (line {line}) is not an object; a manifest starts with `apiVersion:` and `kind:`")]
    NotAnObject {
        /// Which document, counted from 1.
        number: usize,
        /// The line that it begins on.
        line: usize,
    },
    /// There is another number of documents than one.
    #[error("it must hold one document, and holds {0}; write exactly one")]
    NotOne(&'static str),
    /// A value cannot be written as YAML.
    #[error("cannot be written as YAML: {0}")]
    Unwritable(String),
}

/// One document of a text, and where it begins.
#[derive(Debug)]
pub struct Document {
    /// The line of its first content, counted from 1.
    pub line: usize,
    /// The objects in it: one, or the items of a `List`. Never empty.
    pub objects: Result<Vec<Value>, ManifestError>,
}

/// The part of a text between two document markers.
struct Part<'a> {
    /// How many lines are before it.
    offset: usize,
    text: &'a str,
}

/// The objects in a text: every document, with the items of a `List` taken out. Empty documents are passed over. The first
/// document that cannot be read fails the whole text.
pub fn parse(text: &str) -> Result<Vec<Value>, ManifestError> {
    let mut objects = Vec::new();
    for document in documents(text) {
        objects.extend(document.objects?);
    }
    Ok(objects)
}

/// The only object in a text that a ConfigMap holds. What follows a second one is not read.
pub fn parse_one(text: &str) -> Result<Value, ManifestError> {
    skep_bounds::size(text, CONFIG_MAP_BYTES)?;
    let documents = Documents::of(text, Budget::of_config_map(text));
    if documents.parts.len() > CONFIG_MAP_DOCUMENTS {
        return Err(ManifestError::NotOne("more"));
    }
    let mut found = None;
    for document in documents {
        for object in document.objects? {
            if found.replace(object).is_some() {
                return Err(ManifestError::NotOne("more"));
            }
        }
    }
    found.ok_or(ManifestError::NotOne("none"))
}

/// The documents of a text, each read by itself, so that one that is broken hides none of the others. Empty ones are passed over.
///
/// What is nested too deep is refused, and so is a text whose aliases would make far more of it than is written there.
pub fn documents(text: &str) -> Vec<Document> {
    match skep_bounds::size(text, MANIFEST_BYTES) {
        Ok(()) => Documents::of(text, Budget::of(text)).collect(),
        Err(error) => vec![Document { line: 1, objects: Err(error.into()) }],
    }
}

/// Reads the documents of a text one after the other, out of one budget.
struct Documents<'a> {
    parts: std::vec::IntoIter<Part<'a>>,
    budget: Budget,
    /// Which document is next. Counted as people do: an empty one has a marker all the same, but is not counted.
    number: usize,
    /// Documents of one part that were not returned yet.
    read: VecDeque<Document>,
}

/// Cuts a text at its document markers. A `---` at the start of a line is one wherever it stands, also for `kubectl`.
///
/// A part that says nothing is passed over: each costs a run of the parser, and a marker takes four bytes.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut add = |offset: usize, text| {
        let part = Part { offset, text };
        if !part.is_empty() {
            parts.push(part);
        }
    };
    let (mut start, mut offset, mut is_open) = (0, 0, false);
    let (mut position, mut number) = (0, 0);
    for line in text.split_inclusive('\n') {
        if is_marker(line, "---") && is_open {
            add(offset, text.get(start..position).unwrap_or_default());
            (start, offset, is_open) = (position, number, false);
        }
        // Directives and comments belong to the document that follows them.
        is_open |= is_content(line) && !is_marker(line, "...");
        position += line.len();
        number += 1;
        if is_marker(line, "...") {
            add(offset, text.get(start..position).unwrap_or_default());
            (start, offset, is_open) = (position, number, false);
        }
    }
    add(offset, text.get(start..).unwrap_or_default());
    parts
}

/// Whether a line is a document marker, with or without something after it.
fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

/// Whether a line says anything: it is neither empty, nor a comment, nor a directive.
fn is_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#') && !line.starts_with('%')
}

/// The objects of a document: itself, or the items of a `List`. Nothing if it is not an object.
fn objects(document: Value) -> Option<Vec<Value>> {
    match document {
        Value::Object(mut list) if is_list(&list) => match list.remove("items") {
            Some(Value::Array(items)) => Some(items),
            _ => Some(Vec::new()),
        },
        Value::Object(_) => Some(vec![document]),
        _ => None,
    }
}

// === impl Documents ===

impl<'a> Documents<'a> {
    fn of(text: &'a str, budget: Budget) -> Self {
        let parts = parts(text.strip_prefix('\u{feff}').unwrap_or(text)).into_iter();
        Self { parts, budget, number: 1, read: VecDeque::new() }
    }

    fn read(&mut self, part: &Part<'_>) {
        let line = part.first_line();
        match self.budget.read(part.text, part.offset) {
            Err(error) => {
                self.number += 1;
                self.read.push_back(Document { line, objects: Err(error) });
            }
            Ok(values) => {
                for value in values.into_iter().filter(|value| !value.is_null()) {
                    let objects = objects(value).ok_or(ManifestError::NotAnObject { number: self.number, line });
                    self.number += 1;
                    if objects.as_ref().map_or(true, |objects| !objects.is_empty()) {
                        self.read.push_back(Document { line, objects });
                    }
                }
            }
        }
    }
}

impl Iterator for Documents<'_> {
    type Item = Document;

    fn next(&mut self) -> Option<Document> {
        while self.read.is_empty() {
            let part = self.parts.next()?;
            self.read(&part);
        }
        self.read.pop_front()
    }
}

// === impl Part ===

impl Part<'_> {
    /// Whether it has nothing but markers, comments and blanks. A directive without a document is for the parser to refuse.
    fn is_empty(&self) -> bool {
        const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];
        self.text.split_inclusive('\n').all(|line| {
            let marker = ["---", "..."].into_iter().find(|marker| is_marker(line, marker));
            let said = marker.and_then(|marker| line.strip_prefix(marker)).unwrap_or(line).trim_matches(BLANKS);
            said.is_empty() || said.starts_with('#')
        })
    }

    /// The line of its first content; its own first line if there is none.
    fn first_line(&self) -> usize {
        let begins = |line: &str| is_content(line) && !(is_marker(line, "---") && line.trim() == "---");
        self.offset + 1 + self.text.lines().position(begins).unwrap_or_default()
    }
}

/// One object as a YAML document, starting with its separator.
pub fn document<T: Serialize>(object: &T) -> Result<String, ManifestError> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        prefer_block_scalars: false,
    };
    let body = serde_saphyr::to_string_with_options(object, options)
        .map_err(|error| ManifestError::Unwritable(error.to_string()))?;
    let end = if body.ends_with('\n') { "" } else { "\n" };
    Ok(format!("---\n{body}{end}"))
}

fn is_list(object: &serde_json::Map<String, Value>) -> bool {
    object.get("apiVersion").is_some_and(|version| version == "v1")
        && object.get("kind").is_some_and(|kind| kind == "List")
}
