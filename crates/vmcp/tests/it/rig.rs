//! A virtual server over backends in memory, each of which a function answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::{Value, json};
use skep_api::virtual_config::Aggregation;
use skep_mcp::{Era, Eras, Message};
use skep_net::Addresses;
use skep_upstream::http::Transport;
use skep_upstream::memory::{MemoryUpstream, Received, ReceivedCall};
use skep_upstream::{Call, ClientContext, SessionId, Upstream, UpstreamState};
use skep_vmcp::aggregate::Rules;
use skep_vmcp::backend::{Backend, BackendSpec};
use skep_vmcp::backends::Backends;
use skep_vmcp::composite::CompositeTools;
use skep_vmcp::credentials::Strategy;
use skep_vmcp::health::MonitorSettings;
use skep_vmcp::upstream::{ServerInfo, VirtualUpstream};
use skep_vmcp::view::{Cursors, Views};

/// What a server in memory responds to a request: a result or an error, after a `delay` in milliseconds if there is one. With nothing it drops the
/// request, and with `null` it hangs.
pub(crate) type Answers = Arc<dyn Fn(&ReceivedCall, &Value) -> Option<Value> + Send + Sync>;

/// What opens the session of a client that can ask its user.
pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}"#;

/// A virtual server and what is behind it.
pub(crate) struct Rig {
    pub(crate) backends: Arc<Backends>,
    pub(crate) upstream: Arc<VirtualUpstream>,
    pub(crate) servers: BTreeMap<String, Arc<MemoryUpstream>>,
}

pub(crate) fn spec(name: &str) -> BackendSpec {
    BackendSpec {
        name: name.into(),
        url: format!("http://{name}.example/mcp"),
        transport: Transport::StreamableHttp,
        auth_type: "unauthenticated".to_owned(),
        auth_config_ref: None,
        strategy: Strategy::None,
        headers: HeaderMap::new(),
        addresses: Addresses::Machine,
        ca_bundle: None,
        timeout: Duration::from_secs(30),
        metadata: BTreeMap::new(),
        digest: [0; 32],
    }
}

/// A server that answers every request by a function.
pub(crate) fn server(answers: Answers) -> Arc<MemoryUpstream> {
    let (upstream, mut received) = MemoryUpstream::new(UpstreamState::ready(Eras::Both));
    tokio::spawn(async move {
        while let Some(received) = received.recv().await {
            let Received::Call(call) = received else { continue };
            let request: Value = serde_json::from_slice(call.call.body()).unwrap();
            let answers = answers.clone();
            tokio::spawn(async move {
                let Some(mut response) = answers(&call, &request) else { return };
                if response.is_null() {
                    // The client may wait for ever.
                    std::future::pending::<()>().await;
                }
                if let Some(delay) = response["delay"].take().as_u64() {
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                }
                response["jsonrpc"] = json!("2.0");
                response["id"] = request["id"].clone();
                let response = Message::parse(response.to_string().into()).unwrap();
                let _left = call.response.send(Ok(Box::new(response)));
            });
        }
    });
    upstream
}

/// The answers of a server with one tool, which returns its arguments and the name of the server.
pub(crate) fn echoing(name: &'static str, tools: &'static [&'static str]) -> Answers {
    Arc::new(move |_, request| {
        let result = match request["method"].as_str().unwrap() {
            "server/discover" => json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } }),
            "tools/list" => {
                let tools = tools.iter().map(|tool| json!({ "name": tool, "inputSchema": { "type": "object" } }));
                json!({ "tools": tools.collect::<Vec<_>>() })
            }
            "tools/call" => json!({ "content": [], "structuredContent": {
                "server": name, "tool": request["params"]["name"], "arguments": request["params"]["arguments"],
            }}),
            _ => return Some(json!({ "error": { "code": -32601, "message": "method not found" } })),
        };
        Some(json!({ "result": result }))
    })
}

impl Rig {
    pub(crate) fn new(servers: &[(&'static str, Answers)], aggregation: &Value) -> Self {
        let rig = Self::monitored(servers, aggregation, None);
        rig.serve(&rig.servers.keys().map(String::as_str).collect::<Vec<_>>());
        rig
    }

    /// A virtual server whose backends are checked. It has none yet.
    pub(crate) fn monitored(
        servers: &[(&'static str, Answers)],
        aggregation: &Value,
        monitor: Option<MonitorSettings>,
    ) -> Self {
        let servers = servers.iter().map(|(name, answers)| ((*name).to_owned(), server(answers.clone())));
        let servers: BTreeMap<String, Arc<MemoryUpstream>> = servers.collect();
        let backends = Backends::new(monitor);
        let aggregation: Aggregation = serde_json::from_value(aggregation.clone()).unwrap();
        let views = Views::new(Rules::of(&aggregation), CompositeTools::default());
        let upstream = VirtualUpstream::new(ServerInfo::default(), backends.clone(), views, Cursors::new(b"key"));
        Self { backends, upstream, servers }
    }

    /// Makes these the backends. Those that were, stay the same.
    pub(crate) fn serve(&self, names: &[&str]) {
        let known = self.backends.all();
        let next = names.iter().map(|name| {
            let known = known.get(*name).cloned();
            let backend = known.unwrap_or_else(|| Backend::over(spec(name), self.servers[*name].clone()));
            (Arc::from(*name), backend)
        });
        self.backends.replace(next.collect());
    }

    /// Opens a session of a client that can ask its user.
    pub(crate) async fn open(&self, id: &str) -> SessionId {
        let initialize = Message::parse(INITIALIZE.into()).unwrap();
        let session: SessionId = id.to_owned().into();
        self.upstream.open(&session, &initialize, &ClientContext::default()).await.unwrap();
        session
    }
}

/// A request of a client of a session.
pub(crate) fn request(session: &SessionId, id: u64, method: &str, params: &Value) -> Call {
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let message = Message::parse(request.to_string().into()).unwrap();
    Call { session: Some(session.clone()), ..Call::new(message, Era::Legacy) }
}

/// A request of a client of 2026-07-28, with the id 1.
pub(crate) fn modern_request(method: &str, params: &Value) -> Call {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Call::new(Message::parse(request.to_string().into()).unwrap(), Era::Modern)
}

/// What a request comes to.
pub(crate) async fn responded(upstream: &Arc<VirtualUpstream>, call: Call) -> Value {
    let mut replies = upstream.clone().call(call).await.unwrap();
    let response = replies.response.response().await.unwrap();
    serde_json::from_slice(response.body()).unwrap()
}
