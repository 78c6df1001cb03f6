//! What came out, and whether it is what is wanted.

use std::fmt::Write as _;

use super::stage::{BESIDE_HANGING, FLOOR, ONE_SERVER, PROXY, VIRTUAL};
use crate::bench::report::{self, Round, median};

/// A kind of request, and the way that the ratios in its table are to.
pub(super) type Measured = (&'static str, &'static str);
pub(super) const CALLS: Measured = ("tools/call", FLOOR);
pub(super) const LISTS: Measured = ("tools/list", ONE_SERVER);

/// How much longer requests may take beside backends that hang.
const HANGING: f64 = 1.1;
/// How much more processor time a call may take than through a proxy.
const CALL: f64 = 1.5;
/// How much more processor time a list may take than for a server that has it ready.
const LIST: f64 = 2.0;
/// How much more memory there may be at the end than after the first tenth: a share of it, or so many MiB.
const GROWTH: (f64, f64) = (0.1, 4.0);

/// What is wanted, and whether it is so.
#[derive(Debug, Default)]
pub(super) struct Verdicts(Vec<(String, bool)>);

/// The memory of a process over time, in MiB: before, and after each part of the work.
#[derive(Debug)]
pub(super) struct Growth {
    /// What was done, and how often.
    pub(super) what: String,
    pub(super) before: f64,
    pub(super) after: Vec<f64>,
}

// === impl Verdicts ===

impl Verdicts {
    /// Notes how calls went in front of so many backends.
    pub(super) fn of_calls(&mut self, count: usize, names: &[&str], rounds: &[Vec<Round>]) {
        let cpu = |name| value(names, rounds, name, |round| round.cpu);
        self.note(&format!("CPU of a call, {count} backends"), "proxy", cpu(VIRTUAL) / cpu(PROXY), CALL);
        self.beside_hanging("call", count, names, rounds);
    }

    /// Notes how lists went in front of so many backends.
    pub(super) fn of_lists(&mut self, count: usize, names: &[&str], rounds: &[Vec<Round>]) {
        let cpu = |name| value(names, rounds, name, |round| round.cpu);
        self.note(
            &format!("CPU of a list, {count} backends"),
            "server's that has it ready",
            cpu(VIRTUAL) / cpu(ONE_SERVER),
            LIST,
        );
        self.beside_hanging("list", count, names, rounds);
    }

    fn beside_hanging(&mut self, what: &str, count: usize, names: &[&str], rounds: &[Vec<Round>]) {
        let most = |name| value(names, rounds, name, |round| Some(round.most));
        let title = format!("p99 of a {what}, {count} backends and 2 that hang");
        self.note(&title, "time without those", most(BESIDE_HANGING) / most(VIRTUAL), HANGING);
    }

    fn note(&mut self, title: &str, base: &str, ratio: f64, limit: f64) {
        self.0.push((format!("{title}: {ratio:.2} x the {base}, at most {limit}"), ratio <= limit));
    }

    /// Notes how memory grew.
    pub(super) fn of_memory(&mut self, growth: &Growth) {
        let (Some(first), Some(last)) = (growth.after.first(), growth.after.last()) else { return };
        let limit = (first * GROWTH.0).max(GROWTH.1);
        let text = format!(
            "memory over {}: {:+.1} MiB since the first tenth of them, at most {limit:.1}",
            growth.what,
            last - first
        );
        self.0.push((text, last - first <= limit));
    }

    /// A line for each.
    pub(super) fn lines(&self) -> String {
        let line = |(text, is_met): &(String, bool)| format!("{text}: {}", if *is_met { "met" } else { "not met" });
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// The table of the ways for one kind of request.
pub(super) fn table(
    (what, base): Measured,
    count: usize,
    bytes: usize,
    names: &[&str],
    rounds: &[Vec<Round>],
) -> String {
    report::beside(base, &format!("{what}, {count} backends, results of {bytes} bytes"), names, rounds)
}

/// The table of memory over time.
pub(super) fn memory(all: &[Growth]) -> String {
    let mut table = format!("\nmemory, MiB\n{:<28} {:>8}  after each tenth of them\n", "", "before");
    for Growth { what, before, after } in all {
        let after: Vec<String> = after.iter().map(|resident| format!("{resident:.1}")).collect();
        // Writing to a text does not fail.
        let _written = writeln!(table, "{what:<28} {before:>8.1}  {}", after.join(" "));
    }
    table
}

/// The median of the rounds of one way.
fn value(names: &[&str], rounds: &[Vec<Round>], name: &str, of: fn(&Round) -> Option<f64>) -> f64 {
    let rounds = names.iter().zip(rounds).find(|(found, _)| **found == name).map(|(_, rounds)| rounds);
    rounds.and_then(|rounds| median(rounds, of)).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn round(cpu: f64, longest: u64) -> Vec<Round> {
        vec![Round::new(vec![Duration::from_millis(longest)], Duration::from_secs(1), Some(cpu))]
    }

    #[test]
    fn what_is_wanted_is_told_with_its_figure() {
        let mut verdicts = Verdicts::default();
        let names = [FLOOR, PROXY, VIRTUAL, BESIDE_HANGING];
        verdicts.of_calls(5, &names, &[round(1.0, 1), round(2.0, 10), round(3.0, 10), round(3.0, 12)]);
        verdicts.of_lists(5, &[ONE_SERVER, VIRTUAL, BESIDE_HANGING], &[round(1.0, 1), round(2.1, 10), round(2.0, 11)]);
        let growth = |after: &[f64]| Growth { what: "10 sessions".to_owned(), before: 9.0, after: after.to_vec() };
        verdicts.of_memory(&growth(&[20.0, 22.0, 24.0]));
        verdicts.of_memory(&growth(&[20.0, 22.0, 24.1]));
        assert_eq!(
            verdicts.lines().lines().collect::<Vec<_>>(),
            [
                "CPU of a call, 5 backends: 1.50 x the proxy, at most 1.5: met",
                "p99 of a call, 5 backends and 2 that hang: 1.20 x the time without those, at most 1.1: not met",
                "CPU of a list, 5 backends: 2.10 x the server's that has it ready, at most 2: not met",
                "p99 of a list, 5 backends and 2 that hang: 1.10 x the time without those, at most 1.1: met",
                "memory over 10 sessions: +4.0 MiB since the first tenth of them, at most 4.0: met",
                "memory over 10 sessions: +4.1 MiB since the first tenth of them, at most 4.0: not met",
            ]
        );
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let mut verdicts = Verdicts::default();
        verdicts.of_calls(5, &[VIRTUAL], &[round(1.0, 1)]);
        assert!(verdicts.lines().lines().all(|line| line.ends_with("not met")), "{verdicts:?}");
    }
}
