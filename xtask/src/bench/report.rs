//! What came out, as a table: processor time first.

use std::fmt::Write as _;
use std::time::Duration;

/// What one round gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Milliseconds of processor time per 1,000 calls.
    pub(super) cpu: Option<f64>,
    /// Calls per second.
    rate: f64,
    /// Milliseconds that half of the calls stayed below.
    half: f64,
    /// Milliseconds that 99 of 100 calls stayed below.
    pub(super) most: f64,
}

/// The memory of a proxy, in MiB.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) name: &'static str,
    /// Before the first call.
    pub(super) idle: f64,
    /// What of that is its own, and not pages of the program's file.
    pub(super) own: f64,
    /// What Kubernetes counts for it, if it is in a pod.
    pub(super) counted: Option<f64>,
    /// With many sessions.
    pub(super) open: f64,
    /// After many more.
    pub(super) closed: f64,
    /// After all calls.
    pub(super) loaded: f64,
}

// === impl Round ===

impl Round {
    pub(super) fn new(mut taken: Vec<Duration>, time: Duration, cpu: Option<f64>) -> Self {
        taken.sort_unstable();
        let count = f64::from(u32::try_from(taken.len()).unwrap_or(u32::MAX)).max(1.0);
        let below = |hundredths: usize| {
            let place = (taken.len() * hundredths / 100).min(taken.len().saturating_sub(1));
            taken.get(place).map_or(0.0, Duration::as_secs_f64) * 1000.0
        };
        Self {
            cpu: cpu.map(|seconds| seconds * 1_000_000.0 / count),
            rate: count / time.as_secs_f64(),
            half: below(50),
            most: below(99),
        }
    }
}

/// The table of all ways for one length of results. Ratios are to the way called `floor`.
pub(super) fn calls(size: usize, names: &[&str], rounds: &[Vec<Round>]) -> String {
    beside("floor", &format!("results of {size} bytes"), names, rounds)
}

/// The table of all ways under a title. Ratios are to the way of this name.
pub(super) fn beside(base: &str, title: &str, names: &[&str], rounds: &[Vec<Round>]) -> String {
    let floor = names.iter().zip(rounds).find(|(name, _)| **name == base).map(|(_, rounds)| rounds);
    let floor_cpu = floor.and_then(|rounds| median(rounds, |round| round.cpu));
    let floor_rate = floor.and_then(|rounds| median(rounds, |round| Some(round.rate)));
    let mut table = format!(
        "\n{title}\n{:<18} {:>27} {:>6}  {:>9} {:>6}  {:>8} {:>8}\n",
        "", "CPU ms per 1,000 calls", "ratio", "calls/s", "ratio", "p50 ms", "p99 ms"
    );
    for (name, rounds) in names.iter().zip(rounds) {
        let cpu = median(rounds, |round| round.cpu);
        let all = || rounds.iter().filter_map(|round| round.cpu);
        let spread = cpu.map_or_else(
            || "-".to_owned(),
            |cpu| {
                let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
                format!("{cpu:.1} ({least:.1} to {most:.1})")
            },
        );
        let number = |what: fn(&Round) -> Option<f64>| median(rounds, what).unwrap_or_default();
        let rate = number(|round| Some(round.rate));
        // Writing to a text does not fail.
        let _written = writeln!(
            table,
            "{name:<18} {spread:>27} {:>6}  {rate:>9.0} {:>6}  {:>8.2} {:>8.2}",
            ratio(cpu, floor_cpu),
            ratio(Some(rate), floor_rate),
            number(|round| Some(round.half)),
            number(|round| Some(round.most)),
        );
    }
    table
}

