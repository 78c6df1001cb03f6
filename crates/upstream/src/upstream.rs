//! The trait that everything above calls a server by.

use std::fmt::Debug;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use skep_auth::Caller;
use skep_mcp::headers::parameters::Parameter;
use skep_mcp::list::List;
use skep_mcp::{Era, Eras, Message};
use skep_net::Budget;
use tokio::sync::{mpsc, watch};

use crate::error::CallError;
use crate::replies::Replies;
use crate::session_keeper::SessionKeeper;

/// The id of a client's session. Stateless clients have none.
pub type SessionId = Arc<str>;

/// A future of a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An MCP server, or several that look like one. Dropping a future or [`Replies`] cancels a request.
pub trait Upstream: Debug + Send + Sync {
    /// Whether it takes requests, now and from now on.
    fn state(&self) -> watch::Receiver<UpstreamState>;

    /// Finds out the eras of the server in the name of a client, if they are not known yet: a server that is called with the credentials of
    /// clients says nothing to the proxy itself.
    fn identify<'a>(&'a self, _client: &'a ClientContext) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether the server is initialized once for all sessions, and not by each of them. What a session declares then only decides which
    /// requests of the server reach it.
    fn initializes_once(&self) -> bool {
        false
    }

    /// Opens a session for a legacy client, and returns the response to its `initialize`.
    fn open<'a>(
        &'a self,
        session: &'a SessionId,
        initialize: &'a Message,
        client: &'a ClientContext,
    ) -> BoxFuture<'a, Result<Message, CallError>>;

    /// Takes over a session that another replica opened by this `initialize`. Does nothing for a session that is known.
    fn restore(&self, session: &SessionId, initialize: &[u8]);

    /// Takes what keeps sessions for other proxies. One that has nothing to keep beside the `initialize` ignores it.
    fn keep_sessions_by(&self, _keeper: Arc<dyn SessionKeeper>) {}

    /// Takes what was kept of a session, after [`Self::restore`]. It may be known, and older than what is known.
    fn restore_kept(&self, _session: &SessionId, _kept: &str) {}

    /// Forwards a request. It is with the server, or in its queue, when this returns.
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Replies, CallError>>;

    /// Forwards what has no response: a notification, or a client's response to a request of the server.
    fn send<'a>(&'a self, session: Option<&'a SessionId>, message: &'a Message)
    -> BoxFuture<'a, Result<(), CallError>>;

    /// What the server sends to a session outside of calls; what waits there counts in the budget. An earlier receiver of the same session
    /// gets nothing more.
    fn events(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes>;

    /// Ends a session.
    fn close(self: Arc<Self>, session: &SessionId);

    /// The sessions that have been idle for so long: neither a call, nor a stream of events.
    fn idle_sessions(&self, time: Duration) -> Vec<SessionId>;

    /// Which arguments of a tool call its headers repeat. `has_headers` says that the request has such headers.
    fn tool_parameters(
        self: Arc<Self>,
        call: Message,
        has_headers: bool,
    ) -> BoxFuture<'static, Result<Arc<[Parameter]>, CallError>>;

    /// Whether it is several servers. Then what clients see belongs to one of them each, see [`Self::backend_names`].
    fn is_composed(&self) -> bool {
        false
    }

    /// Which of several servers each thing belongs to that a client sees now. What the client names must be among them, and the rest may be
    /// incomplete.
    fn backend_names<'a>(
        &'a self,
        _client: &'a ClientContext,
        _named: Option<(List, &'a str)>,
    ) -> BoxFuture<'a, Option<Arc<dyn BackendNames>>> {
        Box::pin(std::future::ready(None))
    }

    /// This proxy shuts down: requests of the server are for the proxy that takes over, if there is one.
    fn drain(&self);
}

/// Which of several servers each thing belongs to that a client sees.
pub trait BackendNames: Debug + Send + Sync {
    /// The server of a tool, prompt, resource or template, by what clients call that.
    fn owner(&self, list: List, name: &str) -> ItemOwner;
}

/// Which of several servers a thing belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemOwner {
    /// This one.
    Backend(Arc<str>),
    /// None of them: it is made of others.
    Composed,
    /// There is no such thing for this client.
    Unknown,
}

/// A request of a client.
#[derive(Debug)]
pub struct Call {
    /// The request.
    pub message: Message,
    /// The era that it was admitted in.
    pub era: Era,
    /// The client's session.
    pub session: Option<SessionId>,
    /// Whether the client takes messages before the response.
    pub takes_interim: bool,
    /// What the server may have to know of the client.
    pub client: ClientContext,
    /// The client's share of the memory budget, for what the upstream keeps beyond the call.
    pub budget: Budget,
    /// How long the server may be silent, where that is decided by who calls it. While it waits for the client, it may be.
    pub timeout: Option<Duration>,
}

/// What an upstream may have to know of the client that it acts for.
#[derive(Clone, Debug, Default)]
pub struct ClientContext {
    /// Who it is, if it was authenticated: credentials for a server are obtained in its name.
    pub caller: Option<Caller>,
    /// Headers for a server that speaks HTTP, beside those of the protocol.
    pub headers: HeaderMap,
    /// Its network: what is kept for it counts for that.
    pub peer: Option<IpAddr>,
    /// The W3C trace context of its request, as headers. It says nothing about who the client is.
    pub trace: HeaderMap,
}

/// Whether an upstream takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamState {
    /// The server is being started, or has not answered `initialize` yet. Requests wait.
    Starting,
    /// The server is initialized.
    Ready(Server),
    /// The server cannot be used, and why. Requests fail at once until the next attempt to start it.
    Failing(Arc<str>),
}

/// What is known of an initialized server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The eras that it serves.
    pub eras: Eras,
    /// The protocol version that it agreed to in `initialize`.
    pub version: Option<Arc<str>>,
}

// === impl Call ===

impl Call {
    /// A request of no session, for its response only.
    pub fn new(message: Message, era: Era) -> Self {
        let (client, budget) = (ClientContext::default(), Budget::default());
        Self { message, era, session: None, takes_interim: false, client, budget, timeout: None }
    }
}

// === impl ClientContext ===

impl ClientContext {
    /// A client that is not authenticated, with these headers for the server.
    pub fn with_headers(headers: HeaderMap) -> Self {
        Self { headers, ..Self::default() }
    }
}

// === impl UpstreamState ===

impl UpstreamState {
    /// The state of a server of these eras that was initialized.
    pub fn ready(eras: impl Into<Eras>) -> Self {
        Self::Ready(Server { eras: eras.into(), version: None })
    }

    /// Whether requests of an era are taken now.
    pub fn is_ready_for(&self, era: Era) -> bool {
        matches!(self, Self::Ready(server) if server.eras.contains(era))
    }
}

/// Enough of a session's id to find it in a log, and too little to use it.
pub fn abbreviate(session: &str) -> &str {
    session.get(..8).unwrap_or(session)
}
