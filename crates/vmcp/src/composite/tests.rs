use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use skep_api::kinds::CompositeTool as Definition;

use super::*;

/// What steps call in these tests: `echo` returns its arguments, `fail` reports an error, `flaky` fails twice, `slow` never returns.
#[derive(Debug, Default)]
struct Calls {
    called: Mutex<Vec<(String, Value)>>,
    failures: AtomicUsize,
    answer: Option<Answer>,
}

impl StepCalls for Calls {
    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'a, Result<ToolResult, StepError>> {
        Box::pin(async move {
            self.called.lock().unwrap().push((tool.to_owned(), Value::Object(arguments.clone())));
            let failed = |text: &str| {
                let content = Map::from_iter([("text".to_owned(), json!(text))]);
                Ok(ToolResult { content, is_error: true, ..ToolResult::default() })
            };
            match tool {
                "fail" => failed("it broke"),
                "flaky" if self.failures.fetch_add(1, Ordering::Relaxed) < 2 => failed("not yet"),
                "slow" => std::future::pending().await,
                "gone" => Err(StepError::Call("tool `gone`: the connection to the server was lost".to_owned())),
                "large" => Ok(ToolResult { bytes: RESULTS / 4, ..ToolResult::default() }),
                _ => Ok(ToolResult { output: Value::Object(arguments), ..ToolResult::default() }),
            }
        })
    }

    fn elicit<'a>(&'a self, message: &'a str, _schema: &'a Value) -> BoxFuture<'a, Result<Answer, StepError>> {
        Box::pin(async move {
            self.called.lock().unwrap().push(("?".to_owned(), json!(message)));
            match &self.answer {
                Some(answer) => Ok(answer.clone()),
                None => std::future::pending().await,
            }
        })
    }

    fn schema(&self, _tool: &str) -> Option<Value> {
        Some(json!({ "properties": { "n": { "type": "integer" }, "f": { "type": "number" }, "b": { "type": "boolean" },
            "deep": { "type": "object", "properties": { "n": { "type": "integer" } } },
            "list": { "type": "array", "items": { "type": "integer" } } } }))
    }
}

fn tool(definition: &Value) -> Arc<CompositeTool> {
    let mut definition = definition.clone();
    definition["name"] = json!("t");
    definition["description"] = json!("d");
    let definition: Definition = serde_json::from_value(definition).unwrap();
    CompositeTools::new(&[definition]).unwrap().get("t").unwrap().clone()
}

async fn run_with(calls: &Arc<Calls>, definition: &Value, params: &Value) -> Result<Value, String> {
    let params = params.as_object().unwrap().clone();
    Workflow::new(tool(definition), params, calls.clone()).run().await.map_err(|error| error.to_string())
}

async fn run(definition: &Value, params: &Value) -> Result<Value, String> {
    run_with(&Arc::new(Calls::default()), definition, params).await
}

#[tokio::test(start_paused = true)]
async fn steps_pass_their_results_on_in_the_types_that_tools_want() {
    let definition = json!({
        "parameters": { "type": "object", "properties": { "q": { "type": "string" }, "k": { "default": 3 } } },
        "steps": [
            { "id": "a", "tool": "echo", "arguments": { "text": "{{.params.q}}", "n": "{{.params.k}}", "plain": [1, true] } },
            { "id": "b", "tool": "echo", "dependsOn": ["a"], "arguments": {
                "n": "{{.steps.a.output.n}}", "f": "1.5", "b": "{{eq .steps.a.status \"completed\"}}",
                "deep": { "n": "7" }, "list": "[\"1\", 2]", "text": "<{{.steps.a.output.text}}>" } },
        ],
    });
    let output = run(&definition, &json!({ "q": "größe" })).await.unwrap();
    let expected = json!({ "n": 3, "f": 1.5, "b": true, "deep": { "n": 7 }, "list": [1, 2], "text": "<größe>" });
    assert_eq!(output, expected);
}

