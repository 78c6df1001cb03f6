//! Denials in the log: a client that is denied in a loop must not fill it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use skep_authz::Decision;
use skep_mcp::value;

use crate::exchange::Exchange;

/// How many warnings there are in this time, at most.
const MOST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// Writes denials to the log.
#[derive(Debug, Default)]
pub(super) struct DenialLog(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    began: Instant,
    warnings: u32,
    /// How many warnings were left out since the last one.
    left_out: u64,
}

// === impl DenialLog ===

impl DenialLog {
    /// Writes one. Who was denied, and by which claims, is in the audit log; here it is for debugging, and values of claims are nowhere.
    pub(super) fn write(&self, exchange: &Exchange, decision: &Decision) {
        let (method, name) = (exchange.mcp_method().unwrap_or_default(), exchange.resource().unwrap_or_default());
        let (method, name) = (value::clipped(method), value::clipped(&name));
        if let Some(left_out) = self.admit(Instant::now()) {
            tracing::warn!(?method, ?name, reason = decision.reason(), left_out, "request denied");
        }
        let subject = exchange.head.identity().map(|identity| identity.subject.clone()).unwrap_or_default();
        let claims = exchange.head.caller.as_ref().map(|caller| caller.claims.keys().collect::<Vec<_>>());
        tracing::debug!(subject = ?value::clipped(&subject), ?claims, ?method, ?name, "request denied");
    }

    /// Whether another warning is written now, and how many were left out before it.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = window.get_or_insert(Window { began: now, warnings: 0, left_out: 0 });
        if now.saturating_duration_since(window.began) >= WINDOW {
            (window.began, window.warnings) = (now, 0);
        }
        if window.warnings == MOST {
            window.left_out += 1;
            return None;
        }
        window.warnings += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_in_a_loop_does_not_fill_the_log() {
        let (log, now) = (DenialLog::default(), Instant::now());
        let written = |at: Instant| (0..1_000).filter(|_| log.admit(at).is_some()).count();
        assert_eq!(written(now), MOST as usize);
        assert_eq!(written(now + WINDOW / 2), 0);
        assert_eq!(log.admit(now + WINDOW), Some(1_990), "the next one says how many there were");
        assert_eq!(written(now + WINDOW), MOST as usize - 1);
    }
}
