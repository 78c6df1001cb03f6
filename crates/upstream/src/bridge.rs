//! The era bridge: a server of one era, for clients of both. It wraps another upstream, and whatever the server serves itself passes
//! through untouched.
//!
//! ```text
//!   legacy client ─┬─▶ a server that serves 2025-11-25 and before ──────────────────────────▶ passes through
//!                  └─▶ clients, to_modern ─▶ translated ─▶ server/discover, calls, listening ─▶ modern server
//!   modern client ─┬─▶ a server that serves 2026-07-28 ─────────────────────────────────────▶ passes through
//!                  └─▶ to_legacy ─▶ translated ─▶ sessions of the bridge (`servers`), subscription ─▶ legacy server
//! ```
//!
//! [`skep_mcp::bridge`] translates single messages. What needs a state is here: the sessions of legacy clients at a server that has
//! none (`clients`, `listening`), the sessions that modern clients need at a legacy server (`servers`), ids that are unique there,
//! and what comes before a response (`relay`).
//!
//! Requests of a server during a call are not relayed: the call ends with the error that its client's era has for that.

mod capabilities;
mod clients;
mod listening;
mod relay;
mod servers;
mod shared_sessions;
mod subscription;
mod to_legacy;
mod to_modern;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::headers::parameters::Parameter;
use skep_mcp::{Era, Eras, Id, Message, answer};
use skep_net::Budget;
use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

use self::clients::LegacySessions;
use self::shared_sessions::SharedSessions;
use crate::error::CallError;
use crate::replies::{INTERIM, Replies};
use crate::upstream::{BoxFuture, Call, ClientContext, Server, SessionId, Upstream, UpstreamState};

/// An upstream that serves clients of both eras, whichever its server is of.
#[derive(Debug)]
pub struct BridgedUpstream {
    inner: Arc<dyn Upstream>,
    state: watch::Sender<UpstreamState>,
    /// Whether the state of the inner upstream is followed.
    is_following: AtomicBool,
    last_id: AtomicU64,
    clients: LegacySessions,
    servers: SharedSessions,
    /// For the tasks that it starts: they do not keep it alive.
    me: Weak<Self>,
}

// === impl BridgedUpstream ===

