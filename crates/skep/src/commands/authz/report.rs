//! How decisions are printed.

use std::fmt;

use serde::Serialize;

use crate::terminal::visible;

/// The decisions about what an identity asked for.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The MCP server.
    pub(super) server: String,
    pub(super) decisions: Vec<Explanation>,
}

/// One decision, and why.
#[derive(Debug, Serialize)]
pub(super) struct Explanation {
    pub(super) method: String,
    /// The tool, prompt or resource.
    pub(super) name: Option<String>,
    pub(super) allowed: bool,
    /// Why, on one line.
    pub(super) why: String,
    /// The policies that decided.
    pub(super) policies: Vec<Place>,
}

/// Where a policy stands.
#[derive(Debug, Serialize)]
pub(super) struct Place {
    /// Its place in the list, and its id if it has one.
    pub(super) policy: String,
    pub(super) file: String,
    pub(super) line: Option<usize>,
}

// === impl Report ===

impl Report {
    pub(super) fn text(&self, is_table: bool) -> String {
        let rows: Vec<[String; 3]> = self.decisions.iter().map(Explanation::row).collect();
        if !is_table {
            let line = |[name, verdict, why]: &[String; 3]| format!("{name}: {verdict}, {why}\n");
            return rows.iter().map(line).collect();
        }
        let header = ["NAME", "DECISION", "WHY"].map(str::to_owned);
        let all = || std::iter::once(&header).chain(&rows);
        let width =
            |column: fn(&[String; 3]) -> &String| all().map(|row| column(row).chars().count()).max().unwrap_or(0);
        let (names, verdicts) = (width(|[name, ..]| name), width(|[_, verdict, _]| verdict));
        let line = |[name, verdict, why]: &[String; 3]| format!("{name:names$}  {verdict:verdicts$}  {why}\n");
        all().map(line).collect()
    }
}

// === impl Explanation ===

impl Explanation {
    fn row(&self) -> [String; 3] {
        let name = self.name.as_deref().unwrap_or(&self.method);
        let verdict = if self.allowed { "allowed" } else { "denied" };
        let places: Vec<String> = self.policies.iter().map(ToString::to_string).collect();
        let why = match &*places {
            [] => self.why.clone(),
            places => format!("{} at {}", self.why, places.join(", ")),
        };
        [visible(name).into_owned(), verdict.to_owned(), visible(&why).into_owned()]
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}", self.file),
            None => formatter.write_str(&self.file),
        }
    }
}
