//! An HTTP server that responds as a test says, and the upstream in front of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, Uri};
use serde_json::{Value, json};
use skep_mcp::{Era, Message};
use skep_net::body::{Limit, collect};
use skep_net::drain::Grace;
use skep_net::{Body, Client, Drain, Listener, serve};
use skep_upstream::http::{HttpOptions, HttpUpstream, Target};
use skep_upstream::{Call, CallError, ClientContext, SessionId, Upstream};
use tokio::sync::watch;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const BODY: Limit = Limit { bytes: 1 << 20, idle: PATIENCE, pace: 1 };

/// A request as the server got it.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// A server, and what it got so far.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    got: watch::Sender<Vec<Got>>,
}

// === impl Got ===

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The MCP method, or the HTTP method of a request without a message.
    pub(crate) fn what(&self) -> &str {
        self.body["method"].as_str().unwrap_or(self.method.as_str())
    }
}

// === impl Server ===

impl Server {
    pub(crate) async fn start(respond: impl Fn(&Got) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), respond).await
    }

    pub(crate) async fn start_at(
        at: SocketAddr,
        respond: impl Fn(&Got) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        let listener = Listener::bind(at).await.unwrap();
        let address = listener.address();
        let got = watch::Sender::new(Vec::new());
        let (seen, respond) = (got.clone(), Arc::new(respond));
        let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::ZERO });
        tokio::spawn(serve(listener, skep_net::serve::Options::default(), drain, move |request, _peer| {
            let (seen, respond) = (seen.clone(), respond.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = collect(body, BODY).await.unwrap_or_default();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let got = Got { method: parts.method, uri: parts.uri, headers: parts.headers, body };
                // What does not wait for a cancellation is here before it.
                if got.what() == "notifications/cancelled" {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                let response = respond(&got);
                seen.send_modify(|all| all.push(got));
                response
            }
        }));
        Self { address, got }
    }

    /// An upstream to its `/mcp`.
    pub(crate) fn upstream(&self) -> Arc<HttpUpstream> {
        self.upstream_with(HttpOptions::default())
    }

    pub(crate) fn upstream_with(&self, options: HttpOptions) -> Arc<HttpUpstream> {
        let target = Target::remote(&format!("http://{}/mcp", self.address)).unwrap();
        HttpUpstream::new(target, Client::new(skep_net::client::Options::default()), options)
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.borrow().clone()
    }

    /// What it got so far, by method.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.got().iter().map(|got| got.what().to_owned()).collect()
    }

    /// Waits for a request.
    pub(crate) async fn wait(&self, wanted: impl Fn(&Got) -> bool) -> Got {
        let mut seen = self.got.subscribe();
        let found = seen.wait_for(|all| all.iter().any(&wanted));
        let all = tokio::time::timeout(PATIENCE, found).await.expect("the server gets it in time").unwrap();
        all.iter().find(|got| wanted(got)).unwrap().clone()
    }
}

/// A response with a status and a JSON body.
pub(crate) fn respond(status: u16, body: &Value) -> Response<Body> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Body::full(body.to_string())).unwrap()
}

/// The same without a body.
pub(crate) fn status(status: u16) -> Response<Body> {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

/// A stream of events.
pub(crate) fn events(body: Body) -> Response<Body> {
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

/// The result of a request.
pub(crate) fn result(request: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })
}

/// The response of a server to the handshake of a session, if it is part of one.
pub(crate) fn handshake(got: &Got, session: &str) -> Option<Response<Body>> {
    match got.what() {
        "initialize" => {
            let mut response = respond(200, &result(&got.body, &json!({ "protocolVersion": "2025-06-18" })));
            response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
            Some(response)
        }
        "notifications/initialized" => Some(status(202)),
        _ => None,
    }
}

pub(crate) fn message(value: &Value) -> Message {
    Message::parse(value.to_string().into()).unwrap()
}

pub(crate) fn request(id: &Value, method: &str) -> Message {
    message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": {} }))
}

pub(crate) fn initialize() -> Message {
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
    message(&json!({ "jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params }))
}

/// Opens a session.
pub(crate) async fn open(upstream: &Arc<HttpUpstream>) -> SessionId {
    let session = SessionId::from("ours");
    let opened = upstream.open(&session, &initialize(), &ClientContext::default()).await.unwrap();
    assert_eq!(opened.id(), initialize().id());
    session
}

/// A legacy call of a session.
pub(crate) fn call(session: &SessionId, id: &Value, method: &str) -> Call {
    Call { session: Some(session.clone()), ..Call::new(request(id, method), Era::Legacy) }
}

/// The response to a call.
pub(crate) async fn respond_to(upstream: &Arc<HttpUpstream>, call: Call) -> Result<Value, CallError> {
    let response = async { upstream.clone().call(call).await?.response.response().await };
    let response = tokio::time::timeout(PATIENCE, response).await.expect("it ends in time")?;
    Ok(serde_json::from_slice(response.body()).unwrap())
}

pub(crate) fn text(bytes: &Bytes) -> Value {
    serde_json::from_slice(bytes).unwrap()
}
