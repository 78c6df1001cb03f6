//! One step of a composite tool: what each type needs.

use serde_json::Value;
use skep_api::kinds::{ErrorAction, OnError, Step, StepType};
use skep_api::schema::Object;

use super::template;
use crate::validate::Problems;

/// The longest time that a person may take to answer, in seconds.
const LONGEST_QUESTION: i64 = 600;

/// What is wrong with a step. Places are relative to the step.
pub(super) fn problems(step: &Step) -> Problems {
    let mut problems = Problems::default();
    problems.filled(".id", &step.id, "give the step a name");
    match step.action {
        StepType::Tool => tool(&mut problems, step),
        StepType::Elicitation => question(&mut problems, step),
        StepType::ForEach => each(&mut problems, step),
    }
    if step.action != StepType::Elicitation {
        problems.some_time(".timeout", step.timeout.as_deref());
    }
    if let Some(on_error) = &step.on_error {
        failure(&mut problems, on_error);
    }
    template::all_in_step(&mut problems, step);
    if let Some(results) = &step.default_results {
        problems.unless(
            results.0.is_object(),
            ".defaultResults",
            "it is not an object; write the members of the result",
        );
    }
    problems
}

fn tool(problems: &mut Problems, step: &Step) {
    match step.tool.as_deref().unwrap_or_default() {
        "" => problems.add(".tool", "it is missing; name the tool to call, or set type to `elicitation` or `forEach`"),
        name if !is_tool_name(name) => {
            let problem =
                "is not a valid tool name; use letters, digits, `.`, `_` and `-`, the first a letter or digit";
            problems.add(".tool", format_args!("`{name}` {problem}"));
        }
        _ => {}
    }
}

fn question(problems: &mut Problems, step: &Step) {
    problems.filled(".message", step.message.as_deref().unwrap_or_default(), "write the question to ask");
    let is_object = |schema: &Object| schema.0.get("type").is_some_and(|kind| kind == "object");
    match &step.schema {
        None => problems.add(".schema", "it is missing; write the JSON Schema of the answer"),
        Some(schema) => problems.unless(
            is_object(schema),
            ".schema",
            "it is not the schema of an object; set its `type` to `object`",
        ),
    }
    problems.duration(".timeout", step.timeout.as_deref(), 1, LONGEST_QUESTION);
}

fn each(problems: &mut Problems, step: &Step) {
    let collection = step.collection.as_deref().unwrap_or_default();
    problems.filled(".collection", collection, "write a template that gives the list to go through");
    if let Some(name) = step.item_var.as_deref().filter(|name| !name.is_empty()) {
        let problem =
            "is not a valid name for the current element; use letters, digits and `_`, no digit first, and not `index`";
        problems.unless(is_variable(name), ".itemVar", format_args!("`{name}` {problem}"));
    }
    for (place, number) in [(".maxParallel", step.max_parallel), (".maxIterations", step.max_iterations)] {
        let number = number.unwrap_or_default();
        problems.unless(
            number >= 0,
            place,
            format_args!("`{number}` is below zero; write a number from 1 on, or leave it out"),
        );
    }
    let Some(inner) = &step.step else {
        problems.add(".step", "it is missing; write the step to run for each element");
        return;
    };
    // The inner step has no name of its own: nothing can refer to it.
    match serde_json::from_value::<Step>(with_id(inner)) {
        Err(problem) => problems.add(".step", format_args!("it cannot be read: {problem}")),
        Ok(inner) if inner.action != StepType::Tool => {
            problems.add(".step.type", "only a step of type `tool` can run for each element; call a tool here");
        }
        Ok(inner) => problems.under(".step", self::problems(&inner)),
    }
}

fn failure(problems: &mut Problems, on_error: &OnError) {
    problems.some_time(".onError.retryDelay", on_error.retry_delay.as_deref());
    let count = on_error.retry_count.unwrap_or_default();
    let retries = on_error.action == ErrorAction::Retry;
    let enough = if retries { count >= 1 } else { count >= 0 };
    problems.unless(
        enough,
        ".onError.retryCount",
        format_args!("`{count}` is too few; say how often to try again, from 1 on"),
    );
}

/// The inner step as an object that has an id, whatever it says.
fn with_id(inner: &Object) -> Value {
    let mut inner = inner.0.clone();
    inner.entry("id").or_insert_with(|| "each".into());
    Value::Object(inner)
}

/// Whether a step may call a tool by this name.
fn is_tool_name(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    name.chars().all(allowed) && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// Whether a template can reach something by this name, and nothing else is reached by it.
fn is_variable(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    name != "index" && name.chars().all(allowed) && !name.starts_with(|first: char| first.is_ascii_digit())
}
