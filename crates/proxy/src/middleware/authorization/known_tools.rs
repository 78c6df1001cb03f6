//! What tools said about themselves when a client last listed them. A server may describe them to each client differently, so what one
//! client was told says nothing about another's calls. It is bounded: the client that listed longest ago is forgotten first, and its tools
//! are listed again when they are needed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skep_authz::query::Annotations;
use tokio::time::Instant;

/// What is kept of each tool and of each client, beside their names.
const TOOL: usize = 64;
const CLIENT: usize = 256;
/// For how long the tools of a client are not listed again because one is not known.
const LISTED: Duration = Duration::from_secs(5);

/// The tools that were listed.
#[derive(Debug)]
pub(super) struct KnownTools(Mutex<Clients>);

#[derive(Debug)]
struct Clients {
    /// How many bytes they may take. One client may have half of them.
    most: usize,
    by_key: HashMap<Arc<str>, ClientTools>,
    /// In the order in which they last listed tools.
    order: BTreeMap<u64, Arc<str>>,
    count: u64,
    bytes: usize,
}

#[derive(Debug, Default)]
struct ClientTools {
    by_name: HashMap<Box<str>, Annotations>,
    /// When all of them were last listed.
    listed: Option<Instant>,
    place: u64,
    bytes: usize,
}

// === impl KnownTools ===

impl KnownTools {
    /// None yet, and no more than these bytes.
    pub(super) fn within(most: usize) -> Self {
        Self(Mutex::new(Clients { most, by_key: HashMap::new(), order: BTreeMap::new(), count: 0, bytes: 0 }))
    }

    /// What a tool said about itself to a client; nothing if it is not known.
    pub(super) fn annotations(&self, client: &str, tool: &str) -> Option<Annotations> {
        self.lock().by_key.get(client)?.by_name.get(tool).copied()
    }

    /// Remembers what tools say about themselves to a client. Pages of a list add to each other.
    pub(super) fn remember<'a>(&self, client: &str, tools: impl Iterator<Item = (&'a str, Annotations)>) {
        self.lock().change(client, |known, most| {
            for (tool, annotations) in tools {
                known.add(tool, annotations, most);
            }
        });
    }

    /// All tools of a client were listed just now.
    pub(super) fn listed(&self, client: &str) {
        self.lock().change(client, |known, _| known.listed = Some(Instant::now()));
    }

    /// Whether all tools of a client were listed a short time ago.
    pub(super) fn were_listed(&self, client: &str) -> bool {
        let listed = self.lock().by_key.get(client).and_then(|known| known.listed);
        listed.is_some_and(|listed| Instant::now() < listed + LISTED)
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Clients ===

impl Clients {
    /// Changes what is known of a client, which is the last one to be forgotten then.
    fn change(&mut self, client: &str, change: impl FnOnce(&mut ClientTools, usize)) {
        let key: Arc<str> = client.into();
        self.count += 1;
        let known = self.by_key.entry(key.clone()).or_insert_with(|| {
            self.bytes += CLIENT + client.len();
            ClientTools::default()
        });
        self.order.remove(&known.place);
        known.place = self.count;
        self.order.insert(self.count, key);
        let before = known.bytes;
        change(known, self.most / 2);
        self.bytes = self.bytes - before + known.bytes;
        while self.bytes > self.most
            && self.order.len() > 1
            && let Some((_, oldest)) = self.order.pop_first()
            && let Some(forgotten) = self.by_key.remove(&oldest)
        {
            self.bytes -= CLIENT + oldest.len() + forgotten.bytes;
        }
    }
}

// === impl ClientTools ===

impl ClientTools {
    fn add(&mut self, tool: &str, annotations: Annotations, most: usize) {
        if let Some(known) = self.by_name.get_mut(tool) {
            *known = annotations;
            return;
        }
        let bytes = TOOL + tool.len();
        if bytes > most {
            return;
        }
        if self.bytes + bytes > most {
            // A server that invents names for each list would otherwise leave no room for those that it uses.
            (self.by_name, self.bytes) = (HashMap::new(), 0);
        }
        self.bytes += bytes;
        self.by_name.insert(tool.into(), annotations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 2 * 1024 * 1024;

    fn destructive(is: bool) -> Annotations {
        Annotations { destructive: Some(is), ..Annotations::default() }
    }

    #[test]
    fn a_tool_is_known_by_the_last_list_of_its_client() {
        let known = KnownTools::within(BYTES);
        known.remember("ada", [("a", destructive(true)), ("b", Annotations::default())].into_iter());
        known.remember("ada", [("a", destructive(false))].into_iter());
        known.remember("bob", [("a", destructive(true))].into_iter());
        assert_eq!(known.annotations("ada", "a"), Some(destructive(false)));
        assert_eq!(known.annotations("bob", "a"), Some(destructive(true)));
        assert_eq!(known.annotations("ada", "b"), Some(Annotations::default()), "it says nothing, which is known");
        assert_eq!(known.annotations("ada", "c"), None);
        assert_eq!(known.annotations("bob", "b"), None);
    }

    #[test]
    fn tools_of_a_client_are_bounded_by_their_size() {
        let known = KnownTools::within(BYTES);
        let name = |number: usize| format!("{number:01000}");
        for number in 0..2_500 {
            known.remember("ada", [(name(number).as_str(), destructive(true))].into_iter());
        }
        known.remember("ada", [(name(0).repeat(2_000).as_str(), destructive(true))].into_iter());
        let clients = known.lock();
        let ada = &clients.by_key["ada"];
        assert!(ada.bytes <= BYTES / 2 && clients.bytes == ada.bytes + CLIENT + 3);
        drop(clients);
        assert_eq!(known.annotations("ada", &name(1)), None);
        assert!(known.annotations("ada", &name(2_499)).is_some());
    }

    #[test]
    fn clients_are_bounded_and_the_one_that_listed_longest_ago_is_forgotten() {
        let known = KnownTools::within(BYTES);
        let client = |number: usize| format!("client {number}");
        let tools: Vec<_> = (0..100).map(|number| format!("tool {number}")).collect();
        for number in 0..1_000 {
            for client in [client(0), client(number)] {
                known.remember(&client, tools.iter().map(|tool| (tool.as_str(), destructive(true))));
                known.listed(&client);
            }
        }
        let clients = known.lock();
        assert!(clients.bytes <= BYTES && clients.by_key.len() == clients.order.len() && clients.by_key.len() > 100);
        let counted = |(key, known): (&Arc<str>, &ClientTools)| CLIENT + key.len() + known.bytes;
        assert_eq!(clients.bytes, clients.by_key.iter().map(counted).sum::<usize>());
        drop(clients);
        // One that is forgotten counts as not listed, so that its tools are listed again.
        assert!(known.annotations(&client(1), "tool 0").is_none() && !known.were_listed(&client(1)));
        for kept in [0, 999] {
            assert!(
                known.annotations(&client(kept), "tool 99").is_some() && known.were_listed(&client(kept)),
                "{kept}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_s_tools_are_not_listed_twice_within_seconds() {
        let known = KnownTools::within(BYTES);
        known.listed("ada");
        assert!(known.were_listed("ada") && !known.were_listed("bob"));
        tokio::time::advance(LISTED).await;
        assert!(!known.were_listed("ada"));
    }
}
