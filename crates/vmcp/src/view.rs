//! What a client sees: the aggregated catalogues of the backends that it may reach, with the pages of its lists ready to be sent.

mod cursor;
mod pages;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use skep_mcp::list::List;
use skep_upstream::{BackendNames, ItemOwner};

pub use cursor::{CursorError, Cursors};
pub use pages::{Listed, PAGE, Pages};
pub use views::Views;

use crate::aggregate::{BackendName, Rules, View, aggregate};
use crate::catalogue::{Abilities, Catalogue};
use crate::composite::CompositeTools;
use crate::optimizer::IndexedView;

/// What a client sees.
#[derive(Debug)]
pub struct ClientView {
    /// Where calls go. What is unavailable keeps its name here.
    pub view: View,
    /// The pages of the lists, without what is unavailable.
    pub pages: Pages,
    /// What some backend can do.
    pub abilities: Abilities,
    /// Its tools in the index of the optimizer, once they were needed.
    pub(crate) indexed: OnceLock<IndexedView>,
    /// The composite tools that it has, each with a backend that it needs and that is unavailable, if there is one.
    composed: BTreeMap<Box<str>, Option<BackendName>>,
    /// The catalogues that it was made of.
    catalogues: BTreeMap<BackendName, Arc<Catalogue>>,
}

// === impl ClientView ===

impl ClientView {
    /// The view of these catalogues. What those backends offer that are unavailable is not listed.
    fn new(
        catalogues: BTreeMap<BackendName, Arc<Catalogue>>,
        unavailable: &BTreeSet<BackendName>,
        rules: &Rules,
        composite: &CompositeTools,
    ) -> Self {
        let view = aggregate(&catalogues, rules);
        let shown = composite.shown(&view);
        let missing = |tool: &crate::composite::CompositeTool| {
            let mut backends = tool.backends(&view);
            backends.find(|backend| unavailable.contains(*backend)).cloned()
        };
        let composed: BTreeMap<_, _> =
            shown.iter().map(|(tool, _)| (Box::from(tool.name.as_str()), missing(tool))).collect();
        let shown = shown.iter().filter(|(tool, _)| composed.get(tool.name.as_str()).is_some_and(Option::is_none));
        let shown = shown.map(|(tool, shown)| (tool.name.as_str(), shown.clone()));
        let pages = Pages::of(&view, unavailable, shown);
        let mut abilities = Abilities { completions: true, ..Abilities::default() };
        for (_, catalogue) in catalogues.iter().filter(|(name, _)| !unavailable.contains(*name)) {
            abilities.subscriptions |= catalogue.abilities.subscriptions;
        }
        abilities.tools = !pages.is_empty(List::Tools);
        abilities.prompts = !pages.is_empty(List::Prompts);
        abilities.resources = !pages.is_empty(List::Resources) || !pages.is_empty(List::ResourceTemplates);
        Self { view, pages, abilities, indexed: OnceLock::new(), composed, catalogues }
    }

    /// How many bytes it has in memory, with the catalogues that it holds.
    fn size(&self) -> usize {
        self.pages.size() + self.catalogues.values().map(|catalogue| catalogue.size()).sum::<usize>()
    }

    /// Whether a backend can do what its catalogue says.
    pub fn abilities_of(&self, backend: &str) -> Abilities {
        self.catalogues.get(backend).map(|catalogue| catalogue.abilities).unwrap_or_default()
    }

    /// Whether it has a composite tool of a name.
    pub(crate) fn has_composed(&self, name: &str) -> bool {
        self.composed.contains_key(name)
    }

    /// A backend that a composite tool needs and that is unavailable, if there is one.
    pub(crate) fn missing_for(&self, name: &str) -> Option<&BackendName> {
        self.composed.get(name).and_then(Option::as_ref)
    }
}

impl BackendNames for ClientView {
    fn owner(&self, list: List, name: &str) -> ItemOwner {
        let backend = match list {
            List::Tools => self.view.tool(name).map(|route| route.backend.clone()),
            List::Prompts => self.view.prompt(name).map(|route| route.backend.clone()),
            List::Resources => self.view.resource(name).map(|(backend, _)| backend),
            List::ResourceTemplates => self.view.templates.get(name).map(|route| route.backend.clone()),
        };
        match backend {
            Some(backend) => ItemOwner::Backend(backend),
            // No backend has it.
            None if list == List::Tools && self.composed.contains_key(name) => ItemOwner::Composed,
            None => ItemOwner::Unknown,
        }
    }
}
