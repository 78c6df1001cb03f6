//! The algorithm: how full a bucket is. Pure; times are in microseconds, as Redis has them.

use std::time::Duration;

/// The longest time in which a bucket fills.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// How much fits into a bucket, and how fast it fills.
// INVARIANT: at least one token, and a period above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    tokens: u32,
    period: Duration,
}

/// A limit that limits nothing, or everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Nothing fits.
    #[error("a bucket needs at least one token; set maxTokens to 1 or more")]
    NoTokens,
    /// It never fills, or at once.
    #[error("refillPeriod must be above zero and at most a year")]
    Period,
}

/// How full a bucket is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    pub(super) tokens: f64,
    /// When that was so, in microseconds.
    pub(super) at: u64,
}

// === impl Limit ===

impl Limit {
    /// A bucket for so many tokens, which fills from empty to full in a period.
    pub fn new(tokens: u32, period: Duration) -> Result<Self, LimitError> {
        if tokens == 0 {
            return Err(LimitError::NoTokens);
        }
        if period < Duration::from_micros(1) || period > LONGEST {
            return Err(LimitError::Period);
        }
        Ok(Self { tokens, period })
    }

    /// How many tokens fit.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// How long it takes to fill from empty to full.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// How long one token takes, in whole seconds and at least one.
    pub fn retry_after(&self) -> u64 {
        let micros = self.period.as_micros().div_ceil(u128::from(self.tokens));
        u64::try_from(micros.div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
    }

    /// The period in microseconds.
    #[expect(clippy::cast_possible_truncation, reason = "a year fits")]
    pub(super) fn micros(&self) -> u64 {
        self.period.as_micros() as u64
    }
}

// === impl Level ===

impl Level {
    /// A bucket that was never used.
    pub(super) fn full(limit: Limit, now: u64) -> Self {
        Self { tokens: f64::from(limit.tokens), at: now }
    }

    /// The level at a later time. A clock that goes back adds nothing.
    #[expect(clippy::cast_precision_loss, reason = "as in the script; a year in microseconds is exact")]
    pub(super) fn refilled(self, limit: Limit, now: u64) -> Self {
        let capacity = f64::from(limit.tokens);
        let elapsed = now.saturating_sub(self.at) as f64;
        let tokens = (self.tokens + elapsed * capacity / limit.micros() as f64).min(capacity);
        Self { tokens, at: now.max(self.at) }
    }

    pub(super) fn has_token(self) -> bool {
        self.tokens >= 1.0
    }

    pub(super) fn is_full(self, limit: Limit) -> bool {
        self.tokens >= f64::from(limit.tokens)
    }

    /// With one token less.
    pub(super) fn taken(self) -> Self {
        Self { tokens: self.tokens - 1.0, ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(tokens: u32, seconds: u64) -> Limit {
        Limit::new(tokens, Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn a_limit_has_tokens_and_a_period() {
        assert_eq!(Limit::new(0, Duration::from_secs(1)), Err(LimitError::NoTokens));
        assert_eq!(Limit::new(1, Duration::ZERO), Err(LimitError::Period));
        assert_eq!(Limit::new(1, Duration::from_nanos(999)), Err(LimitError::Period));
        assert_eq!(Limit::new(1, Duration::MAX), Err(LimitError::Period));
    }

    #[test]
    fn a_client_is_asked_to_wait_for_one_token_and_at_least_a_second() {
        for (tokens, seconds, retry_after) in [(1, 60, 60), (60, 60, 1), (100, 60, 1), (7, 60, 9), (1, 86_400, 86_400)]
        {
            assert_eq!(limit(tokens, seconds).retry_after(), retry_after, "{tokens} in {seconds} s");
        }
    }

    /// Six decimals of a rate per second, as the original passes it, would be no rate at all.
    #[test]
    fn a_very_slow_bucket_fills() {
        let slow = limit(1, 365 * 24 * 60 * 60);
        let empty = Level { tokens: 0.0, at: 0 };
        let half = empty.refilled(slow, slow.micros() / 2);
        assert!((half.tokens - 0.5).abs() < 1e-9, "{half:?}");
        assert!(empty.refilled(slow, slow.micros()).has_token());
    }

    proptest! {
        /// However calls are spread, no more are granted in a time than fit into the bucket and flow into it.
        #[test]
        fn no_more_is_granted_than_the_bucket_allows(
            tokens in 1_u32..50, period in 1_000_u64..10_000_000, pauses in prop::collection::vec(0_u64..200_000, 1..200),
        ) {
            let limit = Limit::new(tokens, Duration::from_micros(period)).unwrap();
            let (mut level, mut now, mut granted) = (Level::full(limit, 0), 0, 0_u32);
            for pause in pauses {
                now += pause;
                level = level.refilled(limit, now);
                if level.has_token() {
                    level = level.taken();
                    granted += 1;
                }
                prop_assert!(level.tokens >= 0.0 && level.tokens <= f64::from(tokens));
                let flowed = Duration::from_micros(now).as_secs_f64() * f64::from(tokens) / limit.period().as_secs_f64();
                prop_assert!(f64::from(granted) <= f64::from(tokens) + flowed + 1e-6);
            }
        }

        /// Looking at a bucket often does not slow it down.
        #[test]
        fn a_bucket_fills_as_fast_however_often_it_is_looked_at(tokens in 1_u32..50, looks in 1_u64..1_000) {
            let limit = limit(tokens, 3_600);
            let empty = Level { tokens: 0.0, at: 0 };
            let step = limit.micros() / looks;
            let watched = (1..=looks).fold(empty, |level, look| level.refilled(limit, look * step));
            let left_alone = empty.refilled(limit, looks * step);
            prop_assert!((watched.tokens - left_alone.tokens).abs() < 1e-6);
        }

        #[test]
        fn a_clock_that_goes_back_adds_nothing(at in 0_u64..1_000_000, now in 0_u64..1_000_000) {
            let limit = limit(10, 1);
            let level = Level { tokens: 0.5, at }.refilled(limit, now);
            prop_assert!(level.at >= at && (now > at || (level.tokens - 0.5).abs() < 1e-12));
        }
    }
}
