//! The readable content: one resource, and one prompt.

use serde_json::{Map, Value, json};

use crate::server::Failure;
use crate::tool;

const WELCOME: &str = "skep://demo/welcome";
const PROMPT: &str = "use_tools";

/// The list of resources.
pub(crate) fn resources() -> Value {
    json!([{
        "uri": WELCOME,
        "name": "welcome",
        "title": "Welcome",
        "description": "What this server is and what to try with it.",
        "mimeType": "text/markdown",
    }])
}

/// The content of a resource, if it exists.
pub(crate) fn read(uri: &str) -> Option<Value> {
    (uri == WELCOME).then(|| json!({ "contents": [{ "uri": uri, "mimeType": "text/markdown", "text": welcome() }] }))
}

/// The list of prompts.
pub(crate) fn prompts() -> Value {
    json!([{
        "name": PROMPT,
        "title": "Solve with tools",
        "description": "Asks for a task to be solved with this server's tools.",
        "arguments": [{ "name": "task", "title": "Task", "description": "What to do.", "required": true }],
    }])
}

/// A prompt with its arguments filled in.
pub(crate) fn prompt(name: &str, arguments: Option<&Value>) -> Result<Value, Failure> {
    if name != PROMPT {
        return Err(Failure::invalid(format!("there is no prompt `{name}`")));
    }
    let none = Map::new();
    let arguments = match arguments {
        None | Some(Value::Null) => &none,
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err(Failure::invalid("`arguments` must be an object")),
    };
    let task = arguments.get("task").and_then(Value::as_str).filter(|task| !task.trim().is_empty());
    let task = task.ok_or_else(|| Failure::invalid("the prompt needs the argument `task`, a string"))?;
    let text = format!("Use the tools {} where they help, and say which ones you used.\n\nTask: {task}", names());
    Ok(json!({
        "description": "A task to be solved with tools.",
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
    }))
}

fn welcome() -> String {
    let mut text = "# Welcome to Skep\n\nThis is the demo server. Its tools compute and keep nothing:\n\n".to_owned();
    for tool in tool::TOOLS {
        text.push_str("- `");
        text.push_str(tool.name);
        text.push_str("`: ");
        text.push_str(tool.description);
        text.push('\n');
    }
    text
}

fn names() -> String {
    let names: Vec<&str> = tool::TOOLS.iter().map(|tool| tool.name).collect();
    names.join(", ")
}
