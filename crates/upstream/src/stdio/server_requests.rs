//! What the server asks clients: sampling, elicitation, roots. Each question gets a number of ours on its way to a client, and the
//! server's own id back with the answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Edit, Id, Message, answer, splice};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::capabilities::RelayError;
use super::line::LineText;
use super::upstream::{State, StdioUpstream};
use crate::error::CallError;
use crate::upstream::SessionId;

/// How many requests of the server that concern no session here may wait for the response of another proxy.
const HELD_BACK: usize = 100;
/// How many requests of the server may wait for a client's answer. The oldest one is refused beyond that.
pub(super) const ASKED: usize = 1000;

const NOT_RELAYED: RelayError = RelayError { code: answer::METHOD_NOT_FOUND, why: "it cannot be forwarded" };
const UNANSWERED: RelayError = RelayError {
    code: answer::METHOD_NOT_FOUND,
    why: "the client has not answered, and too many requests wait for clients",
};
/// The client that was asked cannot answer any more: its session ended, or it left the call that the request is about and does not listen.
const CLIENT_LEFT: RelayError = RelayError { code: answer::INTERNAL_ERROR, why: "the client left before it answered" };
/// The client that was asked is silent.
const TIMED_OUT: RelayError = RelayError { code: answer::INTERNAL_ERROR, why: "the client did not answer in time" };
/// How long a client may take for its answer. A person may have to be asked.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);

/// A request of the server that a client was asked to answer.
#[derive(Debug)]
pub(super) struct ServerRequest {
    /// The server's id of it.
    pub(super) id: Id,
    method: String,
    /// Whose answer counts.
    pub(super) session: SessionId,
    /// Refuses it when its time is over. Ends with it.
    _timeout: Timeout,
}

/// A task that ends with this.
#[derive(Debug)]
struct Timeout(AbortHandle);

impl Drop for Timeout {
    fn drop(&mut self) {
        self.0.abort();
    }
}
/// It is not clear which client a request concerns.
pub(super) const NO_OWNER: RelayError =
    RelayError { code: answer::METHOD_NOT_FOUND, why: "it is not clear which client it concerns" };

// === impl StdioUpstream ===

impl StdioUpstream {
    /// A request of the server. It goes to the client whom it concerns; the server is answered at once if there is none, unless another
    /// proxy may have that client. Returns the response to the server, if there is one already.
    pub(super) fn ask(self: &Arc<Self>, message: &Message) -> Option<Bytes> {
        let id = message.id()?;
        let method = message.method().unwrap_or_default().to_owned();
        if method == "ping" {
            return Some(line(&answer::empty_result(&id)));
        }
        let (mut hold_back, mut forgotten) = (None, None);
        let asked: Result<(), RelayError> = self.with(|state| {
            let number = state.new_id();
            let ours = Id::number(number);
            let mapped = splice::apply(message, &[Edit::set(&["id"], &ours)]).map_err(|_| NOT_RELAYED)?;
            if !state.is_at_work() && state.is_shared() && state.held_back < HELD_BACK {
                state.held_back += 1;
                hold_back = Some(state.shared_until.filter(|_| !state.is_leaving));
                return Ok(());
            }
            let session = state.pass_question(mapped.body(), message)?;
            if state.asked.len() >= ASKED {
                forgotten = state.asked.pop_first();
            }
            let timeout = tokio::spawn(self.clone().refuse_unanswered(number, state.servers));
            let timeout = Timeout(timeout.abort_handle());
            state
                .asked
                .insert(number, ServerRequest { id: id.clone(), method: method.clone(), session, _timeout: timeout });
            Ok(())
        });
        if let Some(until) = hold_back {
            tracing::debug!(method, "request of the server left to another proxy");
            let server = self.with(|state| state.servers);
            tokio::spawn(self.clone().refuse_later(id, method, until, server));
            return None;
        }
        if let Some((_, oldest)) = forgotten {
            return Some(refusal(&oldest.id, &oldest.method, UNANSWERED));
        }
        asked.err().map(|refused| refusal(&id, &method, refused))
    }

