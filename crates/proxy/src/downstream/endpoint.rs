//! What every endpoint is made of.

use std::sync::Arc;
use std::time::Duration;

use skep_net::Drain;
use skep_upstream::{Upstream, UpstreamState};
use tokio::sync::watch;

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
}

// === impl Endpoint ===

impl Endpoint {
    /// An endpoint in front of an upstream.
    pub fn new(upstream: Arc<dyn Upstream>, sessions: Sessions, timeout: Duration, drain: Drain) -> Self {
        let state = upstream.state();
        Self { upstream, state, sessions, timeout, drain }
    }
}
