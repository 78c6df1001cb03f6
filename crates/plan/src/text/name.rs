//! Names of Kubernetes objects: what they may be made of, and names made from other names.

use std::fmt::{self, Display};

/// The longest name that is a single part, such as a Service's.
const LONGEST_LABEL: usize = 63;
/// The longest name that may hold dots, such as a ConfigMap's.
const LONGEST_SUBDOMAIN: usize = 253;

/// A name that Kubernetes accepts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A name cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It would be too long.
    #[error(
        "`{name}` is {length} characters long and at most {limit} are possible; shorten the name that it is made of"
    )]
    TooLong {
        /// What it would be.
        name: String,
        /// How long that is.
        length: usize,
        /// How long it may be.
        limit: usize,
    },
    /// It has characters that no name has.
    #[error(
        "`{0}` is not a valid object name; use lower-case letters, digits and `-`, and begin and end with a letter or digit"
    )]
    Malformed(String),
}

// === impl Name ===

impl Name {
    /// A name of a single part (RFC 1123), as Services, volumes and containers have.
    pub fn label(name: &str) -> Result<Self, NameError> {
        Self::checked(name, LONGEST_LABEL, is_dns_label)
    }

    /// A name that may hold dots, as most objects have.
    pub fn subdomain(name: &str) -> Result<Self, NameError> {
        Self::checked(name, LONGEST_SUBDOMAIN, is_dns_subdomain)
    }

    fn checked(name: &str, limit: usize, is_name: fn(&str) -> bool) -> Result<Self, NameError> {
        let length = name.chars().count();
        if length > limit {
            return Err(NameError::TooLong { name: name.to_owned(), length, limit });
        }
        if !is_name(name) {
            return Err(NameError::Malformed(name.to_owned()));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A name made of parts, for an object whose name must be a single part.
///
/// For objects whose names may hold dots, put the parts together and use [`Name::subdomain`].
pub fn derived_name(parts: &[&str]) -> Result<Name, NameError> {
    Name::label(&parts.concat())
}

/// Whether a text can be a name of a single part.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LONGEST_LABEL && is_part(text)
}

/// Whether a text can be the name of most objects, such as Secrets and ConfigMaps: parts with dots between them (RFC 1123).
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= LONGEST_SUBDOMAIN && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_of_its_parts() {
        assert_eq!(derived_name(&["mcp-", "server", "-proxy"]).unwrap().as_str(), "mcp-server-proxy");
    }

    #[test]
    fn a_name_that_would_be_too_long_is_refused() {
        let name = "a".repeat(60);
        assert!(derived_name(&[&name, "-sa"]).is_ok());
        let error = derived_name(&["mcp-", &name]).unwrap_err();
        assert!(matches!(&error, NameError::TooLong { length: 64, limit: 63, .. }));
        assert!(error.to_string().contains("64 characters long and at most 63 are possible"), "{error}");
        assert!(Name::subdomain(&"a".repeat(253)).is_ok());
        assert!(Name::subdomain(&"a".repeat(254)).is_err());
    }

    #[test]
    fn names_have_few_characters() {
        for good in ["a", "0", "a-b", "a1"] {
            assert!(is_dns_label(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "é", "a b"] {
            assert!(!is_dns_label(bad), "{bad}");
            assert!(Name::label(bad).is_err(), "{bad}");
        }
        assert!(Name::subdomain("a.b-c.d").is_ok());
        for bad in ["a..b", ".a", "a.", "a.-b"] {
            assert!(Name::subdomain(bad).is_err(), "{bad}");
        }
    }
}
