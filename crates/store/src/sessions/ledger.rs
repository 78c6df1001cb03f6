//! Who owns which session, and which one goes when an owner has too many.
//!
//! Every session counts against the peer address that opened it and, if the client is authenticated, against its identity.
//! An owner that reaches its share loses sessions of its own, never those of another one: first those that got no second
//! message, the oldest first, then the one that is idle for longest. If all owners together reach the total, the peer with
//! the most loses one.
//!
//! ```text
//!   index: id ─▶ key ─▶ entry ─┬─ place in the queues of its peer       unused ─▶ oldest … newest
//!                              └─ place in the queues of its identity   used   ─▶ longest idle … last used
//! ```
//!
//! Every operation is a constant number of hash lookups; creation adds one ordered lookup for the largest peer.

mod queue;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::queue::{Links, Queue};

/// What a session takes beside its texts, here and in the proxy, in bytes. Measured, and rounded up.
pub const SESSION_BYTES: usize = 1280;

/// How long a session lives before its second message.
pub const UNUSED_TIME_TO_LIVE: Duration = Duration::from_mins(1);

/// A map smaller than this is not worth shrinking.
const SMALL: usize = 64;

/// Whom a session counts against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The authenticated identity, if there is one. One that all clients share is none.
    pub identity: Option<Arc<str>>,
    /// The address of the client, or the network that it has for itself.
    pub peer: Option<IpAddr>,
}

/// How much the sessions of a proxy may take, in bytes: each counts [`SESSION_BYTES`] and its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// All of them.
    pub total: usize,
    /// Those of one identity.
    pub per_identity: usize,
    /// Those of one peer address. All clients behind an ingress share one.
    pub per_peer: usize,
}

/// A session that ended without being asked to.
#[derive(Clone, Debug)]
pub(super) struct Ended<T> {
    /// Its id in the store.
    pub(super) id: Arc<str>,
    /// What was kept of it.
    pub(super) value: T,
    /// Whether it made room for another one; otherwise its time to live is over.
    pub(super) is_evicted: bool,
    /// When it would have ended by itself.
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
    /// The peers by what their sessions take.
    largest: BTreeSet<(usize, u64)>,
    bytes: usize,
    last_key: u64,
    /// Ended, and not told yet.
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
    bytes: usize,
    unused: Queue,
    used: Queue,
}

/// Which of the owners of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Peer,
    Identity,
}

#[derive(Debug)]
struct Entry<T> {
    id: Arc<str>,
    value: T,
    bytes: usize,
    expires: Instant,
    is_used: bool,
    peer: Place,
    identity: Option<Place>,
}

/// The place of a session among those of an owner.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: u64,
    links: Links,
}

/// What became of a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    New,
    Existed,
    /// It is larger than the share of one owner.
    TooLarge,
}

// === impl SessionLimits ===

impl SessionLimits {
    /// A total, of which one owner may have half.
    pub const fn of_total(total: usize) -> Self {
        Self { total, per_identity: total / 2, per_peer: total / 2 }
    }

    fn share(&self, side: Side) -> usize {
        match side {
            Side::Peer => self.per_peer,
            Side::Identity => self.per_identity,
        }
    }
}

impl Default for SessionLimits {
    /// 128 MiB, which is about 100,000 sessions.
    fn default() -> Self {
        Self::of_total(128 * 1024 * 1024)
    }
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
            largest: BTreeSet::new(),
            bytes: 0,
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

    /// Adds a session, in place of others if need be. One of the same id whose time is over is replaced, and not reported as ended:
    /// whoever let go of what belongs to that id would take it from the new session.
    pub(super) fn insert(&mut self, id: &str, texts: usize, owner: &Owner, value: T, now: Instant) -> Inserted {
        let bytes = SESSION_BYTES + texts;
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
        let peer = self.make_room(Name::Peer(owner.peer), Side::Peer, bytes);
        let identity = owner.identity.as_ref();
        let identity = identity.map(|name| self.make_room(Name::Identity(name.clone()), Side::Identity, bytes));
        while self.bytes + bytes > limits.total {
            let Some((_, largest)) = self.largest.last().copied() else { break };
            self.evict(largest, Side::Peer);
        }
        let key = self.new_key();
        let id: Arc<str> = id.into();
        let place = |group| Place { group, links: Links::default() };
        // What made room may have been the last of its group.
        let peer = self.group(Name::Peer(owner.peer), peer);
        let identity =
            identity.zip(owner.identity.clone()).map(|(group, name)| place(self.group(Name::Identity(name), group)));
        let expires = now + self.unused_time_to_live();
        let entry = Entry { id: id.clone(), value, bytes, expires, is_used: false, peer: place(peer), identity };
        self.entries.insert(key, entry);
        self.index.insert(id, key);
        self.count(key, bytes);
        self.enqueue(key);
        Inserted::New
    }

