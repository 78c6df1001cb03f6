//! Headers of 2026-07-28 that repeat arguments, in front of a server on stdio, which never sees them.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};

use crate::client::{BOTH, MODERN, TestClient, modern};
use crate::lines::{How, Speaks, Stage};

/// A client of a tool that says this of its region, if anything.
fn caller(stage: &Stage, tool: &str, region: Option<&str>) -> TestClient {
    let caller = stage.caller().with("mcp-protocol-version", MODERN).with("mcp-method", "tools/call");
    let caller = caller.with("mcp-name", tool);
    region.into_iter().fold(caller, |caller, region| caller.with("mcp-param-region", region))
}

fn call(tool: &str, region: &str) -> String {
    let mut call = modern(json!(1), "tools/call", MODERN);
    call["params"]["name"] = json!(tool);
    call["params"]["arguments"] = json!({ "region": region });
    call.to_string()
}

/// The status of a call, and the code of its error.
async fn called(stage: &Stage, tool: &str, said: Option<&str>, region: &str) -> Result<(StatusCode, Value)> {
    let answer = caller(stage, tool, said).post(call(tool, region)).await?;
    Ok((answer.status, answer.message()?["error"]["code"].clone()))
}

const FINE: (StatusCode, Value) = (StatusCode::OK, Value::Null);

#[tokio::test]
async fn arguments_and_headers_agree_or_nothing_is_forwarded() -> Result<()> {
    let stage = Stage::modern().await?;
    let refused = (StatusCode::BAD_REQUEST, json!(-32020));
    // No client listed the tools before, so the proxy does: all pages, once.
    assert_eq!(called(&stage, "place", Some("us"), "eu").await?, refused);
    let asked = stage.received("tools/list");
    assert_eq!(
        asked.iter().map(|message| message["params"]["cursor"].clone()).collect::<Vec<_>>(),
        [json!(null), json!("more")]
    );
    for message in &asked {
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], MODERN);
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"], "c");
    }
    assert_eq!(called(&stage, "place", None, "eu").await?, refused);
    assert_eq!(called(&stage, "place", Some("=?base64?ZXU?="), "eu").await?, refused);
    assert!(stage.received("tools/call").is_empty());
    assert_eq!(called(&stage, "place", Some("eu"), "eu").await?, FINE);
    assert_eq!(called(&stage, "place", Some("=?base64?ZXU=?="), "eu").await?, FINE);
    assert_eq!(called(&stage, "echo", None, "eu").await?, FINE);
    assert_eq!(called(&stage, "echo", Some("us"), "eu").await?, FINE, "nothing says that a header repeats this one");
    assert_eq!(stage.received("tools/list").len(), 2);
    Ok(())
}

#[tokio::test]
async fn what_clients_ask_for_is_learnt() -> Result<()> {
    let stage = Stage::modern().await?;
    let lister = stage.caller().with("mcp-protocol-version", MODERN).with("mcp-method", "tools/list");
    let mut list = modern(json!(1), "tools/list", MODERN);
    list["params"]["cursor"] = json!("more");
    lister.post(list.to_string()).await?;
    assert_eq!(called(&stage, "place", None, "eu").await?.0, StatusCode::BAD_REQUEST);
    assert_eq!(stage.received("tools/list").len(), 1, "there was no need to ask");
    Ok(())
}

#[tokio::test]
async fn tools_are_asked_for_again_when_they_may_have_changed() -> Result<()> {
    let stage = Stage::modern().await?;
    let listed = |times| stage.until_received("tools/list", times);
    assert_eq!(called(&stage, "place", Some("eu"), "eu").await?, FINE);
    listed(2).await?;
    // The server says so. Listening clients get it after the proxy.
    let subscriber = stage.caller().taking(BOTH).with("mcp-protocol-version", MODERN);
    let subscriber = subscriber.with("mcp-method", "subscriptions/listen");
    let request = modern(json!("mine"), "subscriptions/listen", MODERN).to_string();
    let heard = tokio::spawn(async move { subscriber.events(http::Method::POST, "/mcp", request).await });
    let wire = stage.until_received("subscriptions/listen", 1).await?[0]["id"].clone();
    let meta = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": wire } });
    stage.say(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta })).await?;
    heard.await??.message().await?;
    assert_eq!(called(&stage, "place", Some("eu"), "eu").await?, FINE);
    listed(4).await?;
    // The server is another one.
    stage.kill().await;
    crate::lines::until_started(&stage, 2).await?;
    assert_eq!(called(&stage, "place", Some("us"), "eu").await?.0, StatusCode::BAD_REQUEST);
    listed(6).await?;
    Ok(())
}

#[tokio::test]
async fn a_tool_that_is_new_is_asked_for_if_a_header_claims_to_be_about_it() -> Result<()> {
    let how = How { timeout: std::time::Duration::from_millis(300), ..How::default() };
    let stage = Stage::speaking(Speaks::Modern, how).await?;
    assert_eq!(called(&stage, "place", Some("eu"), "eu").await?, FINE);
    assert_eq!(stage.received("tools/list").len(), 2);
    // This server does not answer a call of what it does not have.
    let answer = caller(&stage, "new", Some("eu")).post(call("new", "eu")).await?;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(stage.received("tools/list").len(), 4);
    Ok(())
}

/// A legacy client need not send such headers; if it does, they are held against the tools as the server lists them in its own era.
#[tokio::test]
async fn a_legacy_server_is_asked_for_its_tools_in_its_own_era() -> Result<()> {
    for speaks in [Speaks::Legacy, Speaks::Both] {
        let stage = Stage::speaking(speaks, How::default()).await?;
        let caller = stage.caller().initialized().await?.with("mcp-param-region", "us");
        let call = |region: &str| json!({ "name": "place", "arguments": { "region": region } });
        let refused = caller.ask(json!(1), "tools/call", call("eu")).await?;
        assert_eq!((refused.status, &refused.message()?["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32020)));
        assert!(stage.received("tools/call").is_empty());
        assert!(caller.ask(json!(1), "tools/call", call("us")).await?.message()?["result"].is_object());
        let asked = stage.received("tools/list");
        assert_eq!(asked.len(), 2, "all pages, once");
        assert!(asked.iter().all(|one| one["params"].get("_meta").is_none()), "{asked:?}");
    }
    Ok(())
}
