//! Many small MCP servers of 2025-11-25 in one process, each on a port of its own. They do as little as a server can, so that what is in front
//! of them is what is measured.
//!
//! | request | response |
//! | --- | --- |
//! | `tools/list` | the tools of the server, written once for each change |
//! | `tools/call` | as many bytes as `size` says |
//! | `bench/change` | changes the list and reports it; answered when a client has listed what is new |
//! | `bench/hang` | from now on, the server takes 15 s for each answer (`slow`), or sends its headers alone (`stalling`) |

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as Waking, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::process::Process;
use crate::ui;

/// How long a slow server takes for an answer.
const SLOW: Duration = Duration::from_secs(15);
/// How long a changed list may not be requested.
const UNLISTED: Duration = Duration::from_secs(20);
/// The ways in which a server answers.
const QUICK: u8 = 0;
const LATE: u8 = 1;
const STALLING: u8 = 2;

const SESSION: &str = "mcp-session-id";
const LIST_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// The running servers. They end with this.
pub(super) struct Backends {
    process: Process,
    /// Where each of them listens.
    pub(super) ports: Vec<u16>,
}

/// One server.
struct Server {
    name: String,
    tools: usize,
    manner: AtomicU8,
    sessions: AtomicU64,
    /// The result of `tools/list`, and the number of the change that made it.
    list: Mutex<(u64, Bytes)>,
    /// Counts changes, and those that a client has seen.
    changes: watch::Sender<u64>,
    listed: watch::Sender<u64>,
}

/// What of a message matters here.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// A body in parts, whose length is known.
struct Parts(VecDeque<Bytes>);

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

// === impl Backends ===

impl Backends {
    /// Starts servers that have so many tools together.
    pub(super) fn start(count: usize, tools: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "backends", &count.to_string(), &tools.to_string()]);
        let mut process = Process::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
        let mut line = String::new();
        BufReader::new(process.output().context("it has no output")?).read_line(&mut line)?;
        let ports = serde_json::from_str(&line).context("the backends do not say where they listen")?;
        Ok(Self { process, ports })
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn urls(&self) -> impl Iterator<Item = String> {
        self.ports.iter().map(|port| format!("http://127.0.0.1:{port}/mcp"))
    }
}

/// The name of a tool, as its server has it.
pub(super) fn tool(number: usize) -> String {
    format!("tool_{number:03}")
}

/// Serves them forever. Prints their ports.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(count: usize, tools: usize) -> Result<()> {
    let (mut listeners, mut ports) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        ports.push(listener.local_addr()?.port());
        listeners.push(listener);
    }
    ui::result(&json!(ports).to_string());
    let serving = listeners.into_iter().enumerate().map(|(number, listener)| {
        let share = tools / count + usize::from(number < tools % count);
        serve(listener, Arc::new(Server::new(format!("server {number}"), share)))
    });
    futures_util::future::try_join_all(serving).await.map(drop)
}

async fn serve(listener: TcpListener, server: Arc<Server>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let server = server.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| server.clone().answer(request));
            // A client that disconnects is ignored.
            let _gone =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

// === impl Server ===

impl Server {
    fn new(name: String, tools: usize) -> Self {
        let server = Self {
            name,
            tools,
            manner: AtomicU8::new(QUICK),
            sessions: AtomicU64::new(0),
            list: Mutex::default(),
            changes: watch::Sender::new(0),
            listed: watch::Sender::new(0),
        };
        server.write_list(0);
        server
    }

