//! Drives every fuzz target for a while, on the stable compiler: seeds are mutated at random, from a number that is printed.
//!
//! ```text
//!   targets (a name, seeds, a function of bytes) ─▶ mutate ─▶ worker thread with the stack of a tokio worker ─▶ verdict
//! ```
//!
//! A target fails by a panic, by the end of its stack (which ends this process), or by an input that takes too long. The same
//! `--seed` gives the same inputs. For a search that is guided by coverage, see `crates/mcp/fuzz`.

mod mutate;
mod targets;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, anyhow, bail};
use clap::Parser;

use crate::mutate::Mutator;
use crate::targets::{TARGETS, Target};

/// The stack of a worker thread of tokio, on which the parsers run in production.
const STACK: usize = 2 * 1024 * 1024;
/// The timeout of one input.
const SLOWEST: Duration = Duration::from_secs(20);

/// Drives fuzz targets.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long to drive each target
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Only this target
    #[arg(long)]
    target: Option<String>,
    /// The seed of the random numbers; the time, unless it is given
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or(now);
    let chosen: Vec<&'static Target> =
        TARGETS.iter().filter(|target| arguments.target.as_deref().is_none_or(|name| name == target.name)).collect();
    if chosen.is_empty() {
        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        bail!("there is no such target; choose one of {}", known.join(", "));
    }
    for target in chosen {
        drive(target, seed, Duration::from_secs(arguments.seconds))?;
    }
    Ok(())
}

/// Drives one target until its time is over, or until it fails.
fn drive(target: &'static Target, seed: u64, time: Duration) -> Result<()> {
    print(&format!("{:<10} seed {seed}", target.name));
    let count = Arc::new(AtomicU64::new(0));
    let (sender, receiver) = channel();
    let (counter, until) = (count.clone(), Instant::now() + time);
    let worker = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        let mut mutator = Mutator::new(seed, target.seeds);
        while Instant::now() < until {
            let input = mutator.next_input();
            (target.run)(&input);
            counter.fetch_add(1, Ordering::Relaxed);
        }
        // The receiver waits as long as this thread lives.
        let _received = sender.send(());
    })?;
    let mut known = (0, Instant::now());
    while receiver.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
        let now = count.load(Ordering::Relaxed);
        if now != known.0 {
            known = (now, Instant::now());
        } else if known.1.elapsed() > SLOWEST {
            bail!("target `{}`, seed {seed}: input {now} takes longer than {} s", target.name, SLOWEST.as_secs());
        }
    }
    let inputs = count.load(Ordering::Relaxed);
    worker.join().map_err(|_| anyhow!("target `{}`, seed {seed}: input {inputs} panicked", target.name))?;
    print(&format!("{:<10} {inputs} inputs", target.name));
    Ok(())
}

#[expect(clippy::print_stderr, reason = "progress of a developer tool")]
fn print(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_holds_for_its_seeds_and_a_few_mutations() {
        for target in TARGETS {
            for seed in target.seeds {
                (target.run)(seed);
            }
            let mut mutator = Mutator::new(1, target.seeds);
            for _ in 0..50 {
                (target.run)(&mutator.next_input());
            }
        }
    }

    #[test]
    fn a_target_that_panics_is_reported_with_its_seed() {
        static BAD: Target = Target { name: "bad", seeds: &[b"a"], run: |input| assert!(input.len() < 100) };
        let error = drive(&BAD, 7, Duration::from_mins(1)).unwrap_err().to_string();
        assert!(error.starts_with("target `bad`, seed 7: input ") && error.ends_with(" panicked"), "{error}");
    }

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let inputs = |seed: u64| {
            let mut mutator = Mutator::new(seed, TARGETS[0].seeds);
            (0..20).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(3), inputs(3));
        assert_ne!(inputs(3), inputs(4));
    }
}
