//! Clients of both eras in front of one stdio server that all of them share: nothing depends on who comes first.

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use skep_testkit::{Seen, eventually};

use crate::client::{Answer, BOTH, MODERN, PATIENCE, TestClient, modern, request};
use crate::lines::{How, Speaks, Stage};

/// Waits until the server takes requests.
pub(crate) async fn until_initialized(stage: &Stage) -> Result<()> {
    eventually("the server is initialized", PATIENCE, || async {
        let answer = stage.caller().ask(json!(1), "ping", json!({})).await?;
        Ok(match answer.status {
            StatusCode::OK => Seen::Yes(()),
            _ => Seen::NotYet(answer.text().to_owned()),
        })
    })
    .await
}

/// A request of 2026-07-28, with the headers that go with it.
async fn ask_modern(stage: &Stage, accept: &'static str, method: &str) -> Result<Answer> {
    let caller = stage.caller().taking(accept).with("mcp-protocol-version", MODERN).with("mcp-method", method);
    let caller = if method == "tools/call" { caller.with("mcp-name", "echo") } else { caller };
    caller.post(modern(json!("mine"), method, MODERN).to_string()).await
}

fn initialize(version: &str, capabilities: Value) -> Value {
    json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": { "name": "c", "version": "1" } })
}

/// A client of 2026-07-28 works, whichever version the server speaks.
async fn modern_client(stage: &Stage) -> Result<()> {
    for accept in ["application/json", BOTH] {
        let found = ask_modern(stage, accept, "server/discover").await?;
        let reply = found.message()?;
        assert_eq!((found.status, &reply["id"]), (StatusCode::OK, &json!("mine")), "{reply}");
        assert_eq!(reply["result"]["supportedVersions"][0], MODERN);
        for method in ["tools/call", "tools/list"] {
            let answered = ask_modern(stage, accept, method).await?;
            assert_eq!(answered.message()?["result"]["resultType"], "complete", "{method}");
        }
    }
    let caller =
        stage.caller().taking(BOTH).with("mcp-protocol-version", MODERN).with("mcp-method", "subscriptions/listen");
    let mut listen = modern(json!("sub"), "subscriptions/listen", MODERN);
    listen["params"]["notifications"] = json!({ "toolsListChanged": true });
    let first = caller.events(Method::POST, "/mcp", listen.to_string()).await?.message().await?;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    legacy_client(stage).await
}

async fn legacy_client(stage: &Stage) -> Result<()> {
    let caller = stage.caller().initialized().await?;
    assert!(caller.call(json!(2), "echo", json!({})).await?["result"].is_object());
    Ok(())
}

#[tokio::test]
async fn clients_of_both_eras_are_served_in_any_order_of_arrival() -> Result<()> {
    for speaks in [Speaks::Both, Speaks::Legacy] {
        for is_modern_first in [true, false] {
            let stage = Stage::speaking(speaks, How::default()).await?;
            for is_modern in [is_modern_first, !is_modern_first, is_modern_first] {
                if is_modern { modern_client(&stage).await? } else { legacy_client(&stage).await? }
            }
            assert_eq!(stage.received("initialize").len(), 1);
            let seen = stage.seen.lock().unwrap();
            let of_other_era = |one: &Value| one["params"]["_meta"].to_string().contains("io.modelcontextprotocol/");
            assert!(!seen.messages.iter().any(of_other_era), "nothing of the other era");
        }
    }
    Ok(())
}

