//! Which owner has which sessions, and which one is evicted when an owner has too many.
//!
//! Every session counts against the peer address that opened it and, if the client is authenticated, against its
//! identity. An owner that reaches its share loses sessions of its own, never those of another one. If all owners
//! together reach the total, the evicted session is chosen from all.
//!
//! ```text
//!   index: id ─▶ key ─▶ entry ─┬─ place in the queues of its peer       unused ─▶ oldest … newest
//!                              ├─ place in the queues of its identity   used   ─▶ longest idle … last used
//!                              └─ place in the queues of all
//! ```
//!
//! The oldest session without a second message is evicted first, then the one that is idle for longest; among all
//! owners, that of the peer with the most. A new session is spared for [`SPARED`], or clients that use their sessions
//! could keep others from ever sending a second message. But only while the unused ones take no more than a quarter: a
//! flood of them displaces itself.
//!
//! Every operation is a constant number of hash lookups; creation and the first use add one ordered lookup for the largest peer.

mod limits;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::limits::SessionLimits;
use self::limits::Side;
use self::queue::{Links, Queue};

/// The size of a session beside its strings, here and in the proxy, in bytes. Measured, and rounded up.
pub const SESSION_BYTES: usize = 1280;

/// How long a session lives before its second message.
pub const UNUSED_TIME_TO_LIVE: Duration = Duration::from_mins(1);

/// How long a session without a second message is spared while others can be evicted.
pub(super) const SPARED: Duration = Duration::from_secs(5);

/// The fraction of a limit within which sessions without a second message are spared: one in so many.
const SPARED_PART: usize = 4;

/// The fraction of the total from which on a peer is large: one in so many. Where no peer is, the session that is idle
/// for longest is evicted.
const LARGE_PART: usize = 16;

/// A map smaller than this is not shrunk.
const SMALL: usize = 64;

/// The owner that a session counts against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The authenticated identity, if there is one. An identity that all clients share does not count.
    pub identity: Option<Arc<str>>,
    /// The address of the client, or the network that it has for itself.
    pub peer: Option<IpAddr>,
    /// What this process keeps of a session beside what is stored, in bytes.
    pub beside: usize,
}

/// A session that ended without a request.
#[derive(Clone, Debug)]
pub(super) struct Ended<T> {
    /// Its id in the store.
    pub(super) id: Arc<str>,
    /// Its stored value.
    pub(super) value: T,
    /// Whether it was evicted for another one; otherwise it expired.
    pub(super) is_evicted: bool,
    /// When it would have expired.
    pub(super) expires: Instant,
}

/// The sessions, by id and by owner.
#[derive(Debug)]
pub(super) struct Ledger<T> {
    limits: SessionLimits,
    time_to_live: Duration,
    index: HashMap<Arc<str>, u64>,
    entries: HashMap<u64, Entry<T>>,
    names: HashMap<Name, u64>,
    groups: HashMap<u64, Group>,
    /// All sessions.
    all: Sum,
    /// The peers by the size of their used sessions.
    largest: BTreeSet<(usize, u64)>,
    last_key: u64,
    /// Ended, and not reported yet.
    ended: Vec<Ended<T>>,
    evictions: u64,
}

/// An owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Peer(Option<IpAddr>),
    Identity(Arc<str>),
}

/// The sessions of an owner.
#[derive(Debug)]
struct Group {
    name: Name,
    sum: Sum,
}

/// Sessions in eviction order, and their size.
#[derive(Debug, Default)]
struct Sum {
    bytes: usize,
    /// The size of those that were used.
    used_bytes: usize,
    unused: Queue,
    used: Queue,
}

#[derive(Debug)]
struct Entry<T> {
    id: Arc<str>,
    value: T,
    bytes: usize,
    /// How many of them are not stored.
    beside: usize,
    expires: Instant,
    is_used: bool,
    peer: Place,
    identity: Option<Place>,
    /// Its neighbours among all.
    links: Links,
}

/// The place of a session among those of an owner.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: u64,
    links: Links,
}

/// The outcome of inserting a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    New,
    Existed,
    /// It is larger than the share of one owner.
    TooLarge,
}

