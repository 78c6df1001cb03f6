//! How a response is written for its client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use skep_mcp::{Era, Id, Message, answer, sse};
use skep_net::{Body, Budget};
use skep_upstream::{CallError, ClientContext, SessionId};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::chain::reply::{Evaluation, ReplyChain};
use crate::http::{busy, events, json, text};

/// How often a silent stream says that it is alive.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How many parts of a stream may wait to be written.
pub(super) const INTERIM: usize = 16;

/// When clients that still wait get an error, before everything that is left is cut.
pub(crate) fn last_moment(cut: Instant) -> Instant {
    cut.checked_sub(Duration::from_secs(1)).unwrap_or(cut)
}

/// When a stream says that it is alive, also one that says other things meanwhile.
pub(super) fn keep_alive() -> tokio::time::Interval {
    let mut alive = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    alive
}

/// Where an answer goes.
#[derive(Debug)]
pub(super) struct Reply {
    /// As events, or as JSON.
    pub(super) as_events: bool,
    pub(super) era: Era,
    pub(super) session: Option<SessionId>,
    /// Whether the client knows how to come back to a stream that broke.
    pub(super) resumes: bool,
    pub(super) replies: ReplyChain,
    /// Whose it is, for the upstream.
    pub(super) client: ClientContext,
    /// Where what is streamed is counted.
    pub(super) budget: Budget,
}

/// A response that is written once middleware let it through.
#[derive(Debug)]
pub(super) struct Written<'a> {
    reply: &'a Reply,
    /// The status, if it is not that of a success.
    status: Option<StatusCode>,
    body: Evaluation,
}

// === impl Written ===

impl Future for Written<'_> {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response<Body>> {
        Poll::Ready(match (ready!(Pin::new(&mut self.body).poll(context)), self.status) {
            (Ok(body), Some(status)) => json(status, body),
            (Ok(body), None) => self.reply.whole(body),
            (Err(refusal), _) if self.reply.as_events => self.reply.whole(refusal),
            (Err(refusal), _) => json(StatusCode::INTERNAL_SERVER_ERROR, refusal),
        })
    }
}

// === impl Reply ===

impl Reply {
    /// The whole answer at once.
    pub(super) fn whole(&self, body: Bytes) -> Response<Body> {
        if self.as_events {
            return events(Body::parts(sse::parts(Some("message"), None, body)));
        }
        json(StatusCode::OK, body)
    }

    /// A response of the server.
    pub(super) fn message(&self, message: Message) -> Written<'_> {
        // 2026-07-28 says in the status what kind of refusal it is.
        let status = match (self.era, error_code(&message)) {
            (Era::Modern, Some(answer::METHOD_NOT_FOUND)) => Some(StatusCode::NOT_FOUND),
            (Era::Modern, Some(answer::HEADER_MISMATCH | answer::MISSING_CAPABILITY | answer::UNSUPPORTED_VERSION)) => {
                Some(StatusCode::BAD_REQUEST)
            }
            _ => None,
        };
        Written { reply: self, status, body: self.replies.evaluate(message) }
    }

    /// The answer, with what came before it.
    pub(super) async fn after(
        &self,
        first: &Bytes,
        interim: &mut mpsc::Receiver<Bytes>,
        message: Message,
    ) -> Response<Body> {
        let mut body = bytes::BytesMut::from(sse::event(Some("message"), None, first).as_ref());
        while let Ok(next) = interim.try_recv() {
            body.extend_from_slice(&sse::event(Some("message"), None, &next));
        }
        let last = self.replies.evaluate(message).await.unwrap_or_else(|refusal| refusal);
        body.extend_from_slice(&sse::event(Some("message"), None, &last));
        events(Body::full(body.freeze()))
    }

    /// The response to a call that failed.
    pub(super) fn error(&self, error: CallError, id: Option<&Id>) -> Response<Body> {
        if self.as_events && !matches!(error, CallError::Busy(_)) {
            return self.whole(error.answer(id));
        }
        match error {
            CallError::NotSent => text(StatusCode::INTERNAL_SERVER_ERROR, "Failed to process request"),
            CallError::Disconnected
            | CallError::Malformed
            | CallError::NoCredentials(_)
            | CallError::Rejected(_)
            | CallError::TooLarge { .. }
            | CallError::Unavailable(_) => json(StatusCode::BAD_GATEWAY, error.answer(id)),
            // Also for a client that takes events: nothing was sent, and it can tell when to try again.
            CallError::Busy(_) => busy(error.answer(id)),
            // Some clients take a status of 400 for the end of the connection, and this is about one call.
            CallError::Cancelled | CallError::NeedsClient(_) => json(StatusCode::OK, error.answer(id)),
            CallError::Timeout => text(StatusCode::GATEWAY_TIMEOUT, "Timeout waiting for response from container"),
        }
    }
}

/// The code of an error.
fn error_code(message: &Message) -> Option<i64> {
    skep_mcp::value::find(message.error()?, &["code"])?.parse().ok()
}
