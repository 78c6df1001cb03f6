//! Builds of the copy with cargo: the executables with tests, or where the compiler found errors.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::witness::{Executable, Executables, Target, TargetKind};
use crate::program::cargo;
use crate::ui;

/// The builds of one workspace.
pub(super) struct Builder {
    workspace: PathBuf,
    target: PathBuf,
    /// All that are ever built, also for tests of one: which ones are chosen decides the features of what they depend on, and another
    /// choice builds that again.
    packages: BTreeSet<String>,
}

/// How a build ended.
pub(super) enum Build {
    Done(Executables),
    Failed(Vec<Diagnostic>),
}

/// An error of the compiler.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Diagnostic {
    #[serde(default)]
    level: String,
    #[serde(default)]
    spans: Vec<Span>,
    #[serde(default)]
    children: Vec<Diagnostic>,
    /// The error as the compiler shows it.
    #[serde(default)]
    rendered: Option<String>,
}

/// A place that an error is about.
#[derive(Debug, Deserialize)]
struct Span {
    file_name: PathBuf,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
    /// What invoked the macro that the place is in.
    expansion: Option<Box<Expansion>>,
}

#[derive(Debug, Deserialize)]
struct Expansion {
    span: Span,
}

/// A line of cargo's.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Line {
    CompilerArtifact(Artifact),
    CompilerMessage {
        message: Diagnostic,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Artifact {
    package_id: String,
    manifest_path: PathBuf,
    target: ArtifactTarget,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct ArtifactTarget {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

// === impl Builder ===

impl Builder {
    pub(super) fn new(workspace: &Path, target: PathBuf, packages: BTreeSet<String>) -> Self {
        Self { workspace: workspace.to_owned(), target, packages }
    }

    /// Builds every test of the packages, or those of the kind of one target.
    pub(super) fn build(&self, what: &str, only: Option<&Target>) -> Result<Build> {
        let mut command = cargo();
        command.current_dir(&self.workspace).env("CARGO_TARGET_DIR", &self.target);
        // Taking something out leaves things unused, which is not what is asked about here.
        command.env("RUSTFLAGS", "--cap-lints warn");
        match only {
            Some(target) => command.args(["test", "--no-run"]).args(target.choice()),
            // All errors at once: `cargo test` stops at the first crate with one.
            None => command.args(["build", "--tests", "--keep-going"]),
        };
        command.arg("--message-format=json").args(self.packages.iter().flat_map(|package| ["--package", package]));
        let is_seen = std::io::stderr().is_terminal();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(if is_seen { Stdio::inherit() } else { Stdio::piped() });
        ui::progress(&format!("{what}…"));
        let started = Instant::now();
        let output = command.spawn().context("cannot start cargo")?.wait_with_output()?;
        ui::progress(&format!("{what}: {:.1} s", started.elapsed().as_secs_f64()));
        let (executables, errors) = read(&String::from_utf8_lossy(&output.stdout))?;
        match (output.status.success(), errors.is_empty()) {
            (true, _) => Ok(Build::Done(executables)),
            (false, false) => Ok(Build::Failed(errors)),
            (false, true) => bail!("cargo ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// The executables with tests and the errors in what cargo says.
fn read(output: &str) -> Result<(Executables, Vec<Diagnostic>)> {
    let (mut executables, mut errors) = (Executables::new(), Vec::new());
    for line in output.lines().filter(|line| line.starts_with('{')) {
        match serde_json::from_str(line).with_context(|| format!("cannot read what cargo says: {line}"))? {
            Line::CompilerArtifact(artifact) => executables.extend(artifact.tests()),
            Line::CompilerMessage { message } if message.level == "error" => errors.push(message),
            Line::CompilerMessage { .. } | Line::Other => {}
        }
    }
    Ok((executables, errors))
}

// === impl Artifact ===

impl Artifact {
    /// The executable, if it has tests.
    fn tests(self) -> Option<(Target, Executable)> {
        let Artifact { package_id, manifest_path, target, profile, executable } = self;
        let path = executable.filter(|_| profile.test)?;
        let kind = match target.kind.first()?.as_str() {
            "bin" => TargetKind::Binary(target.name),
            "test" => TargetKind::Integration(target.name),
            _ => TargetKind::Library,
        };
        // `path+file:///work/crates/plan#skep-plan@0.1.0`, or `…/skep#0.1.0` where the directory has the name of the package.
        let (place, identity) = package_id.rsplit_once('#')?;
        let package = identity.split_once('@').map_or_else(|| place.rsplit('/').next(), |(name, _)| Some(name))?;
        let directory = manifest_path.parent()?.to_owned();
        Some((Target { package: package.to_owned(), kind }, Executable { path, directory }))
    }
}

// === impl Diagnostic ===

impl Diagnostic {
    pub(super) fn shown(&self) -> Option<&str> {
        self.rendered.as_deref().map(str::trim_end)
    }

    /// The places in the sources that it is about, in the order in which they are to blame: its own, then those that explain it.
    pub(super) fn places(&self) -> Vec<(&Path, Range<usize>)> {
        let mut places: Vec<_> = self.spans.iter().filter(|span| span.is_primary).flat_map(Span::places).collect();
        places.extend(self.spans.iter().filter(|span| !span.is_primary).flat_map(Span::places));
        places.extend(self.children.iter().flat_map(Diagnostic::places));
        places
    }
}

// === impl Span ===

impl Span {
    /// Its own place, and those of the macros that it comes from.
    fn places(&self) -> Vec<(&Path, Range<usize>)> {
        let mut places = vec![(self.file_name.as_path(), self.byte_start..self.byte_end)];
        places.extend(self.expansion.iter().flat_map(|expansion| expansion.span.places()));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_and_errors_are_read_from_what_cargo_says() {
        let artifact = |id: &str, kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/w/crates/plan/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"it","src_path":"x"}},"profile":{{"test":{test},"opt_level":"0"}},
                "executable":{executable},"fresh":true}}"#
            )
            .replace('\n', "")
        };
        let span = |start: usize, is_primary: bool, expansion: &str| {
            format!(
                r#"{{"file_name":"crates/plan/src/a.rs","byte_start":{start},"byte_end":99,"is_primary":{is_primary},
                "expansion":{expansion}}}"#
            )
            .replace('\n', "")
        };
        let macros = format!(r#"{{"span":{},"macro_decl_name":"m!"}}"#, span(3, false, "null"));
        let error = format!(
            r#"{{"reason":"compiler-message","message":{{"level":"error","message":"m","rendered":"shown",
            "spans":[{},{}],"children":[{{"level":"note","spans":[{}],"children":[]}}]}}}}"#,
            span(1, false, "null"),
            span(2, true, &macros),
            span(4, true, "null")
        )
        .replace('\n', "");
        let lines = [
            artifact("path+file:///w/crates/plan#skep-plan@0.1.0", "test", true, r#""/t/it-1""#),
            artifact("path+file:///w/crates/skep#0.1.0", "lib", true, r#""/t/skep-1""#),
            artifact("path+file:///w/crates/skep#0.1.0", "bin", false, r#""/t/skep""#),
            artifact("registry+x#serde@1.0.0", "lib", false, "null"),
            r#"{"reason":"compiler-message","message":{"level":"warning","message":"unused","spans":[]}}"#.to_owned(),
            error,
            r#"{"reason":"build-finished","success":false}"#.to_owned(),
        ];
        let (executables, errors) = read(&lines.join("\n")).unwrap();
        let targets: Vec<_> = executables.keys().map(|target| (target.package.as_str(), target.choice())).collect();
        assert_eq!(targets, [("skep", vec!["--lib"]), ("skep-plan", vec!["--test", "it"])]);
        assert!(executables.values().all(|executable| executable.directory == Path::new("/w/crates/plan")));
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].shown(), Some("shown"));
        let starts: Vec<_> = errors[0].places().into_iter().map(|(_, range)| range.start).collect();
        assert_eq!(starts, [2, 3, 1, 4]);
    }
}
