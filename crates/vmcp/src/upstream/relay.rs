//! What a backend sends before a response, and the response: one task has both, so that none overtakes the other and none is lost.

use std::sync::Arc;

use bytes::Bytes;
use skep_mcp::{Id, Kind, Message};
use skep_upstream::{PendingResponse, RelayedCall, Replies, SessionId};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use super::VirtualUpstream;
use crate::backend::Backend;
use crate::health::CallTimes;

/// How many messages before a response may wait to be read.
const INTERIM: usize = 16;

/// A call of a legacy client, whose messages get the ids that the client knows.
pub(super) struct Relay {
    pub(super) upstream: Arc<VirtualUpstream>,
    pub(super) session: SessionId,
    /// The request of the client.
    pub(super) during: Option<Id>,
    pub(super) backend: Arc<Backend>,
    pub(super) times: Arc<CallTimes>,
}

// === impl Relay ===

impl Relay {
    /// Hands what comes back of a call to the client, in its order. The task that does so ends with the returned replies.
    pub(super) fn run(self, called: Replies) -> Replies {
        let Replies { interim: Some(mut before), mut response } = called else { return called };
        let inner = response.in_flight();
        let (sender, interim) = mpsc::channel(INTERIM);
        let (outcome, responded) = oneshot::channel();
        let task = tokio::spawn(
            async move {
                let result = loop {
                    let bytes = tokio::select! {
                        Some(bytes) = before.recv() => bytes,
                        result = response.response() => break result,
                    };
                    self.pass(bytes, &sender).await;
                };
                // What came before the response stays before it.
                while let Ok(bytes) = before.try_recv() {
                    self.pass(bytes, &sender).await;
                }
                // The client may have left.
                let _left = outcome.send(result.map(Box::new));
            }
            .in_current_span(),
        );
        let call = RelayedCall::new(inner, task.abort_handle());
        Replies { interim: Some(interim), response: PendingResponse::new(responded, Box::new(call)) }
    }

    async fn pass(&self, bytes: Bytes, client: &mpsc::Sender<Bytes>) {
        let is_request = Message::parse(bytes.clone()).is_ok_and(|message| message.kind() == Kind::Request);
        self.times.message(is_request);
        let (session, during) = (&self.session, self.during.as_ref());
        if let Some(bytes) = self.upstream.for_client(session, &self.backend, during, bytes).await {
            // The client may wait for the response only.
            let _unread = client.send(bytes).await;
            // What a client takes to read is not the time of the backend.
            self.times.message(false);
        }
    }
}
