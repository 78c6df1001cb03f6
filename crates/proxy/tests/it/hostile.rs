//! One table of everything that a hostile client, issuer or webhook may try. Whatever it is, it is refused, and the MCP server sees nothing.

mod forge;
mod replies;
mod requests;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use http::Response;
use serde_json::{Value, json};
use skep_net::Body;
use skep_runconfig::RunConfig;
use tokio::task::JoinSet;

use self::forge::{ISSUER, Issuer};
use crate::client::request;
use crate::raw::{Raw, RawResponse, client};
use crate::web::{Got, How, Web, backend};
use crate::webhooks::proxy;

/// How many requests are sent at once.
const AT_ONCE: usize = 32;
/// The id of requests that are accepted.
const VALID: usize = 1_000_000;

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

fn call(id: usize) -> Value {
    request(json!(id), "tools/call", json!({ "name": "delete_all", "arguments": {} }))
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

async fn send(address: SocketAddr, head: String, id: usize) -> Result<RawResponse> {
    Raw::connect(client(1), address).await?.post(&head, &call(id)).await
}

/// Sends a request for each row, all of them at once: some are answered only when the proxy has asked for keys again.
async fn refused(rows: &[Row], at: impl Fn(usize) -> SocketAddr) -> Result<()> {
    let mut sent = JoinSet::new();
    for (index, row) in rows.iter().enumerate() {
        let head = if let Attack::Head(head) = &row.attack { head.clone() } else { String::new() };
        let address = at(index);
        sent.spawn(async move { (index, send(address, head, index).await) });
    }
    while let Some(done) = sent.join_next().await {
        let (index, response) = done?;
        let row = &rows[index];
        let response = response.with_context(|| row.what.clone())?;
        assert_eq!(response.status, row.status, "{}: {response:?}", row.what);
    }
    Ok(())
}

/// The rows whose request a server saw, each by its id.
fn seen<'a>(web: &Web, rows: &'a [Row]) -> Vec<&'a str> {
    let bodies: Vec<Value> =
        web.got().iter().map(|got| serde_json::from_slice(&got.body).unwrap_or_default()).collect();
    let is_seen = |index: usize| bodies.iter().any(|body| body["id"] == index);
    rows.iter().enumerate().filter(|(index, _)| is_seen(*index)).map(|(_, row)| row.what.as_str()).collect()
}

#[tokio::test]
async fn nothing_hostile_reaches_the_server() -> Result<()> {
    let (issuer, attacker) = (Issuer::generate()?, requests::Attacker::start().await?);
    let web = guarded(&issuer).await?;
    // Otherwise, everything would be refused for another reason.
    for valid in requests::accepted(&issuer) {
        assert_eq!(send(web.address, valid.clone(), VALID).await?.status, 200, "{valid}");
    }
    let reached = web.got().len();
    let (heads, webhooks) = (requests::rows(&issuer, &attacker), replies::rows().await?);
    let names: HashSet<&str> = heads.iter().chain(&webhooks).map(|row| row.what.as_str()).collect();
    assert!(names.len() == heads.len() + webhooks.len() && names.len() >= 60, "{} rows", names.len());
    for rows in heads.chunks(AT_ONCE) {
        refused(rows, |_| web.address).await?;
        assert_eq!(seen(&web, rows), [""; 0]);
    }
    assert_eq!(web.got().len(), reached, "the server saw something");
    for rows in webhooks.chunks(AT_ONCE) {
        let mut proxies = Vec::new();
        for row in rows {
            let Attack::Webhook(kind, entry) = &row.attack else { bail!("{} is no webhook", row.what) };
            proxies.push(proxy(json!({ *kind: [entry] })).await?);
        }
        refused(rows, |index| proxies[index].address).await?;
        for (web, row) in proxies.iter().zip(rows) {
            assert!(web.got().is_empty(), "{}: the server saw it", row.what);
        }
    }
    assert!(attacker.is_unheard(), "keys were fetched from where a token said");
    assert_eq!(
        send(web.address, requests::bearer(&issuer.valid()), VALID).await?.status,
        200,
        "the proxy still serves"
    );
    Ok(())
}
