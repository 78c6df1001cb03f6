//! Exponential backoff between attempts.

use std::time::Duration;

/// The maximum backoff.
const LONGEST: Duration = Duration::from_secs(15);
/// A success that lasted this long resets the backoff.
const GOOD: Duration = Duration::from_secs(30);

/// A backoff: a first delay that doubles.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    next: Duration,
}

impl Backoff {
    /// A backoff that starts with this delay.
    pub const fn new(first: Duration) -> Self {
        Self { first, next: first }
    }

    /// The delay after an attempt whose success, if any, lasted for so long.
    pub fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= GOOD {
            self.next = self.first;
        }
        let delay = self.next;
        self.next = (delay * 2).min(LONGEST);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_until_an_attempt_lasts() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1));
        for (lasted, delay) in [(0, 1), (29, 2), (0, 4), (1, 8), (0, 15), (0, 15), (30, 1), (0, 2)] {
            assert_eq!(backoff.after(seconds(lasted)), seconds(delay));
        }
    }
}
