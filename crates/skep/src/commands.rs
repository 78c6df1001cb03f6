//! What each subcommand does.

mod check;
mod completions;
mod crds;
mod demo_server;
mod operator;
mod proxy;
mod run;
mod version;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Cli, Command};

/// Runs what the command line asks for.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Check(arguments) => check::run(&arguments),
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Completions { shell } => completions::run(shell),
        Command::DemoServer => demo_server::run(),
        Command::Operator(arguments) => operator::run_until_stopped(&arguments),
        Command::Proxy(arguments) => proxy::run_until_stopped(&arguments),
        Command::Run(arguments) => run::run_until_stopped(&arguments),
        Command::Version { output } => version::run(output),
    }
}

/// The variables that we were started with. What is not text means nothing to us; a process that we start has it all the same.
fn variables() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}