impl BridgedUpstream {
    /// A bridge in front of an upstream.
    pub fn new(inner: Arc<dyn Upstream>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            inner,
            state: watch::Sender::new(UpstreamState::Starting),
            is_following: AtomicBool::new(false),
            last_id: AtomicU64::new(0),
            clients: LegacySessions::default(),
            servers: SharedSessions::default(),
            me: me.clone(),
        })
    }

    /// The eras that the server serves itself, as far as is known.
    fn eras(&self) -> Option<Eras> {
        match &*self.inner.state().borrow() {
            UpstreamState::Ready(server) => Some(server.eras),
            UpstreamState::Starting | UpstreamState::Failing(_) => None,
        }
    }

    /// Whether the server serves an era itself, once that is known. One that is failing says itself why.
    async fn serves(&self, era: Era, client: &ClientContext) -> Result<bool, CallError> {
        self.inner.identify(client).await?;
        let mut state = self.inner.state();
        loop {
            match &*state.borrow_and_update() {
                UpstreamState::Ready(server) => return Ok(server.eras.contains(era)),
                UpstreamState::Failing(_) => return Ok(true),
                UpstreamState::Starting => {}
            }
            state.changed().await.map_err(|_closed| CallError::NotSent)?;
        }
    }

    /// Forwards a call that the server serves itself.
    fn pass_through(&self, call: Call) -> BoxFuture<'static, Result<Replies, CallError>> {
        // The server may have been of the other era when the session was opened.
        let session = call.session.as_ref().filter(|_| call.era == Era::Legacy);
        if let Some((session, initialize)) = session.and_then(|session| self.clients.hand_over(session)) {
            self.inner.restore(&session, initialize.as_bytes());
        }
        self.inner.clone().call(call)
    }

    /// An id that no other request of the bridge has.
    fn new_id(&self) -> Id {
        Id::number(self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// What a session hears of a server of which the era is not known yet.
    fn events_once_ready(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(1);
        let (me, session) = (self.me.clone(), session.clone());
        tokio::spawn(
            async move {
                let Some(mut state) = me.upgrade().map(|bridge| bridge.state()) else { return };
                let is_ready = |state: &UpstreamState| matches!(state, UpstreamState::Ready(_));
                tokio::select! {
                    ready = state.wait_for(is_ready) => if ready.is_err() { return },
                    () = sender.closed() => return,
                }
                let Some(mut heard) = me.upgrade().map(|bridge| bridge.events(&session, budget)) else { return };
                while let Some(message) = heard.recv().await {
                    if sender.send(message).await.is_err() {
                        return;
                    }
                }
            }
            .in_current_span(),
        );
        receiver
    }
}

impl Upstream for BridgedUpstream {
    fn state(&self) -> watch::Receiver<UpstreamState> {
        let mut inner = self.inner.state();
        if !self.is_following.swap(true, Ordering::AcqRel) {
            self.state.send_replace(bridged(&inner.borrow_and_update()));
            tokio::spawn(follow(self.me.clone(), inner).in_current_span());
        }
        self.state.subscribe()
    }

    fn initializes_once(&self) -> bool {
        self.inner.initializes_once()
    }

    fn open<'a>(
        &'a self,
        session: &'a SessionId,
        initialize: &'a Message,
        client: &'a ClientContext,
    ) -> BoxFuture<'a, Result<Message, CallError>> {
        Box::pin(async move {
            if self.serves(Era::Legacy, client).await? {
                return self.inner.open(session, initialize, client).await;
            }
            self.open_at_modern_server(session, initialize, client).await
        })
    }

    fn restore(&self, session: &SessionId, initialize: &[u8]) {
        if self.eras().is_none_or(|eras| eras.contains(Era::Legacy)) {
            self.inner.restore(session, initialize);
        } else {
            self.clients.restore(session, initialize);
        }
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Replies, CallError>> {
        if self.eras().is_some_and(|eras| eras.contains(call.era)) {
            return self.pass_through(call);
        }
        Box::pin(async move {
            if self.serves(call.era, &call.client).await? {
                return self.pass_through(call).await;
            }
            match call.era {
                Era::Legacy => self.call_modern_server(call).await,
                Era::Modern => self.call_legacy_server(call).await,
            }
        })
    }

    fn send<'a>(
        &'a self,
        session: Option<&'a SessionId>,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        match session.and_then(|session| self.clients.find(session)) {
            Some(session) => {
                session.take(message);
                Box::pin(std::future::ready(Ok(())))
            }
            None => self.inner.send(session, message),
        }
    }

    fn events(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes> {
        match self.eras() {
            Some(eras) if eras.contains(Era::Legacy) => self.inner.events(session, budget),
            Some(_) => self.listen(session, budget),
            None => self.events_once_ready(session, budget),
        }
    }

    fn close(self: Arc<Self>, session: &SessionId) {
        self.clients.remove(session);
        // It may have been restored there before the era of the server was known.
        self.inner.clone().close(session);
    }

    fn idle_sessions(&self, time: Duration) -> Vec<SessionId> {
        let mut idle = self.inner.idle_sessions(time);
        // The bridge closes its own.
        idle.retain(|session| !servers::is_own(session));
        idle.extend(self.clients.idle(time));
        idle
    }

    fn tool_parameters(
        self: Arc<Self>,
        call: Message,
        has_headers: bool,
    ) -> BoxFuture<'static, Result<Arc<[Parameter]>, CallError>> {
        self.inner.clone().tool_parameters(call, has_headers)
    }

    fn drain(&self) {
        self.inner.drain();
    }
}

/// The state of a server and a bridge.
fn bridged(state: &UpstreamState) -> UpstreamState {
    match state {
        UpstreamState::Ready(server) => {
            UpstreamState::Ready(Server { eras: Eras::Both, version: server.version.clone() })
        }
        UpstreamState::Starting | UpstreamState::Failing(_) => state.clone(),
    }
}

/// Keeps the state of a bridge that of its server.
async fn follow(bridge: Weak<BridgedUpstream>, mut inner: watch::Receiver<UpstreamState>) {
    while inner.changed().await.is_ok() {
        let Some(bridge) = bridge.upgrade() else { return };
        bridge.state.send_replace(bridged(&inner.borrow_and_update()));
    }
}

/// The bridge's own response to a request: an empty result.
fn done(message: &Message) -> Result<Replies, CallError> {
    let id = message.id().ok_or(CallError::NotSent)?;
    respond(answer::empty_result(&id))
}

/// The bridge's own response to a request: an error.
fn refuse(message: &Message, code: i64, text: &str) -> Result<Replies, CallError> {
    respond(answer::error(message.id().as_ref(), code, text, None))
}

fn respond(body: Bytes) -> Result<Replies, CallError> {
    Message::parse(body).map(Replies::ready).map_err(|_malformed| CallError::NotSent)
}

/// The response to a method that the client's version does not have.
fn no_such_method(message: &Message) -> Result<Replies, CallError> {
    let method = message.method().unwrap_or_default();
    let text = format!("Method not found: `{}`", skep_mcp::value::clipped(method));
    refuse(message, answer::METHOD_NOT_FOUND, &text)
}

/// A channel for what comes before a response, if the client takes that.
fn interim(takes_interim: bool) -> (Option<mpsc::Sender<Bytes>>, Option<mpsc::Receiver<Bytes>>) {
    if takes_interim { Some(mpsc::channel(INTERIM)).unzip() } else { (None, None) }
}
