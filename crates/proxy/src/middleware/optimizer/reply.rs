//! Replies of the server, as the client sees them.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::json;
use skep_mcp::list::{self, List, Verdict};
use skep_mcp::{Edit, Kind, Message, MessageError, Raw, answer, splice, value};

use super::{CALL, FIND};
use crate::chain::reply::{ReplyMiddleware, ReplyStep, Withheld};
use crate::metrics::{FoundTools, OptimizerCounters};
use crate::tool_search::{RANKINGS, ToolRankings};

/// How many bytes of JSON count as a token.
const BYTES_PER_TOKEN: usize = 4;
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// What a reply becomes.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// The list of the two tools.
    Advertise,
    /// The result of a search.
    Find,
    /// A search was not made, for this reason.
    RefuseFind(String),
    /// A call was not made, for this reason.
    RefuseCall(String),
    /// The result of a call of this tool.
    Call(String),
}

/// The reply to one request.
#[derive(Debug)]
pub(super) struct ReplyTo {
    pub(super) reply: Reply,
    pub(super) asked: Instant,
    pub(super) counters: OptimizerCounters,
}

impl ReplyMiddleware for ReplyTo {
    fn reply(&self, reply: Message) -> ReplyStep<'_> {
        ReplyStep::Ready(self.translate(reply))
    }
}

// === impl ReplyTo ===

impl ReplyTo {
    fn translate(&self, reply: Message) -> Result<Message, Withheld> {
        if !matches!(reply.kind(), Kind::Response | Kind::Error) {
            return Ok(reply);
        }
        match &self.reply {
            Reply::Advertise => advertise(&reply),
            Reply::Find => self.found(&reply),
            Reply::RefuseFind(problem) => {
                self.counters.found(self.asked.elapsed(), None);
                failed(&reply, problem)
            }
            Reply::RefuseCall(problem) => {
                self.counters.called(self.asked.elapsed(), true, false);
                failed(&reply, problem)
            }
            Reply::Call(name) => self.called(reply, name),
        }
    }

