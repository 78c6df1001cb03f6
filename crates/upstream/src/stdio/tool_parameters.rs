//! What is known of the server's tools: which of their arguments headers repeat.
//!
//! Over stdio, the proxy is the HTTP server that a client talks to, so it has to see that headers and arguments agree. The schemas
//! that say so are learnt from lists that callers ask for, and asked for when a call cannot be judged without. What is known
//! is forgotten when the server says that its tools changed, and when it goes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use skep_mcp::headers::parameters::{self, Parameter};
use skep_mcp::list::{self, List, Verdict};
use skep_mcp::{Era, Kind, Message, Raw, era, method};

use super::upstream::StdioUpstream;
use crate::error::CallError;

/// How many tools are remembered. Calls of others are not judged.
const TOOLS: usize = 10_000;
/// How many pages of the list are asked for.
const PAGES: usize = 100;

/// What is known of the server's tools.
#[derive(Debug, Default)]
pub(super) struct ToolCatalogue {
    known: Mutex<KnownTools>,
    /// One caller asks, the others wait.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownTools {
    /// How often everything was forgotten.
    forgotten: u64,
    tools: HashMap<String, Arc<[Parameter]>>,
    /// Whether the server was asked for all of them.
    is_complete: bool,
}

// === impl StdioUpstream ===

impl StdioUpstream {
    /// The arguments of a call that headers repeat. `is_claimed` says that there are such headers: then a tool that is new to us is
    /// asked for, even if all were asked for before.
    pub(super) async fn parameters(
        self: &Arc<Self>,
        call: &Message,
        is_claimed: bool,
    ) -> Result<Arc<[Parameter]>, CallError> {
        let Some(tool) = method::resource(call) else { return Ok(Arc::default()) };
        if let Some(found) = self.catalogue.find(&tool, is_claimed) {
            return Ok(found);
        }
        let _one_at_a_time = self.catalogue.asking.lock().await;
        if let Some(found) = self.catalogue.find(&tool, is_claimed) {
            return Ok(found);
        }
        self.ask_for_tools(call).await?;
        Ok(self.catalogue.find(&tool, false).unwrap_or_default())
    }

    /// Asks for all tools, in the era of the server: one of 2026-07-28 is told what the client of the call can do, a legacy one was
    /// initialized and knows no such `_meta`. The answers are learnt from on their way.
    async fn ask_for_tools(self: &Arc<Self>, call: &Message) -> Result<(), CallError> {
        let era = self.ready().await?;
        let before = self.catalogue.with(|known| known.forgotten);
        let mut cursor = None;
        for _ in 0..PAGES {
            let request = Message::parse(list_tools(era, call, cursor.as_deref())).map_err(|_| CallError::NotSent)?;
            let mut asked = self.call_internally(&request).await?;
            let answer = asked.response().await?;
            let next = next_cursor(&answer);
            // One that goes in a circle has shown all it has.
            if next.is_none() || next == cursor {
                break;
            }
            cursor = next;
        }
        // A server that refuses has none.
        self.catalogue.with(|known| known.is_complete = known.forgotten == before);
        Ok(())
    }
}

// === impl ToolCatalogue ===

impl ToolCatalogue {
    /// Learns from an answer to `tools/list`.
    pub(super) fn learn(&self, answer: &Message) {
        if answer.kind() != Kind::Response {
            return;
        }
        let mut found = Vec::new();
        let walked = list::rewrite(answer, List::Tools, |tool| {
            found.push((tool.name.clone().into_owned(), Arc::from(parameters::of(tool))));
            Verdict::Keep
        });
        if let Err(why) = walked {
            tracing::debug!(%why, "a list of tools cannot be read");
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
    pub(super) fn forget(&self) {
        self.with(|known| *known = KnownTools { forgotten: known.forgotten + 1, ..KnownTools::default() });
    }

    /// The arguments of a tool that headers repeat. Nothing if the server must be asked.
    fn find(&self, tool: &str, is_claimed: bool) -> Option<Arc<[Parameter]>> {
        self.with(|known| {
            let is_none = known.is_complete && (!is_claimed || known.tools.len() >= TOOLS);
            known.tools.get(tool).cloned().or_else(|| is_none.then(Arc::default))
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut KnownTools) -> T) -> T {
        // Whatever was learnt is true, even if not all of it was.
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request for a page of the tools.
fn list_tools(era: Era, call: &Message, cursor: Option<&str>) -> Bytes {
    let meta = match era {
        Era::Legacy => None,
        Era::Modern => Some(format!(r#""_meta":{}"#, meta_of(call))),
    };
    let cursor = cursor.map(|cursor| format!(r#""cursor":{}"#, Raw::string(cursor).as_str()));
    let params: Vec<String> = meta.into_iter().chain(cursor).collect();
    format!(r#"{{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{{{}}}}}"#, params.join(",")).into()
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
mod tests;
