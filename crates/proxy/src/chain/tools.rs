//! Lists of tools that the proxy requests itself, for middleware that must know a tool before it can decide about a call of it.
//!
//! Such a request is sent in the name of the client that makes the call, in its session and with its credentials: it goes through the
//! middleware behind the one that needs it, which adds what the server expects.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Era, Id, Kind, Message, value};
use skep_upstream::{BackendNames, BoxFuture, list_tools_request};

use super::{Chain, Flow, Pass, Step};
use crate::exchange::{Content, Exchange};
use crate::http::SESSION;

/// How many pages of a list are requested, and how many bytes they may have together.
const PAGES: usize = 100;
const BYTES: usize = 8 * 1024 * 1024;
/// How long a call waits for them.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many lists are requested at the same time.
pub(super) const LISTINGS: usize = 4;

/// Sends requests of the proxy's own to its server.
pub(crate) trait ToolSource: Debug + Send + Sync {
    /// The response to a request. Nothing if there is none, or none of at most `limit` bytes.
    fn request(&self, exchange: Exchange, limit: usize) -> Pin<Box<dyn Future<Output = Option<Message>> + Send + '_>>;

    /// Whether its server is several.
    fn is_composed(&self) -> bool {
        false
    }

    /// Which of them each thing belongs to that the client of a request sees.
    fn backend_names<'a>(&'a self, _exchange: &'a Exchange) -> BoxFuture<'a, Option<Arc<dyn BackendNames>>> {
        Box::pin(std::future::ready(None))
    }
}

// === impl Chain ===

impl Chain {
    /// Says what the chain stands in front of.
    pub(crate) fn connect(&self, source: Arc<dyn ToolSource>) {
        // A chain has one server, for as long as it lives.
        let _connected_before = self.source.set(source);
    }

    /// Whether the server is several.
    pub(super) fn is_composed(&self) -> bool {
        self.source.get().is_some_and(|source| source.is_composed())
    }

    /// Finds out which of several servers each thing belongs to, where a middleware must know.
    pub(super) async fn find_backends(&self, exchange: &mut Exchange) {
        let Some(source) = self.source.get() else { return };
        if self.middleware.iter().any(|one| one.needs_backends(exchange)) {
            // Boxed: only virtual servers have it, and every call would carry the room for it.
            exchange.backends = source.backend_names(exchange).await;
        }
    }

    /// Lets the middleware at a place learn the tools of the server. Without them, it decides by what it knows.
    pub(super) async fn list_tools(&self, place: usize, exchange: &Exchange) {
        let Some(one) = self.middleware.get(place) else { return };
        let listed = async {
            let _one_of_few = self.listings.acquire().await.ok()?;
            // Another call may have listed them meanwhile.
            if one.needs_tools(exchange) { self.request_tools(place, exchange).await } else { Some(Vec::new()) }
        };
        match tokio::time::timeout(TIMEOUT, listed).await {
            Ok(Some(pages)) if pages.is_empty() => {}
            Ok(Some(pages)) => one.learn_tools(exchange, &pages),
            Ok(None) | Err(_) => tracing::debug!("tools of the server not listed before a call"),
        }
    }

    /// All pages of the list, or nothing.
    async fn request_tools(&self, place: usize, exchange: &Exchange) -> Option<Vec<Message>> {
        let source = self.source.get()?;
        let (mut pages, mut cursor, mut room) = (Vec::new(), None, BYTES);
        for _ in 0..PAGES {
            let mut own = own_request(exchange, cursor.as_deref())?;
            let id = own.id();
            for next in self.middleware.iter().skip(place + 1) {
                let flow = match next.message(&mut own, Pass::Incoming) {
                    Step::Ready(flow) => flow,
                    Step::Pending(flow) => flow.await,
                };
                if let Flow::Answer(_) = flow {
                    return None;
                }
            }
            let page = source.request(own, room).await;
            let page = page.filter(|page| page.kind() == Kind::Response && page.id() == id)?;
            room = room.checked_sub(page.body().len())?;
            cursor = value::find_text(page.result()?, &["nextCursor"]).map(std::borrow::Cow::into_owned);
            pages.push(page);
            if cursor.as_ref().is_none_or(String::is_empty) {
                return Some(pages);
            }
        }
        None
    }
}

/// A request for a page of the list, in the place of a client's call.
fn own_request(call: &Exchange, cursor: Option<&str>) -> Option<Exchange> {
    // The server might read another session than the proxy.
    if call.head.headers.get_all(SESSION).iter().count() > 1 {
        return None;
    }
    let era = call.classify().and_then(Result::ok).unwrap_or(Era::Legacy);
    let id = Id::string(&format!("skep-{}", uuid::Uuid::new_v4()));
    let message = Message::parse(list_tools_request(id.raw(), era, call.message()?, cursor)).ok()?;
    let mut own = Exchange::new(call.head.of_own_request(), Content::Opaque(Bytes::new()));
    own.replace(message);
    own.take_mutated();
    Some(own)
}