#[tokio::test(start_paused = true)]
async fn a_condition_leaves_a_step_out_and_its_defaults_stand_for_it() {
    let definition = |condition: &str| {
        json!({ "steps": [
            { "id": "a", "tool": "echo", "condition": condition, "defaultResults": { "x": "default" }, "arguments": { "x": "real" } },
            { "id": "b", "tool": "echo", "dependsOn": ["a"], "arguments": { "x": "{{.steps.a.output.x}} {{.steps.a.status}}" } },
        ] })
    };
    assert_eq!(run(&definition("false"), &json!({})).await.unwrap(), json!({ "x": "default skipped" }));
    assert_eq!(run(&definition("{{eq 1 1}}"), &json!({})).await.unwrap(), json!({ "x": "real completed" }));
    let error = run(&definition("perhaps"), &json!({})).await.unwrap_err();
    assert!(error.contains("condition must evaluate to 'true' or 'false', got: \"perhaps\""), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_run_unless_the_step_goes_on_or_is_retried() {
    let step = |tool: &str, on_error: Value| {
        json!({ "steps": [{ "id": "a", "tool": tool, "onError": on_error },
        { "id": "b", "tool": "echo", "dependsOn": ["a"], "arguments": { "x": "{{.steps.a.status}}: {{.steps.a.error}}" } }] })
    };
    let error = run(&step("fail", json!({})), &json!({})).await.unwrap_err();
    assert_eq!(error, "step `a`: tool `fail` failed: it broke");
    let went_on = run(&step("fail", json!({ "action": "continue" })), &json!({})).await.unwrap();
    assert_eq!(went_on["x"], "failed: tool `fail` failed: it broke");
    let retry = |count: u32| json!({ "action": "retry", "retryCount": count, "retryDelay": "1s" });
    assert_eq!(run(&step("flaky", retry(2)), &json!({})).await.unwrap()["x"], "completed: ");
    assert!(run(&step("flaky", retry(1)), &json!({})).await.is_err());
    let calls = Arc::new(Calls::default());
    assert!(run_with(&calls, &step("gone", retry(99)), &json!({})).await.unwrap_err().contains("connection"));
    assert_eq!(calls.called.lock().unwrap().len(), 11, "ten retries at the most");
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_ends() {
    let steps = json!([{ "id": "a", "tool": "slow", "timeout": "2s" }]);
    let error = run(&json!({ "steps": steps }), &json!({})).await.unwrap_err();
    assert_eq!(error, "step `a`: timed out after 2s");
    let error =
        run(&json!({ "steps": [{ "id": "a", "tool": "slow" }], "timeout": "1s" }), &json!({})).await.unwrap_err();
    assert_eq!(error, "workflow timed out");
}

#[tokio::test(start_paused = true)]
async fn independent_steps_run_side_by_side_and_none_waits_for_what_it_does_not_need() {
    // `b` needs `a` only, although `slow` is beside `a`.
    let definition = json!({ "timeout": "1s", "steps": [
        { "id": "slow", "tool": "slow" },
        { "id": "a", "tool": "echo" },
        { "id": "b", "tool": "echo", "dependsOn": ["a"], "arguments": { "x": "1" } },
    ] });
    let calls = Arc::new(Calls::default());
    assert!(run_with(&calls, &definition, &json!({})).await.is_err());
    assert_eq!(calls.called.lock().unwrap().len(), 3);
    let many: Vec<Value> = (0..25).map(|index| json!({ "id": format!("s{index}"), "tool": "echo" })).collect();
    let calls = Arc::new(Calls::default());
    run_with(&calls, &json!({ "steps": many }), &json!({})).await.unwrap();
    assert_eq!(calls.called.lock().unwrap().len(), 25);
}

#[tokio::test(start_paused = true)]
async fn a_step_runs_for_each_element_in_order() {
    let each = |more: Value| {
        let mut step = json!({ "id": "a", "type": "forEach", "collection": "{{json .params.items}}", "itemVar": "one",
            "step": { "tool": "{{tool}}", "arguments": { "n": "{{.forEach.one}}", "i": "{{.forEach.index}}" } } });
        for (name, value) in more.as_object().unwrap() {
            step[name] = value.clone();
        }
        json!({ "steps": [step] })
    };
    let with_tool = |tool: &str, more: Value| {
        let mut definition = each(more);
        definition["steps"][0]["step"]["tool"] = json!(tool);
        definition
    };
    let output = run(&with_tool("echo", json!({})), &json!({ "items": [5, 6] })).await.unwrap();
    assert_eq!((&output["count"], &output["completed"], &output["failed"]), (&json!(2), &json!(2), &json!(0)));
    assert_eq!(output["iterations"][1]["output"], json!({ "n": 6, "i": "1" }));
    let empty = run(&with_tool("echo", json!({})), &json!({ "items": [] })).await.unwrap();
    assert_eq!(empty["count"], 0);
    assert!(run(&with_tool("fail", json!({})), &json!({ "items": [1] })).await.is_err());
    let on = json!({ "onError": { "action": "continue" } });
    let output = run(&with_tool("fail", on), &json!({ "items": [1, 2] })).await.unwrap();
    assert_eq!((&output["failed"], &output["iterations"][0]["status"]), (&json!(2), &json!("failed")));
    let error = run(&with_tool("echo", json!({ "maxIterations": 1 })), &json!({ "items": [1, 2] })).await.unwrap_err();
    assert!(error.contains("collection size 2 exceeds maxIterations 1"), "{error}");
    let error = run(&with_tool("echo", json!({ "collection": "no list" })), &json!({})).await.unwrap_err();
    assert!(error.contains("not a JSON array"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_user_is_asked_and_may_decline() {
    let definition = |then: &str| {
        json!({ "steps": [
        { "id": "ask", "type": "elicitation", "message": "Deploy {{.params.what}}?", "schema": { "type": "object" },
            "onDecline": { "action": then }, "onCancel": { "action": then } },
        { "id": "b", "tool": "echo", "dependsOn": ["ask"], "arguments": { "x": "{{json .steps.ask.output}}" } },
    ] })
    };
    let with = |answer: Option<Answer>| Arc::new(Calls { answer, ..Calls::default() });
    let accepted = with(Some(Answer::Accepted(json!({ "sure": true }))));
    let output = run_with(&accepted, &definition("abort"), &json!({ "what": "it" })).await.unwrap();
    assert_eq!(output["x"], r#"{"action":"accept","content":{"sure":true}}"#);
    assert_eq!(accepted.called.lock().unwrap()[0].1, "Deploy it?");
    let declined = with(Some(Answer::Declined));
    assert_eq!(
        run_with(&declined, &definition("abort"), &json!({})).await.unwrap_err(),
        "step `ask`: the user declined"
    );
    let went_on = run_with(&declined, &definition("continue"), &json!({})).await.unwrap();
    assert_eq!(went_on["x"], r#"{"action":"decline"}"#);
    let skipped = with(Some(Answer::Cancelled));
    let output = run_with(&skipped, &definition("skip_remaining"), &json!({})).await.unwrap();
    assert_eq!(output, json!({ "action": "cancel", "skipped": true }));
    assert_eq!(skipped.called.lock().unwrap().len(), 1, "the rest is skipped");
    // No answer is as if the question was closed.
    assert!(
        run_with(&with(None), &definition("abort"), &json!({})).await.unwrap_err().contains("did not answer in time")
    );
}

#[tokio::test(start_paused = true)]
async fn the_output_has_the_types_that_it_declares() {
    let definition = |output: Value| json!({ "steps": [{ "id": "a", "tool": "echo", "arguments": { "n": "1000000", "text": "x" } }], "output": output });
    let output = definition(json!({ "required": ["n"], "properties": {
        "n": { "type": "integer", "description": "d", "value": "{{.steps.a.output.n}}" },
        "all": { "type": "object", "description": "d", "value": "{{json .steps.a.output}}" },
        "none": { "type": "string", "description": "d", "value": "{{.steps.a.output.nothing}}", "default": "was not there" },
        "deep": { "type": "object", "description": "d", "properties": { "t": { "type": "string", "description": "d", "value": "{{.steps.a.output.text}}" } } },
    } }));
    let expected = json!({ "n": 1_000_000, "all": { "n": 1_000_000, "text": "x" }, "none": "was not there", "deep": { "t": "x" } });
    assert_eq!(run(&output, &json!({})).await.unwrap(), expected);
    let wrong = definition(
        json!({ "properties": { "n": { "type": "integer", "description": "d", "value": "{{.steps.a.output.text}}" } } }),
    );
    let error = run(&wrong, &json!({})).await.unwrap_err();
    assert!(error.starts_with("output construction failed: n: "), "{error}");
}

#[test]
fn a_definition_that_cannot_run_says_where() {
    let wrong = json!({ "name": "t", "description": "d", "steps": [{ "id": "a", "tool": "x", "arguments": { "q": ["{{.a"] } }] });
    let definition: Definition = serde_json::from_value(wrong).unwrap();
    let error = CompositeTools::new(&[definition]).unwrap_err().to_string();
    assert!(error.starts_with("composite tool `t`: steps[0].arguments.q[0]: "), "{error}");
}

#[test]
fn a_composite_tool_is_seen_where_its_tools_exist_and_is_no_safer_than_they_are() {
    use crate::aggregate::{BackendName, Rules, aggregate};
    use crate::catalogue::{Catalogue, Item};
    use skep_mcp::list::List;

    let item = |tool: Value| Item::parse(List::Tools, &tool.to_string()).unwrap();
    let catalogue = Catalogue {
        tools: vec![
            item(json!({ "name": "read", "annotations": { "readOnlyHint": true, "openWorldHint": false } })),
            item(json!({ "name": "wipe", "annotations": { "readOnlyHint": false, "destructiveHint": true } })),
        ],
        ..Catalogue::default()
    };
    let catalogues = [(BackendName::from("a"), Arc::new(catalogue))].into_iter().collect();
    let view = aggregate(&catalogues, &Rules::default());
    let shown = |name: &str, tools: &[&str], hints: Value| {
        let steps: Vec<Value> =
            tools.iter().enumerate().map(|(index, tool)| json!({ "id": format!("s{index}"), "tool": tool })).collect();
        let definition = json!({ "name": name, "description": "d", "steps": steps, "annotations": hints });
        let tools = CompositeTools::new(&[serde_json::from_value(definition).unwrap()]).unwrap();
        let shown = tools.shown(&view);
        shown.first().map(|(_, text)| serde_json::from_str::<Value>(text).unwrap()["annotations"].clone())
    };
    let reads = json!({ "readOnlyHint": true, "destructiveHint": false, "openWorldHint": false });
    assert_eq!(shown("both", &["a_read", "a.read"], json!({})), Some(reads));
    let wipes = json!({ "readOnlyHint": false, "destructiveHint": true, "openWorldHint": true });
    assert_eq!(shown("both", &["a_read", "a.wipe"], json!({})), Some(wipes));
    assert_eq!(shown("both", &["a_wipe"], json!({ "readOnlyHint": true })), None, "it claims to be safer");
    assert_eq!(shown("both", &["a_gone"], json!({})), None);
    assert_eq!(shown("a_read", &["a_wipe"], json!({})), None, "a backend has a tool of that name");
}

#[tokio::test(start_paused = true)]
async fn the_results_of_a_run_are_bounded_also_within_a_step_and_whatever_it_says_about_failures() {
    let calls = Arc::new(Calls::default());
    let each = |count: usize| {
        let items: Vec<usize> = (0..count).collect();
        json!({ "steps": [{ "id": "a", "type": "forEach", "collection": json!(items).to_string(), "maxParallel": 1,
            "onError": { "action": "continue" }, "step": { "type": "tool", "tool": "large" } }] })
    };
    assert_eq!(run_with(&calls, &each(4), &json!({})).await.unwrap()["completed"], 4);
    let error = run_with(&calls, &each(100), &json!({})).await.unwrap_err();
    assert!(error.contains("the results of the steps have more than"), "{error}");
    assert_eq!(calls.called.lock().unwrap().len(), 4 + 5, "the first that is too much ends the run");
}

/// What is reported about the steps of a run, a line each.
#[derive(Debug, Default)]
struct Reports(Mutex<Vec<String>>);

impl WorkflowObserver for Reports {
    fn step(&self, step: &StepReport<'_>) {
        let StepReport { id, kind, tool, state, retries, error, .. } = step;
        let error = error.map(ToString::to_string).unwrap_or_default();
        self.0.lock().unwrap().push(format!("{id} {kind} {tool} {state:?} {retries} {error}").trim().to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn every_step_is_reported_once_when_it_begins_and_once_when_it_ends() {
    let definition = json!({ "steps": [
        { "id": "a", "tool": "flaky", "onError": { "action": "retry", "retryCount": 3 } },
        { "id": "b", "type": "forEach", "collection": "[1, 2]", "dependsOn": ["a"], "step": { "type": "tool", "tool": "echo" } },
        { "id": "c", "tool": "echo", "condition": "false", "dependsOn": ["b"] },
        { "id": "d", "tool": "fail", "dependsOn": ["c"], "onError": { "action": "continue" } },
        { "id": "e", "tool": "gone", "dependsOn": ["d"] },
    ] });
    let reports = Arc::new(Reports::default());
    let workflow = Workflow::new(tool(&definition), Map::new(), Arc::new(Calls::default())).observed(reports.clone());
    workflow.run().await.unwrap_err();
    let expected = [
        "a tool flaky Started 0",
        "a tool flaky Completed 2",
        "b forEach echo Started 0",
        "b forEach echo Completed 0",
        "c tool echo Skipped 0",
        "d tool fail Started 0",
        "d tool fail Failed 0 tool `fail` failed: it broke",
        "e tool gone Started 0",
        "e tool gone Failed 0 tool `gone`: the connection to the server was lost",
    ];
    assert_eq!(*reports.0.lock().unwrap(), expected);
}
