//! Logs on standard error: JSON lines in a pod, plain lines elsewhere.

use std::io;

use anyhow::{Result, anyhow};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging. `SKEP_LOG` (or `RUST_LOG`) says how much, such as `debug` or `skep_operator=debug`.
pub(crate) fn start(json: bool) -> Result<()> {
    start_at(json, "info")
}

/// The same, with what is logged unless those say otherwise.
pub(crate) fn start_at(json: bool, default: &str) -> Result<()> {
    let wanted = std::env::var("SKEP_LOG")
        .or_else(|_unset| std::env::var("RUST_LOG"))
        .unwrap_or_else(|_unset| default.to_owned());
    let filter: Targets =
        wanted.parse().map_err(|error| anyhow!("SKEP_LOG: `{wanted}` is not a log filter: {error}"))?;
    let lines = fmt::layer().with_writer(io::stderr);
    // Spans say which server it is about, where one process runs several. In a pod there is one.
    let lines = if json {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
    } else {
        lines.with_target(false).boxed()
    };
    let started = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    started.map_err(|error| anyhow!("cannot start logging: {error}"))
}
