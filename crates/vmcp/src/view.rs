//! What a client sees: the aggregated catalogues of the backends that it may reach, with the pages of its lists ready to be sent.

mod cursor;
mod pages;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::future::join_all;
use skep_mcp::list::List;
use skep_proxy::capacity::Caches;
use skep_upstream::{BackendNames, ClientContext, ItemOwner};

pub use cursor::{CursorError, Cursors};
pub use pages::{Listed, PAGE, Pages};

use crate::aggregate::{BackendName, Rules, View, aggregate};
use crate::backends::Backends;
use crate::catalogue::{Abilities, Bounded, Catalogue, Digest, Limits, Owner, owner_of};
use crate::composite::CompositeTools;
use crate::offer::{Offered, Viewer};
use crate::optimizer::IndexedView;

/// What a view is made of, by content.
type Parts = Vec<(BackendName, Digest)>;

/// The views of a virtual server.
#[derive(Debug)]
pub struct Views {
    rules: Rules,
    composite: CompositeTools,
    made: Mutex<Bounded<Parts, Arc<ClientView>>>,
}

/// What a client sees.
#[derive(Debug)]
pub struct ClientView {
    /// Where calls go.
    pub view: View,
    /// The pages of the lists.
    pub pages: Pages,
    /// What some backend can do.
    pub abilities: Abilities,
    /// Its tools in the index of the optimizer, once they were needed.
    pub(crate) indexed: OnceLock<IndexedView>,
    /// The catalogues that it was made of.
    catalogues: BTreeMap<BackendName, Arc<Catalogue>>,
}

// === impl Views ===

impl Views {
    /// Views that follow these rules, with these tools beside those of backends.
    pub fn new(rules: Rules, composite: CompositeTools) -> Self {
        Self { rules, composite, made: Mutex::new(Bounded::new(Limits::of_total(Caches::of_process().views))) }
    }

    /// The tools beside those of backends.
    pub fn composite(&self) -> &CompositeTools {
        &self.composite
    }

    /// What a client sees now. It is made anew when something has changed.
    pub async fn of(&self, backends: &Backends, client: &ClientContext) -> Arc<ClientView> {
        let all = backends.all();
        let routable: Vec<_> = all.values().filter(|backend| backend.health.is_routable()).collect();
        let mut owner = None;
        let mut known = BTreeMap::new();
        let mut missing = Vec::new();
        for backend in routable {
            let viewer = Viewer::of(client, backend.spec.strategy.is_of_client());
            if viewer != Viewer::Anyone {
                owner = Some(owner_of(client));
            }
            let offer = backend.offers.to(backend, viewer, client);
            match offer.known() {
                Some(offered) => {
                    known.insert(backend.name().clone(), offered);
                }
                None => missing.push((backend.name().clone(), offer)),
            }
        }
        // All at once: the slowest decides how long it takes.
        let first = missing.iter().map(|(name, offer)| async move { (name.clone(), offer.first().await) });
        for (name, first) in join_all(first).await {
            known.extend(first.map(|offered| (name, offered)));
        }
        self.made_of(known, owner)
    }

    /// The view of these catalogues, made before or now.
    fn made_of(&self, offered: BTreeMap<BackendName, Offered>, owner: Owner) -> Arc<ClientView> {
        let parts: Parts = offered.iter().map(|(name, offered)| (name.clone(), offered.digest)).collect();
        if let Some(made) = self.with(|made| made.get(&parts).cloned()) {
            return made;
        }
        let catalogues = offered.into_iter().map(|(name, offered)| (name, offered.catalogue)).collect();
        let made = Arc::new(ClientView::new(catalogues, &self.rules, &self.composite));
        for conflict in &made.view.conflicts {
            let crate::aggregate::Conflict { what, name, backends, outcome } = conflict;
            tracing::warn!(what, %name, ?backends, ?outcome, "backends offer the same name");
        }
        let size = made.size();
        self.with(|all| {
            if owner.is_none() {
                // There is one for all clients: what it was made of is out of date.
                all.retain(|_, owner| owner.is_some());
            }
            all.insert(&parts, made.clone(), size, owner);
        });
        made
    }

    fn with<T>(&self, act: impl FnOnce(&mut Bounded<Parts, Arc<ClientView>>) -> T) -> T {
        act(&mut self.made.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl ClientView ===

impl ClientView {
    fn new(catalogues: BTreeMap<BackendName, Arc<Catalogue>>, rules: &Rules, composite: &CompositeTools) -> Self {
        let view = aggregate(&catalogues, rules);
        let pages = Pages::of(&view, composite);
        let mut abilities = Abilities { completions: true, ..Abilities::default() };
        for catalogue in catalogues.values() {
            abilities.subscriptions |= catalogue.abilities.subscriptions;
        }
        abilities.tools = !pages.is_empty(skep_mcp::list::List::Tools);
        abilities.prompts = !view.prompts.is_empty();
        abilities.resources = !view.resources.is_empty() || !view.templates.is_empty();
        Self { view, pages, abilities, indexed: OnceLock::new(), catalogues }
    }

    /// How many bytes it has in memory, with the catalogues that it holds.
    fn size(&self) -> usize {
        self.pages.size() + self.catalogues.values().map(|catalogue| catalogue.size()).sum::<usize>()
    }

    /// Whether a backend can do what its catalogue says.
    pub fn abilities_of(&self, backend: &str) -> Abilities {
        self.catalogues.get(backend).map(|catalogue| catalogue.abilities).unwrap_or_default()
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
            // A composite tool, which no backend has.
            None if self.pages.list(list).contains(name) => ItemOwner::Composed,
            None => ItemOwner::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
