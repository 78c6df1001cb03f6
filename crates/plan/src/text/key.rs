//! Keys of Secrets and ConfigMaps.

/// The longest key.
const LONGEST: usize = 253;

/// A text cannot be a key of a Secret or ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid key of a Secret or ConfigMap; use at most {LONGEST} letters, digits, `-`, `_` and `.`, and not `..` at its start"
)]
pub struct KeyError(String);

/// Refuses what no Secret and no ConfigMap can have as a key. Pods mount keys as files, so `..` is none.
pub fn check_key(key: &str) -> Result<(), KeyError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_key = !key.is_empty() && key.len() <= LONGEST && key.bytes().all(is_allowed);
    if is_key && key != "." && !key.starts_with("..") { Ok(()) } else { Err(KeyError(key.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_the_api_server_accepts() {
        for good in ["a", "A_b-c.9", ".a", "a..b", &"a".repeat(253)] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "..a", "../x", "a/b", "a b", "é", "a\0", &"a".repeat(254)] {
            assert!(check_key(bad).is_err(), "{bad}");
        }
    }
}
