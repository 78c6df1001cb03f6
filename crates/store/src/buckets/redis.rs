//! Buckets in Redis, which several proxies share. One script reads all buckets of a call and takes from all or none.
//!
//! A server that does not answer is not asked again for a moment: every call would wait for it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::cmd;
use tokio::time::{Instant, timeout};

use super::{Bucket, RateDecision};
use crate::StoreError;
use crate::redis::{Options, Retry, Server, UnavailableError};

const SCRIPT: &str = include_str!("take.lua");
/// How long a call waits for Redis, at most.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long Redis is not asked after it failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Buckets in Redis.
#[derive(Debug)]
pub struct RedisBuckets {
    server: Server,
    /// When it failed last, and why.
    failed: Mutex<Option<(Instant, UnavailableError)>>,
}

// === impl RedisBuckets ===

impl RedisBuckets {
    /// Buckets of a server, which is connected to at the first call.
    pub fn new(options: &Options) -> Result<Self, StoreError> {
        Ok(Self { server: Server::lazy(options)?, failed: Mutex::default() })
    }

    pub(super) async fn take(&self, buckets: &[Bucket]) -> Result<RateDecision, StoreError> {
        if buckets.is_empty() {
            return Ok(RateDecision::Granted);
        }
        if let Some(cause) = self.recent_failure() {
            return Err(StoreError::Unavailable(cause));
        }
        let mut command = cmd("EVAL");
        command.arg(SCRIPT).arg(buckets.len());
        for bucket in buckets {
            command.arg(&bucket.key);
        }
        for bucket in buckets {
            command.arg(bucket.limit.tokens()).arg(bucket.limit.micros());
        }
        let answer = timeout(PATIENCE, self.server.run::<usize>(&command, Retry::IfUnsent)).await;
        let answer = answer.unwrap_or(Err(StoreError::Unavailable(UnavailableError::Slow)));
        *self.failed() = match &answer {
            Err(StoreError::Unavailable(cause)) => Some((Instant::now(), cause.clone())),
            _ => None,
        };
        Ok(answer?.checked_sub(1).map_or(RateDecision::Granted, RateDecision::Refused))
    }

    fn recent_failure(&self) -> Option<UnavailableError> {
        self.failed().as_ref().filter(|(when, _)| when.elapsed() < RETRY_DELAY).map(|(_, cause)| cause.clone())
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Option<(Instant, UnavailableError)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
