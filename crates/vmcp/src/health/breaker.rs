//! The circuit breaker of a backend, as a pure state machine.
//!
//! ```text
//!   closed ──failures in a row──▶ open ──after its timeout──▶ half-open ──success──▶ closed
//!                                  ▲                              │ one probe at a time
//!                                  └────────────failure───────────┘
//! ```
//!
//! Checks and calls of clients are counted apart, and either may be the probe; but one that calls opened is closed by a call alone.

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

/// What found out how the backend is. Checks and calls are counted apart: a server may list its tools and fail to run them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A check.
    Check,
    /// A call of a client.
    Call,
}

/// That the backend may be called, and whether this is the probe of a half-open breaker.
#[derive(Debug)]
pub(super) struct Permit(Option<u64>);

/// A circuit breaker.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    settings: BreakerSettings,
    state: BreakerState,
    /// How many checks and how many calls failed in a row.
    failures: [u32; 2],
    /// What failed so often that it opened.
    opened_by: Option<Source>,
    changed: Option<Instant>,
    /// The probe in flight, by its number.
    probe: Option<u64>,
    last_probe: u64,
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

// === impl Permit ===

impl Permit {
    /// That of a backend without a breaker.
    pub(super) fn unconditional() -> Self {
        Self(None)
    }
}

// === impl Breaker ===

