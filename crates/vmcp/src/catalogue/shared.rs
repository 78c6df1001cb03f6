//! The catalogues of clients, each kept once however many clients see it, and as many of them as there is room for.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use skep_proxy::capacity::Caches;

use super::bounded::{Bounded, Limits, Owner};
use super::{Catalogue, Item};

/// The catalogues of this process.
static OF_PROCESS: LazyLock<Arc<Catalogues>> =
    LazyLock::new(|| Arc::new(Catalogues::within(Limits::of_total(Caches::of_process().catalogues))));

/// What tells a catalogue from any other: a digest of what it offers.
pub(crate) type Digest = [u8; 32];

/// Catalogues of clients, by what they offer.
#[derive(Debug)]
pub(crate) struct Catalogues(Mutex<Bounded<Digest, Arc<Catalogue>>>);

// === impl Catalogues ===

impl Catalogues {
    /// Those of this process, of all backends.
    pub(crate) fn of_process() -> Arc<Self> {
        OF_PROCESS.clone()
    }

    /// None yet.
    pub(crate) fn within(limits: Limits) -> Self {
        Self(Mutex::new(Bounded::new(limits)))
    }

    /// Keeps a catalogue for an owner, unless one with the same content is kept.
    pub(crate) fn keep(&self, digest: Digest, catalogue: Catalogue, owner: Owner) {
        let size = catalogue.size();
        self.with(|all| {
            if all.get(&digest).is_none() {
                all.insert(&digest, Arc::new(catalogue), size, owner);
            }
        });
    }

    /// A catalogue, if it is kept.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Arc<Catalogue>> {
        self.with(|all| all.get(digest).cloned())
    }

    /// How many bytes they have.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.with(|all| all.total())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Bounded<Digest, Arc<Catalogue>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Catalogue ===

impl Catalogue {
    /// What tells it from any other that offers something else. For how long it holds is not part of that.
    pub(crate) fn digest(&self) -> Digest {
        let mut digest = Sha256::new();
        for list in self.lists() {
            digest.update(list.len().to_be_bytes());
            for part in list.iter().flat_map(|item| [&*item.name, &*item.raw]) {
                digest.update(part.len().to_be_bytes());
                digest.update(part);
            }
        }
        let abilities = self.abilities;
        let abilities =
            [abilities.tools, abilities.prompts, abilities.resources, abilities.subscriptions, abilities.completions];
        digest.update(abilities.map(u8::from));
        digest.finalize().into()
    }

    /// How many bytes it has in memory.
    pub(crate) fn size(&self) -> usize {
        let items = self.lists().into_iter().flatten();
        size_of::<Self>() + items.map(|item| size_of::<Item>() + item.name.len() + item.raw.len()).sum::<usize>()
    }

    fn lists(&self) -> [&Vec<Item>; 4] {
        [&self.tools, &self.prompts, &self.resources, &self.templates]
    }
}
