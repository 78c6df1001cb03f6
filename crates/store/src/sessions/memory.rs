//! Sessions in this process.
//!
//! A look at a session costs a hash, a short lock and a store of its new deadline. Nothing is kept of a session that is
//! deleted, not even its place in the map once there are many such places. Those whose time is up go when they are reaped.

use std::collections::HashMap;
use std::collections::hash_map::{Entry as Slot, RandomState};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Created;
use crate::Session;
use crate::session::normalised;

/// How many maps there are. More than cores, so that two requests seldom want the same.
const SHARDS: usize = 32;

/// A map smaller than this is not worth shrinking.
const SMALL: usize = 64;

/// How many sessions a map holds: 131,072 in all. Who opens more than that is no user.
const MOST: usize = 4096;

/// How many bytes the texts of the sessions of a map may have: 128 MiB in all. Callers choose some of them.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// Sessions in memory.
#[derive(Debug)]
pub struct Memory {
    time_to_live: Duration,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>; SHARDS]>,
}

#[derive(Debug, Default)]
struct Shard {
    sessions: HashMap<Box<str>, Entry>,
    /// How many bytes their texts have.
    bytes: usize,
    /// Expired, but replaced by a new session of the same id before they were reaped.
    replaced: Vec<Arc<Session>>,
}

#[derive(Debug)]
struct Entry {
    session: Arc<Session>,
    /// How many bytes its texts have.
    bytes: usize,
    expires: Instant,
}

impl Memory {
    /// No sessions yet. Each lives this long after it was last touched.
    pub fn new(time_to_live: Duration) -> Self {
        Self { time_to_live, hasher: RandomState::new(), shards: Box::default() }
    }

    pub(super) fn time_to_live(&self) -> Duration {
        self.time_to_live
    }

    /// Stores a new session, or nothing if there is no room.
    pub(super) fn create(&self, session: Session) -> Option<Created> {
        let entry = self.entry(session);
        let now = Instant::now();
        let Shard { sessions, bytes, replaced } = &mut *self.shard(&entry.session.id);
        let is_full = sessions.len() >= MOST || *bytes + entry.bytes > MOST_BYTES;
        let more = entry.bytes;
        match sessions.entry(entry.session.id.as_str().into()) {
            Slot::Occupied(there) if there.get().lives(now) => return Some(Created::Existed),
            Slot::Occupied(mut there) => {
                let before = there.insert(entry);
                *bytes -= before.bytes;
                replaced.push(before.session);
            }
            Slot::Vacant(_) if is_full => return None,
            Slot::Vacant(place) => {
                place.insert(entry);
            }
        }
        *bytes += more;
        Some(Created::New)
    }

    pub(super) fn touch(&self, id: &str) -> Option<Arc<Session>> {
        let id = normalised(id);
        let now = Instant::now();
        let mut shard = self.shard(&id);
        let entry = shard.sessions.get_mut(&*id).filter(|entry| entry.lives(now))?;
        entry.expires = now + self.time_to_live;
        Some(Arc::clone(&entry.session))
    }

    pub(super) fn update(&self, session: Session) -> bool {
        let entry = self.entry(session);
        let now = Instant::now();
        let Shard { sessions, bytes, .. } = &mut *self.shard(&entry.session.id);
        let there = sessions.get_mut(entry.session.id.as_str()).filter(|there| there.lives(now));
        let Some(there) = there else { return false };
        *bytes = *bytes - there.bytes + entry.bytes;
        *there = entry;
        true
    }

    pub(super) fn delete(&self, id: &str) -> bool {
        let id = normalised(id);
        let mut shard = self.shard(&id);
        let removed = shard.sessions.remove(&*id);
        shard.bytes -= removed.as_ref().map_or(0, |entry| entry.bytes);
        shard.shrink();
        removed.is_some_and(|entry| entry.lives(Instant::now()))
    }

    pub(super) fn count(&self) -> usize {
        let now = Instant::now();
        let living = |shard: &Mutex<Shard>| lock(shard).sessions.values().filter(|entry| entry.lives(now)).count();
        self.shards.iter().map(living).sum()
    }

    pub(super) fn reap(&self) -> Vec<Arc<Session>> {
        let now = Instant::now();
        let mut expired = Vec::new();
        for shard in self.shards.iter() {
            let mut shard = lock(shard);
            let Shard { sessions, bytes, replaced } = &mut *shard;
            expired.append(replaced);
            for (_, entry) in sessions.extract_if(|_, entry| !entry.lives(now)) {
                *bytes -= entry.bytes;
                expired.push(entry.session);
            }
            shard.shrink();
        }
        expired
    }

    fn entry(&self, session: Session) -> Entry {
        let texts = session.metadata.iter().map(|(name, value)| name.len() + value.len());
        let bytes = session.id.len() + texts.sum::<usize>();
        Entry { session: Arc::new(session), bytes, expires: Instant::now() + self.time_to_live }
    }

    fn shard(&self, id: &str) -> MutexGuard<'_, Shard> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits of a hash are as good as others")]
        let place = self.hasher.hash_one(id) as usize % SHARDS;
        #[expect(clippy::indexing_slicing, reason = "a remainder is smaller than its divisor")]
        lock(&self.shards[place])
    }
}

