use std::sync::Arc;

use skep_auth::{Options, Validator};
use skep_net::Addresses;
use skep_testkit::pki::Authority;

use crate::issuer::{Issuer, NOW, SigningKey};

#[tokio::test(start_paused = true)]
async fn keys_rotate_without_a_failed_request() {
    let (old, new) = (SigningKey::new("old"), SigningKey::new("new"));
    let issuer = Issuer::start(&[&old]).await;
    let validator = issuer.validator();
    validator.validate(&old.sign(&issuer.claims("ada")), NOW).await.unwrap();
    issuer.rotate(&[&new]);
    validator.validate(&new.sign(&issuer.claims("ada")), NOW).await.unwrap();
    assert_eq!(issuer.requests("/keys").len(), 2);
    // The old key was withdrawn, so what it signed does not hold any more, verified before or not.
    let refused = validator.validate(&old.sign(&issuer.claims("ada")), NOW).await.unwrap_err();
    assert_eq!(refused.external(), "failed to parse token: key ID old not found in JWKS");
}

#[tokio::test(start_paused = true)]
async fn a_verified_token_does_not_outlive_its_key() {
    let (old, new) = (SigningKey::new("old"), SigningKey::new("new"));
    let issuer = Issuer::start(&[&old]).await;
    let validator = issuer.validator();
    let token = old.sign(&issuer.claims("ada"));
    validator.validate(&token, NOW).await.unwrap();
    issuer.rotate(&[&new]);
    validator.validate(&new.sign(&issuer.claims("ada")), NOW).await.unwrap();
    validator.validate(&token, NOW).await.unwrap_err();
}

#[tokio::test]
async fn tokens_that_wait_for_keys_share_one_fetch() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    let validator = Arc::new(issuer.validator());
    let calls = (0..50).map(|number| {
        let (validator, token) = (validator.clone(), key.sign(&issuer.claims(&format!("user{number}"))));
        tokio::spawn(async move { validator.validate(&token, NOW).await.map(|caller| caller.identity.subject) })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(issuer.requests("/keys").len(), 1);
    assert_eq!(issuer.requests("/.well-known/openid-configuration").len(), 1);
}

#[tokio::test]
async fn invented_key_ids_cost_the_issuer_one_fetch_per_interval() {
    let (key, invented) = (SigningKey::new("a"), SigningKey::new("invented"));
    let issuer = Issuer::start(&[&key]).await;
    let validator = Arc::new(issuer.validator());
    validator.validate(&key.sign(&issuer.claims("ada")), NOW).await.unwrap();
    tokio::time::pause();
    let calls = (0..100).map(|number| {
        let (validator, token) = (validator.clone(), invented.sign(&issuer.claims(&number.to_string())));
        tokio::spawn(async move { validator.validate(&token, NOW).await.is_err() })
    });
    for call in calls.collect::<Vec<_>>() {
        assert!(call.await.unwrap());
    }
    assert_eq!(issuer.requests("/keys").len(), 2, "one fetch for the hundred");
}

#[tokio::test(start_paused = true)]
async fn the_last_good_keys_stay_in_use_while_the_issuer_is_away() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    let validator = issuer.validator();
    validator.validate(&key.sign(&issuer.claims("ada")), NOW).await.unwrap();
    for page in [serde_json::json!({"keys": []}), serde_json::json!("not json")] {
        issuer.say("/keys", 200, page);
        tokio::time::advance(std::time::Duration::from_hours(48)).await;
        validator.validate(&key.sign(&issuer.claims("bob")), NOW).await.unwrap();
        let unknown = SigningKey::new("b");
        let failed = validator.validate(&unknown.sign(&issuer.claims("bob")), NOW).await.unwrap_err();
        assert!(failed.is_of_issuer());
        validator.validate(&key.sign(&issuer.claims("eve")), NOW).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_that_failed_is_tried_again_and_names_no_address_to_clients() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    issuer.say("/.well-known/openid-configuration", 500, serde_json::json!({}));
    let validator = issuer.validator();
    let token = key.sign(&issuer.claims("ada"));
    let failed = validator.validate(&token, NOW).await.unwrap_err();
    assert_eq!((failed.external().as_str(), failed.is_of_issuer()), ("OIDC discovery failed", true));
    issuer.say_discovery(&issuer.url);
    validator.validate(&token, NOW).await.unwrap();
}

#[tokio::test]
async fn keys_of_another_issuer_s_document_are_not_trusted() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    issuer.say_discovery("https://somewhere.example");
    let failed = issuer.validator().validate(&key.sign(&issuer.claims("ada")), NOW).await.unwrap_err();
    assert!(failed.to_string().contains("`https://somewhere.example`, which is not the configured one"), "{failed}");
    assert!(issuer.requests("/keys").is_empty());
}

#[tokio::test]
async fn with_a_url_of_the_keys_nothing_is_discovered() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    let validator = Validator::new(Options { jwks_url: format!("{}/keys", issuer.url), ..issuer.options() }).unwrap();
    validator.validate(&key.sign(&issuer.claims("ada")), NOW).await.unwrap();
    assert!(issuer.requests("/.well-known/openid-configuration").is_empty());
}

