//! The kubeconfig file, as one value. JSON is YAML, so every reader of kubeconfigs takes it.

use serde_json::{Value, json};

use crate::pki::Identity;

/// A kubeconfig with one context: `identity` at the API server `server`, whose certificates `authority_pem` signed.
pub fn kubeconfig(server: &str, authority_pem: &str, identity: &Identity) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "skep", "cluster": {
            "server": server,
            "certificate-authority-data": base64(authority_pem.as_bytes()),
        }}],
        "users": [{ "name": "skep", "user": {
            "client-certificate-data": base64(identity.certificate.as_bytes()),
            "client-key-data": base64(identity.key.as_bytes()),
        }}],
        "contexts": [{ "name": "skep", "context": { "cluster": "skep", "user": "skep" }}],
        "current-context": "skep",
    })
}

/// Base64 as Kubernetes writes it: its own byte string type already knows how.
fn base64(bytes: &[u8]) -> Value {
    json!(k8s_openapi::ByteString(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_standard_base64_with_padding() {
        assert_eq!(base64(b"ab"), json!("YWI="));
    }
}
