//! The shape of an object against a structural schema: types, required and unknown fields, bounds, patterns, list keys.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value};

use super::Problem;

/// The longest name that is compared with known ones, and the longest name in a path, in bytes.
const LONGEST_WORD: usize = 64;

/// What is wrong with the object's own metadata. Its schema says only that it is an object: the API server knows its fields
/// by heart.
pub(super) fn metadata_problems(object: &Value) -> Vec<Problem> {
    let metadata = match object.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        // That it is of another type is for the schema to say.
        Some(other) if !other.is_null() => return Vec::new(),
        _ => return vec![Problem::new("metadata.name", "is missing")],
    };
    let mut problems = name_problems(metadata);
    for field in ["namespace", "generateName"] {
        let given = metadata.get(field).filter(|given| !given.is_string() && !given.is_null());
        problems.extend(given.map(|given| not_a_string(&format!("metadata.{field}"), given)));
    }
    for field in ["labels", "annotations"] {
        let path = format!("metadata.{field}");
        match metadata.get(field) {
            Some(Value::Object(members)) => {
                let wrong = members.iter().filter(|(_, value)| !value.is_string());
                problems.extend(wrong.map(|(name, value)| not_a_string(&format!("{path}.{name}"), value)));
            }
            None | Some(Value::Null) => {}
            Some(other) => problems.push(Problem::new(&path, &format!("is {}, but must be an object", name_of(other)))),
        }
    }
    problems
}

fn name_problems(metadata: &Map<String, Value>) -> Vec<Problem> {
    let path = "metadata.name";
    match metadata.get("name") {
        None | Some(Value::Null) if metadata.contains_key("generateName") => Vec::new(),
        None | Some(Value::Null) => vec![Problem::new(path, "is missing")],
        Some(Value::String(name)) if is_dns_name(name) => Vec::new(),
        Some(Value::String(name)) => vec![Problem::new(
            path,
            &format!(
                "`{name}` is not a name: use lower-case letters, digits, `-` and `.`, at most 253, with a letter or digit at both ends"
            ),
        )],
        Some(other) => vec![not_a_string(path, other)],
    }
}

/// Says of a value that YAML did not read as a string how to write it as one. What was written is not known: `1.10` is read as 1.1,
/// `0644` as 420, and `on` as true.
pub(super) fn not_a_string(path: &str, value: &Value) -> Problem {
    let advice = match value {
        Value::Bool(_) | Value::Null | Value::Number(_) => "; put quotes around it",
        _ => "",
    };
    Problem::new(path, &format!("is {}, but must be a string{advice}", name_of(value)))
}

/// Adds what is wrong with `value` and everything below it.
pub(super) fn check(schema: &Value, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    let Some(node) = schema.as_object() else { return };
    let mut wrong = |message: String| problems.push(Problem::new(path, &message));
    if let Some(Value::String(kind)) = node.get("type")
        && !has_type(value, kind)
    {
        return wrong(format!("is {}, but must be {}", name_of(value), article(kind)));
    }
    if let Some(Value::Array(choices)) = node.get("enum")
        && !choices.contains(value)
    {
        let listed: Vec<String> = choices.iter().map(show).collect();
        wrong(format!("is {}, but must be one of {}", show(value), listed.join(", ")));
    }
    match value {
        Value::String(text) => check_text(node, text, &mut wrong),
        Value::Number(number) => check_number(node, number, &mut wrong),
        Value::Array(items) => check_list(node, items, path, problems),
        Value::Object(fields) => check_object(node, fields, path, problems),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Whether there are more values than that: scalars, lists and objects, itself included.
pub(super) fn has_more_values(whole: &Value, most: usize) -> bool {
    let mut left = most;
    let mut rest = vec![whole];
    while let Some(value) = rest.pop() {
        let Some(fewer) = left.checked_sub(1) else { return true };
        left = fewer;
        match value {
            Value::Array(values) => rest.extend(values),
            Value::Object(members) => rest.extend(members.values()),
            _ => {}
        }
    }
    false
}

/// The known name that is nearest to `word`, if one is near enough.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // The distance takes time and memory in proportion to both names.
    if word.len() > LONGEST_WORD {
        return None;
    }
    let lower = word.to_lowercase();
    known
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= 1 + word.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

fn check_text(node: &Map<String, Value>, text: &str, wrong: &mut dyn FnMut(String)) {
    let length = text.chars().count() as u64;
    if let Some(least) = bound(node, "minLength").filter(|least| length < *least) {
        wrong(if least == 1 { "is empty".to_owned() } else { format!("is shorter than {least} characters") });
    }
    if let Some(most) = bound(node, "maxLength").filter(|most| length > *most) {
        wrong(format!("is {length} characters long; at most {most} are allowed"));
    }
    if let Some(Value::String(pattern)) = node.get("pattern")
        && !matches(pattern, text)
    {
        wrong(format!("`{text}` does not match `{pattern}`"));
    }
    match node.get("format").and_then(Value::as_str) {
        Some("uri") if !is_uri(text) => {
            wrong(format!("`{text}` is not a URL; write it with its scheme, such as https://…"));
        }
        Some("duration") if !is_duration(text) => {
            wrong(format!("`{text}` is not a duration; write it like 5s or 1m30s"));
        }
        _ => {}
    }
}

fn check_number(node: &Map<String, Value>, number: &serde_json::Number, wrong: &mut dyn FnMut(String)) {
    let Some(number) = number.as_f64() else { return };
    if let Some(least) = node.get("minimum").and_then(Value::as_f64).filter(|least| number < *least) {
        wrong(format!("is {number}; at least {least} is needed"));
    }
    if let Some(most) = node.get("maximum").and_then(Value::as_f64).filter(|most| number > *most) {
        wrong(format!("is {number}; at most {most} is allowed"));
    }
    if node.get("format").is_some_and(|format| format == "int32") && number.abs() > f64::from(i32::MAX) {
        wrong(format!("{number} is too large"));
    }
}

fn check_list(node: &Map<String, Value>, items: &[Value], path: &str, problems: &mut Vec<Problem>) {
    let count = items.len() as u64;
    if let Some(least) = bound(node, "minItems").filter(|least| count < *least) {
        problems.push(Problem::new(path, &format!("has {count} entries; at least {least} needed")));
    }
    if let Some(most) = bound(node, "maxItems").filter(|most| count > *most) {
        problems.push(Problem::new(path, &format!("has {count} entries; at most {most} are allowed")));
    }
    let keys: Option<Vec<&str>> = match node.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => Some(Vec::new()),
        Some("map") => Some(strings(node, "x-kubernetes-list-map-keys").collect()),
        _ => None,
    };
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let below = format!("{path}[{index}]");
        if let Some(keys) = &keys {
            let identity = if keys.is_empty() {
                show(item)
            } else {
                keys.iter().map(|key| show(&item[*key])).collect::<Vec<_>>().join(", ")
            };
            if !seen.insert(identity.clone()) {
                problems.push(Problem::new(&below, &format!("{identity} stands in this list already")));
            }
        }
        if let Some(schema) = node.get("items") {
            check(schema, item, &below, problems);
        }
    }
}

