//! Running one step: its call with retries, its question, or a call for each element of a list.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};
use skep_api::kinds::AnswerAction;

use super::arguments::render_text;
use super::definition::{Action, ForEach, Step, ToolCall};
use super::results::{ResultBudget, StepResult, ToolResult};
use super::{Answer, StepCalls, StepError};

/// By how much the pause before a retry grows, how much of it is random, and how long it gets at most, in parts of the first.
const GROWTH: (u32, u32) = (3, 2);
const LONGEST: u32 = 60;
/// The largest answer of a user, in bytes.
const ANSWER: usize = 1024 * 1024;

/// What a step came to, and whether the workflow ends with it.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) result: StepResult,
    pub(super) skips_rest: bool,
}

// === impl Step ===

impl Step {
    /// Runs the step, within its time.
    pub(super) async fn run(
        &self,
        calls: &dyn StepCalls,
        data: Arc<Value>,
        budget: &ResultBudget,
    ) -> Result<Ran, StepError> {
        let ran = tokio::time::timeout(self.timeout, self.run_action(calls, data, budget)).await;
        match (ran, &self.action) {
            (Ok(ran), _) => ran,
            // The user did not answer: as if they had closed the question.
            (Err(_), Action::Elicitation { on_cancel, .. }) => {
                unanswered("did not answer in time", "cancel", *on_cancel)
            }
            (Err(_), Action::Tool(_) | Action::ForEach(_)) => Err(StepError::Timeout(self.timeout)),
        }
    }

    async fn run_action(
        &self,
        calls: &dyn StepCalls,
        data: Arc<Value>,
        budget: &ResultBudget,
    ) -> Result<Ran, StepError> {
        match &self.action {
            Action::Tool(call) => {
                let arguments = call.arguments(&data, calls.schema(&call.tool).as_ref())?;
                // What is rendered needs no data any more, and a call may take long.
                drop(data);
                let ToolResult { output, content, .. } = call.run(calls, arguments, budget).await?;
                Ok(Ran { result: StepResult { content, ..StepResult::completed(output) }, skips_rest: false })
            }
            Action::ForEach(each) => {
                let output = each.run(calls, &data, budget).await?;
                Ok(Ran { result: StepResult::completed(output), skips_rest: false })
            }
            Action::Elicitation { message, schema, on_decline, on_cancel } => {
                let message = render_text("message", message, &data)?;
                drop(data);
                match calls.elicit(&message, schema).await? {
                    Answer::Accepted(content) => {
                        let bytes = content.to_string().len();
                        if bytes > ANSWER {
                            return Err(StepError::NotAnswered("answered with more than is kept"));
                        }
                        budget.charge(bytes)?;
                        let output = json!({ "action": "accept", "content": content });
                        Ok(Ran { result: StepResult::completed(output), skips_rest: false })
                    }
                    Answer::Declined => unanswered("declined", "decline", *on_decline),
                    Answer::Cancelled => unanswered("cancelled", "cancel", *on_cancel),
                }
            }
        }
    }
}

/// What comes of a question without an answer.
fn unanswered(text: &'static str, action: &str, then: AnswerAction) -> Result<Ran, StepError> {
    match then {
        AnswerAction::Abort => Err(StepError::NotAnswered(text)),
        AnswerAction::Continue => {
            Ok(Ran { result: StepResult::completed(json!({ "action": action })), skips_rest: false })
        }
        AnswerAction::SkipRemaining => {
            let output = json!({ "action": action, "skipped": true });
            Ok(Ran { result: StepResult::completed(output), skips_rest: true })
        }
    }
}

// === impl ToolCall ===

impl ToolCall {
    async fn run(
        &self,
        calls: &dyn StepCalls,
        arguments: Map<String, Value>,
        budget: &ResultBudget,
    ) -> Result<ToolResult, StepError> {
        let mut pause = self.delay;
        for attempt in 0.. {
            let error = match calls.call(&self.tool, arguments.clone()).await {
                Ok(result) if !result.is_error => {
                    budget.charge(result.bytes)?;
                    return Ok(result);
                }
                Ok(result) => StepError::Tool { tool: self.tool.clone(), text: result.text() },
                Err(error) => error,
            };
            if attempt >= self.retries {
                return Err(error);
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * GROWTH.0 / GROWTH.1).min(self.delay * LONGEST);
        }
        Err(StepError::Call("not called".to_owned()))
    }
}

/// A pause of half to one and a half of this.
fn jittered(pause: Duration) -> Duration {
    let random = u32::from(uuid::Uuid::new_v4().as_bytes().first().copied().unwrap_or_default());
    pause / 2 + pause * random / 256
}

// === impl ForEach ===

impl ForEach {
    async fn run(&self, calls: &dyn StepCalls, data: &Value, budget: &ResultBudget) -> Result<Value, StepError> {
        let items = self.items(data)?;
        let (count, schema) = (items.len(), calls.schema(&self.call.tool));
        // One copy for all elements: the arguments of each are rendered when its call begins.
        let mut data = data.clone();
        let ran = futures_util::stream::iter(items.into_iter().enumerate()).map(move |(index, item)| {
            if let Some(data) = data.as_object_mut() {
                let names = [(self.variable.clone(), item.clone()), ("index".to_owned(), json!(index))];
                data.insert("forEach".to_owned(), Value::Object(Map::from_iter(names)));
            }
            let arguments = self.call.arguments(&data, schema.as_ref());
            async move {
                let ran = match arguments {
                    Ok(arguments) => self.call.run(calls, arguments, budget).await,
                    Err(error) => Err(error),
                };
                (index, item, ran)
            }
        });
        let mut ran = std::pin::pin!(ran.buffered(self.parallel));
        let (mut iterations, mut completed, mut failed) = (Vec::new(), 0_usize, 0_usize);
        while let Some((index, item, result)) = ran.next().await {
            match result {
                Ok(result) => {
                    completed += 1;
                    let row = json!({ "index": index, "item": item, "status": "completed", "output": result.output });
                    iterations.push(row);
                }
                Err(error) if self.continues && !matches!(error, StepError::TooLarge(_)) => {
                    failed += 1;
                    let row = json!({ "index": index, "item": item, "status": "failed", "output": {}, "error": error.to_string() });
                    iterations.push(row);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(json!({ "iterations": iterations, "count": count, "completed": completed, "failed": failed }))
    }

    fn items(&self, data: &Value) -> Result<Vec<Value>, StepError> {
        let text = render_text("collection", &self.collection, data)?;
        let parsed = skep_bounds::json(&text).ok().and_then(|()| serde_json::from_str::<Value>(&text).ok());
        let Some(Value::Array(items)) = parsed else {
            return Err(StepError::Collection("the collection is not a JSON array".to_owned()));
        };
        if items.len() > self.most {
            let (found, most) = (items.len(), self.most);
            return Err(StepError::Collection(format!("collection size {found} exceeds maxIterations {most}")));
        }
        Ok(items)
    }
}
