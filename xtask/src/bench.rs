//! `cargo xtask bench …`: what Skep costs, against the least that the same work can cost, in one run on one machine.

mod operator;
mod process;

use anyhow::Result;
use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// The operator on an API server without pods: many MCPServers that share one MCPOIDCConfig.
    Operator(operator::Arguments),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Operator(arguments) => operator::run(arguments),
    }
}
