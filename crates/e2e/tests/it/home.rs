//! A namespace with an operator in it, and clients of its servers.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Service};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::cluster::{Cluster, product_image};
use crate::operator::{Scope, install};

/// The timeout of a response.
const PATIENCE: Duration = Duration::from_secs(90);

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}"#;

const MODERN_CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"who","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"}}}}"#;

/// Tests run in parallel, each in a namespace of its own, except those that touch what all of them share.
static CLUSTER: RwLock<()> = RwLock::const_new(());

/// How much of the cluster a test has for itself.
enum Turn {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

/// A namespace of a test's own, with or without an operator in it.
pub(crate) struct Home {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    _turn: Option<Turn>,
}

impl Home {
    /// With an operator that watches this namespace.
    pub(crate) async fn new(prefix: &str) -> Result<Self> {
        Self::with_tenants(prefix, &[]).await
    }

    /// With an operator that watches this namespace and those.
    pub(crate) async fn with_tenants(prefix: &str, tenants: &[&Self]) -> Result<Self> {
        let turn = Some(Turn::Shared { _guard: CLUSTER.read().await });
        let home = Self { _turn: turn, ..Self::empty(prefix).await? };
        let mut all = vec![home.namespace.as_str()];
        all.extend(tenants.iter().map(|tenant| tenant.namespace.as_str()));
        install(&home.namespace, &product_image()?, &Scope::Namespaces(&all))?;
        Ok(home)
    }

    /// While no other test runs, with an operator that watches this namespace, or the whole cluster.
    pub(crate) async fn alone(prefix: &str, is_everywhere: bool) -> Result<Self> {
        let turn = Some(Turn::Alone { _guard: CLUSTER.write().await });
        let home = Self { _turn: turn, ..Self::empty(prefix).await? };
        let own = [home.namespace.as_str()];
        let scope = if is_everywhere { Scope::Cluster } else { Scope::Namespaces(&own) };
        install(&home.namespace, &product_image()?, &scope)?;
        Ok(home)
    }

    /// Without an operator.
    pub(crate) async fn empty(prefix: &str) -> Result<Self> {
        let cluster = Cluster::connect(prefix).await?;
        let namespace = cluster.namespace().to_owned();
        Ok(Self { cluster, namespace, _turn: None })
    }

    /// The objects of one of our kinds.
    pub(crate) fn kind(&self, kind: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("toolhive.stacklok.dev", "v1beta1", kind);
        let name = kind.to_lowercase();
        let plural = name.strip_suffix('y').map_or_else(|| format!("{name}s"), |stem| format!("{stem}ies"));
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        Api::namespaced_with(self.cluster.client(), &self.namespace, &resource)
    }

    pub(crate) fn servers(&self) -> Api<DynamicObject> {
        self.kind("MCPServer")
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client(), &self.namespace)
    }

