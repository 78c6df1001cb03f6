//! Opening the conversation with a server that was just connected to, before any client's request reaches it.
//!
//! ```text
//!   initialize ── result ──────────────────────────────▶ legacy: its answer is every client's
//!              └─ error ─┬─ the same server as before ─▶ what it answered then holds
//!                        ├─ another proxy's notes ─────▶ what it answered that one holds
//!                        └─ server/discover ── result ─▶ modern
//!                                           └─ error ──▶ refused: it is connected to again, with backoff
//! ```
//!
//! A server of both eras is opened in the legacy one, because every client can speak that: modern clients fall back to it, legacy
//! ones know nothing else. So it does not matter which client comes first.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Era, Kind, Message, era, value};

use super::capabilities::RELAYED;
use super::upstream::StdioUpstream;
use crate::error::CallError;
use crate::handshake::{discover_params, supports_modern};

/// How long a server may take for its first answer. A package may have to be fetched.
const FIRST: Duration = Duration::from_mins(10);
/// How long one may take that answered before: it only has to start.
const AGAIN: Duration = Duration::from_mins(2);
/// How long a server that refused `initialize` may take to answer `server/discover`: it runs already.
const DISCOVERY: Duration = Duration::from_secs(10);
/// How much of the server's error message is reported, in characters.
const LONGEST: usize = 200;

/// The version that servers are asked for: the newest one that has a handshake.
const LEGACY: &str = "2025-11-25";

/// The notification that completes the handshake.
const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

impl StdioUpstream {
    /// Initializes a server that was just connected to, and says in which era; or why it cannot be used. `is_known` says that it
    /// seems to be the same server as before: if it refuses a second handshake, what it answered to the first one holds.
    pub(super) async fn negotiate(self: &Arc<Self>, is_known: bool) -> Result<Era, String> {
        let patience = if self.handshake.era().is_some() { AGAIN } else { FIRST };
        let opened = tokio::time::timeout(patience, self.open(is_known)).await;
        opened.unwrap_or_else(|_| Err(format!("the server did not answer `initialize` within {patience:?}")))
    }

    async fn open(self: &Arc<Self>, is_known: bool) -> Result<Era, String> {
        // A server of 2026-07-28 may end when it is sent `initialize`; it is then opened by the other request when it was restarted.
        let was_discovered = self.handshake.take_opening() == Era::Modern;
        if was_discovered && self.discover().await? {
            return Ok(Era::Modern);
        }
        let answer = self.ask_to_open("initialize", &initialize_params()).await?;
        if answer.kind() == Kind::Response {
            self.handshake.note(&answer);
            self.handshake.accept(answer);
            self.send_in_handshake(Bytes::from_static(INITIALIZED)).await;
            return Ok(Era::Legacy);
        }
        if let Some(era) = self.handshake.era().filter(|_| is_known) {
            return Ok(era);
        }
        self.open_otherwise(&answer, was_discovered).await
    }

    /// Opens the conversation with a server that refused `initialize`.
    async fn open_otherwise(self: &Arc<Self>, refusal: &Message, was_discovered: bool) -> Result<Era, String> {
        // Before anything is waited for: it may end now. One that refused both requests is not asked a third time.
        if !was_discovered {
            self.handshake.open_with(Era::Modern);
        }
        // Another proxy may have initialized it, and it may take one handshake only.
        if let Some(earlier) = self.handshake.noted().await {
            tracing::info!("second handshake refused by the server; using its answer to the first one");
            self.handshake.accept(earlier);
            return Ok(Era::Legacy);
        }
        if !was_discovered {
            // A server that ignores what it does not know refused the handshake all the same.
            let discovered = tokio::time::timeout(DISCOVERY, self.discover()).await;
            if let Ok(discovered) = discovered
                && discovered?
            {
                return Ok(Era::Modern);
            }
            self.handshake.open_with(Era::Legacy);
        }
        Err(format!("the server refused `initialize`: {}", error_message(refusal)))
    }

    /// Whether the server answers `server/discover` as one of 2026-07-28.
    async fn discover(self: &Arc<Self>) -> Result<bool, String> {
        let answer = self.ask_to_open("server/discover", &discover_params()).await?;
        let is_modern = supports_modern(&answer);
        if is_modern {
            tracing::info!(version = era::MODERN, "server initialized");
            self.handshake.accept_modern();
        }
        Ok(is_modern)
    }

    async fn ask_to_open(self: &Arc<Self>, method: &str, params: &str) -> Result<Message, String> {
        let request = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"{method}","params":{params}}}"#);
        let not_sent = || format!("`{method}` could not be sent");
        let request = Message::parse(request.into()).map_err(|_| not_sent())?;
        let mut call = self.call_in_handshake(&request).await.map_err(|_| not_sent())?;
        call.response().await.map_err(|error| match error {
            CallError::Malformed => format!("the server's answer to `{method}` is malformed"),
            _ => format!("the server did not answer `{method}`"),
        })
    }
}

fn initialize_params() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        r#"{{"protocolVersion":"{LEGACY}","capabilities":{RELAYED},"clientInfo":{{"name":"skep","version":"{version}"}}}}"#
    )
}

/// What a server says in an error, on one line and not too long.
fn error_message(answer: &Message) -> String {
    let text = answer.error().and_then(|error| value::find_text(error, &["message"]));
    let text = text.unwrap_or("without a message".into());
    text.chars().filter(|character| !character.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests;