fn check_object(node: &Map<String, Value>, fields: &Map<String, Value>, path: &str, problems: &mut Vec<Problem>) {
    let below = |name: &str| {
        // A place is made for each member, so the names in it are clipped.
        let shown = name.get(..name.floor_char_boundary(LONGEST_WORD)).unwrap_or_default();
        let mark = if shown.len() < name.len() { "…" } else { "" };
        let dot = if path.is_empty() { "" } else { "." };
        format!("{path}{dot}{shown}{mark}")
    };
    for name in strings(node, "required").filter(|name| !fields.contains_key(*name)) {
        problems.push(Problem::new(&below(name), "is missing"));
    }
    if let Some(most) = bound(node, "maxProperties").filter(|most| fields.len() as u64 > *most) {
        problems.push(Problem::new(path, &format!("has {} entries; at most {most} are allowed", fields.len())));
    }
    let properties = node.get("properties").and_then(Value::as_object);
    let others = node.get("additionalProperties");
    // `metadata` is described as an object and no more: the API server knows its fields by heart.
    let open = node.get("x-kubernetes-preserve-unknown-fields").is_some() || (properties.is_none() && others.is_none());
    for (name, value) in fields {
        let known = properties.and_then(|properties| properties.get(name));
        match known.or(others) {
            Some(schema) => check(schema, value, &below(name), problems),
            None if open => {}
            None => {
                let near =
                    nearest(name, properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str)));
                let advice = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                problems.push(Problem::new(&below(name), &format!("unknown field{advice}")));
            }
        }
    }
}

fn has_type(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn article(kind: &str) -> &'static str {
    match kind {
        "string" => "a string (put quotes around it)",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "array" => "a list",
        _ => "an object",
    }
}

fn show(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| format!("`{text}`"))
}

fn bound(node: &Map<String, Value>, name: &str) -> Option<u64> {
    node.get(name).and_then(Value::as_u64)
}

fn strings<'a>(node: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a str> {
    node.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Whether a text matches a pattern as the API server (Go) reads it: there, `\d`, `\w` and `\s` are ASCII.
fn matches(pattern: &str, text: &str) -> bool {
    let ascii = pattern.replace(r"\d", "[0-9]").replace(r"\w", "[0-9A-Za-z_]").replace(r"\s", "[\\t\\n\\f\\r ]");
    // A pattern of our own definitions always compiles (tested); an unknown one must not refuse anything.
    Regex::new(&ascii).map_or(true, |pattern| pattern.is_match(text))
}

fn is_dns_name(name: &str) -> bool {
    let plain = |part: &str| {
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !part.is_empty()
            && part.bytes().all(|byte| inside(byte) || byte == b'-')
            && part.bytes().next().is_some_and(inside)
            && part.bytes().last().is_some_and(inside)
    };
    name.len() <= 253 && name.split('.').all(plain)
}

fn is_uri(text: &str) -> bool {
    let scheme = text.split_once(':').is_some_and(|(scheme, rest)| {
        !rest.is_empty()
            && scheme.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    });
    (scheme || text.starts_with('/')) && !text.contains(|c: char| c.is_control() || c == ' ')
}

fn is_duration(text: &str) -> bool {
    matches(r"^[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^[+-]?0$", text)
}
