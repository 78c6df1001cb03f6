//! Messages of the JSON libraries, rewritten for the author of the JSON.
//!
//! A message such as ``invalid type: integer `5`, expected struct PodSpec`` names types of the program that reads the text. What
//! a user meets in a condition or at a terminal names neither types nor the library.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// What a part of a library's message comes to.
type Rewording = fn(&Captures<'_>) -> String;

/// What a value of a type is called.
const TYPES: &[(&str, &str)] = &[
    ("a string", "a string (put quotes around it)"),
    ("string", "a string (put quotes around it)"),
    ("str", "a string (put quotes around it)"),
    ("a boolean", "true or false"),
    ("bool", "true or false"),
    ("a map", "an object"),
    ("map", "an object"),
    ("a sequence", "a list"),
    ("sequence", "a list"),
    ("integer", "a whole number"),
    ("number", "a number"),
    ("floating point", "a number"),
    ("float", "a number"),
    ("unit", "null"),
    ("null", "null"),
    ("boolean", "true or false"),
    ("IntOrString", "a whole number or a string"),
    ("a 32-bit integer", "a whole number of 32 bits"),
    ("a 64-bit integer", "a whole number of 64 bits"),
];

static RULES: LazyLock<Vec<(Regex, Rewording)>> = LazyLock::new(|| {
    let rules: [(&str, Rewording); 12] = [
        (r"invalid (?:type|value): (.+?), expected ([^,;:()]+?)( at line \d+ column \d+)?$", |found| {
            format!("is {}, but must be {}{}", given(part(found, 1)), wanted(part(found, 2)), part(found, 3))
        }),
        (r"invalid length (\d+), expected ([^,;:()]+)", |found| {
            format!("has {} entries, which does not fit", part(found, 1))
        }),
        (r"unknown variant (`[^`]*`), expected (?:one of )?(.+?)( at line \d+ column \d+)?$", |found| {
            format!("is {}, but must be one of {}{}", part(found, 1), part(found, 2), part(found, 3))
        }),
        (r"unknown field (`[^`]*`), (?:expected .+|there are no fields)", |found| {
            format!("unknown field {}", part(found, 1))
        }),
        (r"missing field (`[^`]*`)", |found| format!("{} is missing", part(found, 1))),
        (r"duplicate field (`[^`]*`)", |found| format!("{} is there twice; keep one", part(found, 1))),
        (r"data did not match any variant of untagged enum \w+", |_| "has a shape that is not known".to_owned()),
        (r"EOF while parsing an? (?:value|object|list|string)", |_| "the JSON text ends too early".to_owned()),
        (r"trailing (?:characters|comma)", |_| "there is text after the end of the JSON, or a `,` too many".to_owned()),
        (r"key must be a string", |_| "a key without double quotes".to_owned()),
        (r"expected (?:ident|value)\b", |_| "this is not JSON".to_owned()),
        (r"recursion limit exceeded", |_| "it is nested too deep".to_owned()),
    ];
    // INVARIANT: the patterns compile; a test uses every one.
    rules.into_iter().filter_map(|(pattern, words)| Some((Regex::new(pattern).ok()?, words))).collect()
});

/// A message without the terms of the library that it came from. Other messages stay as they are.
pub fn plain(message: &str) -> String {
    let mut message = message.to_owned();
    for (pattern, words) in RULES.iter() {
        message = pattern.replace_all(&message, *words).into_owned();
    }
    message
}

fn part<'a>(found: &Captures<'a>, index: usize) -> &'a str {
    found.get(index).map_or("", |part| part.as_str())
}

/// What was given: ``integer `5` ``, `string "x"`, `map`.
fn given(what: &str) -> String {
    if let Some((_, value)) = what.split_once('`') {
        return format!("`{}`", value.trim_end_matches('`'));
    }
    if let Some((_, value)) = what.split_once('"') {
        return format!("`{}`", value.trim_end_matches('"'));
    }
    wanted(what).replace(" (put quotes around it)", "")
}

/// What was wanted: `a string`, `i32`, `struct PodSpec`.
fn wanted(what: &str) -> String {
    let is_number = |rest: &str| rest.chars().all(|digit| digit.is_ascii_digit()) || rest == "size";
    if what.strip_prefix(['i', 'u']).is_some_and(is_number) {
        return "a whole number".to_owned();
    }
    if matches!(what, "f32" | "f64") {
        return "a number".to_owned();
    }
    let known = TYPES.iter().find(|(name, _)| *name == what).map(|(_, words)| *words);
    // What is left are the names of types, and all of those are objects.
    known.unwrap_or("an object").to_owned()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its parsing is tested")]
    struct Shape {
        text: String,
        port: Option<u16>,
        mode: Option<Mode>,
        inner: Option<Box<Shape>>,
        either: Option<Either>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Mode {
        Fast,
        Slow,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its parsing is tested")]
    enum Either {
        Number(u8),
        List(Vec<u8>),
    }

    #[test]
    fn no_term_of_a_library_is_left_in_a_message() {
        for (value, words) in [
            (json!({ "text": 5 }), "is `5`, but must be a string (put quotes around it)"),
            (json!({ "text": null }), "is null, but must be a string (put quotes around it)"),
            (json!({ "text": {} }), "is an object, but must be a string"),
            (json!({ "text": "", "port": "x" }), "is `x`, but must be a whole number"),
            (json!({ "text": "", "port": 70000 }), "is `70000`, but must be a whole number"),
            (json!({ "text": "", "mode": "Fast" }), "is `Fast`, but must be one of `fast`"),
            (json!({ "text": "", "inner": [1] }), "is"),
            (json!({ "text": "", "more": 1 }), "unknown field `more`"),
            (json!({}), "`text` is missing"),
            (json!({ "text": "", "either": "x" }), "has a shape that is not known"),
        ] {
            let message = serde_json::from_value::<Shape>(value).unwrap_err().to_string();
            let said = plain(&message);
            assert!(said.contains(words), "{message} => {said}");
            for jargon in ["variant", "invalid type", "invalid value", "struct", "enum", "Shape", "Either", "u16"] {
                assert!(!said.contains(jargon), "{message} => {said}");
            }
        }
        for (port, words) in [
            (json!(true), "is `true`, but must be a whole number or a string"),
            (json!(4_294_967_296_i64), "is `4294967296`, but must be a whole number of 32 bits"),
        ] {
            let message = serde_json::from_value::<IntOrString>(port).unwrap_err().to_string();
            assert_eq!(plain(&message), words);
        }
        for text in ["", "{", "[1", "\"a", "[1,]", "{a: 1}", "nope", "1 2"] {
            let message = serde_json::from_str::<Value>(text).unwrap_err().to_string();
            let said = plain(&message);
            assert!(!said.contains("EOF") && !said.contains("ident") && !said.contains("trailing"), "{said}");
        }
        assert_eq!(plain("spec.image: is missing"), "spec.image: is missing");
        assert_eq!(plain(&plain("missing field `a`")), "`a` is missing");
    }
}