/// The table of chains: the first one is bare, and the last one has everything. `most` is how much of the bare one's processor time the full
/// one may take, and how much memory when it is idle, in MiB.
pub(super) fn shares(names: &[&str], rounds: &[Vec<Round>], idle: &[f64], most: (f64, f64)) -> String {
    let cpu = |rounds: &[Round]| median(rounds, |round| round.cpu).unwrap_or_default();
    let bare = rounds.first().map_or(0.0, |rounds| cpu(rounds));
    let full = rounds.last().map_or(0.0, |rounds| cpu(rounds));
    let mut table = format!(
        "\n{:<18} {:>22} {:>6} {:>16} {:>9} {:>8} {:>9}\n",
        "", "CPU ms per 1,000 calls", "ratio", "share of the sum", "calls/s", "p99 ms", "idle MiB"
    );
    for ((name, rounds), idle) in names.iter().zip(rounds).zip(idle) {
        let number = |what: fn(&Round) -> Option<f64>| median(rounds, what).unwrap_or_default();
        let (own, whole) = (cpu(rounds) - bare, full - bare);
        let share = if whole > 0.0 { format!("{:.0} %", own / whole * 100.0) } else { String::new() };
        // Writing to a text does not fail.
        let _written = writeln!(
            table,
            "{name:<18} {:>22.1} {:>6} {share:>16} {:>9.0} {:>8.2} {idle:>9.1}",
            cpu(rounds),
            ratio(Some(cpu(rounds)), Some(bare)),
            number(|round| Some(round.rate)),
            number(|round| Some(round.most)),
        );
    }
    let (is_cheap, is_small) = (full <= bare * most.0, idle.last().is_some_and(|idle| *idle <= most.1));
    let met = |is_met: bool| if is_met { "met" } else { "not met" };
    let _written = write!(
        table,
        "at most {} x the CPU of the bare chain: {}; at most {} MiB idle: {}",
        most.0,
        met(is_cheap),
        most.1,
        met(is_small)
    );
    table
}

/// The table of memory.
pub(super) fn memory(open: usize, closed: usize, memories: &[Memory]) -> String {
    let mut table = format!(
        "memory, MiB\n{:<18} {:>8} {:>14} {:>22} {:>28} {:>10}\n",
        "",
        "idle",
        "of it its own",
        format!("{open} sessions open"),
        format!("after {closed} opened, closed"),
        "at the end"
    );
    for Memory { name, idle, own, open, closed, loaded, .. } in memories {
        // Writing to a text does not fail.
        let _written = writeln!(table, "{name:<18} {idle:>8.1} {own:>14.1} {open:>22.1} {closed:>28.1} {loaded:>10.1}");
    }
    for (name, counted) in memories.iter().filter_map(|memory| Some((memory.name, memory.counted?))) {
        let _written = writeln!(table, "Kubernetes counts {counted:.1} MiB for `{name}` when it is idle");
    }
    table
}

pub(super) fn median(rounds: &[Round], what: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = rounds.iter().filter_map(what).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn ratio(value: Option<f64>, floor: Option<f64>) -> String {
    value
        .zip(floor)
        .filter(|(_, floor)| *floor > 0.0)
        .map_or_else(String::new, |(value, floor)| format!("{:.2}", value / floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(cpu: f64, calls: u64) -> Round {
        Round::new((1..=calls).map(Duration::from_millis).collect(), Duration::from_secs(1), Some(cpu))
    }

    #[test]
    fn a_round_is_counted_per_thousand_calls() {
        let round = round(0.5, 200);
        assert!((round.cpu.unwrap() - 2500.0).abs() < 0.001);
        assert!((round.rate - 200.0).abs() < 0.001);
        assert!((round.half - 101.0).abs() < 0.001);
        assert!((round.most - 199.0).abs() < 0.001);
    }

    #[test]
    fn shares_are_of_what_the_full_chain_takes_beyond_the_bare_one() {
        let rounds = [vec![round(0.1, 100)], vec![round(0.12, 100)], vec![round(0.15, 100)]];
        let table = shares(&["bare chain", "audit", "full chain"], &rounds, &[9.0, 10.0, 16.0], (1.6, 15.0));
        let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("bare chain").contains("1.00") && row("bare chain").contains("0 %"), "{table}");
        assert!(row("audit").contains("1.20") && row("audit").contains("40 %"), "{table}");
        assert!(row("full chain").contains("1.50") && row("full chain").contains("100 %"), "{table}");
        assert!(
            table.ends_with("at most 1.6 x the CPU of the bare chain: met; at most 15 MiB idle: not met"),
            "{table}"
        );
    }

    #[test]
    fn ratios_are_to_the_floor_of_the_same_run() {
        let rounds = [vec![round(0.1, 100)], vec![round(0.1, 100), round(0.3, 100), round(0.2, 100)]];
        let table = calls(1024, &["floor", "skep"], &rounds);
        let line = table.lines().find(|line| line.starts_with("skep")).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["skep", "2000.0", "(1000.0", "to", "3000.0)", "2.00", "100", "1.00", "51.00", "100.00"]
        );
    }

    #[test]
    fn a_proxy_that_was_never_called_has_no_ratio() {
        let table = calls(1, &["direct"], &[vec![Round::new(Vec::new(), Duration::from_secs(1), None)]]);
        assert!(table.lines().any(|line| line.starts_with("direct") && line.contains('-')));
    }
}
