//! The sessions that the bridge opens at a legacy server for its modern clients, who have none.
//!
//! Clients of one identity with the same capabilities share one; clients without an identity share one as long as their credentials are
//! the same. A call that asks for a log has one of its own, and so has every call where the server is initialized once for all: there, a
//! session is what tells whose call the server's messages are about.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use skep_mcp::bridge::{ModernClient, RequiredCapability};
use skep_mcp::{Id, Kind, Message, Raw, value};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::BridgedUpstream;
use crate::error::CallError;
use crate::stdio::RELAYED;
use crate::upstream::{ClientContext, SessionId};

/// How many sessions are shared at once. Beyond that, one that is not in use makes room.
const SHARED: usize = 1000;
/// How long one may be unused, and how often is looked for such.
const IDLE: Duration = Duration::from_mins(5);
const SWEEP: Duration = Duration::from_secs(30);

/// What the ids of these sessions begin with: no client's does.
const PREFIX: &str = "bridge:";

/// Headers that say nothing of who a client is, and may be another for every call.
const VOLATILE: [&str; 12] = [
    "baggage",
    "forwarded",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-envoy-external-address",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
];

/// All that are shared.
#[derive(Debug, Default)]
pub(super) struct ServerSessions(Mutex<Shared>);

#[derive(Debug, Default)]
struct Shared {
    sessions: HashMap<Key, Arc<OnceCell<Arc<ServerSession>>>>,
    is_swept: bool,
}

/// Who may share a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Issuer and subject, if the client was authenticated.
    identity: Option<(Arc<str>, Arc<str>)>,
    capabilities: Capabilities,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What a session declares of its clients: as much of it as a server may make something of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Capabilities([bool; 6]);

/// A session at the server.
#[derive(Debug)]
pub(super) struct ServerSession {
    pub(super) id: SessionId,
    /// The server's response to `initialize`.
    pub(super) initialized: Message,
    /// Who the server is.
    pub(super) server: Option<Raw<'static>>,
    users: AtomicUsize,
    used: Mutex<Instant>,
}

/// The use of a session. One that is not shared is closed with it.
pub(super) struct Lease {
    bridge: Arc<BridgedUpstream>,
    pub(super) session: Arc<ServerSession>,
    is_shared: bool,
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum OpenError {
    /// The server cannot be called.
    Call(CallError),
    /// It refuses.
    Refused(Box<Message>),
}

/// Whether a session is one of the bridge.
pub(super) fn is_own(session: &SessionId) -> bool {
    session.starts_with(PREFIX)
}

// === impl BridgedUpstream ===

impl BridgedUpstream {
    /// A session for a call of a client. `is_own` says that no other call may share it.
    pub(super) async fn lease(
        self: &Arc<Self>,
        client: &ModernClient,
        context: &ClientContext,
        is_own: bool,
    ) -> Result<Lease, OpenError> {
        let is_shared = !is_own && !self.inner.initializes_once();
        let session = if is_shared {
            self.shared_session(client, context).await?
        } else {
            self.open_session(client, context).await?
        };
        session.users.fetch_add(1, Ordering::AcqRel);
        Ok(Lease { bridge: self.clone(), session, is_shared })
    }

    async fn shared_session(
        self: &Arc<Self>,
        client: &ModernClient,
        context: &ClientContext,
    ) -> Result<Arc<ServerSession>, OpenError> {
        let key = Key::of(client, context);
        let (cell, evicted) = self.servers.with(|shared| shared.cell(&key)).ok_or_else(busy)?;
        if let Some(evicted) = evicted {
            self.inner.clone().close(&evicted.id);
        }
        self.start_sweeping();
        // One handshake at a time: the others wait for it.
        let opened = cell.get_or_try_init(|| self.open_session(client, context)).await;
        if opened.is_err() {
            self.servers.with(|shared| shared.forget(&key, &cell));
        }
        opened.cloned()
    }

