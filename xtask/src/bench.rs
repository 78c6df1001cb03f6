//! `cargo xtask bench …`: what Skep costs, against the least that the same work can cost, in one run on one machine.

mod limits;
mod load;
mod operator;
mod proxy;
mod report;
mod vmcp;

use anyhow::Result;
use clap::Subcommand;

use crate::program::{self, cargo};
use crate::target_dir;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// The operator on an API server without pods: many MCPServers that share one MCPOIDCConfig.
    Operator(operator::Arguments),
    /// The cost of one hostile client for the others: sessions without end, bodies that are not sent, responses that
    /// are not read.
    Limits(limits::Arguments),
    /// The proxy in front of a small fast server, beside a proxy that does nothing but forward.
    Proxy(proxy::Arguments),
    /// The virtual server in front of 5, 20 and 80 backends, some of which hang, beside a proxy and beside a server that sends the same list.
    Vmcp(vmcp::Arguments),
    /// The proxy that does nothing but forward, for `bench proxy` and `bench vmcp`.
    #[command(hide = true)]
    Floor {
        /// Where it listens.
        port: u16,
        /// Where the server listens.
        to: u16,
    },
    /// The servers behind `bench vmcp`.
    #[command(hide = true)]
    Backends {
        /// How many there are.
        count: usize,
        /// How many tools they have together.
        tools: usize,
    },
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Operator(arguments) => operator::run(arguments),
        Command::Limits(arguments) => limits::run(arguments),
        Command::Proxy(arguments) => proxy::run(arguments),
        Command::Vmcp(arguments) => vmcp::run(arguments),
        Command::Floor { port, to } => proxy::floor::run(*port, *to),
        Command::Backends { count, tools } => vmcp::backends::run(*count, *tools),
    }
}

/// Starts this very command again in a build that is optimized.
fn run_optimized() -> Result<()> {
    program::build("building the bench (release)", cargo().args(["build", "--release", "--package", "xtask"]))?;
    let mut command = std::process::Command::new(target_dir()?.join("release/xtask"));
    program::run(command.args(std::env::args_os().skip(1)))
}
