//! An operator's client that lets one thing go wrong, at one write.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tower::service_fn;

use crate::between::refusal;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// The operator is killed before the write is sent.
    KillBefore,
    /// The operator is killed after the write took effect, before it knows.
    KillAfter,
    /// The write is refused as a conflict.
    Conflict,
    /// The write takes effect, and is answered with an error.
    ErrorAfter,
    /// The write does not reach the API server, and its connection breaks.
    BreakBefore,
    /// The write takes effect, and its connection breaks before the answer.
    BreakAfter,
    /// The write takes effect, and is never answered: the operator's own deadline must end it.
    Timeout,
    /// The operator is killed after the write, and the watch cache that serves the next one is as old as the first list.
    StaleRestart,
    /// A resource is deleted and made again, as the watches show: what the next one is compared with.
    Recreation,
    /// The same while no watch brings anything, between two lists.
    HiddenRecreation,
}

type Answered = UnsyncBoxBody<Bytes, kube::Error>;

/// A request without an answer, until the operator gives it up.
struct Unanswered<'a>(&'a AtomicUsize);

impl<'a> Unanswered<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The client, and what it has seen.
#[derive(Clone)]
pub(crate) struct Injector(Arc<State>);

struct State {
    real: Client,
    fault: Fault,
    write: usize,
    seed: u64,
    requests: AtomicU64,
    writes: AtomicUsize,
    deletions: Mutex<BTreeSet<String>>,
    kill: Notify,
    /// Whether the fault has happened.
    has_happened: AtomicBool,
    /// How many requests wait for an answer that never comes.
    unanswered: AtomicUsize,
    /// The version of the first list, which a stale restart lists again.
    first_version: Mutex<Option<String>>,
    is_stale: AtomicBool,
    /// Paths that were listed since the last restart or since something was hidden.
    listed: Mutex<HashSet<String>>,
    /// What was sent and listed, in order, to explain a failure.
    log: Mutex<Vec<String>>,
    /// All that was ever watched.
    watched: Mutex<HashSet<String>>,
    /// How often watches were interrupted, and whether they bring nothing now.
    hidden: watch::Sender<(u64, bool)>,
}

// === impl Fault ===

impl Fault {
    pub(crate) const ALL: &'static [Self] = &[
        Self::KillBefore,
        Self::KillAfter,
        Self::Conflict,
        Self::ErrorAfter,
        Self::BreakBefore,
        Self::BreakAfter,
        Self::Timeout,
        Self::StaleRestart,
        Self::HiddenRecreation,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::KillBefore => "kill-before",
            Self::KillAfter => "kill-after",
            Self::Conflict => "conflict",
            Self::ErrorAfter => "error-after",
            Self::BreakBefore => "break-before",
            Self::BreakAfter => "break-after",
            Self::Timeout => "timeout",
            Self::StaleRestart => "stale-restart",
            Self::Recreation => "recreation",
            Self::HiddenRecreation => "hidden-recreation",
        }
    }

    /// Whether it makes a request of an operator that goes on fail, which is then retried.
    pub(crate) fn fails_a_request(self) -> bool {
        matches!(self, Self::Conflict | Self::ErrorAfter | Self::BreakBefore | Self::BreakAfter | Self::Timeout)
    }

    /// Whether it happens at a write, and not once at the end.
    pub(crate) fn is_at_a_write(self) -> bool {
        !matches!(self, Self::None | Self::Recreation | Self::HiddenRecreation)
    }
}

// === impl Injector ===

impl Injector {
    pub(crate) fn new(real: Client, fault: Fault, write: usize, seed: u64) -> Self {
        Self(Arc::new(State {
            real,
            fault,
            write,
            seed,
            requests: AtomicU64::new(0),
            writes: AtomicUsize::new(0),
            deletions: Mutex::default(),
            kill: Notify::new(),
            has_happened: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            first_version: Mutex::default(),
            is_stale: AtomicBool::new(false),
            listed: Mutex::default(),
            log: Mutex::default(),
            watched: Mutex::default(),
            hidden: watch::Sender::new((0, false)),
        }))
    }

    /// A client for an operator.
    pub(crate) fn client(&self) -> Client {
        let state = self.0.clone();
        lock(&state.listed).clear();
        Client::new(service_fn(move |request: Request<Body>| state.clone().answer(request)), "default")
    }