    /// Notes that a session is used, and gives what is kept of it.
    pub(super) fn touch(&mut self, id: &str, now: Instant) -> Option<&mut T> {
        let key = *self.index.get(id)?;
        let time_to_live = self.time_to_live;
        let entry = self.entries.get_mut(&key).filter(|entry| now < entry.expires)?;
        entry.expires = now + time_to_live;
        if !entry.is_last_used() {
            self.dequeue(key);
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.is_used = true;
            }
            self.enqueue(key);
        }
        self.entries.get_mut(&key).map(|entry| &mut entry.value)
    }

    /// Replaces what is kept of a session, which counts as a use. Says whether the session is there.
    pub(super) fn update(&mut self, id: &str, texts: usize, value: T, now: Instant) -> bool {
        let Some(kept) = self.touch(id, now) else { return false };
        *kept = value;
        let Some(key) = self.index.get(id).copied() else { return false };
        let before = self.entries.get(&key).map_or(0, |entry| entry.bytes);
        self.uncount(key, before);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.bytes = SESSION_BYTES + texts;
        }
        self.count(key, SESSION_BYTES + texts);
        true
    }

    /// Removes a session. Says whether its time was not over.
    pub(super) fn remove(&mut self, id: &str, now: Instant) -> bool {
        let Some(key) = self.index.get(id).copied() else { return false };
        let removed = self.take(key);
        self.shrink();
        removed.is_some_and(|entry| now < entry.expires)
    }

    /// How many there are.
    pub(super) fn count_living(&self, now: Instant) -> usize {
        self.entries.values().filter(|entry| now < entry.expires).count()
    }

    /// How many made room for others so far.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Those that were evicted since there had been so many, as far as they were not told yet.
    pub(super) fn evicted_since(&self, before: u64) -> Vec<Ended<T>>
    where
        T: Clone,
    {
        let count = usize::try_from(self.evictions - before).unwrap_or(usize::MAX);
        self.ended.iter().rev().filter(|ended| ended.is_evicted).take(count).cloned().collect()
    }

    /// Whether there are sessions that ended and were not told.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// What was evicted since this was last asked, and what expired if `now` is given.
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

    /// Evicts sessions of an owner until there is room for one more of this size. Returns the owner's group.
    fn make_room(&mut self, name: Name, side: Side, bytes: usize) -> u64 {
        let group = self.group(name, 0);
        let share = self.limits.share(side);
        while self.groups.get(&group).is_some_and(|group| group.bytes + bytes > share) {
            if !self.evict(group, side) {
                break;
            }
        }
        group
    }

    /// Evicts the session of an owner that is missed least. Says whether there was one.
    fn evict(&mut self, group: u64, side: Side) -> bool {
        let Some(key) = self.groups.get(&group).and_then(|group| group.unused.first().or(group.used.first())) else {
            return false;
        };
        debug_assert!(self.entries.get(&key).and_then(|entry| entry.place(side)).is_some_and(|at| at.group == group));
        self.evictions += 1;
        self.end(key, true);
        true
    }

    fn end(&mut self, key: u64, is_evicted: bool) {
        if let Some(Entry { id, value, expires, .. }) = self.take(key) {
            self.ended.push(Ended { id, value, is_evicted, expires });
        }
    }

    /// Takes a session out of everything.
    fn take(&mut self, key: u64) -> Option<Entry<T>> {
        let bytes = self.entries.get(&key)?.bytes;
        self.dequeue(key);
        self.uncount(key, bytes);
        let entry = self.entries.remove(&key)?;
        self.index.remove(&entry.id);
        for group in [Some(entry.peer.group), entry.identity.map(|place| place.group)].into_iter().flatten() {
            if self.groups.get(&group).is_some_and(Group::is_empty)
                && let Some(group) = self.groups.remove(&group)
            {
                self.names.remove(&group.name);
            }
        }
        Some(entry)
    }

    /// The group of an owner: the known one, if that is still there.
    fn group(&mut self, name: Name, known: u64) -> u64 {
        if self.groups.contains_key(&known) {
            return known;
        }
        if let Some(group) = self.names.get(&name) {
            return *group;
        }
        let key = self.new_key();
        self.names.insert(name.clone(), key);
        self.groups.insert(key, Group { name, bytes: 0, unused: Queue::default(), used: Queue::default() });
        key
    }

    fn count(&mut self, key: u64, bytes: usize) {
        self.bytes += bytes;
        self.weigh(key, |sum| sum + bytes);
    }

    fn uncount(&mut self, key: u64, bytes: usize) {
        self.bytes -= bytes;
        self.weigh(key, |sum| sum - bytes);
    }

    /// Changes what the owners of a session are counted for.
    fn weigh(&mut self, key: u64, change: impl Fn(usize) -> usize) {
        let Some(entry) = self.entries.get(&key) else { return };
        if let Some(group) = self.groups.get_mut(&entry.peer.group) {
            self.largest.remove(&(group.bytes, entry.peer.group));
            group.bytes = change(group.bytes);
            if group.bytes > 0 {
                self.largest.insert((group.bytes, entry.peer.group));
            }
        }
        if let Some(group) = entry.identity.and_then(|place| self.groups.get_mut(&place.group)) {
            group.bytes = change(group.bytes);
        }
    }

    /// Puts a session at the end of the queues that it belongs to.
    fn enqueue(&mut self, key: u64) {
        for side in [Side::Peer, Side::Identity] {
            let Self { entries, groups, .. } = self;
            let Some(queue) = queue_of(entries, groups, key, side) else { continue };
            queue.push(key, |key, change| change_links(entries, key, side, change));
        }
    }

    /// Takes a session out of the queues that it is in.
    fn dequeue(&mut self, key: u64) {
        for side in [Side::Peer, Side::Identity] {
            let Self { entries, groups, .. } = self;
            let Some(links) = entries.get(&key).and_then(|entry| entry.place(side)).map(|place| place.links) else {
                continue;
            };
            let Some(queue) = queue_of(entries, groups, key, side) else { continue };
            queue.remove(links, |key, change| change_links(entries, key, side, change));
        }
    }

    fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    /// Gives memory back when most of it is unused. Halving at a quarter keeps the cost per removal constant.
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

