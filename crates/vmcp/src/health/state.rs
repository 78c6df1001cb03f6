//! What is known of the health of one backend.

use std::sync::{Mutex, PoisonError};

use http::StatusCode;
use jiff::Timestamp;
use skep_upstream::CallError;
use tokio::time::Instant;

use super::breaker::{Breaker, BreakerSettings, BreakerState, Permit, Source};
use super::call::Outcome;
use crate::catalogue::FetchError;

/// How a backend is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It responds.
    Healthy,
    /// It responds, but slowly, or it has only just recovered.
    Degraded,
    /// It does not respond.
    Unhealthy,
    /// It refuses requests without credentials, and has none configured.
    Unauthenticated,
    /// It was not checked yet.
    #[default]
    Unknown,
}

/// Why a check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// The credentials were refused.
    AuthenticationFailed,
    /// There was no response in time.
    Timeout,
    /// The check was cancelled.
    Cancelled,
    /// It cannot be used.
    BackendUnavailable,
    /// It cannot be reached.
    ConnectionFailed,
    /// Anything else.
    HealthCheckFailed,
}

/// What a report says of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendHealth {
    /// How it is.
    pub health: Health,
    /// How many checks failed in a row.
    pub failures: u32,
    /// When it was last checked.
    pub checked: Option<Timestamp>,
    /// Why the last check failed, if it did.
    pub category: Option<Category>,
    /// When its health changed.
    pub changed: Option<Timestamp>,
    /// The state of its breaker.
    pub breaker: BreakerState,
    /// When that changed.
    pub breaker_changed: Option<Timestamp>,
    /// How many failures in a row it recovered from with the last check.
    pub recovered_from: u32,
}

/// The health of one backend, which checks and calls change.
#[derive(Debug, Default)]
pub struct HealthState(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: BackendHealth,
    breaker: Option<Breaker>,
    /// Whether checks are made: without them, every backend is called.
    is_monitored: bool,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It responded.
    Up {
        /// Not in a good time.
        slowly: bool,
    },
    /// It refused the credentials, which are configured or not.
    Refused {
        /// Whether credentials are configured, which a client may have to bring.
        is_configured: bool,
    },
    /// It failed.
    Down(Category),
    /// It says that it is busy, or was not called at all: that is no failure, and no proof either.
    Inconclusive,
}

// === impl Health ===

impl Health {
    /// Its name on `/status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
            Self::Unauthenticated => "unauthenticated",
            Self::Unknown => "unknown",
        }
    }

    /// Its name in the status of the resource.
    pub fn as_status(self) -> &'static str {
        match self {
            Self::Healthy => "ready",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unavailable",
            Self::Unauthenticated => "unauthenticated",
            Self::Unknown => "unknown",
        }
    }
}

// === impl Category ===

impl Category {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AuthenticationFailed => "authentication_failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::BackendUnavailable => "backend_unavailable",
            Self::ConnectionFailed => "connection_failed",
            Self::HealthCheckFailed => "health_check_failed",
        }
    }

    /// What people read.
    pub fn text(self) -> &'static str {
        match self {
            Self::AuthenticationFailed => "Authentication failed",
            Self::Timeout => "Health check timed out",
            Self::Cancelled => "Health check cancelled",
            Self::BackendUnavailable => "Backend unavailable",
            Self::ConnectionFailed => "Connection failed",
            Self::HealthCheckFailed => "Health check failed",
        }
    }
}

// === impl Finding ===

impl Finding {
    /// What a check came to that took so long.
    pub(super) fn of<T>(result: &Result<T, FetchError>, is_slow: bool, is_configured: bool) -> Self {
        match result {
            Ok(_) => Self::Up { slowly: is_slow },
            Err(FetchError::Unauthenticated(_)) => Self::Refused { is_configured },
            // A backend that is called in the name of clients was not called: there is none here.
            Err(FetchError::Call(CallError::NoCredentials(_))) => Self::Inconclusive,
            Err(FetchError::Call(error)) => Self::of_error(error),
            Err(FetchError::Refused { .. } | FetchError::Malformed(_) | FetchError::TooMuch) => {
                Self::Down(Category::HealthCheckFailed)
            }
        }
    }

    fn of_error(error: &CallError) -> Self {
        match error {
            CallError::Timeout => Self::Down(Category::Timeout),
            CallError::Cancelled => Self::Down(Category::Cancelled),
            CallError::Busy(_) => Self::Inconclusive,
            CallError::Rejected(status) if is_busy(*status) => Self::Inconclusive,
            CallError::Unavailable(_) | CallError::Disconnected => Self::Down(Category::ConnectionFailed),
            CallError::NotSent => Self::Down(Category::BackendUnavailable),
            CallError::Rejected(_)
            | CallError::NoCredentials(_)
            | CallError::NeedsClient(_)
            | CallError::TooLarge { .. }
            | CallError::Malformed => Self::Down(Category::HealthCheckFailed),
        }
    }
}

