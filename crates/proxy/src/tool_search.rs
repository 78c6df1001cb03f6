//! Searches for tools, between the middleware that clients send them to and the upstream that knows the tools.
//!
//! ```text
//!   client ─ tools/call find_tool ─▶ optimizer ─ tools/list + ToolSearch ─▶ authorization, webhooks, … ─▶ upstream
//!   client ◀─ result of a call ──── optimizer ◀─ tools + ToolRankings ──── (filters the list) ◀─────────────┘
//! ```
//!
//! To everything between the two, a search is a request for the list of tools, and its response a list: so what filters lists filters what
//! is found, by the same decisions, and withholds it when it cannot decide.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skep_mcp::list::List;
use skep_mcp::{Message, Raw, value};

/// The members of `_meta` that hold a search and its rankings.
pub(crate) const SEARCH: &str = "skep/search";
pub(crate) const RANKINGS: &str = "skep/rankings";

/// A search for tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSearch {
    /// What the tool should do. Nothing is searched without it, and the list is empty.
    pub description: Option<String>,
    /// Words to look for instead of those of the description.
    #[serde(default)]
    pub keywords: Vec<String>,
    /// Whether all tools are listed beside the best: something in between filters lists, and what the client would see otherwise is not
    /// known before that.
    #[serde(default)]
    pub lists_all: bool,
}

/// What fits a search, best first, by each way of searching. The tools themselves are in the list beside it, if the client may see them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRankings {
    /// By meaning.
    pub semantic: Ranking,
    /// By words.
    pub keywords: Ranking,
    /// The length of all tools of the client as JSON, if they are not all in the list.
    pub all_bytes: Option<usize>,
}

/// Names of tools, best first, and how many of them count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranking {
    /// The names.
    pub names: Vec<String>,
    /// How many count.
    pub most: usize,
}

// === impl ToolSearch ===

impl ToolSearch {
    /// The search that a request for a list holds.
    pub fn of(request: &Message) -> Option<Self> {
        let search = value::find(request.params()?, &["_meta", SEARCH])?;
        (request.method() == Some(List::Tools.method())).then(|| serde_json::from_str(search).ok())?
    }

    pub(crate) fn to_raw(&self) -> Raw<'static> {
        Raw::value(&serde_json::to_value(self).unwrap_or(Value::Null))
    }
}

// === impl ToolRankings ===

impl ToolRankings {
    /// The member of `_meta` that holds them, and it as JSON.
    pub fn to_member(&self) -> (&'static str, Raw<'static>) {
        (RANKINGS, Raw::value(&serde_json::to_value(self).unwrap_or(Value::Null)))
    }

    pub(crate) fn of(response: &Message) -> Option<Self> {
        serde_json::from_str(value::find(response.result()?, &["_meta", RANKINGS])?).ok()
    }

    /// The best of the tools that are listed: those by meaning, then those by words, each once.
    pub(crate) fn best(&self, is_listed: impl Fn(&str) -> bool) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let rankings = [&self.semantic, &self.keywords].into_iter();
        let best = rankings.flat_map(|ranking| {
            ranking.names.iter().map(String::as_str).filter(|name| is_listed(name)).take(ranking.most)
        });
        best.filter(|name| seen.insert(*name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(names: &str, most: usize) -> Ranking {
        Ranking { names: names.split_whitespace().map(str::to_owned).collect(), most }
    }

    #[test]
    fn what_is_found_by_meaning_comes_first_and_each_tool_once() {
        let rankings =
            ToolRankings { semantic: ranking("d a b", 2), keywords: ranking("a c e f", 3), ..ToolRankings::default() };
        assert_eq!(rankings.best(|_| true), ["d", "a", "c", "e"]);
        assert_eq!(
            rankings.best(|name| name != "d"),
            ["a", "b", "c", "e"],
            "what the client may not see takes no place"
        );
        assert_eq!(rankings.best(|_| false), [""; 0]);
    }

    #[test]
    fn a_search_is_read_from_a_request_for_the_list_of_tools_only() {
        let search = ToolSearch { description: Some("x".to_owned()), keywords: vec!["y".to_owned()], lists_all: true };
        for (method, expected) in [("tools/list", Some(search.clone())), ("prompts/list", None)] {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{{"skep/search":{}}}}}}}"#,
                search.to_raw().as_str()
            );
            assert_eq!(ToolSearch::of(&Message::parse(text.into()).unwrap()), expected);
        }
    }
}
