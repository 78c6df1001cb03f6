//! Which era the server speaks, found out when it is first asked for: `server/discover`, which servers of earlier versions refuse.
//!
//! | response to `server/discover` | state |
//! | --- | --- |
//! | a result that lists 2026-07-28 | ready, modern; legacy as well if it lists an earlier version, or takes `initialize` |
//! | 401, 403, 5xx, no connection | failing, probed again with backoff |
//! | anything else | ready, legacy: sessions begin with `initialize` |

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Method, StatusCode};
use skep_mcp::headers::SESSION_ID;
use skep_mcp::{Era, Eras, Message};
use skep_workload::backoff::Backoff;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::credentials::SendError;
use super::handshake::only_response;
use super::{HttpUpstream, Transport, protocol_headers, unreachable_reason};
use crate::era;
use crate::error::CallError;
use crate::handshake::{discover_request, eras_of};
use crate::upstream::UpstreamState;

/// How long is waited before a server is probed again, at first.
const AGAIN: Duration = Duration::from_millis(500);
/// What a server of both eras takes. The session is not used.
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"skep","version":"0"}}}"#;
/// How long the server may take for its response.
const TIMEOUT: Duration = Duration::from_secs(30);

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Begins to probe the server, unless that is in progress or it is ready.
    pub(super) fn start_probing(&self) {
        let is_ready = matches!(&*self.state.borrow(), UpstreamState::Ready(_));
        if !is_ready && !self.is_probing.swap(true, Ordering::AcqRel) {
            tokio::spawn(probe(self.me.clone()).in_current_span());
        }
    }

    /// The server cannot be reached: it is probed until it can.
    pub(super) fn lost(&self, error: &skep_net::client::Error) -> CallError {
        tracing::debug!(%error, "server unreachable");
        let reason = unreachable_reason(error);
        if self.options.eras.is_some() {
            return CallError::Unavailable(reason.into());
        }
        self.state.send_replace(UpstreamState::Failing(reason.as_str().into()));
        self.start_probing();
        CallError::Unavailable(reason.into())
    }

    /// Probes the server once. Says its eras, or why it cannot be used.
    async fn probe_once(&self) -> Result<Eras, String> {
        if self.transport.get() == Some(&Transport::Sse) {
            return Ok(Eras::Legacy);
        }
        let message = Message::parse(discover_request().into()).map_err(|why| why.to_string())?;
        let mut request = self.post(message.body().clone()).map_err(|error| error.to_string())?;
        request.headers = protocol_headers::of_message(self.options.headers.clone(), Era::Modern, &message, None, &[]);
        let sent = self.send_with_credentials(&request).await;
        let response = sent.map_err(|error| match error {
            SendError::Server(error) => unreachable_reason(&error),
            SendError::Credentials(error) => CallError::from(error).to_string(),
        })?;
        let status = response.status();
        if status.is_server_error() || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(CallError::Rejected(status).to_string());
        }
        match only_response(response, &message).await {
            // Servers of both eras list what `server/discover` is for: the modern one.
            Ok(discovered) => match eras_of(&discovered) {
                Eras::Modern if self.is_initialized().await => Ok(Eras::Both),
                eras => Ok(eras),
            },
            Err(_) => Ok(Eras::Legacy),
        }
    }

    /// Whether a server of 2026-07-28 takes `initialize` as well. The session that it opens is closed at once.
    async fn is_initialized(&self) -> bool {
        let Ok(message) = Message::parse(INITIALIZE.into()) else { return false };
        let Ok(mut request) = self.post(message.body().clone()) else { return false };
        request.headers = protocol_headers::of_message(self.options.headers.clone(), Era::Legacy, &message, None, &[]);
        let Ok(response) = self.send_with_credentials(&request).await else { return false };
        let session = response.headers().get(SESSION_ID).cloned();
        let initialized = only_response(response, &message).await;
        let is_initialized = initialized.is_ok_and(|initialized| era::protocol_version(&initialized).is_some());
        if let (Some(session), Ok(mut closing)) = (session, self.request_of(Method::DELETE, None)) {
            closing.headers = self.options.headers.clone();
            closing.headers.insert(SESSION_ID, session);
            // The server expires it otherwise.
            let _closed = self.send_with_credentials(&closing).await;
        }
        is_initialized
    }
}

/// Probes a server with backoff until it is ready.
async fn probe(upstream: Weak<HttpUpstream>) {
    let mut backoff = Backoff::new(AGAIN);
    loop {
        let since = Instant::now();
        {
            let Some(upstream) = upstream.upgrade() else { return };
            let probed = tokio::time::timeout(TIMEOUT, upstream.probe_once()).await;
            match probed.unwrap_or_else(|_elapsed| Err(format!("no response within {TIMEOUT:?}"))) {
                Ok(eras) => {
                    upstream.is_probing.store(false, Ordering::Release);
                    upstream.state.send_replace(UpstreamState::ready(eras));
                    return;
                }
                Err(why) => {
                    tracing::debug!(why, "server not ready");
                    upstream.state.send_replace(UpstreamState::Failing(why.into()));
                }
            }
        }
        tokio::time::sleep(backoff.after(since.elapsed())).await;
    }
}

/// Whether an error of the protocol says that headers and body do not agree.
pub(super) fn is_header_mismatch(message: &Message) -> bool {
    let error = message.error().and_then(|error| serde_json::from_slice::<serde_json::Value>(error).ok());
    let code = error.as_ref().and_then(|error| error.get("code")?.as_i64());
    code == Some(skep_mcp::answer::HEADER_MISMATCH)
}
