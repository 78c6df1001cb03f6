//! Another field manager that keeps changing fields of a child: it is applied again with backoff, and that is reported.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many times it is done at once: people edit what is not theirs, and find it restored.
const IMMEDIATE_APPLIES: u32 = 3;
/// Then it is done with backoff, from this delay on.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest of these delays: for so long, the fields of the other manager are in force.
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// A child that was left alone for so long is in no conflict any more.
const CONFLICT_EXPIRY: Duration = Duration::from_mins(5);

/// How often a child was applied again because another manager had changed fields of ours.
#[derive(Clone, Debug)]
pub(super) struct FieldConflict {
    count: u32,
    /// When it was applied last for that reason.
    last: Instant,
    /// Whether that was reported.
    is_reported: bool,
    /// What was reported.
    pub(super) report: Option<Arc<str>>,
}

impl FieldConflict {
    /// One of nothing so far.
    pub(super) const fn new(now: Instant) -> Self {
        Self { count: 0, last: now, is_reported: false, report: None }
    }

    /// Whether the child is applied again now, or after which time; and whether that is to be reported.
    pub(super) fn next(&mut self, now: Instant) -> (ControlFlow<Duration>, bool) {
        if now.saturating_duration_since(self.last) >= CONFLICT_EXPIRY {
            (self.count, self.is_reported, self.report) = (0, false, None);
        }
        let delay = match self.count.checked_sub(IMMEDIATE_APPLIES) {
            None => Duration::ZERO,
            Some(more) => FIRST_RETRY.saturating_mul(1 << more.min(16)).min(LONGEST_RETRY),
        };
        let is_news = self.count >= IMMEDIATE_APPLIES && !self.is_reported;
        self.is_reported |= is_news;
        let left = (self.last + delay).saturating_duration_since(now);
        if !left.is_zero() {
            return (ControlFlow::Break(left), is_news);
        }
        (self.count, self.last) = (self.count.saturating_add(1), now);
        (ControlFlow::Continue(()), is_news)
    }

    /// What was reported, and how long it holds: until the child was left alone for a while.
    pub(super) fn open(&self, now: Instant) -> Option<(Arc<str>, Duration)> {
        let left = (self.last + CONFLICT_EXPIRY).saturating_duration_since(now);
        self.report.clone().filter(|_| !left.is_zero()).map(|report| (report, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether another manager is quick or slow, it is reported once, and its fields are in force for a few seconds at most.
    #[test]
    fn a_contest_is_reported_once_however_quick_the_other_manager_is() {
        for pause in [Duration::from_millis(100), Duration::from_millis(1500), Duration::from_secs(4)] {
            let mut now = Instant::now();
            let mut field_conflict = FieldConflict::new(now);
            let (mut reports, mut longest) = (0, Duration::ZERO);
            for _ in 0..50 {
                let (next, is_news) = field_conflict.next(now);
                reports += usize::from(is_news);
                if let ControlFlow::Break(wait) = next {
                    longest = longest.max(wait);
                }
                now += pause;
            }
            assert_eq!(reports, 1, "{pause:?}");
            assert!(longest <= LONGEST_RETRY, "{longest:?}");
            // What was reported holds until then.
            field_conflict.report = Some("rival".into());
            let (_, left) = field_conflict.open(now).unwrap();
            assert!(left + pause + LONGEST_RETRY > CONFLICT_EXPIRY && left <= CONFLICT_EXPIRY, "{left:?}");
            assert!(field_conflict.open(now + CONFLICT_EXPIRY).is_none());
            // After a while without changes, it is as if there had been none.
            now += CONFLICT_EXPIRY;
            assert_eq!(field_conflict.next(now), (ControlFlow::Continue(()), false));
        }
    }
}
