//! A server on stdio that does as it is told, and the proxy in front of it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use skep_mcp::Era;
use skep_net::drain::Grace;
use skep_net::{Drain, Listener, serve};
use skep_proxy::chain::{Chain, Context};
use skep_proxy::downstream::{Endpoint, Sse, Streamable};
use skep_proxy::health::Health;
use skep_proxy::sessions::{Kind, Sessions, Store};
use skep_proxy::{Front, Guards, Proxy};
use skep_runconfig::RunConfig;
use skep_store::{Memory, SessionLimits};
use skep_upstream::BridgedUpstream;
use skep_upstream::stdio::{Limits, StdioUpstream};
use skep_workload::pipe::{BoxFuture, Held, Notes, Pipe};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, WriteHalf};
use tokio::sync::Mutex as AsyncMutex;

use crate::client::{PATIENCE, TestClient};

/// What the server saw, and how it behaves.
#[derive(Default)]
pub(crate) struct Seen {
    /// Every message, in order.
    pub(crate) messages: Vec<Value>,
    /// How often it was started.
    pub(crate) starts: usize,
    /// Whether it refuses to be initialized, and to report on resources whose names begin with `no:`.
    pub(crate) refuses: bool,
    /// What tells it from others, if it is the same one whenever it is started.
    pub(crate) identity: Option<String>,
    /// What it turns out to be while it is talked to, if that is not what it seemed.
    pub(crate) turns_out: Option<String>,
    /// What is kept beside it for the next proxy, if there is such a place.
    pub(crate) notes: Option<Arc<Paper>>,
    /// Whether it keeps silent when it is initialized.
    pub(crate) is_shy: bool,
    /// Which eras it speaks.
    pub(crate) speaks: Speaks,
    /// The era that it was opened in since it was started, if it keeps to one.
    opened: Option<Era>,
    /// What it says instead of anything else, byte for byte, with `ID` for the id.
    pub(crate) says: Option<String>,
}

/// Which eras a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// Whatever it is asked, as servers do that know nothing of eras.
    #[default]
    Legacy,
    /// Both, and keeps to the one that it is opened in, as servers on the SDKs do.
    Both,
    /// 2026-07-28 only.
    Modern,
    /// The same, and ends when it hears `initialize`.
    ModernAndFragile,
}

/// The server and the proxy.
pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Seen>>,
    pub(crate) drain: Drain,
    pub(crate) sessions: Sessions,
    /// Whether the server can be started.
    there: Arc<tokio::sync::watch::Sender<bool>>,
    /// Ends the server's connection.
    output: Arc<AsyncMutex<Option<WriteHalf<DuplexStream>>>>,
}

/// How the proxy is set up.
pub(crate) struct How {
    pub(crate) config: RunConfig,
    pub(crate) timeout: Duration,
    pub(crate) sse: bool,
    /// How much sessions may take.
    pub(crate) session_limits: SessionLimits,
    /// What holds for every request.
    pub(crate) guards: Guards,
    /// The limits of the listener.
    pub(crate) listener: skep_net::serve::Options,
}

impl Default for How {
    fn default() -> Self {
        let config = RunConfig { transport: "stdio".to_owned(), host: "0.0.0.0".to_owned(), ..RunConfig::default() };
        Self {
            config,
            timeout: Duration::from_secs(30),
            sse: false,
            session_limits: SessionLimits::default(),
            guards: Guards::default(),
            listener: skep_net::serve::Options::default(),
        }
    }
}

