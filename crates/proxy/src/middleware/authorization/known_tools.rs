//! What tools said about themselves when they were last listed. It is bounded: what was listed first is forgotten first, and listed again
//! when it is needed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skep_authz::query::Annotations;
use tokio::time::Instant;

/// How many bytes the names of tools may take, with what is kept of each.
const BYTES: usize = 1024 * 1024;
const ENTRY: usize = 128;
/// For how long the tools of a client are not listed again because one is not known, and how many clients that is remembered of.
const LISTED: Duration = Duration::from_secs(5);
const CLIENTS: usize = 1_000;

/// The tools that were listed.
#[derive(Debug, Default)]
pub(super) struct KnownTools(Mutex<Tools>);

#[derive(Debug, Default)]
struct Tools {
    by_name: HashMap<Arc<str>, ToolEntry>,
    /// In the order in which they were last listed.
    order: BTreeMap<u64, Arc<str>>,
    count: u64,
    bytes: usize,
    /// When all tools of a client were last listed.
    listed: HashMap<String, Instant>,
}

#[derive(Debug)]
struct ToolEntry {
    annotations: Annotations,
    place: u64,
}

// === impl KnownTools ===

impl KnownTools {
    /// What a tool said about itself; nothing if it is not known.
    pub(super) fn annotations(&self, tool: &str) -> Option<Annotations> {
        self.lock().by_name.get(tool).map(|known| known.annotations)
    }

    /// Remembers what tools say about themselves. Pages of a list add to each other.
    pub(super) fn remember<'a>(&self, tools: impl Iterator<Item = (&'a str, Annotations)>) {
        let mut known = self.lock();
        for (tool, annotations) in tools {
            known.add(tool, annotations);
        }
    }

    /// All tools of a client were listed just now.
    pub(super) fn listed(&self, client: String) {
        let (mut known, now) = (self.lock(), Instant::now());
        if known.listed.len() >= CLIENTS {
            known.listed.retain(|_, listed| now < *listed + LISTED);
        }
        if known.listed.len() >= CLIENTS {
            known.listed.clear();
        }
        known.listed.insert(client, now);
    }

    /// Whether all tools of a client were listed a short time ago.
    pub(super) fn were_listed(&self, client: &str) -> bool {
        self.lock().listed.get(client).is_some_and(|listed| Instant::now() < *listed + LISTED)
    }

    fn lock(&self) -> MutexGuard<'_, Tools> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Tools ===

impl Tools {
    fn add(&mut self, tool: &str, annotations: Annotations) {
        let bytes = ENTRY + tool.len();
        if bytes > BYTES {
            return;
        }
        self.count += 1;
        let (name, place): (Arc<str>, _) = (tool.into(), self.count);
        match self.by_name.insert(name.clone(), ToolEntry { annotations, place }) {
            Some(before) => drop(self.order.remove(&before.place)),
            None => self.bytes += bytes,
        }
        self.order.insert(place, name);
        while self.bytes > BYTES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.by_name.remove(&oldest);
            self.bytes -= ENTRY + oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destructive(is: bool) -> Annotations {
        Annotations { destructive: Some(is), ..Annotations::default() }
    }

    #[test]
    fn a_tool_is_known_by_its_last_list() {
        let known = KnownTools::default();
        known.remember([("a", destructive(true)), ("b", Annotations::default())].into_iter());
        known.remember([("a", destructive(false))].into_iter());
        assert_eq!(known.annotations("a"), Some(destructive(false)));
        assert_eq!(known.annotations("b"), Some(Annotations::default()), "it says nothing, which is known");
        assert_eq!(known.annotations("c"), None);
    }

    #[test]
    fn tools_are_bounded_by_their_size_and_the_oldest_are_forgotten() {
        let known = KnownTools::default();
        let name = |number: usize| format!("{number:01000}");
        for number in 0..2_000 {
            known.remember(
                [(name(0).as_str(), destructive(true)), (name(number).as_str(), destructive(true))].into_iter(),
            );
        }
        let tools = known.lock();
        assert!(tools.bytes <= BYTES && tools.by_name.len() == tools.order.len() && tools.by_name.len() > 800);
        drop(tools);
        assert_eq!(known.annotations(&name(1)), None);
        for kept in [0, 1_999] {
            assert!(known.annotations(&name(kept)).is_some(), "{kept}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_s_tools_are_not_listed_twice_within_seconds() {
        let known = KnownTools::default();
        known.listed("ada".to_owned());
        assert!(known.were_listed("ada") && !known.were_listed("bob"));
        tokio::time::advance(LISTED).await;
        assert!(!known.were_listed("ada"));
        for number in 0..3 * CLIENTS {
            known.listed(number.to_string());
        }
        assert!(known.lock().listed.len() <= CLIENTS);
    }
}
