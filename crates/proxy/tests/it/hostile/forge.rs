//! An issuer with keys of three kinds, and tokens that are signed with them or only look like it.

use anyhow::Result;
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

pub(super) const ISSUER: &str = "https://issuer.example";
/// The secret of the issuer's key for another purpose, which it publishes by mistake.
pub(super) const SHARED: &[u8] = b"a secret that everybody can read";

/// Who issues tokens.
pub(super) struct Issuer {
    elliptic: EcdsaKeyPair,
    elliptic_der: EcdsaKeyPair,
    rsa: RsaPair,
}

pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The part of a token that is signed.
pub(super) fn signed(header: &Value, payload: impl AsRef<[u8]>) -> String {
    format!("{}.{}", encode(header.to_string()), encode(payload))
}

/// A token with a message authentication code in the place of a signature.
pub(super) fn authenticated(algorithm: &str, key_id: &str, secret: &[u8]) -> String {
    let by = match algorithm {
        "HS384" => hmac::HMAC_SHA384,
        "HS512" => hmac::HMAC_SHA512,
        _ => hmac::HMAC_SHA256,
    };
    let signed = signed(&json!({ "alg": algorithm, "kid": key_id, "typ": "JWT" }), Issuer::claims().to_string());
    let code = hmac::sign(&hmac::Key::new(by, secret), signed.as_bytes());
    format!("{signed}.{}", encode(code))
}

/// DER as the text that OpenSSL prints.
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

impl Issuer {
    pub(super) fn generate() -> Result<Self> {
        let document = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?.to_pkcs8v1()?;
        Ok(Self {
            elliptic: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref())?,
            elliptic_der: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref())?,
            rsa: RsaPair::generate(KeySize::Rsa2048)?,
        })
    }

    /// Claims that are accepted.
    pub(super) fn claims() -> Value {
        json!({ "iss": ISSUER, "aud": "mcp", "sub": "ada", "exp": 4_102_444_800_u64, "iat": 1_700_000_000 })
    }

    /// Claims that are accepted but for one.
    pub(super) fn but(name: &str, value: Value) -> Value {
        let mut claims = Self::claims();
        claims[name] = value;
        claims
    }

    /// The public elliptic key as a JWK.
    pub(super) fn jwk(&self) -> Value {
        let (x, y) = self.point()[1..].split_at(32);
        json!({ "kty": "EC", "crv": "P-256", "kid": "ec", "x": encode(x), "y": encode(y) })
    }

    /// The public RSA key as a JWK.
    pub(super) fn rsa_jwk(&self) -> Value {
        let der = self.rsa.public_key().as_ref();
        // PKCS #1: the header of the sequence, that of the modulus with a zero, the modulus, and the exponent 65537.
        let modulus = &der[9..9 + self.rsa.public_modulus_len()];
        json!({ "kty": "RSA", "kid": "rsa", "n": encode(modulus), "e": "AQAB" })
    }

    /// The document of its keys.
    pub(super) fn published(&self) -> Value {
        json!({ "keys": [self.jwk(), self.rsa_jwk(), { "kty": "oct", "kid": "oct", "k": encode(SHARED) }] })
    }

    /// The public elliptic key as a point.
    pub(super) fn point(&self) -> &[u8] {
        self.elliptic.public_key().as_ref()
    }

    /// The public elliptic key as DER of X.509.
    pub(super) fn der(&self) -> Vec<u8> {
        self.elliptic.public_key().as_der().unwrap().as_ref().to_vec()
    }

    /// The public RSA key as DER of X.509, and of PKCS #1.
    pub(super) fn rsa_der(&self) -> (Vec<u8>, Vec<u8>) {
        (self.rsa.public_key().as_der().unwrap().as_ref().to_vec(), self.rsa.public_key().as_ref().to_vec())
    }

    pub(super) fn valid(&self) -> String {
        self.sign(&Self::claims())
    }

    pub(super) fn sign(&self, claims: &Value) -> String {
        self.sign_payload(claims.to_string())
    }

    pub(super) fn sign_payload(&self, payload: impl AsRef<[u8]>) -> String {
        self.sign_as(&json!({ "alg": "ES256", "kid": "ec", "typ": "JWT" }), payload)
    }

    /// A token with any header, and an elliptic signature.
    pub(super) fn sign_as(&self, header: &Value, payload: impl AsRef<[u8]>) -> String {
        self.sign_parts(signed(header, payload))
    }

    /// A token of parts that are encoded already.
    pub(super) fn sign_parts(&self, signed: String) -> String {
        let signature = self.elliptic.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature))
    }

    /// A token whose elliptic signature is encoded as in X.509.
    pub(super) fn sign_as_der(&self) -> String {
        let signed = signed(&json!({ "alg": "ES256", "kid": "ec" }), Self::claims().to_string());
        let signature = self.elliptic_der.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature))
    }

    /// A token with an RSA signature.
    pub(super) fn sign_rsa(&self, header: &Value) -> String {
        let signed = signed(header, Self::claims().to_string());
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        self.rsa.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", encode(signature))
    }
}
