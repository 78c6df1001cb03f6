//! Asking a backend what it offers: `server/discover`, then its lists, page by page. The requests are of 2026-07-28, whatever the backend
//! speaks: the bridge translates.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use skep_mcp::list::{self, List};
use skep_mcp::{Era, Kind, Message, answer, era, value};
use skep_net::Budget;
use skep_net::budget::{Purpose, Reservation};
use skep_proxy::capacity::Caches;
use skep_upstream::{Call, CallError, ClientContext, Upstream};
use tokio::time::Instant;

use super::{Abilities, Catalogue, Item};

/// How many pages of a list are requested.
const PAGES: usize = 10_000;
/// How many items one backend may offer, and how many bytes they may have together.
const ITEMS: usize = 20_000;
const BYTES: usize = 32 * 1024 * 1024;

/// Why it is not known what a backend offers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// It refuses the credentials, or wants some.
    #[error("the backend requires authentication: HTTP status {0}")]
    Unauthenticated(StatusCode),
    /// It cannot be reached, or does not respond.
    #[error(transparent)]
    Call(CallError),
    /// It refuses to list what it says it has.
    #[error("`{method}` failed with the error {code}")]
    Refused {
        /// The method.
        method: &'static str,
        /// The code of the error.
        code: i64,
    },
    /// Its response is not one.
    #[error("the response to `{0}` is malformed")]
    Malformed(&'static str),
    /// It offers more than is kept.
    #[error("the backend offers more than {ITEMS} items or {BYTES} bytes; filter its tools")]
    TooMuch,
}

/// What is fetched at the same time, of all backends.
static FETCHED: LazyLock<Budget> = LazyLock::new(|| Budget::new(Caches::of_process().fetches));

/// Where a fetch is sent.
struct Fetcher<'a> {
    budget: &'a Budget,
    /// What is kept of it until it is complete.
    held: Mutex<Reservation>,
    upstream: &'a Arc<dyn Upstream>,
    client: &'a ClientContext,
    /// When each response must be complete.
    until: Instant,
    /// How many items and bytes of all lists were kept so far.
    items: AtomicUsize,
    bytes: AtomicUsize,
}

/// Asks a backend what it offers, in the name of a client or without one. All of it must arrive in time.
pub async fn fetch(
    upstream: &Arc<dyn Upstream>,
    client: &ClientContext,
    timeout: Duration,
) -> Result<Catalogue, FetchError> {
    fetch_within(&FETCHED, upstream, client, timeout).await
}