    /// Creates an MCPServer.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<()> {
        self.create_kind("MCPServer", name, spec).await
    }

    pub(crate) async fn create_kind(&self, kind: &str, name: &str, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        self.kind(kind).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    pub(crate) async fn ready(&self, name: &str) -> Result<()> {
        self.phase("MCPServer", name, "Ready").await
    }

    /// Waits until an object is in a phase.
    pub(crate) async fn phase(&self, kind: &str, name: &str, phase: &str) -> Result<()> {
        let objects = self.kind(kind);
        self.cluster
            .until(&format!("{kind} {name} is {phase}"), || async {
                let data = objects.get(name).await?.data;
                Ok(data.pointer("/status/phase").and_then(Value::as_str) == Some(phase))
            })
            .await
    }

    /// The address of a server's proxy, from its Service.
    pub(crate) async fn address(&self, name: &str) -> Result<String> {
        self.address_of(&format!("mcp-{name}-proxy")).await
    }

    /// The address of the cluster's API server for pods.
    pub(crate) async fn address_of_api(&self) -> Result<String> {
        address(Api::<Service>::namespaced(self.cluster.client(), "default").get("kubernetes").await?)
    }

    /// The address of a Service.
    pub(crate) async fn address_of(&self, service: &str) -> Result<String> {
        address(self.api::<Service>().get(service).await?)
    }

    /// An address of a server's proxies from outside: a LoadBalancer Service, by its node port.
    pub(crate) async fn balanced_address(&self, name: &str, port: i32) -> Result<String> {
        let service: Service = self
            .cluster
            .create(json!({
                "metadata": { "name": format!("outside-{name}") },
                "spec": {
                    "type": "LoadBalancer", "ports": [{ "port": 80, "targetPort": port }],
                    "selector": { "app.kubernetes.io/name": "mcpserver", "app.kubernetes.io/instance": name },
                },
            }))
            .await?;
        let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
        let port = ports.first().and_then(|port| port.node_port).context("the Service has no port on the node")?;
        Ok(format!("{}:{port}", self.node_address().await?))
    }

    /// The address of a node, which pods and tests can reach.
    pub(crate) async fn node_address(&self) -> Result<String> {
        let nodes = Api::<Node>::all(self.cluster.client()).list(&ListParams::default()).await?;
        let addresses = nodes.items.iter().filter_map(|node| node.status.as_ref()?.addresses.as_ref()).flatten();
        let address = addresses.filter(|one| one.type_ == "InternalIP").map(|one| one.address.clone()).next();
        address.context("no node has an address")
    }

    /// Waits until a client can initialize over SSE, and returns it.
    pub(crate) async fn sse_client(&self, address: &str) -> Result<SseClient> {
        let mut listener = None;
        self.cluster
            .until(&format!("{address} answers over SSE"), || {
                listener = SseClient::open(address).ok();
                let done = listener.is_some();
                async move { Ok(done) }
            })
            .await?;
        listener.context("no response")
    }

    /// An initialized client, once the server is available.
    pub(crate) async fn caller(&self, address: &str) -> Result<Caller> {
        let mut caller = None;
        self.cluster
            .until(&format!("{address} answers"), || {
                let initialized = Caller::initialize(address);
                let done = initialized.is_ok();
                caller = initialized.ok().or_else(|| caller.take());
                async move { Ok(done) }
            })
            .await?;
        caller.context("no response")
    }

    /// Deletes every server, and waits until all their objects are gone.
    pub(crate) async fn empty_out(&self) -> Result<()> {
        let all = ListParams::default();
        self.servers().delete_collection(&DeleteParams::default(), &all).await?;
        self.cluster
            .until("nothing of the servers is left", || async {
                Ok(self.servers().list(&all).await?.items.is_empty()
                    && self.api::<Deployment>().list(&all).await?.items.is_empty()
                    && self.api::<StatefulSet>().list(&all).await?.items.is_empty()
                    && self.api::<ConfigMap>().list(&all.clone().labels("toolhive=true")).await?.items.is_empty())
            })
            .await
    }

    pub(crate) async fn pods(&self, labels: &str) -> Result<Vec<Pod>> {
        Ok(self.api::<Pod>().list(&ListParams::default().labels(labels)).await?.items)
    }

    /// The uids of pods: another one is another pod.
    pub(crate) async fn uids(&self, labels: &str) -> Result<BTreeSet<String>> {
        Ok(self.pods(labels).await?.into_iter().filter_map(|pod| pod.metadata.uid).collect())
    }
}

fn address(service: Service) -> Result<String> {
    let spec = service.spec.context("a Service without a spec")?;
    let port = spec.ports.unwrap_or_default().first().map(|port| port.port).context("a Service without a port")?;
    Ok(format!("{}:{port}", spec.cluster_ip.context("a Service without an address")?))
}

/// A client with a session.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) address: String,
    pub(crate) session: String,
}

impl Caller {
    pub(crate) fn initialize(address: &str) -> Result<Self> {
        let (head, body) = post(address, None, INITIALIZE)?;
        ensure!(head.starts_with("HTTP/1.1 200") && body.contains("skep-fixture"), "{head}\n{body}");
        let session = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
        });
        let session = session.context("no session")?;
        post(address, Some(&session), INITIALIZED)?;
        Ok(Self { address: address.to_owned(), session })
    }

    /// Calls a tool; returns the text of its result.
    pub(crate) fn call(&self, tool: &str, arguments: &str) -> Result<String> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        );
        let (head, body) = post(&self.address, Some(&self.session), &body)?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
        let answer: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
        ensure!(answer.get("id") == Some(&json!(7)), "{answer}");
        let text = answer.pointer("/result/content/0/text").and_then(Value::as_str);
        Ok(text.with_context(|| answer.to_string())?.to_owned())
    }
}

