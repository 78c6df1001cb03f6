use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::super::bridge::Line;
use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn call(tool: &str) -> Message {
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": era::MODERN, "io.modelcontextprotocol/clientCapabilities": {} });
    let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
    message(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
}

fn message(value: &Value) -> Message {
    Message::parse(value.to_string().into()).unwrap()
}

fn tool(name: &str) -> Value {
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    json!({ "name": name, "inputSchema": { "type": "object", "properties": { "region": region } } })
}

/// Asks how many arguments of a tool are repeated.
fn ask(bridge: &Arc<Bridge>, tool: &str, is_claimed: bool) -> JoinHandle<Result<usize, Failed>> {
    let (bridge, call) = (bridge.clone(), call(tool));
    tokio::spawn(async move { bridge.parameters(&call, is_claimed, PATIENCE).await.map(|found| found.len()) })
}

/// The parameters of the server's next request, which is answered.
async fn answer(bridge: &Arc<Bridge>, queued: &mut mpsc::Receiver<Line>, mut answer: Value) -> Value {
    let line = tokio::time::timeout(PATIENCE, queued.recv()).await.expect("the server is asked").unwrap();
    let asked: Value = serde_json::from_slice(&line.bytes).unwrap();
    assert_eq!(asked["method"], "tools/list");
    answer["jsonrpc"] = json!("2.0");
    answer["id"] = asked["id"].clone();
    bridge.dispatch(&message(&answer));
    asked["params"].clone()
}

#[tokio::test]
async fn many_calls_at_once_ask_once() {
    let (bridge, mut queued) = Bridge::with_server();
    let asked: Vec<_> = (0..10).map(|_| ask(&bridge, "a", true)).collect();
    answer(&bridge, &mut queued, json!({ "result": { "tools": [tool("a")] } })).await;
    for one in asked {
        assert_eq!(one.await.unwrap(), Ok(1));
    }
    assert_eq!(ask(&bridge, "other", false).await.unwrap(), Ok(0));
    assert!(queued.try_recv().is_err());
}

#[tokio::test]
async fn the_server_is_asked_in_its_own_era_and_its_answers_are_learnt_from() {
    for (era, version) in [(Era::Legacy, json!(null)), (Era::Modern, json!(era::MODERN))] {
        let (bridge, mut queued) = Bridge::with_server_of(era);
        let asked = ask(&bridge, "b", true);
        for (cursor, page) in [
            (json!(null), json!({ "tools": [tool("a")], "nextCursor": "more" })),
            (json!("more"), json!({ "tools": [tool("b")] })),
        ] {
            let params = answer(&bridge, &mut queued, json!({ "result": page })).await;
            assert_eq!(params["_meta"]["io.modelcontextprotocol/protocolVersion"], version, "{params}");
            assert_eq!((params.get("_meta").is_some(), &params["cursor"]), (era == Era::Modern, &cursor));
        }
        assert_eq!(asked.await.unwrap(), Ok(1));
        assert_eq!(ask(&bridge, "a", true).await.unwrap(), Ok(1));
        assert!(queued.try_recv().is_err());
    }
}

#[tokio::test]
async fn a_list_that_goes_in_a_circle_ends() {
    let (bridge, mut queued) = Bridge::with_server();
    let asked = ask(&bridge, "a", false);
    for cursor in [json!(null), json!("again")] {
        let page = json!({ "result": { "tools": [], "nextCursor": "again" } });
        assert_eq!(answer(&bridge, &mut queued, page).await["cursor"], cursor);
    }
    assert_eq!(asked.await.unwrap(), Ok(0));
}

#[tokio::test]
async fn a_server_that_refuses_has_no_tools_and_is_not_asked_again() {
    let (bridge, mut queued) = Bridge::with_server();
    let asked = ask(&bridge, "a", false);
    answer(&bridge, &mut queued, json!({ "error": { "code": -32601, "message": "no" } })).await;
    assert_eq!(asked.await.unwrap(), Ok(0));
    assert_eq!(ask(&bridge, "a", false).await.unwrap(), Ok(0));
    assert!(queued.try_recv().is_err());
}

#[tokio::test]
async fn a_change_while_the_list_is_read_is_not_forgotten() {
    let (bridge, mut queued) = Bridge::with_server();
    let asked = ask(&bridge, "a", false);
    answer(&bridge, &mut queued, json!({ "result": { "tools": [], "nextCursor": "more" } })).await;
    bridge.dispatch(&message(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })));
    answer(&bridge, &mut queued, json!({ "result": { "tools": [] } })).await;
    assert_eq!(asked.await.unwrap(), Ok(0));
    let again = ask(&bridge, "a", false);
    answer(&bridge, &mut queued, json!({ "result": { "tools": [tool("a")] } })).await;
    assert_eq!(again.await.unwrap(), Ok(1));
}

#[tokio::test]
async fn a_server_that_goes_fails_the_call() {
    let (bridge, mut queued) = Bridge::with_server();
    let asked = ask(&bridge, "a", false);
    queued.recv().await.unwrap();
    bridge.disconnected(&mut queued);
    assert_eq!(asked.await.unwrap(), Err(Failed::Gone));
}

#[test]
fn so_many_tools_are_remembered() {
    let catalogue = Catalogue::default();
    let tools: Vec<Value> = (0..=TOOLS).map(|index| tool(&index.to_string())).collect();
    catalogue.learn(&message(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": tools } })));
    assert_eq!(catalogue.with(|known| known.tools.len()), TOOLS);
    // Those that are known are renewed.
    let changed = json!({ "name": "0", "inputSchema": {} });
    catalogue.learn(&message(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [changed] } })));
    assert_eq!(catalogue.find("0", true).unwrap().len(), 0);
}
