//! Lists and calls of clients, with generated policies, claims and annotations.

use std::cell::Cell;
use std::pin::Pin;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use skep_auth::Caller;
use skep_mcp::list::List;
use skep_net::Peer;
use skep_runconfig::RunConfig;
use skep_upstream::{BackendNames, BoxFuture, ItemOwner};

use super::*;
use crate::chain::{Chain, ToolSource};
use crate::exchange::{Content, Head};

/// How many servers are generated.
const SERVERS: u32 = 150;

const CONDITIONS: &[&str] = &[
    "true",
    "resource has readOnlyHint && resource.readOnlyHint",
    "resource has destructiveHint && resource.destructiveHint",
    "!(resource has idempotentHint)",
    "resource.openWorldHint",
    r#"principal in THVGroup::"dev""#,
    r#"principal.claim_email like "*@example.com""#,
    "principal has claim_level && principal.claim_level.greaterThan(decimal(\"3.0\"))",
    r#"resource.name like "a*""#,
    r#"resource has uri && resource.uri like "file:///a*""#,
    "context has arg_city",
    r#"context.claim_sub == "ada""#,
    "context == {}",
    r#"Tool::"a1" has readOnlyHint"#,
];
const SCOPES: &[&str] = &[
    "principal, action, resource",
    r#"principal, action == Action::"call_tool", resource"#,
    r#"principal == Client::"ada", action, resource"#,
    r#"principal, action in [Action::"get_prompt", Action::"read_resource"], resource"#,
    r#"principal, action, resource == Tool::"a1""#,
    r#"principal, action, resource in MCP::"srv""#,
];
/// The lists of a server: the method, the member, the key of an element, the method that uses one, and where it is named there.
const KINDS: &[(&str, &str, &str, &str, &str)] = &[
    ("tools/list", "tools", "name", "tools/call", "name"),
    ("prompts/list", "prompts", "name", "prompts/get", "name"),
    ("resources/list", "resources", "uri", "resources/read", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate", "resources/read", "uri"),
];

/// A server, by the elements of its lists.
#[derive(Clone, Debug)]
struct Server(Vec<Vec<Value>>);

impl Server {
    fn reply(&self, message: &Message) -> Option<Message> {
        let method = message.method()?;
        let index = KINDS.iter().position(|(list, ..)| *list == method)?;
        let id: Value = serde_json::from_str(message.id()?.raw()).unwrap();
        let reply = json!({ "jsonrpc": "2.0", "id": id, "result": { KINDS[index].1: self.0[index] } });
        Message::parse(Bytes::from(reply.to_string())).ok()
    }
}

/// Servers that describe themselves to each client differently.
#[derive(Clone, Debug)]
struct PerClient([(Map<String, Value>, Server); 2]);

impl ToolSource for PerClient {
    fn request(&self, exchange: Exchange, _: usize) -> Pin<Box<dyn Future<Output = Option<Message>> + Send + '_>> {
        Box::pin(async move {
            let claims = &exchange.head.caller.as_ref()?.claims;
            let (_, server) = self.0.iter().find(|(client, _)| *client == **claims)?;
            server.reply(exchange.message()?)
        })
    }
}

impl ToolSource for Server {
    fn request(&self, exchange: Exchange, _: usize) -> Pin<Box<dyn Future<Output = Option<Message>> + Send + '_>> {
        Box::pin(async move { self.reply(exchange.message()?) })
    }
}

/// Several servers behind one. What belongs to one of them has its name before a `:`.
#[derive(Debug)]
struct Servers;

impl BackendNames for Servers {
    fn owner(&self, _list: List, name: &str) -> ItemOwner {
        name.split_once(':').map_or(ItemOwner::Unknown, |(server, _)| ItemOwner::Backend(server.into()))
    }
}

impl ToolSource for Servers {
    fn request(&self, _: Exchange, _: usize) -> Pin<Box<dyn Future<Output = Option<Message>> + Send + '_>> {
        Box::pin(std::future::ready(None))
    }

    fn is_composed(&self) -> bool {
        true
    }

    fn backend_names<'a>(&'a self, _: &'a Exchange) -> BoxFuture<'a, Option<Arc<dyn BackendNames>>> {
        let names: Arc<dyn BackendNames> = Arc::new(Self);
        Box::pin(std::future::ready(Some(names)))
    }
}

fn exchange(claims: &Map<String, Value>, method: &str, params: &Value) -> Exchange {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let request = Request::builder().method("POST").uri("/mcp").header("content-type", "application/json");
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let mut head = Head::new(parts, Peer { address: ([127, 0, 0, 1], 1).into(), tls: false });
    let caller = Caller::local(claims.get("sub").and_then(Value::as_str).unwrap(), 0);
    head.caller = Some(Caller { claims: Arc::new(claims.clone()), ..caller });
    Exchange::new(head, Content::Message(Message::parse(Bytes::from(body)).unwrap()))
}

