//! What every endpoint is made of.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use skep_net::Drain;
use skep_upstream::{ClientContext, Upstream, UpstreamState};
use tokio::sync::watch;

use crate::exchange::Exchange;
use crate::sessions::Sessions;

/// An upstream, and how clients reach it.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) upstream: Arc<dyn Upstream>,
    pub(super) state: watch::Receiver<UpstreamState>,
    pub(super) sessions: Sessions,
    /// How long a request may take.
    pub(super) timeout: Duration,
    pub(super) drain: Drain,
    /// The headers of clients that are for the server as well.
    passthrough: Vec<HeaderName>,
}

// === impl Endpoint ===

impl Endpoint {
    /// An endpoint in front of an upstream.
    pub fn new(upstream: Arc<dyn Upstream>, sessions: Sessions, timeout: Duration, drain: Drain) -> Self {
        let state = upstream.state();
        Self { upstream, state, sessions, timeout, drain, passthrough: Vec::new() }
    }

    /// The same with headers of clients that are for the server as well.
    #[must_use]
    pub fn passing(mut self, headers: Vec<HeaderName>) -> Self {
        self.passthrough = headers;
        self
    }

    /// What the upstream may have to know of the client of a request.
    pub(super) fn client(&self, exchange: &Exchange) -> ClientContext {
        let mut headers = HeaderMap::new();
        for name in &self.passthrough {
            for value in exchange.head.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        ClientContext { caller: exchange.head.caller.clone(), headers }
    }
}
