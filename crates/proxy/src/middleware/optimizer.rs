//! Shows clients a search over the tools instead of the tools: `find_tool`, and `call_tool` for what it finds.
//!
//! | the client sends | what goes on |
//! | --- | --- |
//! | `tools/list` | `tools/list`, answered by the two tools |
//! | `tools/call find_tool` | `tools/list` with a [search](crate::tool_search), whose response becomes the result of the call |
//! | `tools/call call_tool` | `tools/call` of the tool that it names |
//!
//! It stands before everything that decides: limits, webhooks, policies and the audit log see the tool that is called, and lists that they
//! filter as any. A search cannot find what the list would not show, and `call_tool` calls nothing that could not be called by its name.

mod reply;
mod request;

use std::sync::Arc;
use std::time::Instant;

use http::{Method, StatusCode};
use skep_mcp::{Kind, headers, method};
use skep_runconfig::parameters;
use skep_runconfig::run_config::MiddlewareConfig;

use self::reply::ReplyTo;
pub use self::reply::not_found;
use self::request::Rewritten;
use crate::chain::{AskedAs, ChainError, Context, Middleware, Pass, Step};
use crate::exchange::Exchange;
use crate::http::{empty, json};
use crate::metrics::OptimizerCounters;

/// The tools that clients see.
const FIND: &str = "find_tool";
const CALL: &str = "call_tool";

/// Translates between clients that see two tools and a server that has many.
#[derive(Debug)]
struct Optimizer {
    /// Whether a middleware behind this filters lists.
    is_filtered: bool,
    counters: OptimizerCounters,
}

pub(super) fn build(config: &MiddlewareConfig, context: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    let is_filtered = super::parameters::<parameters::Optimizer>(config)?.is_filtered;
    super::some(Optimizer { is_filtered, counters: context.optimizer.clone() })
}

impl Middleware for Optimizer {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        let request = exchange.message().filter(|message| message.kind() == Kind::Request);
        let Some(request) = request.filter(|_| exchange.head.method == Method::POST) else { return Step::NEXT };
        let name = method::resource(request);
        let (rewritten, asked) = match (request.method(), name.as_deref()) {
            (Some("tools/list"), _) => (request::list(request), None),
            (Some("tools/call"), Some(FIND)) => (request::find(request, self.is_filtered), Some(FIND)),
            (Some("tools/call"), Some(CALL)) => (request::call(request), Some(CALL)),
            _ => return Step::NEXT,
        };
        // Headers will say what goes on, so what the client's say is checked here.
        if let Err(refusal) = headers::check(&exchange.head.headers, request) {
            return json(StatusCode::BAD_REQUEST, refusal.answer(request.id().as_ref())).into();
        }
        let Ok(Rewritten { message, reply }) = rewritten else { return empty(StatusCode::BAD_REQUEST).into() };
        // What became a list is still a call to the audit log.
        if message.method() == Some("tools/list")
            && let Some(tool) = asked
        {
            exchange.notes.insert(AskedAs { method: "tools/call", name: tool });
        }
        exchange.replace(message);
        let reply = ReplyTo { reply, asked: Instant::now(), counters: self.counters.clone() };
        exchange.head.watch_replies(Arc::new(reply));
        Step::NEXT
    }

    fn needs_message(&self) -> bool {
        true
    }
}

/// Whether a name is that of one of the two tools, which no other tool can have.
pub fn is_reserved_tool(name: &str) -> bool {
    name == FIND || name == CALL
}

#[cfg(test)]
mod tests;
