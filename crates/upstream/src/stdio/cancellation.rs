//! Calls that clients cancel or abandon, and the cancellations that the server is sent at once.

use bytes::Bytes;
use skep_mcp::{Id, Message};

use super::call::PendingCall;
use super::line::{Line, LineText, NewId};
use super::server_requests::ServerRequest;
use super::upstream::{State, StdioUpstream};
use crate::error::CallError;
use crate::upstream::SessionId;

/// How many messages that cannot wait for a place in the queue may wait beside it: cancellations, and refusals of the server's requests.
const URGENT: usize = 1000;
/// How long a client's cancellation may be to be forwarded as it is, in bytes.
pub(super) const REASON: usize = 4 * 1024;

// === impl StdioUpstream ===

impl StdioUpstream {
    /// Forwards a client's cancellation of a request, which ends the request: servers do not
    /// answer it then. One without a session says so by leaving: ids are not its own, and it could mean another client's request.
    pub(super) fn cancel(&self, message: &Message, session: Option<&SessionId>) {
        let (Some(id), Some(_)) = (message.cancels(), session) else { return };
        let taken = self.with(|state| {
            let mut waiting = state.waiting.iter();
            let (wire, _) = waiting.find(|(_, one)| one.id == id && one.session.as_ref() == session)?;
            let wire = *wire;
            state.abandon_call(wire).map(|pending| (wire, pending))
        });
        let Some((wire, (pending, unanswered))) = taken else { return };
        pending.settle(Err(CallError::Cancelled));
        self.refuse_abandoned(unanswered);
        // It may wait beside the queue, where there is no room for long reasons.
        let is_short = message.body().len() <= REASON;
        self.enqueue_at_once(if is_short {
            let ids: Vec<NewId> = vec![(&["params", "requestId"], Id::number(wire))];
            Line { request: None, text: LineText::of(message, ids) }
        } else {
            Line::whole(cancellation(wire))
        });
    }

    /// Cancels a call. The server is notified, if it still works on it.
    pub(super) fn abandon(&self, wire: u64) {
        let Some((pending, unanswered)) = self.with(|state| state.abandon_call(wire)) else { return };
        self.refuse_abandoned(unanswered);
        // The handshake must not be cancelled.
        if !pending.is_handshake {
            self.send_at_once(cancellation(wire));
        }
    }

    /// What goes to the server before all that waits in the queue. A call that was cancelled is not sent any more, if it still waits
    /// there, so nothing overtakes what it is about.
    pub(super) fn urgent(&self) -> Vec<Line> {
        self.with(|state| std::mem::take(&mut state.urgent))
    }

    /// Sends the server a message without waiting for a place in the queue.
    pub(super) fn send_at_once(&self, line: Bytes) {
        self.enqueue_at_once(Line::whole(line));
    }

    fn enqueue_at_once(&self, line: Line) {
        self.with(|state| {
            // What it is about went with the server.
            if !self.is_ready() {
                return;
            }
            let Err(full) = self.queue.try_send(line) else { return };
            if state.urgent.len() < URGENT {
                state.urgent.push(full.into_inner());
            } else {
                tracing::warn!("dropping a cancellation: the server does not read");
            }
        });
    }
}

// === impl State ===

impl State {
    /// Abandons a call. The server may work on it for a while; what it asked of a client that cannot answer any more is returned.
    fn abandon_call(&mut self, wire: u64) -> Option<(PendingCall, Vec<ServerRequest>)> {
        let pending = self.waiting.remove(&wire)?;
        self.left.add(wire, &pending);
        let unanswered = pending.session.as_ref().map(|session| self.take_unanswerable(session));
        Some((pending, unanswered.unwrap_or_default()))
    }
}

/// The cancellation of a call that its client abandoned.
fn cancellation(wire: u64) -> Bytes {
    let params = format!(r#"{{"requestId":{wire},"reason":"the client does not wait any longer"}}"#);
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{params}}}\n").into()
}
