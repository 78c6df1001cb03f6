//! A stdio server behind Streamable HTTP.

use std::time::Duration;

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{BOTH, MODERN, TestClient, initialize_request, modern, request};
use crate::lines::{How, Stage};

#[tokio::test]
async fn every_client_gets_a_handshake_and_the_server_gets_one() -> Result<()> {
    let stage = Stage::new().await?;
    let (first, second) = tokio::try_join!(stage.caller().initialized(), stage.caller().initialized())?;
    assert_ne!(first.session, second.session);
    let answer = stage.caller().ask(json!("own"), "initialize", initialize_request()).await?;
    assert_eq!(answer.message()?["id"], "own");
    assert_eq!(stage.received("initialize").len(), 1);
    assert_eq!(stage.until_received("notifications/initialized", 1).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_handshake_that_fails_is_reported_and_retried() -> Result<()> {
    let stage = Stage::absent(How::default()).await?;
    stage.seen.lock().unwrap().refuses = true;
    stage.appear();
    let answer = stage.caller().ask(json!(1), "initialize", initialize_request()).await?;
    let message = "the server is not available: the server refused `initialize`: not today";
    assert_eq!(answer.message()?["error"], json!({ "code": -32603, "message": message }));
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert!(answer.headers.get("mcp-session-id").is_none());
    stage.seen.lock().unwrap().refuses = false;
    crate::eras::until_initialized(&stage).await?;
    stage.caller().initialized().await?;
    Ok(())
}

#[tokio::test]
async fn a_hundred_clients_with_the_same_ids_never_see_each_other() -> Result<()> {
    let stage = Stage::new().await?;
    let initialized = stage.caller().initialized().await?;
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..100 {
        let mut caller = stage.caller().taking(if index % 2 == 0 { BOTH } else { "application/json" });
        // Some share a session, some have none.
        caller.session = initialized.session.clone().filter(|_| index % 3 == 0);
        calls.spawn(async move {
            for round in 0..10 {
                let answer = caller.call(json!(7), "echo", json!({ "n": index * 100 + round })).await.unwrap();
                assert_eq!(answer["id"], 7);
                let text = answer["result"]["content"][0]["text"].as_str().unwrap();
                assert_eq!(text, json!({ "n": index * 100 + round }).to_string());
            }
        });
    }
    while let Some(done) = calls.join_next().await {
        done?;
    }
    Ok(())
}

#[tokio::test]
async fn bytes_travel_as_they_are() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    let body = "{\"content\":[{\"text\":\"a\u{a0}b\u{200d}\u{3000}<>&\\u0041\",\"n\":12345678901234567890123,\"f\":1.0e400}], \"x\" : null}";
    stage.seen.lock().unwrap().says =
        Some(format!("{{\"jsonrpc\":\"2.0\",\"extra\":[1.0],\"id\":ID,\"result\":{body}}}"));
    let call =
        "{\"jsonrpc\":\"2.0\",\"id\":12345678901234567890,\"method\":\"tools/call\",\"params\":{\"name\":\"raw\"}}";
    let answer = caller.post(call).await?;
    assert_eq!(
        answer.text(),
        format!("{{\"jsonrpc\":\"2.0\",\"extra\":[1.0],\"id\":12345678901234567890,\"result\":{body}}}")
    );
    Ok(())
}

#[tokio::test]
async fn a_malformed_message_is_refused_and_not_forwarded() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    let before = stage.until_received("notifications/initialized", 1).await?.len();
    for (body, expected_text) in [
        ("[]", "batch"),
        (" [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", "batch"),
        ("{", "Invalid JSON-RPC 2.0 message"),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", "Invalid JSON-RPC 2.0 message"),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"method\":\"tools/call\"}", "twice"),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"Method\":\"tools/call\"}", "must be written"),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"a\",\"n\\u0061me\":\"b\"}}",
            "twice",
        ),
    ] {
        let answer = caller.post(body).await?;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        assert!(answer.text().contains(expected_text), "{body}: {}", answer.text());
    }
    assert_eq!(stage.received("notifications/initialized").len(), before);
    assert!(stage.received("tools/call").is_empty() && stage.received("tools/list").is_empty());
    Ok(())
}

