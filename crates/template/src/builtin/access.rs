//! Parts of strings, lists and objects: `index`, `slice`, `len`.

use crate::error::EvaluationError;
use crate::meter::Meter;
use crate::value::Value;

/// What can be indexed, sliced and measured.
const WITH_PARTS: &str = "a string, a list or an object";

/// The element that indexes lead to, one after the other.
pub(super) fn index<'r>(
    value: &Value<'r>,
    indexes: &[Value<'r>],
    meter: &mut Meter,
) -> Result<Value<'r>, EvaluationError> {
    let mut value = value.clone();
    if value.is_nil() {
        return Err(no_parts("index", &value));
    }
    for index in indexes {
        meter.step()?;
        value = match &value {
            Value::Text(text) => {
                let at = position(index, text.as_bytes().len(), "a string")?;
                text.as_bytes()
                    .get(at)
                    .map(|byte| Value::Byte(*byte))
                    .ok_or_else(|| out_of_range(at, text.as_bytes().len()))?
            }
            Value::List(list) => {
                let items = list.items();
                let at = position(index, items.len(), "a list")?;
                items.get(at).map(Value::of_json).ok_or_else(|| out_of_range(at, items.len()))?
            }
            Value::Map(members) => {
                let Value::Text(name) = index else { return Err(index_type(index, "an object", "a string")) };
                meter.bytes(name.as_bytes().len())?;
                // A name that is not UTF-8 is no name in JSON.
                let member = std::str::from_utf8(name.as_bytes()).ok().and_then(|name| members.get(name));
                member.map_or(Value::Null, Value::of_json)
            }
            _ => return Err(no_parts("index", &value)),
        };
    }
    Ok(value)
}

/// A part of a string or list: from one bound, to another, and for lists the end of what later slices can reach.
pub(super) fn slice<'r>(
    value: &Value<'r>,
    bounds: &[Value<'r>],
    meter: &mut Meter,
) -> Result<Value<'r>, EvaluationError> {
    let (length, capacity, most) = match value {
        Value::Text(text) => (text.as_bytes().len(), text.as_bytes().len(), 2),
        Value::List(list) => (list.items().len(), list.capacity(), 3),
        _ => return Err(no_parts("slice", value)),
    };
    if bounds.len() > most {
        return Err(EvaluationError::SliceBounds);
    }
    let mut found = Vec::with_capacity(bounds.len());
    for bound in bounds {
        found.push(position(bound, capacity, "a string or list")?);
    }
    let mut found = found.into_iter();
    let (start, end) = (found.next().unwrap_or(0), found.next().unwrap_or(length));
    let reach = found.next().unwrap_or(capacity);
    if start > end || end > reach {
        return Err(EvaluationError::SliceBounds);
    }
    match value {
        Value::Text(text) => {
            meter.bytes(end - start)?;
            Ok(Value::Text(text.part(start, end)))
        }
        Value::List(list) => Ok(Value::List(list.part(start, end, reach))),
        _ => Err(no_parts("slice", value)),
    }
}

/// How many bytes, elements or members there are.
pub(super) fn length<'r>(value: &Value<'r>) -> Result<Value<'r>, EvaluationError> {
    let length = match value {
        Value::Text(text) => text.as_bytes().len(),
        Value::List(list) => list.items().len(),
        Value::Map(members) => members.len(),
        _ => return Err(no_parts("len", value)),
    };
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

/// A position up to the end of something that has this length.
fn position(index: &Value<'_>, length: usize, of: &'static str) -> Result<usize, EvaluationError> {
    let index = match index {
        Value::Int(index) => *index,
        Value::Byte(index) => i64::from(*index),
        _ => return Err(index_type(index, of, "an integer, such as 0 or `len`")),
    };
    let position = usize::try_from(index).ok().filter(|position| *position <= length);
    position.ok_or(EvaluationError::IndexRange { index, length })
}

fn out_of_range(position: usize, length: usize) -> EvaluationError {
    EvaluationError::IndexRange { index: i64::try_from(position).unwrap_or(i64::MAX), length }
}

fn index_type(index: &Value<'_>, of: &'static str, wanted: &'static str) -> EvaluationError {
    EvaluationError::IndexType { found: index.type_name(), of, wanted }
}

fn no_parts(function: &'static str, value: &Value<'_>) -> EvaluationError {
    let wanted = if function == "slice" { "a string or a list" } else { WITH_PARTS };
    EvaluationError::NoParts { function, found: value.type_name(), wanted }
}
