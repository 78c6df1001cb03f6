//! The scan of JSON inside strings.

use crate::{BoundsError, JSON_BYTES, JSON_DEPTH};

/// Checks the size and depth of a JSON text. The parser reports invalid JSON.
pub fn json(text: &str) -> Result<(), BoundsError> {
    crate::size(text, JSON_BYTES)?;
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > JSON_DEPTH {
            return Err(BoundsError::Depth { most: JSON_DEPTH });
        }
    }
    Ok(())
}

/// Checks how many values a JSON text has: scalars, lists and objects; names of members do not count. The parser reports
/// invalid JSON.
pub fn json_values(text: &str, most: usize) -> Result<(), BoundsError> {
    if values_up_to(text, most) > most { Err(BoundsError::Values { most }) } else { Ok(()) }
}

/// How many values a JSON text has, counted as by [`json_values`].
pub fn count_json_values(text: &str) -> usize {
    values_up_to(text, usize::MAX)
}

/// How many values a JSON text has, or one more than `most`.
fn values_up_to(text: &str, most: usize) -> usize {
    let (mut values, mut in_string, mut escaped, mut in_scalar) = (0_usize, false, false, false);
    for byte in text.bytes() {
        let is_plain = !in_string && matches!(byte, b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'+');
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => {
                in_string = !in_string;
                values += usize::from(in_string);
            }
            _ if in_string => {}
            b'[' | b'{' => values += 1,
            // What stands before it was a name, and is counted already.
            b':' => values = values.saturating_sub(1),
            _ if is_plain && !in_scalar => values += 1,
            _ => {}
        }
        in_scalar = is_plain;
        if values > most {
            break;
        }
    }
    values
}
