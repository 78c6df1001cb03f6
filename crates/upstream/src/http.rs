//! A server that speaks HTTP: streamable HTTP, or its predecessor with a stream of events beside the requests.
//!
//! ```text
//!   HttpUpstream::forward ──────────▶ pods ─▶ send ─▶ redirects ─▶ server
//!                                      ▲       │ unknown session, or no connection
//!                                      └─ reinitialize ◀─┘
//!
//!   Upstream::open ──▶ handshake ───┐
//!   Upstream::call ──▶ call ────────┼─▶ protocol_headers ─▶ send ─▶ redirects ─▶ server
//!   Upstream::send ──▶ notify ──────┤                                              │
//!   Upstream::events ▶ listen ──────┘    messages, or sse_stream for HTTP+SSE ◀────┘
//! ```
//!
//! [`HttpUpstream::forward`] is the fast path of a proxy in front of one server of the client's era: bytes in, bytes out. See
//! `docs/decisions/0010-forwarding-keeps-the-framing.md`. As an [`Upstream`], it takes and returns messages, and its callers know nothing of
//! framing.
//!
//! Every session of a client has a session of its own at the server (`client_session`), which is re-initialized when the server forgot it. So
//! the ids of a client are unique there, and are sent as they are. A server of 2026-07-28 has no sessions; `probe` finds out which era it is.

mod call;
mod client_session;
mod credentials;
mod forward;
mod handshake;
mod kept;
mod listen;
mod messages;
mod notify;
mod pods;
mod probe;
mod protocol_headers;
mod redirects;
mod reinitialize;
mod request;
mod send;
mod server_session;
mod sse_stream;
mod target;
mod unreachable;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use skep_mcp::headers::parameters::Parameter;
use skep_mcp::{Era, Eras, Message};
use skep_net::{Budget, Client};
use skep_store::Sessions as Store;
use tokio::sync::{mpsc, watch};

pub use credentials::{Credentials, CredentialsError};
pub use forward::{ForwardError, OpenedSession};
pub use pods::{Lookup, Pods};
pub use request::ServerRequest;
pub use server_session::ServerSession;
pub use target::{Target, TargetError};
pub use unreachable::reason as unreachable_reason;

use self::client_session::ClientSession;
use self::probe::Probing;
use self::reinitialize::Renewals;
use crate::error::CallError;
use crate::replies::Replies;
use crate::tool_catalogue::ToolCatalogue;
use crate::upstream::{BoxFuture, Call, ClientContext, SessionId, Upstream, UpstreamState};

/// A server that speaks HTTP.
#[derive(Debug)]
pub struct HttpUpstream {
    target: Target,
    client: Client,
    options: HttpOptions,
    /// Whether the server answers only to the name of its own machine: some refuse any other `Host`.
    as_local: AtomicBool,
    renewals: Renewals,
    /// The transport, once it is known.
    transport: OnceLock<Transport>,
    /// The sessions of clients.
    sessions: Mutex<HashMap<SessionId, Arc<ClientSession>>>,
    catalogue: ToolCatalogue,
    state: watch::Sender<UpstreamState>,
    probing: watch::Sender<Probing>,
    /// For the tasks that it starts: they do not keep it alive.
    me: Weak<Self>,
}

/// How a server that speaks HTTP is reached.
#[derive(Debug, Default)]
pub struct HttpOptions {
    /// Its transport. If it is not known, `initialize` is sent by streamable HTTP first.
    pub transport: Option<Transport>,
    /// The pods behind the target, if it is a Service that may have several. Servers of HTTP+SSE are reached by the Service only.
    pub pods: Option<Pods>,
    /// Where the sessions of forwarded requests are kept.
    pub store: Option<Arc<Store>>,
    /// The eras of the server, if they are known: then it is not probed.
    pub eras: Option<Eras>,
    /// Headers of every request that is not forwarded, beside those of a call.
    pub headers: HeaderMap,
    /// What adds credentials to every request that is not forwarded.
    pub credentials: Option<Arc<dyn Credentials>>,
}

