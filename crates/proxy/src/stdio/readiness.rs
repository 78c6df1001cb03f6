//! Whether the server can take requests. Nothing reaches a server that has not been initialized, and a failure that is known is
//! reported to clients at once instead of being waited for.

use std::sync::Arc;

use skep_mcp::{Era, Message};

use super::bridge::Bridge;
use super::call::Failed;
use super::eras::{self, EraMismatch};

/// Whether the server can take requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It is being started, or has not answered `initialize` yet. Requests wait.
    Starting,
    /// It answered, and serves requests of this era.
    Ready(Era),
    /// It cannot be used, and why. Requests fail at once until the next attempt to start it.
    Failed(Arc<str>),
}

/// Why a request does not reach the server.
#[derive(Debug)]
pub(crate) enum NotAdmitted {
    /// The server is not available.
    Failed(Failed),
    /// The server serves requests of the other era.
    Era(EraMismatch),
}

// === impl Bridge ===

impl Bridge {
    /// Waits until the server can take requests, and says of which era. Fails at once where it is known that it cannot.
    pub(super) async fn ready(&self) -> Result<Era, Failed> {
        if let Readiness::Ready(era) = *self.readiness.borrow() {
            return Ok(era);
        }
        let mut readiness = self.readiness.subscribe();
        loop {
            match &*readiness.borrow_and_update() {
                Readiness::Ready(era) => return Ok(*era),
                Readiness::Failed(why) => return Err(Failed::Unavailable(why.clone())),
                Readiness::Starting => {}
            }
            readiness.changed().await.map_err(|_closed| Failed::NotSent)?;
        }
    }

    /// Whether the server can take requests now.
    ///
    /// INVARIANT: while this is false, only the handshake is queued. It changes under the lock of the state, under which every
    /// other message is queued.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&*self.readiness.borrow(), Readiness::Ready(_))
    }

    /// Whether the server can take requests of an era now.
    pub(crate) fn is_ready_for(&self, era: Era) -> bool {
        *self.readiness.borrow() == Readiness::Ready(era)
    }

    /// Changes whether the server can take requests.
    pub(super) fn set_readiness(&self, readiness: Readiness) {
        self.with(|_locked| {
            self.readiness.send_replace(readiness);
        });
    }

    /// A bridge to a server that was initialized, and the queue of what it would be sent.
    #[cfg(test)]
    pub(super) fn with_server() -> (Arc<Self>, tokio::sync::mpsc::Receiver<super::bridge::Line>) {
        Self::with_server_of(Era::Legacy)
    }

    /// The same with a server of this era.
    #[cfg(test)]
    pub(super) fn with_server_of(era: Era) -> (Arc<Self>, tokio::sync::mpsc::Receiver<super::bridge::Line>) {
        let (bridge, queued) = Self::new();
        bridge.set_readiness(Readiness::Ready(era));
        (bridge, queued)
    }

    /// Waits until the server can take a request of a client, unless it would never take this one.
    pub(crate) async fn admit(&self, message: &Message, era: Era) -> Result<(), NotAdmitted> {
        let server = self.ready().await.map_err(NotAdmitted::Failed)?;
        if server == era {
            return Ok(());
        }
        match eras::mismatch(server, era, message, self.handshake.version().as_deref()) {
            Some(mismatch) => Err(NotAdmitted::Era(mismatch)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
