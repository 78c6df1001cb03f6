//! Token buckets: how often something may happen, counted in memory or in Redis.
//!
//! ```text
//!   [Bucket, …] ──▶ Buckets ──┬─▶ MemoryBuckets ──▶ level: the algorithm, pure
//!                             └─▶ RedisBuckets ───▶ the same as one script, so that several proxies share the buckets
//! ```
//!
//! A call takes one token of every bucket, or, if one of them is empty, none of any. A bucket that was never used is full.

mod level;
mod memory;
mod redis;

pub use self::level::{Limit, LimitError};
pub use self::memory::{MOST_BUCKETS, MemoryBuckets};
pub use self::redis::RedisBuckets;
use crate::StoreError;

/// A bucket: its key, and how much fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Identifies it.
    pub key: String,
    /// How much fits, and how fast it fills.
    pub limit: Limit,
}

/// Whether a call is within its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateDecision {
    /// It took a token of every bucket.
    Granted,
    /// It took none: this bucket is the first that is empty.
    Refused(usize),
}

/// Where buckets are kept.
#[derive(Debug)]
pub enum Buckets {
    /// In this process.
    Memory(MemoryBuckets),
    /// In Redis.
    Redis(RedisBuckets),
}

// === impl Buckets ===

impl Buckets {
    /// Takes one token of every bucket, or none.
    pub async fn take(&self, buckets: &[Bucket]) -> Result<RateDecision, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.take(buckets)),
            Self::Redis(redis) => redis.take(buckets).await,
        }
    }
}
