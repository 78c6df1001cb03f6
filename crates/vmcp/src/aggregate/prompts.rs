//! The prompts of all backends. Whatever happens to the names of tools, prompts get a prefix, unless backends have an order of priority,
//! or only conflicts are resolved.

use std::collections::BTreeMap;
use std::sync::Arc;

use skep_mcp::list::{Change, Element, List};

use super::names::{distinct, fit};
use super::rules::{Rules, Strategy};
use super::{BackendName, Conflict, Outcome, Route, View};
use crate::catalogue::{Catalogue, Item};

const WHAT: &str = "prompt";

/// Adds the prompts of all backends, the most important backend first.
pub(super) fn add(view: &mut View, catalogues: &BTreeMap<BackendName, Arc<Catalogue>>, rules: &Rules) {
    let mut backends: Vec<_> = catalogues.iter().collect();
    // The sort is stable: backends without a rank stay in the order of their names.
    backends.sort_by_key(|(backend, _)| rules.rank(backend).unwrap_or(usize::MAX));
    let offered = backends.iter().flat_map(|(_, catalogue)| catalogue.prompts.iter().map(|item| &*item.name));
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for name in offered {
        *count.entry(name).or_default() += 1;
    }
    for (backend, catalogue) in backends {
        for item in &catalogue.prompts {
            let is_bare = match rules.strategy {
                Strategy::Prefix | Strategy::Manual => false,
                Strategy::Priority(_) => rules.rank(backend).is_some(),
                Strategy::PrefixOnConflict => count.get(&*item.name) == Some(&1),
            };
            let name = if is_bare { item.name.clone().into_string() } else { fit(rules.prefixed(backend, &item.name)) };
            insert(view, name, backend, item, rules);
        }
    }
}

fn insert(view: &mut View, name: String, backend: &BackendName, item: &Item, rules: &Rules) {
    let name = match view.prompts.get(name.as_str()) {
        None => name,
        Some(other) => {
            let backends = vec![other.backend.clone(), backend.clone()];
            // The order of priority says who wins.
            let is_ranked = rules.rank(backend).is_some();
            let marked = if is_ranked { None } else { distinct(&view.prompts, &name, backend, &item.name) };
            let outcome = if marked.is_some() { Outcome::Renamed } else { Outcome::Dropped };
            view.conflicts.push(Conflict { what: WHAT, name: name.into(), backends, outcome });
            let Some(marked) = marked else { return };
            marked
        }
    };
    let change = Change { name: Some(name.clone()), ..Change::default() };
    let element = Element::parse(List::Prompts, &item.raw);
    let Ok(shown) = element.and_then(|element| element.changed(List::Prompts, change)) else { return };
    let route = Route { backend: backend.clone(), original: item.name.clone(), shown: shown.into() };
    view.prompts.insert(name.into(), route);
}
