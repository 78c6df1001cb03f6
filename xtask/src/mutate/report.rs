//! What became of each mutant: a line when it is known, and all that failed at the end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail};

use super::Mutant;
use super::witness::Tested;
use crate::ui;

/// What is known of the mutants so far.
pub(super) struct Report {
    /// How many mutants there are.
    all: usize,
    started: Instant,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    noticed: usize,
    /// Of those, the ones whose test was ended by its limit.
    timeouts: usize,
    failures: Vec<String>,
}

// === impl Report ===

impl Report {
    pub(super) fn new(all: usize) -> Self {
        Self { all, started: Instant::now(), counts: Mutex::default() }
    }

    /// A mutant that its test noticed.
    pub(super) fn notice(&self, mutant: &Mutant<'_>, tested: &Tested) {
        let mut counts = self.counts();
        counts.noticed += 1;
        counts.timeouts += usize::from(tested.is_timeout());
        let how = if tested.is_timeout() { "noticed, by its time limit," } else { "noticed" };
        let seconds = tested.elapsed.as_secs_f64();
        self.progress(&counts, &format!("{}: {how} after {seconds:.1} s", mutant.mutation.title()));
    }

    /// A mutant that no test noticed, or that could not be tried.
    pub(super) fn refuse(&self, mutant: &Mutant<'_>, why: &str) {
        self.fail(&format!("{}: {why}", mutant.mutation.title()));
    }

    /// An entry that failed.
    pub(super) fn fail(&self, why: &str) {
        let mut counts = self.counts();
        counts.failures.push(why.to_owned());
        self.progress(&counts, &format!("FAILED {why}"));
    }

    /// The counts, and an error with all that failed.
    pub(super) fn end(&self) -> Result<()> {
        let Counts { noticed, timeouts, failures } = &*self.counts();
        let minutes = self.started.elapsed().as_secs().div_ceil(60);
        ui::result(&format!(
            "{} mechanisms taken out one at a time in {minutes} min: {noticed} were missed by their tests, {timeouts} of them by a time limit",
            self.all
        ));
        if !failures.is_empty() {
            bail!("{} of {} mutations failed:\n  {}", failures.len(), self.all, failures.join("\n  "));
        }
        Ok(())
    }

    fn progress(&self, counts: &Counts, line: &str) {
        let (done, failed) = (counts.noticed + counts.failures.len(), counts.failures.len());
        let minutes = self.started.elapsed().as_secs() / 60;
        ui::progress(&format!("{minutes} min, {done}/{}, {failed} failed: {line}", self.all));
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