#[tokio::test]
async fn clients_of_both_eras_are_served_over_sse_in_any_order_of_arrival() -> Result<()> {
    for is_modern_first in [true, false] {
        let stage = Stage::speaking(Speaks::Both, How { sse: true, ..How::default() }).await?;
        for is_modern in [is_modern_first, !is_modern_first] {
            let caller = stage.caller();
            let mut events = caller.events(Method::GET, "/sse", "").await?;
            let endpoint = events.next().await?.unwrap().1;
            let path = format!("/messages{}", endpoint.rsplit_once("/messages").unwrap().1);
            let mut ask = async |message: Value| {
                caller.whole(Method::POST, &path, message.to_string()).await?;
                events.message().await
            };
            if is_modern {
                let found = ask(modern(json!(1), "server/discover", MODERN)).await?;
                assert_eq!(found["result"]["supportedVersions"][0], MODERN);
                assert_eq!(ask(modern(json!(1), "tools/call", MODERN)).await?["result"]["resultType"], "complete");
            }
            let opened = ask(request(json!(1), "initialize", initialize("2025-03-26", json!({})))).await?;
            assert_eq!(opened["result"]["protocolVersion"], "2025-03-26");
            let call = request(json!(2), "tools/call", json!({ "name": "echo", "arguments": {} }));
            assert!(ask(call).await?["result"].is_object());
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_server_is_initialized_before_anything_else_reaches_it() -> Result<()> {
    let stage = Stage::absent(How::default()).await?;
    let early = {
        let caller = stage.caller();
        let tell = {
            let caller = caller.clone();
            async move { caller.tell("notifications/roots/list_changed", json!({})).await }
        };
        tokio::spawn(async move { tokio::try_join!(caller.ask(json!(1), "ping", json!({})), tell) })
    };
    stage.appear();
    early.await??;
    let seen = stage.seen.lock().unwrap();
    let methods: Vec<_> = seen.messages.iter().map(|message| message["method"].as_str().unwrap()).collect();
    assert_eq!(methods[..2], ["initialize", "notifications/initialized"], "{methods:?}");
    assert_eq!(methods.len(), 4, "{methods:?}");
    Ok(())
}

#[tokio::test]
async fn each_client_gets_the_version_that_it_asked_for() -> Result<()> {
    let stage = Stage::new().await?;
    for (requested, reply) in [("2025-11-25", "2025-06-18"), ("2025-06-18", "2025-06-18"), ("2024-11-05", "2024-11-05")]
    {
        let answer = stage.caller().ask(json!(1), "initialize", initialize(requested, json!({}))).await?;
        assert_eq!(answer.message()?["result"]["protocolVersion"], reply, "{requested}");
    }
    assert_eq!(stage.received("initialize")[0]["params"]["protocolVersion"], "2025-11-25");
    Ok(())
}

#[tokio::test]
async fn a_server_of_2026_07_28_only_is_served_to_clients_of_both_eras() -> Result<()> {
    for speaks in [Speaks::Modern, Speaks::ModernAndFragile] {
        let stage = Stage::speaking(speaks, How::default()).await?;
        for _ in 0..2 {
            // One that ends on the way is no failure that is reported.
            let probe = ask_modern(&stage, BOTH, "server/discover").await?;
            assert_eq!(probe.message()?["result"]["supportedVersions"], json!([MODERN]));
            assert!(ask_modern(&stage, BOTH, "tools/call").await?.message()?["result"].is_object());
            let opened = stage.caller().ask(json!("mine"), "initialize", initialize("2025-06-18", json!({}))).await?;
            assert_eq!(opened.message()?["result"]["protocolVersion"], "2025-06-18");
            legacy_client(&stage).await?;
            stage.kill().await;
        }
        assert_eq!(stage.received("initialize").len(), 1, "one that was restarted is opened as it was before");
    }
    Ok(())
}

/// A call of the tool that asks its client something, and what becomes of it.
fn asked(caller: &TestClient) -> tokio::task::JoinHandle<Result<Value>> {
    let caller = caller.clone();
    tokio::spawn(async move { caller.call(json!(5), "ask", json!({})).await })
}

#[tokio::test]
async fn the_first_clients_capabilities_hold_for_no_other() -> Result<()> {
    let stage = Stage::new().await?;
    let open = async |capabilities: Value| -> Result<TestClient> {
        let mut caller = stage.caller();
        let answer = caller.ask(json!(1), "initialize", initialize("2025-06-18", capabilities)).await?;
        caller.session = Some(answer.headers["mcp-session-id"].to_str()?.to_owned());
        Ok(caller)
    };
    let (unable, able) = (open(json!({})).await?, open(json!({ "sampling": {} })).await?);
    let declared = stage.received("initialize")[0]["params"]["capabilities"].clone();
    for capability in ["sampling", "elicitation", "roots"] {
        assert!(declared[capability].is_object(), "{declared}");
    }
    // The server asks for what this client cannot do, and is told so in its name.
    let call = asked(&unable);
    let refused = |message: &Value| message["id"] == "theirs" && message["error"]["code"] == -32601;
    eventually("the server's request is refused", PATIENCE, || async {
        let is_refused = stage.seen.lock().unwrap().messages.iter().any(refused);
        Ok(if is_refused { Seen::Yes(()) } else { Seen::NotYet("not yet".to_owned()) })
    })
    .await?;
    call.await??;
    let mut listening = able.events(Method::GET, "/mcp", "").await?;
    let call = asked(&able);
    let question = listening.message().await?;
    assert_eq!(question["method"], "sampling/createMessage");
    able.post(json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "role": "assistant" } }).to_string()).await?;
    assert_eq!(call.await??["result"]["reply"], json!({ "role": "assistant" }));
    Ok(())
}

fn log(text: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": text } })
}

