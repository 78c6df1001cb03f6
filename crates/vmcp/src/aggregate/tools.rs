//! The tools of all backends: overrides, then names, then who sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use skep_api::kinds::{ToolAnnotations, ToolOverride};
use skep_mcp::Raw;
use skep_mcp::list::{Change, Element, List};

use super::names::{distinct, fit};
use super::rules::{Rules, Strategy};
use super::{BackendName, Conflict, Outcome, Route, ToolRoute, View};
use crate::catalogue::{Catalogue, Item};

const WHAT: &str = "tool";

/// A tool of a backend after overrides.
struct Resolved<'a> {
    backend: &'a BackendName,
    item: &'a Item,
    changed: Option<&'a ToolOverride>,
    name: &'a str,
    is_hidden: bool,
}

/// Adds the tools of all backends. Those that clients see are named first: a hidden one takes no name from them.
pub(super) fn add(view: &mut View, catalogues: &BTreeMap<BackendName, Arc<Catalogue>>, rules: &Rules) {
    let mut resolved = Vec::new();
    for (backend, catalogue) in catalogues {
        for item in &catalogue.tools {
            let changed = rules.of_tool(backend, &item.name);
            let own = changed.and_then(|changed| changed.name.as_deref()).filter(|name| !name.is_empty());
            let name = own.unwrap_or(&item.name);
            resolved.push(Resolved { backend, item, changed, name, is_hidden: rules.hides(backend, name) });
        }
    }
    for hidden in [false, true] {
        let mut by_name: BTreeMap<&str, Vec<&Resolved<'_>>> = BTreeMap::new();
        for tool in resolved.iter().filter(|tool| tool.is_hidden == hidden) {
            by_name.entry(tool.name).or_default().push(tool);
        }
        for (name, tools) in by_name {
            add_named(view, name, &tools, rules);
        }
    }
}

/// Adds the tools that have one name.
fn add_named(view: &mut View, name: &str, tools: &[&Resolved<'_>], rules: &Rules) {
    let is_conflict = tools.len() > 1;
    match &rules.strategy {
        Strategy::Prefix => prefix(view, tools, rules),
        Strategy::Priority(_) if is_conflict => prioritize(view, name, tools, rules),
        Strategy::Manual if is_conflict => report(view, name, tools, Outcome::AllDropped),
        Strategy::PrefixOnConflict if is_conflict => prefix(view, tools, rules),
        Strategy::Priority(_) | Strategy::Manual | Strategy::PrefixOnConflict => {
            for tool in tools {
                insert(view, tool.name.to_owned(), tool);
            }
        }
    }
}

fn prefix(view: &mut View, tools: &[&Resolved<'_>], rules: &Rules) {
    for tool in tools {
        insert(view, fit(rules.prefixed(tool.backend, tool.name)), tool);
    }
}

/// The tool of the backend that comes first keeps the name. Where the order knows none of the backends, all get a prefix.
fn prioritize(view: &mut View, name: &str, tools: &[&Resolved<'_>], rules: &Rules) {
    let ranked = tools.iter().filter_map(|tool| Some((rules.rank(tool.backend)?, *tool)));
    match ranked.min_by_key(|(rank, _)| *rank) {
        Some((_, winner)) => {
            insert(view, name.to_owned(), winner);
            report(view, name, tools, Outcome::Dropped);
        }
        None => prefix(view, tools, rules),
    }
}

/// Adds a tool. A name that is taken already, as `a_b` + `c` and `a` + `b_c` are one, gets a mark.
fn insert(view: &mut View, name: String, tool: &Resolved<'_>) {
    let name = match view.tools.get(name.as_str()) {
        None => name,
        Some(other) => {
            let backends = vec![other.route.backend.clone(), tool.backend.clone()];
            let marked = distinct(&view.tools, &name, tool.backend, &tool.item.name);
            let outcome = if marked.is_some() { Outcome::Renamed } else { Outcome::Dropped };
            if !tool.is_hidden {
                view.conflicts.push(Conflict { what: WHAT, name: name.into(), backends, outcome });
            }
            let Some(marked) = marked else { return };
            marked
        }
    };
    let Some(shown) = shown(tool, &name) else { return };
    let route = Route { backend: tool.backend.clone(), original: tool.item.name.clone(), shown };
    let name: Box<str> = name.into();
    view.names.entry(tool.backend.clone()).or_default().insert(tool.item.name.clone(), name.clone());
    view.tools.insert(name, ToolRoute { route, is_hidden: tool.is_hidden });
}

fn report(view: &mut View, name: &str, tools: &[&Resolved<'_>], outcome: Outcome) {
    if tools.iter().all(|tool| tool.is_hidden) {
        return;
    }
    let backends = tools.iter().map(|tool| tool.backend.clone()).collect();
    view.conflicts.push(Conflict { what: WHAT, name: name.into(), backends, outcome });
}

/// The tool as clients see it. All that is not overridden keeps its bytes.
fn shown(tool: &Resolved<'_>, name: &str) -> Option<Arc<str>> {
    let changed = tool.changed.cloned().unwrap_or_default();
    let element = Element::parse(List::Tools, &tool.item.raw).ok()?;
    let annotations = changed.annotations.map(|own| annotated(element.annotations, &own));
    let change = Change {
        name: (*name != *tool.item.name).then(|| name.to_owned()),
        description: changed.description.filter(|text| !text.is_empty()),
        annotations,
    };
    if change == Change::default() {
        return Some(tool.item.raw.clone());
    }
    element.changed(List::Tools, change).ok().map(Into::into)
}

/// The annotations of a tool with some of them replaced.
fn annotated(known: Option<&str>, own: &ToolAnnotations) -> Raw<'static> {
    let known = known.and_then(|known| serde_json::from_str::<Map<String, Value>>(known).ok());
    let mut merged = known.unwrap_or_default();
    if let Ok(Value::Object(own)) = serde_json::to_value(own) {
        merged.extend(own);
    }
    Raw::value(&Value::Object(merged))
}
