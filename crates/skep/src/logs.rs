//! Logs on standard error: JSON lines in a pod, plain lines elsewhere.

use std::io;

use anyhow::{Result, anyhow};
use tracing_subscriber::EnvFilter;

/// Starts logging. `SKEP_LOG` (or `RUST_LOG`) says how much, such as `debug` or `skep_operator=debug`.
pub(crate) fn start(json: bool) -> Result<()> {
    start_at(json, "info")
}

/// The same, with what is logged unless those say otherwise.
pub(crate) fn start_at(json: bool, default: &str) -> Result<()> {
    let wanted = std::env::var("SKEP_LOG")
        .or_else(|_unset| std::env::var("RUST_LOG"))
        .unwrap_or_else(|_unset| default.to_owned());
    let filter =
        EnvFilter::try_new(&wanted).map_err(|error| anyhow!("SKEP_LOG: `{wanted}` is not a log filter: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started =
        if json { builder.json().flatten_event(true).try_init() } else { builder.with_target(false).try_init() };
    started.map_err(|error| anyhow!("cannot start logging: {error}"))
}
