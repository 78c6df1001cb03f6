//! Whose a line of the server's log is. In 2026-07-28 a request asks for the log that comes of it (`logLevel` in its `_meta`), and a
//! server on stdio does not say which request a line is about: it is that of the only request in flight that asked for it.

use bytes::Bytes;
use skep_mcp::{Message, value};

use super::log_level::level_of;
use super::upstream::State;

/// Where a request of 2026-07-28 says how much of the log it wants.
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// How much of the log a request asks for. Nothing if it asks for none.
pub(super) fn asked_for(request: &Message) -> Option<u8> {
    value::find_text(request.meta()?, &[LEVEL]).map(|level| level_of(&level))
}

impl State {
    /// Passes a line of the log on to the only request in flight that asked for lines of this level. Says whether any asked for
    /// them: if several did, or one whose client left just now, it goes to no client.
    pub(super) fn pass_to_asker(&self, body: &Bytes, level: u8) -> bool {
        let is_wanted = |logs: Option<u8>| logs.is_some_and(|wanted| level <= wanted);
        let mut askers = self.waiting.values().filter(|one| is_wanted(one.logs));
        let left = self.left.lately().filter(|one| is_wanted(one.logs)).count();
        let (first, is_only) = (askers.next(), askers.next().is_none() && left == 0);
        if let Some(interim) = first.filter(|_| is_only).and_then(|one| one.interim.as_ref())
            && interim.try_send(body.clone()).is_err()
        {
            tracing::debug!("dropping a log message: its reader is behind");
        }
        first.is_some() || left > 0
    }
}

#[cfg(test)]
mod tests;
