//! Whether the server can take requests. Nothing reaches a server that has not been initialized, and a failure that is known is
//! reported to clients at once instead of being waited for.

#[cfg(test)]
use std::sync::Arc;

use skep_mcp::{Era, Eras};

use super::upstream::StdioUpstream;
use crate::admission;
use crate::error::CallError;
use crate::upstream::{Server, UpstreamState};

// === impl StdioUpstream ===

impl StdioUpstream {
    /// Waits until the server can take requests, and says of which era. Fails at once where it is known that it cannot.
    pub(super) async fn ready(&self) -> Result<Era, CallError> {
        if let UpstreamState::Ready(server) = &*self.upstream_state.borrow() {
            return Ok(era_of(server));
        }
        Ok(era_of(&admission::ready(&mut self.upstream_state.subscribe()).await?))
    }

    /// Whether the server can take requests now.
    ///
    /// INVARIANT: while this is false, only the handshake is queued. It changes under the lock of the state, under which every
    /// other message is queued.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&*self.upstream_state.borrow(), UpstreamState::Ready(_))
    }

    /// Changes whether the server can take requests.
    pub(super) fn set_upstream_state(&self, upstream_state: UpstreamState) {
        self.with(|_locked| {
            self.upstream_state.send_replace(upstream_state);
        });
    }

    /// A upstream to a server that was initialized, and the queue of what it would be sent.
    #[cfg(test)]
    pub(super) fn with_server() -> (Arc<Self>, tokio::sync::mpsc::Receiver<super::line::Line>) {
        Self::with_server_of(Era::Legacy)
    }

    /// The same with a server of this era.
    #[cfg(test)]
    pub(super) fn with_server_of(era: Era) -> (Arc<Self>, tokio::sync::mpsc::Receiver<super::line::Line>) {
        let (upstream, queued) = Self::new();
        upstream.set_upstream_state(UpstreamState::ready(era));
        (upstream, queued)
    }
}

/// The era that a server on stdio was opened in, which it keeps to.
fn era_of(server: &Server) -> Era {
    match server.eras {
        Eras::Modern => Era::Modern,
        Eras::Legacy | Eras::Both => Era::Legacy,
    }
}

#[cfg(test)]
mod tests;
