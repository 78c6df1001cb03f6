//! Invariants for arbitrary input: the bodies of the fuzz targets of `crates/fuzz`.
//!
//! Everything that a client or an issuer may send is read here as the proxy reads it: tokens before and after their signature, key sets,
//! and responses of issuers.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::aws::sts;
use crate::claims::{Claims, Expectations};
use crate::fetch::{self, Answer};
use crate::jwt::Unverified;
use crate::keys::KeySet;
use crate::{discovery, introspection, token_exchange};

/// A token, and the key that signed it.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6Im9uZSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoibWNwIiwiZXhwIjo0MTAyNDQ0ODAwLCJpYXQiOjE3MDAwMDAwMDAsInN1YiI6ImFkYSIsImdyb3VwcyI6WyJkZXYiXSwibmFtZSI6IkFkYSJ9.RYaOrYf8JIN3GxZnpcM8NxtPI34K5Ayyurqm7XaeUufxundM1AivFVBjkjWOpnsXxEFV9c3530LgKwSY9uJ3pg";
const KEY: &str = r#"{"kid":"one","kty":"EC","crv":"P-256","x":"rjGaA9Le39w7fGouo2YKKZYCXQPfca1EzdeRHuLpv7k","y":"4O0OLVBwOGeAFPmuR5ZfQo9oXdAhDThb7S695Du0kqg"}"#;
const NOW: i64 = 1_800_000_000;
const ISSUER: &str = "https://issuer.example";

/// Tokens, and the header and the payload of one on two lines.
pub const TOKENS: &[&[u8]] = &[
    TOKEN.as_bytes(),
    b"{\"alg\":\"ES256\",\"kid\":\"one\",\"typ\":\"JWT\"}\n{\"iss\":\"https://issuer.example\",\"aud\":[\"mcp\"],\"exp\":4102444800,\"nbf\":\"1\",\"sub\":\"ada\",\"scope\":\"a b\"}",
    b"{\"alg\":\"none\",\"kid\":\"one\",\"crit\":[\"exp\"],\"jku\":\"https://evil\"}\n{\"exp\":1e400,\"sub\":\"\\ud800\"}",
];
/// Key sets.
pub const KEY_SETS: &[&[u8]] = &[
    br#"{"keys":[{"kid":"one","kty":"EC","crv":"P-256","x":"rjGaA9Le39w7fGouo2YKKZYCXQPfca1EzdeRHuLpv7k","y":"4O0OLVBwOGeAFPmuR5ZfQo9oXdAhDThb7S695Du0kqg"},{"kty":"oct","kid":"one","k":"YQ"}]}"#,
    br#"{"keys":[{"kty":"RSA","kid":"one","alg":"RS256","use":"sig","n":"u1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gunVTLw7onLRnrq0_IzW7yWR7QkrmBL7jTKEn5u","e":"AQAB"}]}"#,
    br#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"one","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
];
/// Responses of issuers.
pub const RESPONSES: &[&[u8]] = &[
    br#"{"active":true,"sub":"ada","aud":["mcp"],"iss":"https://issuer.example","exp":4102444800,"scope":"a b"}"#,
    br#"{"sub":"ada","aud":"mcp","exp":"4102444800","email":"a@example.com"}"#,
    br#"{"user":{"id":7,"login":"ada","email":null},"scopes":["repo"],"app":{"name":"x"}}"#,
    br#"{"access_token":"t","token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","expires_in":"60"}"#,
    br#"{"error":"invalid_grant","error_description":"no"}"#,
    br#"{"issuer":"https://issuer.example/","jwks_uri":"https://issuer.example/keys","introspection_endpoint":"https://issuer.example/i"}"#,
    b"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>a</AccessKeyId><SecretAccessKey>b</SecretAccessKey><SessionToken>c</SessionToken><Expiration>2030-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
];

