//! Many catalogues as one: pure functions from what backends offer, and from the rules, to what clients see and where their calls go.
//!
//! ```text
//!   catalogues, by backend ─▶ overrides ─▶ filter ─▶ names (prefix, priority, …) ─▶ View: lists, routes, conflicts
//! ```
//!
//! The result depends on nothing else: backends are taken in the order of their names, and so every replica names the same tool alike. How
//! backends are is no part of it: a name is that of its backend while that is down as well, and never calls another one meanwhile.

mod names;
mod prompts;
mod resources;
mod rules;
mod template;
mod tools;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use rules::{Rules, Strategy};

use crate::catalogue::Catalogue;

/// The name of a backend, by which everything else refers to it.
pub type BackendName = Arc<str>;

/// What clients see, and where their calls go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The tools, by the names that clients call them by.
    pub tools: BTreeMap<Box<str>, ToolRoute>,
    /// The prompts, by the names that clients get them by.
    pub prompts: BTreeMap<Box<str>, Route>,
    /// The resources, by the URIs that clients read them by.
    pub resources: BTreeMap<Box<str>, Route>,
    /// The templates of resources, by what clients see.
    pub templates: BTreeMap<Box<str>, Route>,
    /// What could not be offered under its own name, or at all.
    pub conflicts: Vec<Conflict>,
    /// The names of the tools of each backend, by what the backend calls them.
    names: BTreeMap<BackendName, HashMap<Box<str>, Box<str>>>,
    /// What clients know by other URIs than its backend.
    renamed: BTreeMap<BackendName, resources::Renamed>,
}

/// A prompt, resource or template of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The backend.
    pub backend: BackendName,
    /// What the backend calls it.
    pub original: Box<str>,
    /// It as JSON, as clients see it.
    pub shown: Arc<str>,
}

/// A tool of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRoute {
    /// Where its calls go.
    pub route: Route,
    /// Whether only composite tools can call it.
    pub is_hidden: bool,
}

/// Two backends offer something by the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// What it is: a tool, a prompt, a resource, a resource template.
    pub what: &'static str,
    /// Its name.
    pub name: Box<str>,
    /// The backends that offer it.
    pub backends: Vec<BackendName>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of things of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// One is offered, the others are not.
    Dropped,
    /// None is offered.
    AllDropped,
    /// One is offered under its name, the others under another one.
    Renamed,
}

/// Puts catalogues together.
pub fn aggregate(catalogues: &BTreeMap<BackendName, Arc<Catalogue>>, rules: &Rules) -> View {
    let mut view = View::default();
    tools::add(&mut view, catalogues, rules);
    prompts::add(&mut view, catalogues, rules);
    resources::add(&mut view, catalogues);
    view.conflicts.sort();
    view
}

// === impl View ===

impl View {
    /// The tool that a client calls.
    pub fn tool(&self, name: &str) -> Option<&Route> {
        self.tools.get(name).filter(|tool| !tool.is_hidden).map(|tool| &tool.route)
    }

    /// The tool that a step of a composite tool calls: by the name that clients see, or as `backend.tool`. Hidden ones too.
    pub fn tool_of_step(&self, name: &str) -> Option<(&str, &Route)> {
        if let Some((name, tool)) = self.tools.get_key_value(name) {
            return Some((name, &tool.route));
        }
        let (backend, original) = name.split_once('.')?;
        let (name, tool) = self.tools.get_key_value(self.names.get(backend)?.get(original)?)?;
        Some((name, &tool.route))
    }

    /// The prompt that a client gets.
    pub fn prompt(&self, name: &str) -> Option<&Route> {
        self.prompts.get(name)
    }

    /// Whether clients know any resource of a backend by another URI than the backend.
    pub fn renames(&self, backend: &str) -> bool {
        self.renamed.contains_key(backend)
    }

    /// The URI by which clients know a resource of a backend, where that is another one than the backend's.
    pub fn shown_uri(&self, backend: &str, uri: &str) -> Option<String> {
        let shown = self.renamed.get(backend)?.shown(uri)?;
        let is_bare = |(of, original): (BackendName, Box<str>)| &*of == backend && &*original == uri;
        (!self.resource(uri).is_some_and(is_bare)).then_some(shown)
    }

    /// The backend that a client reads a resource of, and the URI that the backend knows.
    pub fn resource(&self, uri: &str) -> Option<(BackendName, Box<str>)> {
        let exact = self.resources.get(uri).or_else(|| self.templates.get(uri));
        if let Some(route) = exact {
            return Some((route.backend.clone(), route.original.clone()));
        }
        resources::of_template(&self.templates, uri)
    }
}

#[cfg(test)]
mod tests;
