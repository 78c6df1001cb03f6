//! `skep`: one binary with subcommands.
//!
//! This crate is wiring: it parses arguments, calls the other crates, and turns their results into text, JSON and exit
//! codes. It decides nothing else.

mod cli;
mod commands;
mod files;
mod kubernetes;
mod logs;
mod manifests;
mod terminal;
mod termination;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;

// musl's allocator is slow when several threads allocate; the shipped binary is static musl. Elsewhere the system's own
// allocator is as fast and takes less memory.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Two TLS backends in one process panic at the first connection unless one of them is installed before.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        return terminal::fail(&anyhow::anyhow!("a TLS backend is installed already; this is a bug in skep"));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(asked) if !asked.use_stderr() => asked.exit(),
        Err(wrong) => return terminal::refuse(&wrong),
    };
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => terminal::fail(&error),
    }
}
