//! OpenID Connect discovery: where an issuer's keys are.

use serde_json::Value;

use crate::fetch::{FetchError, Fetcher};

/// The discovery document of an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Discovered {
    pub(crate) jwks_url: String,
    pub(crate) introspection_url: Option<String>,
}

/// Why an issuer's keys cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The document cannot be fetched.
    #[error("failed to discover OIDC configuration: {0}")]
    Fetch(#[from] FetchError),
    /// The document is that of another issuer, whose keys are not trusted.
    #[error("failed to discover OIDC configuration: the document is of issuer `{0}`, which is not the configured one")]
    Issuer(String),
    /// The document does not say where the keys are.
    #[error("failed to discover OIDC configuration: the document has no `jwks_uri`")]
    NoKeys,
}

/// Discovers the URL of an issuer's keys.
pub(crate) async fn discover(fetcher: &Fetcher, issuer: &str) -> Result<Discovered, DiscoveryError> {
    let base = issuer.strip_suffix('/').unwrap_or(issuer);
    let (document, _) = fetcher.document(&format!("{base}/.well-known/openid-configuration")).await?;
    read(&document, issuer)
}

pub(crate) fn read(document: &Value, issuer: &str) -> Result<Discovered, DiscoveryError> {
    let text = |name: &str| document.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let named = text("issuer").unwrap_or_default();
    // A slash at the end makes no other issuer; what a token says is compared to the letter.
    if named.trim_end_matches('/') != issuer.trim_end_matches('/') {
        return Err(DiscoveryError::Issuer(crate::jwt::shown(named)));
    }
    let jwks_url = text("jwks_uri").ok_or(DiscoveryError::NoKeys)?.to_owned();
    Ok(Discovered { jwks_url, introspection_url: text("introspection_endpoint").map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_names_the_configured_issuer_and_its_keys() {
        let document = json!({"issuer": "https://idp/", "jwks_uri": "https://idp/keys"});
        assert_eq!(read(&document, "https://idp").unwrap().jwks_url, "https://idp/keys");
        let other = read(&json!({"issuer": "https://evil", "jwks_uri": "https://evil/keys"}), "https://idp");
        assert!(matches!(other, Err(DiscoveryError::Issuer(named)) if named == "https://evil"));
        let none = read(&json!({"jwks_uri": "https://idp/keys"}), "https://idp");
        assert!(matches!(none, Err(DiscoveryError::Issuer(_))));
        assert!(matches!(read(&json!({"issuer": "https://idp"}), "https://idp"), Err(DiscoveryError::NoKeys)));
    }
}
