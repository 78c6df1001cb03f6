//! Clients and servers of either era, with the proxy between them: over stdio, and over streamable HTTP. Each client works in its own era.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;
use skep_runconfig::RunConfig;

use crate::client::{BOTH, MODERN, TestClient, modern, request};
use crate::forward::answer;
use crate::lines::{How as StdioHow, Speaks, Stage};
use crate::web::{Got, How, Web};

/// What a server that speaks HTTP serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serves {
    Legacy,
    Modern,
    /// Both; like the SDKs, it lists only the modern one.
    Both,
}

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A server that speaks HTTP.
fn server(serves: Serves) -> impl Fn(&Got) -> Response<Body> + Send + Sync + 'static {
    let opened: Arc<Mutex<usize>> = Arc::default();
    move |got| {
        let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
        let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
        let version = got.headers.get("mcp-protocol-version").map(|version| version.to_str().unwrap());
        let is_modern = version == Some(MODERN);
        let refuse = |code: i64, id: Value| {
            let data = json!({ "supported": [MODERN], "requested": "x" });
            answer(
                400,
                &[],
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": "no", "data": data } })
                    .to_string(),
            )
        };
        if is_modern && serves == Serves::Legacy {
            return refuse(-32000, json!(null));
        }
        if !is_modern && serves == Serves::Modern {
            return refuse(-32022, id.clone());
        }
        let result = |mut result: Value| {
            if is_modern {
                result["resultType"] = json!("complete");
            }
            result["token"] = json!(got.headers.get("authorization").map(|token| token.to_str().unwrap()));
            json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
        };
        let named = got.headers.get("mcp-session-id").is_some();
        match method {
            "initialize" => {
                let mut opened = opened.lock().unwrap();
                *opened += 1;
                let body = result(
                    json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": { "listChanged": true } },
                    "serverInfo": { "name": "s", "version": "1" } }),
                );
                answer(200, &[("mcp-session-id", &format!("theirs-{opened}"))], body)
            }
            "server/discover" => answer(
                200,
                &[],
                result(json!({ "supportedVersions": [MODERN], "capabilities": { "tools": { "listChanged": true } } })),
            ),
            "subscriptions/listen" => {
                let note = json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                    "params": { "_meta": { SUBSCRIPTION: id }, "notifications": message["params"]["notifications"] } });
                let news = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": { "_meta": { SUBSCRIPTION: id } } });
                stream(format!("data: {note}\n\ndata: {news}\n\n"))
            }
            _ if got.method == Method::GET => {
                let news = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
                stream(format!("data: {news}\n\n"))
            }
            _ if id.is_null() => answer(202, &[], ""),
            _ if !is_modern && !named => refuse(-32000, json!(null)),
            "no/such" => answer(
                404,
                &[],
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no" } }).to_string(),
            ),
            "tools/list" => answer(200, &[], result(json!({ "tools": [{ "name": "echo" }, { "name": "hidden" }] }))),
            _ => answer(200, &[], result(json!({ "content": [], "echo": message["params"]["arguments"] }))),
        }
    }
}

fn stream(events: String) -> Response<Body> {
    Response::builder().header("content-type", "text/event-stream").body(Body::full(events)).unwrap()
}

fn bridged() -> How {
    How { bridged: true, ..How::default() }
}

/// A modern request with its headers.
async fn ask_modern(caller: TestClient, method: &str) -> Result<(StatusCode, Value)> {
    let caller = caller.taking(BOTH).with("mcp-protocol-version", MODERN).with("mcp-method", method);
    let caller = if method == "tools/call" { caller.with("mcp-name", "echo") } else { caller };
    let answer = caller.post(modern(json!("mine"), method, MODERN).to_string()).await?;
    Ok((answer.status, answer.message()?))
}

/// What a modern client does, whichever server it meets.
async fn modern_client(caller: impl Fn() -> TestClient) -> Result<()> {
    let (status, found) = ask_modern(caller(), "server/discover").await?;
    assert_eq!((status, &found["result"]["supportedVersions"][0]), (StatusCode::OK, &json!(MODERN)), "{found}");
    let (_, response) = ask_modern(caller(), "tools/call").await?;
    assert_eq!(response["id"], "mine", "{response}");
    // A server that leaves it out means the same.
    let kind = &response["result"]["resultType"];
    assert!(response["result"]["content"].is_array() && (kind == "complete" || kind.is_null()), "{response}");
    assert_eq!(ask_modern(caller(), "tools/list").await?.1["result"]["tools"][0]["name"], "echo");
    Ok(())
}

/// What a legacy client does, whichever server it meets.
async fn legacy_client(caller: impl Fn() -> TestClient) -> Result<TestClient> {
    let caller = caller().taking(BOTH).initialized().await?;
    assert!(caller.session.is_some());
    let response = caller.call(json!(2), "echo", json!({ "n": 1 })).await?;
    assert_eq!((&response["id"], response["result"].get("resultType")), (&json!(2), None), "{response}");
    let listed = caller.ask(json!(3), "tools/list", json!({})).await?.message()?;
    assert_eq!(listed["result"]["tools"][0]["name"], "echo");
    Ok(caller)
}

