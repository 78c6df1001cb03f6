//! A client: requests over real sockets, answers as JSON, as text, or event by event.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use skep_mcp::sse;
use skep_net::{Body, Client};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
pub(crate) const BOTH: &str = "application/json, text/event-stream";

/// A client of one proxy.
#[derive(Clone)]
pub(crate) struct TestClient {
    client: Client,
    base: String,
    pub(crate) session: Option<String>,
    pub(crate) accept: &'static str,
    pub(crate) headers: HeaderMap,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// An answer that is read event by event.
pub(crate) struct Events {
    pub(crate) status: StatusCode,
    /// The id of the event that came last.
    pub(crate) last: Option<String>,
    /// After how long the client should reconnect, in milliseconds.
    pub(crate) retry: Option<u64>,
    body: Pin<Box<Body>>,
    reader: sse::Reader,
}

impl TestClient {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let client = Client::new(skep_net::client::Options::default());
        let base = format!("http://{address}");
        Self { client, base, session: None, accept: "application/json", headers: HeaderMap::new() }
    }

    pub(crate) fn taking(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// Initializes, and keeps the session.
    pub(crate) async fn initialized(mut self) -> Result<Self> {
        let answer = self.ask(json!(1), "initialize", initialize_request()).await?;
        anyhow::ensure!(answer.status == StatusCode::OK, "{answer:?}");
        self.session = answer.headers.get("mcp-session-id").map(|value| value.to_str().unwrap().to_owned());
        self.tell("notifications/initialized", json!({})).await?;
        Ok(self)
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Response<Body>> {
        let mut request = Request::new(Body::full(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}{path}", self.base).parse()?;
        let headers = request.headers_mut();
        headers.insert("content-type", "application/json".parse()?);
        headers.insert("accept", self.accept.parse()?);
        if let Some(session) = &self.session {
            headers.insert("mcp-session-id", session.parse()?);
        }
        headers.extend(self.headers.clone());
        tokio::time::timeout(PATIENCE, self.client.send(request)).await?.context("not sent")
    }

    pub(crate) async fn whole(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Answer> {
        let response = self.send(method, path, body).await?;
        let (parts, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await??.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    pub(crate) async fn post(&self, body: impl Into<Bytes>) -> Result<Answer> {
        self.whole(Method::POST, "/mcp", body).await
    }

    pub(crate) async fn ask(&self, id: Value, method: &str, params: Value) -> Result<Answer> {
        self.post(request(id, method, params).to_string()).await
    }

    pub(crate) async fn tell(&self, method: &str, params: Value) -> Result<Answer> {
        self.post(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await
    }

    pub(crate) async fn call(&self, id: Value, tool: &str, arguments: Value) -> Result<Value> {
        let answer = self.ask(id, "tools/call", json!({ "name": tool, "arguments": arguments })).await?;
        answer.message()
    }

    pub(crate) async fn events(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Events> {
        let response = self.send(method, path, body).await?;
        let reader = sse::Reader::new(sse::Limits { line: 1 << 24, event: 1 << 24 });
        Ok(Events { status: response.status(), last: None, retry: None, body: Box::pin(response.into_body()), reader })
    }
}

impl Answer {
    /// The message in it: the last one of a stream.
    pub(crate) fn message(&self) -> Result<Value> {
        let text = std::str::from_utf8(&self.body)?;
        let text = text.rsplit("data: ").next().unwrap_or(text);
        serde_json::from_str(text.trim()).with_context(|| format!("{} {text}", self.status))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Events {
    /// The next event: its name and data. Nothing when the stream has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<(String, String)>> {
        loop {
            while let Some(item) = self.reader.next_item()? {
                if let sse::Item::Event(event) = item {
                    let text = |bytes: Option<Bytes>| String::from_utf8(bytes.unwrap_or_default().to_vec());
                    self.retry = event.retry.or(self.retry);
                    if event.id.is_some() {
                        self.last = Some(text(event.id)?);
                    }
                    return Ok(Some((text(event.name)?, text(event.data)?)));
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.context("no event came")?;
            match frame {
                None => return Ok(None),
                Some(frame) => self.reader.feed(&frame?.into_data().unwrap_or_default()),
            }
        }
    }

    pub(crate) async fn message(&mut self) -> Result<Value> {
        match self.next().await? {
            Some((_, data)) => Ok(serde_json::from_str(&data)?),
            None => bail!("the stream ended"),
        }
    }
}

pub(crate) fn initialize_request() -> Value {
    json!({ "protocolVersion": "2025-06-18", "capabilities": { "sampling": {} }, "clientInfo": { "name": "c", "version": "1" } })
}

pub(crate) fn request(id: Value, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) const MODERN: &str = "2026-07-28";

/// A request of 2026-07-28, or of another version that is written so.
pub(crate) fn modern(id: Value, method: &str, version: &str) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "c", "version": "1" },
    });
    request(id, method, json!({ "name": "echo", "arguments": { "a": 1 }, "_meta": meta }))
}
