//! Whether a server takes requests. A failure that is known is reported at once instead of being waited for.

use tokio::sync::watch;

use crate::error::CallError;
use crate::upstream::{Server, UpstreamState};

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
