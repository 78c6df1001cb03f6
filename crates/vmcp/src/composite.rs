//! Composite tools: tools made of steps that call other tools, ask the user, or repeat a call for each element of a list.
//!
//! ```text
//!   definition ─▶ CompositeTool (templates parsed) ─▶ offered in a view where all of its tools exist
//!   call ─▶ parameters ─▶ steps, each when those before it are done ─▶ output
//!                           │ condition, arguments (templates, coerced), retries, defaults
//!                           ▼
//!                         StepCalls: a tool of a backend, or the user
//! ```
//!
//! The steps know nothing of sessions and protocols: what they call is behind [`StepCalls`].

mod arguments;
mod definition;
mod observer;
mod offered;
mod output;
mod results;
mod step;
mod workflow;

use std::fmt::Debug;

use serde_json::{Map, Value};
use skep_upstream::BoxFuture;

pub use self::definition::{CompositeTool, CompositeTools, DefinitionError};
pub use self::observer::{StepReport, StepState, WorkflowObserver};
pub(crate) use self::results::RESULTS;
pub use self::results::ToolResult;
pub use self::workflow::{Workflow, WorkflowError};

/// What the steps of a workflow call.
pub trait StepCalls: Debug + Send + Sync {
    /// Calls a tool, by the name that a step gives.
    fn call<'a>(&'a self, tool: &'a str, arguments: Map<String, Value>)
    -> BoxFuture<'a, Result<ToolResult, StepError>>;

    /// Asks the user.
    fn elicit<'a>(&'a self, message: &'a str, schema: &'a Value) -> BoxFuture<'a, Result<Answer, StepError>>;

    /// The schema of the arguments of a tool.
    fn schema(&self, tool: &str) -> Option<Value>;
}

/// What the user answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The content that was asked for.
    Accepted(Value),
    /// They declined.
    Declined,
    /// They closed the question.
    Cancelled,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The call of its tool failed.
    #[error("{0}")]
    Call(String),
    /// Its tool reported an error.
    #[error("tool `{tool}` failed: {text}")]
    Tool {
        /// The tool.
        tool: String,
        /// What it said.
        text: String,
    },
    /// A template cannot be rendered.
    #[error("{place}: {problem}")]
    Template {
        /// Where it stands in the step.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// It took too long.
    #[error("timed out after {0:?}")]
    Timeout(std::time::Duration),
    /// The user did not answer as the step needs it.
    #[error("the user {0}")]
    NotAnswered(&'static str),
    /// The client cannot ask its user.
    #[error("the client cannot ask its user: {0}")]
    NoElicitation(&'static str),
    /// Its list is no list, or too long.
    #[error("{0}")]
    Collection(String),
    /// Its result is larger than is kept.
    #[error("the results of the steps have more than {0} bytes together")]
    TooLarge(usize),
}

#[cfg(test)]
mod tests;
