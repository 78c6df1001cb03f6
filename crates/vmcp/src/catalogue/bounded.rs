//! Values that are kept for clients, within limits: of all clients together, and of each owner.
//!
//! A client chooses by its headers how many values are made for it. So an owner that reaches its share loses its own value that was unused
//! for longest, and if all together reach the limit, it is one of the owner that has the most.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use skep_upstream::ClientContext;

/// Whom a value is kept for: the identity of a client, or else its network. One that all clients share has no owner.
pub(crate) type Owner = Option<Arc<str>>;

/// The owner of what is kept for a client.
pub(crate) fn owner_of(client: &ClientContext) -> Arc<str> {
    let identity = client.caller.as_ref().map(|caller| &caller.identity).filter(|identity| identity.is_authenticated());
    let network = || client.peer.map(|peer| peer.to_string()).unwrap_or_default();
    identity.map_or_else(network, |identity| format!("identity {}", identity.key())).into()
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For all owners together.
    pub(crate) total: usize,
    /// For each.
    pub(crate) per_owner: usize,
}

impl Limits {
    /// So much, of which one owner may have half.
    pub(crate) const fn of_total(total: usize) -> Self {
        Self { total, per_owner: total / 2 }
    }
}

/// Values by key. What has no owner neither counts nor is evicted.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    limits: Limits,
    entries: HashMap<K, Entry<V>>,
    /// The sum of what counts.
    total: usize,
    owners: HashMap<Arc<str>, usize>,
    uses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    size: usize,
    owner: Owner,
    /// When it was used, in uses of all.
    used: u64,
}

// === impl Bounded ===

impl<K: Clone + Eq + Hash, V> Bounded<K, V> {
    /// Nothing yet.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, entries: HashMap::new(), total: 0, owners: HashMap::new(), uses: 0 }
    }

    /// A value, which is used by that.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        self.uses += 1;
        let uses = self.uses;
        let entry = self.entries.get_mut(key)?;
        entry.used = uses;
        Some(&entry.value)
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|entry| &entry.value)
    }

    /// How much is kept for owners.
    #[cfg(test)]
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Keeps a value of this size, and evicts others if need be. It is kept itself however large it is.
    pub(crate) fn insert(&mut self, key: &K, value: V, size: usize, owner: Owner) {
        self.remove(key);
        self.uses += 1;
        let entry = Entry { value, size, owner: owner.clone(), used: self.uses };
        self.entries.insert(key.clone(), entry);
        let Some(owner) = owner else { return };
        self.total += size;
        *self.owners.entry(owner.clone()).or_default() += size;
        while self.of(&owner) > self.limits.per_owner && self.evict(&owner, key) {}
        while self.total > self.limits.total {
            let Some(largest) = self.largest(key) else { return };
            if !self.evict(&largest, key) {
                return;
            }
        }
    }

    /// Removes a value.
    pub(crate) fn remove(&mut self, key: &K) {
        let Some(entry) = self.entries.remove(key) else { return };
        let Some(owner) = entry.owner else { return };
        self.total -= entry.size;
        if let Some(sum) = self.owners.get_mut(&owner) {
            *sum -= entry.size;
            if *sum == 0 {
                self.owners.remove(&owner);
            }
        }
    }

    /// Keeps only those values for which this holds.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&K, &Owner) -> bool) {
        let gone = self.entries.iter().filter(|(key, entry)| !is_kept(key, &entry.owner));
        for key in gone.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    fn of(&self, owner: &Arc<str>) -> usize {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    /// The owner with the most, of those that have something beside this.
    fn largest(&self, spared: &K) -> Option<Arc<str>> {
        let others =
            self.entries.iter().filter(|(key, _)| *key != spared).filter_map(|(_, entry)| entry.owner.as_ref());
        others.max_by_key(|owner| self.of(owner)).cloned()
    }

    /// Evicts the value of an owner that was unused for longest, but not this one. Says whether there was one.
    fn evict(&mut self, owner: &Arc<str>, spared: &K) -> bool {
        let own = self.entries.iter().filter(|(key, entry)| entry.owner.as_ref() == Some(owner) && *key != spared);
        let oldest = own.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
        oldest.is_some_and(|oldest| {
            self.remove(&oldest);
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { total: 100, per_owner: 60 };

    fn owner(name: &str) -> Owner {
        Owner::from(Arc::from(name))
    }

    fn keys(bounded: &Bounded<u32, ()>) -> Vec<u32> {
        let mut keys: Vec<u32> = bounded.entries.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn an_owner_at_its_share_loses_what_it_has_not_used_for_longest() {
        let mut bounded = Bounded::new(LIMITS);
        bounded.insert(&0, (), 30, owner("other"));
        for key in 1..=3 {
            bounded.insert(&key, (), 20, owner("hostile"));
        }
        bounded.get(&1).unwrap();
        bounded.insert(&4, (), 20, owner("hostile"));
        assert_eq!(keys(&bounded), [0, 1, 3, 4]);
        for key in 5..1000 {
            bounded.insert(&key, (), 20, owner("hostile"));
            assert!(bounded.total() <= 90);
        }
        assert!(bounded.get(&0).is_some());
    }

    #[test]
    fn if_there_is_too_much_in_all_the_owner_with_the_most_loses_something() {
        let mut bounded = Bounded::new(LIMITS);
        bounded.insert(&1, (), 30, owner("large"));
        bounded.insert(&2, (), 30, owner("large"));
        bounded.insert(&3, (), 30, owner("middle"));
        bounded.insert(&4, (), 20, owner("small"));
        assert_eq!((keys(&bounded), bounded.total()), (vec![2, 3, 4], 80));
    }

    #[test]
    fn what_all_clients_share_stays_and_one_that_is_too_large_is_kept_alone() {
        let mut bounded = Bounded::new(LIMITS);
        bounded.insert(&1, (), 1000, None);
        bounded.insert(&2, (), 10, owner("one"));
        bounded.insert(&3, (), 500, owner("one"));
        assert_eq!((keys(&bounded), bounded.total()), (vec![1, 3], 500));
        bounded.insert(&4, (), 10, owner("two"));
        assert_eq!((keys(&bounded), bounded.total()), (vec![1, 4], 10));
        bounded.remove(&4);
        assert_eq!((bounded.total(), bounded.owners.len()), (0, 0));
    }
}
