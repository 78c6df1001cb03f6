//! Names of HTTP headers, and those that nobody may set for somebody else.

/// A header cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It is not the name of a header.
    #[error("`{0}` is not the name of a header; use letters, digits and `-`, such as `X-Team`")]
    Malformed(String),
    /// It belongs to the connection or to the proxy.
    #[error("header `{0}` is set by the connection or the proxy and cannot be forwarded; remove it")]
    Reserved(String),
    /// It proves who the caller is, to us and to nobody else.
    #[error(
        "header `{0}` is the caller's credential and is not handed on; remove it, or configure outgoing authentication"
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

/// Headers that carry a caller's credentials.
const CREDENTIALS: &[&str] = &["authorization", "cookie"];

/// Whether a text is the name of a header (a token of RFC 9110).
pub fn check_header_name(name: &str) -> Result<(), HeaderError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(HeaderError::Malformed(name.to_owned()));
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

/// Whether a caller's header may be handed on to servers.
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
