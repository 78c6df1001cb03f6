//! What steps came to, as templates see it.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value, json};
use skep_mcp::Message;

use super::StepError;

/// How many bytes the results of all steps may have together.
pub(crate) const RESULTS: usize = 16 * 1024 * 1024;

/// What is left of [`RESULTS`] in a run. Each result is charged when it arrives, also those of a step that is not done.
#[derive(Debug)]
pub(super) struct ResultBudget(AtomicUsize);

/// What a tool returned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolResult {
    /// Its structured content, or what its content comes to.
    pub output: Value,
    /// Its content by kinds: `text`, `text_1`, `image_0`, `resource`, …
    pub content: Map<String, Value>,
    /// Whether it reports an error.
    pub is_error: bool,
    /// The size of all of it as JSON.
    pub bytes: usize,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Status {
    #[default]
    Pending,
    Completed,
    Failed,
    Skipped,
}

/// What a step came to.
#[derive(Clone, Debug, Default)]
pub(super) struct StepResult {
    pub(super) status: Status,
    pub(super) output: Value,
    pub(super) content: Map<String, Value>,
    pub(super) error: Option<String>,
}

// === impl ResultBudget ===

impl ResultBudget {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(RESULTS))
    }

    /// Pays for a result.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), StepError> {
        let pay = |left: usize| left.checked_sub(bytes);
        let paid = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        paid.map(drop).map_err(|_left| StepError::TooLarge(RESULTS))
    }
}

// === impl ToolResult ===

impl ToolResult {
    /// The result in a response to `tools/call`.
    pub fn of(response: &Message) -> Option<Self> {
        let raw = response.result()?;
        let (bytes, result): (usize, Value) = (raw.len(), serde_json::from_slice(raw).ok()?);
        let mut content = Map::new();
        let (mut texts, mut images, mut resources) = (0_usize, 0_usize, 0_usize);
        for one in result.get("content").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| one.get(name).cloned().unwrap_or_default();
            match one.get("type").and_then(Value::as_str) {
                Some("text") => {
                    content.insert(numbered("text", texts), text("text"));
                    texts += 1;
                }
                Some("image") => {
                    content.insert(format!("image_{images}"), text("data"));
                    images += 1;
                }
                Some("resource") => {
                    content.insert(numbered("resource", resources), text("resource"));
                    resources += 1;
                }
                _ => {}
            }
        }
        let structured = result.get("structuredContent").filter(|structured| structured.is_object()).cloned();
        let output = structured.unwrap_or_else(|| Value::Object(content.clone()));
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or_default();
        Some(Self { output, content, is_error, bytes })
    }

    /// The first text of its content.
    pub(super) fn text(&self) -> String {
        self.content.get("text").and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

/// `text`, `text_1`, `text_2`, …
fn numbered(name: &str, index: usize) -> String {
    if index == 0 { name.to_owned() } else { format!("{name}_{index}") }
}

// === impl Status ===

impl Status {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

// === impl StepResult ===

impl StepResult {
    pub(super) fn completed(output: Value) -> Self {
        Self { status: Status::Completed, output, ..Self::default() }
    }

    /// It was left out, or failed while others go on: its defaults stand for its output.
    pub(super) fn replaced(status: Status, defaults: Option<&Value>, error: Option<String>) -> Self {
        Self { status, output: defaults.cloned().unwrap_or_else(|| json!({})), content: Map::new(), error }
    }

    /// It as templates see it.
    pub(super) fn shown(&self) -> Value {
        json!({
            "status": self.status.as_str(),
            "output": self.output,
            "content": self.content,
            "error": self.error.clone().unwrap_or_default(),
        })
    }
}
