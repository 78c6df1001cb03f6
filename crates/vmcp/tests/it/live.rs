//! A server in memory that a test talks through: it sees what arrives, and answers or sends what it wants when it wants. The clock of these tests is
//! paused: it goes on when nothing has anything to do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use serde_json::{Value, json};
use skep_mcp::{Eras, Message};
use skep_net::Budget;
use skep_upstream::memory::{MemoryUpstream, Received, ReceivedCall};
use skep_upstream::{Call, ClientContext, Replies, SessionId, Upstream, UpstreamState};
use skep_vmcp::backend::{Backend, BackendSpec};
use skep_vmcp::upstream::VirtualUpstream;
use tokio::sync::{mpsc, watch};

use crate::rig::{Rig, modern_request, request, spec};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The header by which these servers know their clients.
pub(crate) const WHO: HeaderName = HeaderName::from_static("x-who");

/// A server.
pub(crate) struct Live {
    pub(crate) upstream: Arc<MemoryUpstream>,
    /// All that arrived: `{"who", "call"}`, `{"message"}` or `{"cancelled"}`.
    seen: watch::Sender<Vec<Value>>,
    /// Its tools, by the client that they are of; those of all clients under no name.
    tools: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    /// Calls that it has not answered.
    held: Arc<Mutex<Vec<HeldCall>>>,
}

/// A call, its request, and who called.
type HeldCall = (String, Value, Box<ReceivedCall>);

impl Live {
    pub(crate) fn new(tools: &[(&str, &str)]) -> Self {
        let (upstream, mut received) = MemoryUpstream::new(UpstreamState::ready(Eras::Both));
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (who, tool) in tools {
            all.entry((*who).to_owned()).or_default().push((*tool).to_owned());
        }
        let live =
            Self { upstream, seen: watch::Sender::default(), tools: Arc::new(Mutex::new(all)), held: Arc::default() };
        let (seen, tools, held) = (live.seen.clone(), live.tools.clone(), live.held.clone());
        tokio::spawn(async move {
            while let Some(received) = received.recv().await {
                let note = match received {
                    Received::Call(call) => {
                        let request: Value = serde_json::from_slice(call.call.body()).unwrap();
                        let who = call.client.headers.get(WHO).map_or("", |who| who.to_str().unwrap()).to_owned();
                        let note = json!({ "who": who, "call": request });
                        match result(&request, &who, &tools.lock().unwrap()) {
                            Some(result) => respond(*call, &request, &result),
                            None => held.lock().unwrap().push((who, request, call)),
                        }
                        note
                    }
                    Received::Message(message) => {
                        json!({ "message": serde_json::from_slice::<Value>(message.body()).unwrap() })
                    }
                    Received::Cancelled(method) => json!({ "cancelled": method }),
                };
                seen.send_modify(|seen| seen.push(note));
            }
        });
        live
    }

    /// Adds a tool for a client, or for all of them.
    pub(crate) fn add(&self, who: &str, tool: &str) {
        self.tools.lock().unwrap().entry(who.to_owned()).or_default().push(tool.to_owned());
    }

    /// Waits for something to arrive.
    pub(crate) async fn wait(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut seen = self.seen.subscribe();
        let found = seen.wait_for(|all| all.iter().any(&wanted));
        let all = tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{what} does not arrive"));
        all.unwrap().iter().find(|one| wanted(one)).unwrap().clone()
    }

    /// Waits for a request with this method.
    pub(crate) async fn called(&self, method: &str) -> Value {
        self.wait(method, |one| one["call"]["method"] == method).await["call"].clone()
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        self.seen.borrow().clone()
    }

    /// How many calls with this method it has not answered, of a client that still waits.
    pub(crate) fn held(&self, method: &str, who: &str) -> usize {
        let held = self.held.lock().unwrap();
        let is_open = |call: &ReceivedCall| !call.response.is_closed();
        held.iter().filter(|(of, request, call)| of == who && request["method"] == method && is_open(call)).count()
    }

    /// Waits until it has such a call.
    pub(crate) async fn holds(&self, method: &str, who: &str) {
        until(&format!("{method} of `{who}`"), || self.held(method, who) > 0).await;
    }

    /// Sends something before the response of the calls with this method, of one client.
    pub(crate) fn before(&self, method: &str, who: &str, message: &Value) {
        let held = self.held.lock().unwrap();
        for (_, _, call) in held.iter().filter(|(of, request, _)| of == who && request["method"] == method) {
            // One that ended takes no more.
            let _gone = call.interim.as_ref().unwrap().try_send(Bytes::from(message.to_string()));
        }
    }