    /// Ends when the operator is to be killed.
    pub(crate) async fn killed(&self) {
        self.0.kill.notified().await;
    }

    /// Whether the fault has happened. A run may send fewer writes than the one without a fault.
    pub(crate) fn has_happened(&self) -> bool {
        !self.0.fault.is_at_a_write() || self.0.has_happened.load(Ordering::SeqCst)
    }

    /// How many writes were tried.
    pub(crate) fn writes(&self) -> usize {
        self.0.writes.load(Ordering::SeqCst)
    }

    /// Whether the operator has listed all that it watches: before that, it does not know what there is to do.
    pub(crate) fn is_synced(&self) -> bool {
        let watched = lock(&self.0.watched);
        !watched.is_empty() && watched.is_subset(&lock(&self.0.listed))
    }

    /// Whether the operator waits for an answer that never comes. That is not the silence of one that has nothing to do.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.0.unanswered.load(Ordering::SeqCst) > 0
    }

    /// What was deleted, by the end of its path.
    pub(crate) fn deletions(&self) -> BTreeSet<String> {
        lock(&self.0.deletions).clone()
    }

    /// What was sent and listed, in order.
    pub(crate) fn log(&self) -> String {
        lock(&self.0.log).join("\n")
    }

    /// From now on no watch brings anything.
    pub(crate) fn hide(&self) {
        self.0.note("-- hidden".to_owned());
        self.0.hidden.send_modify(|hidden| *hidden = (hidden.0 + 1, true));
    }

    /// Watches break, and only a list says what they missed.
    pub(crate) fn show(&self) {
        self.0.note("-- shown".to_owned());
        lock(&self.0.listed).clear();
        self.0.hidden.send_modify(|hidden| hidden.1 = false);
    }
}

// === impl State ===

impl State {
    async fn answer(self: Arc<Self>, request: Request<Body>) -> Result<Response<Answered>, kube::Error> {
        self.delay().await;
        match classify(&request) {
            Class::Write => self.write(request).await,
            Class::Watch => self.watch(request).await,
            Class::List => self.list(request).await,
            Class::Other => Ok(self.real.send(request).await?.map(Answered::new)),
        }
    }

