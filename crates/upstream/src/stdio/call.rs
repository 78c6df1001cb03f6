//! One request on its way to the server and back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Era, Eras, Id, Message};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::line::{Line, LineText, NewId};
use super::logging;
use super::upstream::StdioUpstream;
use crate::error::CallError;
use crate::replies::{InFlight, PendingResponse, Response};
use crate::upstream::{Server, SessionId, UpstreamState};

/// Who waits for the answer to a request.
#[derive(Debug)]
pub(super) struct PendingCall {
    /// The client's id of it.
    pub(super) id: Id,
    /// Whether it opens the conversation with the server: such a request is never cancelled.
    pub(super) is_handshake: bool,
    pub(super) session: Option<SessionId>,
    /// What the client knows reports of progress by.
    pub(super) token: Option<Id>,
    /// Where goes what comes before the answer. Nothing for clients that take an answer only.
    pub(super) interim: Option<mpsc::Sender<Bytes>>,
    /// Whether its answer says what tools there are, and how their calls are checked.
    pub(super) is_learnt_from: bool,
    /// Whether the server has the request, as far as is known.
    pub(super) is_sent: bool,
    pub(super) involvement: Involvement,
    /// How much of the server's log it asked for, of 2026-07-28.
    pub(super) logs: Option<u8>,
    pub(super) outcome: oneshot::Sender<Response>,
}

/// What the server may have to say to a client because of a request, beside the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Involvement {
    /// Nothing: it is the proxy's own, the handshake, which has no session yet, or a subscription of 2026-07-28.
    None,
    /// It may tell something. Today's protocol has no requests of servers.
    Notified,
    /// It may ask something, too.
    Asked,
}

/// A request that is with the server, or in its queue.
#[derive(Debug)]
struct ForwardedCall {
    upstream: Arc<StdioUpstream>,
    wire: u64,
}

/// Whose a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A client's, admitted in this era. What the body says of its version counts no more from here on.
    Client(Era),
    /// The proxy's own.
    Proxy,
    /// The proxy's own, to open the conversation: before it is answered, nothing else is sent.
    Handshake,
}

// === impl StdioUpstream ===

impl StdioUpstream {
    /// Forwards a client's request that was admitted in this era. The call ends with the answer, or when it is dropped, which tells
    /// the server to stop.
    pub(super) async fn forward(
        self: &Arc<Self>,
        message: &Message,
        era: Era,
        session: Option<SessionId>,
        interim: Option<mpsc::Sender<Bytes>>,
    ) -> Result<PendingResponse, CallError> {
        self.send(message, session, interim, Origin::Client(era)).await
    }

    /// The same for a request of the proxy's own: it belongs to no session that the server could ask something.
    pub(super) async fn call_internally(self: &Arc<Self>, message: &Message) -> Result<PendingResponse, CallError> {
        self.send(message, None, None, Origin::Proxy).await
    }

    /// The same for a request that opens the conversation with a server.
    pub(super) async fn call_in_handshake(self: &Arc<Self>, message: &Message) -> Result<PendingResponse, CallError> {
        self.send(message, None, None, Origin::Handshake).await
    }

    async fn send(
        self: &Arc<Self>,
        message: &Message,
        session: Option<SessionId>,
        interim: Option<mpsc::Sender<Bytes>>,
        origin: Origin,
    ) -> Result<PendingResponse, CallError> {
        loop {
            if origin != Origin::Handshake {
                self.ready().await?;
            }
            let permit = self.queue.reserve().await.map_err(|_closed| CallError::NotSent)?;
            // The server may have gone meanwhile.
            if let Some(call) = self.enqueue(message, session.clone(), interim.clone(), origin, permit)? {
                return Ok(call);
            }
        }
    }

    /// Queues a request. Nothing if the server cannot take it now.
    fn enqueue(
        self: &Arc<Self>,
        message: &Message,
        session: Option<SessionId>,
        interim: Option<mpsc::Sender<Bytes>>,
        origin: Origin,
        permit: mpsc::Permit<'_, Line>,
    ) -> Result<Option<PendingResponse>, CallError> {
        let id = message.id().ok_or(CallError::NotSent)?;
        let (outcome, answered) = oneshot::channel();
        let token = message.progress_token();
        let wire = self.with(|state| {
            match (origin, &*self.upstream_state.borrow()) {
                // The server that it was admitted for is gone, and its successor is of the other era.
                (Origin::Client(Era::Modern), UpstreamState::Ready(Server { eras: Eras::Legacy, .. })) => {
                    return Err(CallError::Disconnected);
                }
                (Origin::Handshake, _) | (_, UpstreamState::Ready(_)) => {}
                _ => return Ok(None),
            }
            if let Some(one) = session.as_ref().and_then(|session| state.sessions.get_mut(session)) {
                one.used = Some(Instant::now());
            }
            let wire = state.new_id();
            let number = Id::number(wire);
            let mut ids: Vec<NewId> = vec![(&["id"], number.clone())];
            // Also where no client takes progress: the client's own token could be the number of another call.
            if token.is_some() {
                ids.push((&["params", "_meta", "progressToken"], number));
            }
            let method = message.method().unwrap_or_default();
            // The proxy's own lists are of the server's era. Clients of the legacy era repeat nothing in headers.
            let is_learnt_from = method == "tools/list" && origin != Origin::Client(Era::Legacy);
            let involvement = Involvement::of(method, origin);
            // Only 2026-07-28 has requests that ask for a log.
            let logs = if involvement == Involvement::Notified { logging::asked_for(message) } else { None };
            let is_handshake = method == "initialize";
            let pending = PendingCall {
                id,
                is_handshake,
                session,
                token,
                interim,
                is_learnt_from,
                is_sent: false,
                involvement,
                logs,
                outcome,
            };
            state.waiting.insert(wire, pending);
            permit.send(Line { request: Some(wire), text: LineText::of(message, ids) });
            Ok(Some(wire))
        })?;
        let call = |wire| Box::new(ForwardedCall { upstream: self.clone(), wire });
        Ok(wire.map(|wire| PendingResponse::new(answered, call(wire))))
    }
}

// === impl Involvement ===

impl Involvement {
    /// What may come of a request. A subscription of 2026-07-28 stays open while nothing is done for it: what it is about names it.
    fn of(method: &str, origin: Origin) -> Self {
        match (origin, method) {
            (Origin::Proxy | Origin::Handshake, _)
            | (Origin::Client(_), "initialize")
            | (Origin::Client(Era::Modern), "subscriptions/listen") => Self::None,
            (Origin::Client(Era::Modern), _) => Self::Notified,
            (Origin::Client(Era::Legacy), _) => Self::Asked,
        }
    }
}

// === impl PendingCall ===

impl PendingCall {
    /// Whether the server may have something to tell because of it.
    pub(super) fn is_work(&self) -> bool {
        self.involvement != Involvement::None
    }

    /// Whether it may have something to ask because of it.
    pub(super) fn can_be_asked(&self) -> bool {
        self.involvement == Involvement::Asked
    }

    pub(super) fn settle(self, outcome: Response) {
        // The client may have gone.
        let _gone = self.outcome.send(outcome);
    }
}

// === impl ForwardedCall ===

impl InFlight for ForwardedCall {
    fn cancel(&self) {
        self.upstream.abandon(self.wire);
    }

    fn is_sent(&self) -> bool {
        self.upstream.is_sent(self.wire)
    }

    fn extended_deadline(&self, timeout: Duration) -> Option<Instant> {
        self.upstream.extended_deadline(self.wire, timeout)
    }
}
