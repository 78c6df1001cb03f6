//! Comparisons. Numbers of all types are compared by value: an integer of the template with a number of data as well, which in Go is
//! an error.

use std::cmp::Ordering;

use crate::error::EvaluationError;
use crate::meter::Meter;
use crate::value::Value;

/// A number to compare.
#[derive(Clone, Copy, Debug)]
enum Number {
    Integral(i128),
    Fraction(f64),
}

/// Whether a value equals one of others.
pub(super) fn equals_one(value: &Value<'_>, others: &[Value<'_>], meter: &mut Meter) -> Result<bool, EvaluationError> {
    for other in others {
        if equals(value, other, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether two values are equal. Everything can be compared with no value.
pub(super) fn equals(one: &Value<'_>, other: &Value<'_>, meter: &mut Meter) -> Result<bool, EvaluationError> {
    meter.step()?;
    if let (Some(one), Some(other)) = (Number::of(one), Number::of(other)) {
        return Ok(one.order(other).is_eq());
    }
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => Ok(one == other),
        (Value::Text(one), Value::Text(other)) => {
            let (one, other) = (one.as_bytes(), other.as_bytes());
            meter.bytes(one.len().min(other.len()))?;
            Ok(one == other)
        }
        _ if one.is_nil() || other.is_nil() => Ok(one.is_nil() && other.is_nil()),
        (Value::List(_), Value::List(_)) | (Value::Map(_), Value::Map(_)) => {
            Err(EvaluationError::Incomparable(one.type_name()))
        }
        _ => Err(incompatible(one, other)),
    }
}

/// The order of two numbers, or of two strings.
pub(super) fn order(one: &Value<'_>, other: &Value<'_>, meter: &mut Meter) -> Result<Ordering, EvaluationError> {
    meter.step()?;
    if let (Some(one), Some(other)) = (Number::of(one), Number::of(other)) {
        return Ok(one.order(other));
    }
    let has_kind = |value: &Value<'_>| matches!(value, Value::Bool(_) | Value::Text(_)) || Number::of(value).is_some();
    match (one, other) {
        (Value::Text(one), Value::Text(other)) => {
            let (one, other) = (one.as_bytes(), other.as_bytes());
            meter.bytes(one.len().min(other.len()))?;
            Ok(one.cmp(other))
        }
        _ if !has_kind(one) => Err(EvaluationError::Incomparable(one.type_name())),
        _ if !has_kind(other) => Err(EvaluationError::Incomparable(other.type_name())),
        (Value::Bool(_), Value::Bool(_)) => Err(EvaluationError::Incomparable(one.type_name())),
        _ => Err(incompatible(one, other)),
    }
}

fn incompatible(one: &Value<'_>, other: &Value<'_>) -> EvaluationError {
    EvaluationError::Incompatible { one: one.type_name(), other: other.type_name() }
}

// === impl Number ===

impl Number {
    fn of(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Int(value) => Some(Self::Integral(i128::from(*value))),
            Value::Byte(value) => Some(Self::Integral(i128::from(*value))),
            Value::Whole(value) => Some(Self::Integral(*value)),
            Value::Float(value) => Some(Self::Fraction(*value)),
            _ => None,
        }
    }

    fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Integral(one), Self::Integral(other)) => one.cmp(&other),
            // There is neither a NaN in JSON nor in a template.
            (Self::Fraction(one), Self::Fraction(other)) => one.partial_cmp(&other).unwrap_or(Ordering::Equal),
            (Self::Integral(one), Self::Fraction(other)) => order_mixed(one, other),
            (Self::Fraction(one), Self::Integral(other)) => order_mixed(other, one).reverse(),
        }
    }
}

/// The order of an integer and a fraction, without rounding either of them.
fn order_mixed(integer: i128, fraction: f64) -> Ordering {
    let whole = fraction.trunc();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it has no digits behind the point, and what is too large becomes the largest"
    )]
    let by_whole = integer.cmp(&(whole as i128));
    by_whole.then_with(|| whole.partial_cmp(&fraction).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_types_are_compared_by_value() {
        let cases = [
            (Value::Int(3), Value::Whole(3), Ordering::Equal),
            (Value::Int(3), Value::Float(3.5), Ordering::Less),
            (Value::Int(-3), Value::Float(-3.5), Ordering::Greater),
            (Value::Whole(9_007_199_254_740_993), Value::Float(9_007_199_254_740_992.0), Ordering::Greater),
            (Value::Float(1e300), Value::Int(i64::MAX), Ordering::Greater),
            (Value::Float(-1e300), Value::Whole(i128::from(i64::MIN)), Ordering::Less),
            (Value::Byte(97), Value::Float(97.0), Ordering::Equal),
            (Value::Float(0.5), Value::Float(0.25), Ordering::Greater),
        ];
        let mut meter = Meter::new(crate::RenderLimits::default());
        for (one, other, expected) in cases {
            assert_eq!(order(&one, &other, &mut meter), Ok(expected), "{one:?} {other:?}");
            assert_eq!(order(&other, &one, &mut meter), Ok(expected.reverse()), "{other:?} {one:?}");
            assert_eq!(equals(&one, &other, &mut meter), Ok(expected.is_eq()), "{one:?} {other:?}");
        }
    }
}