fn chain(policies: &[String], entities: &Value, server: impl ToolSource + 'static) -> Chain {
    let cedar = json!({ "policies": policies, "entities_json": entities.to_string() });
    let parameters = json!({ "config_data": { "version": "1.0", "type": "cedarv1", "cedar": cedar } });
    let config =
        json!({ "name": "srv", "middleware_configs": [{ "type": "authorization", "parameters": parameters }] });
    let config = RunConfig::from_slice(config.to_string().as_bytes()).unwrap();
    let chain = Chain::new(&config, &Context { server: "srv".to_owned(), ..Context::default() }).unwrap();
    chain.connect(Arc::new(server));
    chain
}

/// The names that a client sees in a list.
async fn seen(chain: &Chain, claims: &Map<String, Value>, server: &Server, index: usize) -> Vec<String> {
    let (list, member, key, ..) = KINDS[index];
    let mut exchange = exchange(claims, list, &json!({}));
    assert!(matches!(chain.message(&mut exchange).await, Flow::Next));
    let reply = server.reply(exchange.message().unwrap()).unwrap();
    let reply = exchange.reply_chain().reply(reply).await.unwrap();
    let reply: Value = serde_json::from_slice(reply.body()).unwrap();
    reply["result"][member].as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

async fn is_called(chain: &Chain, claims: &Map<String, Value>, index: usize, name: &str) -> bool {
    let (.., method, place) = KINDS[index];
    matches!(chain.message(&mut exchange(claims, method, &json!({ place: name }))).await, Flow::Next)
}

fn policies() -> impl Strategy<Value = Vec<String>> {
    let effect = prop_oneof![2 => Just("permit"), 1 => Just("forbid")];
    let policy = (effect, select(SCOPES), select(CONDITIONS), select(&["when", "unless"][..]));
    let policy =
        policy.prop_map(|(effect, scope, condition, word)| format!("{effect}({scope}) {word} {{ {condition} }};"));
    prop::collection::vec(policy, 1..5)
}

fn claims() -> impl Strategy<Value = Map<String, Value>> {
    let subject = select(vec!["ada", "bob"]);
    (subject, any::<bool>(), any::<bool>(), prop::option::of(0..6)).prop_map(|(subject, is_dev, has_mail, level)| {
        let mut claims = Map::from_iter([("sub".to_owned(), json!(subject))]);
        claims.extend(is_dev.then(|| ("groups".to_owned(), json!(["dev"]))));
        claims.extend(has_mail.then(|| ("email".to_owned(), json!("x@example.com"))));
        claims.extend(level.map(|level| ("level".to_owned(), json!(level))));
        claims
    })
}

fn server() -> impl Strategy<Value = Server> {
    let hints = prop::collection::btree_map(select(&skep_authz::query::HINTS[..]), any::<bool>(), 0..4);
    let element = (select(vec!["a1", "a2", "b1", "b2", "a1"]), prop::option::of(hints));
    let elements = prop::collection::vec(element, 0..5);
    prop::collection::vec(elements, KINDS.len()).prop_map(|lists| {
        let named = |index: usize, name: &str| if index < 2 { name.to_owned() } else { format!("file:///{name}") };
        let lists = lists.into_iter().enumerate().map(|(index, elements)| {
            let elements = elements.into_iter().map(|(name, hints)| match hints {
                None => json!({ KINDS[index].2: named(index, name) }),
                Some(hints) => json!({ KINDS[index].2: named(index, name), "annotations": hints }),
            });
            elements.collect()
        });
        Server(lists.collect())
    })
}

fn entities() -> impl Strategy<Value = Value> {
    let tool = json!({"uid": {"type": "Tool", "id": "a1"}, "attrs": {"readOnlyHint": true}, "parents": [{"type": "Tool", "id": "b1"}]});
    let group = json!({"uid": {"type": "THVGroup", "id": "dev"}, "parents": [{"type": "Team", "id": "x"}]});
    select(vec![json!([]), json!([group]), json!([tool, group])])
}

/// What a client sees in a list, it may call, and nothing else: whether the call comes before the list or after it, and whatever the server
/// tells another client of the same tools in between.
#[test]
fn a_list_and_a_call_never_disagree() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: SERVERS, ..Config::default() });
    let (allowed, denied) = (Cell::new(0), Cell::new(0));
    let clients = (claims(), claims(), server(), server());
    let result = runner.run(&(policies(), clients, entities()), |(policies, clients, entities)| {
        let (mut ada, mut bob, of_ada, of_bob) = clients;
        ada.insert("sub".to_owned(), json!("ada"));
        bob.insert("sub".to_owned(), json!("bob"));
        let servers = PerClient([(ada, of_ada), (bob, of_bob)]);
        for is_called_first in [true, false] {
            let chain = chain(&policies, &entities, servers.clone());
            for index in 0..KINDS.len() {
                let names = |server: &Server| -> Vec<String> {
                    server.0[index].iter().map(|element| element[KINDS[index].2].as_str().unwrap().to_owned()).collect()
                };
                let calls = |(claims, server): &(Map<String, Value>, Server)| -> Vec<bool> {
                    let call = |name: &String| runtime.block_on(is_called(&chain, claims, index, name));
                    names(server).iter().map(call).collect()
                };
                let lists = |(claims, server): &(Map<String, Value>, Server)| {
                    runtime.block_on(seen(&chain, claims, server, index))
                };
                let (called, seen) = if is_called_first {
                    let called = servers.0.each_ref().map(calls);
                    (called, servers.0.each_ref().map(lists))
                } else {
                    let seen = servers.0.each_ref().map(lists);
                    (servers.0.each_ref().map(calls), seen)
                };
                for (((_, server), called), seen) in servers.0.iter().zip(called).zip(seen) {
                    for (is_allowed, name) in called.into_iter().zip(names(server)) {
                        let (list, is_seen) = (KINDS[index].0, seen.contains(&name));
                        prop_assert_eq!(is_allowed, is_seen, "{} {:?} {}", list, name, is_called_first);
                        let count = if is_allowed { &allowed } else { &denied };
                        count.set(count.get() + 1);
                    }
                }
            }
        }
        Ok(())
    });
    result.unwrap();
    assert!(allowed.get().min(denied.get()) > 100, "{allowed:?} {denied:?}");
}