impl Shard {
    /// Gives memory back when most of it is unused. Halving at a quarter keeps the cost per removal constant.
    fn shrink(&mut self) {
        let (used, room) = (self.sessions.len(), self.sessions.capacity());
        if room > SMALL && used < room / 4 {
            self.sessions.shrink_to(used * 2);
        }
        if self.replaced.is_empty() {
            self.replaced.shrink_to(0);
        }
    }
}

impl Entry {
    fn lives(&self, now: Instant) -> bool {
        now < self.expires
    }
}

/// A panic while it is held cannot leave a shard half changed.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::session::Kind;

    const LIFE: Duration = Duration::from_hours(2);

    fn session(number: u128) -> Session {
        Session::new(&Uuid::from_u128(number).to_string(), Kind::Streamable, Timestamp::UNIX_EPOCH, None)
    }

    fn id(number: u128) -> String {
        Uuid::from_u128(number).to_string()
    }

    fn room(memory: &Memory) -> usize {
        memory.shards.iter().map(|shard| lock(shard).sessions.capacity()).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_lives_as_long_as_it_is_touched() {
        let memory = Memory::new(LIFE);
        assert_eq!(memory.create(session(1)), Some(Created::New));
        for _ in 0..10 {
            tokio::time::advance(LIFE.checked_sub(Duration::from_millis(1)).unwrap()).await;
            assert!(memory.touch(&id(1)).is_some());
        }
        assert!(memory.reap().is_empty());
        tokio::time::advance(LIFE).await;
        assert!(memory.touch(&id(1)).is_none());
        assert_eq!(memory.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_expired_is_told_once_even_if_it_was_replaced() {
        let memory = Memory::new(LIFE);
        assert_eq!((memory.create(session(1)), memory.create(session(2))), (Some(Created::New), Some(Created::New)));
        tokio::time::advance(LIFE).await;
        // Expired is as good as gone, whoever asks.
        assert!(!memory.update(session(1)));
        assert_eq!(memory.create(session(1)), Some(Created::New));
        let mut expired: Vec<String> = memory.reap().iter().map(|session| session.id.clone()).collect();
        expired.sort();
        assert_eq!(expired, [id(1), id(2)]);
        assert!(memory.reap().is_empty());
        assert!(memory.touch(&id(1)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn deleting_what_expired_is_deleting_nothing() {
        let memory = Memory::new(LIFE);
        assert_eq!(memory.create(session(1)), Some(Created::New));
        tokio::time::advance(LIFE).await;
        assert!(!memory.delete(&id(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_stays_of_sessions_that_are_gone() {
        let memory = Memory::new(LIFE);
        let empty = room(&memory);
        for number in 0..60_000 {
            assert_eq!(memory.create(session(number)), Some(Created::New));
        }
        assert_eq!(memory.count(), 60_000);
        for number in 0..30_000 {
            assert!(memory.delete(&id(number)));
        }
        tokio::time::advance(LIFE).await;
        assert_eq!(memory.reap().len(), 30_000);
        assert_eq!(memory.count(), 0);
        assert!(room(&memory) <= empty + SHARDS * SMALL, "{} places are kept", room(&memory));
    }

    #[tokio::test(start_paused = true)]
    async fn long_texts_take_the_room_of_many_sessions_until_they_are_gone() {
        let bytes = |memory: &Memory| memory.shards.iter().map(|shard| lock(shard).bytes).sum::<usize>();
        let long = |number| {
            let mut session = session(number);
            session.metadata.insert("text".to_owned(), "x".repeat(MOST_BYTES / 16));
            session
        };
        let memory = Memory::new(LIFE);
        let stored = (0..1024_u128).filter(|number| memory.create(long(*number)).is_some()).collect::<Vec<_>>();
        assert!(stored.len() < 16 * SHARDS && bytes(&memory) <= MOST_BYTES * SHARDS, "{}", stored.len());
        let refused = (0..1024).find(|number| !stored.contains(number)).unwrap();
        // What is made smaller, deleted or expired gives its room back.
        for number in &stored {
            assert!(memory.update(session(*number)));
        }
        assert!(bytes(&memory) < 100 * stored.len());
        assert!(memory.create(long(refused)).is_some());
        assert!(memory.delete(&id(refused)) && memory.delete(&id(stored[0])));
        tokio::time::advance(LIFE).await;
        assert_eq!(memory.create(session(stored[1])), Some(Created::New));
        memory.reap();
        assert!(memory.delete(&id(stored[1])));
        assert_eq!(bytes(&memory), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_room_for_any_number_until_some_are_gone() {
        let memory = Memory::new(LIFE);
        let opened =
            (0..2 * (MOST * SHARDS) as u128).filter(|number| memory.create(session(*number)).is_some()).count();
        assert_eq!(opened, MOST * SHARDS);
        assert_eq!(memory.create(session(u128::MAX)), None);
        tokio::time::advance(LIFE).await;
        memory.reap();
        assert_eq!(memory.create(session(u128::MAX)), Some(Created::New));
    }
}
