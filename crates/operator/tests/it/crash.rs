//! Faults at every write: each scenario is run again and again, and at one write of the operator something goes wrong. However it
//! does, the operator must bring about the same objects as without the fault, delete nothing more, and then be silent.
//!
//! ```text
//!   scenario ──▶ fault-free run: the objects, the writes 1…n, the deletions
//!            └─▶ for each write k and each fault: run, converge, compare, watch for silence
//! ```
//!
//! `cargo xtask crash` makes all runs, CI a share of them. A run is named by its scenario, its fault, its write and its seed, which
//! also delays requests, and can be repeated by that name.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::{StreamExt as _, stream};
use skep_testkit::{ControlPlane, Seen, eventually};

use crate::converged::{Objects, collect_garbage, difference, recreate};
use crate::injector::{Fault, Injector};
use crate::running::{counted_in, define, start_without_recheck_as};
use crate::scenarios::scenarios;
use crate::stage::{Scenario, Stage};

/// How many runs go on beside each other.
const AT_ONCE: usize = 6;
/// How long an operator must send nothing to count as silent. Longer than the delays before a retry and between wake-ups.
const SILENCE: Duration = Duration::from_millis(1200);
/// How long it may take to fall silent.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a reconcile may take where a write is never answered: long enough for any other, and short enough for a thousand runs.
const DEADLINE: Duration = Duration::from_secs(3);
/// Of how many runs one is made where not all are asked for.
const SHARE: usize = 120;

/// One run.
struct Run<'a> {
    title: &'a str,
    scenario: &'a Scenario,
    fault: Fault,
    /// At which write.
    write: usize,
    seed: u64,
}

/// What came of a run.
struct Outcome {
    objects: Objects,
    writes: usize,
    deletions: std::collections::BTreeSet<String>,
    log: String,
    has_fault: bool,
    /// How many reconciles failed, and were retried with backoff.
    retries: u64,
}

/// What is counted of runs that converged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Converged {
    /// Whether the fault happened.
    has_fault: bool,
    /// Whether a reconcile was retried with backoff although the fault makes no request fail.
    needed_backoff: bool,
}

/// What is asked for.
struct Selection {
    /// One run of so many.
    share: usize,
    seed: u64,
    /// Only runs with this fault.
    fault: Option<String>,
    /// Only the run of this name.
    name: Option<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_converges_whatever_goes_wrong_at_whichever_write() -> Result<()> {
    let selection = Selection::from_environment()?;
    let plane = ControlPlane::start().await?;
    define(&plane).await?;
    let scenarios = scenarios()?;
    let wanted = |title: &str, scenario: &Scenario| {
        selection.name.as_ref().is_none_or(|name| name.starts_with(&format!("{title}/{}/", scenario.name)))
    };
    let scenarios: Vec<_> = scenarios.into_iter().filter(|(title, one)| wanted(title, one)).collect();
    ensure!(!scenarios.is_empty(), "no run is called that");
    let references: Vec<Outcome> = stream::iter(&scenarios)
        .map(|(title, scenario)| {
            let run = Run { title, scenario, fault: Fault::None, write: 0, seed: selection.seed };
            let plane = &plane;
            async move { run.make(plane).await.with_context(|| format!("{title}: {}, without a fault", scenario.name)) }
        })
        .buffered(AT_ONCE)
        .collect::<Vec<Result<Outcome>>>()
        .await
        .into_iter()
        .collect::<Result<_>>()?;
    let runs = scenarios.iter().zip(&references).flat_map(|((title, scenario), reference)| {
        let runs = Fault::ALL.iter().flat_map(move |fault| {
            let writes = if fault.is_at_a_write() { reference.writes } else { usize::from(reference.writes > 0) };
            (1..=writes).map(move |write| (*fault, write))
        });
        let seed = selection.seed;
        runs.map(move |(fault, write)| (Run { title, scenario, fault, write, seed }, reference))
    });
    let selected: Vec<_> = runs.enumerate().filter(|(index, (run, _))| selection.has(*index, run)).collect();
    ensure!(!selected.is_empty(), "no run is called that");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, (run, _)) in &selected {
        *counts.entry(run.fault.name()).or_default() += 1;
    }
    let count = selected.len();
    let results: Vec<Result<Converged, String>> = stream::iter(selected)
        .map(|(_, (run, reference))| {
            let plane = &plane;
            async move {
                let checked = run.check(plane, reference).await;
                match &checked {
                    Ok(Converged { needed_backoff: true, .. }) => println!("BACKOFF {}", run.name()),
                    Ok(_) => {}
                    Err(error) => println!("FAILED {}: {error:#}", run.name()),
                }
                checked.map_err(|error| format!("{}: {error:#}", run.name()))
            }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let converged = || results.iter().flatten();
    let happened = converged().filter(|run| run.has_fault).count();
    let backoffs = converged().filter(|run| run.needed_backoff).count();
    let failures: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    println!("{count} runs of {} scenarios, {happened} with their fault: {counts:?}", scenarios.len());
    println!("{backoffs} of them converged by a retry with backoff although their fault fails no request");
    ensure!(
        failures.is_empty(),
        "{} of {count} runs failed:\n{}",
        failures.len(),
        failures.iter().map(|one| one.as_str()).collect::<Vec<_>>().join("\n")
    );
    ensure!(happened * 10 >= count * 9, "in {} of {count} runs the fault did not happen", count - happened);
    plane.stop();
    Ok(())
}

// === impl Selection ===

impl Selection {
    fn from_environment() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let name = variable("CRASH_RUN");
        let seed = match (&name, variable("CRASH_SEED")) {
            (Some(name), _) => name.rsplit('/').next().unwrap_or_default().parse().context("a run ends in its seed")?,
            (None, Some(seed)) => seed.parse().context("CRASH_SEED is not a number")?,
            (None, None) => 1,
        };
        let share = match variable("CRASH_SHARE") {
            Some(share) => share.parse().context("CRASH_SHARE is not a number")?,
            None => SHARE,
        };
        ensure!(share > 0, "CRASH_SHARE is at least 1, which means all runs");
        Ok(Self { share, seed, fault: variable("CRASH_FAULT"), name })
    }

    fn has(&self, index: usize, run: &Run<'_>) -> bool {
        match &self.name {
            _ if self.fault.as_ref().is_some_and(|fault| fault != run.fault.name()) => false,
            Some(name) => *name == run.name(),
            None => index % self.share == usize::try_from(self.seed).unwrap_or_default() % self.share,
        }
    }
}

// === impl Run ===

impl Run<'_> {
    fn name(&self) -> String {
        format!("{}/{}/{}/{}/{}", self.title, self.scenario.name, self.fault.name(), self.write, self.seed)
    }