#[tokio::test]
async fn each_client_works_in_its_own_era_with_any_server_on_stdio() -> Result<()> {
    for speaks in [Speaks::Legacy, Speaks::Modern, Speaks::Both] {
        let stage = Stage::speaking(speaks, StdioHow::default()).await?;
        for _ in 0..2 {
            modern_client(|| stage.caller()).await?;
            legacy_client(|| stage.caller()).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn each_client_works_in_its_own_era_with_any_server_that_speaks_http() -> Result<()> {
    for serves in [Serves::Legacy, Serves::Modern, Serves::Both] {
        for is_modern_first in [true, false] {
            let web = Web::with(bridged(), server(serves)).await?;
            for is_modern in [is_modern_first, !is_modern_first, is_modern_first] {
                if is_modern {
                    modern_client(|| web.caller()).await?;
                } else {
                    legacy_client(|| web.caller()).await?;
                }
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_server_of_both_eras_serves_each_client_itself() -> Result<()> {
    let web = Web::with(bridged(), server(Serves::Both)).await?;
    modern_client(|| web.caller()).await?;
    let legacy = legacy_client(|| web.caller()).await?;
    assert_eq!(legacy.session.as_deref(), Some("theirs-1"), "the server's own session");
    let got = web.got();
    let of_client = |got: &&Got| String::from_utf8_lossy(&got.body).contains("skep");
    assert_eq!(got.iter().filter(of_client).count(), 0, "the bridge sent nothing of its own");
    Ok(())
}

#[tokio::test]
async fn a_session_of_the_bridge_listens_and_ends() -> Result<()> {
    let web = Web::with(bridged(), server(Serves::Modern)).await?;
    let caller = legacy_client(|| web.caller()).await?;
    let mut heard = caller.events(Method::GET, "/mcp", "").await?;
    assert_eq!(heard.message().await?["method"], "notifications/tools/list_changed");
    let mut stranger = web.caller();
    stranger.session = Some("not-a-session".to_owned());
    assert_eq!(stranger.ask(json!(1), "tools/list", json!({})).await?.status, StatusCode::NOT_FOUND);
    assert_eq!(caller.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::NO_CONTENT);
    assert_eq!(caller.ask(json!(4), "tools/list", json!({})).await?.status, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn a_client_that_sends_no_probe_is_served_too() -> Result<()> {
    let web = Web::with(bridged(), server(Serves::Legacy)).await?;
    let (status, called) = ask_modern(web.caller(), "tools/call").await?;
    assert_eq!((status, &called["result"]["resultType"]), (StatusCode::OK, &json!("complete")), "{called}");
    // An unknown method of a modern server says nothing of its era.
    let web = Web::with(bridged(), server(Serves::Modern)).await?;
    let (status, refused) = ask_modern(web.caller(), "no/such").await?;
    assert_eq!((status, &refused["error"]["code"]), (StatusCode::NOT_FOUND, &json!(-32601)));
    assert_eq!(web.got().len(), 1);
    Ok(())
}

#[tokio::test]
async fn credentials_reach_the_server_on_the_bridge_as_well_and_keep_clients_apart() -> Result<()> {
    for serves in [Serves::Legacy, Serves::Modern] {
        let web = Web::with(bridged(), server(serves)).await?;
        for token in ["Bearer ann", "Bearer bob", "Bearer ann"] {
            if serves == Serves::Legacy {
                let (_, called) = ask_modern(web.caller().with("authorization", token), "tools/call").await?;
                assert_eq!(called["result"]["token"], token);
            } else {
                let caller = legacy_client(|| web.caller().with("authorization", token)).await?;
                assert_eq!(caller.call(json!(9), "echo", json!({})).await?["result"]["token"], token);
            }
        }
        let tokens = |session: &str| -> BTreeSet<String> {
            let of_session = |got: &Got| got.headers.get("mcp-session-id").is_some_and(|named| named == session);
            let got = web.got();
            got.iter().filter(|got| of_session(got)).map(|got| format!("{:?}", got.headers["authorization"])).collect()
        };
        for session in ["theirs-1", "theirs-2"] {
            let expected = usize::from(serves == Serves::Legacy);
            assert_eq!(tokens(session).len(), expected, "{session}: {:?}", tokens(session));
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_is_translated_goes_through_the_same_chain() -> Result<()> {
    for serves in [Serves::Legacy, Serves::Modern] {
        let config = RunConfig { tools_filter: vec!["echo".to_owned()], ..RunConfig::default() };
        let web = Web::with(How { config, ..bridged() }, server(serves)).await?;
        let listed = if serves == Serves::Legacy {
            ask_modern(web.caller(), "server/discover").await?;
            ask_modern(web.caller(), "tools/list").await?.1
        } else {
            legacy_client(|| web.caller()).await?.ask(json!(3), "tools/list", json!({})).await?.message()?
        };
        assert_eq!(listed["result"]["tools"], json!([{ "name": "echo" }]), "{serves:?}");
    }
    Ok(())
}

/// A modern server is sent what the client sent, byte for byte, and the other way round.
#[tokio::test]
async fn nothing_of_the_servers_own_era_is_touched() -> Result<()> {
    let web =
        Web::with(bridged(), |got: &Got| answer(200, &[], String::from_utf8_lossy(&got.body).into_owned())).await?;
    let exact = r#" {"id":1.0, "jsonrpc":"2.0","method":"tools/call","params":{"name":"echo","x":1.50,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}} "#;
    let caller =
        web.caller().with("mcp-protocol-version", MODERN).with("mcp-method", "tools/call").with("mcp-name", "echo");
    assert_eq!(caller.post(exact).await?.text(), exact);
    let legacy = request(json!(1), "tools/list", json!({})).to_string();
    assert_eq!(web.caller().post(legacy.clone()).await?.text(), legacy);
    Ok(())
}
