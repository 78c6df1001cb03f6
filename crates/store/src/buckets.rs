//! Token buckets, for rate limits: in memory, or in Redis, where all replicas share them.
//!
//! A bucket that no one has taken from is full. Time refills it evenly, from empty to full in its period. A request takes one token from
//! each of its buckets, or from none of them: [`level`] is the algorithm, in Rust for memory and as a script for Redis.

mod level;
mod memory;
mod redis;

use std::time::Duration;

pub use self::memory::MemoryBuckets;
pub use self::redis::RedisBuckets;

use crate::StoreError;

/// One bucket of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Which one.
    pub key: String,
    /// How many tokens it holds, at least one.
    pub capacity: u32,
    /// How long it takes to refill from empty to full.
    pub period: Duration,
}

/// Whether a request took its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// One from each bucket.
    All,
    /// None: this bucket, by its place in the request, is the first that is empty.
    None {
        /// The place.
        empty: usize,
    },
}

/// Where buckets are.
#[derive(Debug)]
pub enum Buckets {
    /// In this process: each replica has its own.
    Memory(MemoryBuckets),
    /// In Redis, shared with other replicas.
    Redis(RedisBuckets),
}

// === impl Buckets ===

impl Buckets {
    /// Takes one token from each bucket, or none.
    pub async fn take(&self, buckets: &[Bucket]) -> Result<Taken, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.take(buckets)),
            Self::Redis(redis) => Box::pin(redis.take(buckets)).await,
        }
    }
}

// === impl Bucket ===

impl Bucket {
    /// How long one token takes to refill.
    pub fn time_per_token(&self) -> Duration {
        self.period / self.capacity.max(1)
    }
}