    async fn open_session(
        &self,
        client: &ModernClient,
        context: &ClientContext,
    ) -> Result<Arc<ServerSession>, OpenError> {
        let id = SessionId::from(format!("{PREFIX}{}", uuid::Uuid::new_v4()));
        let initialize = if self.inner.initializes_once() {
            // It was declared to the server already; here it says what is shown to the bridge, which refuses it.
            initialize(RELAYED, client.info())
        } else {
            initialize(&Capabilities::of(client).to_json(), client.info())
        };
        let initialize = initialize.ok_or(OpenError::Call(CallError::NotSent))?;
        let initialized = self.inner.open(&id, &initialize, context).await.map_err(OpenError::Call)?;
        if initialized.kind() != Kind::Response {
            return Err(OpenError::Refused(Box::new(initialized)));
        }
        let server = initialized.result().and_then(|result| value::find(result, &["serverInfo"]));
        let server = server.filter(|server| server.starts_with('{')).and_then(|server| Raw::parse(server).ok());
        let server = server.map(Raw::into_owned);
        let (users, used) = (AtomicUsize::new(0), Mutex::new(Instant::now()));
        Ok(Arc::new(ServerSession { id, initialized, server, users, used }))
    }

    /// Begins to close sessions that are not used any more.
    fn start_sweeping(&self) {
        if !self.servers.with(|shared| std::mem::replace(&mut shared.is_swept, true)) {
            tokio::spawn(sweep(self.me.clone()).in_current_span());
        }
    }
}

/// Closes sessions that are not used any more, for as long as there are any.
async fn sweep(bridge: Weak<BridgedUpstream>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(bridge) = bridge.upgrade() else { return };
        let (idle, is_over) = bridge.servers.with(|shared| shared.take_idle(IDLE));
        for session in idle {
            tracing::debug!("closing a session of the bridge that is not used any more");
            bridge.inner.clone().close(&session.id);
        }
        if is_over {
            return;
        }
    }
}

// === impl ServerSessions ===

