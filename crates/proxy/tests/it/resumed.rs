//! Streams of 2025-11-25 in front of a server on stdio: clients lose them and come back.

use anyhow::{Context as _, Result};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{BOTH, Events, TestClient, request};
use crate::lines::Stage;

async fn caller(stage: &Stage) -> Result<TestClient> {
    Ok(stage.caller().initialized().await?.taking(BOTH).with("mcp-protocol-version", "2025-11-25"))
}

/// A call that the server does not answer by itself: its stream, and the server's id of it.
async fn held(stage: &Stage, caller: &TestClient, token: &str) -> Result<(Events, Value)> {
    let before = stage.received("tools/call").len();
    let params = json!({ "name": "wait", "_meta": { "progressToken": token } });
    let events = caller.events(Method::POST, "/mcp", request(json!("mine"), "tools/call", params).to_string()).await?;
    let reply = stage.until_received("tools/call", before + 1).await?;
    Ok((events, reply[before]["id"].clone()))
}

/// The first event of a stream: it says how and after how long to come back, and nothing else.
async fn primed(events: &mut Events) -> Result<String> {
    assert_eq!(events.next().await?, Some((String::new(), String::new())));
    assert_eq!(events.retry, Some(1000));
    events.last.clone().context("no id")
}

fn progress(wire: &Value, progress: u32) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": wire, "progress": progress } })
}

fn result(wire: &Value, text: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": wire, "result": { "text": text } })
}

async fn resume(caller: &TestClient, last: &str) -> Result<Events> {
    caller.clone().with("last-event-id", last).events(Method::GET, "/mcp", "").await
}

#[tokio::test]
async fn a_client_that_lost_its_stream_resumes_the_response() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = caller(&stage).await?;
    let (mut events, wire) = held(&stage, &caller, "t").await?;
    primed(&mut events).await?;
    stage.say(progress(&wire, 1)).await?;
    assert_eq!(events.message().await?["params"], json!({ "progressToken": "t", "progress": 1 }));
    let first = events.last.clone().context("no id")?;
    drop(events);
    stage.say(progress(&wire, 2)).await?;
    let mut again = resume(&caller, &first).await?;
    assert_eq!(again.message().await?["params"]["progress"], 2, "what was read does not come twice");
    let second = again.last.clone().context("no id")?;
    drop(again);
    stage.say(result(&wire, "done")).await?;
    // It can be lost as often as it likes to be, also when it is over.
    for _ in 0..2 {
        let mut last = resume(&caller, &second).await?;
        let answer = last.message().await?;
        assert_eq!((&answer["id"], &answer["result"]["text"]), (&json!("mine"), &json!("done")));
        assert!(last.next().await?.is_none(), "the answer ends it");
    }
    assert!(stage.received("notifications/cancelled").is_empty(), "to leave is not to cancel");
    Ok(())
}

#[tokio::test]
async fn no_client_resumes_a_stream_of_another() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, two) = (caller(&stage).await?, caller(&stage).await?);
    let (mut events, wire) = held(&stage, &one, "t").await?;
    let last = primed(&mut events).await?;
    for (who, id) in [(&two, last.as_str()), (&one, "0000000000000000-0"), (&one, "7"), (&one, "x-y")] {
        let refused = resume(who, id).await?;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{id}");
    }
    stage.say(result(&wire, "for one")).await?;
    assert_eq!(events.message().await?["result"]["text"], "for one");
    Ok(())
}

#[tokio::test]
async fn who_cannot_come_back_ends_the_work_by_leaving() -> Result<()> {
    let stage = Stage::new().await?;
    let versed = caller(&stage).await?;
    let older = versed.clone().with("mcp-protocol-version", "2025-06-18");
    let mut sessionless = versed.clone();
    sessionless.session = None;
    for (index, caller) in [older, sessionless].iter().enumerate() {
        let (mut events, wire) = held(&stage, caller, "t").await?;
        stage.say(progress(&wire, 1)).await?;
        assert_eq!(events.message().await?["params"]["progress"], 1, "no event is before it");
        assert_eq!(events.last, None);
        drop(events);
        let reply = stage.until_received("notifications/cancelled", index + 1).await?;
        assert_eq!(reply[index]["params"]["requestId"], wire);
    }
    Ok(())
}

#[tokio::test]
async fn a_session_that_ends_takes_its_streams_along() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = caller(&stage).await?;
    let (mut events, wire) = held(&stage, &caller, "t").await?;
    let last = primed(&mut events).await?;
    drop(events);
    assert_eq!(caller.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::NO_CONTENT);
    assert_eq!(stage.until_received("notifications/cancelled", 1).await?[0]["params"]["requestId"], wire);
    assert_eq!(resume(&caller, &last).await?.status, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn a_client_can_still_cancel() -> Result<()> {
    let stage = Stage::new().await?;
    let caller = caller(&stage).await?;
    let (mut events, wire) = held(&stage, &caller, "t").await?;
    let last = primed(&mut events).await?;
    drop(events);
    caller.tell("notifications/cancelled", json!({ "requestId": "mine" })).await?;
    assert_eq!(stage.until_received("notifications/cancelled", 1).await?[0]["params"]["requestId"], wire);
    let mut again = resume(&caller, &last).await?;
    assert_eq!(again.message().await?["error"]["code"], -32000, "no client resumes it in vain");
    assert!(again.next().await?.is_none());
    Ok(())
}
