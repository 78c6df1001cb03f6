//! The project's own commands, as `cargo xtask …`: tests on a real API server, a real cluster, images, and the checks
//! that must pass before a change goes in.
//!
//! Everything that a newcomer would otherwise have to install or read about is done here. It never needs a container
//! engine, never reaches another machine except to fetch sources and packages, and ends only processes that it started.

mod arch;
mod bench;
mod ci;
mod cluster;
mod conformance;
mod crash;
mod e2e;
mod r#gen;
mod host;
mod image;
mod mutate;
mod peers;
mod pods;
mod process;
mod program;
mod skep;
mod test;
mod ui;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use serde_json::Value;

/// Builds, tests and runs Skep while it is being developed.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_version_flag = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all tests but the end-to-end ones, against a real API server.
    Test {
        /// Passed to `cargo test`, such as `-p skep-api` or a part of a test's name.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Start, stop and feed a real one-node Kubernetes on this machine (Linux, root).
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Build the container image of `skep` as an archive for `docker load`, without a container engine.
    Image(image::Arguments),
    /// Record the functions that proxies and the operator run, for `cargo xtask image --order`. Takes a cluster
    /// (`cargo xtask cluster up`) and a quarter of an hour.
    Order(image::order::Arguments),
    /// Link the program of the image, for `cargo xtask image`.
    #[command(hide = true)]
    Link {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run the end-to-end tests on real pods: in the cluster of `KUBECONFIG`, or else in one of our own.
    E2e(e2e::Arguments),
    /// Measure what Skep costs, against the least that the same work can cost.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Run the official conformance suite straight at a server and through `skep proxy` and `skep vmcp`, and compare.
    Conformance(conformance::Arguments),
    /// Inject faults at every write of the operator, in each scenario of its tests, and check that it converges.
    Crash(crash::Arguments),
    /// Check which crate uses which, what pure crates are built from, and what no source may contain.
    Arch,
    /// Run everything that must pass before a change goes in.
    Ci,
    /// Run mutation tests: remove each mechanism that must always hold, one at a time, and expect its test to fail.
    Mutate(mutate::Arguments),
    /// Test interoperability with third-party clients and servers, on both sides of `skep proxy`.
    Peers {
        /// Only the guarded proxy, between oidc-provider and a webhook
        #[arg(long)]
        guarded: bool,
    },
    /// Write what is generated from the code: resource definitions, permissions, schemas, reference pages.
    Gen {
        /// Change nothing; fail when a generated file is out of date.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Test { arguments } => test::run(&arguments),
        Command::Cluster(command) => cluster::run(&command),
        Command::Image(arguments) => image::run(&arguments),
        Command::Order(arguments) => image::order::record(&arguments),
        Command::Link { arguments } => image::order::link(&arguments),
        Command::E2e(arguments) => e2e::run(&arguments),
        Command::Arch => arch::run(),
        Command::Bench(command) => bench::run(&command),
        Command::Ci => ci::run(),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Crash(arguments) => crash::run(&arguments),
        Command::Mutate(arguments) => mutate::run(&arguments),
        Command::Peers { guarded } => peers::run(guarded),
        Command::Gen { check } => r#gen::run(check),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            ui::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// The directory of the workspace.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}

/// The directory where cargo, and every command here, puts what it builds: `CARGO_TARGET_DIR`, cargo's configuration, or `target`.
fn target_dir() -> Result<PathBuf> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found.clone());
    }
    let metadata = program::metadata()?;
    let directory = metadata.get("target_directory").and_then(Value::as_str);
    let directory = directory.context("`cargo metadata` names no target directory")?;
    Ok(FOUND.get_or_init(|| PathBuf::from(directory)).clone())
}
