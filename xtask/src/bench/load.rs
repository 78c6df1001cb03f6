//! Load-generating clients: each has one connection, one session and one call in flight, and checks every response.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "2025-11-25";
/// The timeout of one call, after which the measurement fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Some callers of one URL.
pub(super) struct Callers(Vec<Caller>);

/// A request, and how long its result is at least.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    method: &'static str,
    params: String,
    length: usize,
}

/// One caller.
struct Caller {
    sender: SendRequest<Full<Bytes>>,
    path: Uri,
    headers: HeaderMap,
    id: u64,
    /// Which of several requests is its next one.
    turn: usize,
}

/// The checked members of a response.
#[derive(Deserialize)]
struct Answer<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

// === impl Ask ===

impl Ask {
    pub(super) fn new(method: &'static str, params: &Value, length: usize) -> Self {
        Self { method, params: params.to_string(), length }
    }

    /// A call of a tool that returns as many bytes as it is asked for.
    pub(super) fn tool(name: &str, size: usize) -> Self {
        Self::new("tools/call", &json!({ "name": name, "arguments": { "size": size } }), size)
    }
}

// === impl Callers ===

impl Callers {
    /// Connects callers that have no session yet.
    pub(super) async fn connect(url: &str, count: usize) -> Result<Self> {
        let url: Uri = url.parse().with_context(|| format!("`{url}` is not a URL"))?;
        let callers = (0..count).map(|_| Caller::connect(&url)).collect::<FuturesUnordered<_>>();
        let callers = callers.map_err(|error| error.context(format!("cannot connect to {url}")));
        let mut callers: Vec<Caller> = callers.try_collect().await?;
        // Each begins with another one of several requests.
        for (turn, caller) in callers.iter_mut().enumerate() {
            caller.turn = turn;
        }
        Ok(Self(callers))
    }