// === impl Ledger ===

impl<T> Ledger<T> {
    pub(super) fn new(time_to_live: Duration, limits: SessionLimits) -> Self {
        Self {
            limits,
            time_to_live,
            index: HashMap::new(),
            entries: HashMap::new(),
            names: HashMap::new(),
            groups: HashMap::new(),
            all: Sum::default(),
            largest: BTreeSet::new(),
            last_key: 0,
            ended: Vec::new(),
            evictions: 0,
        }
    }

    pub(super) fn time_to_live(&self) -> Duration {
        self.time_to_live
    }

    /// How long a session lives before its second message.
    pub(super) fn unused_time_to_live(&self) -> Duration {
        self.time_to_live.min(UNUSED_TIME_TO_LIVE)
    }

    /// Adds a session, evicting others if necessary. An expired one of the same id is replaced, and not reported as
    /// ended: releasing the resources of that id would take them from the new session.
    pub(super) fn insert(&mut self, id: &str, texts: usize, owner: &Owner, value: T, now: Instant) -> Inserted {
        let bytes = SESSION_BYTES + texts + owner.beside;
        let limits = self.limits;
        let is_too_large =
            bytes > limits.total.min(limits.per_peer) || owner.identity.is_some() && bytes > limits.per_identity;
        if let Some(key) = self.index.get(id).copied() {
            if self.entries.get(&key).is_some_and(|entry| now < entry.expires) {
                return Inserted::Existed;
            }
            if !is_too_large {
                self.take(key);
            }
        }
        if is_too_large {
            return Inserted::TooLarge;
        }
        self.make_room(Some(&Name::Peer(owner.peer)), Side::Peer, bytes, now);
        if let Some(identity) = &owner.identity {
            self.make_room(Some(&Name::Identity(identity.clone())), Side::Identity, bytes, now);
        }
        self.make_room(None, Side::All, bytes, now);
        let key = self.new_key();
        let id: Arc<str> = id.into();
        let place = |group| Place { group, links: Links::default() };
        let peer = place(self.group(Name::Peer(owner.peer)));
        let identity = owner.identity.clone().map(|name| place(self.group(Name::Identity(name))));
        let expires = now + self.unused_time_to_live();
        let links = Links::default();
        let beside = owner.beside;
        let entry = Entry { id: id.clone(), value, bytes, beside, expires, is_used: false, peer, identity, links };
        self.entries.insert(key, entry);
        self.index.insert(id, key);
        self.count(key, bytes);
        self.enqueue(key);
        Inserted::New
    }

