//! `cargo xtask ci`: everything that must pass, in order, the quickest to fail first.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::program::{self, capture, cargo};
use crate::{arch, r#gen, test, ui};

/// The version of cargo-deny that `deny.toml` was written for.
const CARGO_DENY: &str = "0.20.2";

type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] = &[
    ("format", || program::run(cargo().args(["fmt", "--all", "--check"]))),
    ("clippy", || program::run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
    ("deny", deny),
    ("advisories", advisories),
    ("arch", arch::run),
    ("generated files", || r#gen::run(true)),
    ("test", || test::run(&[])),
    ("fuzz", fuzz),
];

pub(crate) fn run() -> Result<()> {
    let mut durations = Vec::new();
    for (name, step) in STEPS {
        ui::progress(&format!("\n== {name}"));
        let started = Instant::now();
        let result = step();
        durations.push((*name, started.elapsed()));
        result.with_context(|| format!("ci stopped at `{name}`"))?;
    }
    ui::result(&table(&durations));
    Ok(())
}

fn deny() -> Result<()> {
    if capture(Command::new("cargo-deny").arg("--version")).is_err() {
        let mut install = cargo();
        install.args(["install", "--locked", "cargo-deny", "--version", CARGO_DENY]);
        program::build(&format!("installing cargo-deny {CARGO_DENY}, once per machine, about 3 min"), &mut install)?;
    }
    program::run(cargo().args(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]))
}

/// Shows known vulnerabilities. They change without a change of ours, and their database may be unreachable; a failed
/// download is reported and does not fail, a vulnerability that was found does.
fn advisories() -> Result<()> {
    if let Err(error) = capture(cargo().args(["deny", "--log-level", "error", "fetch", "db"])) {
        ui::progress(&format!("advisories were not checked, because their database cannot be fetched: {error:#}"));
        return Ok(());
    }
    program::run(cargo().args(["deny", "--log-level", "warn", "check", "advisories"]))
}

fn fuzz() -> Result<()> {
    program::build("building the fuzz targets", cargo().args(["build", "--package", "skep-fuzz"]))?;
    program::run(cargo().args(["run", "--quiet", "--package", "skep-fuzz", "--", "--seconds", "10"]))
}

fn table(durations: &[(&str, Duration)]) -> String {
    let total = ("total", durations.iter().map(|(_, duration)| *duration).sum());
    let rows = durations.iter().chain([&total]);
    let rows: Vec<String> = rows.map(|(name, time)| format!("{name:<16} {:>7.1} s", time.as_secs_f64())).collect();
    format!("\n{}", rows.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ends_with_the_sum() {
        let table = table(&[("format", Duration::from_millis(500)), ("test", Duration::from_secs(61))]);
        assert_eq!(table, "\nformat               0.5 s\ntest                61.0 s\ntotal               61.5 s");
    }
}
