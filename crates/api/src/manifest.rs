//! Manifests as text: YAML as Kubernetes reads it, in and out.
//!
//! Kubernetes parses YAML with the habits of YAML 1.1 (`0644` is octal, `yes` is true) and so does this; duplicate keys are
//! refused. Nothing here knows a kind.

mod wording;

use serde::Serialize;
use serde_json::Value;
use skep_bounds::{BoundsError, MANIFEST_ALIASES, MANIFEST_BYTES, MANIFEST_DEPTH};

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

/// The documents of a text, each read by itself, so that one that is broken hides none of the others. Empty ones are passed over.
///
/// What is nested too deep is refused, and so is a text whose aliases would make far more of it than stands there.
pub fn documents(text: &str) -> Vec<Document> {
    if let Err(error) = skep_bounds::size(text, MANIFEST_BYTES) {
        return vec![Document { line: 1, objects: Err(error.into()) }];
    }
    let mut documents = Vec::new();
    // Counted as people do: a document that is empty has a marker all the same, but nobody would count it.
    let mut number = 1;
    for part in parts(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        let line = part.first_line();
        match part.read() {
            Err(error) => documents.push(Document { line, objects: Err(error) }),
            Ok(values) => {
                for value in values.into_iter().filter(|value| !value.is_null()) {
                    let objects = objects(value).ok_or(ManifestError::NotAnObject { number, line });
                    number += 1;
                    if objects.as_ref().map_or(true, |objects| !objects.is_empty()) {
                        documents.push(Document { line, objects });
                    }
                }
                continue;
            }
        }
        number += 1;
    }
    documents
}

/// Cuts a text at its document markers. A `---` at the start of a line is one wherever it stands, also for `kubectl`.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut offset, mut is_open) = (0, 0, false);
    let (mut position, mut number) = (0, 0);
    for line in text.split_inclusive('\n') {
        if is_marker(line, "---") && is_open {
            parts.push(Part { offset, text: text.get(start..position).unwrap_or_default() });
            (start, offset, is_open) = (position, number, false);
        }
        // Directives and comments belong to the document that follows them.
        is_open |= is_content(line) && !is_marker(line, "...");
        position += line.len();
        number += 1;
        if is_marker(line, "...") {
            parts.push(Part { offset, text: text.get(start..position).unwrap_or_default() });
            (start, offset, is_open) = (position, number, false);
        }
    }
    parts.push(Part { offset, text: text.get(start..).unwrap_or_default() });
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

/// The objects of a document: itself, or the items of a `List`. Nothing if it is no object.
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

// === impl Part ===

impl Part<'_> {
    /// The line of its first content; its own first line if there is none.
    fn first_line(&self) -> usize {
        let begins = |line: &str| is_content(line) && !(is_marker(line, "---") && line.trim() == "---");
        self.offset + 1 + self.text.lines().position(begins).unwrap_or_default()
    }

    fn read(&self) -> Result<Vec<Value>, ManifestError> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: MANIFEST_DEPTH,
                max_aliases: MANIFEST_ALIASES,
            },
            legacy_octal_numbers: true,
            with_snippet: false,
        };
        serde_saphyr::from_multiple_with_options(self.text, options)
            .map_err(|error| wording::syntax_error(&error, self.offset))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_is_read_with_the_habits_of_kubernetes() {
        let text = "---\n# nothing\n---\nkind: A\nmode: 0644\non: yes\ntext: '0644'\nquoted: \"yes\"\nbig: 12345678901\n---\n{\"kind\": \"B\"}\n";
        let expected = vec![
            json!({ "kind": "A", "mode": 420, "on": true, "text": "0644", "quoted": "yes", "big": 12_345_678_901_i64 }),
            json!({ "kind": "B" }),
        ];
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn the_items_of_a_list_are_objects_of_their_own() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: B\n";
        assert_eq!(parse(text).unwrap(), vec![json!({ "kind": "A" }), json!({ "kind": "B" })]);
    }

    #[test]
    fn what_is_no_manifest_is_refused_in_one_line() {
        for (text, expected) in [("a: 1\na: 2\n", "duplicate"), ("a: [", "not valid YAML"), ("- a\n", "document 1")] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn a_broken_document_hides_none_of_the_others_and_each_says_where_it_is() {
        let text =
            "# the first\n\nkind: A\n---\nkind: [\n---\n- a\n--- {kind: D}\n...\n%YAML 1.2\n---\n# more\nkind: E\n";
        let all = documents(text);
        let places: Vec<_> = all.iter().map(|one| (one.line, one.objects.is_ok())).collect();
        assert_eq!(places, [(3, true), (5, false), (7, false), (8, true), (13, true)]);
        let problem = |index: usize| all[index].objects.as_ref().unwrap_err().to_string();
        assert!(problem(1).contains("at line 5"), "{}", problem(1));
        assert!(problem(2).starts_with("document 3 (line 7) is not an object"), "{}", problem(2));
        assert!(parse(text).is_err());
    }

    #[test]
    fn a_marker_in_a_block_of_text_is_no_marker() {
        let text = "kind: A\ntext: |\n  ---\n  more\n---\nkind: B\n";
        assert_eq!(parse(text).unwrap(), [json!({ "kind": "A", "text": "---\nmore\n" }), json!({ "kind": "B" })]);
        assert_eq!(parse("\u{feff}kind: A\r\n---\r\nkind: B\r\n").unwrap().len(), 2);
    }

    /// On the stack of a worker thread, which is what a test has, too.
    #[test]
    fn depth_and_aliases_are_bounded() {
        let flow = |levels: usize| format!("a: {}1{}", "[".repeat(levels), "]".repeat(levels));
        let block = |levels: usize| (0..levels).map(|level| " ".repeat(level) + "a:\n").collect::<Vec<_>>().concat();
        for text in [flow(MANIFEST_DEPTH - 1), block(MANIFEST_DEPTH - 1)] {
            assert!(parse(&text).is_ok(), "{:?}", parse(&text));
        }
        for text in [flow(MANIFEST_DEPTH), flow(10_000), block(MANIFEST_DEPTH + 1), block(5_000), "[".repeat(10_000)] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains("more than 64 lists and objects are nested; flatten it"), "{error}");
        }
        let laughs = (1..20).fold("a0: &a0 [x, x]\n".to_owned(), |text, level| {
            let before = level - 1;
            format!("{text}a{level}: &a{level} [*a{before}, *a{before}, *a{before}, *a{before}]\n")
        });
        assert!(parse(&laughs).is_err());
        let error = parse(&flow(MANIFEST_DEPTH)).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
        let aliases = format!("a: &a 1\nb: [{}]\n", "*a, ".repeat(MANIFEST_ALIASES + 1));
        assert!(parse(&aliases).is_err());
        let large = format!("a: {}", "x".repeat(MANIFEST_BYTES));
        assert!(parse(&large).unwrap_err().to_string().starts_with("it has 16777219 bytes, and 16777216 are the most"));
    }

    #[test]
    fn a_written_document_reads_back_as_it_was() {
        let object = json!({
            "text": "two\nlines", "colon": "a: b", "yes": "yes", "number": "0644", "empty": "", "list": [1, { "a": null }],
            "expression": "self.x == '' || self.matches('^\\\\d$')", "on": true, "map": {}, "none": [], "float": 0.5, "tilde": "~",
        });
        let text = document(&object).unwrap();
        assert!(text.starts_with("---\n") && text.ends_with('\n'));
        assert_eq!(parse(&text).unwrap(), vec![object]);
    }
}
