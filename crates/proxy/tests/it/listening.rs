//! Which client gets which messages of a stdio server that all clients share, and in which order the server gets theirs.

use std::sync::Arc;

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use skep_testkit::{Seen, eventually};

use crate::client::{BOTH, MODERN, PATIENCE, TestClient, initialize_request, modern, request};
use crate::lines::{How, Paper, Stage};

fn changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
}

fn updated(uri: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": { "uri": uri } })
}

async fn subscribe(caller: &TestClient, uri: &str) -> Result<Value> {
    caller.ask(json!(1), "resources/subscribe", json!({ "uri": uri })).await?.message()
}

/// Sends a request and does not wait for its answer.
fn held(
    caller: &TestClient,
    method: &'static str,
    params: Value,
) -> tokio::task::JoinHandle<Result<crate::client::Answer>> {
    let caller = caller.clone();
    tokio::spawn(async move { caller.ask(json!("held"), method, params).await })
}

#[tokio::test]
async fn a_session_has_one_stream_and_none_when_it_is_over() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    let mut first = caller.events(Method::GET, "/mcp", "").await?;
    let mut second = caller.events(Method::GET, "/mcp", "").await?;
    assert!(first.next().await?.is_none(), "the second takes the place of the first");
    stage.say(changed()).await?;
    assert_eq!(second.message().await?, changed());
    assert_eq!(caller.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::NO_CONTENT);
    assert!(second.next().await?.is_none(), "it ends with its session");
    let late = caller.whole(Method::GET, "/mcp", "").await?;
    let expected_text = r#"{"error":{"code":-32001,"message":"Session not found"},"jsonrpc":"2.0"}"#;
    assert_eq!((late.status, late.text()), (StatusCode::NOT_FOUND, expected_text));
    let unknown = stage.caller();
    for (method, expected_text) in [
        (Method::GET, "Mcp-Session-Id header required for standalone SSE"),
        (Method::DELETE, "Mcp-Session-Id header required for DELETE"),
    ] {
        let refused = unknown.whole(method, "/mcp", "").await?;
        assert_eq!((refused.status, refused.text()), (StatusCode::BAD_REQUEST, expected_text));
    }
    Ok(())
}

#[tokio::test]
async fn a_subscription_that_failed_is_no_clients_and_the_next_one_is_sent() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) = (stage.caller().initialized().await?, stage.caller().initialized().await?);
    let mut first = one.events(Method::GET, "/mcp", "").await?;
    let mut second = two.events(Method::GET, "/mcp", "").await?;
    stage.seen.lock().unwrap().refuses = true;
    assert_eq!(subscribe(&one, "no:a").await?["error"]["message"], "not today");
    stage.seen.lock().unwrap().refuses = false;
    assert_eq!(subscribe(&two, "no:a").await?["result"], json!({}));
    assert_eq!(stage.received("resources/subscribe").len(), 2);
    stage.say(updated("no:a")).await?;
    stage.say(changed()).await?;
    assert_eq!(second.message().await?, updated("no:a"));
    assert_eq!(first.message().await?, changed(), "the refused client gets nothing");
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_before_the_server_agreed_does_not_block_the_next() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) = (stage.caller().initialized().await?, stage.caller().initialized().await?);
    let leaving = held(&one, "resources/subscribe", json!({ "uri": "hold:a" }));
    stage.until_received("resources/subscribe", 1).await?;
    leaving.abort();
    stage.until_received("notifications/cancelled", 1).await?;
    let staying = held(&two, "resources/subscribe", json!({ "uri": "hold:a" }));
    let reply = stage.until_received("resources/subscribe", 2).await?;
    stage.say(json!({ "jsonrpc": "2.0", "id": reply[1]["id"], "result": {} })).await?;
    assert_eq!(staying.await??.message()?["result"], json!({}));
    Ok(())
}

