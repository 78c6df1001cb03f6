//! One table of everything that a hostile client, issuer or webhook may try. Whatever it is, it is refused, and the MCP server sees nothing.

mod forge;
mod replies;
mod requests;

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::Response;
use serde_json::{Value, json};
use skep_net::Body;
use skep_runconfig::RunConfig;

use self::forge::{ISSUER, Issuer};
use crate::client::request;
use crate::raw::{Raw, RawResponse, client};
use crate::web::{Got, How, Web, backend};
use crate::webhooks::proxy;

/// A row: what is tried, and with which status it is refused.
struct Row {
    what: String,
    attack: Attack,
    status: u16,
}

/// What is tried.
enum Attack {
    /// Lines of the head of a request.
    Head(String),
    /// A member of the RunConfig: a webhook that replies with what no webhook may.
    Webhook(&'static str, Value),
}

fn call() -> Value {
    request(json!(1), "tools/call", json!({ "name": "delete_all", "arguments": {} }))
}

fn result(got: &Got) -> Response<Body> {
    let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} }).to_string();
    Response::builder().header("content-type", "application/json").body(Body::full(body)).unwrap()
}

/// A proxy that lets in tokens of an issuer whose keys are on loopback.
async fn guarded(issuer: &Issuer) -> Result<Web> {
    let keys = issuer.published().to_string();
    let keys = backend(
        "127.0.0.1:0".parse()?,
        Arc::new(move |_: &Got| Response::new(Body::full(keys.clone()))),
        Arc::default(),
    )
    .await?;
    let config = json!({
        "name": "srv",
        "oidc_config": { "Issuer": ISSUER, "Audience": "mcp", "JWKSURL": format!("http://{keys}/keys"), "AllowPrivateIP": true, "InsecureAllowHTTP": true },
    });
    let config = RunConfig::from_slice(config.to_string().as_bytes())?;
    Box::pin(Web::with(How { config, ..How::default() }, result)).await
}

async fn send(web: &Web, head: &str) -> Result<RawResponse> {
    Raw::connect(client(1), web.address).await?.post(head, &call()).await
}

#[tokio::test]
async fn nothing_hostile_reaches_the_server() -> Result<()> {
    let (issuer, attacker) = (Issuer::generate()?, requests::Attacker::start().await?);
    let web = guarded(&issuer).await?;
    let valid = requests::bearer(&issuer.valid());
    // Otherwise, everything would be refused for another reason.
    for valid in requests::accepted(&issuer) {
        assert_eq!(send(&web, &valid).await?.status, 200, "{valid}");
    }
    let reached = web.got().len();
    let mut rows = requests::rows(&issuer, &attacker);
    rows.extend(replies::rows().await?);
    let names: HashSet<&str> = rows.iter().map(|row| row.what.as_str()).collect();
    assert!(names.len() == rows.len() && rows.len() >= 60, "{} rows", rows.len());
    for row in &rows {
        match &row.attack {
            Attack::Head(lines) => {
                let response = send(&web, lines).await.with_context(|| row.what.clone())?;
                assert_eq!(response.status, row.status, "{}: {response:?}", row.what);
                assert_eq!(web.got().len(), reached, "{}: the server saw it", row.what);
            }
            Attack::Webhook(kind, entry) => {
                let hooked = proxy(json!({ *kind: [entry] })).await?;
                let response = send(&hooked, "").await.with_context(|| row.what.clone())?;
                assert_eq!(response.status, row.status, "{}: {response:?}", row.what);
                assert!(hooked.got().is_empty(), "{}: the server saw it", row.what);
            }
        }
    }
    assert!(attacker.is_unheard(), "keys were fetched from where a token said");
    assert_eq!(send(&web, &valid).await?.status, 200, "and the proxy still serves");
    Ok(())
}