    /// Writes the list as it is after a change.
    fn write_list(&self, change: u64) {
        let described = |number: usize| {
            json!({
                "name": tool(number),
                "description": format!(
                    "Returns as many bytes as it is asked for, from {} after change {change}. It is described in about as many \
                     words as the tools of real servers are, and has about as many parameters.",
                    self.name,
                ),
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "size": { "type": "integer", "description": "How many bytes to return." },
                        "encoding": { "type": "string", "enum": ["plain", "base64"], "description": "How they are written." },
                    },
                    "required": ["size"],
                },
            })
        };
        let tools: Vec<Value> = (0..self.tools).map(described).collect();
        let written = Bytes::from(json!({ "tools": tools }).to_string());
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = (change, written);
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer> {
        match *request.method() {
            Method::POST => {}
            Method::GET => return Ok(self.events()),
            _ => return Ok(response(StatusCode::OK, [])),
        }
        let body = request.into_body().collect().await?.to_bytes();
        let Message { id, method, params } = serde_json::from_slice(&body)?;
        let (Some(id), Some(method)) = (id, method) else { return Ok(response(StatusCode::ACCEPTED, [])) };
        let start = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, id.get()));
        let result = match (method, self.manner.load(Ordering::Relaxed)) {
            ("bench/change", _) => self.change().await?,
            ("bench/hang", _) => {
                let is_slow = params.is_some_and(|params| params.get().contains("slow"));
                self.manner.store(if is_slow { LATE } else { STALLING }, Ordering::Relaxed);
                Bytes::from_static(b"{}")
            }
            (_, STALLING) => {
                let never = StreamBody::new(futures_util::stream::pending()).boxed_unsync();
                return Ok(with_type(Response::new(never), "application/json"));
            }
            (method, manner) => {
                if manner == LATE {
                    tokio::time::sleep(SLOW).await;
                }
                let Some(result) = self.result(method, params) else {
                    let error = r#"{"code":-32601,"message":"method not found"}"#;
                    let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.get());
                    return Ok(with_type(response(StatusCode::OK, [body.into()]), "application/json"));
                };
                result
            }
        };
        let mut answer = response(StatusCode::OK, [start, result, Bytes::from_static(b"}")]);
        if method == "initialize" {
            let session = self.sessions.fetch_add(1, Ordering::Relaxed);
            answer
                .headers_mut()
                .insert(SESSION, HeaderValue::from_str(&format!("{}-{session}", self.name.replace(' ', "-")))?);
        }
        Ok(with_type(answer, "application/json"))
    }

    /// The result of a request of MCP. Nothing if the method is not known.
    fn result(&self, method: &str, params: Option<&RawValue>) -> Option<Bytes> {
        let result = match method {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": self.name, "version": "1" },
            }),
            "ping" => json!({}),
            "tools/list" => {
                let (change, list) = self.list.lock().unwrap_or_else(PoisonError::into_inner).clone();
                self.listed.send_replace(change);
                return Some(list);
            }
            "tools/call" => {
                let params: Value = serde_json::from_str(params?.get()).ok()?;
                let size = params.pointer("/arguments/size").and_then(Value::as_u64).unwrap_or_default();
                json!({ "content": [{ "type": "text", "text": "x".repeat(usize::try_from(size).ok()?) }] })
            }
            _ => return None,
        };
        Some(result.to_string().into())
    }

    /// Changes the list, and waits until a client has requested it.
    async fn change(&self) -> Result<Bytes> {
        let change = *self.changes.borrow() + 1;
        self.write_list(change);
        self.changes.send_replace(change);
        let mut listed = self.listed.subscribe();
        let seen = tokio::time::timeout(UNLISTED, listed.wait_for(|listed| *listed >= change)).await;
        seen.context("no client requested the changed list")??;
        Ok(json!({ "change": change }).to_string().into())
    }

    /// A stream that reports every change.
    fn events(&self) -> Answer {
        let changes = unfold(self.changes.subscribe(), async |mut changes| {
            changes.changed().await.ok()?;
            let event = Bytes::from(format!("data: {LIST_CHANGED}\n\n"));
            Some((Ok(Frame::data(event)), changes))
        });
        with_type(Response::new(StreamBody::new(changes).boxed_unsync()), "text/event-stream")
    }
}

fn response<const COUNT: usize>(status: StatusCode, parts: [Bytes; COUNT]) -> Answer {
    let mut response = Response::new(Parts(parts.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn with_type(mut answer: Answer, kind: &'static str) -> Answer {
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

// === impl Parts ===

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Waking<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}
