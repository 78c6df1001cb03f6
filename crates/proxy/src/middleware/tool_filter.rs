//! Which tools clients see and may call, and under which names.
//!
//! A list of names is of those that clients see. An override maps the server's name of a tool to the one that is seen; a call by
//! the seen name reaches the server by its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::{Method, StatusCode};
use skep_mcp::list::{self, Change, List, Verdict};
use skep_mcp::{Edit, Message, Raw, splice};
use skep_runconfig::parameters::ToolFilter;
use skep_runconfig::run_config::MiddlewareConfig;

use super::parser::refuse_unreadable;
use crate::chain::reply::{ReplyMiddleware, ReplyStep, Withheld};
use crate::chain::{ChainError, Context, Middleware, Pass, Step};
use crate::exchange::Exchange;
use crate::http::{accepts, empty, json};

/// Shows a client the tools that it may see, under the names that it may see.
#[derive(Debug)]
struct ListFilter(Arc<Rules>);

/// Lets a client call the tools that it may see.
#[derive(Debug)]
struct CallFilter(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    /// The names that may be seen; `None` means all.
    seen: Option<BTreeSet<String>>,
    /// What is seen instead, by the server's name.
    shown: BTreeMap<String, Shown>,
    /// The server's name, by the one that is seen.
    actual: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Shown {
    name: Option<String>,
    description: Option<String>,
}

pub(super) fn build_list_filter(
    config: &MiddlewareConfig,
    _: &Context,
) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    super::some(ListFilter(rules(config)?))
}

pub(super) fn build_call_filter(
    config: &MiddlewareConfig,
    _: &Context,
) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    super::some(CallFilter(rules(config)?))
}

fn rules(config: &MiddlewareConfig) -> Result<Arc<Rules>, ChainError> {
    let rules = Rules::new(&super::parameters::<ToolFilter>(config)?);
    rules.map(Arc::new).map_err(|problem| super::invalid(&config.kind, problem))
}

// === impl Rules ===

impl Rules {
    fn new(parameters: &ToolFilter) -> Result<Self, String> {
        let seen = parameters.filter_tools.as_ref().filter(|tools| !tools.is_empty());
        if seen.is_none() && parameters.tools_override.is_empty() {
            return Err("there is neither a tool to show nor one to rename".to_owned());
        }
        if seen.is_some_and(|seen| seen.iter().any(String::is_empty)) {
            return Err("filter_tools has a tool without a name".to_owned());
        }
        let (mut shown, mut actual) = (BTreeMap::new(), BTreeMap::new());
        for (name, one) in &parameters.tools_override {
            let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
            let (new, description) = (given(&one.name), given(&one.description));
            if name.is_empty() || (new.is_none() && description.is_none()) {
                return Err(format!("tools_override.{name} gives neither a name nor a description"));
            }
            if let Some(new) = &new
                && let Some(other) = actual.insert(new.clone(), name.clone())
            {
                return Err(format!("`{other}` and `{name}` would both be called `{new}`"));
            }
            shown.insert(name.clone(), Shown { name: new, description });
        }
        let seen = seen.map(|seen| seen.iter().cloned().collect());
        Ok(Self { seen, shown, actual })
    }

    fn is_seen(&self, name: &str) -> bool {
        self.seen.as_ref().is_none_or(|seen| seen.contains(name))
    }

    /// The name under which a tool of the server is seen.
    fn name_of<'a>(&'a self, actual: &'a str) -> &'a str {
        self.shown.get(actual).and_then(|shown| shown.name.as_deref()).unwrap_or(actual)
    }

    /// The server's name of a tool that is seen under a name; nothing if there is none.
    fn actual(&self, seen: &str) -> Option<String> {
        if !self.is_seen(seen) {
            return None;
        }
        match self.actual.get(seen) {
            Some(actual) => Some(actual.clone()),
            // A tool that was renamed is not there under its old name any more.
            None if self.name_of(seen) != seen => None,
            None => Some(seen.to_owned()),
        }
    }

