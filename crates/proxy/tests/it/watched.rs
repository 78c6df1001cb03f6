//! How a proxy knows whether its server answers, without asking it when it is asked itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, Response};
use serde_json::{Value, json};
use skep_net::Body;
use skep_net::drain::Grace;
use skep_proxy::health::ServerHealth;
use skep_proxy::run::{Place, Ports, Running, start};
use skep_proxy::settings::{Overrides, Settings};
use skep_runconfig::RunConfig;

use crate::client::{PATIENCE, TestClient};
use crate::web::{backend, backend_until, drain};

/// Watches a server, and gives it little time.
async fn watching(server: std::net::SocketAddr, stateless: bool) -> Result<Running> {
    let config = json!({
        "name": "s", "transport": "streamable-http", "host": "127.0.0.1", "port": 0,
        "remote_url": format!("http://{server}"), "stateless": stateless,
    });
    let variables = [
        ("TOOLHIVE_REMOTE_HEALTHCHECKS", "true"),
        ("TOOLHIVE_HEALTH_CHECK_INTERVAL", "20ms"),
        ("TOOLHIVE_HEALTH_CHECK_PING_TIMEOUT", "200ms"),
    ];
    let variables: BTreeMap<String, String> =
        variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let settings =
        Settings::new(RunConfig::from_slice(config.to_string().as_bytes())?, &Overrides::default(), &variables)?;
    let grace = Grace { linger: Duration::ZERO, finish: Duration::ZERO };
    Ok(start(&settings, &variables, Place::Machine(Ports::default()), grace).await?)
}

/// Waits for what is known of the server, and returns the page that says it.
async fn until(running: &Running, what: &str, is_it: impl Fn(&ServerHealth) -> bool) -> Result<Value> {
    let mut changes = running.changes();
    let seen = tokio::time::timeout(PATIENCE, changes.wait_for(|(known, _)| is_it(known))).await;
    drop(seen.with_context(|| format!("never {what}; it is {:?}", running.health()))??);
    let page = TestClient::new(running.address()).whole(Method::GET, "/health", "").await?;
    assert_eq!(page.status, http::StatusCode::OK, "a server that is away is no reason to end its proxy");
    page.message()
}

#[tokio::test]
async fn a_server_that_fails_is_reported_and_the_proxy_stays() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let status = Arc::new(AtomicU16::new(200));
    let reply = status.clone();
    let answer = move |_: &crate::web::Got| {
        Response::builder().status(reply.load(Ordering::SeqCst)).body(Body::empty()).unwrap()
    };
    let stop = drain();
    let server = backend_until(stop.clone(), "127.0.0.1:0".parse()?, Arc::new(answer), Arc::default()).await?;
    let running = watching(server, false).await?;
    let well = |known: &ServerHealth| matches!(known, ServerHealth::Available { milliseconds: Some(_) });
    let page = until(&running, "well", well).await?;
    assert_eq!((&page["status"], &page["mcp"]["available"]), (&json!("healthy"), &json!(true)));
    for bad in [500, 503] {
        status.store(bad, Ordering::SeqCst);
        let says =
            |known: &ServerHealth| matches!(known, ServerHealth::Unavailable(why) if why.contains(&bad.to_string()));
        let page = until(&running, "unwell", says).await?;
        assert_eq!((&page["status"], &page["mcp"]["available"]), (&json!("degraded"), &json!(false)));
        // A server that answers at all is alive.
        for alive in [401, 403, 404, 302] {
            status.store(alive, Ordering::SeqCst);
            until(&running, "well again", well).await?;
            status.store(bad, Ordering::SeqCst);
            until(&running, "unwell again", says).await?;
        }
    }
    stop.start();
    let gone = |known: &ServerHealth| matches!(known, ServerHealth::Unavailable(why) if !why.contains("503"));
    assert!(until(&running, "gone", gone).await?["mcp"]["error"].is_string());
    running.end().await;
    Ok(())
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_reported() -> Result<()> {
    skep_testkit::install_crypto_provider();
    // It takes connections, as the kernel does, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let running = watching(silent.local_addr()?, false).await?;
    let late = |known: &ServerHealth| matches!(known, ServerHealth::Unavailable(why) if why.contains("no answer within 200ms"));
    assert_eq!(until(&running, "late", late).await?["status"], "degraded");
    running.end().await;
    Ok(())
}

#[tokio::test]
async fn a_server_without_sessions_is_pinged_by_post() -> Result<()> {
    skep_testkit::install_crypto_provider();
    for stateless in [false, true] {
        let got: Arc<std::sync::Mutex<Vec<crate::web::Got>>> = Arc::default();
        let answer = Arc::new(|_: &crate::web::Got| Response::new(Body::empty()));
        let running = watching(backend("127.0.0.1:0".parse()?, answer, got.clone()).await?, stateless).await?;
        until(&running, "well", |known| matches!(known, ServerHealth::Available { .. })).await?;
        running.end().await;
        let first = got.lock().unwrap()[0].clone();
        assert_eq!((first.uri.path(), first.method == Method::POST), ("/", stateless));
        let ping = br#"{"jsonrpc":"2.0","id":0,"method":"ping","params":{}}"#;
        assert_eq!(&first.body[..], if stateless { &ping[..] } else { b"" });
    }
    Ok(())
}