/// A client over HTTP+SSE: responses come on an event stream.
pub(crate) struct SseClient {
    address: String,
    path: String,
    events: BufReader<TcpStream>,
}

impl SseClient {
    /// Opens the stream and initializes.
    pub(crate) fn open(address: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // HTTP/1.0: a stream without chunk headers in it.
        write!(stream, "GET /sse HTTP/1.0\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n")?;
        let mut listener = Self { address: address.to_owned(), path: String::new(), events: BufReader::new(stream) };
        let endpoint = listener.next(|_| true)?.context("the stream ended before it named an endpoint")?;
        let path = endpoint.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        listener.path = path.map_or_else(|| endpoint.clone(), |(_, path)| format!("/{path}"));
        let initialized = listener.ask(INITIALIZE, "\"id\":1")?;
        ensure!(initialized.contains("skep-fixture"), "{initialized}");
        post_to(&listener.address, &listener.path, "", INITIALIZED)?;
        Ok(listener)
    }

    /// Sends a message and returns the event that contains the mark.
    pub(crate) fn ask(&mut self, message: &str, mark: &str) -> Result<String> {
        let (head, body) = post_to(&self.address, &self.path, "", message)?;
        ensure!(head.starts_with("HTTP/1.1 202"), "{head}\n{body}");
        self.next(|event| event.contains(mark))?.context("the stream ended before the answer came")
    }

    /// The data of the next matching event; `None` when the stream ends.
    pub(crate) fn next(&mut self, is_it: impl Fn(&str) -> bool) -> Result<Option<String>> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.events.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            if let Some(data) = line.trim_end().strip_prefix("data:").map(str::trim).filter(|data| is_it(data)) {
                return Ok(Some(data.to_owned()));
            }
        }
    }
}

/// Sends a message; returns head and body of the response.
pub(crate) fn post(address: &str, session: Option<&str>, body: &str) -> Result<(String, String)> {
    let session = session.map(|session| format!("Mcp-Session-Id: {session}\r\n")).unwrap_or_default();
    post_to(address, "/mcp", &session, body)
}

/// Asks which pod responds, as clients of 2026-07-28 do: without a session, and none may be created.
pub(crate) fn who(address: &str) -> Result<String> {
    let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: who\r\n";
    let (head, body) = post_to(address, "/mcp", headers, MODERN_CALL)?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
    ensure!(!head.to_ascii_lowercase().contains("mcp-session-id"), "a session for who wants none: {head}");
    let answer: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
    let is_modern = answer.pointer("/result/resultType").and_then(Value::as_str) == Some("complete");
    ensure!(is_modern && answer.get("id") == Some(&json!(7)), "{answer}");
    let text = answer.pointer("/result/content/0/text").and_then(Value::as_str);
    Ok(text.with_context(|| answer.to_string())?.to_owned())
}

/// Sends a GET request; returns head and body.
pub(crate) fn get(address: &str, path: &str) -> Result<(String, String)> {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

pub(crate) fn post_to(address: &str, path: &str, headers: &str, body: &str) -> Result<(String, String)> {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: application/json\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(address, &request)
}

/// Sends a raw request; returns head and body of the response.
fn exchange(address: &str, request: &str) -> Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("not an HTTP answer")?;
    Ok((head.to_owned(), body.to_owned()))
}

pub(crate) fn stdio(image: &str) -> Value {
    json!({ "image": image, "transport": "stdio", "args": ["mcp-stdio"] })
}

pub(crate) fn http(image: &str) -> Value {
    json!({ "image": image, "transport": "streamable-http", "mcpPort": 8080, "args": ["mcp-http", "8080"] })
}

pub(crate) fn sse(image: &str) -> Value {
    json!({ "image": image, "transport": "sse", "mcpPort": 8080, "args": ["mcp-sse", "8080"] })
}

/// A spec with one field more.
pub(crate) fn with(mut spec: Value, name: &str, value: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        fields.insert(name.to_owned(), value);
    }
    spec
}