impl Breaker {
    /// A closed one.
    pub(super) fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            state: BreakerState::Closed,
            failures: [0; 2],
            opened_by: None,
            changed: None,
            probe: None,
            last_probe: 0,
        }
    }

    /// Its state.
    pub(super) fn state(&self) -> BreakerState {
        self.state
    }

    /// Whether the backend may be called now. Where it is the probe of a half-open breaker, others wait for its outcome.
    pub(super) fn permit(&mut self, source: Source, now: Instant) -> Option<Permit> {
        let is_over = self.changed.is_some_and(|changed| now >= changed + self.settings.timeout);
        if self.state == BreakerState::Open && is_over {
            self.change(BreakerState::HalfOpen, now);
        }
        match self.state {
            BreakerState::Closed => Some(Permit(None)),
            BreakerState::Open => None,
            // A check says nothing about what calls failed at, so it is no probe and keeps none from being sent.
            BreakerState::HalfOpen if self.opened_by == Some(Source::Call) && source == Source::Check => {
                Some(Permit(None))
            }
            BreakerState::HalfOpen if self.probe.is_some() => None,
            BreakerState::HalfOpen => {
                self.last_probe += 1;
                self.probe = Some(self.last_probe);
                Some(Permit(self.probe))
            }
        }
    }

    /// The backend responded in good time. Of a half-open breaker, only the probe says so; where no client calls, a check does after a while.
    pub(super) fn succeed(&mut self, source: Source, permit: &Permit, now: Instant) {
        *self.count(source) = 0;
        let is_over = self.changed.is_some_and(|changed| now >= changed + self.settings.timeout);
        let is_idle = self.state == BreakerState::HalfOpen && self.probe.is_none() && is_over;
        if self.is_probe(permit) || (source == Source::Check && is_idle) {
            (self.failures, self.opened_by) = ([0; 2], None);
            self.change(BreakerState::Closed, now);
        }
    }

    /// It failed, or took too long.
    pub(super) fn fail(&mut self, source: Source, permit: &Permit, now: Instant) {
        let most = self.settings.failures;
        let count = self.count(source);
        *count = count.saturating_add(1);
        let is_too_often = *count >= most;
        let opens = match self.state {
            BreakerState::Closed => is_too_often,
            // A late response to what was sent before it opened says nothing new.
            BreakerState::HalfOpen => source == Source::Check || self.is_probe(permit),
            BreakerState::Open => false,
        };
        if opens {
            self.opened_by = self.opened_by.or(Some(source));
            self.change(BreakerState::Open, now);
        }
    }

    /// What was permitted ended without saying anything about the backend.
    pub(super) fn give_up(&mut self, permit: &Permit) {
        if self.is_probe(permit) {
            self.probe = None;
        }
    }

    fn is_probe(&self, permit: &Permit) -> bool {
        permit.0.is_some() && self.probe == permit.0
    }

    fn count(&mut self, source: Source) -> &mut u32 {
        let [checks, calls] = &mut self.failures;
        match source {
            Source::Check => checks,
            Source::Call => calls,
        }
    }

    fn change(&mut self, state: BreakerState, now: Instant) {
        (self.state, self.changed, self.probe) = (state, Some(now), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: BreakerSettings = BreakerSettings { failures: 3, timeout: Duration::from_mins(1) };
    const NOW: Permit = Permit(None);

    fn fail(breaker: &mut Breaker, source: Source, times: usize, now: Instant) {
        for _ in 0..times {
            breaker.fail(source, &NOW, now);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_so_many_failures_in_a_row_and_closes_after_one_probe() {
        for source in [Source::Check, Source::Call] {
            let (mut breaker, start) = (Breaker::new(SETTINGS), Instant::now());
            fail(&mut breaker, source, 2, start);
            breaker.succeed(source, &NOW, start);
            fail(&mut breaker, source, 2, start);
            assert_eq!(breaker.state(), BreakerState::Closed, "the failures were not in a row");
            fail(&mut breaker, source, 1, start);
            assert_eq!(breaker.state(), BreakerState::Open);
            assert!(breaker.permit(source, start + Duration::from_secs(59)).is_none());
            let later = start + Duration::from_mins(1);
            let probe = breaker.permit(source, later).unwrap();
            assert_eq!(breaker.state(), BreakerState::HalfOpen);
            assert!(breaker.permit(source, later).is_none(), "there is one probe at a time");
            breaker.give_up(&probe);
            let probe = breaker.permit(source, later).unwrap();
            breaker.fail(source, &probe, later);
            assert_eq!(breaker.state(), BreakerState::Open);
            assert!(breaker.permit(source, later + Duration::from_secs(59)).is_none(), "its time begins anew");
            let later = later + Duration::from_mins(1);
            let next = breaker.permit(source, later).unwrap();
            breaker.succeed(source, &probe, later);
            assert_eq!(breaker.state(), BreakerState::HalfOpen, "that probe was over");
            breaker.succeed(source, &next, later);
            assert_eq!(breaker.state(), BreakerState::Closed);
            assert!(breaker.permit(source, later).is_some());
        }
    }

    /// A server may list its tools at once, and hang whenever one is called.
    #[tokio::test(start_paused = true)]
    async fn checks_that_succeed_neither_keep_it_closed_nor_close_it_while_calls_fail() {
        let (mut breaker, start) = (Breaker::new(SETTINGS), Instant::now());
        for _ in 0..3 {
            breaker.fail(Source::Call, &NOW, start);
            breaker.succeed(Source::Check, &NOW, start);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        let later = start + Duration::from_mins(1);
        let check = breaker.permit(Source::Check, later).unwrap();
        breaker.succeed(Source::Check, &check, later);
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        let call = breaker.permit(Source::Call, later).expect("a check is not the probe");
        breaker.succeed(Source::Call, &NOW, later);
        assert_eq!(breaker.state(), BreakerState::HalfOpen, "a late response says nothing");
        breaker.succeed(Source::Call, &call, later);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    /// Otherwise what it shows would differ between replicas for ever.
    #[tokio::test(start_paused = true)]
    async fn a_check_closes_one_that_calls_opened_when_no_client_calls() {
        let (mut breaker, start) = (Breaker::new(SETTINGS), Instant::now());
        fail(&mut breaker, Source::Call, 3, start);
        for (seconds, state) in
            [(60, BreakerState::HalfOpen), (119, BreakerState::HalfOpen), (120, BreakerState::Closed)]
        {
            let now = start + Duration::from_secs(seconds);
            let check = breaker.permit(Source::Check, now).unwrap();
            breaker.succeed(Source::Check, &check, now);
            assert_eq!(breaker.state(), state, "{seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_may_be_the_probe_of_one_that_checks_opened() {
        let (mut breaker, start) = (Breaker::new(SETTINGS), Instant::now());
        fail(&mut breaker, Source::Check, 3, start);
        let later = start + Duration::from_mins(1);
        let call = breaker.permit(Source::Call, later).unwrap();
        assert!(breaker.permit(Source::Check, later).is_none());
        breaker.succeed(Source::Call, &call, later);
        assert_eq!(breaker.state(), BreakerState::Closed);
        fail(&mut breaker, Source::Check, 2, later);
        assert_eq!(breaker.state(), BreakerState::Closed, "it counts anew");
    }
}
