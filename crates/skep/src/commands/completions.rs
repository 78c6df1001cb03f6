//! `skep completions bash|zsh|fish|…`

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::terminal;

pub(super) fn run(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "skep", &mut script);
    terminal::print(&String::from_utf8(script).context("the completion script is not text")?)?;
    Ok(ExitCode::SUCCESS)
}
