//! What functions do with the values of their arguments. `and` and `or` are not here: they do not evaluate all of them.

mod access;
mod compare;
mod escape;
mod json;

use crate::arena::Arena;
use crate::error::EvaluationError;
use crate::function::Function;
use crate::meter::{Meter, Sink};
use crate::print;
use crate::value::{Text, Value};

/// Calls a function. There are as many arguments as it takes, and the first is a string where it must be one.
pub(crate) fn call<'r>(
    function: Function,
    values: &[Value<'r>],
    meter: &mut Meter,
    arena: &Arena<'r>,
) -> Result<Value<'r>, EvaluationError> {
    let (first, others) = values.split_first().unwrap_or((&Value::Nothing, &[]));
    let second = others.first().unwrap_or(&Value::Nothing);
    match function {
        Function::Eq if others.is_empty() => Err(EvaluationError::NoComparison),
        Function::Eq => compare::equals_one(first, others, meter).map(Value::Bool),
        Function::Ne => compare::equals(first, second, meter).map(|equal| Value::Bool(!equal)),
        Function::Lt => compare::order(first, second, meter).map(|order| Value::Bool(order.is_lt())),
        Function::Le => compare::order(first, second, meter).map(|order| Value::Bool(order.is_le())),
        Function::Gt => compare::order(first, second, meter).map(|order| Value::Bool(order.is_gt())),
        Function::Ge => compare::order(first, second, meter).map(|order| Value::Bool(order.is_ge())),
        Function::Not => Ok(Value::Bool(!first.is_true())),
        Function::Index => access::index(first, others, meter),
        Function::Slice => access::slice(first, others, meter),
        Function::Len => access::length(first),
        Function::Call => Err(EvaluationError::Call(first.type_name())),
        Function::FromJson => json::decode(text_of(first), meter, arena),
        Function::Json => made(meter, |sink| json::encode(sink, first)),
        Function::Quote => made(meter, |sink| print::quote::string(sink, text_of(first))),
        Function::Print => made(meter, |sink| print::list(sink, values)),
        Function::Println => made(meter, |sink| print::line(sink, values)),
        Function::Printf => made(meter, |sink| print::printf(sink, text_of(first), others)),
        Function::Html => escaped(values, meter, escape::html),
        Function::Js => escaped(values, meter, escape::js),
        Function::UrlQuery => escaped(values, meter, escape::url_query),
        Function::And | Function::Or => Ok(values.last().cloned().unwrap_or(Value::Nothing)),
    }
}

fn made<'r>(
    meter: &mut Meter,
    write: impl FnOnce(&mut Sink<'_>) -> Result<(), EvaluationError>,
) -> Result<Value<'r>, EvaluationError> {
    meter.text(write).map(Value::Text)
}

/// Writes values as `print` does, but without value as an action does, and escapes the result.
fn escaped<'r>(
    values: &[Value<'r>],
    meter: &mut Meter,
    escape: fn(&mut Sink<'_>, &[u8]) -> Result<(), EvaluationError>,
) -> Result<Value<'r>, EvaluationError> {
    let shown = |value: &Value<'r>| {
        if value.is_nil() { Value::Text(Text::Borrowed(b"<no value>")) } else { value.clone() }
    };
    let shown: Vec<Value<'_>> = values.iter().map(shown).collect();
    let text: Text<'_> = meter.text(|sink| print::list(sink, &shown))?;
    made(meter, |sink| escape(sink, text.as_bytes()))
}

fn text_of<'v>(value: &'v Value<'_>) -> &'v [u8] {
    if let Value::Text(text) = value { text.as_bytes() } else { &[] }
}
