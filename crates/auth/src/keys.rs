//! The public keys of an issuer (RFC 7517), and verifying signatures with them.

use aws_lc_rs::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::jwt::{Algorithm, JwtError, Unverified};

/// How many keys are read of a set, at most.
const MOST: usize = 256;

/// The keys of an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet(Vec<Key>);

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    id: String,
    /// The only algorithm that it may be used with, if it says so.
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A curve, and a point of it, not compressed.
    Elliptic(Curve, Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

/// Why a document is not a set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// It has no list of keys.
    #[error("the document has no list `keys`")]
    NoKeys,
    /// None of its keys can verify a signature.
    #[error("the document has no key that signatures can be verified with")]
    NoneUsable,
}

// === impl KeySet ===

impl KeySet {
    /// Reads a set. Keys of other kinds or for other uses are passed over: issuers publish those as well.
    pub fn of_json(document: &Value) -> Result<Self, KeySetError> {
        let keys = document.get("keys").and_then(Value::as_array).ok_or(KeySetError::NoKeys)?;
        let usable: Vec<Key> = keys.iter().take(MOST).filter_map(Key::of_json).collect();
        if usable.is_empty() { Err(KeySetError::NoneUsable) } else { Ok(Self(usable)) }
    }

    /// The key of an id that fits an algorithm. Issuers may use one id for keys of several kinds.
    pub fn find(&self, id: &str, algorithm: Algorithm) -> Option<&Key> {
        self.0.iter().find(|key| key.id == id && key.fits(algorithm))
    }
}

// === impl Key ===

impl Key {
    fn of_json(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => Material::Rsa { modulus: bytes("n")?, exponent: bytes("e")? },
            ("EC", Some(curve)) => {
                let curve = Curve::of_name(curve)?;
                Material::Elliptic(curve, curve.point(&bytes("x")?, &bytes("y")?)?)
            }
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x")?),
            _ => return None,
        };
        let algorithm = match text("alg") {
            Some(name) => Some(Algorithm::of_name(name)?),
            None => None,
        };
        Some(Self { id: text("kid").unwrap_or_default().to_owned(), algorithm, material })
    }

    /// Whether signatures of an algorithm can be this key's. A key is never used in a way that its kind or its issuer does not intend.
    fn fits(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{EdDsa, Es256, Es384, Es512, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        let of_kind = match self.material {
            Material::Rsa { .. } => matches!(algorithm, Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512),
            Material::Elliptic(Curve::P256, _) => algorithm == Es256,
            Material::Elliptic(Curve::P384, _) => algorithm == Es384,
            Material::Elliptic(Curve::P521, _) => algorithm == Es512,
            Material::Ed25519(_) => algorithm == EdDsa,
        };
        of_kind && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Verifies the signature of a token.
    pub fn verify(&self, token: &Unverified<'_>) -> Result<(), JwtError> {
        #[cfg(test)]
        tests::VERIFICATIONS.with(|count| count.set(count.get() + 1));
        let (message, signature) = token.signed();
        let verified = match (&self.material, token.algorithm) {
            (Material::Rsa { modulus, exponent }, algorithm) => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                rsa(algorithm).is_some_and(|how| key.verify(how, message, signature).is_ok())
            }
            (Material::Elliptic(curve, point), _) => {
                UnparsedPublicKey::new(curve.verification(), point).verify(message, signature).is_ok()
            }
            (Material::Ed25519(key), _) => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature).is_ok()
            }
        };
        if verified && self.fits(token.algorithm) { Ok(()) } else { Err(JwtError::Signature) }
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

// === impl Curve ===

impl Curve {
    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "P-256" => Self::P256,
            "P-384" => Self::P384,
            "P-521" => Self::P521,
            _ => return None,
        })
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::P256 => &signature::ECDSA_P256_SHA256_FIXED,
            Self::P384 => &signature::ECDSA_P384_SHA384_FIXED,
            Self::P521 => &signature::ECDSA_P521_SHA512_FIXED,
        }
    }

    /// A point as the library wants it. Coordinates must have their full length; some issuers strip leading zeros.
    fn point(self, x: &[u8], y: &[u8]) -> Option<Vec<u8>> {
        let length: usize = match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        };
        let mut point = vec![4];
        for coordinate in [x, y] {
            let missing = length.checked_sub(coordinate.len())?;
            point.extend(std::iter::repeat_n(0, missing));
            point.extend_from_slice(coordinate);
        }
        Some(point)
    }
}

#[cfg(test)]
pub(crate) mod tests;