/// No token is verified but the one that was signed, and the claims of any are checked.
pub fn tokens(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (header, payload) = text.split_once('\n').unwrap_or_default();
    let encode = |part: &str| URL_SAFE_NO_PAD.encode(part);
    let signature = TOKEN.rsplit('.').next().unwrap_or_default();
    for token in [text, &format!("{}.{}.{signature}", encode(header), encode(payload))] {
        let Ok(unverified) = Unverified::parse(token) else { continue };
        let key = serde_json::from_str::<Value>(KEY).map(|key| serde_json::json!({ "keys": [key] }));
        let keys = key.ok().and_then(|keys| KeySet::of_json(&keys).ok()).unwrap_or_default();
        if let Some(key) = keys.find(&unverified.key_id, unverified.algorithm)
            && key.verify(&unverified).is_ok()
        {
            let signed = |token: &str| token.rsplit_once('.').map(|(signed, _)| signed.to_owned());
            assert_eq!(signed(token), signed(TOKEN), "another token was verified");
        }
        if let Ok(claims) = unverified.claims() {
            check(&claims);
        }
    }
}

/// Any document is read, and its keys verify no token but their own.
pub fn key_sets(data: &[u8]) {
    let (Ok(document), Ok(token)) = (serde_json::from_slice::<Value>(data), Unverified::parse(TOKEN)) else { return };
    let Ok(keys) = KeySet::of_json(&document) else { return };
    let Some(key) = keys.find(&token.key_id, token.algorithm) else { return };
    let text = String::from_utf8_lossy(data).into_owned();
    let own: Value = serde_json::from_str(KEY).unwrap_or_default();
    let is_own = |name: &str| own.get(name).and_then(Value::as_str).is_some_and(|part| text.contains(part));
    assert!(key.verify(&token).is_err() || (is_own("x") && is_own("y")), "a key verified what another one signed");
}

/// Any response of an issuer is read, and what is accepted of it can be used.
pub fn responses(data: &[u8]) {
    for status in [StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND] {
        let answer = Answer { status, headers: HeaderMap::new(), body: data.to_vec().into() };
        for claims in introspection::read_as_each(&answer, NOW) {
            check(&claims);
        }
        if let Ok(issued) = token_exchange::read(&answer, NOW) {
            assert!(status.is_success() && issued.expires.is_none_or(|expires| expires > NOW));
            assert!(fetch::bearer(&issued.credential).is_ok(), "a token that is no header was accepted");
        }
        if let Ok(text) = std::str::from_utf8(data) {
            let _read = sts::issued(&answer, text, NOW);
        }
        if let Ok(document) = answer.json() {
            let _found = discovery::read(&document, ISSUER);
        }
    }
}

/// A client that is let in has a subject, and a token that has not expired.
fn check(claims: &Claims) {
    let expected = Expectations { issuer: ISSUER.to_owned(), audience: "mcp".to_owned(), ..Expectations::default() };
    if let Ok(subject) = claims.check(&expected, NOW) {
        assert!(!subject.is_empty() && claims.expiry().is_some_and(|expiry| expiry > NOW - crate::LEEWAY));
    }
    let scoped = Expectations { scopes: vec!["a".to_owned()], ..Expectations::default() };
    let _checked = (claims.check(&Expectations::default(), NOW).is_ok(), claims.check_scopes(&scoped));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_seeds_hold_and_the_token_is_that_of_the_key() {
        for (seeds, run) in [(TOKENS, tokens as fn(&[u8])), (KEY_SETS, key_sets), (RESPONSES, responses)] {
            for seed in seeds {
                run(seed);
            }
        }
        let keys = KeySet::of_json(&serde_json::from_slice(KEY_SETS[0]).unwrap()).unwrap();
        let token = Unverified::parse(TOKEN).unwrap();
        assert!(keys.find(&token.key_id, token.algorithm).unwrap().verify(&token).is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_input_holds(data in prop::collection::vec(any::<u8>(), 0..200), text in "[{}\\[\\]\",:a-z0-9.\n_-]{0,200}") {
            for run in [tokens as fn(&[u8]), key_sets, responses] {
                run(&data);
                run(text.as_bytes());
            }
        }
    }
}
