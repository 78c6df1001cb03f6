//! The scan of JSON inside strings.

use crate::{BoundsError, JSON_BYTES, JSON_DEPTH};

/// Checks the size and depth of a JSON text. What is not JSON is left to the parser to tell.
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