    /// A list of tools as the client should see it. Any other reply stays as it is.
    fn rewrite(&self, reply: Message) -> Result<Message, Withheld> {
        let rewritten = list::rewrite(&reply, List::Tools, |tool| {
            let name = self.name_of(&tool.name);
            // Another tool of the server may have the very name that one was renamed to.
            let is_shadowed = name == tool.name && self.actual.get(name).is_some_and(|actual| *actual != *tool.name);
            if is_shadowed || !self.is_seen(name) {
                return Verdict::Drop;
            }
            match self.shown.get(tool.name.as_ref()) {
                None => Verdict::Keep,
                Some(shown) => Verdict::Change(Change {
                    name: shown.name.clone(),
                    description: shown.description.clone(),
                    annotations: None,
                }),
            }
        });
        match rewritten {
            Ok(None) => Ok(reply),
            Ok(Some(body)) => Message::parse(body).map_err(Withheld),
            Err(why) => Err(Withheld(why)),
        }
    }
}

impl ReplyMiddleware for Rules {
    fn reply(&self, reply: Message) -> ReplyStep<'_> {
        ReplyStep::Ready(self.rewrite(reply))
    }
}

// === impl ListFilter ===

impl Middleware for ListFilter {
    /// Asks for the reply to a request for the list. It may also come on a stream that no message asked for, to a client that lost the
    /// first one; and on the stream for replies to other requests.
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        if let Some(refusal) = refuse_unreadable(exchange) {
            return refusal.into();
        }
        exchange.head.watch_other_replies(self.0.clone());
        let lists = exchange.message().is_none_or(|message| message.method() == Some(List::Tools.method()));
        if lists || exchange.head.method != Method::POST {
            exchange.head.watch_replies(self.0.clone());
        }
        Step::NEXT
    }

    fn needs_message(&self) -> bool {
        true
    }
}

// === impl CallFilter ===

impl CallFilter {
    /// Lets a call through under the server's name of the tool, if the tool may be called.
    fn incoming<'a>(&self, exchange: &mut Exchange) -> Step<'a> {
        let Some(message) = exchange.message().filter(|message| message.method() == Some("tools/call")) else {
            return Step::NEXT;
        };
        let name = skep_mcp::method::resource(message).map(std::borrow::Cow::into_owned);
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return empty(StatusCode::BAD_REQUEST).into();
        };
        let Some(actual) = self.0.actual(&name) else { return refuse(exchange) };
        if actual != name {
            let edit = Edit::set(&["params", "name"], Raw::string(&actual));
            match splice::apply(message, &[edit]) {
                Ok(renamed) => exchange.replace(renamed),
                Err(_) => return empty(StatusCode::BAD_REQUEST).into(),
            }
        }
        Step::NEXT
    }

    /// Checks a call that goes to the server under the server's name of the tool.
    fn outgoing<'a>(&self, exchange: &Exchange) -> Step<'a> {
        let Some(message) = exchange.message().filter(|message| message.method() == Some("tools/call")) else {
            return Step::NEXT;
        };
        let name = skep_mcp::method::resource(message).unwrap_or_default();
        if self.0.is_seen(self.0.name_of(&name)) { Step::NEXT } else { refuse(exchange) }
    }
}

impl Middleware for CallFilter {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, pass: Pass) -> Step<'a> {
        if let Some(refusal) = refuse_unreadable(exchange) {
            return refusal.into();
        }
        match pass {
            Pass::Incoming => self.incoming(exchange),
            Pass::Outgoing => self.outgoing(exchange),
        }
    }

    fn enforces(&self) -> bool {
        true
    }

    fn needs_message(&self) -> bool {
        true
    }
}

/// The answer to a call of a tool that is not there for this client.
fn refuse<'a>(exchange: &Exchange) -> Step<'a> {
    let headers = &exchange.head.headers;
    let takes_json = headers.get_all(http::header::ACCEPT).into_iter().all(http::HeaderValue::is_empty)
        || ["application/json", "application/*", "*/*"].iter().any(|media| accepts(headers, media));
    if !takes_json {
        return empty(StatusCode::BAD_REQUEST).into();
    }
    let id = exchange.message().and_then(Message::id);
    json(StatusCode::OK, skep_mcp::answer::tool_not_found(id.as_ref())).into()
}

#[cfg(test)]
mod tests;
