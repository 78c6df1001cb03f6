//! Requests of a client, as they go on.

use skep_mcp::splice::{self, SpliceError};
use skep_mcp::{Edit, Message, Raw, method, value};

use super::reply::Reply;
use crate::tool_search::{SEARCH, ToolSearch};

/// The longest description and keyword of a search, in bytes, and how many keywords there may be.
const DESCRIPTION: usize = 4096;
const KEYWORD: usize = 256;
const KEYWORDS: usize = 64;
/// Where the arguments of a call are.
const ARGUMENTS: [&str; 2] = ["params", "arguments"];
const INNER_NAME: [&str; 4] = ["params", "arguments", "parameters", "tool_name"];

/// A request as it goes on, and what its reply becomes.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) message: Message,
    pub(super) reply: Reply,
}

/// A request for the list of tools.
pub(super) fn list(request: &Message) -> Result<Rewritten, SpliceError> {
    searching(request, &ToolSearch::default(), Reply::Advertise)
}

/// A call of `find_tool`.
pub(super) fn find(request: &Message, is_filtered: bool) -> Result<Rewritten, SpliceError> {
    match search(method::arguments(request).unwrap_or(b"{}")) {
        Ok(search) => searching(request, &ToolSearch { lists_all: is_filtered, ..search }, Reply::Find),
        Err(problem) => refused(request, problem, Reply::RefuseFind),
    }
}

/// A call of `call_tool`. The name of the tool may have been put among its arguments.
pub(super) fn call(request: &Message) -> Result<Rewritten, SpliceError> {
    let name_in = |request: &Message, path: &[&str]| {
        let name = value::find_text(method::arguments(request)?, path).filter(|name| !name.is_empty());
        name.map(std::borrow::Cow::into_owned)
    };
    let (name, request) = match name_in(request, &["tool_name"]) {
        Some(name) => (Some(name), request.clone()),
        None => match name_in(request, &["parameters", "tool_name"]) {
            None => (None, request.clone()),
            Some(name) => (Some(name), splice::apply(request, &[Edit::remove(&INNER_NAME)])?),
        },
    };
    let Some(name) = name else {
        return refused(&request, "invalid arguments: tool_name is required".to_owned(), Reply::RefuseCall);
    };
    let arguments = method::arguments(&request).and_then(|arguments| value::find(arguments, &["parameters"]));
    let arguments = match arguments.filter(|arguments| *arguments != "null").unwrap_or("{}") {
        object if object.starts_with('{') => Raw::parse(object)?.into_owned(),
        _ => {
            let problem = "invalid arguments: parameters must be an object".to_owned();
            return refused(&request, problem, Reply::RefuseCall);
        }
    };
    let edits = [Edit::set(&["params", "name"], Raw::string(&name)), Edit::set(&ARGUMENTS, arguments)];
    Ok(Rewritten { message: splice::apply(&request, &edits)?, reply: Reply::Call(name) })
}

/// The search that the arguments of a call describe, or what is wrong with them.
fn search(arguments: &[u8]) -> Result<ToolSearch, String> {
    let Some(description) = value::find(arguments, &["tool_description"]).filter(|text| *text != "null") else {
        return Err("tool_description is required".to_owned());
    };
    let Some(description) = value::find_text(arguments, &["tool_description"]).filter(|_| description.starts_with('"'))
    else {
        return Err("invalid arguments: tool_description must be a string".to_owned());
    };
    if description.trim().is_empty() {
        return Err("tool_description is required".to_owned());
    }
    if description.len() > DESCRIPTION {
        let length = description.len();
        return Err(format!("invalid arguments: tool_description has {length} bytes; at most {DESCRIPTION} are read"));
    }
    Ok(ToolSearch { description: Some(description.into_owned()), keywords: keywords(arguments)?, lists_all: false })
}

fn keywords(arguments: &[u8]) -> Result<Vec<String>, String> {
    let Some(text) = value::find(arguments, &["tool_keywords"]).filter(|text| *text != "null") else {
        return Ok(Vec::new());
    };
    if text.len() > KEYWORDS * (KEYWORD + 4) * 2 {
        return Err("invalid arguments: tool_keywords is too long".to_owned());
    }
    let Ok(keywords) = serde_json::from_str::<Vec<String>>(text) else {
        return Err("invalid arguments: tool_keywords must be an array of strings".to_owned());
    };
    if keywords.len() > KEYWORDS || keywords.iter().any(|keyword| keyword.len() > KEYWORD) {
        return Err(format!(
            "invalid arguments: tool_keywords has more than {KEYWORDS} keywords, or one of more than {KEYWORD} bytes"
        ));
    }
    Ok(keywords)
}

/// A call that cannot be made. It goes on as a search for nothing: whether the client has a session is found out behind the chain.
fn refused(request: &Message, problem: String, reply: fn(String) -> Reply) -> Result<Rewritten, SpliceError> {
    searching(request, &ToolSearch::default(), reply(problem))
}

fn searching(request: &Message, search: &ToolSearch, reply: Reply) -> Result<Rewritten, SpliceError> {
    let edits = [
        Edit::set(&["method"], Raw::string("tools/list")),
        Edit::remove(&["params", "name"]),
        Edit::remove(&ARGUMENTS),
        Edit::remove(&["params", "cursor"]),
        Edit::set(&["params", "_meta", SEARCH], search.to_raw()),
    ];
    Ok(Rewritten { message: splice::apply(request, &edits)?, reply })
}
