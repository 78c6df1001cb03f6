//! `VirtualMCPCompositeToolDefinition`: a tool made of steps that call other tools.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tool_config::ToolAnnotations;
use crate::auth_server::DURATION;
use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::Reference;
use crate::schema::{Any, Object, atomic, set, unsized_integer};
use crate::status::conditions;

/// The object: metadata, spec and status.
pub type VirtualMCPCompositeToolDefinition = Custom<CompositeTool>;

impl Kind for CompositeTool {
    type Status = CompositeToolStatus;

    const KIND: &'static str = "VirtualMCPCompositeToolDefinition";
    const ABOUT: &'static str = "A tool made of steps that call other tools.";
    const PLURAL: &'static str = "virtualmcpcompositetooldefinitions";
    const SHORT_NAMES: &'static [&'static str] = &["vmcpctd", "compositetool"];
    const COLUMNS: &'static [Column] = &[
        column("Workflow", ".spec.name", "string"),
        column("Status", ".status.validationStatus", "string"),
        AGE,
        column("Ready", ".status.conditions[?(@.type=='Ready')].status", "string"),
    ];

    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }
}

/// A tool made of steps. The same shape stands in a VirtualMCPServer under `config.compositeTools`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompositeTool {
    /// Name of the tool, as clients see it.
    pub name: String,
    /// What it does, as clients see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Object>,
    /// The steps. Each runs as soon as those that it depends on are done.
    pub steps: Vec<Step>,
    /// How long all steps together may take, such as `5m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub timeout: Option<String>,
    /// What it returns. Left out, the result of the last step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// Hints about what it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
}

/// One step of a composite tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its name; templates reach its result by this.
    pub id: String,
    /// What it does.
    #[serde(default, rename = "type")]
    pub action: StepType,
    /// The tool to call; for type `tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The tool's arguments. Strings in them are templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Object>,
    /// A template; unless it gives `true`, the step is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Steps that must be done before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// What happens when it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// The question to ask; for type `elicitation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// JSON Schema of the answer; for type `elicitation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Object>,
    /// What happens when the person says no; for type `elicitation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_decline: Option<OnAnswer>,
    /// What happens when the person turns away; for type `elicitation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_cancel: Option<OnAnswer>,
    /// How long it may take, such as `30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub timeout: Option<String>,
    /// What stands for its result when it was left out or failed and the others go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_results: Option<Any>,
    /// A template that gives the list to go through; for type `forEach`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// The name of the current element in templates; for type `forEach`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_var: Option<String>,
    /// How many elements are worked on at once; for type `forEach`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = unsized_integer)]
    pub max_parallel: Option<i64>,
    /// How many elements there may be; for type `forEach`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = unsized_integer)]
    pub max_iterations: Option<i64>,
    /// The step to run for each element; for type `forEach`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Object>,
}

/// What a step does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StepType {
    /// Calls a tool.
    #[default]
    Tool,
    /// Asks the person.
    Elicitation,
    /// Runs a step for each element of a list.
    ForEach,
}

/// What happens when a step fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnError {
    /// What to do.
    #[serde(default)]
    pub action: ErrorAction,
    /// How often to retry; for action `retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = unsized_integer)]
    pub retry_count: Option<i64>,
    /// How long to wait before the first new try, such as `1s`; for action `retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DURATION))]
    pub retry_delay: Option<String>,
}

/// What to do after a failed step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ErrorAction {
    /// The whole tool fails.
    #[default]
    Abort,
    /// The other steps go on.
    Continue,
    /// The step is retried.
    Retry,
}

/// What happens when a person does not answer a question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnAnswer {
    /// What to do.
    #[serde(default)]
    pub action: AnswerAction,
}

/// What to do when a person does not answer a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerAction {
    /// The tool ends with what it has.
    SkipRemaining,
    /// The whole tool fails.
    #[default]
    Abort,
    /// The other steps go on.
    Continue,
}

/// What a composite tool returns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Output {
    /// The members of the result.
    pub properties: BTreeMap<String, OutputProperty>,
    /// The members that must be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
}

/// One member of a composite tool's result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputProperty {
    /// Its JSON type.
    #[serde(rename = "type")]
    pub kind: OutputType,
    /// What it means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A template that gives its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its own members, each shaped like this one; for type `object`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<Object>,
    /// What stands for it when the template fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Any>,
}

/// A JSON type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputType {
    /// Text.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// An object.
    Object,
    /// A list.
    Array,
}

/// What is known about a VirtualMCPCompositeToolDefinition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompositeToolStatus {
    /// What is known about the definition, one aspect each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Whether the steps fit together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_status: Option<ValidationStatus>,
    /// What does not fit, and what to do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub validation_errors: Vec<String>,
    /// Names of the VirtualMCPServers that use this tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = set)]
    pub referencing_virtual_servers: Vec<String>,
}

/// Whether the steps of a composite tool fit together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ValidationStatus {
    /// They do.
    Valid,
    /// They do not.
    Invalid,
    /// Not reconciled yet.
    #[default]
    Unknown,
}
