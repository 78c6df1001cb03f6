//! A server of one era, over stdio or over HTTP, and the bridge in front of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use http::Response;
use serde_json::{Value, json};
use skep_mcp::Era;
use skep_net::Body;
use skep_upstream::stdio::{Limits, StdioUpstream};
use skep_upstream::{BridgedUpstream, Upstream};
use skep_workload::pipe::Pipe;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, watch};

use crate::server::{Got, PATIENCE, Server, events, respond, status};

const MODERN: &str = "2026-07-28";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// What a transport is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Stdio,
    Http,
}

/// A server.
pub(crate) struct Fake {
    era: Era,
    seen: watch::Sender<Vec<Seen>>,
    /// Where what it says of its own goes: the streams that are open, by what they are.
    streams: Mutex<HashMap<String, mpsc::UnboundedSender<Value>>>,
    /// The call during which it asked its client something.
    asked: Mutex<Option<Value>>,
    /// Held by HTTP.
    _server: Option<Server>,
}

/// A message as the server got it, and the session that it came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) message: Value,
    pub(crate) session: Option<String>,
    pub(crate) authorization: Option<String>,
}

/// A bridge in front of a server.
pub(crate) async fn bridged(over: Over, era: Era) -> (Arc<BridgedUpstream>, Arc<Fake>) {
    let new = |server| Fake {
        era,
        seen: watch::Sender::new(Vec::new()),
        streams: Mutex::default(),
        asked: Mutex::default(),
        _server: server,
    };
    match over {
        Over::Stdio => {
            let fake = Arc::new(new(None));
            let upstream = on_stdio(fake.clone());
            (BridgedUpstream::new(upstream), fake)
        }
        Over::Http => {
            let place: Arc<Mutex<Option<Arc<Fake>>>> = Arc::default();
            let behind = place.clone();
            let server = Server::start(move |got| behind.lock().unwrap().clone().unwrap().on_http(got)).await;
            let upstream = server.upstream();
            let fake = Arc::new(new(Some(server)));
            *place.lock().unwrap() = Some(fake.clone());
            (BridgedUpstream::new(upstream), fake)
        }
    }
}

fn on_stdio(fake: Arc<Fake>) -> Arc<dyn Upstream> {
    let connect = Box::new(move || -> std::pin::Pin<Box<dyn Future<Output = Result<Pipe, String>> + Send>> {
        let (input, server_input) = tokio::io::duplex(1 << 16);
        let (mut server_output, from_server) = tokio::io::duplex(1 << 16);
        let (said, mut to_say) = mpsc::unbounded_channel::<Value>();
        let fake = fake.clone();
        fake.open("session", said.clone());
        tokio::spawn(async move {
            let mut lines = BufReader::new(server_input).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                fake.take(serde_json::from_str(&line).unwrap(), None, None, &said);
            }
        });
        tokio::spawn(async move {
            while let Some(message) = to_say.recv().await {
                let _gone = server_output.write_all(format!("{message}\n").as_bytes()).await;
            }
        });
        let (stdin, stdout) = (Box::new(input), Box::new(from_server));
        let pipe = Pipe { stdin, stdout, stderr: Box::new(tokio::io::empty()), held: Box::new(()) };
        Box::pin(std::future::ready(Ok(pipe)))
    });
    let (upstream, talk) = StdioUpstream::start(connect, Limits::default());
    tokio::spawn(talk);
    upstream
}

// === impl Fake ===

impl Fake {
    /// All messages of a method so far.
    pub(crate) fn received(&self, method: &str) -> Vec<Seen> {
        self.seen.borrow().iter().filter(|seen| seen.message["method"] == method).cloned().collect()
    }

    /// Waits until the server got so many messages of a method.
    pub(crate) async fn wait(&self, method: &str, times: usize) -> Vec<Seen> {
        let mut seen = self.seen.subscribe();
        let has = |all: &Vec<Seen>| all.iter().filter(|seen| seen.message["method"] == method).count() >= times;
        let found = tokio::time::timeout(PATIENCE, seen.wait_for(has)).await;
        drop(found.unwrap_or_else(|_| panic!("{times} times {method}: {:?}", self.methods())).unwrap());
        self.received(method)
    }