    /// Refuses a request of the server once no other proxy can answer it. Never, if another proxy stays connected to the server.
    async fn refuse_later(self: Arc<Self>, id: Id, method: String, until: Option<Instant>, server: u64) {
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
        let is_there = self.with(|state| state.servers == server);
        if is_there && until.is_some() {
            let line = refusal(&id, &method, NO_OWNER);
            // A client that answered before is not notified: servers ignore answers to what they do not wait for.
            self.send_at_once(line);
        }
        self.with(|state| state.held_back = state.held_back.saturating_sub(1));
    }

    /// Refuses a request of the server that its client has not answered in time. A server that serves one request after the other would
    /// wait for ever, and all clients with it.
    async fn refuse_unanswered(self: Arc<Self>, number: u64, server: u64) {
        let upstream = Arc::downgrade(&self);
        drop(self);
        tokio::time::sleep(ANSWER_TIMEOUT).await;
        let Some(upstream) = upstream.upgrade() else { return };
        let unanswered = upstream.with(|state| state.asked.remove(&number).filter(|_| state.servers == server));
        upstream.refuse_all(unanswered, TIMED_OUT);
    }

    /// Refuses requests of the server whose clients left.
    pub(super) fn refuse_abandoned(&self, unanswered: Vec<ServerRequest>) {
        self.refuse_all(unanswered, CLIENT_LEFT);
    }

    fn refuse_all(&self, unanswered: impl IntoIterator<Item = ServerRequest>, why: RelayError) {
        for request in unanswered {
            self.send_at_once(refusal(&request.id, &request.method, why));
        }
    }

    /// Forwards a client's response to a request of the server, if that client was asked.
    pub(super) async fn answer(&self, message: &Message, session: Option<&SessionId>) -> Result<(), CallError> {
        let number = message.id().and_then(|id| id.raw().parse::<u64>().ok());
        let asked = |state: &State| {
            let request = state.asked.get(&number?)?;
            (Some(&request.session) == session).then(|| request.id.clone())
        };
        let Some(id) = self.with(|state| asked(state)) else {
            tracing::debug!("dropping a response to no request of the server");
            return Ok(());
        };
        self.send_line(|| {
            self.with(|state| {
                // It may have been withdrawn while there was no room.
                asked(state)?;
                state.asked.remove(&number?);
                state.known(session?).answered = Some(Instant::now());
                Some(LineText::of(message, vec![(&["id"], id)]))
            })
        })
        .await
    }

    /// The server does not want an answer to its request any more.
    pub(super) fn withdraw(&self, message: &Message) {
        let Some(id) = message.cancels() else { return };
        self.with(|state| {
            let found = state.asked.iter().find(|(_, request)| request.id == id).map(|(number, _)| *number);
            let Some(ServerRequest { session, .. }) = found.and_then(|number| state.asked.remove(&number)) else {
                return;
            };
            let number = Id::number(found.unwrap_or_default());
            if let Ok(mapped) = splice::apply(message, &[Edit::set(&["params", "requestId"], &number)]) {
                state.pass_to_owner(mapped.body(), &session);
            }
        });
    }
}

// === impl State ===

impl State {
    /// Takes out the requests of the server that a session was asked to answer.
    pub(super) fn take_unanswered(&mut self, session: &SessionId) -> Vec<ServerRequest> {
        let theirs = self.asked.extract_if(.., |_, request| request.session == *session);
        theirs.map(|(_, request)| request).collect()
    }

    /// The same for a session that can answer none of them any more: it has no call that the server may ask about, and does not listen.
    pub(super) fn take_unanswerable(&mut self, session: &SessionId) -> Vec<ServerRequest> {
        let is_at_work = self.waiting.values().any(|one| one.can_be_asked() && one.session.as_ref() == Some(session));
        let listens =
            self.sessions.get(session).and_then(|one| one.listener.as_ref()).is_some_and(|one| !one.is_closed());
        if is_at_work || listens { Vec::new() } else { self.take_unanswered(session) }
    }
}

/// The response to a request of the server that no client can answer.
fn refusal(id: &Id, method: &str, RelayError { code, why }: RelayError) -> Bytes {
    tracing::warn!(method, why, "refusing a request of the server");
    line(&answer::error(Some(id), code, &format!("{method}: {why}"), None))
}

fn line(message: &Bytes) -> Bytes {
    let mut line = bytes::BytesMut::with_capacity(message.len() + 1);
    line.extend_from_slice(message);
    line.extend_from_slice(b"\n");
    line.freeze()
}

#[cfg(test)]
mod tests;
