//! The optimizer: a search over the tools that a client sees, instead of their list.
//!
//! ```text
//!   chain: find_tool ─▶ tools/list + ToolSearch ─▶ Optimizer ─▶ index of the client's view ─▶ ToolRankings, tools
//!                                                      │
//!                          changes of backends ─▶ embedder ─▶ vectors, in the background
//! ```
//!
//! What clients send is translated by the middleware `optimizer` of skep-proxy, which also merges the rankings, once the list was filtered.
//! Here is no client, no era and no policy: a view and a search go in, names come out. Search by meaning is an addition: without its service,
//! or before the vectors are there, words are searched for alone.

mod embedder;
mod index;
mod service;
mod stem;
mod words;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use skep_api::virtual_config::{EmbeddingProvider, Optimizer as OptimizerConfig};
use skep_mcp::Raw;
use skep_mcp::list::{Element, List};
use skep_net::Addresses;
use skep_proxy::is_reserved_tool;
use skep_proxy::tool_search::{Ranking, ToolRankings, ToolSearch};

use self::embedder::Embedder;
use self::index::{Index, Rows};
pub use self::service::EmbeddingConfigError;
use self::service::EmbeddingService;
use crate::config::duration;
use crate::metrics::VirtualMetrics;
use crate::view::ClientView;

/// How many tools a search finds, how much of that is found by meaning, and how far in meaning it may be, unless the configuration says
/// otherwise.
const MOST: usize = 8;
const RATIO: f64 = 0.5;
const THRESHOLD: f64 = 1.0;
/// How long the embedding service may take, unless the configuration says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How many tools are listed beside rankings: more cannot be filtered in one list.
const LISTED: usize = 10_000;
/// The variable with the key for an OpenAI-compatible service.
const KEY: &str = "OPENAI_API_KEY";

/// Searches for tools.
#[derive(Debug)]
pub struct Optimizer {
    index: SharedIndex,
    most: usize,
    /// How many of them are found by meaning.
    semantic: usize,
    threshold: f64,
    embedder: Option<Arc<Embedder>>,
}

/// The index of all views.
type SharedIndex = Arc<Mutex<Index>>;

/// The tools of a view in the index, for as long as the view lives.
#[derive(Debug)]
pub struct IndexedView {
    index: SharedIndex,
    rows: Rows,
    bytes: usize,
}

// === impl Optimizer ===

impl Optimizer {
    /// The optimizer of a configuration that was validated. The environment may have the key of the embedding service.
    pub fn new(
        config: &OptimizerConfig,
        environment: &BTreeMap<String, String>,
        addresses: Addresses,
        metrics: VirtualMetrics,
    ) -> Result<Arc<Self>, EmbeddingConfigError> {
        let index = SharedIndex::default();
        let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<f64>().ok());
        let most = config.max_tools_to_return.and_then(|most| usize::try_from(most).ok()).unwrap_or(MOST);
        let ratio = number(&config.hybrid_search_semantic_ratio).unwrap_or(RATIO);
        let url = config.embedding_service.as_deref().filter(|url| !url.is_empty());
        let embedder = match url {
            None => None,
            Some(url) => {
                let timeout = duration(&config.embedding_service_timeout).unwrap_or(TIMEOUT);
                let key = match config.embedding_provider {
                    EmbeddingProvider::Tei => None,
                    EmbeddingProvider::OpenAi => environment.get(KEY).filter(|key| !key.is_empty()),
                };
                let service = EmbeddingService::new(config, url, key.map(String::as_str), addresses, timeout)?;
                Some(Embedder::new(service, index.clone(), metrics))
            }
        };
        let threshold = number(&config.semantic_distance_threshold).unwrap_or(THRESHOLD);
        Ok(Arc::new(Self { index, most, semantic: part(most, ratio), threshold, embedder }))
    }

    /// Computes vectors in the background, until the optimizer is gone.
    pub fn start(&self) {
        if let Some(embedder) = &self.embedder {
            embedder.start();
        }
    }

    /// Takes the tools of a view into the index, if they are not there.
    pub fn indexed<'a>(&self, view: &'a ClientView) -> &'a IndexedView {
        view.indexed.get_or_init(|| {
            let indexed = IndexedView::new(&self.index, view);
            if let Some(embedder) = &self.embedder {
                embedder.wake();
            }
            indexed
        })
    }

    /// What fits a search, and the tools that it is about. The members stand in the result beside the list.
    pub async fn find(&self, view: &ClientView, search: &ToolSearch, members: &str) -> Raw<'static> {
        let Some(description) = &search.description else { return listed("", members, None) };
        let indexed = self.indexed(view);
        // Filtering may take away any of them.
        let kept = if search.lists_all { usize::MAX } else { self.most };
        let names = |names: Vec<&str>| names.into_iter().take(kept).map(str::to_owned).collect::<Vec<_>>();
        let near = match &self.embedder {
            Some(embedder) if self.semantic > 0 => embedder.nearest(&indexed.rows, description, self.threshold).await,
            Some(_) | None => None,
        };
        let by_words = if near.is_some() { self.most - self.semantic } else { self.most };
        let terms = words::terms(description, &search.keywords);
        let semantic =
            Ranking { names: near.unwrap_or_default().into_iter().take(kept).collect(), most: self.semantic };
        let found = names(with(&self.index, |index| index.search(&indexed.rows, &terms)));
        let keywords = Ranking { names: found, most: by_words };
        let wanted = |name: &str| {
            search.lists_all || [&semantic, &keywords].iter().any(|ranking| ranking.names.iter().any(|one| one == name))
        };
        let tools = view.pages.list(List::Tools).iter().filter(|(name, _)| !is_reserved_tool(name) && wanted(name));
        let tools: Vec<&str> = tools.take(LISTED).map(|(_, shown)| &**shown).collect();
        let all_bytes = (!search.lists_all).then_some(indexed.bytes);
        listed(&tools.join(","), members, Some(&ToolRankings { semantic, keywords, all_bytes }))
    }
}