/// The queue that a session belongs to, for one of its owners.
fn queue_of<'a, T>(
    entries: &HashMap<u64, Entry<T>>,
    groups: &'a mut HashMap<u64, Group>,
    key: u64,
    side: Side,
) -> Option<&'a mut Queue> {
    let entry = entries.get(&key)?;
    let group = groups.get_mut(&entry.place(side)?.group)?;
    Some(if entry.is_used { &mut group.used } else { &mut group.unused })
}

fn change_links<T>(entries: &mut HashMap<u64, Entry<T>>, key: u64, side: Side, change: &mut dyn FnMut(&mut Links)) {
    let place = entries.get_mut(&key).and_then(|entry| match side {
        Side::Peer => Some(&mut entry.peer),
        Side::Identity => entry.identity.as_mut(),
    });
    if let Some(place) = place {
        change(&mut place.links);
    }
}

// === impl Group ===

impl Group {
    fn is_empty(&self) -> bool {
        self.unused.first().is_none() && self.used.first().is_none()
    }
}

// === impl Entry ===

impl<T> Entry<T> {
    /// Whether a use would not change its places, as when one client does all the work.
    fn is_last_used(&self) -> bool {
        self.is_used && self.peer.links.is_last() && self.identity.is_none_or(|place| place.links.is_last())
    }

    fn place(&self, side: Side) -> Option<Place> {
        match side {
            Side::Peer => Some(self.peer),
            Side::Identity => self.identity,
        }
    }
}