#[tokio::test]
async fn eight_mebibytes_pass_and_one_byte_more_does_not() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    let frame = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "echo", "arguments": { "x": "" } } }).to_string();
    let room = 8 * 1024 * 1024 - frame.len();
    let body = |length: usize| frame.replace("\"x\":\"\"", &format!("\"x\":\"{}\"", "a".repeat(length)));
    assert_eq!(caller.post(body(room)).await?.status, StatusCode::OK);
    let answer = caller.post(body(room + 1)).await?;
    assert_eq!((answer.status, answer.text()), (StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"));
    Ok(())
}

#[tokio::test]
async fn sessions_are_known_until_they_are_deleted() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    let mut stranger = stage.caller();
    stranger.session = Some("00000000-0000-4000-8000-000000000000".to_owned());
    let refused = stranger.ask(json!("x"), "tools/list", json!({})).await?;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
    assert_eq!(refused.text(), r#"{"error":{"code":-32001,"message":"Session not found"},"id":"x","jsonrpc":"2.0"}"#);
    assert_eq!(stranger.tell("notifications/x", json!({})).await?.status, StatusCode::NOT_FOUND);
    assert_eq!(stranger.whole(Method::GET, "/mcp", "").await?.status, StatusCode::NOT_FOUND);
    assert_eq!(stranger.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::NOT_FOUND);
    let unknown = stage.caller();
    assert_eq!(unknown.whole(Method::GET, "/mcp", "").await?.status, StatusCode::BAD_REQUEST);
    assert_eq!(unknown.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::BAD_REQUEST);
    assert_eq!(unknown.whole(Method::PUT, "/mcp", "").await?.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(unknown.whole(Method::POST, "/other", "").await?.status, StatusCode::NOT_FOUND);
    assert_eq!(caller.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::NO_CONTENT);
    assert_eq!(caller.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::NOT_FOUND);
    // A session is opened under a name of ours, whatever the client asks for.
    let mut fixed = stage.caller();
    fixed.session = Some("11111111-1111-4111-8111-111111111111".to_owned());
    let opened = fixed.ask(json!(1), "initialize", initialize_request()).await?;
    assert_ne!(opened.headers["mcp-session-id"], "11111111-1111-4111-8111-111111111111");
    Ok(())
}

#[tokio::test]
async fn what_the_server_says_unasked_reaches_whom_it_concerns() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) = (stage.caller().initialized().await?, stage.caller().initialized().await?);
    let mut first = one.events(Method::GET, "/mcp", "").await?;
    let mut second = two.events(Method::GET, "/mcp", "").await?;
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    stage.say(changed.clone()).await?;
    assert_eq!(first.message().await?, changed);
    assert_eq!(second.message().await?, changed);
    // One of them wants to hear of a resource. The server hears of the first who does, and of the last who does not.
    for caller in [&one, &two] {
        assert_eq!(
            caller.ask(json!(1), "resources/subscribe", json!({ "uri": "a:b" })).await?.message()?["result"],
            json!({})
        );
    }
    assert_eq!(stage.received("resources/subscribe").len(), 1);
    two.ask(json!(2), "resources/unsubscribe", json!({ "uri": "a:b" })).await?;
    assert!(stage.received("resources/unsubscribe").is_empty());
    let updated = json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": "a:b" } });
    stage.say(updated.clone()).await?;
    stage.say(changed.clone()).await?;
    assert_eq!(first.message().await?, updated);
    assert_eq!(second.message().await?, changed, "a client that did not subscribe gets nothing");
    assert_eq!(one.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::NO_CONTENT);
    stage.until_received("resources/unsubscribe", 1).await?;
    // A second listener of a session takes the place of the first.
    let mut third = two.events(Method::GET, "/mcp", "").await?;
    stage.say(changed.clone()).await?;
    assert_eq!(third.message().await?, changed);
    Ok(())
}

#[tokio::test]
async fn the_server_logs_as_much_as_the_most_curious_client_wants() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) = (stage.caller().initialized().await?, stage.caller().initialized().await?);
    for (caller, level) in [(&one, "error"), (&two, "debug"), (&one, "warning")] {
        let answer = caller.ask(json!(1), "logging/setLevel", json!({ "level": level })).await?;
        assert_eq!(answer.message()?["result"], json!({}));
    }
    let reply = stage.until_received("logging/setLevel", 2).await?;
    let levels: Vec<&Value> = reply.iter().map(|message| &message["params"]["level"]).collect();
    assert_eq!(levels, ["error", "debug"]);
    let (mut first, mut second) =
        (one.events(Method::GET, "/mcp", "").await?, two.events(Method::GET, "/mcp", "").await?);
    let log =
        |level: &str| json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": level } });
    stage.say(log("info")).await?;
    stage.say(log("error")).await?;
    assert_eq!(second.message().await?, log("info"));
    assert_eq!(first.message().await?, log("error"));
    Ok(())
}