    /// Answers the calls with this method.
    pub(crate) fn answer(&self, method: &str, result: &Value) {
        let mut held = self.held.lock().unwrap();
        let (answered, rest): (Vec<HeldCall>, Vec<HeldCall>) =
            std::mem::take(&mut *held).into_iter().partition(|(_, request, _)| request["method"] == method);
        *held = rest;
        for (_, request, call) in answered {
            respond(*call, &request, result);
        }
    }

    /// Sends something to a session outside of calls, once it listens.
    pub(crate) async fn event(&self, session: &SessionId, message: &Value) {
        let message = Bytes::from(message.to_string());
        let sent = async {
            while !self.upstream.send_event(session, message.clone()).await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, sent).await.expect("the session listens at the backend");
    }
}

fn respond(call: ReceivedCall, request: &Value, result: &Value) {
    let response = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    let _left = call.response.send(Ok(Box::new(Message::parse(response.to_string().into()).unwrap())));
}

/// What it responds at once. Nothing to what a test answers.
fn result(request: &Value, who: &str, tools: &BTreeMap<String, Vec<String>>) -> Option<Value> {
    let list = |names: &[&str]| {
        let named = names.iter().flat_map(|name| tools.get(*name).into_iter().flatten());
        let tools: Vec<Value> =
            named.map(|tool| json!({ "name": tool, "inputSchema": { "type": "object" } })).collect();
        json!({ "tools": tools })
    };
    let capabilities =
        json!({ "tools": {}, "prompts": {}, "completions": {}, "logging": {}, "resources": { "subscribe": true } });
    Some(match request["method"].as_str().unwrap() {
        "server/discover" => json!({ "supportedVersions": ["2026-07-28"], "capabilities": capabilities }),
        "tools/list" if who.is_empty() => list(&[""]),
        "tools/list" => list(&["", who]),
        "prompts/list" => json!({ "prompts": [{ "name": "greet" }] }),
        "resources/list" => json!({ "resources": [{ "name": "r", "uri": "file:///r" }] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => json!({}),
        "completion/complete" => json!({ "completion": { "values": ["completed"] } }),
        "tools/call" if request["params"]["name"] == "quick" => json!({ "content": [] }),
        _ => return None,
    })
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let held = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Waits until nothing is on its way any more.
pub(crate) async fn quiet() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// A virtual server over one such server, which is backend `a`.
pub(crate) fn over(live: &Live, change: impl FnOnce(&mut BackendSpec)) -> Rig {
    let rig = Rig::new(
        &[],
        &json!({ "conflictResolution": "prefix", "conflictResolutionConfig": { "prefixFormat": "{workload}_" } }),
    );
    let mut spec = spec("a");
    change(&mut spec);
    rig.backends.replace(BTreeMap::from([("a".into(), Backend::over(spec, live.upstream.clone()))]));
    rig
}

/// A client that these servers know by this name, or by none.
pub(crate) fn client(who: &str) -> ClientContext {
    let headers = (!who.is_empty()).then(|| (WHO, who.parse().unwrap()));
    ClientContext::with_headers(HeaderMap::from_iter(headers))
}

/// The next message of a stream.
pub(crate) async fn next(stream: &mut mpsc::Receiver<Bytes>) -> Value {
    let next = tokio::time::timeout(PATIENCE, stream.recv()).await.expect("a message arrives in time");
    serde_json::from_slice(&next.expect("the stream goes on")).unwrap()
}

/// Lists the tools of a client, so that they are known, and what it hears from then on.
pub(crate) async fn listen_legacy(rig: &Rig, session: &SessionId, who: &str) -> mpsc::Receiver<Bytes> {
    let list = Call { client: client(who), ..request(session, 90, "tools/list", &json!({})) };
    crate::rig::responded(&rig.upstream, list).await;
    rig.upstream.events(session, Budget::default())
}

/// Opens a subscription of a client of 2026-07-28. It is acknowledged when this returns.
pub(crate) async fn listen_modern(upstream: &Arc<VirtualUpstream>, who: &str, wanted: &Value) -> Replies {
    let message = modern_request("subscriptions/listen", &json!({ "notifications": wanted }));
    let call = Call { takes_interim: true, client: client(who), ..message };
    let mut replies = upstream.clone().call(call).await.unwrap();
    let first = next(replies.interim.as_mut().unwrap()).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    replies
}
