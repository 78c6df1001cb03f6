use serde_json::json;
use skep_auth::{Options, Secret, Validator};

use crate::issuer::{Issuer, NOW};

fn validator(issuer: &Issuer) -> Validator {
    let options = Options {
        introspection_url: format!("{}/introspect", issuer.url),
        client_id: "skep".to_owned(),
        client_secret: Some(Secret::new("s3cret")),
        ..issuer.options()
    };
    Validator::new(options).unwrap()
}

#[tokio::test]
async fn an_opaque_token_is_introspected_and_remembered_for_a_minute() {
    let issuer = Issuer::start(&[]).await;
    let said =
        json!({"active": true, "sub": "ada", "iss": issuer.url, "aud": ["mcp"], "groups": ["dev"], "exp": NOW + 600});
    issuer.say("/introspect", 200, said);
    let validator = validator(&issuer);
    for _ in 0..3 {
        let caller = validator.validate("opaque token+", NOW).await.unwrap();
        assert_eq!((&*caller.identity.subject, &caller.claims["groups"]), ("ada", &json!(["dev"])));
    }
    let requests = issuer.requests("/introspect");
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body, "token=opaque+token%2B&token_type_hint=access_token");
    assert_eq!(requests[0].headers["authorization"], "Basic c2tlcDpzM2NyZXQ=");
    issuer.say("/introspect", 200, json!({"active": false}));
    let refused = validator.validate("opaque token+", NOW + 61).await.unwrap_err();
    assert_eq!(refused.external(), "invalid token");
}

#[tokio::test]
async fn an_opaque_token_must_be_of_the_issuer_for_this_server() {
    let issuer = Issuer::start(&[]).await;
    let validator = validator(&issuer);
    for (member, value, text) in [
        ("iss", json!("https://evil"), "invalid issuer"),
        ("aud", json!("other"), "invalid audience"),
        ("exp", json!(NOW - 600), "token expired"),
        ("sub", json!(null), "Invalid authentication claims"),
    ] {
        let mut said = json!({"active": true, "sub": "ada", "iss": issuer.url, "aud": "mcp"});
        said[member] = value;
        issuer.say("/introspect", 200, said);
        assert_eq!(validator.validate("opaque", NOW).await.unwrap_err().external(), text);
    }
}

#[tokio::test]
async fn opaque_tokens_are_denied_while_the_issuer_fails_and_clients_do_not_see_its_error() {
    let issuer = Issuer::start(&[]).await;
    let validator = validator(&issuer);
    for (status, page) in [(500, json!({"active": true})), (200, json!("no json")), (200, json!(["active"]))] {
        issuer.say("/introspect", status, page);
        let failed = validator.validate("opaque", NOW).await.unwrap_err();
        assert_eq!((failed.external().as_str(), failed.is_of_issuer()), ("failed to introspect opaque token", true));
    }
    let long = "x".repeat(70_000);
    issuer.say("/introspect", 200, json!({"active": true, "sub": "ada", "iss": issuer.url, "aud": "mcp", "x": long}));
    validator.validate("opaque", NOW).await.unwrap_err();
}

#[test]
fn tokens_of_every_google_client_are_not_accepted() {
    let options =
        Options { introspection_url: "https://oauth2.googleapis.com/tokeninfo".to_owned(), ..Options::default() };
    let mut named = options.clone();
    named.expected.issuer = "https://accounts.google.com".to_owned();
    assert!(Validator::new(named.clone()).is_err());
    named.expected.audience = "me".to_owned();
    Validator::new(named).unwrap();
    assert_eq!(Validator::new(options).unwrap_err().to_string(), "either issuer or JWKS URL must be provided");
}
