//! The cost of a virtual server: processor time and latency of calls and lists in front of many backends, and its memory after many sessions and
//! changes.
//!
//! ```text
//!                 ┌───────────────────────────┐
//!   callers ──────┼─▶ floor: forwards only ───┼─▶ backend 1            calls
//!                 ├─▶ skep proxy ─────────────┘
//!                 ├─▶ skep vmcp ────────────────▶ backends 1 to N       calls and lists
//!                 ├─▶ skep vmcp ────────────────▶ backends 1 to N, one that takes 15 s, one that stalls after its headers
//!                 └─▶ a server with all tools                           lists: the cost of sending their bytes
//! ```
//!
//! All of them run during the whole measurement and are called in turns, round by round, because a machine is not equally fast at all times. The
//! backends are servers in one process that do next to nothing. Calls go to all backends in turns. While the last virtual server is measured, other
//! clients wait for its two backends that hang. Nothing here is an assertion: a number means something only beside the others of the same run.

pub(super) mod backends;
mod memory;
mod report;
mod stage;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::json;

use self::report::{CALLS, LISTS, Verdicts};
use self::stage::{Stage, Way};
use super::load::{Ask, Callers};
use super::report::Round;
use crate::process::Usage;
use crate::{skep, ui};

/// How many tools the backends have together, with those that hang.
const TOOLS: usize = 1000;
/// The length of results, in bytes.
const SIZE: usize = 1024;
/// How long each is called before the measurement, so that buffers and caches are warm.
const WARM_UP: Duration = Duration::from_millis(300);
/// How many clients wait for each backend that hangs.
const WAITING: usize = 4;
/// How long a client of a backend that hangs waits before it calls again after an error.
const AGAIN: Duration = Duration::from_secs(1);

/// How to measure.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How many backends there are: one measurement for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 20, 80])]
    backends: Vec<usize>,
    /// How often each is called.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// For how many seconds each is called in each round.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How many callers there are, each with a connection and a session of its own.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// How many sessions are opened and closed while memory is measured, each with a call.
    #[arg(long, default_value_t = 100_000)]
    sessions: usize,
    /// How many changes of lists there are while memory is measured.
    #[arg(long, default_value_t = 10_000)]
    changes: usize,
    /// The `skep` to measure. Left out, the one of the image is built.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if cfg!(debug_assertions) {
        // Callers that were not optimized would measure themselves.
        return super::run_optimized();
    }
    ensure!(arguments.backends.iter().all(|count| (1..=TOOLS).contains(count)), "there are 1 to {TOOLS} backends");
    let binary = skep::shipped(arguments.binary.as_deref())?;
    // One thread: the more the callers take, the less is left for those that are measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut verdicts = Verdicts::default();
    let (callers, rounds, time) = (arguments.connections, arguments.rounds, arguments.seconds);
    ui::result(&format!(
        "{callers} callers, {rounds} rounds of {time} s each: the median round, and the least and the most of them"
    ));
    for count in &arguments.backends {
        let stage = Stage::start(&binary, *count)?;
        runtime.block_on(measure(arguments, &stage, &mut verdicts)).with_context(|| format!("{count} backends"))?;
    }
    let stage = Stage::start(&binary, arguments.backends.iter().copied().max().unwrap_or(1).min(20))?;
    runtime.block_on(memory::measure(arguments, &stage, &mut verdicts))?;
    ui::result(&verdicts.lines());
    Ok(())
}

/// Measures calls and lists in front of some backends.
async fn measure(arguments: &Arguments, stage: &Stage, verdicts: &mut Verdicts) -> Result<()> {
    let bytes = stage.wait_for_lists().await?;
    stage.hang().await?;
    let calls = stage.calls();
    let lists = stage.lists(bytes);
    let mut called: Vec<Vec<Round>> = calls.iter().map(|_| Vec::new()).collect();
    let mut listed: Vec<Vec<Round>> = lists.iter().map(|_| Vec::new()).collect();
    for number in 1..=arguments.rounds {
        ui::progress(&format!("{} backends, round {number} of {}…", stage.count, arguments.rounds));
        // No way is always the first one.
        for place in (0..calls.len()).map(|place| (place + number) % calls.len()) {
            for (ways, rounds) in [(&calls, &mut called), (&lists, &mut listed)] {
                if let (Some(way), Some(rounds)) = (ways.get(place), rounds.get_mut(place)) {
                    rounds.push(round(arguments, way).await.with_context(|| way.name)?);
                }
            }
        }
    }
    let names = |ways: &[Way]| ways.iter().map(|way| way.name).collect::<Vec<_>>();
    ui::result(&report::table(CALLS, stage.count, SIZE, &names(&calls), &called));
    ui::result(&report::table(LISTS, stage.count, bytes, &names(&lists), &listed));
    verdicts.of_calls(stage.count, &names(&calls), &called);
    verdicts.of_lists(stage.count, &names(&lists), &listed);
    Ok(())
}

/// Calls one way for a while.
async fn round(arguments: &Arguments, way: &Way) -> Result<Round> {
    let hanging = way.hanging.iter().flat_map(|tool| std::iter::repeat_n(tool, WAITING));
    let mut waiting: FuturesUnordered<_> = hanging.map(|tool| wait_for(&way.url, Ask::tool(tool, SIZE))).collect();
    tokio::select! {
        round = round_alone(arguments, way) => round,
        Some(()) = waiting.next() => bail!("a client does not wait any more"),
    }
}

/// Calls one way for a while; other clients may call it at the same time.
async fn round_alone(arguments: &Arguments, way: &Way) -> Result<Round> {
    let mut callers = Callers::connect(&way.url, arguments.connections).await?;
    callers.initialize().await?;
    // Each session is opened at each backend.
    callers.ask_each(&way.asks).await?;
    callers.ask_for(&way.asks, WARM_UP).await?;
    let used = || way.process.map(Usage::of).transpose();
    let before = used()?;
    let started = Instant::now();
    let taken = callers.ask_for(&way.asks, Duration::from_secs(arguments.seconds)).await?;
    let time = started.elapsed();
    let cpu = before.zip(used()?).map(|(before, after)| after.cpu - before.cpu);
    callers.leave().await?;
    Ok(Round::new(taken, time, cpu))
}

/// Calls a tool of a backend that hangs, again and again.
async fn wait_for(url: &str, ask: Ask) {
    let call = async || -> Result<()> {
        let mut callers = Callers::connect(url, 1).await?;
        callers.initialize().await?;
        loop {
            callers.ask(&ask).await?;
        }
    };
    loop {
        // It takes too long, or is refused.
        let _failed = call().await;
        tokio::time::sleep(AGAIN).await;
    }
}

/// A request for the list of tools.
fn list(length: usize) -> Ask {
    Ask::new("tools/list", &json!({}), length)
}
