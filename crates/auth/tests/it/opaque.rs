use std::sync::Arc;

use serde_json::json;
use skep_auth::{AuthError, Options, Secret, Validator};

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
    for (token, (member, value, text)) in ["a", "b", "c", "d"].into_iter().zip([
        ("iss", json!("https://evil"), "invalid issuer"),
        ("aud", json!("other"), "invalid audience"),
        ("exp", json!(NOW - 600), "token expired"),
        ("sub", json!(null), "Invalid authentication claims"),
    ]) {
        let mut said = json!({"active": true, "sub": "ada", "iss": issuer.url, "aud": "mcp"});
        said[member] = value;
        issuer.say("/introspect", 200, said);
        // The second time it is refused without a request.
        for _ in 0..2 {
            assert_eq!(validator.validate(token, NOW).await.unwrap_err().external(), text);
        }
    }
    assert_eq!(issuer.requests("/introspect").len(), 4);
}

#[tokio::test]
async fn a_token_that_was_refused_is_not_introspected_again_for_some_seconds() {
    let issuer = Issuer::start(&[]).await;
    let validator = validator(&issuer);
    issuer.say("/introspect", 200, json!({"active": false}));
    for second in [0, 1, 7] {
        assert_eq!(validator.validate("opaque", NOW + second).await.unwrap_err().external(), "invalid token");
    }
    assert_eq!(issuer.requests("/introspect").len(), 1);
    issuer.say("/introspect", 200, json!({"active": true, "sub": "ada", "iss": issuer.url, "aud": "mcp"}));
    validator.validate("another", NOW).await.unwrap();
    validator.validate("opaque", NOW + 8).await.unwrap();
    assert_eq!(issuer.requests("/introspect").len(), 3);
}

#[tokio::test]
async fn requests_with_one_opaque_token_share_its_introspection_and_its_failure() {
    let issuer = Issuer::start(&[]).await;
    let validator = Arc::new(validator(&issuer));
    let many = async |token: &'static str| {
        let gate = issuer.hold("/introspect");
        let calls = (0..30).map(|_| {
            let validator = validator.clone();
            tokio::spawn(async move { validator.validate(token, NOW).await.map_err(|error| error.external()) })
        });
        let calls: Vec<_> = calls.collect();
        issuer.received("/introspect", 1).await;
        gate.add_permits(100);
        let mut outcomes = Vec::new();
        for call in calls {
            outcomes.push(call.await.unwrap().map(|caller| caller.identity.subject));
        }
        outcomes
    };
    issuer.say("/introspect", 200, json!({"active": true, "sub": "ada", "iss": issuer.url, "aud": "mcp"}));
    assert!(many("good").await.iter().all(|outcome| outcome.as_deref() == Ok("ada")));
    assert_eq!(issuer.requests("/introspect").len(), 1);
    issuer.say("/introspect", 500, json!({}));
    issuer.forget();
    let failed = many("bad").await;
    assert!(failed.iter().all(|outcome| *outcome == Err("failed to introspect opaque token".to_owned())), "{failed:?}");
    assert_eq!(issuer.requests("/introspect").len(), 1);
}

/// Everyone can invent opaque tokens.
#[tokio::test]
async fn an_issuer_that_has_enough_to_do_is_not_asked_more() {
    let issuer = Issuer::start(&[]).await;
    let validator = Arc::new(validator(&issuer));
    issuer.say("/introspect", 200, json!({"active": false}));
    let gate = issuer.hold("/introspect");
    let calls = (0..80).map(|number| {
        let validator = validator.clone();
        tokio::spawn(async move { validator.validate(&format!("invented {number}"), NOW).await.map(drop) })
    });
    let calls: Vec<_> = calls.collect();
    issuer.received("/introspect", 64).await;
    let mut busy = 0;
    for call in calls.into_iter().rev() {
        if busy == 16 {
            gate.add_permits(100);
        }
        let error = call.await.unwrap().unwrap_err();
        if busy < 16 {
            assert!(matches!(error, AuthError::Saturated), "{error}");
            busy += 1;
        }
    }
    assert_eq!(issuer.requests("/introspect").len(), 64);
}

/// A client without a secret is not authenticated by its name alone.
#[tokio::test]
async fn without_a_secret_no_credentials_are_sent() {
    let issuer = Issuer::start(&[]).await;
    issuer.say("/introspect", 200, json!({"active": false}));
    for (id, secret) in [("skep", None), ("", Some("s3cret"))] {
        let options = Options {
            introspection_url: format!("{}/introspect", issuer.url),
            client_id: id.to_owned(),
            client_secret: secret.map(Secret::new),
            ..issuer.options()
        };
        Validator::new(options).unwrap().validate("opaque", NOW).await.unwrap_err();
    }
    let requests = issuer.requests("/introspect");
    assert!(requests.len() == 2 && requests.iter().all(|request| !request.headers.contains_key("authorization")));
}

#[tokio::test]
async fn opaque_tokens_are_denied_while_the_issuer_fails_and_clients_do_not_see_its_error() {
    let issuer = Issuer::start(&[]).await;
    let validator = validator(&issuer);
    let answers = [(500, json!({"active": true})), (200, json!("no json")), (200, json!(["active"]))];
    for (token, (status, page)) in ["a", "b", "c"].into_iter().zip(answers) {
        issuer.say("/introspect", status, page);
        let failed = validator.validate(token, NOW).await.unwrap_err();
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
