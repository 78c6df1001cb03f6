//! The signature of a request: HMAC-SHA256 over `<timestamp>.<body>`, in hexadecimal.

use std::fmt::Write as _;

use aws_lc_rs::hmac;

/// The header with the signature.
pub const SIGNATURE: &str = "x-toolhive-signature";
/// The header with the time of the signature, in seconds since 1970. A receiver refuses one that is more than five minutes off.
pub const TIMESTAMP: &str = "x-toolhive-timestamp";

/// The value of the header with the signature.
pub fn sign(key: &[u8], timestamp: i64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(format!("{timestamp}.").as_bytes());
    context.update(body);
    let mut signature = "sha256=".to_owned();
    for byte in context.sign().as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(signature, "{byte:02x}");
    }
    signature
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of docs/guides/webhooks.md, which `openssl dgst -sha256 -hmac` made.
    #[test]
    fn a_signature_is_the_published_one() {
        let body = br#"{"version":"v0.1.0","uid":"test-uid"}"#;
        let signature = sign(b"test-secret-key", 1_698_057_000, body);
        assert_eq!(signature, "sha256=d781d0d5659d525cc52a4e9d7446449dfff3088cf3623654a5b089834888ab9e");
        assert_ne!(signature, sign(b"test-secret-key\n", 1_698_057_000, body), "a line feed is part of the key");
        assert_ne!(signature, sign(b"test-secret-key", 1_698_057_001, body));
    }
}
