use serde_json::{Value, json};
use skep_mcp::{Era, era};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::super::line::Line;
use super::*;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

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
fn ask(upstream: &Arc<StdioUpstream>, tool: &str, is_claimed: bool) -> JoinHandle<Result<usize, CallError>> {
    let (upstream, call) = (upstream.clone(), call(tool));
    tokio::spawn(async move {
        {
            let found = tokio::time::timeout(PATIENCE, upstream.parameters(&call, is_claimed)).await;
            found.unwrap_or(Err(CallError::Timeout)).map(|found| found.len())
        }
    })
}

/// The parameters of the server's next request, which is answered.
async fn answer(upstream: &Arc<StdioUpstream>, queued: &mut mpsc::Receiver<Line>, mut answer: Value) -> Value {
    let line = tokio::time::timeout(PATIENCE, queued.recv()).await.expect("the server is asked").unwrap();
    let asked: Value = serde_json::from_slice(&line.render().unwrap()).unwrap();
    assert_eq!(asked["method"], "tools/list");
    answer["jsonrpc"] = json!("2.0");
    answer["id"] = asked["id"].clone();
    upstream.dispatch(&message(&answer));
    asked["params"].clone()
}

#[tokio::test]
async fn many_calls_at_once_ask_once() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let asked: Vec<_> = (0..10).map(|_| ask(&upstream, "a", true)).collect();
    answer(&upstream, &mut queued, json!({ "result": { "tools": [tool("a")] } })).await;
    for one in asked {
        assert_eq!(one.await.unwrap(), Ok(1));
    }
    assert_eq!(ask(&upstream, "other", false).await.unwrap(), Ok(0));
    assert!(queued.try_recv().is_err());
}

#[tokio::test]
async fn the_server_is_asked_in_its_own_era_and_its_answers_are_learnt_from() {
    for (era, version) in [(Era::Legacy, json!(null)), (Era::Modern, json!(era::MODERN))] {
        let (upstream, mut queued) = StdioUpstream::with_server_of(era);
        let asked = ask(&upstream, "b", true);
        for (cursor, page) in [
            (json!(null), json!({ "tools": [tool("a")], "nextCursor": "more" })),
            (json!("more"), json!({ "tools": [tool("b")] })),
        ] {
            let params = answer(&upstream, &mut queued, json!({ "result": page })).await;
            assert_eq!(params["_meta"]["io.modelcontextprotocol/protocolVersion"], version, "{params}");
            assert_eq!((params.get("_meta").is_some(), &params["cursor"]), (era == Era::Modern, &cursor));
        }
        assert_eq!(asked.await.unwrap(), Ok(1));
        assert_eq!(ask(&upstream, "a", true).await.unwrap(), Ok(1));
        assert!(queued.try_recv().is_err());
    }
}

#[tokio::test]
async fn a_list_that_goes_in_a_circle_ends() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let asked = ask(&upstream, "a", false);
    for cursor in [json!(null), json!("again")] {
        let page = json!({ "result": { "tools": [], "nextCursor": "again" } });
        assert_eq!(answer(&upstream, &mut queued, page).await["cursor"], cursor);
    }
    assert_eq!(asked.await.unwrap(), Ok(0));
}

#[tokio::test]
async fn a_server_that_refuses_has_no_tools_and_is_not_asked_again() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let asked = ask(&upstream, "a", false);
    answer(&upstream, &mut queued, json!({ "error": { "code": -32601, "message": "no" } })).await;
    assert_eq!(asked.await.unwrap(), Ok(0));
    assert_eq!(ask(&upstream, "a", false).await.unwrap(), Ok(0));
    assert!(queued.try_recv().is_err());
}

#[tokio::test]
async fn a_change_while_the_list_is_read_is_not_forgotten() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let asked = ask(&upstream, "a", false);
    answer(&upstream, &mut queued, json!({ "result": { "tools": [], "nextCursor": "more" } })).await;
    upstream.dispatch(&message(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })));
    answer(&upstream, &mut queued, json!({ "result": { "tools": [] } })).await;
    assert_eq!(asked.await.unwrap(), Ok(0));
    let again = ask(&upstream, "a", false);
    answer(&upstream, &mut queued, json!({ "result": { "tools": [tool("a")] } })).await;
    assert_eq!(again.await.unwrap(), Ok(1));
}

#[tokio::test]
async fn a_server_that_goes_fails_the_call() {
    let (upstream, mut queued) = StdioUpstream::with_server();
    let asked = ask(&upstream, "a", false);
    queued.recv().await.unwrap();
    upstream.disconnected(&mut queued);
    assert_eq!(asked.await.unwrap(), Err(CallError::Disconnected));
}