#[tokio::test]
async fn progress_reaches_its_request_under_the_clients_own_token() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?.taking(BOTH);
    for token in [json!("mine"), json!(5)] {
        let params = json!({ "name": "progress", "_meta": { "progressToken": token } });
        let mut events =
            caller.events(Method::POST, "/mcp", request(json!(1), "tools/call", params).to_string()).await?;
        for progress in [1, 2] {
            let report = events.message().await?;
            assert_eq!(report["params"], json!({ "progressToken": token, "progress": progress }));
        }
        assert_eq!(events.message().await?["id"], 1);
        assert!(events.next().await?.is_none());
    }
    Ok(())
}

#[tokio::test]
async fn who_cancels_goes_or_waits_too_long_ends_the_work() -> Result<()> {
    let how = How { timeout: Duration::from_millis(300), ..How::default() };
    let stage = Stage::with(how).await?;
    let caller = stage.caller().initialized().await?;
    // Too long.
    let answer = caller.ask(json!(1), "hold", json!({})).await?;
    assert_eq!(
        (answer.status, answer.text()),
        (StatusCode::GATEWAY_TIMEOUT, "Timeout waiting for response from container")
    );
    let mut events = caller
        .clone()
        .taking(BOTH)
        .events(Method::POST, "/mcp", request(json!(2), "hold", json!({})).to_string())
        .await?;
    assert_eq!(events.message().await?["error"], json!({ "code": -32000, "message": "Timeout" }));
    let wire: Vec<Value> = stage.received("hold").iter().map(|message| message["id"].clone()).collect();
    let reply = stage.until_received("notifications/cancelled", 2).await?;
    assert_eq!(reply.iter().map(|message| message["params"]["requestId"].clone()).collect::<Vec<_>>(), wire);
    Ok(())
}

#[tokio::test]
async fn a_client_that_cancels_or_leaves_cancels_under_the_servers_id() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    let begin = |caller: &TestClient| {
        let caller = caller.clone();
        tokio::spawn(async move { caller.ask(json!("mine"), "hold", json!({})).await })
    };
    for (index, accept) in ["application/json", BOTH].into_iter().enumerate() {
        let held = begin(&caller.clone().taking(accept));
        let wire = stage.until_received("hold", index + 1).await?[index]["id"].clone();
        // A cancellation of another client does not count.
        let other = stage.caller().initialized().await?;
        other.tell("notifications/cancelled", json!({ "requestId": "mine" })).await?;
        caller.tell("notifications/cancelled", json!({ "requestId": "mine", "reason": "enough" })).await?;
        let reply = stage.until_received("notifications/cancelled", index + 1).await?;
        assert_eq!(reply[index]["params"], json!({ "requestId": wire, "reason": "enough" }));
        // The server says no more about it.
        let answer = held.await??;
        let error = json!({ "code": -32000, "message": "the request was cancelled" });
        assert_eq!((answer.status, &answer.message()?["error"]), (StatusCode::OK, &error));
    }
    // The connection goes away.
    let held = begin(&caller);
    let wire = stage.until_received("hold", 3).await?[2]["id"].clone();
    held.abort();
    let reply = stage.until_received("notifications/cancelled", 3).await?;
    assert_eq!((reply.len(), &reply[2]["params"]["requestId"]), (3, &wire));
    Ok(())
}

#[tokio::test]
async fn a_request_of_the_server_reaches_the_client_whose_call_it_serves() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?.taking(BOTH);
    let other = stage.caller().initialized().await?;
    let call = request(json!(1), "tools/call", json!({ "name": "ask" })).to_string();
    let mut events = caller.events(Method::POST, "/mcp", call).await?;
    let asked = events.message().await?;
    assert_eq!(asked["method"], "sampling/createMessage");
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "said": "yes" } });
    // No client can answer for another one.
    let forged = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "said": "no" } });
    assert_eq!(other.post(forged.to_string()).await?.status, StatusCode::ACCEPTED);
    assert_eq!(caller.post(answer.to_string()).await?.status, StatusCode::ACCEPTED);
    assert_eq!(events.message().await?["result"]["reply"], json!({ "said": "yes" }));
    // The server's own questions about us are answered by us.
    stage.say(json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" })).await?;
    skep_testkit::eventually("a pong", crate::client::PATIENCE, || async {
        let seen = stage.seen.lock().unwrap();
        let found = seen.messages.iter().any(|message| message["id"] == "p" && message["result"] == json!({}));
        Ok(if found { skep_testkit::Seen::Yes(()) } else { skep_testkit::Seen::NotYet(String::new()) })
    })
    .await
}