    /// Records a use of a session, and returns its value.
    pub(super) fn touch(&mut self, id: &str, now: Instant) -> Option<&mut T> {
        let key = *self.index.get(id)?;
        let time_to_live = self.time_to_live;
        let entry = self.entries.get_mut(&key).filter(|entry| now < entry.expires)?;
        entry.expires = now + time_to_live;
        let (bytes, is_first) = (entry.bytes, !entry.is_used);
        if !entry.is_last_used() {
            self.dequeue(key);
            if is_first {
                self.uncount(key, bytes);
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.is_used = true;
                }
                self.count(key, bytes);
            }
            self.enqueue(key);
        }
        self.entries.get_mut(&key).map(|entry| &mut entry.value)
    }

    /// Replaces the value of a session, which counts as a use. Returns whether the session exists.
    pub(super) fn update(&mut self, id: &str, texts: usize, value: T, now: Instant) -> bool {
        let Some(kept) = self.touch(id, now) else { return false };
        *kept = value;
        let Some(key) = self.index.get(id).copied() else { return false };
        let (before, beside) = self.entries.get(&key).map_or((0, 0), |entry| (entry.bytes, entry.beside));
        self.uncount(key, before);
        let bytes = SESSION_BYTES + texts + beside;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.bytes = bytes;
        }
        self.count(key, bytes);
        true
    }

    /// Removes a session. Returns whether it had not expired.
    pub(super) fn remove(&mut self, id: &str, now: Instant) -> bool {
        let Some(key) = self.index.get(id).copied() else { return false };
        let removed = self.take(key);
        self.shrink();
        removed.is_some_and(|entry| now < entry.expires)
    }

    /// The number of sessions.
    pub(super) fn count_living(&self, now: Instant) -> usize {
        self.entries.values().filter(|entry| now < entry.expires).count()
    }

    /// How many were evicted so far.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Those that were evicted since that count, unless already reported.
    pub(super) fn evicted_since(&self, before: u64) -> Vec<Ended<T>>
    where
        T: Clone,
    {
        let count = usize::try_from(self.evictions - before).unwrap_or(usize::MAX);
        self.ended.iter().rev().filter(|ended| ended.is_evicted).take(count).cloned().collect()
    }

    /// Whether there are ended sessions that were not reported.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// What was evicted since the last call, and what expired if `now` is given.
    pub(super) fn reap(&mut self, now: Option<Instant>) -> Vec<Ended<T>> {
        if let Some(now) = now {
            let expired = self.entries.iter().filter(|(_, entry)| now >= entry.expires).map(|(key, _)| *key);
            for key in expired.collect::<Vec<_>>() {
                self.end(key, false);
            }
            self.shrink();
        }
        std::mem::take(&mut self.ended)
    }

    /// Evicts sessions of an owner, or of all, until there is room for one more of this size.
    fn make_room(&mut self, name: Option<&Name>, side: Side, bytes: usize, now: Instant) {
        let limit = self.limits.share(side);
        loop {
            let sum = match name {
                None => Some(&self.all),
                Some(name) => self.names.get(name).and_then(|group| self.groups.get(group)).map(|group| &group.sum),
            };
            let Some(sum) = sum.filter(|sum| sum.bytes + bytes > limit) else { return };
            let idle = if side == Side::All { self.longest_idle() } else { sum.used.first() };
            let unused = sum.unused.first();
            let is_spared = sum.bytes - sum.used_bytes + bytes <= limit / SPARED_PART
                && unused.and_then(|key| self.entries.get(&key)).is_some_and(|entry| self.is_new(entry, now));
            let Some(key) = (if is_spared { idle.or(unused) } else { unused.or(idle) }) else { return };
            self.evictions += 1;
            self.end(key, true);
        }
    }

    /// The used session to evict first of all: that of the peer with the most, if that is large, and else the one that
    /// is idle for longest. Which of many small peers is the largest is arbitrary.
    fn longest_idle(&self) -> Option<u64> {
        let largest = self.largest.last().filter(|(bytes, _)| *bytes > self.limits.total / LARGE_PART);
        let group = largest.and_then(|(_, group)| self.groups.get(group));
        group.map_or(&self.all, |group| &group.sum).used.first()
    }

    /// Whether an unused session was opened just now.
    fn is_new(&self, entry: &Entry<T>, now: Instant) -> bool {
        entry.expires > now + self.unused_time_to_live().saturating_sub(SPARED)
    }

    fn end(&mut self, key: u64, is_evicted: bool) {
        if let Some(Entry { id, value, expires, .. }) = self.take(key) {
            self.ended.push(Ended { id, value, is_evicted, expires });
        }
    }

    /// Removes a session from all indexes.
    fn take(&mut self, key: u64) -> Option<Entry<T>> {
        let bytes = self.entries.get(&key)?.bytes;
        self.dequeue(key);
        self.uncount(key, bytes);
        let entry = self.entries.remove(&key)?;
        self.index.remove(&entry.id);
        for group in [Some(entry.peer.group), entry.identity.map(|place| place.group)].into_iter().flatten() {
            if self.groups.get(&group).is_some_and(|group| group.sum.bytes == 0)
                && let Some(group) = self.groups.remove(&group)
            {
                self.names.remove(&group.name);
            }
        }
        Some(entry)
    }

    /// The group of an owner.
    fn group(&mut self, name: Name) -> u64 {
        if let Some(group) = self.names.get(&name) {
            return *group;
        }
        let key = self.new_key();
        self.names.insert(name.clone(), key);
        self.groups.insert(key, Group { name, sum: Sum::default() });
        key
    }

    fn count(&mut self, key: u64, bytes: usize) {
        self.weigh(key, |sum| sum + bytes);
    }

    fn uncount(&mut self, key: u64, bytes: usize) {
        self.weigh(key, |sum| sum - bytes);
    }

    /// Changes the size that a session counts for its owners.
    fn weigh(&mut self, key: u64, change: impl Fn(usize) -> usize) {
        let Some(entry) = self.entries.get(&key) else { return };
        self.all.weigh(entry.is_used, &change);
        if let Some(Group { sum, .. }) = self.groups.get_mut(&entry.peer.group) {
            self.largest.remove(&(sum.used_bytes, entry.peer.group));
            sum.weigh(entry.is_used, &change);
            if sum.used_bytes > 0 {
                self.largest.insert((sum.used_bytes, entry.peer.group));
            }
        }
        if let Some(group) = entry.identity.and_then(|place| self.groups.get_mut(&place.group)) {
            group.sum.weigh(entry.is_used, &change);
        }
    }

    /// Appends a session to the queues that it belongs to.
    fn enqueue(&mut self, key: u64) {
        for side in Side::EACH {
            let Self { entries, groups, all, .. } = self;
            let Some(queue) = queue_of(entries, groups, all, key, side) else { continue };
            queue.push(key, |key, change| change_links(entries, key, side, change));
        }
    }

    /// Removes a session from the queues that it is in.
    fn dequeue(&mut self, key: u64) {
        for side in Side::EACH {
            let Self { entries, groups, all, .. } = self;
            let Some(links) = entries.get(&key).and_then(|entry| entry.links(side)) else { continue };
            let Some(queue) = queue_of(entries, groups, all, key, side) else { continue };
            queue.remove(links, |key, change| change_links(entries, key, side, change));
        }
    }

    fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    /// Releases memory when most of it is unused. Halving at a quarter keeps the cost per removal constant.
    fn shrink(&mut self) {
        let (used, room) = (self.entries.len(), self.entries.capacity());
        if room > SMALL && used < room / 4 {
            self.entries.shrink_to(used * 2);
            self.index.shrink_to(used * 2);
            self.names.shrink_to(self.names.len() * 2);
            self.groups.shrink_to(self.groups.len() * 2);
        }
    }
}

