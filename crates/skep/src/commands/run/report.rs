//! The output of `skep run`: a table for people, a line per URL in a pipe, a line of JSON per change for programs.
//!
//! What runs goes to standard output. What cannot run is reported on standard error, and so are failures and recoveries
//! in a pipe; JSON has everything on standard output.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use skep_proxy::health::ServerHealth;

use super::demo;
use crate::cli::Output;
use crate::manifests::{NAMESPACE, Unreadable};
use crate::terminal::{self, Paint};

/// The output format.
#[derive(Clone, Copy, Debug)]
pub(super) enum Report {
    /// A terminal.
    Table(Paint),
    /// A pipe.
    Lines,
    /// One line of JSON per change.
    Json,
}

/// One object of the manifests, and its state.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) transport: Option<&'static str>,
    pub(super) url: Option<String>,
    pub(super) state: State,
}

/// The state of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is starting.
    Starting,
    /// The server is ready.
    Ready,
    /// The proxy listens; its MCP server is not checked.
    Listening,
    /// The server is unavailable, and why.
    Failing(String),
    /// It was stopped.
    Ended,
    /// It is not run, because its spec is invalid or not supported here.
    Refused(String),
    /// It is not run, because of its kind.
    Skipped(String),
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

// === impl Report ===

impl Report {
    pub(super) fn new(output: Output) -> Self {
        match output {
            Output::Json => Self::Json,
            Output::Text if std::io::stdout().is_terminal() => Self::Table(terminal::paint()),
            Output::Text => Self::Lines,
        }
    }

    /// Reports an object that is not run, or that fails.
    pub(super) fn failure(self, entry: &Entry) -> Result<()> {
        if let Self::Json = self {
            return terminal::print_json_line(&entry.line());
        }
        let reason = entry.state.reason().unwrap_or_default();
        terminal::complain(&format!("{}/{}: {}: {reason}", entry.kind, entry.label(), entry.state.word()));
        Ok(())
    }

    /// Reports a file that cannot be read.
    pub(super) fn unreadable(self, source: &Unreadable) -> Result<()> {
        let Unreadable { file, problem } = source;
        if let Self::Json = self {
            return terminal::print_json_line(&json!({ "file": file, "state": "refused", "reason": problem }));
        }
        terminal::complain(&format!("cannot read `{file}`: {problem}"));
        Ok(())
    }

    /// Reports the started proxies.
    pub(super) fn listening(self, entries: &[&Entry]) -> Result<()> {
        match self {
            Self::Table(paint) => terminal::print(&table(entries, paint)?),
            Self::Lines => {
                let lines = entries.iter().map(|one| format!("{} {}\n", one.label(), one.url()));
                terminal::print(&lines.collect::<String>())?;
                entries.iter().try_for_each(|one| self.changed(one, &State::Starting))
            }
            Self::Json => entries.iter().try_for_each(|one| terminal::print_json_line(&one.line())),
        }
    }

    /// Prints an example call of the demo, and one that its policy denies.
    pub(super) fn demo(self, entries: &[&Entry]) -> Result<()> {
        let Some(url) = entries.first().map(|one| one.url()) else { return Ok(()) };
        let (call, (policy, denied)) = (demo::call(url), demo::denied_call(url));
        match self {
            Self::Table(_) => terminal::print(&format!(
                "\nTry it in another terminal (Ctrl-C here ends it):\n\n{call}\n\n{policy}\n\n{denied}\n\n"
            )),
            Self::Lines => terminal::print(&format!("{call}\n# {policy}\n{denied}\n")),
            Self::Json => Ok(()),
        }
    }

    /// Reports a changed state. In a pipe, failures and the recovery from them are reported beside the URLs.
    pub(super) fn changed(self, entry: &Entry, before: &State) -> Result<()> {
        match self {
            Self::Table(paint) => terminal::print(&format!("{}  {}\n", entry.label(), entry.state.painted(paint))),
            Self::Lines if matches!(entry.state, State::Failing(_)) => self.failure(entry),
            Self::Lines if matches!(before, State::Failing(_)) => {
                terminal::complain(&format!("{}/{}: {}", entry.kind, entry.label(), entry.state.word()));
                Ok(())
            }
            Self::Lines => Ok(()),
            Self::Json => terminal::print_json_line(&entry.line()),
        }
    }

    /// Reports that a graceful shutdown started.
    pub(super) fn ending(self) -> Result<()> {
        match self {
            Self::Table(_) => {
                terminal::print("\nstopping: requests in flight are finished; press Ctrl-C again to cut them\n")
            }
            Self::Lines | Self::Json => Ok(()),
        }
    }