    /// The same callers, which send an `Authorization` header.
    pub(super) fn with_authorization(mut self, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value)?;
        for caller in &mut self.0 {
            caller.headers.insert(AUTHORIZATION, value.clone());
        }
        Ok(self)
    }

    /// Opens a session for each caller.
    pub(super) async fn initialize(&mut self) -> Result<()> {
        self.each(async |caller| {
            let session = caller.open().await?;
            caller.headers.insert(SESSION, session);
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Ends the session of each caller.
    pub(super) async fn leave(mut self) -> Result<()> {
        self.each(async |caller| {
            let session = caller.headers.get(SESSION).cloned().context("a caller has no session")?;
            caller.close(session).await
        })
        .await
        .map(drop)
    }

    /// Sends these requests in turns for a duration, and returns how long each took.
    pub(super) async fn ask_for(&mut self, asks: &[Ask], time: Duration) -> Result<Vec<Duration>> {
        let end = Instant::now() + time;
        let taken = self.each(async |caller| {
            let mut taken = Vec::new();
            while Instant::now() < end {
                let started = Instant::now();
                caller.ask_next(asks).await?;
                taken.push(started.elapsed());
            }
            Ok(taken)
        });
        Ok(taken.await?.into_iter().flatten().collect())
    }

    /// Sends each of these requests once for each caller.
    pub(super) async fn ask_each(&mut self, asks: &[Ask]) -> Result<()> {
        let done = self.each(async |caller| {
            for _ in asks {
                caller.ask_next(asks).await?;
            }
            Ok(())
        });
        done.await.map(drop)
    }

    /// Sends a request of the first caller, and returns the body of its response.
    pub(super) async fn ask(&mut self, ask: &Ask) -> Result<Bytes> {
        let caller = self.0.first_mut().context("there is no caller")?;
        caller.ask(ask).await.map(|(_, body)| body)
    }

    /// Listens in the session of each caller, until this is dropped.
    pub(super) async fn listen(self) -> Result<JoinSet<()>> {
        let mut listening = JoinSet::new();
        for mut caller in self.0 {
            let mut request = Request::new(Full::default());
            *request.uri_mut() = caller.path.clone();
            *request.headers_mut() = caller.headers.clone();
            let response = caller.sender.send_request(request).await?;
            ensure!(response.status() == StatusCode::OK, "GET answered {}", response.status());
            let mut body = response.into_body();
            listening.spawn(async move {
                let _connection = caller;
                while let Some(Ok(_)) = body.frame().await {}
            });
        }
        Ok(listening)
    }

    /// Opens sessions, and leaves them open.
    pub(super) async fn open(&mut self, count: usize) -> Result<Vec<HeaderValue>> {
        let each = count.div_ceil(self.0.len().max(1));
        let opened = self.each(async |caller| {
            let mut opened = Vec::new();
            for _ in 0..each {
                opened.push(caller.open().await?);
            }
            Ok(opened)
        });
        Ok(opened.await?.into_iter().flatten().collect())
    }

    /// Ends sessions.
    pub(super) async fn close(&mut self, sessions: Vec<HeaderValue>) -> Result<()> {
        let caller = self.0.first_mut().context("there is no caller")?;
        for session in sessions {
            caller.close(session).await?;
        }
        Ok(())
    }

    /// Opens sessions and ends each after one of these requests, or at once.
    pub(super) async fn open_and_close(&mut self, count: usize, asks: &[Ask]) -> Result<()> {
        let each = count.div_ceil(self.0.len().max(1));
        let done = self.each(async |caller| {
            for _ in 0..each {
                let session = caller.open().await?;
                if !asks.is_empty() {
                    caller.headers.insert(SESSION, session.clone());
                    caller.ask_next(asks).await?;
                    caller.headers.remove(SESSION);
                }
                caller.close(session).await?;
            }
            Ok(())
        });
        done.await.map(drop)
    }

    /// Lets all callers do something at the same time.
    async fn each<T>(&mut self, job: impl AsyncFn(&mut Caller) -> Result<T>) -> Result<Vec<T>> {
        let job = &job;
        let count = self.0.len();
        let jobs = self.0.iter_mut().map(|caller| async move { job(caller).await }).collect::<FuturesUnordered<_>>();
        // All are awaited, because it matters whether one of them failed or all.
        let done: Vec<Result<T>> = jobs.collect().await;
        let failed = done.iter().filter(|done| done.is_err()).count();
        let done: Result<Vec<T>> = done.into_iter().collect();
        done.with_context(|| format!("{failed} of {count} callers failed, one of them because"))
    }
}

// === impl Caller ===

impl Caller {
    async fn connect(url: &Uri) -> Result<Self> {
        let host = url.host().context("it has no host")?;
        let stream = TcpStream::connect((host, url.port_u16().unwrap_or(80))).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut headers = HeaderMap::new();
        headers
            .insert(HOST, HeaderValue::from_str(url.authority().map_or("localhost", |authority| authority.as_str()))?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert("mcp-protocol-version", HeaderValue::from_static(VERSION));
        let path = url.path_and_query().map_or("/", |path| path.as_str()).parse()?;
        Ok(Self { sender, path, headers, id: 0, turn: 0 })
    }

    async fn open(&mut self) -> Result<HeaderValue> {
        let params = json!({
            "protocolVersion": VERSION, "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" },
        });
        let (headers, _) = self.ask(&Ask::new("initialize", &params, 0)).await?;
        headers.get(SESSION).cloned().context("the answer to initialize opens no session")
    }

    async fn close(&mut self, session: HeaderValue) -> Result<()> {
        let mut headers = self.headers.clone();
        headers.insert(SESSION, session);
        let (status, _, _) = self.send(Method::DELETE, headers, Bytes::new()).await?;
        ensure!(status.is_success(), "DELETE answered {status}");
        Ok(())
    }

    /// Sends the request whose turn it is.
    async fn ask_next(&mut self, asks: &[Ask]) -> Result<()> {
        let ask = asks.get(self.turn % asks.len().max(1)).context("there is nothing to ask")?;
        self.turn += 1;
        self.ask(ask).await.map(drop)
    }

    /// Sends a request, and checks the id and the length of its response.
    async fn ask(&mut self, ask: &Ask) -> Result<(HeaderMap, Bytes)> {
        let Ask { method, params, length } = ask;
        self.id += 1;
        let id = self.id;
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let (status, headers, body) = self.send(Method::POST, self.headers.clone(), body.into()).await?;
        let text = std::str::from_utf8(&body)?;
        ensure!(status == StatusCode::OK, "{method} answered {status}: {text}");
        let is_answer = |text: &str| {
            serde_json::from_str::<Answer<'_>>(text).is_ok_and(|answer| {
                answer.id == Some(id) && answer.result.is_some_and(|result| result.get().len() >= *length)
            })
        };
        let mut events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        if !(is_answer(text) || events.any(is_answer)) {
            let start: String = text.chars().take(200).collect();
            bail!("{method} with id {id} got something else: {start}");
        }
        Ok((headers, body))
    }

    async fn send(
        &mut self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderMap, Bytes)> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = headers;
        let stage = Cell::new("no place");
        let exchange = async {
            self.sender.ready().await?;
            stage.set("no answer");
            let (head, body) = self.sender.send_request(request).await?.into_parts();
            stage.set("no end of the answer");
            anyhow::Ok((head.status, head.headers, body.collect().await?.to_bytes()))
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await;
        answered.with_context(|| format!("{} for {method} {}", stage.get(), String::from_utf8_lossy(&body)))?
    }
}
