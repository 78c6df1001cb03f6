//! `json` and `fromJson`, as Go's encoding/json encodes and decodes.

use serde_json::Value as Json;
use skep_bounds::TEMPLATE_DATA_DEPTH;

use crate::arena::Arena;
use crate::error::EvaluationError;
use crate::members;
use crate::meter::{Meter, Sink};
use crate::print;
use crate::utf8::{Span, spans, to_utf8};
use crate::value::Value;

/// Writes a value as JSON. What means something in HTML is escaped, and names are sorted.
pub(super) fn encode(sink: &mut Sink<'_>, value: &Value<'_>) -> Result<(), EvaluationError> {
    nested(sink, value, 0)
}

fn nested(sink: &mut Sink<'_>, value: &Value<'_>, depth: usize) -> Result<(), EvaluationError> {
    if depth > TEMPLATE_DATA_DEPTH {
        return Err(EvaluationError::Nesting { most: TEMPLATE_DATA_DEPTH });
    }
    match value {
        Value::Nothing | Value::Null => sink.write("null"),
        Value::Bool(value) => sink.write(if *value { "true" } else { "false" }),
        Value::Int(number) => sink.write(number.to_string()),
        Value::Byte(number) => sink.write(number.to_string()),
        Value::Whole(number) => sink.write(number.to_string()),
        Value::Float(number) => sink.write(print::shortest(*number)),
        Value::Text(text) => string(sink, text.as_bytes()),
        Value::List(list) => {
            sink.write("[")?;
            for (index, item) in list.items().iter().enumerate() {
                sink.write(if index > 0 { "," } else { "" })?;
                nested(sink, &Value::of_json(item), depth + 1)?;
            }
            sink.write("]")
        }
        Value::Map(map) => {
            sink.write("{")?;
            for (index, (name, member)) in members::sorted(map, sink.meter())?.into_iter().enumerate() {
                sink.write(if index > 0 { "," } else { "" })?;
                string(sink, name.as_bytes())?;
                sink.write(":")?;
                nested(sink, &Value::of_json(member), depth + 1)?;
            }
            sink.write("}")
        }
    }
}

fn string(sink: &mut Sink<'_>, text: &[u8]) -> Result<(), EvaluationError> {
    let is_plain = |next: char| next >= ' ' && !matches!(next, '"' | '\\' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
    sink.write("\"")?;
    for span in spans(text, is_plain) {
        match span {
            Span::Plain(text) => sink.write(text)?,
            Span::Special('"') => sink.write("\\\"")?,
            Span::Special('\\') => sink.write("\\\\")?,
            Span::Special('\u{8}') => sink.write("\\b")?,
            Span::Special('\u{c}') => sink.write("\\f")?,
            Span::Special('\n') => sink.write("\\n")?,
            Span::Special('\r') => sink.write("\\r")?,
            Span::Special('\t') => sink.write("\\t")?,
            Span::Special(next) => sink.write(format!("\\u{:04x}", u32::from(next)))?,
            Span::Byte(_) => sink.write("\\ufffd")?,
        }
    }
    sink.write("\"")
}

/// Parses a text. The parser refuses what is nested deeper than [`TEMPLATE_DATA_DEPTH`].
pub(super) fn decode<'r>(text: &[u8], meter: &mut Meter, arena: &Arena<'r>) -> Result<Value<'r>, EvaluationError> {
    meter.bytes(text.len())?;
    let text = without_lone_surrogates(to_utf8(text.to_vec()));
    // A value takes far more memory than its text.
    let most = meter.steps_left();
    let values =
        if skep_bounds::json_values(&text, most).is_ok() { skep_bounds::count_json_values(&text) } else { most + 1 };
    meter.steps(values)?;
    let json: Json = serde_json::from_str(&text).map_err(|error| EvaluationError::NotJson(error.to_string()))?;
    Ok(Value::of_json(arena.keep(json)).taken())
}

/// JSON in which escapes that are half of a character stand for `�`.
fn without_lone_surrogates(text: String) -> String {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return text;
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, behind)) = rest.split_once('\\') {
        kept.push_str(before);
        let unit = |text: &str| text.strip_prefix('u').and_then(|text| u16::from_str_radix(text.get(..4)?, 16).ok());
        let next = behind.get(5..).and_then(|text| text.strip_prefix('\\')).and_then(unit);
        let length = match (unit(behind), next) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => "uXXXX\\uXXXX".len(),
            (Some(0xd800..=0xdfff), _) => {
                kept.push('\u{fffd}');
                rest = behind.get(5..).unwrap_or_default();
                continue;
            }
            // The character behind is part of the escape, and may be a backslash.
            _ => behind.chars().next().map_or(0, char::len_utf8),
        };
        let (escape, behind) = behind.split_at_checked(length).unwrap_or((behind, ""));
        kept.push('\\');
        kept.push_str(escape);
        rest = behind;
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_characters_are_replaced_and_nothing_else() {
        let cases = [
            (r#""\ud83d\ude00 \\ud83d \" \u00e9""#, r#""\ud83d\ude00 \\ud83d \" \u00e9""#),
            (r#""\ud83d""#, "\"\u{fffd}\""),
            (r#""\ud83d\ud83d\ude00""#, "\"\u{fffd}\\ud83d\\ude00\""),
            (r#""\udE00x\uD83D\n""#, "\"\u{fffd}x\u{fffd}\\n\""),
            (r#""\ud83""#, r#""\ud83""#),
            ("\\ud83d\\", "\u{fffd}\\"),
        ];
        for (text, expected) in cases {
            assert_eq!(without_lone_surrogates(text.to_owned()), expected, "{text}");
        }
    }
}