#[tokio::test]
async fn a_server_that_was_restarted_is_re_initialized_and_calls_in_flight_end_clearly() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    caller.ask(json!(1), "resources/subscribe", json!({ "uri": "a:b" })).await?;
    caller.ask(json!(1), "logging/setLevel", json!({ "level": "info" })).await?;
    stage.until_received("logging/setLevel", 1).await?;
    let held = {
        let caller = caller.clone();
        tokio::spawn(async move { caller.ask(json!(9), "hold", json!({})).await })
    };
    stage.until_received("hold", 1).await?;
    stage.kill().await;
    let broken = held.await??;
    assert_eq!(broken.status, StatusCode::BAD_GATEWAY);
    assert_eq!(broken.message()?["id"], 9);
    assert!(broken.text().contains("connection to the server was lost"), "{}", broken.text());
    // The same session goes on.
    let answer = caller.call(json!(2), "echo", json!({})).await?;
    assert_eq!(answer["id"], 2);
    assert_eq!(stage.seen.lock().unwrap().starts, 2);
    for (method, times) in
        [("initialize", 2), ("notifications/initialized", 2), ("resources/subscribe", 2), ("logging/setLevel", 2)]
    {
        assert_eq!(stage.received(method).len(), times, "{method}");
    }
    Ok(())
}

#[tokio::test]
async fn modern_requests_pass_without_a_session_and_wrong_ones_never_reach_the_server() -> Result<()> {
    let stage = Stage::modern().await?;
    let bare = stage.caller().with("mcp-protocol-version", MODERN);
    let caller = bare.clone().with("mcp-method", "tools/call").with("mcp-name", "echo");
    let answer = caller.post(modern(json!(3), "tools/call", MODERN).to_string()).await?;
    assert_eq!((answer.status, answer.message()?["id"].clone()), (StatusCode::OK, json!(3)));
    assert!(answer.headers.get("mcp-session-id").is_none());
    let before = stage.seen.lock().unwrap().messages.len();
    let without = request(json!(4), "tools/call", json!({ "name": "echo" }));
    let named = caller.clone().with("mcp-name", "other").with("mcp-method", "tools/call");
    for (who, body, code) in [
        (&caller, modern(json!(4), "tools/call", "2025-11-25"), -32020),
        (&stage.caller(), modern(json!(4), "tools/call", "2025-11-25"), -32022),
        (&caller, without, -32602),
        (&bare, modern(json!(4), "tools/call", MODERN), -32020),
        (&stage.caller().with("mcp-protocol-version", "2025-11-25"), modern(json!(4), "tools/call", MODERN), -32020),
        (&named, modern(json!(4), "tools/call", MODERN), -32020),
    ] {
        let answer = who.post(body.to_string()).await?;
        assert_eq!((answer.status, answer.message()?["error"]["code"].clone()), (StatusCode::BAD_REQUEST, json!(code)));
        assert_eq!(answer.message()?["id"], 4);
    }
    assert_eq!(stage.seen.lock().unwrap().messages.len(), before);
    // An unknown method has a status of its own, whatever the client accepts.
    let unknown = bare.clone().with("mcp-method", "no/such").taking(BOTH);
    let answer = unknown.post(modern(json!(5), "no/such", MODERN).to_string()).await?;
    assert_eq!((answer.status, answer.message()?["error"]["code"].clone()), (StatusCode::NOT_FOUND, json!(-32601)));
    // There is no handshake in this era, and the server must not take it for one of the other.
    let initialize_request = bare.with("mcp-method", "initialize").taking(BOTH);
    let answer = initialize_request.post(modern(json!(6), "initialize", MODERN).to_string()).await?;
    assert_eq!((answer.status, answer.message()?["error"]["code"].clone()), (StatusCode::NOT_FOUND, json!(-32601)));
    assert_eq!(stage.received("initialize").len(), 1, "the proxy's own");
    Ok(())
}

