//! The views of a virtual server, each made once and kept until something has changed.
//!
//! A request that finds its view does no work for each backend or tool. What is waited for:
//!
//! | request | waits for catalogues that are not known yet |
//! | --- | --- |
//! | the first list of a client | all of them, for a short time after each backend appeared |
//! | later lists | none of backends that joined meanwhile: the client gets `list_changed` when they arrive |
//! | a name that a known catalogue has | of those backends only that would have the name before it |
//! | any other name | until one of them has it |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use sha2::{Digest as _, Sha256};
use skep_mcp::list::List;
use skep_proxy::capacity::Caches;
use skep_upstream::{BackendNames, ClientContext, ItemOwner};
use tokio::time::Instant;

use super::ClientView;
use crate::aggregate::{BackendName, Conflict, Rules};
use crate::backends::Backends;
use crate::catalogue::{Bounded, Digest, Limits, Owner, owner_of};
use crate::composite::CompositeTools;
use crate::offer::{CatalogueUse, Offer, Offered, Viewer};

/// Of how many clients it is known which view is theirs, and how many of these one owner may seem to be.
const CLIENTS: Limits = Limits { total: 4096, per_owner: 1024 };
/// How long a view is used at most before every backend is asked again.
const LATEST: Duration = Duration::from_mins(1);

/// The views of a virtual server.
#[derive(Debug)]
pub struct Views {
    rules: Rules,
    composite: CompositeTools,
    kept: Mutex<Kept>,
}

/// What was made before.
#[derive(Debug)]
struct Kept {
    /// Views by what they were made of.
    made: Bounded<Digest, Arc<ClientView>>,
    /// What that of all clients was made of.
    shared: Option<Digest>,
    /// Which of them a client sees.
    seen: Bounded<Viewer, Seen>,
}

/// Which view a client sees, for as long as nothing changes.
#[derive(Clone, Debug)]
struct Seen {
    made_of: Digest,
    /// How many changes of the backends there were before.
    generation: u64,
    /// When a catalogue is due to be refreshed, for lists and for calls.
    due: [Instant; 2],
    /// The backends of which nothing is known yet.
    missing: Arc<[Missing]>,
    /// Whether the client has listed something.
    has_listed: Arc<AtomicBool>,
}

/// A backend of which nothing is known yet.
#[derive(Debug)]
struct Missing {
    backend: BackendName,
    offer: Arc<Offer>,
}

/// What backends offer to a client, as far as it is known.
#[derive(Debug, Default)]
struct Parts {
    offered: BTreeMap<BackendName, Offered>,
    /// Those of them that are not called now.
    unavailable: BTreeSet<BackendName>,
}

/// What a client sees now.
struct Current {
    view: Arc<ClientView>,
    seen: Seen,
}

// === impl Views ===

impl Views {
    /// Views that follow these rules, with these tools beside those of backends.
    pub fn new(rules: Rules, composite: CompositeTools) -> Self {
        Self { rules, composite, kept: Mutex::new(Kept::within(Limits::of_total(Caches::of_process().views))) }
    }

    /// The tools beside those of backends.
    pub fn composite(&self) -> &CompositeTools {
        &self.composite
    }

    /// What a client may list now.
    pub async fn of(&self, backends: &Backends, client: &ClientContext) -> Arc<ClientView> {
        let Current { mut view, seen } = self.current(backends, client, CatalogueUse::List);
        let is_first = !seen.has_listed.load(Ordering::Relaxed);
        // What was evicted was listed before, and must not vanish from lists.
        let awaited = seen.missing.iter().filter(|missing| missing.offer.is_awaited());
        let awaited: Vec<_> = awaited.filter(|missing| is_first || missing.offer.is_late()).collect();
        if !awaited.is_empty() {
            // All at once: the slowest decides how long it takes.
            join_all(awaited.iter().map(|missing| missing.offer.first())).await;
            view = self.made_now(backends, client, CatalogueUse::List).view;
        }
        // Before there are backends, nothing was seen.
        seen.has_listed.store(!backends.all().is_empty(), Ordering::Relaxed);
        view
    }

    /// The view in which a name of a client has its meaning.
    pub async fn naming(&self, backends: &Backends, client: &ClientContext, list: List, name: &str) -> Arc<ClientView> {
        let Current { mut view, seen: Seen { mut missing, .. } } = self.current(backends, client, CatalogueUse::Call);
        loop {
            if missing.is_empty() {
                return view;
            }
            let owner = view.owner(list, name);
            let may_have = |missing: &&Missing| match &owner {
                ItemOwner::Backend(owner) => self.rules.may_claim(&missing.backend, list, name, owner),
                ItemOwner::Composed => false,
                ItemOwner::Unknown => true,
            };
            let awaited = missing.iter().filter(|missing| missing.offer.is_awaited()).filter(may_have);
            let awaited: Vec<_> = awaited.map(|missing| Box::pin(missing.offer.first())).collect();
            if awaited.is_empty() {
                return view;
            }
            drop(select_all(awaited).await);
            let now = self.made_now(backends, client, CatalogueUse::Call);
            (view, missing) = (now.view, now.seen.missing);
        }
    }

