use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use skep_mcp::{Era, Message};
use skep_net::Peer;
use skep_proxy::chain::{Chain, Context, Flow};
use skep_proxy::exchange::{Content, Exchange, Head};
use skep_runconfig::RunConfig;
use skep_upstream::memory::{MemoryUpstream, Received};
use skep_upstream::{Call, ClientContext, Upstream, UpstreamState};

use super::*;
use crate::aggregate::BackendName;
use crate::backend::{Backend, BackendSpec, TIMEOUT};
use crate::backends::Backends;
use crate::catalogue::{Catalogue, Item};
use crate::config::Config;
use crate::credentials::Strategy as Credentials;
use crate::offer::Viewer;
use crate::upstream::{Extras, ServerInfo, VirtualUpstream};
use crate::view::{Cursors, Views};

/// A virtual server over backends that answer every call by the name of what was called.
struct Served {
    upstream: Arc<VirtualUpstream>,
    chain: Chain,
    era: Era,
}

fn spec(name: &str) -> BackendSpec {
    BackendSpec {
        name: name.into(),
        url: "http://backend".to_owned(),
        transport: skep_upstream::http::Transport::StreamableHttp,
        auth_type: "unauthenticated".to_owned(),
        auth_config_ref: None,
        strategy: Credentials::None,
        headers: http::HeaderMap::new(),
        addresses: Addresses::Machine,
        ca_bundle: None,
        timeout: TIMEOUT,
        metadata: BTreeMap::new(),
        digest: [0; 32],
    }
}

fn backend(name: &str, tools: &[(&str, &str)]) -> Arc<Backend> {
    let (upstream, mut received) = MemoryUpstream::new(UpstreamState::ready(skep_mcp::Eras::Both));
    tokio::spawn(async move {
        while let Some(received) = received.recv().await {
            let Received::Call(call) = received else { continue };
            let params: Value = serde_json::from_slice(call.call.params().unwrap()).unwrap();
            let id = call.call.id().unwrap();
            let result = json!({ "content": [{ "type": "text", "text": params.to_string() }] });
            let response = Message::response(&id, &Raw::value(&result)).unwrap();
            // The test may have ended.
            let _sent = call.response.send(Ok(Box::new(response)));
        }
    });
    let backend = Backend::over(spec(name), upstream);
    let tool = |(name, description): &(&str, &str)| {
        let tool = json!({ "name": name, "description": description, "inputSchema": { "type": "object" } });
        Item::parse(List::Tools, &tool.to_string()).unwrap()
    };
    let catalogue = Catalogue { tools: tools.iter().map(tool).collect(), ..Catalogue::default() };
    backend.offers.take(Viewer::Anyone, catalogue);
    backend
}

impl Served {
    fn start(tools: &[(&str, &str)], config: &str, chain: &Value) -> Self {
        let text = format!(
            "name: v\ngroupRef: g\nincomingAuth: {{type: anonymous}}\noutgoingAuth: {{source: inline}}\n\
             backends: [{{name: b, url: 'http://b', transport: streamable-http}}]\n\
             aggregation: {{conflictResolution: prefix, conflictResolutionConfig: {{prefixFormat: '{{workload}}_'}}}}\n{config}"
        );
        let config = Config::from_yaml(&text).unwrap();
        let backends = Backends::new(None);
        backends.replace([(BackendName::from("b"), backend("b", tools))].into());
        let views = Views::new(config.rules(), config.composite_tools().unwrap());
        let optimizer = config.document().optimizer.as_ref().map(|settings| {
            Optimizer::new(settings, &BTreeMap::new(), Addresses::Machine, VirtualMetrics::default()).unwrap()
        });
        let extras = Extras { optimizer, ..Extras::default() };
        let upstream = VirtualUpstream::with(ServerInfo::default(), backends, views, Cursors::new(b"key"), extras);
        let mut document = config.run_config("127.0.0.1", 0, &mut BTreeMap::new()).unwrap();
        document.authz_config =
            RunConfig::from_slice(json!({ "authz_config": chain }).to_string().as_bytes()).unwrap().authz_config;
        let chain = Chain::new(&document, &Context { server: "v".to_owned(), ..Context::default() }).unwrap();
        Self { upstream, chain, era: Era::Legacy }
    }

    /// What a client gets for a request: an HTTP status if the chain answers, or else the response.
    async fn ask(&self, method: &str, params: &Value) -> Result<Value, u16> {
        let mut params = params.clone();
        if self.era == Era::Modern {
            params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
        }
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let request = http::Request::builder().method("POST").uri("/mcp").header("content-type", "application/json");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut head = Head::new(parts, Peer { address: ([127, 0, 0, 1], 1).into(), tls: false });
        assert!(matches!(self.chain.head(&mut head).await, Flow::Next));
        let mut exchange = Exchange::new(head, Content::Message(Message::parse(Bytes::from(body)).unwrap()));
        if let Flow::Answer(response) = self.chain.message(&mut exchange).await {
            return Err(response.status().as_u16());
        }
        let client = ClientContext { caller: exchange.head.caller.clone(), ..ClientContext::default() };
        let call = Call { client, ..Call::new(exchange.message().unwrap().clone(), self.era) };
        let mut replies = self.upstream.clone().call(call).await.unwrap();
        let response = replies.response.response().await.unwrap();
        let reply = exchange.reply_chain().reply(response).await.unwrap();
        Ok(serde_json::from_slice(reply.body()).unwrap())
    }

