//! Buckets in this process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::level::Level;
use super::{Bucket, Taken};

/// How many buckets are kept, at most. A bucket that has refilled needs not be kept at all.
const MOST: usize = 100_000;

/// Buckets of this process.
#[derive(Debug)]
pub struct MemoryBuckets {
    began: Instant,
    levels: Mutex<HashMap<String, (Level, u64)>>,
}

impl Default for MemoryBuckets {
    fn default() -> Self {
        Self { began: Instant::now(), levels: Mutex::default() }
    }
}

// === impl MemoryBuckets ===

impl MemoryBuckets {
    /// Takes one token from each bucket, or none.
    pub(super) fn take(&self, buckets: &[Bucket]) -> Taken {
        let now = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next: Vec<Level> = Vec::with_capacity(buckets.len());
        for bucket in buckets {
            next.push(Level::now(levels.get(&bucket.key).map(|(level, _)| *level), bucket, now));
        }
        let empty = next.iter().position(|level| !level.has_token());
        for (bucket, mut level) in buckets.iter().zip(next) {
            if empty.is_none() {
                level.tokens -= 1.0;
            }
            let full_at = now.saturating_add(super::level::micros(bucket));
            match levels.get_mut(&bucket.key) {
                Some(kept) => *kept = (level, full_at),
                None => {
                    levels.insert(bucket.key.clone(), (level, full_at));
                }
            }
        }
        if levels.len() > MOST {
            make_room(&mut levels, now);
        }
        empty.map_or(Taken::All, |empty| Taken::None { empty })
    }
}

/// Forgets the buckets that are full by now, and if there are hardly any, those that were used longest ago.
fn make_room(levels: &mut HashMap<String, (Level, u64)>, now: u64) {
    levels.retain(|_, (_, full_at)| *full_at > now);
    if levels.len() > MOST / 10 * 9 {
        let mut times: Vec<u64> = levels.values().map(|(level, _)| level.at).collect();
        let (_, median, _) = times.select_nth_unstable(levels.len() / 2);
        let median = *median;
        levels.retain(|_, (level, _)| level.at > median);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn buckets_of_many_users_do_not_pile_up() {
        let buckets = MemoryBuckets::default();
        let bucket = |number: usize| Bucket { key: number.to_string(), capacity: 1, period: Duration::from_secs(60) };
        for number in 0..=MOST {
            assert_eq!(buckets.take(&[bucket(number)]), Taken::All);
            tokio::time::advance(Duration::from_micros(1)).await;
        }
        let kept = buckets.levels.lock().unwrap().len();
        assert!(kept <= MOST / 2 + 1, "{kept}");
        // The latest are still empty.
        assert_eq!(buckets.take(&[bucket(MOST)]), Taken::None { empty: 0 });
    }
}
