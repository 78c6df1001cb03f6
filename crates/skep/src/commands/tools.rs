//! `skep tools`: the tools of an MCP server.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use super::mcp_client::McpClient;
use crate::cli::{Output, Tools};
use crate::terminal;

/// A tool, as people see it: its name, its arguments, and what it does.
type Row = [String; 3];

#[tokio::main(flavor = "current_thread")]
pub(super) async fn run(arguments: &Tools) -> Result<ExitCode> {
    let tools = McpClient::with(&arguments.server, async |client| client.list("tools/list", "tools").await).await?;
    match arguments.output {
        Output::Json => terminal::print_json(&tools)?,
        Output::Text => {
            let rows: Vec<Row> = tools.iter().map(row).collect();
            terminal::print(&if std::io::stdout().is_terminal() { table(&rows) } else { lines(&rows) })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(tool: &Value) -> Row {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let title = text(tool.get("title")).or_else(|| text(tool.pointer("/annotations/title")));
    let about = title.or_else(|| text(tool.get("description"))).unwrap_or_default();
    let about = about.lines().next().unwrap_or_default().trim().to_owned();
    [text(tool.get("name")).unwrap_or_default(), arguments(tool), about]
        .map(|cell| terminal::visible(&cell).into_owned())
}

/// The arguments of a tool, those that may be left out with a question mark.
fn arguments(tool: &Value) -> String {
    let required = tool.pointer("/inputSchema/required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|required| required.iter().any(|one| one == name));
    let properties = tool.pointer("/inputSchema/properties").and_then(Value::as_object);
    let names = properties.into_iter().flat_map(|properties| properties.keys());
    let names = names.map(|name| if is_required(name) { name.clone() } else { format!("{name}?") });
    names.collect::<Vec<_>>().join(",")
}

/// For people: in columns.
fn table(rows: &[Row]) -> String {
    let header = ["NAME", "ARGUMENTS", "DESCRIPTION"].map(str::to_owned);
    let rows: Vec<&Row> = std::iter::once(&header).chain(rows).collect();
    let width = |column: fn(&Row) -> &String| rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0);
    let (names, arguments) = (width(|[name, ..]| name), width(|[_, arguments, _]| arguments));
    let line = |[name, given, about]: &Row| {
        let line = format!("{name:names$}  {given:arguments$}  {about}");
        format!("{}\n", line.trim_end())
    };
    rows.into_iter().map(line).collect()
}

/// For programs: one line for each tool, with tabs.
fn lines(rows: &[Row]) -> String {
    rows.iter().map(|row| row.join("\t") + "\n").collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_one_line_whatever_its_server_says() {
        let schema = json!({ "properties": { "a": {}, "b": {} }, "required": ["b"] });
        let add = json!({ "name": "add", "description": "\n Adds.\nMore.", "inputSchema": schema });
        let titled = json!({ "name": "x\u{1b}[2J", "title": "Title\nmore", "description": "no" });
        let rows: Vec<Row> = [add, titled, json!({})].iter().map(row).collect();
        assert_eq!(rows[0], ["add", "a?,b", ""]);
        assert_eq!(rows[1], ["x\\u{1b}[2J", "", "Title"]);
        assert_eq!(lines(&rows[1..2]), "x\\u{1b}[2J\t\tTitle\n");
        assert_eq!(table(&rows[..1]), "NAME  ARGUMENTS  DESCRIPTION\nadd   a?,b\n");
    }
}