#[tokio::test]
async fn no_client_is_subscribed_before_the_server_has_agreed_with_the_first() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) = (stage.caller().initialized().await?, stage.caller().initialized().await?);
    let first = held(&one, "resources/subscribe", json!({ "uri": "hold:a" }));
    let reply = stage.until_received("resources/subscribe", 1).await?;
    let second = held(&two, "resources/subscribe", json!({ "uri": "hold:a" }));
    // Others pass meanwhile, so the second one is there as well.
    for id in 0..10 {
        stage.caller().ask(json!(id), "ping", json!({})).await?;
    }
    assert!(!second.is_finished());
    let no = json!({ "code": -32603, "message": "not today" });
    stage.say(json!({ "jsonrpc": "2.0", "id": reply[0]["id"], "error": no })).await?;
    assert_eq!(first.await??.message()?["error"], no);
    let reply = stage.until_received("resources/subscribe", 2).await?;
    stage.say(json!({ "jsonrpc": "2.0", "id": reply[1]["id"], "result": {} })).await?;
    assert_eq!(second.await??.message()?["result"], json!({}));
    Ok(())
}

#[tokio::test]
async fn a_resource_that_the_server_is_slow_with_holds_up_no_other_one() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) = (stage.caller().initialized().await?, stage.caller().initialized().await?);
    let slow = held(&one, "resources/subscribe", json!({ "uri": "hold:a" }));
    stage.until_received("resources/subscribe", 1).await?;
    assert_eq!(subscribe(&two, "other:b").await?["result"], json!({}));
    assert!(!slow.is_finished());
    slow.abort();
    Ok(())
}

