//! The era bridge in front of servers of each era, over stdio and over HTTP.

mod fake;
mod to_legacy;
mod to_modern;

use std::sync::Arc;

use serde_json::{Value, json};
use skep_mcp::{Era, Message};
use skep_upstream::{BridgedUpstream, Call, CallError, ClientContext, Replies, SessionId, Upstream};
use tokio::sync::mpsc;

use crate::server::{PATIENCE, message, text};
use fake::Over;

const BOTH: [Over; 2] = [Over::Stdio, Over::Http];
const META: &str = "io.modelcontextprotocol/";

/// A request of 2026-07-28. What is in `meta` comes in addition.
fn modern(id: &Value, method: &str, params: &Value, meta: &Value) -> Message {
    let mut all = json!({ format!("{META}protocolVersion"): "2026-07-28", format!("{META}clientCapabilities"): {} });
    all.as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
    let mut params = params.clone();
    params["_meta"] = all;
    message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

fn legacy(id: &Value, method: &str, params: &Value) -> Message {
    message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

fn modern_call(message: Message) -> Call {
    Call { takes_interim: true, ..Call::new(message, Era::Modern) }
}

fn legacy_call(session: &SessionId, message: Message) -> Call {
    Call { takes_interim: true, session: Some(session.clone()), ..Call::new(message, Era::Legacy) }
}

/// The response to a call, and what came before it.
async fn complete(bridge: &Arc<BridgedUpstream>, call: Call) -> Result<(Value, Vec<Value>), CallError> {
    let response = async {
        let Replies { interim, mut response } = bridge.clone().call(call).await?;
        let response = response.response().await?;
        let mut before = Vec::new();
        if let Some(mut interim) = interim {
            while let Ok(message) = interim.try_recv() {
                before.push(text(&message));
            }
        }
        Ok((serde_json::from_slice(response.body()).unwrap(), before))
    };
    tokio::time::timeout(PATIENCE, response).await.expect("it ends in time")
}

async fn answer(bridge: &Arc<BridgedUpstream>, call: Call) -> Value {
    complete(bridge, call).await.unwrap().0
}

/// Opens the session of a legacy client.
async fn open(bridge: &Arc<BridgedUpstream>, name: &str, capabilities: &Value) -> (SessionId, Value) {
    let params = json!({ "protocolVersion": "2025-03-26", "capabilities": capabilities, "clientInfo": { "name": name, "version": "1" } });
    let session = SessionId::from(name);
    let (initialize, client) = (legacy(&json!("open"), "initialize", &params), ClientContext::default());
    let opened = bridge.open(&session, &initialize, &client);
    let opened = tokio::time::timeout(PATIENCE, opened).await.unwrap().unwrap();
    (session, serde_json::from_slice(opened.body()).unwrap())
}

async fn next(queue: &mut mpsc::Receiver<bytes::Bytes>) -> Value {
    let message = tokio::time::timeout(PATIENCE, queue.recv()).await.expect("it comes in time");
    text(&message.expect("the stream is open"))
}

/// A server that serves an era is not translated for: what comes and goes are its own bytes.
#[tokio::test]
async fn what_the_server_serves_itself_passes_through_untouched() {
    for over in BOTH {
        let (bridge, fake) = fake::bridged(over, Era::Modern).await;
        let call = modern(
            &json!(1),
            "tools/call",
            &json!({ "name": "echo", "arguments": {} }),
            &json!({ format!("{META}logLevel"): "info" }),
        );
        let (response, _) = complete(&bridge, modern_call(call)).await.unwrap();
        assert_eq!(response["result"]["_meta"]["kept"], 1);
        let seen = fake.received("tools/call").remove(0).message;
        assert_eq!(seen["params"]["_meta"][format!("{META}logLevel")], "info", "{over:?}");
        let (bridge, fake) = fake::bridged(over, Era::Legacy).await;
        let (session, opened) = open(&bridge, "ann", &json!({ "sampling": {} })).await;
        assert_eq!(opened["result"]["instructions"], "be kind");
        let response = answer(&bridge, legacy_call(&session, legacy(&json!("x"), "tools/list", &json!({})))).await;
        assert_eq!(
            response,
            json!({ "jsonrpc": "2.0", "id": "x", "result": { "tools": [{ "name": "echo", "inputSchema": {} }], "nextCursor": null } })
        );
        assert!(fake.received("server/discover").len() <= 1, "only the probe");
        assert_eq!(bridge.idle_sessions(std::time::Duration::ZERO), [session]);
    }
}