#[tokio::test]
async fn the_policies_that_let_a_request_through_are_noted_for_the_audit_log() {
    let policies = [
        "\n// Nobody may wipe.\nforbid(principal, action, resource == Tool::\"wipe\");".to_owned(),
        "permit(principal == Client::\"bob\", action, resource);\n\n@id(\"all tools\")\npermit(principal, action == Action::\"call_tool\", resource);".to_owned(),
    ];
    let chain = chain(&policies, &json!([]), Server(Vec::new()));
    let claims = Map::from_iter([("sub".to_owned(), json!("ada"))]);
    let mut allowed = exchange(&claims, "tools/call", &json!({ "name": "a" }));
    assert!(matches!(chain.message(&mut allowed).await, Flow::Next));
    let expected = AuditNotes {
        reason: "permitted by policy1.1 (all tools)".to_owned(),
        policies: vec!["policy1.1 (all tools) at policies[1]:3".to_owned()],
    };
    assert_eq!(allowed.notes.get::<AuditNotes>(), Some(&expected));
    let mut denied = exchange(&claims, "prompts/get", &json!({ "name": "a" }));
    let Flow::Answer(response) = chain.message(&mut denied).await else { panic!("it is denied") };
    assert_eq!(response.extensions().get::<AuditNotes>().unwrap().reason, "denied: no policy permits it");
    assert!(denied.notes.get::<AuditNotes>().is_none());
    let Flow::Answer(response) = chain.message(&mut exchange(&claims, "tools/call", &json!({ "name": "wipe" }))).await
    else {
        panic!("it is forbidden")
    };
    assert_eq!(response.extensions().get::<AuditNotes>().unwrap().policies, ["policy0 at policies[0]:3"]);
}

#[tokio::test]
async fn each_resource_of_a_subscription_is_decided_about_by_its_backend() {
    let policies = [
        r#"permit(principal, action, resource in MCP::"srv");"#.to_owned(),
        r#"forbid(principal, action, resource in MCP::"billing");"#.to_owned(),
    ];
    let chain = chain(&policies, &json!([]), Servers);
    let claims = Map::from_iter([("sub".to_owned(), json!("ada"))]);
    for (uris, is_permitted) in [
        (json!(["wiki:1", "wiki:2"]), true),
        (json!(["wiki:1", "billing:1"]), false),
        (json!(["wiki:1", "gone"]), false),
        (json!([]), true),
    ] {
        let params = json!({ "notifications": { "resourceSubscriptions": uris } });
        let flow = chain.message(&mut exchange(&claims, "subscriptions/listen", &params)).await;
        assert_eq!(matches!(flow, Flow::Next), is_permitted, "{uris}");
    }
    let read = async |uri: &str| {
        let flow = chain.message(&mut exchange(&claims, "resources/read", &json!({ "uri": uri }))).await;
        matches!(flow, Flow::Next)
    };
    assert!(read("wiki:1").await && !read("billing:1").await && !read("gone").await);
}
