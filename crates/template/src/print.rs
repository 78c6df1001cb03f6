//! Values as text, as Go's fmt writes them: [`value`] for one, [`list`] for the arguments of `print` and `println`, and
//! [`printf()`](directive::printf) for a format.
//!
//! ```text
//!   printf: directive ─▶ value ─┬─▶ integer, float ─▶ pad
//!   print, output: ─────▶ value ─┴─▶ quote (and strings as they are)
//! ```

pub(crate) mod directive;
mod float;
mod integer;
mod pad;
pub(crate) mod quote;

use skep_bounds::TEMPLATE_DATA_DEPTH;

pub(crate) use self::directive::printf;
pub(crate) use self::float::shortest;
use self::pad::Flags;
use crate::error::EvaluationError;
use crate::members;
use crate::meter::Sink;
use crate::value::{Text, Value};

/// What stands for no value.
const NIL: &str = "<nil>";

/// Writes a value as an action does.
pub(crate) fn value(sink: &mut Sink<'_>, value: &Value<'_>) -> Result<(), EvaluationError> {
    if value.is_nil() { sink.write("<no value>") } else { argument(sink, value, 'v', &Flags::default()) }
}

/// Writes values as `print` does: with a space between two of which neither is a string.
pub(crate) fn list(sink: &mut Sink<'_>, values: &[Value<'_>]) -> Result<(), EvaluationError> {
    let mut is_apart = true;
    for value in values {
        let is_text = matches!(value, Value::Text(_));
        if !is_apart && !is_text {
            sink.write(" ")?;
        }
        argument(sink, value, 'v', &Flags::default())?;
        is_apart = is_text;
    }
    Ok(())
}

/// Writes values as `println` does: with spaces between them and a line feed at the end.
pub(crate) fn line(sink: &mut Sink<'_>, values: &[Value<'_>]) -> Result<(), EvaluationError> {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            sink.write(" ")?;
        }
        argument(sink, value, 'v', &Flags::default())?;
    }
    sink.write("\n")
}

/// Writes an argument with a verb.
fn argument(sink: &mut Sink<'_>, value: &Value<'_>, verb: char, flags: &Flags) -> Result<(), EvaluationError> {
    match verb {
        'v' | 'T' if value.is_nil() => pad::text(sink, NIL.as_bytes(), flags),
        'T' => pad::text(sink, pad::cut(value.type_name().as_bytes(), flags), flags),
        // Go writes the address of a list or object. There is none here, and it would say nothing.
        'w' | 'p' => bad_verb(sink, value, verb, flags),
        _ if value.is_nil() => bad_verb(sink, value, verb, flags),
        _ => nested(sink, value, verb, flags, 0),
    }
}

/// Writes a value that stands in so many lists and objects.
fn nested(
    sink: &mut Sink<'_>,
    value: &Value<'_>,
    verb: char,
    flags: &Flags,
    depth: usize,
) -> Result<(), EvaluationError> {
    if depth > TEMPLATE_DATA_DEPTH {
        return Err(EvaluationError::Nesting { most: TEMPLATE_DATA_DEPTH });
    }
    match value {
        Value::Nothing | Value::Null => sink.write(if flags.go_syntax { "interface {}(nil)" } else { NIL }),
        Value::Bool(value) if matches!(verb, 't' | 'v') => pad::text(sink, value.to_string().as_bytes(), flags),
        Value::Bool(_) => bad_verb(sink, value, verb, flags),
        Value::Int(number) => {
            let number = integer::Integer { magnitude: number.unsigned_abs(), negative: *number < 0, is_byte: false };
            if number.write(sink, verb, flags)? { Ok(()) } else { bad_verb(sink, value, verb, flags) }
        }
        Value::Byte(number) => {
            let number = integer::Integer { magnitude: u64::from(*number), negative: false, is_byte: true };
            if number.write(sink, verb, flags)? { Ok(()) } else { bad_verb(sink, value, verb, flags) }
        }
        // An integral number of data keeps its digits.
        Value::Whole(number) if verb == 'v' && flags.precision.is_none() && !flags.sharp => {
            pad::number(sink, number.to_string(), flags)
        }
        Value::Whole(_) | Value::Float(_) => {
            let number = value.as_float().unwrap_or_default();
            if float::write(sink, number, verb, flags)? { Ok(()) } else { bad_verb(sink, value, verb, flags) }
        }
        Value::Text(text) => {
            if self::text(sink, text, verb, flags)? {
                Ok(())
            } else {
                bad_verb(sink, value, verb, flags)
            }
        }
        Value::List(list) => {
            sink.write(if flags.go_syntax { "[]interface {}{" } else { "[" })?;
            for (index, item) in list.items().iter().enumerate() {
                separate(sink, index, flags)?;
                nested(sink, &Value::of_json(item), verb, flags, depth + 1)?;
            }
            sink.write(if flags.go_syntax { "}" } else { "]" })
        }
        Value::Map(map) => {
            sink.write(if flags.go_syntax { "map[string]interface {}{" } else { "map[" })?;
            for (index, (name, member)) in members::sorted(map, sink.meter())?.into_iter().enumerate() {
                separate(sink, index, flags)?;
                nested(sink, &Value::Text(Text::Borrowed(name.as_bytes())), verb, flags, depth + 1)?;
                sink.write(":")?;
                nested(sink, &Value::of_json(member), verb, flags, depth + 1)?;
            }
            sink.write(if flags.go_syntax { "}" } else { "]" })
        }
    }
}

/// Writes what stands before an element.
fn separate(sink: &mut Sink<'_>, index: usize, flags: &Flags) -> Result<(), EvaluationError> {
    match index {
        0 => Ok(()),
        _ if flags.go_syntax => sink.write(", "),
        _ => sink.write(" "),
    }
}

/// Writes a string, if the verb is for strings.
fn text(sink: &mut Sink<'_>, text: &Text<'_>, verb: char, flags: &Flags) -> Result<bool, EvaluationError> {
    let bytes = text.as_bytes();
    match verb {
        'v' if flags.go_syntax => quote::padded(sink, bytes, flags)?,
        'v' | 's' => pad::text(sink, pad::cut(bytes, flags), flags)?,
        'q' => quote::padded(sink, bytes, flags)?,
        'x' | 'X' => pad::hexadecimal(sink, bytes, verb == 'X', flags)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Writes that a verb does not fit a value.
fn bad_verb(sink: &mut Sink<'_>, value: &Value<'_>, verb: char, flags: &Flags) -> Result<(), EvaluationError> {
    sink.write("%!")?;
    sink.character(verb)?;
    sink.write("(")?;
    if value.is_nil() {
        sink.write(NIL)?;
    } else {
        typed(sink, value, flags)?;
    }
    sink.write(")")
}

/// Writes the type of a value and the value.
fn typed(sink: &mut Sink<'_>, value: &Value<'_>, flags: &Flags) -> Result<(), EvaluationError> {
    sink.write(value.type_name())?;
    sink.write("=")?;
    argument(sink, value, 'v', flags)
}
