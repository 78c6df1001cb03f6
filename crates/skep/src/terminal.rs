//! What reaches the terminal: results on standard output, one line about what went wrong on standard error.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

/// Colours, where somebody is looking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

/// Writes to standard output. A reader that has gone away (`skep crds | head`) is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::anyhow!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Writes a value as JSON with a line break at its end.
pub(crate) fn print_json<T: Serialize>(value: &T) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// Says in one line what went wrong and why, and gives the exit code for it.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    let mut line = String::from("error: ");
    let _infallible = write!(line, "{error:#}");
    // A nested cause may bring line breaks of its own.
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    // Nothing can be done when standard error is closed.
    let _ignored = writeln!(io::stderr().lock(), "{line}");
    ExitCode::FAILURE
}

/// Colours for standard output: none in a pipe, none when `NO_COLOR` is set.
pub(crate) fn paint() -> Paint {
    Paint(io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
}

// === impl Paint ===

impl Paint {
    /// Text that reports success.
    pub(crate) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Text that reports a fault.
    pub(crate) fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
