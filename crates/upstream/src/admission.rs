//! Whether a request may go to a server: the server is ready, and of the request's era or willing to answer for it.

use skep_mcp::{Era, Message};
use tokio::sync::watch;

use crate::era::{self, EraMismatch};
use crate::error::CallError;
use crate::upstream::{Server, UpstreamState};

/// Why a request does not reach the server.
#[derive(Debug)]
pub enum AdmissionError {
    /// The server is not available.
    Call(CallError),
    /// The server serves requests of the other era.
    Era(EraMismatch),
}

/// Waits until the server takes requests. Fails at once where it is known that it does not.
pub async fn ready(state: &mut watch::Receiver<UpstreamState>) -> Result<Server, CallError> {
    loop {
        match &*state.borrow_and_update() {
            UpstreamState::Ready(server) => return Ok(server.clone()),
            UpstreamState::Failing(why) => return Err(CallError::Unavailable(why.clone())),
            UpstreamState::Starting => {}
        }
        state.changed().await.map_err(|_closed| CallError::NotSent)?;
    }
}

/// Waits until the server takes a request of a client, unless it never would take this one.
pub async fn admit(
    mut state: watch::Receiver<UpstreamState>,
    message: &Message,
    era: Era,
) -> Result<(), AdmissionError> {
    let server = ready(&mut state).await.map_err(AdmissionError::Call)?;
    if server.eras.contains(era) {
        return Ok(());
    }
    match era::mismatch(server.eras, era, message, server.version.as_deref()) {
        Some(mismatch) => Err(AdmissionError::Era(mismatch)),
        None => Ok(()),
    }
}
