//! Definitions of composite tools, ready to run: templates parsed, times read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use skep_api::kinds::{
    AnswerAction, CompositeTool as Definition, ErrorAction, OutputProperty, OutputType, Step as StepDefinition,
    StepType,
};
use skep_runconfig::GoDuration;
use skep_template::Template;

/// How long all steps together may take, one step, and an answer of the user, unless the definition says otherwise.
const WORKFLOW: Duration = Duration::from_mins(30);
const STEP: Duration = Duration::from_mins(5);
/// How often a step is retried at most, and what is waited before the first retry.
const RETRIES: u32 = 10;
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How many elements are worked on at once, and how many there may be: the defaults and the most.
const PARALLEL: (usize, usize) = (10, 50);
const ITERATIONS: (usize, usize) = (100, 1000);
/// How deep the members of an output may be nested.
const OUTPUT_DEPTH: usize = 10;

/// The composite tools of a virtual server.
#[derive(Debug, Default)]
pub struct CompositeTools {
    tools: BTreeMap<String, Arc<CompositeTool>>,
}

/// A composite tool.
#[derive(Debug)]
pub struct CompositeTool {
    /// Its name.
    pub name: String,
    pub(super) definition: Definition,
    /// The schema of its arguments.
    pub(super) parameters: Value,
    pub(super) timeout: Duration,
    pub(super) steps: Vec<Step>,
    pub(super) output: Option<Output>,
}

/// A step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) id: String,
    pub(super) depends_on: Vec<String>,
    pub(super) condition: Option<Template>,
    pub(super) timeout: Duration,
    pub(super) continues: bool,
    pub(super) defaults: Option<Value>,
    pub(super) action: Action,
}

/// What a step does.
#[derive(Debug)]
pub(super) enum Action {
    Tool(ToolCall),
    Elicitation { message: Template, schema: Value, on_decline: AnswerAction, on_cancel: AnswerAction },
    ForEach(Box<ForEach>),
}

/// A call of a tool.
#[derive(Debug)]
pub(super) struct ToolCall {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// The templates among the arguments, by their text.
    pub(super) templates: BTreeMap<String, Template>,
    pub(super) retries: u32,
    pub(super) delay: Duration,
}

/// A call for each element of a list.
#[derive(Debug)]
pub(super) struct ForEach {
    pub(super) collection: Template,
    pub(super) variable: String,
    pub(super) parallel: usize,
    pub(super) most: usize,
    pub(super) call: ToolCall,
    pub(super) continues: bool,
}

/// What a composite tool returns.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) properties: BTreeMap<String, Property>,
    pub(super) required: Vec<String>,
}

/// One member of what a composite tool returns.
#[derive(Debug)]
pub(super) struct Property {
    pub(super) kind: OutputType,
    pub(super) value: Option<Template>,
    pub(super) members: BTreeMap<String, Property>,
    pub(super) default: Option<Value>,
}