#[tokio::test]
async fn the_server_gets_subscriptions_in_the_order_in_which_clients_sent_them() -> Result<()> {
    let stage = Stage::new().await?;
    let mut all = tokio::task::JoinSet::new();
    for index in 0..12 {
        let caller = stage.caller();
        all.spawn(async move {
            for _ in 0..8 {
                let caller = caller.clone().initialized().await.unwrap();
                assert_eq!(subscribe(&caller, "a:b").await.unwrap()["result"], json!({}));
                if index % 2 == 0 {
                    caller.whole(Method::DELETE, "/mcp", "").await.unwrap();
                } else {
                    caller.ask(json!(2), "resources/unsubscribe", json!({ "uri": "a:b" })).await.unwrap();
                }
            }
        });
    }
    while let Some(done) = all.join_next().await {
        done?;
    }
    let heard = || {
        let seen = stage.seen.lock().unwrap();
        let expected_text = seen.messages.iter().filter(|message| message["params"]["uri"] == "a:b");
        expected_text.map(|message| message["method"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let expected_text = eventually("the last one does not want it any more", PATIENCE, || async {
        let expected_text = heard();
        let is_over = expected_text.last().is_some_and(|word| word == "resources/unsubscribe");
        Ok(if is_over { Seen::Yes(expected_text) } else { Seen::NotYet(format!("{expected_text:?}")) })
    })
    .await?;
    for pair in expected_text.chunks(2) {
        assert_eq!(pair, ["resources/subscribe", "resources/unsubscribe"], "{expected_text:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_server_logs_less_when_the_client_with_the_most_verbose_level_has_left() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) = (stage.caller().initialized().await?, stage.caller().initialized().await?);
    for (caller, level) in [(&one, "error"), (&two, "debug")] {
        caller.ask(json!(1), "logging/setLevel", json!({ "level": level })).await?;
    }
    stage.until_received("logging/setLevel", 2).await?;
    assert_eq!(two.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::NO_CONTENT);
    let reply = stage.until_received("logging/setLevel", 3).await?;
    let levels: Vec<&Value> = reply.iter().map(|message| &message["params"]["level"]).collect();
    assert_eq!(levels, ["error", "debug", "error"]);
    Ok(())
}

#[tokio::test]
async fn a_client_without_a_session_changes_no_subscription_of_others() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    assert!(subscribe(&caller, "a:b").await?["error"].is_null());
    for (method, params) in [
        ("resources/unsubscribe", json!({ "uri": "a:b" })),
        ("resources/subscribe", json!({ "uri": "c:d" })),
        ("logging/setLevel", json!({ "level": "error" })),
    ] {
        let refused = stage.caller().ask(json!(1), method, params).await?.message()?;
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
    }
    assert!(stage.received("resources/unsubscribe").is_empty() && stage.received("logging/setLevel").is_empty());
    assert_eq!(stage.received("resources/subscribe").len(), 1);
    Ok(())
}

#[tokio::test]
async fn progress_with_the_same_token_is_of_one_request_only() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) =
        (stage.caller().initialized().await?.taking(BOTH), stage.caller().initialized().await?.taking(BOTH));
    let call = || {
        let params = json!({ "name": "wait", "_meta": { "progressToken": "same" } });
        request(json!(1), "tools/call", params).to_string()
    };
    // A stream begins with the first that is said on it, so both are asked for at once.
    let first = tokio::spawn({
        let (one, call) = (one.clone(), call());
        async move { one.post(call).await }
    });
    stage.until_received("tools/call", 1).await?;
    let second = tokio::spawn({
        let (two, call) = (two.clone(), call());
        async move { two.post(call).await }
    });
    let reply = stage.until_received("tools/call", 2).await?;
    assert_ne!(reply[0]["params"]["_meta"]["progressToken"], reply[1]["params"]["_meta"]["progressToken"]);
    let report = json!({ "progressToken": reply[1]["params"]["_meta"]["progressToken"], "progress": 1 });
    stage.say(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": report })).await?;
    for message in &reply {
        stage.say(json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} })).await?;
    }
    let (first, second) = (first.await??, second.await??);
    assert!(!first.text().contains("progress"), "{}", first.text());
    assert_eq!(second.text().matches(r#""progressToken":"same""#).count(), 1, "{}", second.text());
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_slow_to_start_is_initialized_once_for_all_clients() -> Result<()> {
    let stage = Stage::absent(How::default()).await?;
    stage.seen.lock().unwrap().is_shy = true;
    stage.appear();
    let leaving = held(&stage.caller(), "initialize", initialize_request());
    let reply = stage.until_received("initialize", 1).await?;
    leaving.abort();
    assert!(leaving.await.is_err());
    let staying = held(&stage.caller(), "initialize", initialize_request());
    stage.say(json!({ "jsonrpc": "2.0", "id": reply[0]["id"], "result": { "for": "all" } })).await?;
    assert_eq!(staying.await??.message()?["result"], json!({ "for": "all" }));
    assert_eq!(stage.received("initialize").len(), 1);
    assert!(stage.received("notifications/cancelled").is_empty(), "a handshake is not cancelled");
    Ok(())
}

#[tokio::test]
async fn a_malformed_response_is_an_error_at_once_and_a_handshake_is_asked_for_again() -> Result<()> {
    let stage = Stage::absent(How::default()).await?;
    stage.seen.lock().unwrap().is_shy = true;
    stage.appear();
    let asked = held(&stage.caller(), "initialize", initialize_request());
    let reply = stage.until_received("initialize", 1).await?;
    stage.write(&format!(r#"{{"jsonrpc":"2.0","id":{}}}"#, reply[0]["id"])).await?;
    let answer = asked.await??;
    assert_eq!(answer.message()?["error"]["code"], -32603, "{}", answer.text());
    assert!(!answer.headers.contains_key("mcp-session-id"));
    stage.until_received("initialize", 2).await?;
    let reply = stage.until_received("initialize", 2).await?;
    stage.say(json!({ "jsonrpc": "2.0", "id": reply[1]["id"], "result": { "now": "well" } })).await?;
    crate::eras::until_initialized(&stage).await?;
    let answer = stage.caller().ask(json!(1), "initialize", initialize_request()).await?;
    assert_eq!(answer.message()?["result"], json!({ "now": "well" }));
    for (times, answer) in [
        (1, r#"{"id":ID,"result":{}}"#),
        (2, r#"{"jsonrpc":"2.0","id":ID,"result":{},"error":{}}"#),
        (3, r#"{"jsonrpc":"2.0","id":1,"result":{},"id":ID}"#),
    ] {
        let asked = held(&stage.caller(), "hold", initialize_request());
        let reply = stage.until_received("hold", times).await?;
        // One that no session asked for goes to none.
        stage.write(&answer.replace("ID", "1")).await?;
        stage.write(&answer.replace("ID", &reply[times - 1]["id"].to_string())).await?;
        let answer = asked.await??;
        assert_eq!(answer.message()?["id"], json!("held"));
        assert_eq!(answer.message()?["error"]["code"], -32603, "{}", answer.text());
    }
    Ok(())
}

#[tokio::test]
async fn a_client_after_a_restart_gets_the_handshake_of_the_new_server() -> Result<()> {
    let stage = Stage::new().await?;
    let version = async || -> Result<Value> {
        let answer = stage.caller().ask(json!(1), "initialize", initialize_request()).await?;
        Ok(answer.message()?["result"]["serverInfo"]["version"].clone())
    };
    assert_eq!(version().await?, "1");
    stage.kill().await;
    stage.until_received("initialize", 2).await?;
    eventually("the new version is reply", PATIENCE, || async {
        Ok(match version().await? {
            now if now == "2" => Seen::Yes(()),
            before => Seen::NotYet(before.to_string()),
        })
    })
    .await?;
    // One that refuses what it took before is not taken for well: clients wait until it is.
    stage.seen.lock().unwrap().refuses = true;
    stage.kill().await;
    stage.until_received("initialize", 4).await?;
    stage.seen.lock().unwrap().refuses = false;
    let caller = stage.caller().initialized().await?;
    assert!(caller.call(json!(2), "echo", json!({})).await?["result"].is_object());
    Ok(())
}

#[tokio::test]
async fn a_server_that_lost_its_connection_only_goes_on_even_if_it_takes_no_second_handshake() -> Result<()> {
    let stage = Stage::absent(How::default()).await?;
    stage.seen.lock().unwrap().identity = Some("one".to_owned());
    stage.appear();
    let caller = stage.caller().initialized().await?;
    assert_eq!(subscribe(&caller, "a:b").await?["result"], json!({}));
    stage.seen.lock().unwrap().refuses = true;
    for times in 2..4 {
        stage.kill().await;
        stage.until_received("initialize", times).await?;
        assert!(caller.call(json!(2), "echo", json!({})).await?["result"].is_object());
        assert_eq!(
            stage.until_received("resources/subscribe", times).await?.len(),
            times,
            "it may not have heard of it"
        );
    }
    let late = stage.caller().initialized().await?;
    assert!(late.session.is_some(), "what it said before is everybody's");
    assert_eq!(stage.received("notifications/initialized").len(), 1);
    // Another one must take it.
    stage.seen.lock().unwrap().identity = Some("two".to_owned());
    stage.kill().await;
    stage.until_received("initialize", 5).await?;
    assert_eq!(stage.received("resources/subscribe").len(), 3);
    Ok(())
}

/// Its node tells late of a restart, so it was taken for the one before.
#[tokio::test]
async fn a_server_is_known_again_as_what_it_turned_out_to_be() -> Result<()> {
    let stage = Stage::absent(How::default()).await?;
    stage.seen.lock().unwrap().identity = Some("old".to_owned());
    stage.appear();
    let caller = stage.caller().initialized().await?;
    {
        let mut seen = stage.seen.lock().unwrap();
        (seen.turns_out, seen.refuses) = (Some("new".to_owned()), true);
    }
    stage.kill().await;
    stage.until_received("initialize", 2).await?;
    assert!(caller.call(json!(2), "echo", json!({})).await?["result"].is_object());
    assert_eq!(stage.received("initialize").len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_server_that_takes_one_handshake_only_goes_on_with_the_next_proxy() -> Result<()> {
    let notes: Arc<Paper> = Arc::default();
    let stage = async |refuses: bool| -> Result<Stage> {
        let stage = Stage::absent(How::default()).await?;
        {
            let mut seen = stage.seen.lock().unwrap();
            (seen.notes, seen.refuses) = (Some(notes.clone()), refuses);
        }
        stage.appear();
        Ok(stage)
    };
    // Without a word of the proxy before, its refusal is all there is.
    let refused = stage(true).await?.caller().ask(json!(1), "initialize", initialize_request()).await?;
    assert!(refused.message()?["error"]["message"].as_str().unwrap().ends_with("not today"), "{}", refused.text());
    let first = stage(false).await?;
    first.caller().initialized().await?;
    eventually("it is written down", PATIENCE, || async {
        let is_kept = notes.0.lock().unwrap().is_some();
        Ok(if is_kept { Seen::Yes(()) } else { Seen::NotYet("nothing".to_owned()) })
    })
    .await?;
    let next = stage(true).await?;
    let caller = next.caller().initialized().await?;
    let initialized = next.caller().ask(json!("mine"), "initialize", initialize_request()).await?.message()?;
    assert_eq!((&initialized["id"], &initialized["result"]["serverInfo"]["name"]), (&json!("mine"), &json!("s")));
    assert!(caller.call(json!(2), "echo", json!({})).await?["result"].is_object());
    assert_eq!(next.received("initialize").len(), 1);
    assert!(next.received("notifications/initialized").is_empty(), "it heard that from the first one");
    // Also when another one initialized it first after a restart.
    next.kill().await;
    next.until_received("initialize", 2).await?;
    assert!(caller.call(json!(3), "echo", json!({})).await?["result"].is_object());
    Ok(())
}

/// A server that answers while it is asked, and is not read, would wait for ever, and the proxy with it.
#[tokio::test]
async fn many_subscriptions_are_repeated_to_a_server_that_answers_each() -> Result<()> {
    const MANY: usize = 300;
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    for number in 0..MANY {
        subscribe(&caller, &format!("x:{number}/{}", "long".repeat(40))).await?;
    }
    stage.kill().await;
    stage.until_received("resources/subscribe", 2 * MANY).await?;
    assert!(caller.call(json!(2), "echo", json!({})).await?["result"].is_object());
    Ok(())
}

#[tokio::test]
async fn the_end_of_the_handshake_is_sent_once() -> Result<()> {
    let stage = Stage::new().await?;
    for _ in 0..3 {
        stage.caller().initialized().await?;
    }
    // Whatever was passed on is before this.
    stage.caller().ask(json!(1), "ping", json!({})).await?;
    assert_eq!(stage.received("notifications/initialized").len(), 1);
    Ok(())
}

#[tokio::test]
async fn modern_clients_with_the_same_ids_and_the_same_foreign_session_get_their_own_responses() -> Result<()> {
    let stage = Stage::modern().await?;
    let mut caller = stage.caller().with("mcp-protocol-version", MODERN).with("mcp-method", "tools/call");
    caller = caller.with("mcp-name", "wait");
    caller.session = Some("another-clients".to_owned());
    let calls: Vec<_> = (0..20)
        .map(|index| {
            let caller = caller.clone();
            let mut call = modern(json!(7), "tools/call", MODERN);
            call["params"]["name"] = json!("wait");
            call["params"]["arguments"] = json!({ "index": index });
            tokio::spawn(async move { caller.post(call.to_string()).await })
        })
        .collect();
    // All are with the server before the first is answered, and the last is answered first.
    for message in stage.until_received("tools/call", 20).await?.iter().rev() {
        let result = json!({ "index": message["params"]["arguments"]["index"] });
        stage.say(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).await?;
    }
    for (index, call) in calls.into_iter().enumerate() {
        let answer = call.await??;
        assert_eq!(answer.message()?, json!({ "jsonrpc": "2.0", "id": 7, "result": { "index": index } }));
        assert!(!answer.headers.contains_key("mcp-session-id"));
    }
    assert_eq!(stage.sessions.store().count().await?, 0, "nothing is kept of them");
    Ok(())
}

#[tokio::test]
async fn a_call_that_hangs_holds_up_no_other() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = stage.caller().initialized().await?;
    let hung = held(&caller, "hold", json!({}));
    stage.until_received("hold", 1).await?;
    for id in 0..20 {
        let other = if id % 2 == 0 { caller.clone() } else { stage.caller() };
        assert_eq!(other.ask(json!(id), "ping", json!({})).await?.message()?["id"], id);
    }
    assert!(!hung.is_finished());
    hung.abort();
    Ok(())
}

#[tokio::test]
async fn a_client_subscribes_to_so_many_resources_and_no_more() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) = (stage.caller().initialized().await?, stage.caller().initialized().await?);
    for number in 0..1000 {
        assert_eq!(subscribe(&one, &format!("no:{number}")).await?["result"], json!({}));
    }
    assert_eq!(subscribe(&one, "no:one-more").await?["error"]["code"], -32602);
    assert_eq!(subscribe(&one, "no:7").await?["result"], json!({}), "one that it has");
    assert_eq!(subscribe(&two, "no:one-more").await?["result"], json!({}), "another client");
    let long = format!("no:{}", "x".repeat(8 * 1024));
    assert_eq!(subscribe(&two, &long).await?["error"]["code"], -32602);
    assert_eq!(stage.received("resources/subscribe").len(), 1001);
    // Room comes back with what is given back.
    one.ask(json!(2), "resources/unsubscribe", json!({ "uri": "no:7" })).await?;
    assert_eq!(subscribe(&one, "no:one-more").await?["result"], json!({}));
    Ok(())
}
