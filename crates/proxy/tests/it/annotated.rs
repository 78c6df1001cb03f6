//! Policies about what tools say about themselves: a list and a call never disagree, whichever comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;

use crate::authorized::web;
use crate::client::{BOTH, MODERN, TestClient, modern};
use crate::guarded::{as_user, guarded_config, policies};
use crate::lines::{How as Lines, Stage};
use crate::web::{Got, How, Web};

/// Everything is allowed that is not said to destroy.
const HARMLESS: &[&str] = &[
    "permit(principal, action, resource);",
    r#"forbid(principal, action == Action::"call_tool", resource) when { resource has destructiveHint && resource.destructiveHint };"#,
];
/// Only what is said to change nothing is allowed.
const READ_ONLY: &[&str] =
    &["permit(principal, action, resource) when { resource has readOnlyHint && resource.readOnlyHint };"];

fn message(got: &Got) -> Value {
    serde_json::from_slice(&got.body).unwrap_or_default()
}

/// A server that lists its tools on two pages.
fn paged(got: &Got) -> Response<Body> {
    let message = message(got);
    let tool = |name: &str, hint: &str| json!({ "name": name, "annotations": { hint: true } });
    let result = match (message["method"].as_str(), message["params"]["cursor"].as_str()) {
        (Some("tools/list"), None) => json!({ "tools": [tool("look", "readOnlyHint")], "nextCursor": "2" }),
        (Some("tools/list"), Some(_)) => json!({ "tools": [tool("delete", "destructiveHint"), { "name": "plain" }] }),
        _ => json!({ "content": [] }),
    };
    let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    // As servers do that answer with a stream whenever a client takes one.
    let takes_events = got.headers["accept"].to_str().is_ok_and(|accept| accept.contains("text/event-stream"));
    let (kind, body) = if takes_events && message["method"] == "tools/list" {
        ("text/event-stream", format!(": hello\n\nid: 1\ndata: \n\ndata: {body}\n\n"))
    } else {
        ("application/json", body)
    };
    Response::builder().header("content-type", kind).body(Body::full(body)).unwrap()
}

async fn called(client: &TestClient, tool: &str) -> Result<StatusCode> {
    Ok(client.ask(json!(1), "tools/call", json!({ "name": tool, "arguments": {} })).await?.status)
}

