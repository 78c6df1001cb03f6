//! Manifests as text: YAML as Kubernetes reads it, in and out.
//!
//! Kubernetes parses YAML with the habits of YAML 1.1 (`0644` is octal, `yes` is true) and so does this; duplicate keys are
//! refused. Nothing here knows a kind.

use serde::Serialize;
use serde_json::Value;

/// A manifest cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The text is not YAML.
    #[error("not valid YAML: {0}")]
    Syntax(String),
    /// A document is a scalar or a list, not an object.
    #[error("document {number} is not an object; a manifest starts with `apiVersion:` and `kind:`")]
    NotAnObject {
        /// Which document, counted from 1.
        number: usize,
    },
    /// A value cannot be written as YAML.
    #[error("cannot be written as YAML: {0}")]
    Unwritable(String),
}

/// The objects in a text: every document, with the items of a `List` taken out. Empty documents are passed over.
pub fn parse(text: &str) -> Result<Vec<Value>, ManifestError> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| ManifestError::Syntax(error.to_string()))?;
    let mut objects = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        match document {
            Value::Null => {}
            Value::Object(mut list) if is_list(&list) => {
                if let Some(Value::Array(items)) = list.remove("items") {
                    objects.extend(items);
                }
            }
            Value::Object(_) => objects.push(document),
            _ => return Err(ManifestError::NotAnObject { number: index + 1 }),
        }
    }
    Ok(objects)
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
