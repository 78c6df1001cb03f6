//! A server that speaks JSON-RPC in lines: a process, or a pod that the proxy is attached to.
//!
//! ```text
//!   Upstream ─▶ StdioUpstream ──┬─▶ queue ─▶ writer ─▶ stdin
//!               calls in flight │                             server
//!               and sessions    └── dispatch ◀─ reader ◀─ stdout
//! ```
//!
//! One server serves all clients. Each request gets an id of our own on its way in (`call`), and the client's back on its way out, so
//! clients with the same ids never see each other's responses. Server-initiated messages go to the session that they concern
//! (`routing`, `server_requests`, `logging`).
//!
//! The proxy initializes the server itself, before any client (`initialize`, `handshake`), and nothing else reaches it before
//! (`state`). What sessions subscribe to is merged into what the server knows (`subscriptions`). `connection` connects, and connects
//! again with backoff.

mod call;
mod cancellation;
mod capabilities;
mod connection;
mod handshake;
mod initialize;
mod line;
mod lines;
pub(crate) mod log_level;
mod logging;
mod routing;
mod server_log;
mod server_requests;
mod session;
mod state;
pub(crate) mod subscriptions;
mod tool_parameters;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::headers::parameters::Parameter;
use skep_mcp::{Era, Message, answer};
use skep_net::Budget;
use tokio::sync::{mpsc, watch};

use self::capabilities::ClientCapabilities;
pub(crate) use self::capabilities::RELAYED;
use self::subscriptions::changes_session;
pub(crate) use self::upstream::parameter;
pub use connection::{Connect, ConnectionEvent, Limits, Supervision, shutdown};
pub use server_log::{LastLines, forward_log};
pub use upstream::StdioUpstream;

use crate::error::CallError;
use crate::replies::{INTERIM, Replies};
use crate::upstream::{BoxFuture, Call, ClientContext, SessionId, Upstream, UpstreamState};

#[cfg(test)]
pub(crate) use self::upstream::tests;

impl Upstream for StdioUpstream {
    fn state(&self) -> watch::Receiver<UpstreamState> {
        self.upstream_state.subscribe()
    }

    fn initializes_once(&self) -> bool {
        true
    }

    fn open<'a>(
        &'a self,
        session: &'a SessionId,
        initialize: &'a Message,
        _client: &'a ClientContext,
    ) -> BoxFuture<'a, Result<Message, CallError>> {
        Box::pin(async move {
            // The request was admitted, so the server is initialized; this waits for nothing.
            let response = self.initialized(initialize).ok_or(CallError::NotSent)?;
            self.register(session, ClientCapabilities::of(initialize));
            Ok(response)
        })
    }

    fn restore(&self, session: &SessionId, initialize: &[u8]) {
        if self.with(|state| state.sessions.contains_key(session)) {
            return;
        }
        if let Ok(initialize) = Message::parse(Bytes::copy_from_slice(initialize)) {
            self.register(session, ClientCapabilities::of(&initialize));
        }
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Replies, CallError>> {
        Box::pin(async move {
            let Call { message, era, session, takes_interim, budget, .. } = call;
            if era == Era::Legacy && changes_session(&message) {
                let Some(session) = &session else { return needs_session(&message) };
                if let Some(response) = self.change_session(&message, session, &budget).await {
                    return response.map(Replies::ready);
                }
            }
            let (sender, interim) = if takes_interim { Some(mpsc::channel(INTERIM)).unzip() } else { (None, None) };
            let response = self.forward(&message, era, session, sender).await?;
            Ok(Replies { interim, response })
        })
    }

    fn send<'a>(
        &'a self,
        session: Option<&'a SessionId>,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(self.forward_notification(message, session))
    }

    fn events(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes> {
        self.listen(session, budget)
    }

    fn close(self: Arc<Self>, session: &SessionId) {
        self.end(session);
    }

    fn idle_sessions(&self, time: Duration) -> Vec<SessionId> {
        self.idle(time)
    }

    fn tool_parameters(
        self: Arc<Self>,
        call: Message,
        has_headers: bool,
    ) -> BoxFuture<'static, Result<Arc<[Parameter]>, CallError>> {
        Box::pin(async move { self.parameters(&call, has_headers).await })
    }

    fn drain(&self) {
        self.leave();
    }
}

/// The response to a request that changes what a session is subscribed to, without a session.
fn needs_session(message: &Message) -> Result<Replies, CallError> {
    let text = format!("{} needs a session: begin one with `initialize`", message.method().unwrap_or_default());
    let refusal = answer::error(message.id().as_ref(), answer::INVALID_REQUEST, &text, None);
    Message::parse(refusal).map(Replies::ready).map_err(|_malformed| CallError::NotSent)
}
