//! Digests of Secret values, for pod templates: they change with the value and say nothing about it.
//!
//! A user who may read a Deployment reads the digest of what its pods read. A plain hash of a short password could be brute-forced, so it is keyed with the uid of its Secret: 122 random bits, which the API server shows only to those who may
//! read the Secret. They are the same for every replica and after every restart, and cost no write. See
//! `docs/decisions/0006-keyed-digests-of-secrets.md`.

use aws_lc_rs::hmac;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use skep_plan::canonical::hex;

/// The digest of one value of a Secret, in hexadecimal.
pub(crate) fn of(secret: &Secret, value: &ByteString) -> String {
    let uid = secret.metadata.uid.as_deref().unwrap_or_default();
    let key = hmac::Key::new(hmac::HMAC_SHA256, uid.as_bytes());
    hex(hmac::sign(&key, &value.0).as_ref())
}

#[cfg(test)]
mod tests {
    use skep_plan::canonical::sha256_hex;

    use super::*;

    fn digest(uid: &str, value: &str) -> String {
        let mut secret = Secret::default();
        secret.metadata.uid = Some(uid.to_owned());
        of(&secret, &ByteString(value.as_bytes().to_vec()))
    }

    /// Item 17-14: a guess of the value cannot be verified.
    #[test]
    fn a_digest_needs_the_uid_of_its_secret() {
        assert_eq!(digest("one", "hunter2"), digest("one", "hunter2"));
        assert_ne!(digest("one", "hunter2"), digest("one", "hunter3"));
        assert_ne!(digest("one", "hunter2"), digest("two", "hunter2"), "equal values have different digests");
        assert_ne!(digest("one", "hunter2"), sha256_hex(b"hunter2"));
        assert_eq!(digest("one", "").len(), 64);
    }
}