impl ServerSessions {
    fn with<T>(&self, act: impl FnOnce(&mut Shared) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Shared ===

impl Shared {
    /// The place of a session, and another one that made room for it. Nothing if all are in use.
    #[expect(clippy::type_complexity, reason = "a place, and what it displaced")]
    fn cell(&mut self, key: &Key) -> Option<(Arc<OnceCell<Arc<ServerSession>>>, Option<Arc<ServerSession>>)> {
        if let Some(cell) = self.sessions.get(key) {
            return Some((cell.clone(), None));
        }
        let mut evicted = None;
        if self.sessions.len() >= SHARED {
            let unused = self.sessions.iter().filter_map(|(key, cell)| Some((key, cell.get()?)));
            let unused = unused.filter(|(_, session)| session.is_unused());
            let (oldest, session) = unused.min_by_key(|(_, session)| session.used())?;
            let (oldest, session) = (oldest.clone(), session.clone());
            self.sessions.remove(&oldest);
            evicted = Some(session);
        }
        let cell = Arc::<OnceCell<_>>::default();
        self.sessions.insert(key.clone(), cell.clone());
        Some((cell, evicted))
    }

    /// Gives up the place of a session that could not be opened, unless another call is about to.
    fn forget(&mut self, key: &Key, cell: &Arc<OnceCell<Arc<ServerSession>>>) {
        let is_same = self.sessions.get(key).is_some_and(|known| Arc::ptr_eq(known, cell));
        // The table has one, and the caller.
        if is_same && !cell.initialized() && Arc::strong_count(cell) <= 2 {
            self.sessions.remove(key);
        }
    }

    /// Takes out those that were not used for so long, and says whether none is left.
    fn take_idle(&mut self, time: Duration) -> (Vec<Arc<ServerSession>>, bool) {
        let is_idle = |cell: &mut Arc<OnceCell<Arc<ServerSession>>>| match cell.get() {
            // The table has the only one.
            Some(session) => session.is_unused() && Arc::strong_count(cell) == 1 && session.used().elapsed() >= time,
            None => Arc::strong_count(cell) == 1,
        };
        let idle = self.sessions.extract_if(|_, cell| is_idle(cell));
        let idle = idle.filter_map(|(_, cell)| cell.get().cloned()).collect();
        self.is_swept = !self.sessions.is_empty();
        (idle, !self.is_swept)
    }
}

// === impl ServerSession ===

impl ServerSession {
    fn is_unused(&self) -> bool {
        self.users.load(Ordering::Acquire) == 0
    }

    fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server writes a log that clients can ask for.
    pub(super) fn has_log(&self) -> bool {
        let result = self.initialized.result().unwrap_or_default();
        value::has(result, &["capabilities", "logging"])
    }
}

// === impl Lease ===

impl Drop for Lease {
    fn drop(&mut self) {
        *self.session.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.session.users.fetch_sub(1, Ordering::AcqRel);
        // Closing may need the runtime, which is gone when the proxy ends.
        if !self.is_shared && tokio::runtime::Handle::try_current().is_ok() {
            self.bridge.inner.clone().close(&self.session.id);
        }
    }
}

// === impl Key ===

impl Key {
    fn of(client: &ModernClient, context: &ClientContext) -> Self {
        let identity = context.caller.as_ref().map(|caller| &caller.identity);
        let identity = identity.filter(|identity| identity.is_authenticated());
        let identity = identity.map(|identity| (identity.issuer.clone(), identity.subject.clone()));
        let headers = telling(&context.headers, identity.is_some());
        Self { identity, capabilities: Capabilities::of(client), headers }
    }
}

/// The headers that say who a client is to the server. The token of an authenticated client is renewed from time to time.
fn telling(headers: &HeaderMap, is_authenticated: bool) -> Vec<(HeaderName, HeaderValue)> {
    let is_telling = |name: &HeaderName| {
        let is_token = is_authenticated && *name == http::header::AUTHORIZATION;
        !is_token && !VOLATILE.contains(&name.as_str())
    };
    let mut telling: Vec<_> = headers.iter().filter(|(name, _)| is_telling(name)).collect();
    telling.sort_by(|one, other| (one.0.as_str(), one.1.as_bytes()).cmp(&(other.0.as_str(), other.1.as_bytes())));
    telling.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

// === impl Capabilities ===

impl Capabilities {
    fn of(client: &ModernClient) -> Self {
        let declared = client.capabilities();
        let has = |path: &[&str]| value::has(declared, path);
        Self([
            has(&["elicitation"]) && (!has(&["elicitation", "url"]) || has(&["elicitation", "form"])),
            RequiredCapability::URL.is_in(declared),
            has(&["sampling"]),
            has(&["sampling", "tools"]),
            has(&["roots"]),
            has(&["extensions", UI]),
        ])
    }

    fn to_json(self) -> String {
        let Self([form, url, sampling, tools, roots, ui]) = self;
        let member = |name: &str, is_in: bool, inside: &str| is_in.then(|| format!(r#""{name}":{{{inside}}}"#));
        let joined = |members: [Option<String>; 2]| members.into_iter().flatten().collect::<Vec<_>>().join(",");
        let elicitation = joined([member("form", form, ""), member("url", url, "")]);
        let sampling_of = joined([member("tools", tools, ""), None]);
        let pages = format!(r#""{UI}":{{"mimeTypes":["text/html;profile=mcp-app"]}}"#);
        let members = [
            member("elicitation", form || url, &elicitation),
            member("sampling", sampling, &sampling_of),
            member("roots", roots, ""),
            member("extensions", ui, &pages),
        ];
        format!("{{{}}}", members.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

/// The extension that costs nothing to relay: it is about resources that clients read.
const UI: &str = "io.modelcontextprotocol/ui";

/// The `initialize` of the bridge. Its id is no number, as those of calls are.
fn initialize(capabilities: &str, info: Option<&Raw<'static>>) -> Option<Message> {
    let own = format!(r#"{{"name":"skep","version":"{}"}}"#, env!("CARGO_PKG_VERSION"));
    let info = info.map_or(own.as_str(), Raw::as_str);
    let id = Id::string("initialize");
    let params = format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"clientInfo":{info}}}"#);
    Message::parse(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{params}}}"#).into()).ok()
}

fn busy() -> OpenError {
    OpenError::Call(CallError::Unavailable("as many clients use it as can be kept apart".into()))
}
