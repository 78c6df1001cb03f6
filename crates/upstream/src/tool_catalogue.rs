//! What is known of the server's tools: which of their arguments headers repeat.
//!
//! Where the proxy is the HTTP server that a client talks to, it has to check that headers and arguments agree; where it is the HTTP client
//! of a server, it has to send such headers. The schemas that say so are learnt from the lists that clients ask for, and listed when a call
//! needs them. What is known is forgotten when the server says that its tools changed, and when it goes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use skep_mcp::headers::parameters::{self, Parameter};
use skep_mcp::list::{self, List, Verdict};
use skep_mcp::{Era, Kind, Message, Raw, era};

/// How many tools are remembered. Calls of others are not checked.
const TOOLS: usize = 10_000;
/// How many pages of the list are requested.
const PAGES: usize = 100;

/// What is known of the server's tools.
#[derive(Debug, Default)]
pub(crate) struct ToolCatalogue {
    known: Mutex<KnownTools>,
    /// One call lists the tools, the others wait.
    listing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownTools {
    /// How often everything was forgotten.
    forgotten: u64,
    tools: HashMap<String, Arc<[Parameter]>>,
    /// Whether the server was asked for all of them.
    is_complete: bool,
}

/// A list of all tools in progress, page by page.
#[derive(Debug)]
pub(crate) struct Listing {
    /// How often everything was forgotten before it.
    forgotten: u64,
    pages: usize,
    cursor: Option<String>,
    is_over: bool,
}

// === impl ToolCatalogue ===

impl ToolCatalogue {
    /// Learns from an answer to `tools/list`.
    pub(crate) fn learn(&self, answer: &Message) {
        if answer.kind() != Kind::Response {
            return;
        }
        let mut found = Vec::new();
        let walked = list::rewrite(answer, List::Tools, |tool| {
            found.push((tool.name.clone().into_owned(), Arc::from(parameters::of(tool))));
            Verdict::Keep
        });
        if let Err(why) = walked {
            tracing::debug!(%why, "skipping malformed list of tools");
        }
        self.with(|known| {
            for (name, parameters) in found {
                if known.tools.len() < TOOLS || known.tools.contains_key(&name) {
                    known.tools.insert(name, parameters);
                }
            }
        });
    }

    /// Forgets everything: the tools changed, or the server is another one.
    pub(crate) fn forget(&self) {
        self.with(|known| *known = KnownTools { forgotten: known.forgotten + 1, ..KnownTools::default() });
    }

    /// The arguments of a tool that headers repeat. Nothing if the tools must be listed first. `is_claimed` says that a request has such
    /// headers: then a tool that is not known is listed, even if all were listed before.
    pub(crate) fn find(&self, tool: &str, is_claimed: bool) -> Option<Arc<[Parameter]>> {
        self.with(|known| {
            let is_none = known.is_complete && (!is_claimed || known.tools.len() >= TOOLS);
            known.tools.get(tool).cloned().or_else(|| is_none.then(Arc::default))
        })
    }

    /// Waits for the turn to list the tools.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.listing.lock().await
    }

    /// Begins to list the tools.
    pub(crate) fn begin(&self) -> Listing {
        Listing { forgotten: self.with(|known| known.forgotten), pages: 0, cursor: None, is_over: false }
    }

    /// All tools were listed. A server that refuses has none.
    pub(crate) fn complete(&self, listing: &Listing) {
        self.with(|known| known.is_complete = known.forgotten == listing.forgotten);
    }

    fn with<T>(&self, act: impl FnOnce(&mut KnownTools) -> T) -> T {
        // Whatever was learnt is true, even if not all of it was.
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Listing ===

impl Listing {
    /// The request for the next page, in the era of the server: a modern one gets the capabilities of the client that makes the call. Nothing
    /// if there are no more.
    pub(crate) fn request(&mut self, era: Era, call: &Message) -> Option<Message> {
        if self.is_over || self.pages == PAGES {
            return None;
        }
        self.pages += 1;
        Message::parse(list_tools_request("0", era, call, self.cursor.as_deref())).ok()
    }

    /// Takes a page.
    pub(crate) fn take(&mut self, answer: &Message) {
        let next = next_cursor(answer);
        // One that goes in a circle has shown all it has.
        self.is_over = next.is_none() || next == self.cursor;
        self.cursor = next;
    }
}

/// A request for a page of the tools, in the name of the client that makes a call. `id` is JSON.
pub fn list_tools_request(id: &str, era: Era, call: &Message, cursor: Option<&str>) -> Bytes {
    let meta = match era {
        Era::Legacy => None,
        Era::Modern => Some(format!(r#""_meta":{}"#, meta_of(call))),
    };
    let cursor = cursor.map(|cursor| format!(r#""cursor":{}"#, Raw::string(cursor).as_str()));
    let params: Vec<String> = meta.into_iter().chain(cursor).collect();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{{}}}}}"#, params.join(",")).into()
}

/// The `_meta` of 2026-07-28 that says of the client what a call of it says.
fn meta_of(call: &Message) -> String {
    let text = |bytes: Option<&[u8]>| bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned);
    let capabilities = text(call.client_capabilities()).unwrap_or_else(|| "{}".to_owned());
    let info = text(call.client_info()).map(|info| format!(r#""io.modelcontextprotocol/clientInfo":{info},"#));
    format!(
        r#"{{{}"io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientCapabilities":{capabilities}}}"#,
        info.unwrap_or_default(),
        era::MODERN,
    )
}

/// Where the next page begins.
fn next_cursor(answer: &Message) -> Option<String> {
    skep_mcp::value::find_text(answer.result()?, &["nextCursor"]).map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::stdio::tests::message;

    #[test]
    fn so_many_tools_are_remembered() {
        let catalogue = ToolCatalogue::default();
        let tools: Vec<Value> = (0..=TOOLS).map(|index| json!({ "name": index.to_string() })).collect();
        catalogue.learn(&message(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": tools } })));
        assert_eq!(catalogue.with(|known| known.tools.len()), TOOLS);
        // Those that are known are renewed.
        let changed = json!({ "name": "0", "inputSchema": {} });
        catalogue.learn(&message(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [changed] } })));
        assert_eq!(catalogue.find("0", true).unwrap().len(), 0);
    }
}
