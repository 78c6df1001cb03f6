//! The response to a request that is not authenticated: `WWW-Authenticate` (RFC 6750, RFC 9728) and a JSON body.

use http::HeaderValue;
use serde_json::json;
use url::Url;

/// The code of an error, as RFC 6750 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// The request carries no token, or none that can be read.
    InvalidRequest,
    /// The token is not valid.
    InvalidToken,
    /// The token lacks a scope.
    InsufficientScope,
}

/// What every challenge of a proxy says: who issues tokens, where the metadata of the resource is, and which scopes to request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    realm: String,
    resource_metadata: String,
    scope: String,
}

// === impl ErrorCode ===

impl ErrorCode {
    /// The code on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidToken => "invalid_token",
            Self::InsufficientScope => "insufficient_scope",
        }
    }
}

// === impl Challenge ===

impl Challenge {
    /// The challenge of a resource, whose URL may be empty.
    pub fn new(issuer: &str, resource: &str, scopes: &[String]) -> Self {
        let resource_metadata = metadata_url(resource).unwrap_or_default();
        Self { realm: issuer.to_owned(), resource_metadata, scope: scopes.join(" ") }
    }

    /// The header. Parts that are empty are left out.
    pub fn header(&self, code: ErrorCode, description: &str) -> HeaderValue {
        let parts = [
            ("realm", self.realm.as_str()),
            ("resource_metadata", &self.resource_metadata),
            ("scope", &self.scope),
            ("error", code.as_str()),
            ("error_description", description),
        ];
        let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
        let parts: Vec<_> = parts.map(|(name, value)| format!("{name}=\"{}\"", quoted(value))).collect();
        HeaderValue::from_str(&format!("Bearer {}", parts.join(", "))).unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// The body.
    pub fn body(code: ErrorCode, description: &str) -> String {
        json!({ "error": code.as_str(), "error_description": description }).to_string()
    }
}

/// The text of a quoted string. What may not be in a header at all is replaced.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' => quoted.push(letter),
            _ => quoted.push('?'),
        }
    }
    quoted
}

/// Where the metadata of a resource is: at a well-known path of its host, followed by its own path.
pub fn metadata_url(resource: &str) -> Option<String> {
    let url = Url::parse(resource).ok().filter(Url::has_host)?;
    let path = Some(url.path()).filter(|path| *path != "/").unwrap_or_default();
    let origin = url.origin().ascii_serialization();
    Some(format!("{origin}/.well-known/oauth-protected-resource{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_of_a_resource_is_at_its_host_before_its_path() {
        for (resource, url) in [
            ("http://mcp.example.com", Some("http://mcp.example.com/.well-known/oauth-protected-resource")),
            ("http://mcp.example.com/", Some("http://mcp.example.com/.well-known/oauth-protected-resource")),
            ("https://a.example:8443/mcp", Some("https://a.example:8443/.well-known/oauth-protected-resource/mcp")),
            ("https://a.example/mcp/", Some("https://a.example/.well-known/oauth-protected-resource/mcp/")),
            ("https://a.example/mcp?x=1#y", Some("https://a.example/.well-known/oauth-protected-resource/mcp")),
            ("", None),
            ("mcp", None),
        ] {
            assert_eq!(metadata_url(resource).as_deref(), url, "{resource}");
        }
    }

    #[test]
    fn a_challenge_has_its_parts_in_order_and_leaves_out_what_is_not_configured() {
        let full = Challenge::new("https://idp.example", "https://a.example/mcp", &["a".to_owned(), "b".to_owned()]);
        assert_eq!(
            full.header(ErrorCode::InvalidToken, r#"say "no" \"#),
            r#"Bearer realm="https://idp.example", resource_metadata="https://a.example/.well-known/oauth-protected-resource/mcp", scope="a b", error="invalid_token", error_description="say \"no\" \\""#
        );
        let bare = Challenge::new("https://idp.example", "", &[]);
        assert_eq!(
            bare.header(ErrorCode::InvalidRequest, "authorization header required"),
            r#"Bearer realm="https://idp.example", error="invalid_request", error_description="authorization header required""#
        );
        let body = Challenge::body(ErrorCode::InvalidToken, "Invalid token: token expired");
        assert_eq!(body, r#"{"error":"invalid_token","error_description":"Invalid token: token expired"}"#);
    }

    #[test]
    fn what_may_not_be_in_a_header_does_not_get_into_one() {
        let header = Challenge::new("https://a\r\nx: y", "", &[])
            .header(ErrorCode::InvalidToken, "key ID \u{1F511}\n not found");
        assert_eq!(
            header,
            r#"Bearer realm="https://a??x: y", error="invalid_token", error_description="key ID ?? not found""#
        );
    }
}