#[tokio::test]
async fn tools_are_filtered_and_renamed_and_everything_else_of_the_list_stays() -> Result<()> {
    let mut how = How::default();
    how.config.tools_filter = vec!["say".to_owned()];
    let seen = skep_runconfig::run_config::ToolOverride {
        name: "say".to_owned(),
        description: "Says it back".to_owned(),
        ..skep_runconfig::run_config::ToolOverride::default()
    };
    how.config.tools_override.insert("echo".to_owned(), seen);
    let stage = Stage::with(how).await?;
    let caller = stage.caller().initialized().await?;
    for accept in ["application/json", BOTH] {
        let list = caller.clone().taking(accept).ask(json!(1), "tools/list", json!({})).await?.message()?;
        assert_eq!(list["result"]["nextCursor"], "more");
        assert_eq!(list["result"]["_meta"], json!({ "kept": true }));
        let tools = list["result"]["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 1);
        assert_eq!((&tools[0]["name"], &tools[0]["description"]), (&json!("say"), &json!("Says it back")));
    }
    assert_eq!(caller.call(json!(2), "say", json!({ "a": 1 })).await?["result"]["content"][0]["text"], "{\"a\":1}");
    assert_eq!(stage.received("tools/call")[0]["params"]["name"], "echo");
    for hidden in ["hidden", "echo"] {
        let refused = caller.call(json!(3), hidden, json!({})).await?;
        assert_eq!(refused["error"], json!({ "code": -32602, "message": "tool not found" }), "{hidden}");
    }
    assert_eq!(stage.received("tools/call").len(), 1);
    Ok(())
}

#[tokio::test]
async fn pages_beside_the_protocol_say_how_things_are() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller();
    let health = caller.whole(Method::GET, "/health", "").await?;
    assert_eq!((health.status, health.message()?["transport"].clone()), (StatusCode::OK, json!("stdio")));
    assert_eq!(caller.whole(Method::POST, "/health", "").await?.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(caller.whole(Method::GET, "/metrics", "").await?.status, StatusCode::NOT_FOUND);
    let unknown = caller.whole(Method::GET, "/.well-known/x", "").await?;
    assert_eq!((unknown.status, unknown.text()), (StatusCode::NOT_FOUND, "{\"error\":\"not_found\"}"));
    let strict = {
        let mut how = How::default();
        how.config.strict_protocol_validation = true;
        Stage::with(how).await?
    };
    let answer = strict.caller().with("mcp-protocol-version", "1999-01-01").ask(json!(1), "ping", json!({})).await?;
    assert_eq!((answer.status, answer.text()), (StatusCode::BAD_REQUEST, "Unsupported MCP-Protocol-Version"));
    Ok(())
}

#[tokio::test]
async fn an_end_that_is_asked_for_finishes_calls_and_closes_streams() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    let mut listening = caller.events(Method::GET, "/mcp", "").await?;
    let held = {
        let caller = caller.clone();
        tokio::spawn(async move { caller.call(json!(1), "wait", json!({})).await })
    };
    stage.until_received("tools/call", 1).await?;
    stage.drain.start();
    assert!(listening.next().await?.is_none(), "the stream ends");
    // The call in flight is answered.
    let wire = stage.received("tools/call")[0]["id"].clone();
    stage.say(json!({ "jsonrpc": "2.0", "id": wire, "result": { "done": true } })).await?;
    assert_eq!(held.await??["result"], json!({ "done": true }));
    assert_eq!(stage.drain.drained().await.cut, 0);
    Ok(())
}

#[tokio::test]
async fn calls_wait_for_a_server_that_is_on_its_way_and_not_for_ever() -> Result<()> {
    let how = How { timeout: Duration::from_secs(1), ..How::default() };
    let stage = Stage::absent(how).await?;
    let late = stage.caller().ask(json!(1), "ping", json!({})).await?;
    assert_eq!(late.status, StatusCode::GATEWAY_TIMEOUT);
    // More than the queue holds: every client gets its response in time.
    let calls: Vec<_> = (0..150)
        .map(|id| {
            let caller = stage.caller();
            tokio::spawn(async move { caller.ask(json!(id), "ping", json!({})).await.unwrap().status })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await?, StatusCode::GATEWAY_TIMEOUT);
    }
    stage.appear();
    let answer = stage.caller().call(json!(1), "echo", json!({})).await?;
    assert_eq!(answer["id"], 1);
    assert!(stage.received("ping").is_empty(), "no client waited for those any more");
    Ok(())
}
