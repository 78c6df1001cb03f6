//! What a client claims beside its message (headers that repeat the body, headers about its address), and where a remote URL leads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use skep_net::drain::Grace;
use skep_proxy::downstream::ForwardOptions;
use skep_proxy::run::{Place, Ports, start};
use skep_proxy::settings::{Overrides, Settings};
use skep_runconfig::RunConfig;

use crate::client::{Answer, TestClient, request};
use crate::forward::{answer, result};
use crate::lines::{How as Lines, Stage};
use crate::web::{Got, How, Web, backend};

/// Headers of a call of the tool `echo` that contradict it.
const CONTRADICTIONS: [(&str, &str); 3] =
    [("mcp-name", "other"), ("mcp-method", "tools/list"), ("mcp-name", "=?base64?broken")];

fn call() -> Value {
    request(json!(4), "tools/call", json!({ "name": "echo", "arguments": { "a": 1 } }))
}

fn is_refused(answer: &Answer) -> Result<()> {
    let code = answer.message()?["error"]["code"].clone();
    assert_eq!((answer.status, code), (StatusCode::BAD_REQUEST, json!(-32020)), "{answer:?}");
    Ok(())
}

/// Item 17-14: a gateway that authorizes by `Mcp-Name` must not be misled by a legacy client.
#[tokio::test]
async fn legacy_requests_that_contradict_their_headers_never_reach_a_stdio_server() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    for (name, value) in CONTRADICTIONS {
        is_refused(&caller.clone().with(name, value).post(call().to_string()).await?)?;
    }
    is_refused(&caller.clone().with("mcp-method", "tools/call").tell("notifications/x", json!({})).await?)?;
    assert!(stage.received("tools/call").is_empty() && stage.received("notifications/x").is_empty());
    let agreeing = caller.with("mcp-method", "tools/call").with("mcp-name", "echo");
    assert_eq!(agreeing.post(call().to_string()).await?.status, StatusCode::OK);
    Ok(())
}

/// Item 17-14: the same for headers that repeat arguments. A legacy client need not send them.
#[tokio::test]
async fn legacy_calls_that_contradict_their_argument_headers_never_reach_a_stdio_server() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    let call = request(json!(4), "tools/call", json!({ "name": "place", "arguments": { "region": "eu" } })).to_string();
    is_refused(&caller.clone().with("mcp-param-region", "us").post(call.clone()).await?)?;
    assert!(stage.received("tools/call").is_empty());
    for agreeing in [caller.clone(), caller.with("mcp-param-region", "eu")] {
        assert_eq!(agreeing.post(call.clone()).await?.status, StatusCode::OK);
    }
    Ok(())
}

/// Item 17-14, over SSE.
#[tokio::test]
async fn requests_over_sse_that_contradict_their_headers_never_reach_a_stdio_server() -> Result<()> {
    let stage = Stage::with(Lines { sse: true, ..Lines::default() }).await?;
    let caller = stage.caller();
    let (_events, path) = crate::sse::open(&caller).await?;
    for (name, value) in CONTRADICTIONS {
        is_refused(&caller.clone().with(name, value).whole(Method::POST, &path, call().to_string()).await?)?;
    }
    assert!(stage.received("tools/call").is_empty());
    Ok(())
}

/// Item 17-14, in front of a server that speaks HTTP.
#[tokio::test]
async fn legacy_requests_that_contradict_their_headers_never_reach_an_http_server() -> Result<()> {
    let web = Web::new(|got| answer(200, &[], result(got, json!({})))).await?;
    for (name, value) in CONTRADICTIONS {
        is_refused(&web.caller().with(name, value).post(call().to_string()).await?)?;
    }
    is_refused(&web.caller().with("mcp-method", "tools/call").tell("notifications/x", json!({})).await?)?;
    assert!(web.got().is_empty());
    let agreeing = web.caller().with("mcp-method", "tools/call").with("mcp-name", "echo");
    assert_eq!(agreeing.post(call().to_string()).await?.status, StatusCode::OK);
    Ok(())
}

/// Item 17-14: a server that logs or decides by `X-Real-IP` gets it from a trusted proxy, or not at all.
#[tokio::test]
async fn x_real_ip_of_a_client_is_not_forwarded_unless_proxies_are_trusted() -> Result<()> {
    for trust_proxy_headers in [false, true] {
        let how =
            How { options: ForwardOptions { trust_proxy_headers, ..ForwardOptions::default() }, ..How::default() };
        let web = Web::with(how, |got| answer(200, &[], result(got, json!({})))).await?;
        let caller = web.caller().with("x-real-ip", "6.6.6.6").with("true-client-ip", "6.6.6.6");
        assert_eq!(caller.post(call().to_string()).await?.status, StatusCode::OK);
        let seen = &web.got()[0].headers;
        assert_eq!(
            (seen.contains_key("x-real-ip"), seen.contains_key("true-client-ip")),
            (trust_proxy_headers, trust_proxy_headers)
        );
        assert_eq!(seen["x-forwarded-for"], "127.0.0.1");
    }
    Ok(())
}

/// Item 17-12: from a pod, the pod's own addresses are not dialled, and metadata services are dialled from nowhere.
#[tokio::test]
async fn a_remote_url_that_leads_to_a_refused_address_is_a_bad_gateway() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let got: Arc<Mutex<Vec<Got>>> = Arc::default();
    let server =
        backend("127.0.0.1:0".parse()?, Arc::new(|got| answer(200, &[], result(got, json!({})))), got.clone()).await?;
    let machine = || Place::Machine(Ports::default());
    let port = server.port();
    for (place, url, expected) in [
        (machine(), format!("http://127.0.0.1:{port}"), StatusCode::OK),
        (machine(), format!("http://localhost:{port}"), StatusCode::OK),
        (machine(), format!("http://0.0.0.0:{port}"), StatusCode::BAD_GATEWAY),
        (machine(), "http://169.254.169.254".to_owned(), StatusCode::BAD_GATEWAY),
        (Place::Pod { namespace: None }, format!("http://127.0.0.1:{port}"), StatusCode::BAD_GATEWAY),
        (Place::Pod { namespace: None }, format!("http://localhost:{port}"), StatusCode::BAD_GATEWAY),
        (Place::Pod { namespace: None }, format!("http://[::ffff:127.0.0.1]:{port}"), StatusCode::BAD_GATEWAY),
        (Place::Pod { namespace: None }, "http://metadata".to_owned(), StatusCode::BAD_GATEWAY),
    ] {
        got.lock().unwrap().clear();
        let config = json!({
            "name": "s", "transport": "streamable-http", "host": "127.0.0.1", "port": 0, "remote_url": url,
            "allow_private_endpoint": true,
        });
        let config = RunConfig::from_slice(config.to_string().as_bytes())?;
        let settings = Settings::new(config, &Overrides::default(), &BTreeMap::new())?;
        let grace = Grace { linger: Duration::ZERO, finish: Duration::ZERO };
        let running = start(&settings, &BTreeMap::new(), place, grace).await?;
        let answered = TestClient::new(running.address()).post(call().to_string()).await?;
        assert_eq!(answered.status, expected, "{url}");
        assert_eq!(got.lock().unwrap().len(), usize::from(expected == StatusCode::OK), "{url}");
        running.end().await;
    }
    Ok(())
}
