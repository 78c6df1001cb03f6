//! Which era the server speaks, found out when it is first asked for: `server/discover`, which servers of earlier versions refuse.
//!
//! | response to `server/discover` | state |
//! | --- | --- |
//! | a result that lists 2026-07-28 | ready, modern; legacy as well if it lists an earlier version |
//! | 401, 403, 5xx, no connection | failing, probed again with backoff |
//! | anything else | ready, legacy: sessions begin with `initialize` |

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use skep_mcp::{Era, Eras, Message};
use skep_workload::pauses::Pauses;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::credentials::SendError;
use super::handshake::only_response;
use super::{HttpUpstream, Transport, protocol_headers, unreachable_reason};
use crate::error::CallError;
use crate::upstream::UpstreamState;

/// How long is waited before a server is probed again, at first.
const AGAIN: Duration = Duration::from_millis(500);
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
        self.state.send_replace(UpstreamState::Failing(reason.as_str().into()));
        self.start_probing();
        CallError::Unavailable(reason.into())
    }

    /// Probes the server once. Says its eras, or why it cannot be used.
    async fn probe_once(&self) -> Result<Eras, String> {
        if self.transport.get() == Some(&Transport::Sse) {
            return Ok(Eras::Legacy);
        }
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{}}}"#,
            crate::handshake::discover_params()
        );
        let message = Message::parse(body.into()).map_err(|why| why.to_string())?;
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
            Ok(discovered) => Ok(crate::handshake::eras_of(&discovered)),
            Err(_) => Ok(Eras::Legacy),
        }
    }
}

/// Probes a server with backoff until it is ready.
async fn probe(upstream: Weak<HttpUpstream>) {
    let mut pauses = Pauses::new(AGAIN);
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
        tokio::time::sleep(pauses.after(since.elapsed())).await;
    }
}

/// Whether an error of the protocol says that headers and body do not agree.
pub(super) fn is_header_mismatch(message: &Message) -> bool {
    let error = message.error().and_then(|error| serde_json::from_slice::<serde_json::Value>(error).ok());
    let code = error.as_ref().and_then(|error| error.get("code")?.as_i64());
    code == Some(skep_mcp::answer::HEADER_MISMATCH)
}
