//! The resources and templates of all backends. URIs stay as they are. Where two backends have the same one, it is that of the first in
//! the order of names; the others are offered under a scheme that names the backend, as `docs+file:///readme`, so that each can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use skep_mcp::list::{Change, Element, List};

use super::template::matches;
use super::{BackendName, Conflict, Outcome, Route, View};
use crate::catalogue::{Catalogue, Item};

/// What every scheme begins with that names a backend whose own name cannot begin one.
const LETTER: &str = "b";

/// What of a backend is offered under a scheme that names it, by the backend's own URIs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Renamed {
    resources: BTreeSet<Box<str>>,
    templates: BTreeSet<Box<str>>,
    /// What stands in front of these.
    prefix: String,
}

/// Adds the resources and templates of all backends.
pub(super) fn add(view: &mut View, catalogues: &BTreeMap<BackendName, Arc<Catalogue>>) {
    for (backend, catalogue) in catalogues {
        for item in &catalogue.resources {
            insert(view, List::Resources, backend, item);
        }
        for item in &catalogue.templates {
            insert(view, List::ResourceTemplates, backend, item);
        }
    }
}

/// The template that a URI is made of, with the URI as the backend knows it.
pub(super) fn of_template(templates: &BTreeMap<Box<str>, Route>, uri: &str) -> Option<(BackendName, Box<str>)> {
    let (shown, route) = templates.iter().find(|(template, _)| matches(template, uri))?;
    // What was put in front of the template stands in front of the URI as well.
    let prefix = shown.strip_suffix(&*route.original).unwrap_or_default();
    Some((route.backend.clone(), uri.strip_prefix(prefix).unwrap_or(uri).into()))
}

fn insert(view: &mut View, list: List, backend: &BackendName, item: &Item) {
    let View { resources, templates, conflicts, renamed, .. } = view;
    let (routes, what) =
        if list == List::Resources { (resources, "resource") } else { (templates, "resource template") };
    let Some(other) = routes.get(&item.name) else {
        let route = Route { backend: backend.clone(), original: item.name.clone(), shown: item.raw.clone() };
        routes.insert(item.name.clone(), route);
        return;
    };
    let backends = vec![other.backend.clone(), backend.clone()];
    let prefix = prefix(backend);
    let key: Box<str> = format!("{prefix}{}", item.name).into();
    let outcome = if routes.contains_key(&key) { Outcome::Dropped } else { Outcome::Renamed };
    conflicts.push(Conflict { what, name: item.name.clone(), backends, outcome });
    if outcome == Outcome::Dropped {
        return;
    }
    let change = Change { name: Some(key.clone().into_string()), ..Change::default() };
    let element = Element::parse(list, &item.raw);
    let Ok(shown) = element.and_then(|element| element.changed(list, change)) else { return };
    routes.insert(key, Route { backend: backend.clone(), original: item.name.clone(), shown: shown.into() });
    let renamed = renamed.entry(backend.clone()).or_default();
    renamed.prefix = prefix;
    let uris = if list == List::Resources { &mut renamed.resources } else { &mut renamed.templates };
    uris.insert(item.name.clone());
}

/// What stands in front of the URIs of a backend that another one has as well: a scheme that names it, and begins with a letter.
fn prefix(backend: &str) -> String {
    if backend.starts_with(|first: char| first.is_ascii_alphabetic()) {
        format!("{backend}+")
    } else {
        format!("{LETTER}{backend}+")
    }
}

// === impl Renamed ===

impl Renamed {
    /// The URI by which clients know a resource, if it was renamed or is made of a template that was.
    pub(super) fn shown(&self, uri: &str) -> Option<String> {
        let is_renamed = self.resources.contains(uri) || self.templates.iter().any(|template| matches(template, uri));
        is_renamed.then(|| format!("{}{uri}", self.prefix))
    }
}
