//! JSON of claims and arguments as Cedar values.

use cedar_policy::RestrictedExpression;
use serde_json::{Number, Value};

/// How deep a value may be nested.
const DEEPEST: usize = 10;

/// Why Cedar cannot have a value. Left out, policies about it would not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValueError {
    /// A number is too large.
    #[error("is out of the range of a decimal")]
    Range,
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
        Value::Number(number) => RestrictedExpression::new_decimal(decimal(number).ok_or(ValueError::Range)?),
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

/// A number with the four digits after the point that a Cedar decimal has; nothing if it is out of range.
fn decimal(number: &Number) -> Option<String> {
    const LARGEST: f64 = 922_337_203_685_477.0;
    let value = number.as_f64()?;
    (value.abs() <= LARGEST).then(|| format!("{value:.4}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_decimals_within_their_range() {
        for (number, text) in [
            (json!(5), Some("5.0000")),
            (json!(-0.00001), Some("-0.0000")),
            (json!(1.23456), Some("1.2346")),
            (json!(1e300), None),
            (json!(18_446_744_073_709_551_615_u64), None),
        ] {
            assert_eq!(decimal(number.as_number().unwrap()).as_deref(), text, "{number}");
        }
    }

    #[test]
    fn what_cedar_cannot_hold_is_an_error_however_deep_it_is() {
        assert!(of_json(&Value::Null).unwrap().is_none());
        for large in [json!(1e300), json!([1, 1e300]), json!({"a": [{"b": 1e300}]})] {
            assert_eq!(of_json(&large).unwrap_err(), ValueError::Range, "{large}");
        }
        let nested = |levels: usize| (1..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(of_json(&nested(DEEPEST)).is_ok());
        assert_eq!(of_json(&nested(DEEPEST + 1)).unwrap_err(), ValueError::Depth);
    }
}
