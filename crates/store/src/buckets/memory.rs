//! Buckets in this process. A full bucket is as good as none, so those that have filled again are forgotten.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::level::Level;
use super::{Bucket, Limit, RateDecision};

/// The most buckets that are kept. Beyond that, those that were not used for the longest are forgotten, which are the fullest: more is then
/// granted than the limits say, and never less.
pub const MOST_BUCKETS: usize = 100_000;
/// The most bytes of their keys. Clients choose their names.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// Buckets in memory.
#[derive(Debug)]
pub struct MemoryBuckets {
    started: Instant,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    levels: HashMap<String, (Level, Limit)>,
    /// The bytes of all keys.
    bytes: usize,
}

// === impl MemoryBuckets ===

impl Default for MemoryBuckets {
    fn default() -> Self {
        Self { started: Instant::now(), kept: Mutex::default() }
    }
}

impl MemoryBuckets {
    /// How many buckets are kept.
    pub fn count(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).levels.len()
    }

    pub(super) fn take(&self, buckets: &[Bucket]) -> RateDecision {
        let now = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let levels: Vec<Level> = buckets.iter().map(|bucket| kept.level(bucket, now)).collect();
        let empty = levels.iter().position(|level| !level.has_token());
        for (bucket, level) in buckets.iter().zip(levels) {
            kept.set(bucket, if empty.is_some() { level } else { level.taken() });
        }
        kept.make_room(now);
        empty.map_or(RateDecision::Granted, RateDecision::Refused)
    }
}

// === impl Kept ===

impl Kept {
    fn level(&self, bucket: &Bucket, now: u64) -> Level {
        match self.levels.get(&bucket.key) {
            Some((level, _)) => level.refilled(bucket.limit, now),
            None => Level::full(bucket.limit, now),
        }
    }

    fn set(&mut self, bucket: &Bucket, level: Level) {
        if let Some(kept) = self.levels.get_mut(&bucket.key) {
            *kept = (level, bucket.limit);
            return;
        }
        self.bytes += bucket.key.len();
        self.levels.insert(bucket.key.clone(), (level, bucket.limit));
    }

    /// Forgets full buckets once there are too many, and then the ones that were not used for the longest, a tenth at a time.
    fn make_room(&mut self, now: u64) {
        if self.levels.len() <= MOST_BUCKETS && self.bytes <= MOST_BYTES {
            return;
        }
        self.levels.retain(|_, (level, limit)| !level.refilled(*limit, now).is_full(*limit));
        self.bytes = self.levels.keys().map(String::len).sum();
        if self.levels.len() <= MOST_BUCKETS / 10 * 9 && self.bytes <= MOST_BYTES / 10 * 9 {
            return;
        }
        let mut oldest: Vec<(u64, String)> =
            self.levels.iter().map(|(key, (level, _))| (level.at, key.clone())).collect();
        oldest.sort_unstable();
        for (_, key) in oldest {
            if self.levels.len() <= MOST_BUCKETS / 10 * 9 && self.bytes <= MOST_BYTES / 10 * 9 {
                break;
            }
            self.levels.remove(&key);
            self.bytes -= key.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn bucket(key: String) -> Bucket {
        Bucket { key, limit: Limit::new(1, Duration::from_mins(1)).unwrap() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_buckets_is_bounded_and_the_newest_stay() {
        let buckets = MemoryBuckets::default();
        for number in 0..MOST_BUCKETS * 2 {
            tokio::time::advance(Duration::from_micros(1)).await;
            assert_eq!(buckets.take(&[bucket(number.to_string())]), RateDecision::Granted);
            assert!(buckets.count() <= MOST_BUCKETS);
        }
        let last = bucket((MOST_BUCKETS * 2 - 1).to_string());
        assert_eq!(
            buckets.take(std::slice::from_ref(&last)),
            RateDecision::Refused(0),
            "an empty bucket is not forgotten for a new one"
        );
        // What is full again is forgotten first.
        tokio::time::advance(Duration::from_secs(61)).await;
        for number in 0..=MOST_BUCKETS {
            buckets.take(&[bucket(format!("new-{number}"))]);
        }
        assert!(buckets.count() <= MOST_BUCKETS);
    }

    #[tokio::test(start_paused = true)]
    async fn long_keys_count_by_their_length() {
        let buckets = MemoryBuckets::default();
        for number in 0..100 {
            buckets.take(&[bucket(format!("{number}{}", "x".repeat(1024 * 1024)))]);
        }
        assert!(buckets.count() <= 16, "{}", buckets.count());
    }
}
