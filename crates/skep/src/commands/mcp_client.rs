//! A client of one MCP server, for commands that call it. It speaks the era of the server: modern if the server does, else legacy.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use skep_mcp::{Era, Message, era};
use skep_net::Client;
use skep_net::proxies::Proxies;
use skep_upstream::http::{HttpOptions, HttpUpstream, Target, Transport};
use skep_upstream::{Call, ClientContext, SessionId, Upstream, admission};

use crate::cli::{HttpTransport, McpServer};

/// The version that legacy servers are asked for.
const LEGACY: &str = "2025-11-25";
/// How many pages of a list are requested.
const PAGES: usize = 1000;

/// A server that was connected to.
pub(super) struct McpClient {
    upstream: Arc<HttpUpstream>,
    era: Era,
    session: Option<SessionId>,
    headers: HeaderMap,
    requests: u64,
}

// === impl McpClient ===

impl McpClient {
    /// Connects to a server, does something with it, and closes the session, all within the time that the command line allows.
    pub(super) async fn with<T>(server: &McpServer, act: impl AsyncFnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let timeout = Duration::from_secs(server.timeout);
        let done = tokio::time::timeout(timeout, async {
            let mut client = Self::connect(server).await?;
            let done = act(&mut client).await;
            if let Some(session) = &client.session {
                client.upstream.close_session(session).await;
            }
            done
        });
        let done =
            done.await.unwrap_or_else(|_elapsed| Err(anyhow!("it takes longer than {timeout:?}; see --timeout")));
        done.with_context(|| server.url.clone())
    }

    async fn connect(server: &McpServer) -> Result<Self> {
        let target = Target::remote(&server.url)?;
        let proxies = Proxies::from_variables(&super::variables())?;
        let client = Client::new(skep_net::client::Options { proxies, ..skep_net::client::Options::default() });
        let transport = server.transport.map(|transport| match transport {
            HttpTransport::StreamableHttp => Transport::StreamableHttp,
            HttpTransport::Sse => Transport::Sse,
        });
        let headers = headers(&server.headers)?;
        let options = HttpOptions { transport, headers: headers.clone(), ..HttpOptions::default() };
        let upstream = HttpUpstream::new(target, client, options);
        // A server that refuses these headers says nothing of its state: there is nothing to wait for.
        upstream.identify(&ClientContext::with_headers(headers.clone())).await?;
        let server = admission::ready(&mut upstream.state()).await?;
        let era = if server.eras.contains(Era::Modern) { Era::Modern } else { Era::Legacy };
        let mut client = Self { upstream, era, session: None, headers, requests: 0 };
        if era == Era::Legacy {
            client.open().await?;
        }
        Ok(client)
    }

    /// Opens a session at a legacy server.
    async fn open(&mut self) -> Result<()> {
        let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client_info() });
        let initialize = message(0, "initialize", &params)?;
        let session = SessionId::from(uuid::Uuid::new_v4().to_string());
        let initialized = self.upstream.open(&session, &initialize, &self.client()).await?;
        result("initialize", &initialized)?;
        self.session = Some(session);
        Ok(())
    }

    fn client(&self) -> ClientContext {
        ClientContext::with_headers(self.headers.clone())
    }

    /// The result of a request, as the server wrote it.
    pub(super) async fn request(&mut self, method: &str, mut params: Map<String, Value>) -> Result<Box<RawValue>> {
        if self.era == Era::Modern {
            params.insert("_meta".to_owned(), meta());
        }
        self.requests += 1;
        let message = message(self.requests, method, &Value::Object(params))?;
        let (session, client) = (self.session.clone(), self.client());
        let call = Call { session, client, ..Call::new(message, self.era) };
        let mut replies = self.upstream.clone().call(call).await.with_context(|| method.to_owned())?;
        let response = replies.response.response().await.with_context(|| method.to_owned())?;
        result(method, &response)
    }

    /// All elements of a list, page by page.
    pub(super) async fn list(&mut self, method: &str, member: &str) -> Result<Vec<Value>> {
        let (mut all, mut cursor) = (Vec::new(), None::<Value>);
        for _ in 0..PAGES {
            let params = cursor.iter().map(|cursor| ("cursor".to_owned(), cursor.clone())).collect();
            let page: Value = serde_json::from_str(self.request(method, params).await?.get())?;
            let elements = page.get(member).and_then(Value::as_array);
            all.extend(elements.with_context(|| format!("{method}: the server sent no `{member}`"))?.iter().cloned());
            let next = page.get("nextCursor").filter(|next| next.is_string()).cloned();
            // One that goes in a circle has shown all it has.
            if next.is_none() || next == cursor {
                return Ok(all);
            }
            cursor = next;
        }
        bail!("{method}: the server sent more than {PAGES} pages")
    }
}

/// The headers of a command line.
fn headers(given: &[String]) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for header in given {
        let (name, value) =
            header.split_once(':').with_context(|| "a header is written as `Name: value`; see --header")?;
        let name: HeaderName =
            name.trim().parse().with_context(|| format!("`{}` is not the name of a header", name.trim()))?;
        // The value may be a secret: it is not repeated.
        let mut value =
            HeaderValue::from_str(value.trim()).with_context(|| format!("the value of `{name}` cannot be sent"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

fn message(id: u64, method: &str, params: &Value) -> Result<Message> {
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    Message::parse(request.to_string().into()).with_context(|| format!("{method}: invalid request"))
}

/// The result in a response, or the server's error.
fn result(method: &str, response: &Message) -> Result<Box<RawValue>> {
    if let Some(result) = response.result() {
        return Ok(serde_json::from_slice(result)?);
    }
    let error: Value = response.error().map(serde_json::from_slice).transpose()?.unwrap_or_default();
    let text = error.get("message").and_then(Value::as_str).unwrap_or("without a message");
    let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
    bail!("{method}: the server responded with error {code}: {text}")
}

fn client_info() -> Value {
    json!({ "name": "skep", "version": env!("CARGO_PKG_VERSION") })
}

/// What every request of 2026-07-28 says of its client.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": era::MODERN,
        "io.modelcontextprotocol/clientInfo": client_info(),
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_a_name_and_a_value_which_is_never_shown() {
        let read = headers(&["Authorization: Bearer a:b".to_owned(), "x-a:1".to_owned(), "x-a: 2".to_owned()]).unwrap();
        assert_eq!(read["authorization"], "Bearer a:b");
        assert_eq!(read.get_all("x-a").iter().count(), 2);
        for wrong in ["secret", "a b: secret", "x: \u{1}secret"] {
            let error = format!("{:#}", headers(&[wrong.to_owned()]).unwrap_err());
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