    /// Makes the run and compares what came of it with the run without a fault.
    async fn check(&self, plane: &ControlPlane, reference: &Outcome) -> Result<Converged> {
        let outcome = self.make(plane).await?;
        let seen = match self.fault {
            Fault::HiddenRecreation => Some(Self { fault: Fault::Recreation, ..*self }.make(plane).await?),
            _ => None,
        };
        let reference = seen.as_ref().unwrap_or(reference);
        if let Some(difference) = difference(&reference.objects, &outcome.objects) {
            bail!("it did not converge: {difference}\n{}", outcome.log);
        }
        let deleted: Vec<_> = outcome.deletions.difference(&reference.deletions).collect();
        ensure!(deleted.is_empty(), "it deleted what it should keep: {deleted:?}");
        let needed_backoff = outcome.retries > 0 && !self.fault.fails_a_request();
        Ok(Converged { has_fault: outcome.has_fault, needed_backoff })
    }

    async fn make(&self, plane: &ControlPlane) -> Result<Outcome> {
        let namespace = plane.namespace("crash").await?;
        let injector = Injector::new(plane.client()?, self.fault, self.write, self.seed);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let operated = operate(plane, &namespace, &injector, self.fault, stopped);
        let client = plane.client()?;
        let staged = async {
            // What is replaced while the operator waits for an answer never gets the status that the run without a fault shows.
            let wait = async || if injector.is_unanswered() { silent(&injector).await } else { Ok(()) };
            let stage = Stage::new(&client, namespace.clone()).without_events();
            let staged = stage.run_waiting(self.scenario, wait).await;
            let staged = match staged {
                Ok(()) => silent(&injector).await,
                Err(error) => Err(error),
            };
            if staged.is_ok() && matches!(self.fault, Fault::Recreation | Fault::HiddenRecreation) {
                if self.fault == Fault::HiddenRecreation {
                    injector.hide();
                }
                recreate(&client, &namespace, self.seed).await?;
                if self.fault == Fault::HiddenRecreation {
                    injector.show();
                }
                silent(&injector).await?;
            }
            // Before it knew that a resource is another one, or gone, the operator may have made children of the old one: how many depends
            // on when the watch showed that.
            while staged.is_ok() && collect_garbage(&client, &namespace).await? {
                silent(&injector).await?;
            }
            let objects = Objects::of(&client, &namespace).await?;
            let _ended = stop.send(());
            staged.map(|()| objects)
        };
        let (staged, operated) = tokio::join!(staged, operated);
        let retries = operated?;
        let (writes, deletions, log) = (injector.writes(), injector.deletions(), injector.log());
        Ok(Outcome { objects: staged?, writes, deletions, log, has_fault: injector.has_happened(), retries })
    }
}

/// Runs an operator, and another one whenever the fault kills it, until it is stopped. Returns how many reconciles were retried with
/// backoff. None of the operators rechecks anything by a timer, so that no run converges because of one.
async fn operate(
    plane: &ControlPlane,
    namespace: &str,
    injector: &Injector,
    fault: Fault,
    mut stopped: tokio::sync::oneshot::Receiver<()>,
) -> Result<u64> {
    let timeout = (fault == Fault::Timeout).then_some(DEADLINE);
    let mut retries = 0;
    loop {
        let operator = start_without_recheck_as(injector.client(), plane, namespace.to_owned(), timeout)?;
        let counters = operator.counters();
        let is_stopped = tokio::select! {
            () = injector.killed() => false,
            _ = &mut stopped => true,
        };
        retries += retries_in(&counters.page());
        if is_stopped {
            operator.stop().await?;
            return Ok(retries);
        }
        operator.abort().await;
    }
}

/// How many reconciles failed, by the metrics of an operator. One after a write conflict follows at once, without backoff.
fn retries_in(page: &str) -> u64 {
    let of = |labels: &[&str]| counted_in(page, "reconciles", labels);
    of(&[]) - of(&["result=\"ok\""]) - of(&["result=\"conflict\""])
}

/// Waits until the operator knows all that there is, and sends no write for a while.
async fn silent(injector: &Injector) -> Result<()> {
    let mut known = (injector.writes(), tokio::time::Instant::now());
    eventually("the operator is silent", PATIENCE, || {
        let writes = injector.writes();
        if writes != known.0 || !injector.is_synced() || injector.is_unanswered() {
            known = (writes, tokio::time::Instant::now());
        }
        let is_silent = known.1.elapsed() >= SILENCE;
        async move { Ok(if is_silent { Seen::Yes(()) } else { Seen::NotYet(format!("{writes} writes")) }) }
    })
    .await
}
