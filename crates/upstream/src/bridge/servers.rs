//! The sessions that the bridge opens at a legacy server for its modern clients, who have none.
//!
//! Clients of one identity with the same capabilities share one; clients without an identity share one as long as their credentials are
//! the same (`shared_sessions`). A call that asks for a log has one of its own, and so has every call where the server is initialized once
//! for all: there, a session is what tells whose call the server's messages are about.
//!
//! What is kept for a session counts in the memory budget, in the share of the client that it was opened for.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::bridge::ModernClient;
use skep_mcp::{Id, Kind, Message, Raw, value};
use skep_net::Budget;
use skep_net::budget::{Purpose, Reservation};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::BridgedUpstream;
use super::capabilities::Capabilities;
use super::shared_sessions::{Key, Table};
use crate::error::CallError;
use crate::kept_client::KeptClient;
use crate::stdio::RELAYED;
use crate::upstream::{ClientContext, SessionId};

/// How long one may be unused, and how often is looked for such.
const IDLE: Duration = Duration::from_mins(5);
const SWEEP: Duration = Duration::from_secs(30);

/// The size of a session beside its strings, here and in the upstream, in bytes.
const SESSION_BYTES: usize = 2048;

/// What the ids of these sessions begin with: no client's does.
const PREFIX: &str = "bridge:";

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
    /// For what is kept of it, here and in the upstream.
    _counted: Reservation,
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
    /// A session for a call of a client, in its share of the memory budget. `is_own` says that no other call may share it.
    pub(super) async fn lease(
        self: &Arc<Self>,
        client: &ModernClient,
        context: &ClientContext,
        budget: &Budget,
        is_own: bool,
    ) -> Result<Lease, OpenError> {
        let is_shared = !is_own && !self.inner.initializes_once();
        let session = if is_shared {
            self.shared_session(client, context, budget).await?
        } else {
            let session = self.open_session(client, context, budget).await?;
            session.begin_use();
            session
        };
        Ok(Lease { bridge: self.clone(), session, is_shared })
    }

    async fn shared_session(
        self: &Arc<Self>,
        client: &ModernClient,
        context: &ClientContext,
        budget: &Budget,
    ) -> Result<Arc<ServerSession>, OpenError> {
        let key = Key::of(client, context);
        let (cell, evicted) = self.servers.with(|shared| shared.place(&key, budget.client()));
        for evicted in evicted {
            self.inner.clone().close(&evicted.id);
        }
        let cell = cell.ok_or_else(|| busy("this client uses as many sessions of the server as it may"))?;
        self.start_sweeping();
        // One handshake at a time: the others wait for it.
        let opened = cell.get_or_try_init(|| self.open_session(client, context, budget)).await;
        if opened.is_err() {
            self.servers.with(|shared| shared.forget(&key, &cell));
        }
        let session = opened.cloned()?;
        // Before the place is given back: until then it is not evicted.
        session.begin_use();
        Ok(session)
    }

    async fn open_session(
        &self,
        client: &ModernClient,
        context: &ClientContext,
        budget: &Budget,
    ) -> Result<Arc<ServerSession>, OpenError> {
        let id = SessionId::from(format!("{PREFIX}{}", uuid::Uuid::new_v4()));
        let initialize = if self.inner.initializes_once() {
            // It was declared to the server already; here it says what is shown to the bridge, which refuses it.
            initialize(RELAYED, client.info())
        } else {
            initialize(&Capabilities::of(client).to_json(), client.info())
        };
        let initialize = initialize.ok_or(OpenError::Call(CallError::NotSent))?;
        let room = SESSION_BYTES + initialize.body().len() + KeptClient::room(context);
        let mut counted = budget.reservation(Purpose::Request);
        self.count(&mut counted, room, budget.client())?;
        let initialized = self.inner.open(&id, &initialize, context).await.map_err(OpenError::Call)?;
        if initialized.kind() != Kind::Response {
            return Err(OpenError::Refused(Box::new(initialized)));
        }
        // A copy: it may be a part of what a connection read, which would be kept with it.
        let copy = Message::parse(Bytes::copy_from_slice(initialized.body())).map_err(|_never| CallError::Malformed);
        let counts = self.count(&mut counted, initialized.body().len(), budget.client());
        let initialized = match counts.and(copy.map_err(OpenError::Call)) {
            Ok(initialized) => initialized,
            Err(error) => {
                self.inner.clone().close(&id);
                return Err(error);
            }
        };
        let server = initialized.result().and_then(|result| value::find(result, &["serverInfo"]));
        let server = server.filter(|server| server.starts_with('{')).and_then(|server| Raw::parse(server).ok());
        let server = server.map(Raw::into_owned);
        let (users, used) = (AtomicUsize::new(0), Mutex::new(Instant::now()));
        Ok(Arc::new(ServerSession { id, initialized, server, users, used, _counted: counted }))
    }

    /// Counts what is kept for a session. If there is no room, unused sessions of the same network make some.
    fn count(&self, counted: &mut Reservation, more: usize, peer: Option<IpAddr>) -> Result<(), OpenError> {
        while counted.grow(more).is_err() {
            let unused = self.servers.with(|shared| shared.take_unused(peer));
            let unused = unused.ok_or_else(|| {
                busy("the memory budget, or the client's share of it, has none for another session of the server")
            })?;
            self.inner.clone().close(&unused.id);
        }
        Ok(())
    }

    /// Begins to close sessions that are not used any more.
    fn start_sweeping(&self) {
        if !self.servers.with(Table::start_sweeping) {
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

// === impl ServerSession ===

impl ServerSession {
    fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn is_unused(&self) -> bool {
        self.users.load(Ordering::Acquire) == 0
    }

    pub(super) fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server writes a log that clients can ask for.
    pub(super) fn has_log(&self) -> bool {
        let result = self.initialized.result().unwrap_or_default();
        value::has(result, &["capabilities", "logging"])
    }

    /// One that no server opened.
    #[cfg(test)]
    pub(super) fn fake(is_used: bool) -> Arc<Self> {
        let initialized = Message::parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.into()).unwrap();
        Arc::new(Self {
            id: format!("{PREFIX}{}", uuid::Uuid::new_v4()).into(),
            initialized,
            server: None,
            users: AtomicUsize::new(usize::from(is_used)),
            used: Mutex::new(Instant::now()),
            _counted: Budget::default().reservation(Purpose::Request),
        })
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

/// The `initialize` of the bridge. Its id is no number, as those of calls are.
fn initialize(capabilities: &str, info: Option<&Raw<'static>>) -> Option<Message> {
    let own = format!(r#"{{"name":"skep","version":"{}"}}"#, env!("CARGO_PKG_VERSION"));
    let info = info.map_or(own.as_str(), Raw::as_str);
    let id = Id::string("initialize");
    let params = format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"clientInfo":{info}}}"#);
    Message::parse(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{params}}}"#).into()).ok()
}

fn busy(why: &str) -> OpenError {
    OpenError::Call(CallError::Busy(why.into()))
}