#[tokio::test]
async fn the_log_of_a_call_arrives_on_its_stream_while_others_subscribe() -> Result<()> {
    let stage = Stage::modern().await?;
    let caller = |method: &str| {
        let caller = stage.caller().taking(BOTH).with("mcp-protocol-version", MODERN).with("mcp-method", method);
        if method == "tools/call" { caller.with("mcp-name", "wait") } else { caller }
    };
    let call = |level: Option<&str>| {
        let mut call = modern(json!(7), "tools/call", MODERN);
        call["params"]["name"] = json!("wait");
        if let Some(level) = level {
            call["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = json!(level);
        }
        call.to_string()
    };
    let subscriber = caller("subscriptions/listen");
    let listen = modern(json!(1), "subscriptions/listen", MODERN).to_string();
    let subscription = tokio::spawn(async move { subscriber.events(Method::POST, "/mcp", listen).await });
    stage.until_received("subscriptions/listen", 1).await?;
    let ask = |level: Option<&'static str>| {
        let (caller, call) = (caller("tools/call"), call(level));
        tokio::spawn(async move { caller.post(call).await })
    };
    let silent = ask(None);
    let asking = ask(Some("info"));
    let reply = stage.until_received("tools/call", 2).await?;
    for number in 0..3 {
        stage.say(log(&number.to_string())).await?;
    }
    for call in &reply {
        stage.say(json!({ "jsonrpc": "2.0", "id": call["id"], "result": { "done": true } })).await?;
    }
    assert_eq!(silent.await??.text().matches("notifications/message").count(), 0, "it did not ask for it");
    let answer = asking.await??;
    assert_eq!(answer.text().matches("notifications/message").count(), 3, "{}", answer.text());
    assert_eq!(answer.message()?["result"], json!({ "done": true }));
    subscription.abort();
    Ok(())
}

/// In the legacy era the log is a session's. The key of 2026-07-28 in a legacy call takes it from no other client.
#[tokio::test]
async fn a_legacy_call_with_a_log_level_takes_the_log_from_no_session() -> Result<()> {
    for accept in ["application/json", BOTH] {
        let stage = Stage::new().await?;
        let working = stage.caller().taking(BOTH).initialized().await?;
        let mut listening = working.events(Method::GET, "/mcp", "").await?;
        working.ask(json!(2), "logging/setLevel", json!({ "level": "info" })).await?;
        let greedy = stage.caller().taking(accept).initialized().await?;
        let meta = json!({ "io.modelcontextprotocol/logLevel": "debug" });
        let call = request(json!(3), "tools/call", json!({ "name": "wait", "arguments": {}, "_meta": meta }));
        let held = tokio::spawn(async move { greedy.post(call.to_string()).await });
        let own = stage.until_received("tools/call", 1).await?.remove(0);
        stage.say(log("about its own call")).await?;
        stage.say(json!({ "jsonrpc": "2.0", "id": own["id"], "result": {} })).await?;
        let answer = held.await??;
        let expected = usize::from(accept == BOTH);
        assert_eq!(answer.text().matches("notifications/message").count(), expected, "{accept}: {}", answer.text());
        // With such a call in flight beside another one, it goes to no session; alone, to every session that asked for it.
        stage.say(log("about no call")).await?;
        assert_eq!(listening.message().await?["params"]["data"], "about no call", "{accept}");
    }
    Ok(())
}

/// What contradicts itself could be read as one era by the proxy and as another one by the server.
#[tokio::test]
async fn over_sse_a_request_that_contradicts_itself_is_answered_and_never_reaches_the_server() -> Result<()> {
    for speaks in [Speaks::Legacy, Speaks::Both, Speaks::Modern] {
        let stage = Stage::speaking(speaks, How { sse: true, ..How::default() }).await?;
        let caller = stage.caller();
        let (mut events, path) = crate::sse::open(&caller).await?;
        let meta = |name: &str, value: Value| json!({ format!("io.modelcontextprotocol/{name}"): value });
        for (method, meta, code) in [
            ("tools/call", meta("protocolVersion", json!(MODERN)), -32602),
            ("initialize", meta("protocolVersion", json!(MODERN)), -32602),
            ("tools/call", meta("protocolVersion", json!("2031-01-01")), -32022),
            ("tools/call", meta("clientCapabilities", json!({})), -32602),
        ] {
            let message = request(json!("mine"), method, json!({ "name": "ask", "_meta": meta }));
            let accepted = caller.whole(Method::POST, &path, message.to_string()).await?;
            assert_eq!(accepted.status, StatusCode::ACCEPTED);
            let answer = events.message().await?;
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("mine"), &json!(code)), "{message} {answer}");
        }
        assert!(stage.received("tools/call").is_empty(), "{speaks:?}");
    }
    Ok(())
}

/// The server's question is about a call that its client wrote so that it looks like one of 2026-07-28.
#[tokio::test]
async fn over_sse_a_question_about_one_clients_call_is_never_put_to_another_client() -> Result<()> {
    let stage = Stage::with(How { sse: true, ..How::default() }).await?;
    let caller = stage.caller();
    let (mut other, other_path) = crate::sse::open(&caller).await?;
    let greet = request(json!(1), "initialize", initialize("2025-06-18", json!({ "sampling": {} })));
    caller.whole(Method::POST, &other_path, greet.to_string()).await?;
    assert!(other.message().await?["result"].is_object());
    let (mut one, path) = crate::sse::open(&caller).await?;
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": MODERN });
    let call = request(json!(2), "tools/call", json!({ "name": "ask", "arguments": {}, "_meta": meta }));
    caller.whole(Method::POST, &path, call.to_string()).await?;
    assert!(one.message().await?["error"].is_object());
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    stage.say(changed.clone()).await?;
    assert_eq!(other.message().await?, changed, "it was asked nothing before");
    Ok(())
}