/// How many of so many are a part of them, rounded.
fn part(most: usize, ratio: f64) -> usize {
    (1..=most)
        .filter(|number| f64::from(u32::try_from(*number).unwrap_or(u32::MAX)) - 0.5 <= ratio * f64_of(most))
        .count()
}

fn f64_of(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}

/// The result of a request for the list of tools, with the rankings in its `_meta`.
fn listed(tools: &str, members: &str, rankings: Option<&ToolRankings>) -> Raw<'static> {
    let Some((name, rankings)) = rankings.map(ToolRankings::to_member) else {
        return Raw::trusted(format!(r#"{{"tools":[{tools}]{members}}}"#));
    };
    let rankings = format!(r#""{name}":{}"#, rankings.as_str());
    // The members of a result of 2026-07-28 end with a `_meta` of their own.
    let result = match members.split_once(r#","_meta":{"#) {
        Some((before, meta)) => format!(r#"{{"tools":[{tools}]{before},"_meta":{{{rankings},{meta}}}"#),
        None => format!(r#"{{"tools":[{tools}]{members},"_meta":{{{rankings}}}}}"#),
    };
    Raw::trusted(result)
}

fn with<T>(index: &SharedIndex, act: impl FnOnce(&mut Index) -> T) -> T {
    act(&mut index.lock().unwrap_or_else(PoisonError::into_inner))
}

// === impl IndexedView ===

impl IndexedView {
    fn new(index: &SharedIndex, view: &ClientView) -> Self {
        let (mut bytes, mut tools) = (0, Vec::new());
        for (name, shown) in view.pages.list(List::Tools).iter() {
            if is_reserved_tool(name) {
                tracing::warn!(tool = name, "tool left out: the optimizer has a tool of that name");
                continue;
            }
            bytes += shown.len() + 1;
            let element = Element::parse(List::Tools, shown).ok();
            let description = element.and_then(|element| element.description).map(std::borrow::Cow::into_owned);
            tools.push((name, description.unwrap_or_default(), &**shown));
        }
        let tools = tools.iter().map(|(name, description, shown)| (*name, description.as_str(), *shown));
        Self { index: index.clone(), rows: with(index, |index| index.add(tools)), bytes }
    }
}

impl Drop for IndexedView {
    fn drop(&mut self) {
        with(&self.index, |index| index.release(&self.rows));
    }
}

/// Keeps the tools of all clients in the index, for as long as there is a server: so the first search waits for nothing, and vectors are
/// computed before it.
pub(crate) async fn follow(server: Weak<crate::upstream::VirtualUpstream>) {
    let Some(mut changes) = server.upgrade().map(|server| server.changes()) else { return };
    loop {
        {
            let Some(server) = server.upgrade() else { return };
            changes.borrow_and_update();
            server.index_anyone().await;
        }
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(DEBOUNCE).await;
    }
}

/// Changes that follow each other within this time are indexed once.
const DEBOUNCE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
