//! The metadata of a protected resource (RFC 9728), from which clients learn where to get a token.

use serde_json::json;

/// The path of the document; the path of the resource may follow it.
pub const PATH: &str = "/.well-known/oauth-protected-resource";
/// The scopes that are advertised where none are configured.
const DEFAULT_SCOPES: &[&str] = &["openid"];

/// A protected resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectedResource {
    /// Its URL. Without one, no document is served.
    pub resource: String,
    /// Who issues tokens for it.
    pub issuer: String,
    /// The scopes to request.
    pub scopes: Vec<String>,
}

// === impl ProtectedResource ===

impl ProtectedResource {
    /// The document.
    pub fn document(&self) -> Option<String> {
        if self.resource.is_empty() {
            return None;
        }
        let scopes: Vec<&str> = match &*self.scopes {
            [] => DEFAULT_SCOPES.to_vec(),
            scopes => scopes.iter().map(String::as_str).collect(),
        };
        let mut document = json!({
            "resource": self.resource,
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes,
        });
        // Where only the keys are configured, it is not known who issues tokens.
        if !self.issuer.is_empty() {
            let servers = json!([self.issuer]);
            document.as_object_mut()?.insert("authorization_servers".to_owned(), servers);
        }
        Some(document.to_string())
    }

    /// Whether a path is that of the document: the well-known path itself, or followed by the path of a resource.
    pub fn is_at(path: &str) -> bool {
        path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_the_resource_its_issuer_and_its_scopes() {
        let mut resource =
            ProtectedResource { resource: "https://a/mcp".into(), issuer: "https://idp".into(), scopes: vec![] };
        let document: serde_json::Value = serde_json::from_str(&resource.document().unwrap()).unwrap();
        let expected = json!({"resource": "https://a/mcp", "authorization_servers": ["https://idp"],
            "bearer_methods_supported": ["header"], "scopes_supported": ["openid"]});
        assert_eq!(document, expected);
        resource.scopes = vec!["mcp:read".into()];
        assert!(resource.document().unwrap().contains(r#""scopes_supported":["mcp:read"]"#));
        resource.issuer.clear();
        assert!(!resource.document().unwrap().contains("authorization_servers"));
        resource.resource.clear();
        assert_eq!(resource.document(), None);
    }

    #[test]
    fn the_document_is_below_its_path_only() {
        for (path, is_at) in [
            ("/.well-known/oauth-protected-resource", true),
            ("/.well-known/oauth-protected-resource/mcp", true),
            ("/.well-known/oauth-protected-resourceXYZ", false),
            ("/.well-known/openid-configuration", false),
        ] {
            assert_eq!(ProtectedResource::is_at(path), is_at, "{path}");
        }
    }
}
