//! JSON of claims and arguments as Cedar values.

use cedar_policy::RestrictedExpression;
use serde_json::{Number, Value};

/// How many digits a Cedar decimal has after the point.
const DIGITS: usize = 4;
/// How deep a value may be nested.
const DEEPEST: usize = 10;

/// Why Cedar cannot have a value. Left out, policies about it would not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValueError {
    /// A number is too large.
    #[error("is out of the range of a decimal")]
    Range,
    /// A number has more digits than a decimal has. Rounded, it would be equal to another number.
    #[error("has more than {DIGITS} digits after the point")]
    Precision,
    /// It is nested too deep.
    #[error("is nested more than {DEEPEST} levels deep")]
    Depth,
    /// It has two members of one name.
    #[error("has two members of one name")]
    Duplicate,
}

/// A value as Cedar has it; nothing for `null`. Numbers become decimals, as policies of the original expect them.
pub(super) fn of_json(value: &Value) -> Result<Option<RestrictedExpression>, ValueError> {
    convert(value, 1)
}

fn convert(value: &Value, depth: usize) -> Result<Option<RestrictedExpression>, ValueError> {
    if depth > DEEPEST {
        return Err(ValueError::Depth);
    }
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(value) => RestrictedExpression::new_bool(*value),
        Value::String(text) => RestrictedExpression::new_string(text.clone()),
        Value::Number(number) => RestrictedExpression::new_decimal(decimal(number)?),
        Value::Array(values) => {
            let values: Result<Vec<_>, _> =
                values.iter().filter_map(|value| convert(value, depth + 1).transpose()).collect();
            RestrictedExpression::new_set(values?)
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let value = convert(value, depth + 1).transpose()?;
                Some(value.map(|value| (name.clone(), value)))
            };
            let members: Result<Vec<_>, _> = members.iter().filter_map(member).collect();
            RestrictedExpression::new_record(members?).map_err(|_| ValueError::Duplicate)?
        }
    }))
}

/// A number as a Cedar decimal, which has the same value. Numbers with a fraction are doubles, as JSON parsers read them.
fn decimal(number: &Number) -> Result<String, ValueError> {
    /// The largest whole number of a decimal, which is a 64-bit number of ten-thousandths.
    const LARGEST: (u64, f64) = (922_337_203_685_476, 922_337_203_685_476.0);
    if let Some(whole) = number.as_i64() {
        return if whole.unsigned_abs() <= LARGEST.0 { Ok(format!("{whole}.0")) } else { Err(ValueError::Range) };
    }
    let value = number.as_f64().filter(|value| value.abs() <= LARGEST.1).ok_or(ValueError::Range)?;
    // The shortest digits that are this double and no other.
    let text = value.to_string();
    match text.split_once('.') {
        None => Ok(format!("{text}.0")),
        Some((_, fraction)) if fraction.len() <= DIGITS => Ok(text),
        Some(_) => Err(ValueError::Precision),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_decimals_of_the_same_value_or_none() {
        for (number, text) in [
            (json!(5), Ok("5.0")),
            (json!(-7), Ok("-7.0")),
            (json!(1.5), Ok("1.5")),
            (json!(5.0), Ok("5.0")),
            (json!(-0.0001), Ok("-0.0001")),
            (json!(1.2345), Ok("1.2345")),
            (json!(922_337_203_685_476_u64), Ok("922337203685476.0")),
            (json!(-922_337_203_685_476_i64), Ok("-922337203685476.0")),
            (json!(1.23456), Err(ValueError::Precision)),
            (json!(1.00001), Err(ValueError::Precision)),
            (json!(-0.00001), Err(ValueError::Precision)),
            (json!(1e-7), Err(ValueError::Precision)),
            (json!(922_337_203_685_477_u64), Err(ValueError::Range)),
            (json!(1e15), Err(ValueError::Range)),
            (json!(1e300), Err(ValueError::Range)),
            (json!(i64::MIN), Err(ValueError::Range)),
            (json!(18_446_744_073_709_551_615_u64), Err(ValueError::Range)),
        ] {
            let decimal = decimal(number.as_number().unwrap());
            assert_eq!(decimal.as_deref(), text.as_deref(), "{number}");
        }
    }

    #[test]
    fn values_that_cedar_cannot_hold_are_an_error_at_any_depth() {
        assert!(of_json(&Value::Null).unwrap().is_none());
        for large in [json!(1e300), json!([1, 1e300]), json!({"a": [{"b": 1e300}]})] {
            assert_eq!(of_json(&large).unwrap_err(), ValueError::Range, "{large}");
        }
        let nested = |levels: usize| (1..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(of_json(&nested(DEEPEST)).is_ok());
        assert_eq!(of_json(&nested(DEEPEST + 1)).unwrap_err(), ValueError::Depth);
    }
}
