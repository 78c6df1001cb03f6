//! `cargo xtask mutate`: whether the tests would notice. Each mechanism that must always hold is taken out, one at a time, and the test
//! that stands for it must fail.
//!
//! ```text
//!   entries ─▶ places ─┬─ in the body of a function ─▶ all in one build, each chosen by the environment ─▶ its test fails
//!                      └─ elsewhere, not built or not noticed like that ─▶ a build of its own ─▶ its test fails
//! ```
//!
//! The workspace is copied to `mutate` in the target directory and changed there; the working tree stays as it is. The output of every
//! test stays in `target/tests` of the copy.

mod alone;
mod build;
mod items;
mod place;
mod report;
mod schemata;
mod together;
mod witness;
mod workspace;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use serde::Deserialize;

use self::build::Builder;
use self::place::{Place, Sources};
use self::report::Report;
use self::witness::{Executables, LIMIT, Tested, Witness};
use self::workspace::Workspace;
use crate::{root, target_dir, ui};

/// What to take out.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only those points, such as `A3`.
    points: Vec<String>,
    /// How many tests run at once
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

/// One mechanism, where it is, and which test must miss it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    /// The point of the acceptance list.
    point: String,
    /// What is taken out.
    what: String,
    /// The crate it is in.
    #[serde(rename = "crate")]
    package: Option<String>,
    /// A function of that crate: `name`, `Type::name` or `Trait::name`.
    function: Option<String>,
    /// Another item of that crate, such as a constant or a struct.
    item: Option<String>,
    /// The end of the path of the module, where several have an item of that name with the marker in it.
    module: Option<String>,
    /// Instead of a crate, a file that is not Rust.
    file: Option<String>,
    /// A text that stands exactly once in there.
    marker: String,
    /// What stands there instead.
    with: String,
    /// Arguments of `cargo test` that run the test.
    test: String,
}

/// A mutation whose place was found.
struct Mutant<'a> {
    /// Its place in the list, from one.
    number: usize,
    mutation: &'a Mutation,
    place: Place,
    witness: Witness,
}

/// What a test does with nothing taken out: the time it takes, or what is wrong with it.
type Baseline = Result<Duration, &'static str>;

/// What both ways to try a mutant need.
struct Session {
    workspace: Workspace,
    builder: Builder,
    jobs: usize,
    report: Report,
    /// How many runs had nothing taken out.
    baselines: AtomicUsize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mutations = mutations()?;
    let is_chosen = |one: &Mutation| arguments.points.is_empty() || arguments.points.contains(&one.point);
    let chosen = || mutations.iter().enumerate().filter(|(_, one)| is_chosen(one)).map(|(at, one)| (at + 1, one));
    ensure!(chosen().next().is_some(), "no mutation has that point");
    let workspace = Workspace::read(target_dir()?.join("mutate"))?;
    let (mutants, stale) = resolve(&root(), chosen());
    let packages = mutants.iter().map(|mutant| mutant.witness.target.package.clone()).collect();
    let builder = Builder::new(workspace.directory(), workspace.target(), packages);
    let report = Report::new(chosen().count());
    let session = Session { workspace, builder, jobs: arguments.jobs.max(1), report, baselines: AtomicUsize::new(0) };
    for why in stale {
        session.report.fail(&why);
    }
    let (left, texts) = session.together(mutants)?;
    session.alone(left, &texts)?;
    session.report.end()
}

fn mutations() -> Result<Vec<Mutation>> {
    let path = root().join("xtask/mutations.yaml");
    let text = fs::read_to_string(&path)?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

/// Where each mutation applies in a workspace, and which ones are out of date.
fn resolve<'a>(
    workspace: &Path,
    mutations: impl Iterator<Item = (usize, &'a Mutation)>,
) -> (Vec<Mutant<'a>>, Vec<String>) {
    let mut sources = Sources::of(workspace.to_owned());
    let (mut found, mut stale) = (Vec::new(), Vec::new());
    for (number, mutation) in mutations {
        let read = || anyhow::Ok((sources.place(mutation)?, Witness::read(&mutation.test)?));
        match { read }() {
            Ok((place, witness)) => found.push(Mutant { number, mutation, place, witness }),
            Err(error) => stale.push(format!("{}: {error:#}", mutation.title())),
        }
    }
    (found, stale)
}

// === impl Mutation ===

impl Mutation {
    fn title(&self) -> String {
        format!("{} {}", self.point, self.what)
    }
}

// === impl Mutant ===

impl Mutant<'_> {
    /// The text of its file with the mutant in it.
    fn text(&self, workspace: &Workspace) -> String {
        let mut text = workspace.text(&self.place.file);
        text.replace_range(self.place.range.clone(), &self.mutation.with);
        text
    }
}

// === impl Session ===

impl Session {
    /// Runs tests with nothing taken out: that one of them fails later would otherwise mean nothing.
    fn run_baseline(&self, witness: &Witness, of: &Executables) -> Result<Baseline> {
        let at = self.baselines.fetch_add(1, Ordering::Relaxed) + 1;
        let tested = witness.run(of, None, &self.log(&format!("baseline-{at}")), LIMIT)?;
        let (verdict, seconds) = (tested.verdict(), tested.elapsed.as_secs_f64());
        ui::progress(&format!(
            "{witness} {} with nothing taken out, after {seconds:.1} s",
            verdict.unwrap_or("passes")
        ));
        Ok(verdict.map_or(Ok(tested.elapsed), Err))
    }

    /// Runs the test of a mutant, for as long as a test that fails late may take.
    fn run_mutant(
        &self,
        mutant: &Mutant<'_>,
        of: &Executables,
        choice: Option<usize>,
        usual: Duration,
    ) -> Result<Tested> {
        let limit = (Duration::from_mins(1) + usual * 10).min(LIMIT);
        mutant.witness.run(of, choice, &self.log(&mutant.number.to_string()), limit)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.workspace.target().join("tests").join(format!("{name}.txt"))
    }
}

/// Does some work for each of the items, for several at once, until it fails for one.
fn in_parallel<T: Send, R: Send>(jobs: usize, items: Vec<T>, work: impl Fn(T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || std::iter::from_fn(next).map(&work).collect::<Result<Vec<R>>>();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        let mut done = Vec::new();
        for worker in workers {
            done.extend(worker.join().map_err(|_| anyhow!("a worker panicked"))??);
        }
        Ok(done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_finds_the_place_that_it_changes() {
        let mutations = mutations().unwrap();
        let (_, stale) = resolve(&root(), mutations.iter().enumerate());
        assert!(stale.is_empty(), "{}", stale.join("\n"));
    }

    #[test]
    fn work_is_done_once_for_each_item() {
        let mut done = in_parallel(3, vec![1, 2, 3, 4, 5], |item| Ok(item * 10)).unwrap();
        done.sort_unstable();
        assert_eq!(done, [10, 20, 30, 40, 50]);
        assert!(in_parallel(2, vec![1], |_| -> Result<()> { anyhow::bail!("no") }).is_err());
    }
}
