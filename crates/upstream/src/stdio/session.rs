//! What is known of clients' sessions.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::capabilities::ClientCapabilities;
use super::upstream::{State, StdioUpstream};
use crate::upstream::SessionId;

/// How many messages may wait for one session that listens. What comes beyond that is dropped, with a warning.
pub(crate) const LISTENER: usize = 100;

/// What is known of a client's session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Where it listens.
    pub(super) listener: Option<mpsc::Sender<Bytes>>,
    /// What its client can be asked for. Nothing if the client has not said it here.
    pub(super) capabilities: Option<ClientCapabilities>,
    pub(super) level: Option<u8>,
    /// When it last answered a question of the server.
    pub(super) answered: Option<Instant>,
    /// How many resources it wants to hear of.
    pub(super) subscriptions: usize,
    /// When it was last heard of here.
    pub(super) used: Option<Instant>,
}

// === impl StdioUpstream ===

impl StdioUpstream {
    /// Begins to listen for a session. An earlier receiver of the session gets nothing more.
    pub(super) fn listen(&self, session: &SessionId) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(LISTENER);
        self.with(|state| state.known(session).listener = Some(sender));
        receiver
    }

    /// Remembers what the client of a session can do.
    pub(super) fn register(&self, session: &SessionId, capabilities: ClientCapabilities) {
        self.with(|state| {
            state.known(session).capabilities = Some(capabilities);
        });
    }

    /// The sessions without a listener that were idle for so long. A store that replicas share does not tell
    /// when a session is over.
    pub(super) fn idle(&self, time: Duration) -> Vec<SessionId> {
        let now = Instant::now();
        self.with(|state| {
            for one in state.sessions.values_mut() {
                // One whose stream just broke comes back.
                if one.listener.as_ref().is_some_and(|listener| !listener.is_closed()) {
                    one.used = Some(now);
                }
            }
            let is_unused = |one: &Session| one.used.is_none_or(|used| now.duration_since(used) >= time);
            let unused = state.sessions.iter().filter(|(_, one)| is_unused(one));
            unused.map(|(session, _)| session.clone()).collect()
        })
    }
}

// === impl State ===

impl State {
    /// What is known of a session, which is in use.
    pub(super) fn known(&mut self, session: &SessionId) -> &mut Session {
        let one = self.sessions.entry(session.clone()).or_default();
        one.used = Some(Instant::now());
        one
    }
}
