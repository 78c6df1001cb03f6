//! Waiting on a condition, never on the clock.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The interval between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(50);

/// The result of one check of a condition.
#[derive(Debug)]
pub enum Seen<T> {
    /// The condition holds.
    Yes(T),
    /// It does not hold yet; the text says what was found instead, and is in the error on timeout.
    NotYet(String),
}

/// Polls until the condition holds, and fails when it does not hold within `limit`.
///
/// An error from `look` ends the wait at once: return [`Seen::NotYet`] for what may still change.
pub async fn eventually<T, Look, Found>(what: &str, limit: Duration, mut look: Look) -> Result<T>
where
    Look: FnMut() -> Found,
    Found: Future<Output = Result<Seen<T>>>,
{
    let deadline = Instant::now() + limit;
    let mut last = "nothing".to_owned();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, look()).await {
            Ok(Ok(Seen::Yes(value))) => return Ok(value),
            Ok(Ok(Seen::NotYet(found))) => last = found,
            Ok(Err(error)) => return Err(error.context(format!("while waiting for {what}"))),
            Err(_) => bail!("{what}: not within {limit:?}; last seen: {last}"),
        }
        if deadline.saturating_duration_since(Instant::now()) < INTERVAL {
            bail!("{what}: not within {limit:?}; last seen: {last}");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_says_what_was_seen_last() {
        let error = eventually("the sky is green", Duration::from_millis(120), || async {
            Ok(Seen::<()>::NotYet("blue".to_owned()))
        })
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "the sky is green: not within 120ms; last seen: blue");
    }

    #[tokio::test]
    async fn a_check_that_hangs_times_out() {
        let started = Instant::now();
        let hung = eventually("never", Duration::from_millis(100), std::future::pending::<Result<Seen<()>>>).await;
        assert!(hung.is_err());
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}