    /// What a client sees by what is known now.
    fn current(&self, backends: &Backends, client: &ClientContext, purpose: CatalogueUse) -> Current {
        let (viewer, generation, now) = (viewer(backends, client), backends.generation(), Instant::now());
        let known = self.with(|kept| {
            let seen = kept.seen.get(&viewer)?;
            let seen = (seen.generation == generation && now < seen.due(purpose)).then(|| seen.clone())?;
            Some(Current { view: kept.made.get(&seen.made_of)?.clone(), seen })
        });
        known.unwrap_or_else(|| self.made_now(backends, client, purpose))
    }

    /// Asks every backend what is known of it, and starts the refreshes that are due.
    fn made_now(&self, backends: &Backends, client: &ClientContext, purpose: CatalogueUse) -> Current {
        // Read before everything else: what changes meanwhile is found by the next request.
        let (key, generation, now) = (viewer(backends, client), backends.generation(), Instant::now());
        let (mut parts, mut missing, mut due) = (Parts::default(), Vec::new(), [now + LATEST; 2]);
        let (mut owner, of_client) = (None, || Some(owner_of(client)));
        for (name, backend) in &*backends.all() {
            let viewer = Viewer::of(client, backend.spec.strategy.is_of_client());
            if viewer != Viewer::Anyone && owner.is_none() {
                owner = of_client();
            }
            if !backend.health.is_routable() {
                // Its names stay its own, and it is asked nothing.
                parts.offered.extend(backend.offers.known(viewer).map(|offered| (name.clone(), offered)));
                parts.unavailable.insert(name.clone());
                continue;
            }
            let offer = backend.offers.to(backend, viewer, client, purpose);
            for (due, purpose) in due.iter_mut().zip([CatalogueUse::List, CatalogueUse::Call]) {
                *due = offer.next_due(purpose, now).min(*due);
            }
            match offer.known() {
                Some(offered) => {
                    parts.offered.insert(name.clone(), offered);
                }
                None => missing.push(Missing { backend: name.clone(), offer }),
            }
        }
        let made_of = parts.digest();
        let view = self.made_of(made_of, parts, owner);
        let owner = if key == Viewer::Anyone { None } else { of_client() };
        let seen = self.with(|kept| {
            let has_listed = kept.seen.get(&key).map(|seen| seen.has_listed.clone()).unwrap_or_default();
            let seen = Seen { made_of, generation, due, missing: missing.into(), has_listed };
            kept.seen.insert(&key, seen.clone(), 1, owner);
            seen
        });
        Current { view, seen }
    }

    /// The view of these catalogues, made before or now.
    fn made_of(&self, made_of: Digest, parts: Parts, owner: Owner) -> Arc<ClientView> {
        if let Some(made) = self.with(|kept| kept.made.get(&made_of).cloned()) {
            return made;
        }
        let Parts { offered, unavailable } = parts;
        let catalogues = offered.into_iter().map(|(name, offered)| (name, offered.catalogue)).collect();
        let made = Arc::new(ClientView::new(catalogues, &unavailable, &self.rules, &self.composite));
        let size = made.size();
        let before = self.with(|kept| {
            let mut before = None;
            if owner.is_none() {
                // There is one for all clients: what it was made of is out of date.
                before = kept.shared.replace(made_of).and_then(|before| kept.made.get(&before).cloned());
                kept.made.retain(|_, owner| owner.is_some());
            }
            kept.made.insert(&made_of, made.clone(), size, owner);
            before
        });
        let known = before.as_ref().map(|before| &before.view.conflicts[..]).unwrap_or_default();
        for conflict in made.view.conflicts.iter().filter(|conflict| known.binary_search(conflict).is_err()) {
            let Conflict { what, name, backends, outcome } = conflict;
            tracing::warn!(what, %name, ?backends, ?outcome, "backends offer the same name");
        }
        made
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Kept ===

impl Kept {
    fn within(limits: Limits) -> Self {
        Self { made: Bounded::new(limits), shared: None, seen: Bounded::new(CLIENTS) }
    }
}

// === impl Seen ===

impl Seen {
    fn due(&self, purpose: CatalogueUse) -> Instant {
        let [list, call] = self.due;
        match purpose {
            CatalogueUse::List => list,
            CatalogueUse::Call => call,
        }
    }
}

// === impl Parts ===

impl Parts {
    /// What tells them from any others, by content.
    fn digest(&self) -> Digest {
        let mut digest = Sha256::new();
        for (name, offered) in &self.offered {
            digest.update(name.len().to_be_bytes());
            digest.update(&**name);
            digest.update([u8::from(self.unavailable.contains(name))]);
            digest.update(offered.digest);
        }
        digest.finalize().into()
    }
}

/// Which clients see the same: all, unless what some backend offers depends on the client.
fn viewer(backends: &Backends, client: &ClientContext) -> Viewer {
    Viewer::of(client, backends.has_of_client())
}

#[cfg(test)]
mod tests;
