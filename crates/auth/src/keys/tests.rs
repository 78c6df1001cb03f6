use std::cell::Cell;

use serde_json::json;

use super::*;

thread_local! {
    /// How many signatures were verified by this thread.
    pub(crate) static VERIFICATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Keys and tokens that PyJWT made.
pub(crate) fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

fn verify(keys: &Value, token: &str) -> Result<(), String> {
    let token = Unverified::parse(token).map_err(|error| error.to_string())?;
    let keys = KeySet::of_json(keys).map_err(|error| error.to_string())?;
    let key = keys.find(&token.key_id, token.algorithm).ok_or("no key")?;
    key.verify(&token).map_err(|error| error.to_string())
}

#[test]
fn every_algorithm_verifies_what_another_library_signed_and_nothing_else() {
    let vectors = vectors();
    let tokens = vectors["tokens"].as_object().unwrap();
    assert_eq!(tokens.len(), 10);
    for (algorithm, token) in tokens {
        let token = token.as_str().unwrap();
        assert_eq!(verify(&vectors, token), Ok(()), "{algorithm}");
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, payload) = signed.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(r#"{"sub":"eve"}"#);
        let forged = format!("{header}.{other}.{signature}");
        assert!(verify(&vectors, &forged).is_err(), "{algorithm}: {forged}");
        let mut cut = URL_SAFE_NO_PAD.decode(signature).unwrap();
        cut.pop();
        assert!(verify(&vectors, &format!("{header}.{payload}.{}", URL_SAFE_NO_PAD.encode(cut))).is_err());
        assert!(verify(&vectors, &format!("{header}.{payload}.")).is_err());
        let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
        assert!(verify(&vectors, &format!("{header}.{payload}.{zeros}")).is_err(), "{algorithm}: zeros");
    }
}

#[test]
fn a_key_is_used_as_its_kind_and_its_issuer_intend() {
    let vectors = vectors();
    let keys = KeySet::of_json(&vectors).unwrap();
    for (id, fits, others) in [
        ("rsa", Algorithm::Rs256, &[Algorithm::Es256, Algorithm::EdDsa][..]),
        ("ES256", Algorithm::Es256, &[Algorithm::Es384, Algorithm::Rs256, Algorithm::EdDsa]),
        ("EdDSA", Algorithm::EdDsa, &[Algorithm::Es256, Algorithm::Rs256]),
    ] {
        assert!(keys.find(id, fits).is_some(), "{id}");
        assert!(others.iter().all(|other| keys.find(id, *other).is_none()), "{id}");
    }
    let only = |member: &str, value: &str| {
        let mut key = vectors["keys"][0].clone();
        key[member] = value.into();
        KeySet::of_json(&json!({ "keys": [key] }))
    };
    let restricted = only("alg", "RS512").unwrap();
    assert!(restricted.find("rsa", Algorithm::Rs512).is_some() && restricted.find("rsa", Algorithm::Rs256).is_none());
    assert_eq!(only("use", "enc"), Err(KeySetError::NoneUsable));
    assert_eq!(only("alg", "RSA-OAEP"), Err(KeySetError::NoneUsable));
}

#[test]
fn keys_that_are_too_short_or_of_another_kind_verify_nothing() {
    let vectors = vectors();
    let small = json!({ "keys": [vectors["small"]] });
    assert!(verify(&small, vectors["small_token"].as_str().unwrap()).is_err());
    for keys in [
        json!({}),
        json!({"keys": {}}),
        json!({"keys": []}),
        json!({"keys": [{"kty": "oct", "k": "AAAA", "kid": "a"}]}),
        json!({"keys": [{"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}]}),
        json!({"keys": [{"kty": "EC", "crv": "P-256", "x": URL_SAFE_NO_PAD.encode([1; 33]), "y": "AA"}]}),
        json!({"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}),
    ] {
        assert!(KeySet::of_json(&keys).is_err(), "{keys}");
    }
    // A key of another library does not make the set invalid.
    let mut mixed = vectors["keys"].as_array().unwrap().clone();
    mixed.insert(0, json!({"kty": "oct", "kid": "rsa"}));
    assert_eq!(verify(&json!({ "keys": mixed }), vectors["tokens"]["RS256"].as_str().unwrap()), Ok(()));
}
