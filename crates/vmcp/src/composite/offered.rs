//! Which composite tools a client sees, and what it is told of them.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use skep_api::kinds::ToolAnnotations;

use super::definition::{CompositeTool, CompositeTools, Output, Property};
use super::output;
use crate::aggregate::{BackendName, Route, View};

/// What the tools of a composite tool do, at the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effects {
    read_only: bool,
    destructive: bool,
    open_world: bool,
}

// === impl CompositeTools ===

impl CompositeTools {
    /// Those that can be run in a view, as clients see them. One that has the name of another tool, or claims to be safer than what it calls, is
    /// left out.
    pub(crate) fn shown(&self, view: &View) -> Vec<(&Arc<CompositeTool>, Arc<str>)> {
        let usable = self.iter().filter_map(|tool| {
            if view.tool(&tool.name).is_some() {
                tracing::warn!(tool = tool.name, "composite tool left out: a backend has a tool of that name");
                return None;
            }
            Some((tool, tool.shown(view)?))
        });
        usable.collect()
    }
}

// === impl CompositeTool ===

impl CompositeTool {
    /// The backends of the tools that it calls in a view.
    pub(crate) fn backends<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a BackendName> {
        self.called().filter_map(|tool| view.tool_of_step(tool)).map(|(_, route)| &route.backend)
    }

    /// It as JSON. Nothing if a tool that it calls does not exist in the view.
    fn shown(&self, view: &View) -> Option<Arc<str>> {
        let routes: Option<Vec<&Route>> =
            self.called().map(|tool| view.tool_of_step(tool).map(|(_, route)| route)).collect();
        let effects = Effects::of(&routes?);
        let given = self.definition.annotations.clone().unwrap_or_default();
        if effects.is_contradicted(&given) {
            tracing::warn!(
                tool = self.name,
                "composite tool left out: it claims to be safer than the tools that it calls"
            );
            return None;
        }
        let mut shown = json!({
            "name": self.name,
            "description": self.definition.description,
            "inputSchema": self.parameters,
            "annotations": effects.annotations(&given),
        });
        if let (Some(output), Some(shown)) = (&self.output, shown.as_object_mut()) {
            shown.insert("outputSchema".to_owned(), self.schema_of(output));
        }
        Some(shown.to_string().into())
    }

    fn schema_of(&self, output: &Output) -> Value {
        let described = self.definition.output.as_ref();
        let properties = output.properties.iter().map(|(name, property)| {
            let description = described.and_then(|output| output.properties.get(name)?.description.clone());
            (name.clone(), schema(property, description))
        });
        json!({ "type": "object", "properties": properties.collect::<Map<_, _>>(), "required": output.required })
    }
}

fn schema(property: &Property, description: Option<String>) -> Value {
    let mut shown = Map::from_iter([("type".to_owned(), json!(output::name(property.kind)))]);
    shown.extend(description.map(|text| ("description".to_owned(), json!(text))));
    if !property.members.is_empty() {
        let members = property.members.iter().map(|(name, member)| (name.clone(), schema(member, None)));
        shown.insert("properties".to_owned(), Value::Object(members.collect()));
    }
    Value::Object(shown)
}

// === impl Effects ===

impl Effects {
    /// What these tools do together. A tool that says nothing may do anything.
    fn of(routes: &[&Route]) -> Self {
        let mut effects = Self { read_only: true, destructive: false, open_world: false };
        for route in routes {
            let shown: Option<Value> = serde_json::from_str(&route.shown).ok();
            let hint = |name: &str| shown.as_ref()?.get("annotations")?.get(name)?.as_bool();
            let is_read_only = hint("readOnlyHint").unwrap_or(false);
            effects.read_only &= is_read_only;
            effects.destructive |= hint("destructiveHint").unwrap_or(!is_read_only);
            effects.open_world |= hint("openWorldHint").unwrap_or(true);
        }
        effects
    }

    /// Whether hints claim less than that.
    fn is_contradicted(self, given: &ToolAnnotations) -> bool {
        given.read_only_hint == Some(true) && !self.read_only
            || given.destructive_hint == Some(false) && self.destructive
            || given.open_world_hint == Some(false) && self.open_world
    }

    fn annotations(self, given: &ToolAnnotations) -> Value {
        let mut hints = json!({
            "readOnlyHint": given.read_only_hint.unwrap_or(self.read_only),
            "destructiveHint": given.destructive_hint.unwrap_or(self.destructive),
            "openWorldHint": given.open_world_hint.unwrap_or(self.open_world),
        });
        if let Some(hints) = hints.as_object_mut() {
            hints.extend(given.title.as_ref().map(|title| ("title".to_owned(), json!(title))));
            hints.extend(given.idempotent_hint.map(|hint| ("idempotentHint".to_owned(), json!(hint))));
        }
        hints
    }
}
