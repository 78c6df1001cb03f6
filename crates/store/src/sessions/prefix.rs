//! The key prefix of sessions.

/// The key prefix of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

/// An invalid prefix.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("key prefix `{0}` must end with a colon, such as `{DEFAULT}`")]
pub struct PrefixError(String);

const DEFAULT: &str = "thv:proxy:session:";

impl Prefix {
    /// Parses a prefix. It must end with a colon, so that no two of them overlap.
    pub fn new(text: &str) -> Result<Self, PrefixError> {
        if text.ends_with(':') { Ok(Self(text.to_owned())) } else { Err(PrefixError(text.to_owned())) }
    }

    /// The key of a session.
    pub(super) fn key(&self, id: &str) -> String {
        [self.0.as_str(), id].concat()
    }

    /// The pattern that matches exactly these keys.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.0.len() + 1);
        for character in self.0.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push('*');
        pattern
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self(DEFAULT.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_with_a_colon() {
        assert_eq!(Prefix::new("team:a:").unwrap().key("1"), "team:a:1");
        assert_eq!(Prefix::default().key("1"), "thv:proxy:session:1");
        for wrong in ["", "team", "team: "] {
            assert_eq!(Prefix::new(wrong), Err(PrefixError(wrong.to_owned())));
        }
    }

    #[test]
    fn a_prefix_means_itself_in_a_pattern() {
        assert_eq!(Prefix::new("a*[b]?:").unwrap().pattern(), r"a\*\[b\]\?:*");
    }
}
