//! `cargo xtask mutate`: whether the tests would notice. Each mechanism that must always hold is taken out, one at a time, and the test
//! that stands for it must fail.
//!
//! The workspace is copied to `mutate` in the target directory and changed there; the working tree stays as it is.

mod items;
mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;

use self::place::{Place, Sources};
use crate::program::{self, capture, cargo};
use crate::{root, target_dir, ui};

/// Where the copy is built, below it.
const BUILD: &str = "target";

/// What to take out.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only those points, such as `A3`.
    points: Vec<String>,
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

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut mutations = mutations()?;
    mutations.retain(|one| arguments.points.is_empty() || arguments.points.contains(&one.point));
    ensure!(!mutations.is_empty(), "no mutation has that point");
    let copy = target_dir()?.join("mutate");
    copy_workspace(&copy)?;
    let (found, mut failures) = resolve(&copy, &mutations);
    if !failures.is_empty() {
        ui::progress(&format!("out of date, the others are run all the same:\n  {}", failures.join("\n  ")));
    }
    let red = red_tests(&copy, &found)?;
    failures.extend(red.iter().map(|(test, why)| format!("`cargo test {test}` {why} with nothing taken out")));
    for (mutation, place) in found.into_iter().filter(|(mutation, _)| !red.contains_key(&mutation.test)) {
        let title = mutation.title();
        let failure = match try_one(&copy, mutation, &place) {
            Ok(Noticed::Yes) => continue,
            Ok(Noticed::No) => format!("{title}: no test noticed that this was taken out"),
            Err(error) => format!("{title}: {error:#}"),
        };
        ui::progress(&failure);
        failures.push(failure);
    }
    if !failures.is_empty() {
        bail!("{} of {} mutations failed:\n  {}", failures.len(), mutations.len(), failures.join("\n  "));
    }
    ui::result(&format!("{} mechanisms taken out one at a time: every one was missed by its test", mutations.len()));
    Ok(())
}

fn mutations() -> Result<Vec<Mutation>> {
    let path = root().join("xtask/mutations.yaml");
    let text = fs::read_to_string(&path)?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

/// Where each mutation applies in a workspace, and which ones are out of date.
fn resolve<'a>(workspace: &Path, mutations: &'a [Mutation]) -> (Vec<(&'a Mutation, Place)>, Vec<String>) {
    let mut sources = Sources::of(workspace.to_owned());
    let (mut found, mut stale) = (Vec::new(), Vec::new());
    for mutation in mutations {
        match sources.place(mutation) {
            Ok(place) => found.push((mutation, place)),
            Err(error) => stale.push(format!("{}: {error:#}", mutation.title())),
        }
    }
    (found, stale)
}

enum Noticed {
    Yes,
    No,
}

// === impl Mutation ===

impl Mutation {
    fn title(&self) -> String {
        format!("{} {}", self.point, self.what)
    }
}

fn try_one(copy: &Path, mutation: &Mutation, place: &Place) -> Result<Noticed> {
    let path = copy.join(&place.file);
    let text = fs::read_to_string(&path).with_context(|| place.file.display().to_string())?;
    let mut mutated = text.clone();
    mutated.replace_range(place.range.clone(), &mutation.with);
    fs::write(&path, mutated)?;
    let tested = test(copy, mutation);
    fs::write(&path, &text)?;
    tested
}

fn test(copy: &Path, mutation: &Mutation) -> Result<Noticed> {
    let tested = run_test(copy, &mutation.title(), &mutation.test)
        .context("it does not build any more: a compiler is not the test that is meant")?;
    Ok(if tested.status.success() { Noticed::No } else { Noticed::Yes })
}

/// The tests that fail, or find nothing to run, while nothing is taken out, and how: that one of them fails later would mean nothing.
fn red_tests(copy: &Path, found: &[(&Mutation, Place)]) -> Result<BTreeMap<String, &'static str>> {
    let tests: BTreeSet<&str> = found.iter().map(|(mutation, _)| mutation.test.as_str()).collect();
    let mut red = BTreeMap::new();
    for test in tests {
        let tested = run_test(copy, &format!("baseline {test}"), test)?;
        if let Some(why) = verdict(tested.status.success(), &String::from_utf8_lossy(&tested.stdout)) {
            ui::progress(&format!("`cargo test {test}` {why} with nothing taken out"));
            red.insert(test.to_owned(), why);
        }
    }
    Ok(red)
}

/// What is wrong with a test that was run with nothing taken out, by its outcome and its output.
fn verdict(is_success: bool, output: &str) -> Option<&'static str> {
    let passed = |line: &str| line.strip_prefix("test result: ok. ").is_some_and(|rest| !rest.starts_with("0 passed"));
    match (is_success, output.lines().any(passed)) {
        (false, _) => Some("fails"),
        (true, false) => Some("runs no test"),
        (true, true) => None,
    }
}

fn run_test(copy: &Path, title: &str, test: &str) -> Result<Output> {
    let arguments: Vec<&str> = test.split_whitespace().collect();
    let command = || {
        let mut command = cargo();
        command.current_dir(copy).env("CARGO_TARGET_DIR", copy.join(BUILD)).arg("test");
        // Taking something out leaves things unused, which is not what is asked about here.
        command.env("RUSTFLAGS", "--cap-lints warn");
        command
    };
    let built = arguments.iter().take_while(|argument| **argument != "--");
    program::build(title, command().args(built).arg("--no-run"))?;
    command().args(&arguments).output().context("cannot start cargo")
}

/// Makes a directory the same as what git knows of the workspace.
fn copy_workspace(copy: &Path) -> Result<()> {
    let listed = capture(
        Command::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root()),
    )?;
    let mut kept = BTreeSet::new();
    for file in listed.lines() {
        let (from, to) = (root().join(file), copy.join(file));
        let Ok(content) = fs::read(&from) else { continue };
        kept.insert(to.clone());
        // What is the same stays, so that only what changed is built again.
        if fs::read(&to).is_ok_and(|known| known == content) {
            continue;
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&to, content)?;
    }
    remove_others(copy, &kept, &copy.join(BUILD))
}

/// Removes the files of a directory that are not to be kept: those that were moved or deleted since the last copy.
fn remove_others(directory: &Path, kept: &BTreeSet<PathBuf>, except: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if path != except {
                remove_others(&path, kept, except)?;
            }
        } else if !kept.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_finds_the_place_that_it_changes() {
        let mutations = mutations().unwrap();
        let (_, stale) = resolve(&root(), &mutations);
        assert!(stale.is_empty(), "{}", stale.join("\n"));
    }

    #[test]
    fn a_test_that_fails_or_runs_nothing_is_no_witness() {
        let run =
            |count: usize| format!("running {count} tests\n\ntest result: ok. {count} passed; 0 failed; 0 ignored");
        assert_eq!(verdict(true, &run(1)), None);
        assert_eq!(verdict(true, &run(0)), Some("runs no test"));
        assert_eq!(verdict(false, &run(1)), Some("fails"));
    }

    #[test]
    fn files_that_are_gone_leave_the_copy() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["kept.rs", "moved/old.rs", "target/built"] {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), "").unwrap();
        }
        remove_others(directory.path(), &[path("kept.rs")].into(), &path("target")).unwrap();
        assert!(path("kept.rs").exists() && path("target/built").exists() && !path("moved/old.rs").exists());
    }
}
