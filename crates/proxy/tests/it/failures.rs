//! Failures that are known are reported to clients at once, with their reason.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use skep_net::drain::Grace;
use skep_proxy::run::{Place, Ports, Running, start};
use skep_proxy::settings::{Overrides, Settings};
use skep_runconfig::RunConfig;
use skep_testkit::{Seen, eventually};

use crate::client::{Answer, BOTH, PATIENCE, TestClient, initialize_request};

/// How long a client may wait for what is known. A call may take 60 s.
const AT_ONCE: Duration = Duration::from_secs(8);

async fn proxy(image: &str, config: Value) -> Result<Running> {
    let mut whole = json!({ "name": "s", "host": "127.0.0.1", "port": 0 });
    whole.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    let overrides = Overrides { image: image.to_owned(), patch: None };
    let settings = Settings::new(RunConfig::from_slice(whole.to_string().as_bytes())?, &overrides, &BTreeMap::new())?;
    let grace = Grace { linger: Duration::ZERO, finish: Duration::from_secs(1) };
    Ok(start(&settings, &BTreeMap::new(), Place::Machine(Ports::default()), grace).await?)
}

/// The answer to a request, which must come at once.
async fn answered(running: &Running, accept: &'static str, method: &str) -> Result<Answer> {
    let caller = TestClient::new(running.address()).taking(accept);
    tokio::time::timeout(AT_ONCE, caller.ask(json!("mine"), method, initialize_request())).await?
}

fn reason(answer: &Answer) -> Result<String> {
    let reply = answer.message()?;
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!("mine"), &json!(-32603)), "{reply}");
    Ok(reply["error"]["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_call_to_a_program_that_is_missing_fails_at_once_with_the_reason() -> Result<()> {
    skep_testkit::install_crypto_provider();
    for mode in ["streamable-http", "sse"] {
        let running = proxy("exec://no-such-program-here", json!({ "transport": "stdio", "proxy_mode": mode })).await?;
        if mode == "sse" {
            let caller = TestClient::new(running.address());
            let mut events = caller.events(http::Method::GET, "/sse", "").await?;
            let endpoint = events.next().await?.unwrap().1;
            let path = format!("/messages{}", endpoint.rsplit_once("/messages").unwrap().1);
            let ping = crate::client::request(json!("mine"), "ping", json!({}));
            caller.whole(http::Method::POST, &path, ping.to_string()).await?;
            let reply = tokio::time::timeout(AT_ONCE, events.message()).await??;
            assert!(reply["error"]["message"].as_str().unwrap().contains("no-such-program-here"), "{reply}");
            running.end().await;
            continue;
        }
        for (accept, status) in [("application/json", StatusCode::BAD_GATEWAY), (BOTH, StatusCode::OK)] {
            for method in ["initialize", "tools/call"] {
                let answer = answered(&running, accept, method).await?;
                assert_eq!(answer.status, status, "{accept} {method}");
                let reason = reason(&answer)?;
                assert!(reason.contains("cannot start `no-such-program-here`") && reason.contains("PATH"), "{reason}");
            }
        }
        running.end().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_call_to_a_server_that_ends_before_it_answers_initialize_fails_with_the_reason_and_not_its_words()
-> Result<()> {
    skep_testkit::install_crypto_provider();
    let args = json!({ "transport": "stdio", "cmd_args": ["-c", "echo password=hunter2 >&2; exit 3"] });
    let running = proxy("exec://sh", args).await?;
    let answer = answered(&running, "application/json", "tools/call").await?;
    assert_eq!(reason(&answer)?, "the server is not available: the server ended: exit status: 3");
    running.end().await;
    Ok(())
}

#[tokio::test]
async fn a_server_that_speaks_http_and_is_known_to_have_failed_is_a_502_with_the_reason() -> Result<()> {
    skep_testkit::install_crypto_provider();
    for (image, args, wanted) in [
        ("exec://no-such-program-here", json!([]), "cannot start `no-such-program-here`"),
        ("exec://sh", json!(["-c", "echo hunter2 >&2; exit 3"]), "the server ended: exit status: 3"),
    ] {
        let running =
            proxy(image, json!({ "transport": "streamable-http", "target_port": 8080, "cmd_args": args })).await?;
        let answer = eventually("the failure is known", PATIENCE, || async {
            let answer = answered(&running, BOTH, "tools/call").await?;
            assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
            let is_known = reason(&answer)?.contains(wanted);
            Ok(if is_known { Seen::Yes(answer) } else { Seen::NotYet(answer.text().to_owned()) })
        })
        .await?;
        assert!(!answer.text().contains("hunter2"));
        assert_eq!(answer.headers["content-type"], "application/json");
        running.end().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_remote_server_that_cannot_be_reached_is_a_502_with_the_reason_and_no_address() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let unknown = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let remote = |url: String| json!({ "transport": "streamable-http", "remote_url": url });
    for (url, wanted) in [
        (format!("http://{unknown}/mcp"), "the server cannot be reached: connection refused"),
        ("http://no-such-host.invalid/mcp".to_owned(), "the server cannot be reached: its name cannot be resolved"),
    ] {
        let running = proxy("", remote(url)).await?;
        let answer = answered(&running, BOTH, "initialize").await?;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
        assert_eq!(reason(&answer)?, wanted);
        // What is no request has an error without an id.
        let stream = TestClient::new(running.address()).taking(BOTH).whole(http::Method::GET, "/mcp", "").await?;
        assert_eq!((stream.status, stream.message()?["id"].is_null()), (StatusCode::BAD_GATEWAY, true));
        assert_eq!(stream.message()?["error"]["message"], wanted);
        running.end().await;
    }
    Ok(())
}