/// The transport of a server that speaks HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP: every response comes on the connection of its request.
    StreamableHttp,
    /// HTTP+SSE, which the protocol deprecated: responses come on one stream of events.
    Sse,
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// A server at a target.
    pub fn new(target: Target, client: Client, mut options: HttpOptions) -> Arc<Self> {
        options.pods = options.pods.filter(|_| options.transport != Some(Transport::Sse));
        let transport = options.transport.map(OnceLock::from).unwrap_or_default();
        let state = options.eras.map_or(UpstreamState::Starting, UpstreamState::ready);
        Arc::new_cyclic(|me| Self {
            target,
            client,
            options,
            as_local: AtomicBool::new(false),
            renewals: Renewals::default(),
            transport,
            sessions: Mutex::default(),
            catalogue: ToolCatalogue::default(),
            state: watch::Sender::new(state),
            probing: watch::Sender::default(),
            me: me.clone(),
        })
    }

    /// Where it is.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether it speaks HTTP+SSE.
    pub fn is_sse(&self) -> bool {
        self.transport.get() == Some(&Transport::Sse)
    }

    /// The era in which the server is called without a session, as far as it is known.
    fn era(&self) -> Era {
        match &*self.state.borrow() {
            UpstreamState::Ready(server) if server.eras.contains(Era::Modern) => Era::Modern,
            UpstreamState::Ready(_) | UpstreamState::Starting | UpstreamState::Failing(_) => Era::Legacy,
        }
    }
}

impl Upstream for HttpUpstream {
    fn state(&self) -> watch::Receiver<UpstreamState> {
        self.start_probing();
        self.state.subscribe()
    }

    fn identify<'a>(&'a self, client: &'a ClientContext) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(self.probe_as(client))
    }

    fn open<'a>(
        &'a self,
        session: &'a SessionId,
        initialize: &'a Message,
        client: &'a ClientContext,
    ) -> BoxFuture<'a, Result<Message, CallError>> {
        Box::pin(async move {
            let me = self.me.upgrade().ok_or(CallError::NotSent)?;
            let opened = ClientSession::new(session.clone(), initialize.clone(), client);
            let (response, link) = me.handshake(&opened).await?;
            opened.keep_less();
            if let Some(link) = link {
                opened.set_link(link).await;
                self.with_sessions(|sessions| sessions.insert(session.clone(), opened));
            }
            Ok(response)
        })
    }

    /// The session is opened at the server when it is first used.
    fn restore(&self, session: &SessionId, initialize: &[u8]) {
        let Ok(initialize) = Message::parse(Bytes::copy_from_slice(initialize)) else { return };
        self.with_sessions(|sessions| {
            let new = || ClientSession::new(session.clone(), initialize, &ClientContext::default());
            sessions.entry(session.clone()).or_insert_with(new);
        });
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Replies, CallError>> {
        Box::pin(self.start_call(call))
    }

    fn send<'a>(
        &'a self,
        session: Option<&'a SessionId>,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(self.notify(session, message))
    }

    fn events(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes> {
        self.listen(session, budget)
    }

    fn close(self: Arc<Self>, session: &SessionId) {
        let session = session.clone();
        tokio::spawn(async move { self.close_session(&session).await });
    }

    fn idle_sessions(&self, time: Duration) -> Vec<SessionId> {
        self.with_sessions(|sessions| {
            let idle = sessions.iter().filter(|(_, session)| session.is_idle(time));
            idle.map(|(id, _)| id.clone()).collect()
        })
    }

    /// A legacy server repeats nothing in headers.
    fn tool_parameters(
        self: Arc<Self>,
        call: Message,
        _has_headers: bool,
    ) -> BoxFuture<'static, Result<Arc<[Parameter]>, CallError>> {
        Box::pin(async move {
            match self.era() {
                Era::Modern => self.parameters(&call, &ClientContext::default()).await,
                Era::Legacy => Ok(Arc::default()),
            }
        })
    }

    fn drain(&self) {}
}
