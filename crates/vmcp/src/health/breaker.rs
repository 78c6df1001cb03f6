//! The circuit breaker of a backend, as a pure state machine.
//!
//! ```text
//!   closed ──failures in a row──▶ open ──after its timeout──▶ half-open ──success──▶ closed
//!                                  ▲                              │ one probe at a time
//!                                  └────────────failure───────────┘
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// How many failures in a row open it.
    pub failures: u32,
    /// For how long it stays open.
    pub timeout: Duration,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreakerState {
    /// The backend is called.
    #[default]
    Closed,
    /// It is not.
    Open,
    /// One probe finds out whether it can be called again.
    HalfOpen,
}

/// A circuit breaker.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    state: BreakerState,
    failures: u32,
    changed: Option<Instant>,
    is_probing: bool,
}

// === impl BreakerState ===

impl BreakerState {
    /// Its name in a status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

// === impl Breaker ===

impl Breaker {
    /// A closed one.
    pub fn new(settings: BreakerSettings) -> Self {
        Self { settings, state: BreakerState::Closed, failures: 0, changed: None, is_probing: false }
    }

    /// Its state.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Whether the backend may be called now. Where it is the probe of a half-open breaker, others wait for its outcome.
    pub fn permits(&mut self, now: Instant) -> bool {
        let is_over = self.changed.is_some_and(|changed| now >= changed + self.settings.timeout);
        if self.state == BreakerState::Open && is_over {
            self.change(BreakerState::HalfOpen, now);
        }
        match self.state {
            BreakerState::Closed => true,
            BreakerState::Open => false,
            BreakerState::HalfOpen => !std::mem::replace(&mut self.is_probing, true),
        }
    }

    /// The backend responded.
    pub fn succeed(&mut self, now: Instant) {
        self.failures = 0;
        if self.state != BreakerState::Closed {
            self.change(BreakerState::Closed, now);
        }
    }

    /// It failed.
    pub fn fail(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let opens = match self.state {
            BreakerState::Closed => self.failures >= self.settings.failures,
            BreakerState::HalfOpen => true,
            BreakerState::Open => false,
        };
        if opens {
            self.change(BreakerState::Open, now);
        }
    }

    /// The probe ended without saying anything about the backend.
    pub fn give_up_probe(&mut self) {
        self.is_probing = false;
    }

    fn change(&mut self, state: BreakerState, now: Instant) {
        (self.state, self.changed, self.is_probing) = (state, Some(now), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: BreakerSettings = BreakerSettings { failures: 3, timeout: Duration::from_mins(1) };

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_so_many_failures_in_a_row_and_closes_after_one_probe() {
        let (mut breaker, start) = (Breaker::new(SETTINGS), Instant::now());
        breaker.fail(start);
        breaker.fail(start);
        breaker.succeed(start);
        breaker.fail(start);
        breaker.fail(start);
        assert_eq!(breaker.state(), BreakerState::Closed, "the failures were not in a row");
        breaker.fail(start);
        assert_eq!(breaker.state(), BreakerState::Open);
        assert!(!breaker.permits(start + Duration::from_secs(59)));
        let later = start + Duration::from_mins(1);
        assert!(breaker.permits(later));
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(!breaker.permits(later), "there is one probe at a time");
        breaker.give_up_probe();
        assert!(breaker.permits(later));
        breaker.fail(later);
        assert_eq!(breaker.state(), BreakerState::Open);
        assert!(!breaker.permits(later + Duration::from_secs(59)), "its time begins anew");
        assert!(breaker.permits(later + Duration::from_mins(1)));
        breaker.succeed(later);
        assert_eq!((breaker.state(), breaker.permits(later)), (BreakerState::Closed, true));
    }
}