    /// The tools that were found, as the result of the call.
    fn found(&self, reply: &Message) -> Result<Message, Withheld> {
        if reply.kind() == Kind::Error {
            self.counters.found(self.asked.elapsed(), None);
            let problem = reply.error().and_then(|error| value::find_text(error, &["message"])).unwrap_or_default();
            return failed(reply, &format!("find_tool failed: {}", value::clipped(&problem)));
        }
        let Some(rankings) = ToolRankings::of(reply) else {
            self.counters.found(self.asked.elapsed(), None);
            return failed(reply, "find_tool failed: the server cannot search its tools");
        };
        let mut listed: BTreeMap<String, String> = BTreeMap::new();
        let mut listed_bytes = 0;
        let read = list::rewrite(reply, List::Tools, |tool| {
            listed_bytes += tool.raw.len() + 1;
            listed.insert(tool.name.clone().into_owned(), tool.raw.to_owned());
            Verdict::Keep
        });
        read.map_err(Withheld)?;
        let best = rankings.best(|name| listed.contains_key(name));
        let tools: Vec<&str> = best.iter().filter_map(|name| listed.get(*name).map(String::as_str)).collect();
        let (results, tools) = (tools.len(), tools.join(","));
        let baseline = rankings.all_bytes.unwrap_or(listed_bytes) / BYTES_PER_TOKEN;
        let returned = tools.len() / BYTES_PER_TOKEN;
        let savings = savings(baseline, returned);
        let metrics = json!({ "baseline_tokens": baseline, "returned_tokens": returned, "savings_percent": savings });
        self.counters.found(self.asked.elapsed(), Some(FoundTools { results, savings }));
        let output = format!(r#"{{"tools":[{tools}],"token_metrics":{metrics}}}"#);
        let text = Raw::string(&output);
        let content = format!(r#""content":[{{"type":"text","text":{}}}],"structuredContent":{output}"#, text.as_str());
        result(reply, &content)
    }

    /// The result of a call. A tool that is not there is an error of `call_tool`, and not of the protocol.
    fn called(&self, reply: Message, name: &str) -> Result<Message, Withheld> {
        let not_found = not_found(name);
        let message = reply.error().and_then(|error| value::find_text(error, &["message"]));
        let code = reply.error().and_then(|error| value::find(error, &["code"])).and_then(|code| code.parse().ok());
        let is_missing = message.is_some_and(|message| message == not_found) && code == Some(answer::INVALID_PARAMS);
        let is_error = reply.kind() == Kind::Error
            || reply.result().and_then(|result| value::find(result, &["isError"])) == Some("true");
        self.counters.called(self.asked.elapsed(), is_error, is_missing);
        if is_missing { failed(&reply, &not_found) } else { Ok(reply) }
    }
}

/// What a tool is called that is not there.
pub fn not_found(name: &str) -> String {
    format!("tool not found: {}", value::clipped(name))
}

/// The list of the two tools.
fn advertise(reply: &Message) -> Result<Message, Withheld> {
    if reply.kind() == Kind::Error {
        return Ok(reply.clone());
    }
    let edits = [
        Edit::set(&["result", "tools"], tools()),
        Edit::remove(&["result", "nextCursor"]),
        Edit::remove(&["result", "_meta", RANKINGS]),
    ];
    splice::apply(reply, &edits).map_err(|_malformed| unusable())
}

/// The result of a call that was not made.
fn failed(reply: &Message, problem: &str) -> Result<Message, Withheld> {
    let text = Raw::string(problem);
    result(reply, &format!(r#""content":[{{"type":"text","text":{}}}],"isError":true"#, text.as_str()))
}

/// A result of these members, with those that say which era it is of and who answers.
fn result(reply: &Message, members: &str) -> Result<Message, Withheld> {
    let found = |path: &[&str]| reply.result().and_then(|result| value::find(result, path));
    let kind = found(&["resultType"]).map(|kind| format!(r#","resultType":{kind}"#)).unwrap_or_default();
    let server = found(&["_meta", SERVER_INFO]);
    let server = server.map(|server| format!(r#","_meta":{{"{SERVER_INFO}":{server}}}"#)).unwrap_or_default();
    let id = reply.id().ok_or_else(unusable)?;
    let result = Raw::trusted(format!("{{{members}{kind}{server}}}"));
    Message::response(&id, &result).ok_or_else(unusable)
}

fn unusable() -> Withheld {
    Withheld(MessageError::NoKind)
}

/// By how much smaller what is returned is, in percent.
fn savings(baseline: usize, returned: usize) -> f64 {
    let number = |tokens: usize| u32::try_from(tokens).map_or(f64::from(u32::MAX), f64::from);
    if baseline == 0 || returned >= baseline {
        return 0.0;
    }
    (1.0 - number(returned) / number(baseline)) * 100.0
}

/// The two tools as clients see them.
fn tools() -> Raw<'static> {
    Raw::value(&json!([
        {
            "name": CALL,
            "description": "Calls a tool that `find_tool` found. Pass its name, and the arguments that its inputSchema describes.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "tool_name": { "type": "string", "description": "The name of the tool, as find_tool returned it" },
                    "parameters": { "type": "object", "description": "The arguments of the tool, as its inputSchema describes them" },
                },
                "required": ["tool_name", "parameters"],
            },
        },
        {
            "name": FIND,
            "description": "Finds tools by what they do. Describe the task; the result has the tools that fit best, with their schemas, \
                            for `call_tool`.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "tool_description": { "type": "string", "description": "What the tool should do, in natural language" },
                    "tool_keywords": {
                        "type": "array",
                        "items": { "type": "string" },
                        "description": "Words that the name or the description of the tool should have",
                    },
                },
                "required": ["tool_description"],
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
    ]))
}