/// The queue that a session belongs to, of one of its owners or of all.
fn queue_of<'a, T>(
    entries: &HashMap<u64, Entry<T>>,
    groups: &'a mut HashMap<u64, Group>,
    all: &'a mut Sum,
    key: u64,
    side: Side,
) -> Option<&'a mut Queue> {
    let entry = entries.get(&key)?;
    let sum = match side {
        Side::Peer => &mut groups.get_mut(&entry.peer.group)?.sum,
        Side::Identity => &mut groups.get_mut(&entry.identity?.group)?.sum,
        Side::All => all,
    };
    Some(if entry.is_used { &mut sum.used } else { &mut sum.unused })
}

fn change_links<T>(entries: &mut HashMap<u64, Entry<T>>, key: u64, side: Side, change: &mut dyn FnMut(&mut Links)) {
    let Some(entry) = entries.get_mut(&key) else { return };
    match side {
        Side::Peer => change(&mut entry.peer.links),
        Side::Identity => entry.identity.iter_mut().for_each(|place| change(&mut place.links)),
        Side::All => change(&mut entry.links),
    }
}

// === impl Sum ===

impl Sum {
    fn weigh(&mut self, is_used: bool, change: impl Fn(usize) -> usize) {
        self.bytes = change(self.bytes);
        if is_used {
            self.used_bytes = change(self.used_bytes);
        }
    }
}

// === impl Entry ===

impl<T> Entry<T> {
    /// Whether a use would not change its places, as when one client sends all requests.
    fn is_last_used(&self) -> bool {
        self.is_used && Side::EACH.into_iter().filter_map(|side| self.links(side)).all(Links::is_last)
    }

    fn links(&self, side: Side) -> Option<Links> {
        match side {
            Side::Peer => Some(self.peer.links),
            Side::Identity => self.identity.map(|place| place.links),
            Side::All => Some(self.links),
        }
    }
}
