use serde_json::{Value, json};
use skep_auth::{AuthError, Validator};

use crate::issuer::{Issuer, NOW, SigningKey};

async fn error(validator: &Validator, token: &str) -> String {
    validator.validate(token, NOW).await.unwrap_err().external()
}

#[tokio::test]
async fn a_valid_token_stands_for_its_subject_with_its_claims_and_itself() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    let mut claims = issuer.claims("ada");
    claims["groups"] = json!(["dev"]);
    claims["preferred_username"] = json!("Ada");
    claims["tsid"] = json!("session of upstream tokens");
    let token = key.sign(&claims);
    let caller = issuer.validator().validate(&token, NOW).await.unwrap();
    assert_eq!((&*caller.identity.subject, &*caller.identity.issuer), ("ada", issuer.url.as_str()));
    assert_eq!(&*caller.identity.name, "Ada");
    assert_eq!(caller.claims["groups"], json!(["dev"]));
    assert!(!caller.claims.contains_key("tsid"));
    assert_eq!(caller.token.unwrap().expose(), token);
}

#[tokio::test]
async fn what_is_not_a_token_of_the_issuer_for_this_server_is_refused() {
    let (key, other) = (SigningKey::new("a"), SigningKey::new("a"));
    let issuer = Issuer::start(&[&key]).await;
    let validator = issuer.validator();
    let changed = |name: &str, value: Value| {
        let mut claims = issuer.claims("ada");
        claims[name] = value;
        claims
    };
    let good = issuer.claims("ada");
    let truncated = {
        let token = key.sign(&good);
        token.get(..token.len() - 2).unwrap().to_owned()
    };
    let unsigned = key.sign_as(&json!({"alg": "none", "kid": "a"}), &good);
    let rows = [
        (key.sign(&changed("iss", json!("https://evil"))), "invalid issuer"),
        (key.sign(&changed("aud", json!("other"))), "invalid audience"),
        (key.sign(&changed("exp", json!(NOW - 31))), "token expired"),
        (key.sign(&changed("exp", Value::Null)), "token expired"),
        (key.sign(&changed("nbf", json!(NOW + 31))), "token is not valid yet"),
        (key.sign(&changed("sub", json!(""))), "Invalid authentication claims"),
        // Another issuer's key with the same id.
        (other.sign(&good), "failed to parse token: token signature is invalid"),
        (truncated, "failed to parse token: token signature is invalid"),
        (unsigned, "failed to parse token: unexpected signing method: none"),
        (
            key.sign_as(&json!({"alg": "HS256", "kid": "a"}), &good),
            "failed to parse token: unexpected signing method: HS256",
        ),
        (key.sign_as(&json!({"alg": "ES256"}), &good), "failed to parse token: token header missing kid"),
        (key.sign(&json!([1])), "failed to parse token: the payload is not a JSON object"),
        ("opaque".to_owned(), "failed to introspect opaque token: no introspection endpoint available"),
    ];
    for (token, text) in rows {
        assert_eq!(error(&validator, &token).await, text);
    }
}

#[tokio::test]
async fn a_token_is_verified_once_and_holds_until_it_expires() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    let validator = issuer.validator();
    let token = key.sign(&issuer.claims("ada"));
    for _ in 0..5 {
        validator.validate(&token, NOW).await.unwrap();
    }
    assert_eq!(issuer.requests("/keys").len(), 1);
    // The claims of the cached token are those of its own time.
    assert!(matches!(validator.validate(&token, NOW + 631).await, Err(AuthError::Claims(_))));
}

#[tokio::test]
async fn a_token_without_a_configured_scope_is_refused() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    let mut options = issuer.options();
    options.expected.scopes = vec!["openid".to_owned(), "mcp:call".to_owned()];
    let validator = Validator::new(options).unwrap();
    let mut claims = issuer.claims("ada");
    claims["scope"] = json!("mcp:read");
    let refused = validator.validate(&key.sign(&claims), NOW).await.unwrap_err();
    assert!(refused.is_scope());
    claims["scope"] = json!("mcp:read mcp:call");
    validator.validate(&key.sign(&claims), NOW).await.unwrap();
}