    /// Waits until the server got the response to its own request.
    pub(crate) async fn answered(&self) -> Value {
        let mut seen = self.seen.subscribe();
        let is_answer = |seen: &&Seen| seen.message["id"] == "theirs" && seen.message["method"].is_null();
        let found = tokio::time::timeout(PATIENCE, seen.wait_for(|all| all.iter().any(|one| is_answer(&one)))).await;
        let all = found.expect("the server is answered in time").unwrap();
        all.iter().find(is_answer).unwrap().message.clone()
    }

    pub(crate) fn methods(&self) -> Vec<String> {
        self.seen.borrow().iter().map(|seen| seen.message["method"].to_string()).collect()
    }

    /// Waits for a stream of this kind, and says something on it.
    pub(crate) async fn say(&self, stream: &str, message: Value) {
        let mut seen = self.seen.subscribe();
        let open = tokio::time::timeout(PATIENCE, async {
            loop {
                let open = self.streams.lock().unwrap().get(stream).cloned();
                if let Some(open) = open {
                    return open;
                }
                seen.changed().await.unwrap();
            }
        });
        open.await.unwrap_or_else(|_| panic!("no stream {stream}: {:?}", self.methods())).send(message).unwrap();
    }

    /// Ends a stream.
    pub(crate) fn end(&self, stream: &str) {
        self.streams.lock().unwrap().remove(stream);
    }

    fn open(&self, stream: &str, sender: mpsc::UnboundedSender<Value>) {
        self.streams.lock().unwrap().insert(stream.to_owned(), sender);
        self.seen.send_modify(|_| {});
    }