#[tokio::test]
async fn an_issuer_needs_tls_and_a_public_address_unless_that_is_waived() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    let token = key.sign(&issuer.claims("ada"));
    for options in [
        Options { insecure_http: false, ..issuer.options() },
        Options { addresses: Addresses::PublicOnly, ..issuer.options() },
        Options { addresses: Addresses::Cluster, ..issuer.options() },
    ] {
        let failed = Validator::new(options).unwrap().validate(&token, NOW).await.unwrap_err();
        assert_eq!(failed.external(), "OIDC discovery failed");
    }
    assert!(issuer.requests("/.well-known/openid-configuration").is_empty());
}

#[tokio::test]
async fn the_token_for_the_issuer_is_read_again_for_each_request() {
    let (key, new) = (SigningKey::new("a"), SigningKey::new("b"));
    let issuer = Issuer::start(&[&key]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "first\n").unwrap();
    let validator = Validator::new(Options { token_file: Some(file.path().to_owned()), ..issuer.options() }).unwrap();
    validator.validate(&key.sign(&issuer.claims("ada")), NOW).await.unwrap();
    std::fs::write(file.path(), "second\n").unwrap();
    issuer.rotate(&[&new]);
    tokio::time::pause();
    validator.validate(&new.sign(&issuer.claims("ada")), NOW).await.unwrap();
    let sent: Vec<_> =
        issuer.requests("/keys").iter().map(|request| request.headers["authorization"].clone()).collect();
    assert_eq!(sent, ["Bearer first", "Bearer second"]);
}

/// The API server of Kubernetes serves its keys in this media type only.
#[tokio::test]
async fn keys_are_accepted_in_the_media_type_of_key_sets() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    issuer.validator().validate(&key.sign(&issuer.claims("ada")), NOW).await.unwrap();
    let accept = issuer.requests("/keys")[0].headers["accept"].to_str().unwrap().to_owned();
    assert!(accept.contains("application/jwk-set+json"), "{accept}");
}

#[tokio::test]
async fn a_key_that_is_replaced_under_its_id_is_fetched_again() {
    let (old, new) = (SigningKey::new("a"), SigningKey::new("a"));
    let issuer = Issuer::start(&[&old]).await;
    let validator = issuer.validator();
    let token = old.sign(&issuer.claims("ada"));
    validator.validate(&token, NOW).await.unwrap();
    issuer.rotate(&[&new]);
    // Within the interval nothing is fetched: any client can send a signature that is not valid.
    for number in 0..20 {
        let refused = validator.validate(&new.sign(&issuer.claims(&number.to_string())), NOW).await.unwrap_err();
        assert_eq!(refused.external(), "failed to parse token: token signature is invalid");
    }
    assert_eq!(issuer.requests("/keys").len(), 1);
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    tokio::time::resume();
    validator.validate(&new.sign(&issuer.claims("ada")), NOW).await.unwrap();
    assert_eq!(issuer.requests("/keys").len(), 2);
    validator.validate(&token, NOW).await.unwrap_err();
    assert_eq!(issuer.requests("/keys").len(), 2);
}

#[tokio::test]
async fn an_issuer_s_own_authority_is_trusted_for_discovery_and_keys_and_no_other() {
    let (authority, other) = (Authority::generate().unwrap(), Authority::generate().unwrap());
    let key = SigningKey::new("a");
    let issuer = Issuer::start_over_tls(&[&key], &authority).await;
    let token = key.sign(&issuer.claims("ada"));
    let options = |pem: Option<String>| Options {
        ca_bundle: pem.map(String::into_bytes),
        insecure_http: false,
        ..issuer.options()
    };
    let validator = Validator::new(options(Some(authority.certificate()))).unwrap();
    validator.validate(&token, NOW).await.unwrap();
    assert_eq!(issuer.requests("/.well-known/openid-configuration").len(), 1);
    assert_eq!(issuer.requests("/keys").len(), 1);
    issuer.forget();
    for (untrusted, is_discovered) in
        [(Some(other.certificate()), false), (Some(other.certificate()), true), (None, false)]
    {
        let jwks_url = if is_discovered { String::new() } else { format!("{}/keys", issuer.url) };
        let validator = Validator::new(Options { jwks_url, ..options(untrusted) }).unwrap();
        assert!(validator.validate(&token, NOW).await.unwrap_err().is_of_issuer());
    }
    assert!(issuer.requests("/keys").is_empty() && issuer.requests("/.well-known/openid-configuration").is_empty());
}

#[tokio::test]
async fn a_document_that_is_too_long_is_not_read() {
    let key = SigningKey::new("a");
    let issuer = Issuer::start(&[&key]).await;
    let document = |padding: usize| {
        serde_json::json!({
            "issuer": issuer.url, "jwks_uri": format!("{}/keys", issuer.url), "padding": "x".repeat(padding),
        })
    };
    issuer.say("/.well-known/openid-configuration", 200, document(1024 * 1024));
    let failed = issuer.validator().validate(&key.sign(&issuer.claims("ada")), NOW).await.unwrap_err();
    assert_eq!((failed.external().as_str(), failed.is_of_issuer()), ("OIDC discovery failed", true));
    assert!(issuer.requests("/keys").is_empty());
    issuer.say("/.well-known/openid-configuration", 200, document(1000 * 1024));
    issuer.validator().validate(&key.sign(&issuer.claims("ada")), NOW).await.unwrap();
}