impl Stage {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(How::default()).await
    }

    pub(crate) async fn with(how: How) -> Result<Self> {
        Self::build(how, true).await
    }

    /// With a server that does not start before it is told to.
    pub(crate) async fn absent(how: How) -> Result<Self> {
        Self::build(how, false).await
    }

    /// With a server that speaks these eras.
    pub(crate) async fn speaking(speaks: Speaks, how: How) -> Result<Self> {
        let stage = Box::pin(Self::absent(how)).await?;
        stage.seen.lock().unwrap().speaks = speaks;
        stage.appear();
        Ok(stage)
    }

    /// With a server of 2026-07-28.
    pub(crate) async fn modern() -> Result<Self> {
        Box::pin(Self::speaking(Speaks::Modern, How::default())).await
    }

    /// Lets the server start.
    pub(crate) fn appear(&self) {
        self.there.send_replace(true);
    }

    async fn build(how: How, there: bool) -> Result<Self> {
        let there = Arc::new(tokio::sync::watch::Sender::new(there));
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let output: Arc<AsyncMutex<Option<WriteHalf<DuplexStream>>>> = Arc::default();
        let connect = {
            let (seen, output, there) = (seen.clone(), output.clone(), there.clone());
            Box::new(move || -> std::pin::Pin<Box<dyn Future<Output = Result<Pipe, String>> + Send>> {
                let (seen, output, mut there) = (seen.clone(), output.clone(), there.subscribe());
                Box::pin(async move {
                    there.wait_for(|there| *there).await.map(drop).map_err(|error| error.to_string())?;
                    Ok(start(seen, output).await)
                })
            })
        };
        let (upstream, talk) = StdioUpstream::start(connect, Limits::default());
        tokio::spawn(talk);
        let upstream = BridgedUpstream::new(upstream);
        let drain = Drain::new(Grace { linger: Duration::ZERO, finish: Duration::from_secs(2) });
        let store = Store::Memory(Memory::within(Duration::from_mins(10), how.session_limits));
        let sessions = Sessions::new(store, if how.sse { Kind::Sse } else { Kind::Streamable });
        let front = if how.sse {
            let trust = how.config.trust_proxy_headers;
            Front::Sse(Sse::new(Endpoint::new(upstream, sessions.clone(), how.timeout, drain.clone()), trust))
        } else {
            let strict = how.config.strict_protocol_validation;
            Front::Streamable(Streamable::new(
                Endpoint::new(upstream, sessions.clone(), how.timeout, drain.clone()),
                strict,
            ))
        };
        let listener = Listener::bind("127.0.0.1:0".parse()?).await?;
        let address = listener.address();
        let chain = Chain::new(&how.config, &Context { port: address.port(), ..Context::default() })?;
        let health = Arc::new(Health::new("stdio", drain.clone()));
        let proxy = Proxy::guarded(chain, front, health, None, how.guards);
        let handler = move |request, peer| proxy.clone().answer(request, peer);
        tokio::spawn(serve(listener, how.listener, drain.clone(), handler));
        Ok(Self { address, seen, drain, sessions, there, output })
    }

    pub(crate) fn caller(&self) -> TestClient {
        TestClient::new(self.address)
    }

    /// What the server was told by a method.
    pub(crate) fn received(&self, method: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        seen.messages.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// Waits until the server was told by a method so many times.
    pub(crate) async fn until_received(&self, method: &str, times: usize) -> Result<Vec<Value>> {
        skep_testkit::eventually(&format!("{times} times {method}"), PATIENCE, || async {
            let reply = self.received(method);
            Ok(if reply.len() >= times {
                skep_testkit::Seen::Yes(reply)
            } else {
                skep_testkit::Seen::NotYet(format!("{reply:?}"))
            })
        })
        .await
    }

    /// Says something unasked.
    pub(crate) async fn say(&self, message: Value) -> Result<()> {
        self.write(&message.to_string()).await
    }

    /// Writes a line, whatever it is.
    pub(crate) async fn write(&self, line: &str) -> Result<()> {
        let mut output = self.output.lock().await;
        let output = output.as_mut().expect("the server runs");
        output.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// Ends the server.
    pub(crate) async fn kill(&self) {
        *self.output.lock().await = None;
    }
}

/// Waits until the server was started so many times.
pub(crate) async fn until_started(stage: &Stage, times: usize) -> Result<()> {
    skep_testkit::eventually("a start", PATIENCE, || async {
        let starts = stage.seen.lock().unwrap().starts;
        Ok(if starts >= times { skep_testkit::Seen::Yes(()) } else { skep_testkit::Seen::NotYet(starts.to_string()) })
    })
    .await
}

/// Starts the server: its streams, with a task at the other end of them.
async fn start(seen: Arc<Mutex<Seen>>, output: Arc<AsyncMutex<Option<WriteHalf<DuplexStream>>>>) -> Pipe {
    // As small as pipes can be: a proxy that waits to write without reading is found out.
    let (input, server_input) = tokio::io::duplex(1 << 12);
    let (server_output, from_server) = tokio::io::duplex(1 << 12);
    let (_unread, writer) = tokio::io::split(server_output);
    *output.lock().await = Some(writer);
    {
        let mut seen = seen.lock().unwrap();
        (seen.starts, seen.opened) = (seen.starts + 1, None);
    }
    let held = {
        let now = seen.lock().unwrap();
        Box::new(Behind { identity: now.identity.clone(), notes: now.notes.clone(), seen: seen.clone() })
    };
    tokio::spawn(async move {
        let mut lines = BufReader::new(server_input).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).expect("a message on each line");
            let (answers, ends) = {
                let mut seen = seen.lock().unwrap();
                let refused = refused_for_its_era(&message, &mut seen);
                let ends = seen.speaks == Speaks::ModernAndFragile && message["method"] == "initialize";
                let answers = refused.unwrap_or_else(|| answer(&message, &seen));
                seen.messages.push(message);
                (answers, ends)
            };
            let mut held = output.lock().await;
            let Some(writer) = held.as_mut() else { return };
            for answer in answers {
                let _gone = writer.write_all(format!("{answer}\n").as_bytes()).await;
            }
            if ends {
                *held = None;
                return;
            }
        }
    });
    Pipe { stdin: Box::new(input), stdout: Box::new(from_server), stderr: Box::new(tokio::io::empty()), held }
}

