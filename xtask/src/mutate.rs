//! Whether the tests would notice: each mechanism that must always hold is taken out, one at a time, and the test that stands for
//! it must fail.
//!
//! The workspace is copied to `mutate` in the target directory and changed there; the working tree stays as it is.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;

use crate::program::{self, cargo};
use crate::{root, target_dir, ui};

/// What to take out.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only those points, such as `A3`.
    points: Vec<String>,
}

/// One mechanism, and who must miss it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    /// The point of the acceptance list.
    point: String,
    /// What is taken out.
    what: String,
    file: String,
    replace: String,
    with: String,
    /// Arguments of `cargo test` that run the test.
    test: String,
}

fn mutations() -> Result<Vec<Mutation>> {
    let path = root().join("xtask/mutations.yaml");
    let text = fs::read_to_string(&path)?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut mutations = mutations()?;
    mutations.retain(|one| arguments.points.is_empty() || arguments.points.contains(&one.point));
    ensure!(!mutations.is_empty(), "no mutation has that point");
    let copy = target_dir()?.join("mutate");
    copy_workspace(&copy)?;
    let mut failures = Vec::new();
    for mutation in &mutations {
        let title = format!("{} {}", mutation.point, mutation.what);
        ui::progress(&title);
        // One entry that is out of date must not hide what the others would find.
        let failure = match try_one(&copy, mutation) {
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

enum Noticed {
    Yes,
    No,
}

fn try_one(copy: &Path, mutation: &Mutation) -> Result<Noticed> {
    let path = copy.join(&mutation.file);
    let text = find(copy, mutation)?;
    fs::write(&path, text.replace(&mutation.replace, &mutation.with))?;
    let tested = test(copy, &mutation.test);
    fs::write(&path, &text)?;
    tested
}

/// The file of a mutation, in which what it replaces stands once.
fn find(workspace: &Path, mutation: &Mutation) -> Result<String> {
    let Mutation { file, replace, .. } = mutation;
    let text = fs::read_to_string(workspace.join(file)).with_context(|| file.clone())?;
    let places = text.matches(replace.as_str()).count();
    ensure!(places == 1, "`{replace}` stands {places} times in {file}: write it so that it stands once");
    Ok(text)
}

fn test(copy: &Path, test: &str) -> Result<Noticed> {
    let words: Vec<&str> = test.split_whitespace().collect();
    let command = || {
        let mut command = cargo();
        // Taking something out leaves things unused, which is not what is asked about here.
        command.current_dir(copy).env("RUSTFLAGS", "--cap-lints warn").arg("test").args(["--target-dir", "target"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let built = command().args(words.iter().take_while(|word| **word != "--")).arg("--no-run").status()?;
    ensure!(built.success(), "it does not build any more: a compiler is not the test that is meant");
    let passed = command().args(&words).status()?.success();
    Ok(if passed { Noticed::No } else { Noticed::Yes })
}

/// Copies what git knows of, and what the tests look for beside it.
fn copy_workspace(copy: &Path) -> Result<()> {
    let listed = program::capture(
        Command::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root()),
    )?;
    for file in listed.lines() {
        let (from, to) = (root().join(file), copy.join(file));
        let Ok(content) = fs::read(&from) else { continue };
        // What is the same stays, so that only what changed is built again.
        if fs::read(&to).is_ok_and(|known| known == content) {
            continue;
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&to, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_finds_the_line_that_it_takes_out() {
        let stale =
            |one: &Mutation| find(&root(), one).err().map(|error| format!("{} {}: {error:#}", one.point, one.what));
        let stale: Vec<String> = mutations().unwrap().iter().filter_map(stale).collect();
        assert!(stale.is_empty(), "{}", stale.join("\n"));
    }
}