/// The same within a budget.
pub async fn fetch_within(
    budget: &Budget,
    upstream: &Arc<dyn Upstream>,
    client: &ClientContext,
    timeout: Duration,
) -> Result<Catalogue, FetchError> {
    let held = Mutex::new(budget.reservation(Purpose::Response));
    let (items, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let fetcher = Fetcher { budget, held, upstream, client, until: Instant::now() + timeout, items, bytes };
    let discovered = fetcher.request("server/discover", None).await?;
    let result = discovered.result().ok_or(FetchError::Malformed("server/discover"))?;
    let has = |path: &[&str]| value::find(result, path).is_some_and(|found| found.starts_with('{'));
    let abilities = Abilities {
        tools: has(&["capabilities", "tools"]),
        prompts: has(&["capabilities", "prompts"]),
        resources: has(&["capabilities", "resources"]),
        subscriptions: value::find(result, &["capabilities", "resources", "subscribe"]) == Some("true"),
        completions: has(&["capabilities", "completions"]),
    };
    let lists = tokio::join!(
        fetcher.list(List::Tools, abilities.tools),
        fetcher.list(List::Prompts, abilities.prompts),
        fetcher.list(List::Resources, abilities.resources),
        fetcher.list(List::ResourceTemplates, abilities.resources),
    );
    let mut catalogue = Catalogue { abilities, ..Catalogue::default() };
    let mut failed = None;
    for (list, fetched) in [
        (List::Tools, lists.0),
        (List::Prompts, lists.1),
        (List::Resources, lists.2),
        (List::ResourceTemplates, lists.3),
    ] {
        match fetched {
            Ok((items, time)) => {
                *catalogue.items_mut(list) = items;
                catalogue.time_to_live = catalogue.time_to_live.into_iter().chain(time).min();
            }
            // What is too much together is so whichever list it shows in.
            Err(FetchError::TooMuch) => return Err(FetchError::TooMuch),
            Err(error) => {
                tracing::warn!(method = list.method(), %error, "a list of a backend could not be fetched");
                catalogue.stale.push(list);
                failed.get_or_insert(error);
            }
        }
    }
    // One list that fails takes no other one with it, but a backend of which nothing could be listed failed.
    match failed {
        Some(error) if catalogue.is_empty() => Err(error),
        _ => Ok(catalogue),
    }
}

// === impl Fetcher ===

impl Fetcher<'_> {
    /// A whole list, and for how long it holds. One that the backend does not have is empty.
    async fn list(&self, list: List, is_there: bool) -> Result<(Vec<Item>, Option<Duration>), FetchError> {
        let (method, mut items, mut time) = (list.method(), Vec::new(), None::<Duration>);
        if !is_there {
            return Ok((items, time));
        }
        let (mut cursor, mut seen, mut names) = (None::<String>, BTreeSet::new(), BTreeSet::new());
        for _ in 0..PAGES {
            let page = match self.request(method, cursor.as_deref()).await {
                // Many servers have resources and no templates.
                Err(FetchError::Refused { code: answer::METHOD_NOT_FOUND, .. }) => break,
                page => page?,
            };
            let elements = list::elements(&page, list).map_err(|_malformed| FetchError::Malformed(method))?;
            // Of two of one name, the first one counts.
            let new = elements.iter().filter_map(|raw| Item::parse(list, raw));
            let before = items.len();
            items.extend(new.filter(|item| names.insert(item.name.clone())));
            self.keep(items.iter().skip(before))?;
            let result = page.result().ok_or(FetchError::Malformed(method))?;
            let lives = value::find(result, &["ttlMs"]).and_then(|lives| lives.parse().ok()).map(Duration::from_millis);
            time = time.into_iter().chain(lives).min();
            cursor = value::find_text(result, &["nextCursor"]).map(std::borrow::Cow::into_owned);
            match &cursor {
                // One that goes in a circle has shown all it has.
                Some(next) if seen.insert(next.clone()) => {}
                Some(_) | None => break,
            }
        }
        Ok((items, time))
    }

    /// Counts what a page added.
    fn keep<'i>(&self, new: impl Iterator<Item = &'i Item>) -> Result<(), FetchError> {
        let (count, size) = new.fold((0, 0), |(count, size), item| (count + 1, size + item.raw.len()));
        let items = self.items.fetch_add(count, Ordering::Relaxed) + count;
        let bytes = self.bytes.fetch_add(size, Ordering::Relaxed) + size;
        if items > ITEMS || bytes > BYTES {
            return Err(FetchError::TooMuch);
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.grow(size).map_err(|over| FetchError::Call(CallError::Busy(over.to_string().into())))
    }

    async fn request(&self, method: &'static str, cursor: Option<&str>) -> Result<Message, FetchError> {
        let mut params = json!({ "_meta": meta() });
        if let (Some(cursor), Some(params)) = (cursor, params.as_object_mut()) {
            params.insert("cursor".to_owned(), json!(cursor));
        }
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = Message::parse(request.to_string().into()).map_err(|_never| FetchError::Malformed(method))?;
        let call = Call { client: self.client.clone(), budget: self.budget.clone(), ..Call::new(request, Era::Modern) };
        let responded = async {
            let mut replies = self.upstream.clone().call(call).await?;
            replies.response.response().await
        };
        let response = tokio::time::timeout_at(self.until, responded).await.unwrap_or(Err(CallError::Timeout))?;
        if response.kind() == Kind::Response {
            return Ok(response);
        }
        let code = response.error().and_then(|error| value::find(error, &["code"])?.parse().ok());
        Err(code.map_or(FetchError::Malformed(method), |code| FetchError::Refused { method, code }))
    }
}

/// What a request of 2026-07-28 says of its client: the virtual server itself, which takes no requests of the server.
pub(crate) fn meta() -> serde_json::Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": era::MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "skep-vmcp", "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

// === impl FetchError ===

impl From<CallError> for FetchError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Rejected(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => {
                Self::Unauthenticated(status)
            }
            error => Self::Call(error),
        }
    }
}
