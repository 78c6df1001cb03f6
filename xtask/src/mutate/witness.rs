//! The tests that must notice a mutant, and how one is run: as the executable that cargo built, in the directory and with the
//! environment that cargo gives it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::schemata::CHOICE;

/// The interval between two checks whether a test has ended.
const INTERVAL: Duration = Duration::from_millis(20);
/// How long a test may take that has no limit of its own yet.
pub(super) const LIMIT: Duration = Duration::from_mins(10);

/// Tests of one executable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Witness {
    pub(super) target: Target,
    /// The arguments of the executable, such as parts of the names of tests.
    arguments: Vec<String>,
}

/// An executable with tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) package: String,
    pub(super) kind: TargetKind,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TargetKind {
    Library,
    Binary(String),
    Integration(String),
}

/// Where an executable is, and the directory of its package.
#[derive(Debug)]
pub(super) struct Executable {
    pub(super) path: PathBuf,
    pub(super) directory: PathBuf,
}

/// The executables of a build.
pub(super) type Executables = BTreeMap<Target, Executable>;

/// How a run of tests ended.
#[derive(Debug)]
pub(super) struct Tested {
    /// None if it was ended by its limit.
    status: Option<ExitStatus>,
    output: String,
    pub(super) elapsed: Duration,
}

// === impl Witness ===

impl Witness {
    /// Reads the arguments of `cargo test` that an entry has.
    pub(super) fn read(test: &str) -> Result<Self> {
        let mut words = test.split_whitespace();
        let mut next = || words.next().unwrap_or_default();
        ensure!(next() == "-p", "`{test}` does not start with `-p` and a package");
        let package = next().to_owned();
        let kind = match next() {
            "--lib" => TargetKind::Library,
            "--bin" => TargetKind::Binary(next().to_owned()),
            "--test" => TargetKind::Integration(next().to_owned()),
            _ => bail!("`{test}` has none of `--lib`, `--bin` and `--test` behind its package"),
        };
        ensure!(next() == "--", "`{test}` has no `--` behind its target");
        let arguments: Vec<_> = words.map(str::to_owned).collect();
        ensure!(!arguments.is_empty(), "`{test}` names no test");
        Ok(Self { target: Target { package, kind }, arguments })
    }

    /// Runs the tests with one mutant active, or none, and keeps their output in a file.
    pub(super) fn run(&self, of: &Executables, mutant: Option<usize>, log: &Path, limit: Duration) -> Result<Tested> {
        let executable = of.get(&self.target).with_context(|| format!("no executable of {:?}", self.target))?;
        let mut command = Command::new(&executable.path);
        command.args(&self.arguments).current_dir(&executable.directory);
        command.env("CARGO_MANIFEST_DIR", &executable.directory).env("CARGO_PKG_NAME", &self.target.package);
        // Symbols take longer than most tests, and only the failure counts.
        command.env("RUST_BACKTRACE", "0");
        // A run without a mutant may itself be started by one with a mutant.
        command.env_remove(CHOICE).envs(mutant.map(|number| (CHOICE, number.to_string())));
        if let Some(parent) = log.parent() {
            fs::create_dir_all(parent)?;
        }
        // A file, not a pipe: a process that outlives the test may hold a pipe open for ever.
        let output = File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start `{}`", executable.path.display()))?;
        let status = wait(child, started + limit)?;
        let output = String::from_utf8_lossy(&fs::read(log)?).into_owned();
        Ok(Tested { status, output, elapsed: started.elapsed() })
    }
}

/// The status of a process that ends before a deadline. Otherwise it is killed.
fn wait(mut child: Child, deadline: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(INTERVAL);
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, arguments } = self;
        write!(formatter, "`-p {} {} -- {}`", target.package, target.choice().join(" "), arguments.join(" "))
    }
}

// === impl Target ===

impl Target {
    /// The arguments of `cargo test` that build it, and those of its kind in other packages.
    pub(super) fn choice(&self) -> Vec<&str> {
        match &self.kind {
            TargetKind::Library => vec!["--lib"],
            TargetKind::Binary(name) => vec!["--bin", name],
            TargetKind::Integration(name) => vec!["--test", name],
        }
    }
}

// === impl Tested ===

impl Tested {
    /// Whether the tests noticed a mutant: they failed, or did not end.
    pub(super) fn is_red(&self) -> bool {
        !self.status.is_some_and(|status| status.success())
    }

    pub(super) fn is_timeout(&self) -> bool {
        self.status.is_none()
    }

    /// What is wrong with tests that were run with nothing taken out.
    pub(super) fn verdict(&self) -> Option<&'static str> {
        if self.is_timeout() { Some("does not end") } else { verdict(!self.is_red(), &self.output) }
    }
}

/// What is wrong with tests that were run with nothing taken out, by their outcome and their output.
fn verdict(is_success: bool, output: &str) -> Option<&'static str> {
    let passed = |line: &str| line.strip_prefix("test result: ok. ").is_some_and(|rest| !rest.starts_with("0 passed"));
    match (is_success, output.lines().any(passed)) {
        (false, _) => Some("fails"),
        (true, false) => Some("runs no test"),
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_fails_or_runs_nothing_is_no_witness() {
        let run =
            |count: usize| format!("running {count} tests\n\ntest result: ok. {count} passed; 0 failed; 0 ignored");
        assert_eq!(verdict(true, &run(1)), None);
        assert_eq!(verdict(true, &run(0)), Some("runs no test"));
        assert_eq!(verdict(false, &run(1)), Some("fails"));
    }

    #[test]
    fn the_arguments_of_cargo_name_an_executable_and_tests_in_it() {
        let witness = Witness::read("-p skep-plan --test it -- one two::").unwrap();
        assert_eq!(witness.target.package, "skep-plan");
        assert_eq!(witness.target.choice(), ["--test", "it"]);
        assert_eq!(witness.arguments, ["one", "two::"]);
        assert_eq!(Witness::read("-p skep --bin skep -- a").unwrap().target.choice(), ["--bin", "skep"]);
        for wrong in ["skep --lib -- a", "-p skep -- a", "-p skep --lib a", "-p skep --lib --"] {
            assert!(Witness::read(wrong).is_err(), "{wrong}");
        }
    }

    /// Runs a shell in place of an executable with tests.
    fn run(script: &str, mutant: Option<usize>, limit: Duration) -> Tested {
        let directory = tempfile::tempdir().unwrap();
        let target = Target { package: "skep".to_owned(), kind: TargetKind::Library };
        let executable = Executable { path: "/bin/sh".into(), directory: directory.path().to_owned() };
        let executables = [(target.clone(), executable)].into();
        let witness = Witness { target, arguments: vec!["-c".to_owned(), script.to_owned()] };
        witness.run(&executables, mutant, &directory.path().join("logs/1.txt"), limit).unwrap()
    }

    #[test]
    fn tests_run_with_their_mutant_and_in_their_package() {
        let tested = run(r#"echo "$SKEP_MUTANT, ${CARGO_MANIFEST_DIR#$PWD}" >&2"#, Some(17), LIMIT);
        assert_eq!((tested.output.as_str(), tested.verdict()), ("17, \n", Some("runs no test")));
        assert_eq!(run("exit $SKEP_MUTANT", Some(17), LIMIT).verdict(), Some("fails"));
        assert!(!run("exit $SKEP_MUTANT", None, LIMIT).is_red());
    }

    #[test]
    fn tests_that_do_not_end_are_ended() {
        let tested = run("while :; do :; done", None, Duration::from_millis(50));
        assert!(tested.is_timeout() && tested.is_red());
        assert_eq!(tested.verdict(), Some("does not end"));
    }
}
