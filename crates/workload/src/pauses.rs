//! How long is waited before something that failed is tried again.

use std::time::Duration;

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(15);
/// What lasted this long was good: the next try comes soon.
const GOOD: Duration = Duration::from_secs(30);

/// The pauses between tries: a first one, then twice the last one.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    first: Duration,
    next: Duration,
}

impl Pauses {
    /// Pauses that begin with this one.
    pub const fn new(first: Duration) -> Self {
        Self { first, next: first }
    }

    /// The pause after a try whose success, if it was one, lasted for so long.
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
    fn pauses_double_until_something_lasts() {
        let seconds = Duration::from_secs;
        let mut pauses = Pauses::new(seconds(1));
        for (lasted, pause) in [(0, 1), (29, 2), (0, 4), (1, 8), (0, 15), (0, 15), (30, 1), (0, 2)] {
            assert_eq!(pauses.after(seconds(lasted)), seconds(pause));
        }
    }
}
