//! The subcommands.

mod authz;
mod call;
mod check;
mod completions;
mod crds;
mod demo_server;
mod mcp_client;
mod operator;
mod proxy;
mod run;
mod tools;
mod uninstall;
mod version;
mod vmcp;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use skep_workload::watchdog::Programs;

use crate::cli::{Authz, Cli, Command, Vmcp};

/// Runs the subcommand.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Authz(Authz::Explain(arguments)) => authz::explain(&arguments),
        Command::Call(arguments) => call::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Completions { shell } => completions::run(shell),
        Command::DemoServer => demo_server::run(),
        Command::Operator(arguments) => operator::run_until_stopped(&arguments),
        Command::Proxy(arguments) => proxy::run_until_stopped(&arguments),
        Command::Run(arguments) => run::run_until_stopped(&arguments),
        Command::Tools(arguments) => tools::run(&arguments),
        Command::Uninstall(arguments) => uninstall::run(&arguments),
        Command::Vmcp(Vmcp::Serve(arguments)) => vmcp::serve(&arguments),
        Command::Vmcp(Vmcp::Validate(arguments)) => vmcp::validate(&arguments),
        Command::Vmcp(Vmcp::Init(arguments)) => vmcp::init(&arguments),
        Command::Version { output } | Command::Vmcp(Vmcp::Version { output }) => version::run(output),
        Command::Watchdog => {
            skep_workload::watchdog::run(std::io::stdin().lock());
            Ok(ExitCode::SUCCESS)
        }
        Command::Launch { command } => launch(&command),
    }
}

/// Becomes a server process.
fn launch(command: &[OsString]) -> Result<ExitCode> {
    let (program, args) = command.split_first().context("no program to launch")?;
    let error = skep_workload::launch::exec(program, args);
    Err(anyhow!("cannot start `{}`: {error}", program.display()))
}

/// Has the server processes that this process starts end with it, even if it is killed.
fn enable_watchdog() {
    // Without a path to this program, as on a system without /proc, there is no watchdog: then only a graceful shutdown
    // ends them.
    if let Some(executable) = executable() {
        skep_workload::watchdog::enable(Programs { executable, watchdog: "watchdog", launcher: "launch" });
    }
}

/// This program. A path of /proc stays valid when the file is replaced by a newer one.
fn executable() -> Option<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { Some(own) } else { std::env::current_exe().ok() }
}

/// The environment of this process. Variables that are not UTF-8 are ignored.
fn variables() -> BTreeMap<String, String> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).collect()
}