    /// A short delay that the seed decides, so that requests beside each other come in another order with another seed.
    async fn delay(&self) {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let mixed = (self.seed ^ request.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let millis = (mixed >> 40) % 12;
        if millis > 8 {
            tokio::time::sleep(Duration::from_millis(millis - 8)).await;
        }
    }

    async fn write(&self, request: Request<Body>) -> Result<Response<Answered>, kube::Error> {
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        if request.method() == Method::DELETE {
            lock(&self.deletions).insert(end_of(request.uri().path()));
        }
        let sent = format!("{number}: {} {}", request.method(), end_of(request.uri().path()));
        if number != self.write || !self.fault.is_at_a_write() {
            let answer = self.real.send(request).await?;
            self.note(format!("{sent}: {}", answer.status()));
            return Ok(answer.map(Answered::new));
        }
        self.note(format!("{sent}: {}", self.fault.name()));
        self.has_happened.store(true, Ordering::SeqCst);
        let broken = || kube::Error::Service("the connection broke, for the test".into());
        match self.fault {
            Fault::Conflict => Ok(refusal(409, "Conflict").map(Answered::new)),
            Fault::KillBefore => self.die().await,
            Fault::BreakBefore => Err(broken()),
            _ => {
                let answer = self.real.send(request).await?;
                match self.fault {
                    Fault::ErrorAfter => Ok(refusal(500, "InternalError").map(Answered::new)),
                    Fault::BreakAfter => Err(broken()),
                    Fault::StaleRestart => {
                        self.is_stale.store(true, Ordering::SeqCst);
                        self.die().await
                    }
                    Fault::KillAfter => self.die().await,
                    Fault::Timeout => {
                        let _unanswered = Unanswered::new(&self.unanswered);
                        std::future::pending().await
                    }
                    _ => Ok(answer.map(Answered::new)),
                }
            }
        }
    }

    fn note(&self, line: String) {
        lock(&self.log).push(line);
    }

    /// Has the operator killed; nothing is answered any more.
    async fn die<T>(&self) -> T {
        self.kill.notify_one();
        std::future::pending().await
    }

    /// A list. One that takes what a cache has gets something old after a stale restart; one that wants the most recent objects is
    /// answered with those, as an API server does.
    async fn list(&self, mut request: Request<Body>) -> Result<Response<Answered>, kube::Error> {
        let listed = key(request.uri());
        let is_first = !lock(&self.listed).contains(&listed);
        let known = lock(&self.first_version).clone();
        let is_cached =
            request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "resourceVersion=0"));
        if let (true, true, Some(version)) = (is_first && is_cached, self.is_stale.load(Ordering::SeqCst), &known) {
            *request.uri_mut() = at_version(request.uri(), version);
        }
        let (head, body) = self.real.send(request).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        self.note(format!("listed {}", listed.rsplit('/').next().unwrap_or_default()));
        lock(&self.listed).insert(listed);
        if known.is_none()
            && let Ok(list) = serde_json::from_slice::<serde_json::Value>(&bytes)
            && let Some(version) = list.pointer("/metadata/resourceVersion").and_then(serde_json::Value::as_str)
        {
            lock(&self.first_version).get_or_insert_with(|| version.to_owned());
        }
        Ok(Response::from_parts(head, Answered::new(Body::from(bytes.to_vec()))))
    }

    /// A watch; once something was hidden, it ends, and what was missed is listed.
    async fn watch(&self, request: Request<Body>) -> Result<Response<Answered>, kube::Error> {
        let mut hidden = self.hidden.subscribe();
        let (opened, _) = *hidden.borrow();
        lock(&self.watched).insert(key(request.uri()));
        let is_listed = lock(&self.listed).contains(&key(request.uri()));
        if opened > 0 && !is_listed {
            hidden.wait_for(|(_, is_hidden)| !is_hidden).await.map_err(|error| kube::Error::Service(error.into()))?;
            return Ok(expired().map(Answered::new));
        }
        let response = self.real.send(request).await?;
        let interrupted = async move {
            let _ended = hidden.wait_for(|(interruptions, is_hidden)| *interruptions != opened && !is_hidden).await;
        };
        let gate = self.hidden.subscribe();
        Ok(response.map(|body| {
            let frames = body.into_data_stream().filter_map(move |piece| {
                let is_hidden = gate.borrow().0 != opened;
                async move { (!is_hidden).then(|| piece.map(Frame::data)) }
            });
            Answered::new(StreamBody::new(Box::pin(frames.take_until(Box::pin(interrupted)))))
        }))
    }
}

/// What the API server brings on a watch from a version that it has forgotten: only a list helps.
fn expired() -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    let event = json!({ "type": "ERROR", "object": status });
    Response::new(Body::from(format!("{event}\n").into_bytes()))
}

/// The kind and name at the end of a path, or more where it ends in a subresource.
fn end_of(path: &str) -> String {
    path.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/')).map_or(path, |(_, end)| end).to_owned()
}

enum Class {
    Write,
    Watch,
    List,
    Other,
}

fn classify(request: &Request<Body>) -> Class {
    let uri = request.uri();
    let is_watch = uri.query().is_some_and(|query| query.contains("watch=true"));
    // Events are for people, and what a review asks changes nothing.
    let is_aside = uri.path().contains("/events") || uri.path().contains("reviews");
    match *request.method() {
        _ if is_aside => Class::Other,
        Method::GET if is_watch => Class::Watch,
        Method::GET if uri.query().is_some_and(|query| query.contains("limit=")) => Class::List,
        Method::GET => Class::Other,
        _ => Class::Write,
    }
}

/// What is listed or watched: the path and the selector.
fn key(uri: &Uri) -> String {
    let selector = |name: &str| {
        let query = uri.query().unwrap_or_default();
        query.split('&').find(|part| part.starts_with(name)).unwrap_or_default().to_owned()
    };
    format!("{} {} {}", uri.path(), selector("labelSelector"), selector("fieldSelector"))
}

/// The same list, of an earlier version.
fn at_version(uri: &Uri, version: &str) -> Uri {
    let query = uri.query().unwrap_or_default();
    let kept = query.split('&').filter(|part| !part.starts_with("resourceVersion"));
    let query: Vec<String> = kept
        .map(str::to_owned)
        .chain([format!("resourceVersion={version}"), "resourceVersionMatch=Exact".to_owned()])
        .collect();
    format!("{}?{}", uri.path(), query.join("&")).parse().unwrap_or_else(|_| uri.clone())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
