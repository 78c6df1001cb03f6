//! JSON of claims and arguments as Cedar values.

use cedar_policy::RestrictedExpression;
use serde_json::{Number, Value};

/// How deep a value may be nested. What is deeper is left out.
const DEEPEST: usize = 10;

/// A value as Cedar has it, if Cedar can have it. Numbers become decimals, as policies of the original expect them.
pub(super) fn of_json(value: &Value) -> Option<RestrictedExpression> {
    convert(value, 1)
}

fn convert(value: &Value, depth: usize) -> Option<RestrictedExpression> {
    if depth > DEEPEST {
        return None;
    }
    match value {
        Value::Null => None,
        Value::Bool(value) => Some(RestrictedExpression::new_bool(*value)),
        Value::String(text) => Some(RestrictedExpression::new_string(text.clone())),
        Value::Number(number) => decimal(number).map(RestrictedExpression::new_decimal),
        Value::Array(values) => {
            let values = values.iter().filter_map(|value| convert(value, depth + 1));
            Some(RestrictedExpression::new_set(values.collect::<Vec<_>>()))
        }
        Value::Object(members) => {
            let members = members.iter().filter_map(|(name, value)| Some((name.clone(), convert(value, depth + 1)?)));
            RestrictedExpression::new_record(members.collect::<Vec<_>>()).ok()
        }
    }
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
    fn numbers_are_decimals_and_what_cedar_cannot_hold_is_left_out() {
        for (number, text) in [
            (json!(5), Some("5.0000")),
            (json!(-0.00001), Some("-0.0000")),
            (json!(1.23456), Some("1.2346")),
            (json!(1e300), None),
            (json!(18_446_744_073_709_551_615_u64), None),
        ] {
            assert_eq!(decimal(number.as_number().unwrap()).as_deref(), text, "{number}");
        }
        assert!(of_json(&Value::Null).is_none());
        let deep = (0..20).fold(json!(1), |inner, _| json!([inner]));
        assert!(of_json(&deep).is_some());
    }
}
