//! Exponential backoff between attempts.

use std::time::Duration;

/// The maximum backoff.
const LONGEST: Duration = Duration::from_secs(15);
/// A success that lasted this long resets the backoff.
const GOOD: Duration = Duration::from_secs(30);

/// A backoff: a first delay that doubles.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    first: Duration,
    next: Duration,
}

impl Pauses {
    /// A backoff that starts with this delay.
    pub const fn new(first: Duration) -> Self {
        Self { first, next: first }
    }

    /// The delay after an attempt whose success, if any, lasted for so long.
    pub fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= GOOD {
            self.next = self.first;
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_until_an_attempt_lasts() {
        let seconds = Duration::from_secs;
        let mut pauses = Pauses::new(seconds(1));
        for (lasted, pause) in [(0, 1), (29, 2), (0, 4), (1, 8), (0, 15), (0, 15), (30, 1), (0, 2)] {
            assert_eq!(pauses.after(seconds(lasted)), seconds(pause));
        }
    }
}
