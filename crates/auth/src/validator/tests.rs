use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::*;
use crate::keys::KeySet;
use crate::keys::tests::VERIFICATIONS;

const NOW: i64 = 1_800_000_000;

fn verifications() -> usize {
    VERIFICATIONS.with(std::cell::Cell::get)
}

/// A call costs a hash, and not a signature check.
#[tokio::test]
async fn the_signature_of_a_token_is_verified_once_for_as_long_as_the_token_holds() {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
    let key = json!({"kty": "EC", "crv": "P-256", "kid": "a", "x": encode(x), "y": encode(y)});
    let sign = |subject: &str| {
        let claims = json!({"iss": "https://idp", "sub": subject, "exp": NOW + 100});
        let header = json!({"alg": "ES256", "kid": "a"});
        let signed = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature.as_ref()))
    };
    let expected = Expectations { issuer: "https://idp".to_owned(), ..Expectations::default() };
    let validator = Validator::new(Options { expected, ..Options::default() }).unwrap();
    validator.keys.put(KeySet::of_json(&json!({ "keys": [key] })).unwrap()).await;
    let (ada, bob) = (sign("ada"), sign("bob"));
    assert!(validator.known(&ada, NOW).is_none());
    for _ in 0..10 {
        validator.validate(&ada, NOW).await.unwrap();
        assert_eq!(&*validator.known(&ada, NOW + 99).unwrap().identity.subject, "ada");
    }
    assert_eq!(verifications(), 1);
    validator.validate(&bob, NOW).await.unwrap();
    assert_eq!(verifications(), 2);
    // It has expired by its own time, and is within the leeway of the clocks.
    validator.validate(&ada, NOW + 110).await.unwrap();
    assert_eq!(verifications(), 3);
}
