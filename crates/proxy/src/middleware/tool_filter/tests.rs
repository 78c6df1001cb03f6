use serde_json::{Value, json};
use skep_runconfig::Field as _;
use skep_runconfig::json::Json;

use super::*;

fn tools(parameters: &Value) -> Result<Rules, String> {
    let parameters = Json::from_slice(parameters.to_string().as_bytes()).unwrap();
    Rules::new(&ToolFilter::read(parameters).unwrap())
}

fn listed(tools: &Rules, names: &[&str]) -> Vec<Value> {
    let all: Vec<Value> = names.iter().map(|name| json!({ "name": name, "schema": format!("of {name}") })).collect();
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": all } });
    let answer = Message::parse(answer.to_string().into()).unwrap();
    let seen = tools.rewrite(answer).unwrap();
    let seen: Value = serde_json::from_slice(seen.body()).unwrap();
    seen["result"]["tools"].as_array().unwrap().clone()
}

#[test]
fn a_swap_of_names_keeps_each_schema_with_its_tool() {
    let swapped =
        tools(&json!({ "filter_tools": null, "tools_override": { "a": { "name": "b" }, "b": { "name": "a" } } }))
            .unwrap();
    let seen = listed(&swapped, &["a", "b", "c"]);
    let pairs: Vec<(Value, Value)> = seen.iter().map(|tool| (tool["name"].clone(), tool["schema"].clone())).collect();
    let of = |name: &str, of: &str| (json!(name), json!(format!("of {of}")));
    assert_eq!(pairs, [of("b", "a"), of("a", "b"), of("c", "c")]);
    assert_eq!(swapped.actual("a").as_deref(), Some("b"));
    assert_eq!(swapped.actual("b").as_deref(), Some("a"));
}

#[test]
fn a_tool_that_has_the_name_another_one_was_given_is_not_seen() {
    let renamed = tools(&json!({ "filter_tools": null, "tools_override": { "a": { "name": "b" } } })).unwrap();
    let seen = listed(&renamed, &["a", "b"]);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["schema"], "of a");
    assert_eq!(renamed.actual("b").as_deref(), Some("a"));
    assert_eq!(renamed.actual("a"), None, "it is not there under its old name");
}

#[test]
fn rules_that_cannot_be_meant_are_refused() {
    for (parameters, part) in [
        (json!({ "filter_tools": null, "tools_override": {} }), "neither"),
        (json!({ "filter_tools": [], "tools_override": {} }), "neither"),
        (json!({ "filter_tools": [""], "tools_override": {} }), "without a name"),
        (json!({ "filter_tools": null, "tools_override": { "a": {} } }), "neither a name nor a description"),
        (json!({ "filter_tools": null, "tools_override": { "a": { "name": "x" }, "b": { "name": "x" } } }), "both"),
    ] {
        assert!(tools(&parameters).unwrap_err().contains(part), "{parameters}");
    }
}

#[test]
fn a_reply_that_cannot_be_evaluated_is_withheld() {
    let filter = tools(&json!({ "filter_tools": ["a"], "tools_override": {} })).unwrap();
    for answer in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"title":"nameless"}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":"all"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"tools":[{"name":"b"}]}}"#,
    ] {
        let answer = Message::parse(answer.into()).unwrap();
        assert!(filter.rewrite(answer).is_err());
    }
}
