//! A JSON Web Token before its signature was verified: what it says it is, and what was signed.
//!
//! Only algorithms with a public key are known here. A token cannot choose `none`, nor HMAC with a public key as its secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::claims::Claims;

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA with PKCS #1 padding and SHA-256.
    Rs256,
    /// RSA with PKCS #1 padding and SHA-384.
    Rs384,
    /// RSA with PKCS #1 padding and SHA-512.
    Rs512,
    /// RSA-PSS with SHA-256.
    Ps256,
    /// RSA-PSS with SHA-384.
    Ps384,
    /// RSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256.
    Es256,
    /// ECDSA on P-384.
    Es384,
    /// ECDSA on P-521.
    Es512,
    /// Ed25519.
    EdDsa,
}

/// A token whose signature was not verified.
#[derive(Debug)]
pub struct Unverified<'a> {
    /// How it says that it is signed.
    pub algorithm: Algorithm,
    /// The key that it says it is signed with.
    pub key_id: String,
    signed: &'a str,
    signature: Vec<u8>,
    payload: &'a str,
}

/// Why a token cannot be verified. The texts are part of the contract with clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It is not a JSON Web Token at all, and may be an opaque one.
    #[error("failed to parse token: token is malformed: {0}")]
    Malformed(&'static str),
    /// It is signed in a way that is not accepted.
    #[error("failed to parse token: unexpected signing method: {0}")]
    Algorithm(String),
    /// It does not say which key signed it.
    #[error("failed to parse token: token header missing kid")]
    KeyId,
    /// It has an extension that must be understood.
    #[error("failed to parse token: unsupported critical header")]
    Critical,
    /// The signature is not that of the key.
    #[error("failed to parse token: token signature is invalid")]
    Signature,
    /// What is signed is not a JSON object.
    #[error("failed to parse token: the payload is not a JSON object")]
    Payload,
}

// === impl Algorithm ===

impl Algorithm {
    /// The algorithm of a name of RFC 7518 or RFC 8037.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "ES512" => Self::Es512,
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }
}

// === impl Unverified ===

impl<'a> Unverified<'a> {
    /// Takes a token apart.
    pub fn parse(token: &'a str) -> Result<Self, JwtError> {
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(JwtError::Malformed("token contains an invalid number of segments"));
        };
        let signed = token.get(..header.len() + 1 + payload.len()).unwrap_or_default();
        let header = decode(header).and_then(|bytes| object(&bytes));
        let header = header.ok_or(JwtError::Malformed("could not decode the header"))?;
        let name = header.get("alg").and_then(Value::as_str).unwrap_or_default();
        let algorithm = Algorithm::of_name(name).ok_or_else(|| JwtError::Algorithm(shown(name)))?;
        if header.contains_key("crit") {
            return Err(JwtError::Critical);
        }
        let key_id = header.get("kid").and_then(Value::as_str).ok_or(JwtError::KeyId)?.to_owned();
        let signature = decode(signature).ok_or(JwtError::Malformed("could not decode the signature"))?;
        Ok(Self { algorithm, key_id, signed, signature, payload })
    }

    /// What was signed, and the signature.
    pub(crate) fn signed(&self) -> (&[u8], &[u8]) {
        (self.signed.as_bytes(), &self.signature)
    }

    /// The claims. They mean something only once the signature was verified.
    pub(crate) fn claims(&self) -> Result<Claims, JwtError> {
        decode(self.payload).and_then(|bytes| object(&bytes)).map(Claims::new).ok_or(JwtError::Payload)
    }
}

/// When a token says that it expires, if it is a JSON Web Token. Whether that is true is not known: it may only shorten what is kept for it.
pub(crate) fn unverified_expiry(token: &str) -> Option<i64> {
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    Claims::new(object(&decode(payload)?)?).expiry()
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(bytes).ok()
}

/// Enough of a text of a client to recognize it in an error.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(64).filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, payload: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", encode(header), encode(payload), encode("signature"))
    }

    #[test]
    fn a_token_says_how_it_is_signed_and_by_which_key() {
        let token = token(r#"{"alg":"ES256","kid":"a"}"#, r#"{"sub":"ada"}"#);
        let unverified = Unverified::parse(&token).unwrap();
        assert_eq!((unverified.algorithm, unverified.key_id.as_str()), (Algorithm::Es256, "a"));
        assert_eq!(unverified.signed().1, b"signature");
        assert_eq!(unverified.claims().unwrap().get("sub").unwrap(), "ada");
    }

    #[test]
    fn a_token_says_when_it_expires() {
        for (payload, expected) in [(r#"{"exp":7}"#, Some(7)), (r#"{"exp":"7"}"#, Some(7)), ("{}", None), ("[]", None)]
        {
            assert_eq!(unverified_expiry(&token("{}", payload)), expected, "{payload}");
        }
        for opaque in ["", "a", "a.b", "a.b.c", "a.eyJleHAiOjF9.c.d"] {
            assert_eq!(unverified_expiry(opaque), None, "{opaque}");
        }
    }

    #[test]
    fn no_token_chooses_to_be_unsigned_or_signed_with_a_secret() {
        for algorithm in ["none", "None", "", "HS256", "HS384", "HS512", "es256", "RS256 ", "A128KW"] {
            let token = token(&format!(r#"{{"alg":"{algorithm}","kid":"a"}}"#), "{}");
            let error = Unverified::parse(&token).unwrap_err();
            assert_eq!(error, JwtError::Algorithm(algorithm.to_owned()));
        }
        for (header, error) in [
            (r#"{"kid":"a"}"#, JwtError::Algorithm(String::new())),
            (r#"{"alg":["none"],"kid":"a"}"#, JwtError::Algorithm(String::new())),
            (r#"{"alg":"ES256"}"#, JwtError::KeyId),
            (r#"{"alg":"ES256","kid":7}"#, JwtError::KeyId),
            (r#"{"alg":"ES256","kid":"a","crit":["exp"]}"#, JwtError::Critical),
        ] {
            assert_eq!(Unverified::parse(&token(header, "{}")).unwrap_err(), error, "{header}");
        }
    }

    #[test]
    fn what_is_not_three_parts_of_base64_is_malformed() {
        for text in ["", "abc", "a.b", "a.b.c.d", "....", "!.!.!", "e30=.e30.e30", "ghp_0123456789"] {
            assert!(matches!(Unverified::parse(text), Err(JwtError::Malformed(_))), "{text}");
        }
    }
}