/// Whether a status says that a server is there and has no time: what is in front of it, or a part of it, may be restarting.
fn is_busy(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

// === impl HealthState ===

impl HealthState {
    /// What is known.
    pub fn known(&self) -> BackendHealth {
        self.with(|state| {
            let mut known = state.known.clone();
            known.breaker = state.breaker.as_ref().map(Breaker::state).unwrap_or_default();
            // Its lists may be fine while calls of it fail.
            if known.breaker != BreakerState::Closed && known.health == Health::Healthy {
                known.health = Health::Degraded;
            }
            known
        })
    }

    /// Whether clients see what the backend offers, and may call it.
    pub fn is_routable(&self) -> bool {
        self.with(|state| match state.known.health {
            Health::Healthy | Health::Degraded => true,
            // Before the first check, and for ever without checks, it is taken to be well.
            Health::Unknown => state.known.failures == 0,
            Health::Unhealthy => !state.is_monitored,
            Health::Unauthenticated => false,
        })
    }

    /// Checks are made from now on.
    pub(super) fn begin_monitoring(&self, breaker: Option<BreakerSettings>) {
        self.with(|state| {
            state.is_monitored = true;
            state.breaker = breaker.map(Breaker::new);
        });
    }

    /// Whether a check may be made now: the breaker decides. Nothing if not.
    pub(super) fn permit_check(&self) -> Option<Permit> {
        self.permit(Source::Check)
    }

    /// Whether there is a breaker.
    pub fn has_breaker(&self) -> bool {
        self.with(|state| state.breaker.is_some())
    }

    /// Whether a call of a client goes to it now. An open breaker refuses it; of a half-open one, a call may be the probe.
    pub(super) fn permit_call(&self) -> Option<Permit> {
        self.permit(Source::Call)
    }

    fn permit(&self, source: Source) -> Option<Permit> {
        let permit = |breaker: &mut Breaker| breaker.permit(source, Instant::now());
        self.change_breaker(permit, || Some(Permit::unconditional()))
    }

    /// Takes what a call of a client came to. Says whether the breaker changed.
    pub(super) fn note_call(&self, permit: &Permit, outcome: Outcome) -> bool {
        let before = self.known().breaker;
        let note = |breaker: &mut Breaker| match outcome {
            Outcome::Up => breaker.succeed(Source::Call, permit, Instant::now()),
            Outcome::Failed => breaker.fail(Source::Call, permit, Instant::now()),
            Outcome::Inconclusive => breaker.give_up(permit),
        };
        self.change_breaker(note, || ());
        before != self.known().breaker
    }

    /// Takes what a check found. Says whether the health changed.
    pub(super) fn settle(&self, finding: Finding, permit: &Permit, threshold: u32) -> bool {
        let settle = |breaker: &mut Breaker| match finding {
            Finding::Up { .. } | Finding::Refused { is_configured: true } => {
                breaker.succeed(Source::Check, permit, Instant::now());
            }
            Finding::Refused { .. } | Finding::Down(_) => breaker.fail(Source::Check, permit, Instant::now()),
            Finding::Inconclusive => breaker.give_up(permit),
        };
        self.change_breaker(settle, || ());
        self.with(|state| {
            state.known.checked = Some(Timestamp::now());
            state.known.take(finding, threshold)
        })
    }

    /// Changes the breaker, and notes when its state did. Without one, there is the other value.
    fn change_breaker<T>(&self, act: impl FnOnce(&mut Breaker) -> T, without: impl FnOnce() -> T) -> T {
        self.with(|state| {
            let Some(breaker) = &mut state.breaker else { return without() };
            let before = breaker.state();
            let acted = act(breaker);
            if before != breaker.state() {
                state.known.breaker_changed = Some(Timestamp::now());
            }
            acted
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl BackendHealth ===

impl BackendHealth {
    fn take(&mut self, finding: Finding, threshold: u32) -> bool {
        let before = self.health;
        match finding {
            Finding::Inconclusive => {}
            // The first success after failures may be luck.
            Finding::Up { .. } if self.failures > 0 => {
                self.recovered_from = std::mem::take(&mut self.failures);
                self.health = Health::Degraded;
            }
            Finding::Up { slowly: true } => (self.health, self.recovered_from) = (Health::Degraded, 0),
            Finding::Up { slowly: false } | Finding::Refused { is_configured: true } => {
                (self.health, self.failures, self.recovered_from) = (Health::Healthy, 0, 0);
            }
            Finding::Refused { is_configured: false } => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= threshold {
                    self.health = Health::Unauthenticated;
                }
            }
            Finding::Down(_) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= threshold {
                    self.health = Health::Unhealthy;
                }
            }
        }
        self.category = match finding {
            Finding::Down(category) => Some(category),
            Finding::Refused { is_configured: false } => Some(Category::AuthenticationFailed),
            Finding::Inconclusive => self.category,
            Finding::Up { .. } | Finding::Refused { .. } => None,
        };
        if before != self.health {
            self.changed = Some(Timestamp::now());
        }
        before != self.health
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(findings: &[Finding]) -> (Health, u32) {
        let mut known = BackendHealth::default();
        for finding in findings {
            known.take(*finding, 3);
        }
        (known.health, known.failures)
    }

    #[test]
    fn a_backend_is_unhealthy_after_so_many_failures_and_recovers_in_two_steps() {
        const UP: Finding = Finding::Up { slowly: false };
        const DOWN: Finding = Finding::Down(Category::Timeout);
        const REFUSED: Finding = Finding::Refused { is_configured: false };
        for (findings, expected) in [
            (&[][..], (Health::Unknown, 0)),
            (&[DOWN, DOWN], (Health::Unknown, 2)),
            (&[UP, DOWN, DOWN], (Health::Healthy, 2)),
            (&[UP, DOWN, DOWN, DOWN], (Health::Unhealthy, 3)),
            (&[UP, DOWN, DOWN, DOWN, UP], (Health::Degraded, 0)),
            (&[UP, DOWN, DOWN, DOWN, UP, UP], (Health::Healthy, 0)),
            (&[Finding::Up { slowly: true }], (Health::Degraded, 0)),
            (&[REFUSED, REFUSED, REFUSED], (Health::Unauthenticated, 3)),
            (&[Finding::Refused { is_configured: true }], (Health::Healthy, 0)),
            (&[UP, DOWN, DOWN, Finding::Inconclusive], (Health::Healthy, 2)),
        ] {
            assert_eq!(health(findings), expected, "{findings:?}");
        }
    }

    #[test]
    fn a_busy_backend_is_neither_up_nor_down() {
        for (error, expected) in [
            (CallError::Rejected(StatusCode::TOO_MANY_REQUESTS), Finding::Inconclusive),
            (CallError::Rejected(StatusCode::SERVICE_UNAVAILABLE), Finding::Inconclusive),
            (CallError::Rejected(StatusCode::BAD_GATEWAY), Finding::Inconclusive),
            (CallError::Rejected(StatusCode::REQUEST_TIMEOUT), Finding::Inconclusive),
            (CallError::Timeout, Finding::Down(Category::Timeout)),
            (CallError::Unavailable("x".into()), Finding::Down(Category::ConnectionFailed)),
            (CallError::Malformed, Finding::Down(Category::HealthCheckFailed)),
        ] {
            let result: Result<(), _> = Err(FetchError::from(error.clone()));
            assert_eq!(Finding::of(&result, false, false), expected, "{error}");
        }
        let refused: Result<(), _> = Err(FetchError::from(CallError::Rejected(StatusCode::UNAUTHORIZED)));
        assert_eq!(Finding::of(&refused, false, true), Finding::Refused { is_configured: true });
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_called_is_neither_healthy_nor_a_reason_to_call_it() {
        let state = HealthState::default();
        let timeout = std::time::Duration::from_mins(1);
        state.begin_monitoring(Some(BreakerSettings { failures: 1, timeout }));
        let permit = state.permit_check().unwrap();
        let not_called: Result<(), _> = Err(FetchError::from(CallError::NoCredentials("x".into())));
        let finding = Finding::of(&not_called, false, true);
        state.settle(finding, &permit, 3);
        assert_eq!((state.known().health, state.is_routable()), (Health::Unknown, true));
        state.note_call(&permit, Outcome::Failed);
        assert!(state.permit_call().is_none() && state.permit_check().is_none());
        tokio::time::advance(timeout).await;
        let permit = state.permit_check().unwrap();
        state.settle(finding, &permit, 3);
        assert_eq!(state.known().breaker, BreakerState::HalfOpen);
        let probe = state.permit_call().expect("a call of a client is the probe");
        assert!(state.note_call(&probe, Outcome::Up));
        assert_eq!(state.known().breaker, BreakerState::Closed);
    }

    #[test]
    fn a_healthy_backend_whose_calls_are_refused_is_shown_as_degraded_and_stays_listed() {
        let state = HealthState::default();
        let timeout = std::time::Duration::from_mins(1);
        state.begin_monitoring(Some(BreakerSettings { failures: 1, timeout }));
        let permit = state.permit_check().unwrap();
        state.settle(Finding::Up { slowly: false }, &permit, 3);
        assert_eq!(state.known().health, Health::Healthy);
        state.note_call(&permit, Outcome::Failed);
        assert_eq!((state.known().health, state.is_routable()), (Health::Degraded, true));
    }
}
