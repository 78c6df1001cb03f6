use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use skep_mcp::{Message, Raw};
use skep_net::Peer;
use skep_runconfig::RunConfig;

use super::*;
use crate::chain::{Chain, Flow};
use crate::exchange::{Content, Head};
use crate::tool_search::{Ranking, ToolRankings, ToolSearch};

/// A request with these headers, as it goes on.
async fn sent(is_filtered: bool, message: &Value, headers: &[(&str, &str)]) -> Exchange {
    let (flow, exchange) = put_through(is_filtered, message, headers).await;
    assert!(matches!(flow, Flow::Next));
    exchange
}

async fn put_through(is_filtered: bool, message: &Value, headers: &[(&str, &str)]) -> (Flow, Exchange) {
    let authz = r#","authz_config":{"version":"1.0","type":"cedarv1","cedar":{"policies":["permit(principal, action, resource);"]}}"#;
    let config = format!(r#"{{"optimizer":true{}}}"#, if is_filtered { authz } else { "" });
    let chain = Chain::new(&RunConfig::from_slice(config.as_bytes()).unwrap(), &Context::default()).unwrap();
    let mut request = Request::builder().method("POST").uri("/mcp").header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let mut head = Head::new(parts, Peer { address: ([127, 0, 0, 1], 1).into(), tls: false });
    assert!(matches!(chain.head(&mut head).await, Flow::Next));
    let message = Message::parse(Bytes::from(message.to_string())).unwrap();
    let mut exchange = Exchange::new(head, Content::Message(message));
    let flow = chain.message(&mut exchange).await;
    (flow, exchange)
}

fn request(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

fn body(exchange: &Exchange) -> Value {
    serde_json::from_slice(exchange.message().unwrap().body()).unwrap()
}

async fn reply(exchange: &mut Exchange, result: &str) -> Value {
    let id = exchange.id().unwrap();
    let reply = Message::response(&id, &Raw::parse(result).unwrap()).unwrap();
    serde_json::from_slice(exchange.reply_chain().reply(reply).await.unwrap().body()).unwrap()
}

#[tokio::test]
async fn what_goes_on_is_what_is_decided_about_and_headers_say_the_same() {
    let call = json!({ "name": "call_tool", "arguments": { "tool_name": "delete", "parameters": { "n": 1 } }, "_meta": { "progressToken": 5 } });
    let headers = [("mcp-method", "tools/call"), ("mcp-name", "call_tool")];
    let exchange = sent(true, &request("tools/call", &call), &headers).await;
    let expected = json!({ "name": "delete", "arguments": { "n": 1 }, "_meta": { "progressToken": 5 } });
    assert_eq!(body(&exchange)["params"], expected);
    assert_eq!(exchange.resource().unwrap(), "delete");
    assert_eq!(exchange.head.headers["mcp-name"], "delete");
    let find = json!({ "name": "find_tool", "arguments": { "tool_description": "x", "tool_keywords": ["y"] } });
    let headers = [("mcp-method", "tools/call"), ("mcp-name", "find_tool")];
    for is_filtered in [false, true] {
        let exchange = sent(is_filtered, &request("tools/call", &find), &headers).await;
        assert_eq!(exchange.mcp_method(), Some("tools/list"));
        assert_eq!(
            (&exchange.head.headers["mcp-method"], exchange.head.headers.get("mcp-name")),
            (&"tools/list".parse().unwrap(), None)
        );
        let search = ToolSearch::of(exchange.message().unwrap()).unwrap();
        let description = Some("x".to_owned());
        assert_eq!(search, ToolSearch { description, keywords: vec!["y".to_owned()], lists_all: is_filtered });
    }
    let other = request("tools/call", &json!({ "name": "other" }));
    assert_eq!(body(&sent(true, &other, &[]).await), other);
}

#[tokio::test]
async fn headers_that_say_something_else_than_the_call_are_refused() {
    let call = request("tools/call", &json!({ "name": "call_tool", "arguments": { "tool_name": "delete" } }));
    for headers in [("mcp-name", "delete"), ("mcp-method", "tools/list")] {
        let (flow, _) = put_through(true, &call, &[headers]).await;
        assert!(matches!(flow, Flow::Answer(response) if response.status() == StatusCode::BAD_REQUEST), "{headers:?}");
    }
}

/// A client cannot write a search itself: it would learn what was ranked, and not only what it may see.
#[tokio::test]
async fn a_search_in_a_list_of_a_client_is_replaced() {
    let own = json!({ "_meta": { "skep/search": { "description": "x", "lists_all": true } }, "cursor": "c" });
    let mut exchange = sent(false, &request("tools/list", &own), &[]).await;
    assert_eq!(ToolSearch::of(exchange.message().unwrap()), Some(ToolSearch::default()));
    assert_eq!(body(&exchange)["params"].get("cursor"), None);
    let listed = r#"{"tools":[{"name":"a"}],"nextCursor":"c","_meta":{"skep/rankings":{},"x":1},"ttlMs":0}"#;
    let listed = reply(&mut exchange, listed).await;
    let names: Vec<_> = listed["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["call_tool", "find_tool"]);
    assert_eq!((&listed["result"]["_meta"], listed["result"].get("nextCursor")), (&json!({ "x": 1 }), None));
}

#[tokio::test]
async fn what_was_ranked_and_is_not_listed_is_not_returned() {
    let find = json!({ "name": "find_tool", "arguments": { "tool_description": "x" } });
    let mut exchange = sent(false, &request("tools/call", &find), &[]).await;
    let ranking = |names: &[&str]| Ranking { names: names.iter().map(|name| (*name).to_owned()).collect(), most: 1 };
    let rankings =
        ToolRankings { semantic: ranking(&["hidden", "b"]), keywords: ranking(&["a"]), all_bytes: Some(400) };
    let (member, rankings) = rankings.to_member();
    let tools = r#"[{"name":"a"},{"name":"b","n":12345678901234567890}]"#;
    let found =
        reply(&mut exchange, &format!(r#"{{"tools":{tools},"_meta":{{"{member}":{}}}}}"#, rankings.as_str())).await;
    let content = &found["result"]["structuredContent"];
    assert_eq!((&content["tools"][0]["name"], &content["tools"][1]["name"]), (&json!("b"), &json!("a")));
    assert_eq!(content["tools"][0]["n"], json!(12_345_678_901_234_567_890_u64));
    assert_eq!(content["token_metrics"]["baseline_tokens"], 100);
    assert!(!found.to_string().contains("hidden"), "{found}");
}

#[tokio::test]
async fn a_server_that_does_not_search_is_an_error_of_the_tool() {
    let find = json!({ "name": "find_tool", "arguments": { "tool_description": "x" } });
    let mut exchange = sent(false, &request("tools/call", &find), &[]).await;
    let found = reply(&mut exchange, r#"{"tools":[{"name":"a"}]}"#).await;
    assert_eq!(found["result"]["isError"], true);
    assert_eq!(found["result"]["content"][0]["text"], "find_tool failed: the server cannot search its tools");
}