/// What is wrong with a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("composite tool `{tool}`: {place}: {problem}")]
pub struct DefinitionError {
    /// The tool.
    pub tool: String,
    /// Where in it.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

/// A problem and its place, before the tool is named.
type Problem = (String, String);

// === impl CompositeTools ===

impl CompositeTools {
    /// The tools of these definitions.
    pub fn new(definitions: &[Definition]) -> Result<Self, DefinitionError> {
        let tools = definitions.iter().map(|definition| {
            let tool = CompositeTool::new(definition)?;
            Ok((tool.name.clone(), Arc::new(tool)))
        });
        Ok(Self { tools: tools.collect::<Result<_, _>>()? })
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<CompositeTool>> {
        self.tools.get(name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CompositeTool>> {
        self.tools.values()
    }
}

// === impl CompositeTool ===

impl CompositeTool {
    fn new(definition: &Definition) -> Result<Self, DefinitionError> {
        let name = definition.name.clone();
        let in_tool = |(place, problem): Problem| DefinitionError { tool: name.clone(), place, problem };
        let steps = definition.steps.iter().enumerate();
        let steps = steps.map(|(index, step)| {
            Step::new(step).map_err(|(place, problem)| in_tool((format!("steps[{index}]{place}"), problem)))
        });
        let output = match &definition.output {
            None => None,
            Some(output) => {
                let properties = output.properties.iter().map(|(name, property)| {
                    let property = Property::new(property, OUTPUT_DEPTH);
                    let place = |(place, problem)| (format!("output.properties.{name}{place}"), problem);
                    property.map(|property| (name.clone(), property)).map_err(place)
                });
                let properties = properties.collect::<Result<_, Problem>>().map_err(in_tool)?;
                Some(Output { properties, required: output.required.clone() })
            }
        };
        Ok(Self {
            steps: steps.collect::<Result<_, _>>()?,
            output,
            timeout: time(definition.timeout.as_deref(), WORKFLOW),
            parameters: definition.parameters.as_ref().map_or_else(|| serde_json::json!({ "type": "object" }), free),
            definition: definition.clone(),
            name,
        })
    }

    /// How long all of its steps may take together.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The tools that its steps call, as they name them.
    pub(super) fn called(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match &step.action {
            Action::Tool(call) => Some(call.tool.as_str()),
            Action::ForEach(each) => Some(each.call.tool.as_str()),
            Action::Elicitation { .. } => None,
        })
    }
}

// === impl Step ===

impl Step {
    fn new(step: &StepDefinition) -> Result<Self, Problem> {
        let on_error = step.on_error.clone().unwrap_or_default();
        let continues = on_error.action == ErrorAction::Continue;
        let action = match step.action {
            StepType::Tool => Action::Tool(ToolCall::new(step)?),
            StepType::Elicitation => Action::Elicitation {
                message: template(".message", step.message.as_deref().unwrap_or_default())?,
                schema: step.schema.as_ref().map(free).unwrap_or_default(),
                on_decline: step.on_decline.as_ref().map(|answer| answer.action).unwrap_or_default(),
                on_cancel: step.on_cancel.as_ref().map(|answer| answer.action).unwrap_or_default(),
            },
            StepType::ForEach => Action::ForEach(Box::new(ForEach::new(step, continues)?)),
        };
        Ok(Self {
            id: step.id.clone(),
            depends_on: step.depends_on.clone(),
            condition: step.condition.as_deref().map(|text| template(".condition", text)).transpose()?,
            timeout: time(step.timeout.as_deref(), STEP),
            continues,
            defaults: step.default_results.as_ref().map(free),
            action,
        })
    }
}

// === impl ToolCall ===

impl ToolCall {
    fn new(step: &StepDefinition) -> Result<Self, Problem> {
        let on_error = step.on_error.clone().unwrap_or_default();
        let arguments = match step.arguments.as_ref().map(free) {
            Some(Value::Object(arguments)) => arguments,
            _ => Map::new(),
        };
        let mut templates = BTreeMap::new();
        for (name, value) in &arguments {
            collect(&format!(".arguments.{name}"), value, &mut templates)?;
        }
        let count = u32::try_from(on_error.retry_count.unwrap_or_default()).unwrap_or_default();
        Ok(Self {
            tool: step.tool.clone().unwrap_or_default(),
            arguments,
            templates,
            retries: if on_error.action == ErrorAction::Retry { count.min(RETRIES) } else { 0 },
            delay: time(on_error.retry_delay.as_deref(), RETRY_DELAY),
        })
    }
}

// === impl ForEach ===

impl ForEach {
    fn new(step: &StepDefinition, continues: bool) -> Result<Self, Problem> {
        let inner = step.step.as_ref().map(free).unwrap_or_default();
        let inner = with_id(inner);
        let inner: StepDefinition =
            serde_json::from_value(inner).map_err(|error| (".step".to_owned(), error.to_string()))?;
        let within = |(place, problem): Problem| (format!(".step{place}"), problem);
        let bounded = |given: Option<i64>, (usual, most): (usize, usize)| {
            let given = given.and_then(|given| usize::try_from(given).ok()).filter(|given| *given > 0);
            given.unwrap_or(usual).min(most)
        };
        let variable = step.item_var.clone().filter(|name| !name.is_empty());
        Ok(Self {
            collection: template(".collection", step.collection.as_deref().unwrap_or_default())?,
            variable: variable.unwrap_or_else(|| "item".to_owned()),
            parallel: bounded(step.max_parallel, PARALLEL),
            most: bounded(step.max_iterations, ITERATIONS),
            call: ToolCall::new(&inner).map_err(within)?,
            continues,
        })
    }
}

// === impl Property ===

impl Property {
    /// INVARIANT: the depth is bounded, so recursion ends.
    fn new(property: &OutputProperty, depth: usize) -> Result<Self, Problem> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err((String::new(), "it is nested too deep; write fewer levels".to_owned()));
        };
        let mut members = BTreeMap::new();
        if let Some(Value::Object(inner)) = property.properties.as_ref().map(free) {
            for (name, inner) in inner {
                let place = |(place, problem): Problem| (format!(".properties.{name}{place}"), problem);
                let inner: OutputProperty =
                    serde_json::from_value(inner).map_err(|error| place((String::new(), error.to_string())))?;
                members.insert(name.clone(), Self::new(&inner, depth).map_err(place)?);
            }
        }
        Ok(Self {
            kind: property.kind,
            value: property.value.as_deref().map(|text| template(".value", text)).transpose()?,
            members,
            default: property.default.as_ref().map(free),
        })
    }
}

/// Parses the templates in a value. INVARIANT: a definition is not deeper than its parser allows, so recursion ends.
fn collect(place: &str, value: &Value, templates: &mut BTreeMap<String, Template>) -> Result<(), Problem> {
    match value {
        Value::String(text) if text.contains("{{") => {
            if !templates.contains_key(text) {
                templates.insert(text.clone(), template(place, text)?);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(&format!("{place}[{index}]"), item, templates)?;
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                collect(&format!("{place}.{name}"), value, templates)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

fn template(place: &str, text: &str) -> Result<Template, Problem> {
    Template::parse(text).map_err(|error| (place.to_owned(), error.to_string()))
}

fn time(text: Option<&str>, usual: Duration) -> Duration {
    let given = text.and_then(|text| text.parse::<GoDuration>().ok()).and_then(GoDuration::to_std);
    given.filter(|time| !time.is_zero()).unwrap_or(usual)
}

/// A free-form field as JSON.
fn free<T: serde::Serialize>(field: &T) -> Value {
    serde_json::to_value(field).unwrap_or_default()
}

/// The step for each element as a step, which has an id.
fn with_id(mut inner: Value) -> Value {
    if let Value::Object(members) = &mut inner {
        members.entry("id").or_insert_with(|| "each".into());
    }
    inner
}
