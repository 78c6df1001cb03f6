//! Names of HTTP headers, and those that a configuration must not set or forward.

use std::collections::BTreeMap;

use skep_api::workload::HeaderForward;
use skep_bounds::{FORWARDED_HEADER_BYTES, FORWARDED_HEADERS};

/// A header cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It is not the name of a header.
    #[error("`{0}` is not the name of a header; use letters, digits and `-`, such as `X-Team`")]
    Malformed(String),
    /// It belongs to the connection or to the proxy.
    #[error("header `{0}` is set by the connection or the proxy and cannot be forwarded; remove it")]
    Reserved(String),
    /// There are too many headers.
    #[error("there are {found} headers, and {FORWARDED_HEADERS} are the most; forward fewer")]
    TooMany {
        /// How many.
        found: usize,
    },
    /// Names and values have too many bytes.
    #[error(
        "plain headers have {found} bytes, and {FORWARDED_HEADER_BYTES} are the most; forward fewer or shorter ones"
    )]
    TooLarge {
        /// How many.
        found: usize,
    },
    /// One header has two values, from different Secrets. The case of a name does not matter.
    #[error("headers `{0}` and `{1}` are the same header; remove one of them")]
    Repeated(String, String),
    /// It carries the client's credential for this proxy.
    #[error(
        "header `{0}` carries the client's credential and is not forwarded; remove it, or configure outgoing authentication"
    )]
    Credential(String),
}

/// Headers of a connection, and headers that say where a request came from.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Headers that carry a client's credentials.
const CREDENTIALS: &[&str] = &["authorization", "cookie"];

/// Whether a text is the name of a header (a token of RFC 9110).
pub fn check_header_name(name: &str) -> Result<(), HeaderError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(HeaderError::Malformed(name.to_owned()));
    }
    Ok(())
}

/// Whether all headers of an object may be set on requests to a remote server.
pub fn check_forwarded_headers(headers: &HeaderForward) -> Result<(), HeaderError> {
    check_header_limits(headers)?;
    let from_secret = headers.add_headers_from_secret.iter().map(|header| &header.header_name);
    headers.add_plaintext_headers.keys().chain(from_secret).try_for_each(|name| check_forwarded_header(name))
}

/// Whether the headers of an object are few and small enough, and each of those from Secrets has one value.
pub fn check_header_limits(headers: &HeaderForward) -> Result<(), HeaderError> {
    let found = headers.add_plaintext_headers.len().max(headers.add_headers_from_secret.len());
    if found > FORWARDED_HEADERS {
        return Err(HeaderError::TooMany { found });
    }
    let found = headers.add_plaintext_headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if found > FORWARDED_HEADER_BYTES {
        return Err(HeaderError::TooLarge { found });
    }
    let mut named = BTreeMap::new();
    for header in &headers.add_headers_from_secret {
        let other = named.insert(header.header_name.to_ascii_lowercase(), header);
        if let Some(other) = other.filter(|other| other.value_secret_ref != header.value_secret_ref) {
            return Err(HeaderError::Repeated(other.header_name.clone(), header.header_name.clone()));
        }
    }
    Ok(())
}

/// Whether a header may be set on requests to a remote server.
pub fn check_forwarded_header(name: &str) -> Result<(), HeaderError> {
    check_header_name(name)?;
    if is_among(name, RESERVED) {
        return Err(HeaderError::Reserved(name.to_owned()));
    }
    Ok(())
}

/// Whether a header of a client may be forwarded to backends.
pub fn check_passthrough_header(name: &str) -> Result<(), HeaderError> {
    check_forwarded_header(name)?;
    if is_among(name, CREDENTIALS) {
        return Err(HeaderError::Credential(name.to_owned()));
    }
    Ok(())
}

fn is_among(name: &str, names: &[&str]) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_tokens() {
        for good in ["X-Team", "x_team", "a", "X!#$%&'*+.^`|~1"] {
            assert_eq!(check_header_name(good), Ok(()));
        }
        for bad in ["", "X Team", "X:", "é", "a\n", "a/b", "\"a\""] {
            assert_eq!(check_header_name(bad), Err(HeaderError::Malformed(bad.into())));
        }
    }

    #[test]
    fn some_headers_are_not_forwarded_in_any_case() {
        assert_eq!(check_forwarded_header("HOST"), Err(HeaderError::Reserved("HOST".into())));
        assert_eq!(check_forwarded_header("X-Real-IP"), Err(HeaderError::Reserved("X-Real-IP".into())));
        assert_eq!(check_forwarded_header("Authorization"), Ok(()));
        assert_eq!(check_passthrough_header("Cookie"), Err(HeaderError::Credential("Cookie".into())));
        assert_eq!(check_passthrough_header("X-Team"), Ok(()));
    }
}