    /// Reports a stopped proxy.
    pub(super) fn ended(self, entry: &Entry) -> Result<()> {
        match self {
            Self::Table(_) | Self::Lines => Ok(()),
            Self::Json => terminal::print_json_line(&entry.line()),
        }
    }
}

// === impl Entry ===

impl Entry {
    /// The same in another state.
    pub(super) fn in_state(&self, state: State) -> Self {
        Self { state, ..self.clone() }
    }

    /// The display name: without the default namespace.
    pub(super) fn label(&self) -> String {
        if self.namespace == NAMESPACE { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }

    fn url(&self) -> &str {
        self.url.as_deref().unwrap_or_default()
    }

    fn line(&self) -> Line<'_> {
        Line {
            kind: &self.kind,
            namespace: &self.namespace,
            name: &self.name,
            transport: self.transport,
            url: self.url.as_deref(),
            state: self.state.word(),
            reason: self.state.reason(),
        }
    }
}

// === impl State ===

impl State {
    /// A proxy's view of its server, as one word and a reason.
    pub(super) fn of(known: &ServerHealth) -> Self {
        match known {
            ServerHealth::Starting(_) => Self::Starting,
            ServerHealth::Available { .. } => Self::Ready,
            // The last log lines of the server are on lines of their own.
            ServerHealth::Unavailable(why) => Self::Failing(why.lines().collect::<Vec<_>>().join(" | ")),
            ServerHealth::Unwatched => Self::Listening,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Listening => "listening",
            Self::Failing(_) => "failing",
            Self::Ended => "ended",
            Self::Refused(_) => "refused",
            Self::Skipped(_) => "skipped",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Failing(why) | Self::Refused(why) | Self::Skipped(why) => Some(why),
            _ => None,
        }
    }

    fn painted(&self, paint: Paint) -> String {
        let word = match self {
            Self::Ready | Self::Listening => paint.good(self.word()),
            Self::Failing(_) | Self::Refused(_) => paint.bad(self.word()),
            Self::Starting | Self::Ended | Self::Skipped(_) => paint.pending(self.word()),
        };
        match self.reason() {
            Some(reason) => format!("{word}: {}", terminal::visible(reason)),
            None => word,
        }
    }
}

fn table(entries: &[&Entry], paint: Paint) -> Result<String> {
    let mut rows = vec![["NAME", "KIND", "TRANSPORT", "URL"].map(str::to_owned)];
    for one in entries {
        rows.push([one.label(), one.kind.clone(), one.transport.unwrap_or_default().to_owned(), one.url().to_owned()]);
    }
    let mut widths = [0; 4];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let states = std::iter::once("STATE".to_owned()).chain(entries.iter().map(|one| one.state.painted(paint)));
    let mut text = String::new();
    for (row, state) in rows.iter().zip(states) {
        for (cell, width) in row.iter().zip(widths) {
            write!(text, "{cell:<width$}  ")?;
        }
        writeln!(text, "{state}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(namespace: &str, name: &str, state: State) -> Entry {
        Entry {
            kind: "MCPServer".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            transport: Some("stdio"),
            url: Some("http://127.0.0.1:8080/mcp".to_owned()),
            state,
        }
    }

    #[test]
    fn the_table_lines_up_and_says_why() {
        let (one, two) =
            (entry("default", "a", State::Ready), entry("team", "longer", State::Failing("it went".to_owned())));
        let expected = "\
NAME         KIND       TRANSPORT  URL                        STATE
a            MCPServer  stdio      http://127.0.0.1:8080/mcp  ready
team/longer  MCPServer  stdio      http://127.0.0.1:8080/mcp  failing: it went
";
        assert_eq!(table(&[&one, &two], terminal::Paint::none()).unwrap(), expected);
    }

    #[test]
    fn programs_read_every_part_on_one_line() {
        let refused = Entry { transport: None, url: None, ..entry("default", "a", State::Refused("why".to_owned())) };
        assert_eq!(
            serde_json::to_string(&refused.line()).unwrap(),
            r#"{"kind":"MCPServer","namespace":"default","name":"a","state":"refused","reason":"why"}"#
        );
    }

    #[test]
    fn a_reading_of_the_server_is_one_word() {
        assert_eq!(State::of(&ServerHealth::Available { milliseconds: Some(3) }), State::Ready);
        assert_eq!(State::of(&ServerHealth::Unwatched), State::Listening);
        assert_eq!(State::of(&ServerHealth::Unavailable("x".to_owned())).reason(), Some("x"));
        assert_eq!(State::of(&ServerHealth::Unavailable("x\ny\nz".to_owned())).reason(), Some("x | y | z"));
    }
}
