//! The resources and templates of all backends. URIs stay as they are. Where two backends have the same one, it is that of the first in
//! the order of names; the others are offered under a scheme that names the backend, as `docs+file:///readme`, so that each can be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use skep_mcp::list::{Change, Element, List};

use super::template::matches;
use super::{BackendName, Conflict, Outcome, Route, View};
use crate::catalogue::{Catalogue, Item};

/// What every scheme begins with that names a backend whose own name cannot begin one.
const LETTER: &str = "b";

/// Adds the resources and templates of all backends.
pub(super) fn add(view: &mut View, catalogues: &BTreeMap<BackendName, Arc<Catalogue>>) {
    let View { resources, templates, conflicts, .. } = view;
    for (backend, catalogue) in catalogues {
        for item in &catalogue.resources {
            insert(resources, conflicts, List::Resources, backend, item);
        }
        for item in &catalogue.templates {
            insert(templates, conflicts, List::ResourceTemplates, backend, item);
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

/// The URI by which clients know a resource of a backend that is made of a template shown under another name.
pub(super) fn shown_by_template(templates: &BTreeMap<Box<str>, Route>, backend: &str, uri: &str) -> Option<String> {
    let is_of = |route: &Route| &*route.backend == backend && matches(&route.original, uri);
    let (shown, route) = templates.iter().find(|(_, route)| is_of(route))?;
    let prefix = shown.strip_suffix(&*route.original).filter(|prefix| !prefix.is_empty())?;
    Some(format!("{prefix}{uri}"))
}

fn insert(
    routes: &mut BTreeMap<Box<str>, Route>,
    conflicts: &mut Vec<Conflict>,
    list: List,
    backend: &BackendName,
    item: &Item,
) {
    let mut key = item.name.clone();
    let mut shown = Some(item.raw.clone());
    if let Some(other) = routes.get(&key) {
        let what = if list == List::Resources { "resource" } else { "resource template" };
        let backends = vec![other.backend.clone(), backend.clone()];
        key = format!("{}+{key}", scheme(backend)).into();
        let outcome = if routes.contains_key(&key) { Outcome::Dropped } else { Outcome::Renamed };
        conflicts.push(Conflict { what, name: item.name.clone(), backends, outcome });
        if outcome == Outcome::Dropped {
            return;
        }
        let change = Change { name: Some(key.clone().into_string()), ..Change::default() };
        let element = Element::parse(list, &item.raw);
        shown = element.and_then(|element| element.changed(list, change)).ok().map(Into::into);
    }
    let Some(shown) = shown else { return };
    routes.insert(key, Route { backend: backend.clone(), original: item.name.clone(), shown });
}

/// What names a backend in a scheme, which begins with a letter.
fn scheme(backend: &str) -> String {
    if backend.starts_with(|first: char| first.is_ascii_alphabetic()) {
        backend.to_owned()
    } else {
        format!("{LETTER}{backend}")
    }
}
