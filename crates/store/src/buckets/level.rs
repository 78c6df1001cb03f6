//! How full a bucket is. Pure: the time is a number.

use super::Bucket;

/// How full a bucket was at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    /// Its tokens. A part of one is not enough for a request, and is kept for the next one.
    pub(super) tokens: f64,
    /// When, in microseconds.
    pub(super) at: u64,
}

// === impl Level ===

impl Level {
    /// The level of a bucket now, given what it was.
    pub(super) fn now(before: Option<Self>, bucket: &Bucket, now: u64) -> Self {
        let capacity = f64::from(bucket.capacity.max(1));
        let Some(before) = before else { return Self { tokens: capacity, at: now } };
        let elapsed = as_float(now.saturating_sub(before.at));
        let refilled = elapsed * capacity / as_float(micros(bucket)).max(1.0);
        // A clock that went back refills nothing.
        Self { tokens: (before.tokens + refilled).min(capacity), at: now.max(before.at) }
    }

    /// Whether it has a token for a request.
    pub(super) fn has_token(self) -> bool {
        self.tokens >= 1.0
    }
}

/// The period of a bucket, in microseconds.
pub(super) fn micros(bucket: &Bucket) -> u64 {
    u64::try_from(bucket.period.as_micros()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "exact for the next 250 years")]
fn as_float(micros: u64) -> f64 {
    micros as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn bucket(capacity: u32, seconds: u64) -> Bucket {
        Bucket { key: "a".to_owned(), capacity, period: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_bucket_refills_evenly_and_never_overflows() {
        let bucket = bucket(10, 100);
        let empty = Some(Level { tokens: 0.0, at: 0 });
        for (seconds, tokens) in [(0, 0.0), (5, 0.5), (10, 1.0), (99, 9.9), (100, 10.0), (1000, 10.0)] {
            assert!((Level::now(empty, &bucket, seconds * 1_000_000).tokens - tokens).abs() < 1e-9, "{seconds}");
        }
        assert!(Level::now(None, &bucket, 7).has_token());
    }

    #[test]
    fn a_very_slow_bucket_refills_in_the_end() {
        let slow = bucket(1, 30 * 24 * 3600);
        let mut level = Level { tokens: 0.0, at: 0 };
        // Asked once a second, so that each refill is tiny.
        for second in 1..=30 * 24 * 3600_u64 {
            level = Level::now(Some(level), &slow, second * 1_000_000);
        }
        assert!(level.tokens > 0.999_999, "{}", level.tokens);
    }

    proptest! {
        /// However requests are spread over time, no more are let in than the capacity and what was refilled.
        #[test]
        fn no_more_is_taken_than_there_is(capacity in 1_u32..50, seconds in 1_u64..1000, pauses in prop::collection::vec(0_u64..5_000_000, 1..300)) {
            let bucket = bucket(capacity, seconds);
            let (mut now, mut level, mut taken) = (0, None, 0_u32);
            for pause in &pauses {
                now += pause;
                let mut next = Level::now(level, &bucket, now);
                if next.has_token() {
                    next.tokens -= 1.0;
                    taken += 1;
                }
                level = Some(next);
            }
            let most = f64::from(capacity) * (1.0 + as_float(now) / as_float(micros(&bucket)));
            prop_assert!(f64::from(taken) <= most + 1e-6);
        }
    }
}