/// What is behind the streams.
struct Behind {
    identity: Option<String>,
    notes: Option<Arc<Paper>>,
    seen: Arc<Mutex<Seen>>,
}

/// What is kept beside a server.
#[derive(Debug, Default)]
pub(crate) struct Paper(pub(crate) Mutex<Option<String>>);

impl Held for Behind {
    fn end(self: Box<Self>) -> std::pin::Pin<Box<dyn Future<Output = Option<String>> + Send>> {
        Box::pin(std::future::ready(None))
    }

    fn identity(&self) -> Option<String> {
        self.seen.lock().unwrap().turns_out.clone().or_else(|| self.identity.clone())
    }

    fn notes(&self) -> Option<Arc<dyn Notes>> {
        self.notes.clone().map(|notes| notes as Arc<dyn Notes>)
    }
}

impl Notes for Paper {
    fn keep(&self, text: String) -> BoxFuture<()> {
        *self.0.lock().unwrap() = Some(text);
        Box::pin(std::future::ready(()))
    }

    fn kept(&self) -> BoxFuture<Option<String>> {
        Box::pin(std::future::ready(self.0.lock().unwrap().clone()))
    }
}

/// How a request is refused that is not of the era that the server was opened in.
fn refused_for_its_era(message: &Value, seen: &mut Seen) -> Option<Vec<String>> {
    let id = message.get("id").filter(|_| message["method"].is_string())?;
    let is_handshake = message["method"] == "initialize";
    let is_modern = !is_handshake && !message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null();
    let era = if is_modern { Era::Modern } else { Era::Legacy };
    let opened = match seen.speaks {
        Speaks::Legacy => return None,
        Speaks::Both => *seen.opened.get_or_insert(era),
        Speaks::Modern | Speaks::ModernAndFragile => Era::Modern,
    };
    let error = match (opened, era) {
        (Era::Legacy, Era::Modern) => json!({ "code": -32600, "message": "opened in the other era" }),
        (Era::Modern, Era::Legacy) => {
            let data = json!({ "supported": ["2026-07-28"], "requested": message["params"]["protocolVersion"] });
            json!({ "code": -32022, "message": "no handshake here", "data": data })
        }
        _ => return None,
    };
    Some(vec![json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()])
}

fn answer(message: &Value, seen: &Seen) -> Vec<String> {
    let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
        return answered(message, seen);
    };
    let result = |result: Value| vec![json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()];
    let params = &message["params"];
    let uri = params["uri"].as_str().unwrap_or_default();
    match method {
        "initialize" if seen.refuses => not_today(id),
        "initialize" if seen.is_shy => Vec::new(),
        "resources/subscribe" if seen.refuses && uri.starts_with("no:") => not_today(id),
        "resources/subscribe" if uri.starts_with("hold:") => Vec::new(),
        "initialize" => result(json!({
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": seen.starts.to_string() },
        })),
        "server/discover" if seen.speaks != Speaks::Legacy => {
            result(json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {} }))
        }
        "tools/list" if params["cursor"] == "more" => {
            let region = json!({ "type": "string", "x-mcp-header": "Region" });
            result(json!({ "tools": [{ "name": "place", "inputSchema": { "type": "object", "properties": { "region": region } } }] }))
        }
        "tools/list" => result(json!({
            "tools": [{ "name": "echo", "inputSchema": {} }, { "name": "hidden", "inputSchema": {} }],
            "nextCursor": "more", "_meta": { "kept": true },
        })),
        "tools/call" => match params["name"].as_str().unwrap_or_default() {
            "echo" | "place" => result(json!({ "content": [{ "type": "text", "text": params["arguments"].to_string() }] })),
            "raw" => vec![seen.says.clone().unwrap_or_default().replace("ID", &id.to_string())],
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                let report = |progress: u32| {
                    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": token, "progress": progress } })
                        .to_string()
                };
                let mut all = vec![report(1), report(2)];
                all.extend(result(json!({ "content": [] })));
                all
            }
            "ask" => vec![json!({ "jsonrpc": "2.0", "id": "theirs", "method": "sampling/createMessage", "params": { "for": id } }).to_string()],
            _ => Vec::new(),
        },
        "hold" | "subscriptions/listen" => Vec::new(),
        "no/such" | "server/discover" => {
            vec![json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no" } }).to_string()]
        }
        _ => result(json!({})),
    }
}

fn not_today(id: &Value) -> Vec<String> {
    vec![json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": "not today" } }).to_string()]
}

/// A client answered a request of the server: so the call that led to it can be answered.
fn answered(message: &Value, seen: &Seen) -> Vec<String> {
    if message["id"] != "theirs" {
        return Vec::new();
    }
    let asked = seen.messages.iter().rev().find(|one| one["params"]["name"] == "ask");
    let id = asked.map(|asked| asked["id"].clone()).unwrap_or_default();
    vec![json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [], "reply": message["result"] } }).to_string()]
}
