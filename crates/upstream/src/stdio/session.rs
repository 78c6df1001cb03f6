//! What is known of clients' sessions.

use std::time::Duration;

use bytes::Bytes;
use skep_net::Budget;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::capabilities::ClientCapabilities;
use super::upstream::{State, StdioUpstream};
use crate::listener::Listener;
use crate::upstream::SessionId;

/// What is known of a client's session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Where it listens.
    pub(super) listener: Option<Listener>,
    /// What its client can be asked for. Nothing if the client has not said it here.
    pub(super) capabilities: Option<ClientCapabilities>,
    pub(super) level: Option<u8>,
    /// When it last answered a question of the server.
    pub(super) answered: Option<Instant>,
    /// How many resources it is subscribed to.
    pub(super) subscriptions: usize,
    /// When it was last heard of here.
    pub(super) used: Option<Instant>,
}

// === impl StdioUpstream ===

impl StdioUpstream {
    /// Begins to listen for a session. An earlier receiver of the session gets nothing more.
    pub(super) fn listen(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes> {
        let (listener, receiver) = Listener::new(budget);
        self.with(|state| state.known(session).listener = Some(listener));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Item 17-8: a client that listens and does not read keeps no more than its share of the memory.
    #[tokio::test]
    async fn what_waits_for_a_session_counts_in_the_share_of_its_client() {
        let (upstream, _queued) = StdioUpstream::with_server();
        let budget = Budget::new(1 << 20).of_client([192, 0, 2, 1].into());
        let session: SessionId = "ann".into();
        let mut heard = upstream.listen(&session, budget.clone());
        let long = Bytes::from("x".repeat(200_000));
        let passed = (0..10).filter(|_| upstream.with(|state| state.pass_to_session(&long, &session))).count();
        assert_eq!(passed, 2, "half of the budget");
        assert!(budget.held() >= 400_000);
        heard.recv().await.unwrap();
        assert!(upstream.with(|state| state.pass_to_session(&long, &session)));
        drop(heard);
        assert!(!upstream.with(|state| state.pass_to_session(&long, &session)));
        assert_eq!(budget.held(), 0);
    }
}
