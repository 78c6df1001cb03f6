//! Reading the bearer token of a request. Only the `Authorization` header counts: tokens in a query end up in logs.

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The longest header with a token, in bytes. Tokens with hundreds of groups have some ten thousand; a listener refuses a head that is longer
/// than this as a whole, with 431.
pub const LONGEST: usize = 16 * 1024;

/// Why a request has no bearer token. The texts are part of the contract with clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BearerError {
    /// No header.
    #[error("authorization header required")]
    Missing,
    /// Another scheme, several headers, or something that is not text.
    #[error("invalid authorization header format, expected 'Bearer <token>'")]
    Scheme,
    /// Nothing after the scheme.
    #[error("empty token in authorization header")]
    Empty,
}

/// The token of a request.
pub fn token(headers: &HeaderMap) -> Result<&str, BearerError> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let header = given.next().ok_or(BearerError::Missing)?;
    // Of two headers, one may be what a server reads and the other what was validated.
    if given.next().is_some() || header.len() > LONGEST {
        return Err(BearerError::Scheme);
    }
    let text = header.to_str().map_err(|_| BearerError::Scheme)?;
    if text.is_empty() {
        return Err(BearerError::Missing);
    }
    let token = text.strip_prefix("Bearer ").ok_or(BearerError::Scheme)?;
    if token.trim().is_empty() { Err(BearerError::Empty) } else { Ok(token) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn only_one_header_of_exactly_this_scheme_has_a_token() {
        assert_eq!(token(&headers(&["Bearer abc"])), Ok("abc"));
        assert_eq!(token(&headers(&["Bearer a b"])), Ok("a b"));
        for (values, error) in [
            (&[][..], BearerError::Missing),
            (&[""], BearerError::Missing),
            (&["Basic abc"], BearerError::Scheme),
            (&["bearer abc"], BearerError::Scheme),
            (&["Bearer"], BearerError::Scheme),
            (&["Bearerabc"], BearerError::Scheme),
            (&["Bearer abc", "Bearer abc"], BearerError::Scheme),
            (&["Bearer    "], BearerError::Empty),
        ] {
            assert_eq!(token(&headers(values)), Err(error), "{values:?}");
        }
        let long = format!("Bearer {}", "a".repeat(LONGEST));
        assert_eq!(token(&headers(&[&long])), Err(BearerError::Scheme));
    }
}