    async fn listed(&self) -> BTreeSet<String> {
        names(&self.ask("tools/list", &json!({})).await.unwrap()["result"]["tools"])
    }

    async fn find(&self, arguments: Value) -> Value {
        self.ask("tools/call", &json!({ "name": "find_tool", "arguments": arguments })).await.unwrap()["result"].clone()
    }

    async fn call(&self, arguments: Value) -> Result<Value, u16> {
        Ok(self.ask("tools/call", &json!({ "name": "call_tool", "arguments": arguments })).await?["result"].clone())
    }
}

fn names(tools: &Value) -> BTreeSet<String> {
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

const TOOLS: [(&str, &str); 4] = [
    ("create_issue", "Create an issue in a repository"),
    ("list_issues", "List the issues of a repository"),
    ("forecast", "The weather of a city"),
    ("send", "Send a message to a channel"),
];
const OPTIMIZER: &str = "optimizer: {maxToolsToReturn: 2}\n";

#[tokio::test]
async fn clients_of_both_eras_see_two_tools_and_find_the_others() {
    for era in [Era::Legacy, Era::Modern] {
        let served = Served { era, ..Served::start(&TOOLS, OPTIMIZER, &Value::Null) };
        assert_eq!(served.listed().await, ["call_tool".to_owned(), "find_tool".to_owned()].into());
        let found = served.find(json!({ "tool_description": "creating issues" })).await;
        let structured = &found["structuredContent"];
        assert_eq!(structured["tools"][0]["name"], "b_create_issue", "{found}");
        assert_eq!(names(&structured["tools"]).len(), 2);
        assert_eq!(serde_json::from_str::<Value>(text(&found)).unwrap(), *structured);
        assert_eq!(found.get("resultType").is_some(), era == Era::Modern);
        let metrics = &structured["token_metrics"];
        assert!(metrics["baseline_tokens"].as_u64() > metrics["returned_tokens"].as_u64(), "{metrics}");
        assert!(metrics["savings_percent"].as_f64().unwrap() > 0.0);
        let by_keywords = served.find(json!({ "tool_description": "x", "tool_keywords": ["weather"] })).await;
        assert_eq!(names(&by_keywords["structuredContent"]["tools"]), ["b_forecast".to_owned()].into());
        let called = served
            .call(json!({ "tool_name": "b_send", "parameters": { "to": 1e3, "n": 9_007_199_254_740_993_i64 } }))
            .await;
        let sent: Value = serde_json::from_str(text(&called.unwrap())).unwrap();
        assert_eq!(sent["name"], "send", "the backend knows nothing of the optimizer");
        assert_eq!(sent["arguments"]["n"], 9_007_199_254_740_993_i64);
    }
}

#[tokio::test]
async fn a_name_among_the_arguments_is_found_and_no_argument_is_needed() {
    let served = Served::start(&TOOLS, OPTIMIZER, &Value::Null);
    for (arguments, expected) in [
        (json!({ "parameters": { "tool_name": "b_send", "to": "x" } }), json!({ "to": "x" })),
        (json!({ "tool_name": "b_send", "parameters": { "tool_name": "mine" } }), json!({ "tool_name": "mine" })),
        (json!({ "tool_name": "b_send" }), json!({})),
        (json!({ "tool_name": "b_send", "parameters": null }), json!({})),
    ] {
        let called = served.call(arguments).await.unwrap();
        let sent: Value = serde_json::from_str(text(&called)).unwrap();
        assert_eq!((&sent["name"], &sent["arguments"]), (&json!("send"), &expected));
    }
}

#[tokio::test]
async fn what_cannot_be_found_or_called_is_an_error_of_the_tool() {
    let served = Served::start(&TOOLS, OPTIMIZER, &Value::Null);
    for (arguments, problem) in [
        (json!({}), "tool_description is required"),
        (json!({ "tool_description": " " }), "tool_description is required"),
        (json!({ "tool_description": 1 }), "invalid arguments: tool_description must be a string"),
        (json!({ "tool_description": "a".repeat(5000) }), "invalid arguments: tool_description has 5000 bytes"),
        (json!({ "tool_description": "a", "tool_keywords": "b" }), "invalid arguments: tool_keywords must be an array"),
        (
            json!({ "tool_description": "a", "tool_keywords": vec!["b"; 65] }),
            "invalid arguments: tool_keywords has more",
        ),
    ] {
        let result = served.find(arguments).await;
        assert!(result["isError"] == true && text(&result).starts_with(problem), "{problem}: {result}");
    }
    for (arguments, problem) in [
        (json!({}), "invalid arguments: tool_name is required"),
        (json!({ "tool_name": "b_send", "parameters": [] }), "invalid arguments: parameters must be an object"),
        (json!({ "tool_name": "nothing" }), "tool not found: nothing"),
        (json!({ "tool_name": "send" }), "tool not found: send"),
        (json!({ "tool_name": "call_tool", "parameters": { "tool_name": "b_send" } }), "tool not found: call_tool"),
        (json!({ "tool_name": "find_tool" }), "tool not found: find_tool"),
    ] {
        let result = served.call(arguments).await.unwrap();
        assert!(result["isError"] == true && text(&result) == problem, "{problem}: {result}");
    }
    let nothing = served.find(json!({ "tool_description": "zzz" })).await;
    assert_eq!(nothing["structuredContent"]["tools"], json!([]));
}

#[tokio::test]
async fn composite_tools_are_found_and_hidden_ones_are_not() {
    let config = "optimizer: {}\ncompositeTools:\n  - name: both\n    description: forecast for a repository\n    steps: [{id: a, tool: b_forecast}]\n";
    let served = Served::start(&TOOLS, config, &Value::Null);
    let found = served.find(json!({ "tool_description": "forecast" })).await;
    assert_eq!(names(&found["structuredContent"]["tools"]), ["b_forecast".to_owned(), "both".to_owned()].into());
    assert!(served.call(json!({ "tool_name": "both" })).await.unwrap()["structuredContent"].is_object());
    let hidden = Served::start(&TOOLS, "optimizer: {}\n", &Value::Null);
    let all = hidden.find(json!({ "tool_description": "issue weather message" })).await;
    assert_eq!(names(&all["structuredContent"]["tools"]).len(), 4);
}

#[tokio::test]
async fn a_tool_with_the_name_of_one_of_the_two_is_left_out() {
    let config =
        "optimizer: {}\ncompositeTools:\n  - {name: call_tool, description: weather, steps: [{id: a, tool: b_x}]}\n";
    let served = Served::start(&[("find_tool", "find weather"), ("x", "weather")], config, &Value::Null);
    let found = served.find(json!({ "tool_description": "weather" })).await;
    assert_eq!(names(&found["structuredContent"]["tools"]), ["b_find_tool".to_owned(), "b_x".to_owned()].into());
    let itself = served.call(json!({ "tool_name": "call_tool" })).await.unwrap();
    assert_eq!(text(&itself), "tool not found: call_tool");
}

#[test]
fn the_part_that_is_found_by_meaning_is_rounded() {
    for (most, ratio, expected) in
        [(8, 0.5, 4), (8, 0.0, 0), (8, 1.0, 8), (5, 0.5, 3), (3, 0.1, 0), (3, 0.2, 1), (50, 0.33, 17)]
    {
        assert_eq!(part(most, ratio), expected, "{most} {ratio}");
    }
}

const LETTERS: [(&str, &str); 6] =
    [("a", "thing"), ("b", "thing"), ("c", "thing"), ("d", "thing"), ("e", "thing"), ("f", "thing")];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What a client may list without the optimizer is what it finds and what it calls with it, whatever the policies are.
    #[test]
    fn lists_searches_and_calls_never_disagree(
        permitted in prop::collection::btree_set(0_usize..LETTERS.len(), 0..=LETTERS.len()),
        forbidden in prop::collection::btree_set(0_usize..LETTERS.len(), 0..3),
        is_modern: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let policy = |effect: &str, index: &usize| {
                format!(r#"{effect}(principal, action, resource == Tool::"b_{}");"#, LETTERS[*index].0)
            };
            let policies = permitted.iter().map(|index| policy("permit", index));
            let policies = policies.chain(forbidden.iter().map(|index| policy("forbid", index)));
            // Something that is about none of them: there must be a policy.
            let policies: Vec<String> = policies.chain([r#"permit(principal, action, resource == Tool::"none");"#.to_owned()]).collect();
            let authz = json!({ "version": "1.0", "type": "cedarv1", "cedar": { "policies": policies, "entities_json": "[]" } });
            let era = if is_modern { Era::Modern } else { Era::Legacy };
            let plain = Served { era, ..Served::start(&LETTERS, "", &authz) };
            let optimized = Served { era, ..Served::start(&LETTERS, "optimizer: {maxToolsToReturn: 50}\n", &authz) };
            let listed = plain.listed().await;
            let found = optimized.find(json!({ "tool_description": "thing" })).await;
            assert_eq!(names(&found["structuredContent"]["tools"]), listed);
            let metrics = &found["structuredContent"]["token_metrics"];
            assert!(metrics["baseline_tokens"].as_u64().unwrap() <= metrics["returned_tokens"].as_u64().unwrap() + 2, "{metrics}");
            let mut callable = BTreeSet::new();
            for (name, _) in LETTERS {
                let name = format!("b_{name}");
                match optimized.call(json!({ "tool_name": name })).await {
                    Ok(_) => drop(callable.insert(name)),
                    Err(status) => assert_eq!(status, 403),
                }
            }
            assert_eq!(callable, listed);
        });
    }
}