fn methods(web: &Web) -> Vec<String> {
    web.got().iter().map(|got| message(got)["method"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn a_call_before_any_list_is_decided_about_like_one_after_it() -> Result<()> {
    for (rules, allowed) in [(HARMLESS, &["look", "plain"][..]), (READ_ONLY, &["look"])] {
        for is_listed_before in [false, true] {
            for tool in ["look", "delete", "plain"] {
                let web = web(rules, paged).await?;
                let client = as_user(&web, "ada");
                if is_listed_before {
                    for cursor in [json!({}), json!({ "cursor": "2" })] {
                        client.ask(json!(1), "tools/list", cursor).await?;
                    }
                }
                let expected = if allowed.contains(&tool) { StatusCode::OK } else { StatusCode::FORBIDDEN };
                assert_eq!(called(&client, tool).await?, expected, "{rules:?} {is_listed_before} {tool}");
                let calls = methods(&web).iter().filter(|method| *method == "tools/call").count();
                assert_eq!(
                    calls,
                    usize::from(expected == StatusCode::OK),
                    "a call that is denied never reaches the server"
                );
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn tools_are_listed_once_in_the_name_of_the_client_and_no_client_sees_it() -> Result<()> {
    let web = web(HARMLESS, paged).await?;
    let client = as_user(&web, "ada").with("x-of-the-client", "1");
    for tool in ["look", "plain", "look", "delete"] {
        called(&client, tool).await?;
    }
    assert_eq!(methods(&web), ["tools/list", "tools/list", "tools/call", "tools/call", "tools/call"]);
    let got = web.got();
    assert!(got.iter().all(|got| got.headers["x-of-the-client"] == "1" && !got.headers.contains_key("authorization")));
    Ok(())
}

#[tokio::test]
async fn a_tool_that_is_in_no_list_is_denied_and_costs_one_list_in_seconds() -> Result<()> {
    let web = web(HARMLESS, paged).await?;
    let client = as_user(&web, "ada");
    for number in 0..5 {
        assert_eq!(called(&client, &format!("invented{number}")).await?, StatusCode::FORBIDDEN);
    }
    assert_eq!(methods(&web), ["tools/list", "tools/list"]);
    Ok(())
}

#[tokio::test]
async fn where_the_tools_cannot_be_listed_calls_are_denied() -> Result<()> {
    for (status, kind, body) in [
        (500, "application/json", "{}"),
        (200, "application/json", r#"{"jsonrpc":"2.0","id":"another","result":{"tools":[{"name":"look"}]}}"#),
        (200, "application/json", r#"[{"name":"look"}]"#),
        (200, "text/event-stream", "data: {}\n\n"),
        (200, "text/html", "<p>no</p>"),
    ] {
        let web = web(HARMLESS, move |_: &Got| {
            Response::builder().status(status).header("content-type", kind).body(Body::full(body)).unwrap()
        })
        .await?;
        assert_eq!(called(&as_user(&web, "ada"), "look").await?, StatusCode::FORBIDDEN, "{status} {body}");
        assert_eq!(methods(&web), ["tools/list"]);
    }
    // One that has no end.
    let pages = Arc::new(AtomicUsize::new(0));
    let count = pages.clone();
    let endless = web(HARMLESS, move |got: &Got| {
        count.fetch_add(1, Ordering::Relaxed);
        let result = json!({ "tools": [{ "name": "look" }], "nextCursor": "again" });
        let body = json!({ "jsonrpc": "2.0", "id": message(got)["id"], "result": result }).to_string();
        Response::builder().header("content-type", "application/json").body(Body::full(body)).unwrap()
    })
    .await?;
    assert_eq!(called(&as_user(&endless, "ada"), "look").await?, StatusCode::FORBIDDEN);
    assert_eq!(pages.load(Ordering::Relaxed), 100);
    Ok(())
}

/// The list would come on the client's stream. After the client's own list, the tools are known.
#[tokio::test]
async fn over_the_legacy_transport_a_call_before_a_list_is_denied() -> Result<()> {
    let config = guarded_config(policies(HARMLESS)).await?;
    let web = Box::pin(Web::with(How { config, sse: true, ..How::default() }, |got: &Got| {
        if got.uri.path() != "/sse" {
            return Response::builder().status(202).body(Body::full("Accepted")).unwrap();
        }
        let list = json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [{ "name": "look" }] } });
        let body = format!("event: endpoint\ndata: /messages?sessionId=abc\n\ndata: {list}\n\n");
        Response::builder().header("content-type", "text/event-stream").body(Body::full(body)).unwrap()
    }))
    .await?;
    let client = as_user(&web, "ada");
    let call = crate::client::request(json!(2), "tools/call", json!({ "name": "look" })).to_string();
    let path = "/messages?sessionId=abc";
    assert_eq!(client.whole(http::Method::POST, path, call.clone()).await?.status, StatusCode::FORBIDDEN);
    assert!(web.got().is_empty());
    let mut events = client.events(http::Method::GET, "/sse", "").await?;
    while events.next().await?.is_some() {}
    let now = client.whole(http::Method::POST, path, call).await?;
    assert_ne!(now.status, StatusCode::FORBIDDEN, "{}", now.text());
    Ok(())
}

#[tokio::test]
async fn without_a_policy_about_hints_nothing_is_listed() -> Result<()> {
    let web = web(&["permit(principal, action, resource);"], paged).await?;
    assert_eq!(called(&as_user(&web, "ada"), "delete").await?, StatusCode::OK);
    assert_eq!(methods(&web), ["tools/call"]);
    Ok(())
}

/// In both eras, and over both endpoints of clients.
#[tokio::test]
async fn tools_of_a_stdio_server_are_listed_before_a_call_as_well() -> Result<()> {
    let rules = &[
        "permit(principal, action, resource); forbid(principal, action, resource) when { resource has readOnlyHint };",
    ];
    for sse in [false, true] {
        let config = guarded_config(policies(rules)).await?;
        let stage = Box::pin(Stage::with(Lines { config, sse, ..Lines::default() })).await?;
        let client = stage.caller().with("authorization", &format!("Bearer {}", crate::guarded::token("ada")));
        let call = |name: &str| {
            crate::client::request(json!(4), "tools/call", json!({ "name": name, "arguments": {} })).to_string()
        };
        let (known, invented) = if sse {
            let (_events, path) = crate::sse::open(&client).await?;
            let known = client.whole(http::Method::POST, &path, call("echo")).await?;
            (known, client.whole(http::Method::POST, &path, call("invented")).await?)
        } else {
            let client = client.initialized().await?;
            (client.post(call("echo")).await?, client.post(call("invented")).await?)
        };
        assert!(known.status.is_success(), "{sse} {}", known.text());
        assert_eq!(invented.status, StatusCode::FORBIDDEN, "{sse} {}", invented.text());
        assert_eq!(stage.until_received("tools/call", 1).await?.len(), 1);
        assert!(!stage.received("tools/list").is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn a_list_for_a_call_of_the_modern_era_is_of_that_era() -> Result<()> {
    let web = web(HARMLESS, paged).await?;
    let client = as_user(&web, "ada").taking(BOTH).with("mcp-protocol-version", MODERN);
    let client = client.with("mcp-method", "tools/call").with("mcp-name", "look").with("mcp-param-a", "1");
    let mut call = modern(json!(1), "tools/call", MODERN);
    call["params"]["name"] = json!("look");
    assert_eq!(client.post(call.to_string()).await?.status, StatusCode::OK);
    let got = web.got();
    let list = message(&got[0]);
    assert_eq!(list["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], MODERN);
    assert_eq!(
        (&got[0].headers["mcp-method"], got[0].headers.contains_key("mcp-name")),
        (&http::HeaderValue::from_static("tools/list"), false)
    );
    assert!(!got[0].headers.contains_key("mcp-param-a"));
    Ok(())
}
