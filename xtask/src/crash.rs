//! `cargo xtask crash`: faults at every write of the operator, in every scenario of its tests.
//!
//! The runs themselves are a test of `skep-operator`, of which `cargo xtask ci` makes a share. Here all of them are made, or one.

use anyhow::Result;
use clap::Args;

use crate::program;
use crate::test;

/// Which runs to make.
#[derive(Args)]
pub(crate) struct Arguments {
    /// One run, by the name that a failure prints: file/scenario/fault/write/seed.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["seed", "share"])]
    run: Option<String>,
    /// Only scenarios whose file and name contain this.
    #[arg(long, value_name = "PART")]
    scenario: Option<String>,
    /// Only one fault, such as kill-after.
    #[arg(long, value_name = "FAULT")]
    fault: Option<String>,
    /// Delays requests in another way, and with --share chooses other runs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One of so many runs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    share: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let words = ["-p", "skep-operator", "--test", "it", "--", "crash::", "--nocapture"];
    let mut command = test::command(&words.map(str::to_owned))?;
    command.env("CRASH_SEED", arguments.seed.to_string()).env("CRASH_SHARE", arguments.share.to_string());
    command.env("CRASH_RUN", arguments.run.as_deref().unwrap_or_default()).env("RUST_BACKTRACE", "0");
    command.env("CRASH_FAULT", arguments.fault.as_deref().unwrap_or_default());
    match &arguments.scenario {
        Some(part) => command.env("SCENARIO", part),
        None => command.env_remove("SCENARIO"),
    };
    program::run(&mut command)
}
