//! Terminal output: results on standard output, one line about errors on standard error.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;
use serde::Serialize;

use crate::termination;

/// Colours, if the output is a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

/// Writes to standard output. A closed pipe (`skep crds | head`) is no error.
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
    print_json_text(&serde_json::to_string_pretty(value)?)
}

/// Writes a value as one line of JSON.
pub(crate) fn print_json_line<T: Serialize>(value: &T) -> Result<()> {
    print_json_text(&serde_json::to_string(value)?)
}

/// JSON escapes some control characters, and a terminal interprets more of them. Those that are left occur in strings.
fn print_json_text(json: &str) -> Result<()> {
    let mut text = String::with_capacity(json.len() + 1);
    for next in json.chars() {
        if next != '\n' && is_obeyed(next) {
            let mut units = [0; 2];
            text.extend(next.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            text.push(next);
        }
    }
    text.push('\n');
    print(&text)
}

/// User text in one line: control sequences are escaped. A manifest must not move the cursor, set the title or hide an
/// error.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let escaped = |next: char| if is_obeyed(next) { next.escape_default().to_string() } else { next.to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

/// Whether a terminal interprets a character instead of showing it: control characters, line separators, and
/// bidirectional controls.
fn is_obeyed(next: char) -> bool {
    next.is_control()
        || matches!(next, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints an error and its causes in one line, and returns the exit code for it.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    termination::report(&format!("{error:#}"));
    complain(&format!("error: {error:#}"));
    ExitCode::FAILURE
}

/// Prints in one line what is invalid in the command line, and returns the exit code for it.
///
/// Without any arguments the help is shown instead.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Nothing can be done when standard error is closed.
        let _ignored = io::stderr().lock().write_all(text.as_bytes());
    } else {
        let (problem, _usage) = text.split_once("\n\nUsage:").unwrap_or((&text, ""));
        let (problem, _more) = problem.split_once("\n\nFor more information").unwrap_or((problem, ""));
        let problem = format!("{}; see --help", problem.trim_end_matches('.'));
        termination::report(problem.trim_start_matches("error: "));
        complain(&problem);
    }
    ExitCode::from(2)
}

/// One line on standard error, whatever line breaks a nested cause has.
pub(crate) fn complain(text: &str) {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Nothing can be done when standard error is closed.
    let _ignored = writeln!(io::stderr().lock(), "{}", visible(&line));
}

/// Colours for standard output: none in a pipe, none when `NO_COLOR` is set.
pub(crate) fn paint() -> Paint {
    Paint(io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
}

// === impl Paint ===

impl Paint {
    /// No colours.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(false)
    }

    /// Text that reports success.
    pub(crate) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Text that reports a failure.
    pub(crate) fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Text that reports neither yet.
    pub(crate) fn pending(self, text: &str) -> String {
        self.with("33", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_escaped() {
        for (text, shown) in [
            ("as it is: é \\ \"…\"", "as it is: é \\ \"…\""),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("valid\nMCPServer/x  valid\r\t", "valid\\nMCPServer/x  valid\\r\\t"),
            ("\u{9b}31m \u{7f} \u{202e}abc\u{2066}", "\\u{9b}31m \\u{7f} \\u{202e}abc\\u{2066}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }
}