    fn on_http(self: &Arc<Self>, got: &Got) -> Response<Body> {
        let text = |name: &str| got.header(name).map(str::to_owned);
        let (session, authorization) = (text("mcp-session-id"), text("authorization"));
        if self.era == Era::Modern && (session.is_some() || got.header("mcp-protocol-version") != Some(MODERN)) {
            return self.refused(got, -32022);
        }
        if self.era == Era::Legacy && got.header("mcp-protocol-version") == Some(MODERN) {
            return self.refused(got, -32000);
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        if got.method == "GET" {
            self.note(json!({ "method": "GET" }), session, authorization);
            self.open("session", sender);
            return stream(receiver);
        }
        if got.method == "DELETE" {
            self.note(json!({ "method": "DELETE" }), session, authorization);
            return status(200);
        }
        let is_request = got.body["method"].is_string() && !got.body["id"].is_null();
        self.take(got.body.clone(), session, authorization, &sender);
        if !is_request {
            return status(202);
        }
        drop(sender);
        let mut response = stream(receiver);
        if got.what() == "initialize" {
            let id = format!("s{}", self.received("initialize").len());
            response.headers_mut().insert("mcp-session-id", id.parse().unwrap());
        }
        response
    }

    fn refused(&self, got: &Got, code: i64) -> Response<Body> {
        self.note(got.body.clone(), None, None);
        let data = json!({ "supported": [MODERN], "requested": "x" });
        respond(
            400,
            &json!({ "jsonrpc": "2.0", "id": got.body["id"], "error": { "code": code, "message": "no", "data": data } }),
        )
    }

    fn note(&self, message: Value, session: Option<String>, authorization: Option<String>) {
        self.seen.send_modify(|seen| seen.push(Seen { message, session, authorization }));
    }

    /// Takes a message, and says what it has to say to it.
    fn take(
        &self,
        message: Value,
        session: Option<String>,
        authorization: Option<String>,
        say: &mpsc::UnboundedSender<Value>,
    ) {
        let answers = self.answers(&message, say);
        self.note(message, session, authorization);
        for answer in answers {
            let _gone = say.send(answer);
        }
    }

    fn answers(&self, message: &Value, say: &mpsc::UnboundedSender<Value>) -> Vec<Value> {
        let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else {
            return self.continued(message);
        };
        let params = &message["params"];
        let result = |mut result: Value| {
            if self.era == Era::Modern {
                result["resultType"] = json!("complete");
                result["_meta"] =
                    json!({ "io.modelcontextprotocol/serverInfo": { "name": "fake", "version": "1" }, "kept": 1 });
            }
            vec![json!({ "jsonrpc": "2.0", "id": id, "result": result })]
        };
        let error = |code: i64| vec![json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": "no" } })];
        let is_modern = params["_meta"][VERSION] == MODERN;
        if is_modern != (self.era == Era::Modern) {
            return error(if self.era == Era::Modern { -32022 } else { -32601 });
        }
        let capabilities = json!({ "tools": { "listChanged": true }, "logging": {},
            "resources": { "subscribe": true, "listChanged": true }, "prompts": {}, "completions": {} });
        match method {
            "initialize" => result(json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities,
                "serverInfo": { "name": "fake", "version": "1" }, "instructions": "be kind" })),
            "server/discover" => result(json!({ "supportedVersions": [MODERN], "capabilities": capabilities,
                "instructions": "be kind", "ttlMs": 5, "cacheScope": "public" })),
            "tools/list" => {
                result(json!({ "tools": [{ "name": "echo", "inputSchema": {} }], "nextCursor": params["cursor"] }))
            }
            "resources/list" => result(json!({ "resources": [] })),
            "resources/templates/list" => result(json!({ "resourceTemplates": [] })),
            "prompts/list" => result(json!({ "prompts": [] })),
            "prompts/get" => result(json!({ "messages": [] })),
            "completion/complete" => result(json!({ "completion": { "values": [] } })),
            "resources/read" if params["uri"] == "a:none" => {
                error(if self.era == Era::Modern { -32602 } else { -32002 })
            }
            "resources/read" => result(json!({ "contents": [] })),
            "resources/subscribe" if params["uri"] == "a:none" => error(-32002),
            "subscriptions/listen" => {
                self.open("listen", say.clone());
                self.open(&format!("listen {}", params["notifications"]["resourceSubscriptions"]), say.clone());
                let mut granted = params["notifications"].clone();
                if let Some(uris) = granted["resourceSubscriptions"].as_array_mut() {
                    uris.retain(|uri| uri != "a:none");
                }
                let params = json!({ "_meta": { SUBSCRIPTION: id }, "notifications": granted });
                vec![
                    json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params }),
                ]
            }
            "tools/call" => self.called(params, id, say, &result),
            _ => result(json!({})),
        }
    }

    fn called(
        &self,
        params: &Value,
        id: &Value,
        say: &mpsc::UnboundedSender<Value>,
        result: &dyn Fn(Value) -> Vec<Value>,
    ) -> Vec<Value> {
        let note = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let name = params["name"].as_str().unwrap_or_default();
        let done =
            |before: Vec<Value>| [before, result(json!({ "content": [], "echo": params["arguments"] }))].concat();
        match name {
            "progress" => {
                let report = |number: u32| {
                    note(
                        "notifications/progress",
                        json!({ "progressToken": params["_meta"]["progressToken"], "progress": number }),
                    )
                };
                done(vec![report(1), report(2)])
            }
            "log" => {
                let line =
                    |level: &str| note("notifications/message", json!({ "level": level, "data": params["arguments"] }));
                done(vec![line("debug"), line("info"), line("error")])
            }
            "ask" => {
                self.open("asked", say.clone());
                *self.asked.lock().unwrap() = Some(id.clone());
                vec![
                    json!({ "jsonrpc": "2.0", "id": "theirs", "method": params["arguments"]["method"], "params": { "for": id } }),
                ]
            }
            "input" => vec![json!({ "jsonrpc": "2.0", "id": id, "result": { "resultType": "input_required",
                "inputRequests": { "a": { "method": "elicitation/create" } } } })],
            "hold" => {
                self.open("held", say.clone());
                Vec::new()
            }
            _ => done(Vec::new()),
        }
    }

    /// A client answered a request of the server: the call that led to it goes on.
    fn continued(&self, message: &Value) -> Vec<Value> {
        if message["id"] == "theirs" && message["method"].is_null() {
            let (stream, id) = (self.streams.lock().unwrap().remove("asked"), self.asked.lock().unwrap().take());
            let result = json!({ "content": [], "isError": true });
            if let Some(stream) = stream {
                let _gone = stream.send(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
            }
        }
        Vec::new()
    }
}

/// What is said, as a stream of events.
fn stream(mut said: mpsc::UnboundedReceiver<Value>) -> Response<Body> {
    let (sender, body) = Body::channel(16);
    tokio::spawn(async move {
        loop {
            let message = tokio::select! {
                message = said.recv() => message,
                () = sender.closed() => return,
            };
            let Some(message) = message else { return };
            if sender.send(format!("event: message\ndata: {message}\n\n").into()).await.is_err() {
                return;
            }
        }
    });
    events(body)
}
