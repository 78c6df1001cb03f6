//! `skep call`: one call of a tool.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};

use super::mcp_client::McpClient;
use crate::cli::{Call, Output};
use crate::terminal;

#[tokio::main(flavor = "current_thread")]
pub(super) async fn run(arguments: &Call) -> Result<ExitCode> {
    let given = given_arguments(&arguments.arguments, arguments.json.as_deref())?;
    let params = Map::from_iter([
        ("name".to_owned(), Value::String(arguments.tool.clone())),
        ("arguments".to_owned(), Value::Object(given)),
    ]);
    let result = McpClient::with(&arguments.server, async |client| client.request("tools/call", params).await).await?;
    let read: Value = serde_json::from_str(result.get())?;
    let is_error = read.get("isError") == Some(&Value::Bool(true));
    let text = text(&read);
    match arguments.output {
        Output::Json => terminal::print_json(&result)?,
        Output::Text if is_error => bail!("tool `{}` failed: {text}", arguments.tool),
        Output::Text => terminal::print(&shown(&text, std::io::stdout().is_terminal()))?,
    }
    Ok(if is_error { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The arguments of a tool: each as NAME=VALUE, or all as a JSON object.
pub(super) fn given_arguments(given: &[String], json: Option<&str>) -> Result<Map<String, Value>> {
    match json {
        Some(json) => serde_json::from_str(json).context("--json is not a JSON object"),
        None => named(given),
    }
}

/// Arguments of a command line. A value that is JSON is that, and any other one is text.
fn named(given: &[String]) -> Result<Map<String, Value>> {
    let mut arguments = Map::new();
    for argument in given {
        let Some((name, value)) = argument.split_once('=') else {
            bail!("`{argument}` is not an argument; write NAME=VALUE");
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        if arguments.insert(name.to_owned(), value).is_some() {
            bail!("the argument `{name}` is given twice");
        }
    }
    Ok(arguments)
}

/// The text of a result. What is no text is named; a result without content is its structured content.
fn text(result: &Value) -> String {
    let content = result.get("content").and_then(Value::as_array).filter(|content| !content.is_empty());
    let Some(content) = content else {
        return result.get("structuredContent").map(ToString::to_string).unwrap_or_default();
    };
    let part = |part: &Value| {
        let member = |name: &str| part.get(name).and_then(Value::as_str);
        let embedded = part.pointer("/resource/text").and_then(Value::as_str);
        match member("text").or(embedded) {
            Some(text) => text.to_owned(),
            None => {
                format!("[{}]", member("mimeType").or(member("uri")).or(member("type")).unwrap_or("unknown content"))
            }
        }
    };
    content.iter().map(part).collect::<Vec<_>>().join("\n")
}

/// The text as it is printed: on a terminal, nothing in it is obeyed but line breaks.
fn shown(text: &str, is_terminal: bool) -> String {
    if text.is_empty() {
        return String::new();
    }
    if is_terminal {
        let lines = text.lines().map(|line| terminal::visible(&line.replace('\t', "    ")).into_owned() + "\n");
        return lines.collect();
    }
    format!("{text}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_argument_is_json_or_text() {
        let given = |given: &[&str]| named(&given.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        let read = given(&["a=1", "b=x=y", "c=[true]", r#"d="5""#, "e="]).unwrap();
        assert_eq!(Value::Object(read), json!({ "a": 1, "b": "x=y", "c": [true], "d": "5", "e": "" }));
        assert!(given(&["a"]).is_err() && given(&["a=1", "a=2"]).is_err());
    }

    #[test]
    fn the_text_of_a_result_is_printed_and_nothing_in_it_is_obeyed() {
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        let result = json!({ "content": [{ "type": "text", "text": "one\ntwo" }, image] });
        assert_eq!(text(&result), "one\ntwo\n[image/png]");
        assert_eq!(text(&json!({ "content": [], "structuredContent": { "a": 1 } })), r#"{"a":1}"#);
        assert_eq!(shown("a\n\u{1b}[2J\tb", true), "a\n\\u{1b}[2J    b\n");
        assert_eq!(shown("a\u{1b}", false), "a\u{1b}\n");
        assert_eq!(shown("", false), "");
    }
}
