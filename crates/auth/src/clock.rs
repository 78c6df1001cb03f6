//! The time, as tokens carry it.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time in seconds since 1970.
pub fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
