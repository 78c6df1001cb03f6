//! Opaque tokens in front of a server: which of them get in, and what the others are told.

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;

use crate::client::request;
use crate::guarded::guarded_config;
use crate::web::{Answer, Got, How, Web, backend};

/// A proxy whose tokens are introspected. A token is the name of its subject.
async fn introspected(oidc: Value, scope: &'static str) -> Result<(Web, Arc<Mutex<Vec<Got>>>)> {
    let introspected: Arc<Mutex<Vec<Got>>> = Arc::default();
    let answer: Answer = Arc::new(move |got: &Got| {
        let body = String::from_utf8_lossy(&got.body).into_owned();
        let token =
            body.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default().replace("%3A", ":");
        let said = json!({ "active": token != "revoked", "sub": token, "iss": "https://issuer.example", "aud": "mcp", "scope": scope });
        Response::new(Body::full(said.to_string()))
    });
    let issuer = backend("127.0.0.1:0".parse()?, answer, introspected.clone()).await?;
    let config = guarded_config(json!({})).await?;
    let mut config: Value = serde_json::from_str(&config.to_json_compact())?;
    config["oidc_config"]["IntrospectionURL"] = json!(format!("http://{issuer}/introspect"));
    for (name, value) in oidc.as_object().context("an object")? {
        config["oidc_config"][name] = value.clone();
    }
    let config = skep_runconfig::RunConfig::from_slice(config.to_string().as_bytes())?;
    let web = Web::with(How { config, ..How::default() }, |got: &Got| {
        let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
        let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} }).to_string();
        Response::builder().header("content-type", "application/json").body(Body::full(body)).unwrap()
    });
    Ok((Box::pin(web).await?, introspected))
}

fn ping() -> String {
    request(json!(1), "ping", json!({})).to_string()
}

#[tokio::test]
async fn only_accounts_of_the_namespace_of_the_configuration_get_in() -> Result<()> {
    let (web, _) = introspected(json!({ "RequiredNamespace": "clients" }), "").await?;
    for (account, is_let_in) in [
        ("system:serviceaccount:clients:agent", true),
        ("system:serviceaccount:clients:default", true),
        ("system:serviceaccount:other:agent", false),
        ("system:serviceaccount:clients2:agent", false),
        ("ada", false),
    ] {
        let answer = web.caller().with("authorization", &format!("Bearer {account}")).post(ping()).await?;
        if is_let_in {
            assert_eq!(answer.status, StatusCode::OK, "{account}");
        } else {
            let expected = json!({ "error": "invalid_token", "error_description": "Invalid token: invalid subject" });
            assert_eq!((answer.status, answer.message()?), (StatusCode::UNAUTHORIZED, expected), "{account}");
        }
    }
    assert_eq!(web.got().len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_token_without_a_scope_is_told_which_ones_to_request() -> Result<()> {
    let (web, _) = introspected(json!({ "Scopes": ["openid", "mcp:call"] }), "mcp:read").await?;
    let answer = web.caller().with("authorization", "Bearer ada").post(ping()).await?;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let expected = r#"Bearer realm="https://issuer.example", resource_metadata="https://tools.example/.well-known/oauth-protected-resource/mcp", scope="openid mcp:call", error="insufficient_scope", error_description="the token lacks scope `mcp:call`""#;
    assert_eq!(answer.headers["www-authenticate"], expected);
    let expected = json!({ "error": "insufficient_scope", "error_description": "the token lacks scope `mcp:call`" });
    assert_eq!(answer.message()?, expected);
    assert!(web.got().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_token_is_introspected_once_and_a_refused_one_as_well() -> Result<()> {
    let (web, introspected) = introspected(json!({}), "").await?;
    for (token, status) in [("ada", StatusCode::OK), ("revoked", StatusCode::UNAUTHORIZED)] {
        introspected.lock().unwrap().clear();
        for _ in 0..3 {
            let answer = web.caller().with("authorization", &format!("Bearer {token}")).post(ping()).await?;
            assert_eq!(answer.status, status, "{token}");
        }
        assert_eq!(introspected.lock().unwrap().len(), 1, "{token}");
    }
    Ok(())
}

/// Any client can invent tokens, and each costs the issuer an introspection.
#[tokio::test]
async fn while_the_issuer_has_enough_to_do_clients_are_asked_to_come_back() -> Result<()> {
    let senders: Arc<Mutex<Vec<skep_net::BodySender>>> = Arc::default();
    let (kept, waiting): (_, Arc<Mutex<Vec<Got>>>) = (senders.clone(), Arc::default());
    let silent: Answer = Arc::new(move |_: &Got| {
        let (sender, body) = Body::channel(1);
        kept.lock().unwrap().push(sender);
        Response::new(body)
    });
    let issuer = backend("127.0.0.1:0".parse()?, silent, waiting.clone()).await?;
    let (web, _) = introspected(json!({ "IntrospectionURL": format!("http://{issuer}/introspect") }), "").await?;
    let invented = (0..64).map(|number| {
        let client = web.caller().with("authorization", &format!("Bearer invented{number}"));
        tokio::spawn(async move { client.post(ping()).await.map(drop) })
    });
    let invented: Vec<_> = invented.collect();
    skep_testkit::eventually("introspections", crate::client::PATIENCE, || async {
        let running = waiting.lock().unwrap().len();
        Ok(if running >= 64 { skep_testkit::Seen::Yes(()) } else { skep_testkit::Seen::NotYet(running.to_string()) })
    })
    .await?;
    let busy = web.caller().with("authorization", "Bearer ada").post(ping()).await?;
    assert_eq!(busy.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        (&busy.headers["retry-after"], busy.headers.get("www-authenticate")),
        (&http::HeaderValue::from_static("1"), None)
    );
    for one in invented {
        one.abort();
    }
    assert!(web.got().is_empty());
    Ok(())
}
