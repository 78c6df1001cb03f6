//! Logs on standard error: JSON lines in a pod, plain lines elsewhere.

use std::fmt as text;
use std::io;

use anyhow::{Result, anyhow};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// JSON lines with the field names of the original's logs: `time`, `level`, `msg`, then the fields of the event.
struct Lines;

/// The fields of an event.
#[derive(Default)]
struct EventFields(Map<String, Value>);

/// Starts logging. `SKEP_LOG` (or `RUST_LOG`) sets the filter, such as `debug` or `skep_operator=debug`.
pub(crate) fn start(json: bool) -> Result<()> {
    start_at(json, "info")
}

/// The same, with a default filter.
pub(crate) fn start_at(json: bool, default: &str) -> Result<()> {
    let wanted = std::env::var("SKEP_LOG")
        .or_else(|_unset| std::env::var("RUST_LOG"))
        .unwrap_or_else(|_unset| default.to_owned());
    let filter: Targets =
        wanted.parse().map_err(|error| anyhow!("SKEP_LOG: `{wanted}` is not a log filter: {error}"))?;
    // The Kubernetes client logs errors in Rust's debug format. Our own code logs them as well, as text.
    let is_quiet = !wanted.contains("kube") && filter.default_level().is_none_or(|level| level <= LevelFilter::INFO);
    let filter = if is_quiet {
        filter.with_target("kube_client", LevelFilter::ERROR).with_target("kube_runtime", LevelFilter::ERROR)
    } else {
        filter
    };
    let lines = fmt::layer().with_writer(io::stderr);
    // Spans name the server, where one process runs several. In a pod there is one.
    let lines = if json { lines.event_format(Lines).boxed() } else { lines.with_target(false).boxed() };
    let started = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    started.map_err(|error| anyhow!("cannot start logging: {error}"))
}

// === impl Lines ===

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> fmt::FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> text::Result {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        let about = event.metadata();
        let time = jiff::Timestamp::now();
        write!(line, r#"{{"time":"{time:.0}","level":"{}","msg":{message}"#, about.level())?;
        for (name, value) in &fields.0 {
            write!(line, ",{}:{value}", Value::from(name.as_str()))?;
        }
        writeln!(line, r#","target":{}}}"#, Value::from(about.target()))
    }
}

// === impl EventFields ===

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn text::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
