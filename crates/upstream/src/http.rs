//! A server that speaks HTTP: streamable HTTP, or its predecessor with a stream of events beside the requests.
//!
//! ```text
//!   HttpUpstream::forward ─▶ pods ─▶ send ─▶ redirects ─▶ server      the client's own request: its framing, ids and session survive
//!                             ▲       │ unknown session, or no connection
//!                             └─ reinitialize ◀─┘
//! ```
//!
//! [`HttpUpstream::forward`] is the fast path of a proxy in front of one server of the client's era: bytes in, bytes out. See
//! `docs/decisions/0010-forwarding-keeps-the-framing.md`.

mod forward;
mod pods;
mod redirects;
mod reinitialize;
mod request;
mod send;
mod server_session;
mod target;
mod unreachable;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use skep_net::Client;
use skep_store::Sessions as Store;

pub use forward::{ForwardError, OpenedSession};
pub use pods::{Lookup, Pods};
pub use request::ServerRequest;
pub use server_session::ServerSession;
pub use target::{Target, TargetError};
pub use unreachable::reason as unreachable_reason;

use self::reinitialize::Renewals;

/// A server that speaks HTTP.
#[derive(Debug)]
pub struct HttpUpstream {
    target: Target,
    client: Client,
    options: HttpOptions,
    /// Whether the server answers only to the name of its own machine: some refuse any other `Host`.
    as_local: AtomicBool,
    renewals: Renewals,
}

/// How a server that speaks HTTP is reached.
#[derive(Debug, Default)]
pub struct HttpOptions {
    /// Its transport.
    pub transport: Transport,
    /// The pods behind the target, if it is a Service that may have several. Servers of HTTP+SSE are reached by the Service only.
    pub pods: Option<Pods>,
    /// Where the sessions of forwarded requests are kept.
    pub store: Option<Arc<Store>>,
}

/// The transport of a server that speaks HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP: every response comes on the connection of its request.
    #[default]
    StreamableHttp,
    /// HTTP+SSE, which the protocol deprecated: responses come on one stream of events.
    Sse,
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// A server at a target.
    pub fn new(target: Target, client: Client, mut options: HttpOptions) -> Arc<Self> {
        options.pods = options.pods.filter(|_| options.transport != Transport::Sse);
        Arc::new(Self { target, client, options, as_local: AtomicBool::new(false), renewals: Renewals::default() })
    }

    /// Where it is.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether it speaks HTTP+SSE.
    pub fn is_sse(&self) -> bool {
        self.options.transport == Transport::Sse
    }
}
