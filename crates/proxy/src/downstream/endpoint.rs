//! What every endpoint is made of.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use skep_net::Drain;
use skep_upstream::{ClientContext, KeptClient, Upstream, UpstreamState, initialize};
use tokio::sync::watch;

use super::forward::client_of;
use crate::exchange::Exchange;
use crate::sessions::Sessions;

/// The headers of W3C trace context and baggage.
const TRACE: [HeaderName; 3] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate"), HeaderName::from_static("baggage")];

/// An upstream, and how clients reach it.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) upstream: Arc<dyn Upstream>,
    pub(super) state: watch::Receiver<UpstreamState>,
    pub(super) sessions: Sessions,
    /// How long a request may take.
    pub(super) timeout: Duration,
    pub(super) drain: Drain,
    passthrough: Passthrough,
}

/// The headers of clients that are for the server as well.
#[derive(Debug)]
enum Passthrough {
    /// None: the server does not speak HTTP.
    None,
    /// These.
    Named(Vec<HeaderName>),
    /// All that say who the client is, as they are when the chain is done with them.
    Forwarded,
}

// === impl Endpoint ===

impl Endpoint {
    /// An endpoint in front of an upstream.
    pub fn new(upstream: Arc<dyn Upstream>, sessions: Sessions, timeout: Duration, drain: Drain) -> Self {
        let state = upstream.state();
        upstream.keep_sessions_by(Arc::new(sessions.clone()));
        Self { upstream, state, sessions, timeout, drain, passthrough: Passthrough::None }
    }

    /// The same with headers of clients that are for the server as well.
    #[must_use]
    pub fn passing(mut self, headers: Vec<HeaderName>) -> Self {
        self.passthrough = Passthrough::Named(headers);
        self
    }

    /// The same in front of a server that requests are forwarded to otherwise.
    #[must_use]
    pub fn forwarding(mut self) -> Self {
        self.passthrough = Passthrough::Forwarded;
        self
    }

    /// What the upstream may have to know of the client of a request.
    pub(super) fn client(&self, exchange: &Exchange) -> ClientContext {
        let named = match &self.passthrough {
            Passthrough::None => [].as_slice(),
            Passthrough::Named(named) => named,
            Passthrough::Forwarded => return client_of(exchange),
        };
        let mut headers = HeaderMap::new();
        for name in named {
            for value in exchange.head.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        let mut trace = HeaderMap::new();
        for (name, value) in TRACE.iter().filter_map(|name| Some((name, exchange.head.headers.get(name)?))) {
            trace.insert(name, value.clone());
        }
        let (caller, peer) = (exchange.head.caller.clone(), Some(exchange.head.client));
        ClientContext { caller, headers, peer, trace }
    }

    /// How many bytes the upstream keeps of the client of a request, for a session that was opened by this `initialize`.
    pub(super) fn kept(&self, exchange: &Exchange, initialize: Option<&[u8]>) -> usize {
        match &self.passthrough {
            Passthrough::None => 0,
            Passthrough::Named(_) | Passthrough::Forwarded => {
                // It is there as text, and in parts.
                let initialize = initialize.map_or(0, |sent| 2 * sent.len().min(initialize::LONGEST));
                initialize + KeptClient::room(&self.client(exchange))
            }
        }
    }
}
