//! Sessions in this process.
//!
//! One lock is enough: a proxy has one thread, and the critical section is a few hash lookups. Nothing is kept of a
//! deleted session, not even its slot in the maps once there are many free slots.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::ledger::{Ended, Inserted, Ledger, Owner, SessionLimits};
use super::{Created, texts};
use crate::Session;
use crate::session::normalised;

/// Sessions in memory.
#[derive(Debug)]
pub struct Memory {
    ledger: Box<Mutex<Ledger<Arc<Session>>>>,
    evicted: Notify,
}

impl Memory {
    /// An empty store. Each session lives this long after its last use, and a minute at most before its first.
    pub fn new(time_to_live: Duration) -> Self {
        Self::within(time_to_live, SessionLimits::default())
    }

    /// The same, with other limits.
    pub fn within(time_to_live: Duration, limits: SessionLimits) -> Self {
        Self { ledger: Box::new(Mutex::new(Ledger::new(time_to_live, limits))), evicted: Notify::new() }
    }

    pub(super) fn time_to_live(&self) -> Duration {
        self.lock().time_to_live()
    }

    pub(super) fn unused_time_to_live(&self) -> Duration {
        self.lock().unused_time_to_live()
    }

    /// Stores a new session, evicting others if necessary. `None` if it can never fit.
    pub(super) fn create(&self, session: Session, owner: &Owner) -> Option<Created> {
        let (texts, session) = (texts(&session), Arc::new(session));
        let mut ledger = self.lock();
        let inserted = ledger.insert(&session.id, texts, owner, Arc::clone(&session), Instant::now());
        if ledger.has_ended() {
            self.evicted.notify_one();
        }
        match inserted {
            Inserted::New => Some(Created::New),
            Inserted::Existed => Some(Created::Existed),
            Inserted::TooLarge => None,
        }
    }

    pub(super) fn touch(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().touch(&normalised(id), Instant::now()).map(|session| Arc::clone(session))
    }

    pub(super) fn update(&self, session: Session) -> bool {
        let (texts, session) = (texts(&session), Arc::new(session));
        self.lock().update(&session.id, texts, Arc::clone(&session), Instant::now())
    }

    pub(super) fn delete(&self, id: &str) -> bool {
        self.lock().remove(&normalised(id), Instant::now())
    }

    pub(super) fn count(&self) -> usize {
        self.lock().count_living(Instant::now())
    }

    pub(super) fn evictions(&self) -> u64 {
        self.lock().evictions()
    }

    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    pub(super) fn reap(&self, now: Option<Instant>) -> Vec<Ended<Arc<Session>>> {
        self.lock().reap(now)
    }

    /// A panic while it is held cannot leave the ledger half changed.
    fn lock(&self) -> MutexGuard<'_, Ledger<Arc<Session>>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    /// A session that got a second message.
    fn used(memory: &Memory, number: u128) {
        assert_eq!(memory.create(session(number), &Owner::default()), Some(Created::New));
        assert!(memory.touch(&id(number)).is_some());
    }

    fn reaped(memory: &Memory) -> Vec<String> {
        let mut ids: Vec<String> =
            memory.reap(Some(Instant::now())).iter().map(|ended| ended.value.id.clone()).collect();
        ids.sort();
        ids
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_lives_as_long_as_it_is_touched() {
        let memory = Memory::new(LIFE);
        used(&memory, 1);
        for _ in 0..10 {
            tokio::time::advance(LIFE.checked_sub(Duration::from_millis(1)).unwrap()).await;
            assert!(memory.touch(&id(1)).is_some());
        }
        assert!(reaped(&memory).is_empty());
        tokio::time::advance(LIFE).await;
        assert!(memory.touch(&id(1)).is_none());
        assert_eq!(memory.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_without_a_second_message_lives_one_minute() {
        let memory = Memory::new(LIFE);
        for number in 0..3 {
            assert_eq!(memory.create(session(number), &Owner::default()), Some(Created::New));
        }
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(memory.touch(&id(1)).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.touch(&id(0)).is_none() && memory.touch(&id(1)).is_some());
        assert_eq!(reaped(&memory), [id(0), id(2)]);
        // A shorter time to live applies to both.
        let memory = Memory::new(Duration::from_secs(5));
        assert_eq!(memory.create(session(1), &Owner::default()), Some(Created::New));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(memory.touch(&id(1)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_session_is_reported_once_unless_its_id_was_opened_again() {
        let memory = Memory::new(LIFE);
        used(&memory, 1);
        used(&memory, 2);
        tokio::time::advance(LIFE).await;
        // An expired session is not found by any operation.
        assert!(!memory.update(session(1)));
        assert_eq!(memory.create(session(1), &Owner::default()), Some(Created::New));
        // The proxy releases the resources of an ended id, which belongs to the new session now.
        assert_eq!(reaped(&memory), [id(2)]);
        assert!(reaped(&memory).is_empty());
        assert!(memory.touch(&id(1)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn deleting_what_expired_is_deleting_nothing() {
        let memory = Memory::new(LIFE);
        used(&memory, 1);
        tokio::time::advance(LIFE).await;
        assert!(!memory.delete(&id(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_eviction_is_reported_at_once() {
        let memory = Memory::within(LIFE, SessionLimits::of_total(8 * 1500));
        for number in 0..5 {
            assert_eq!(memory.create(session(number), &Owner::default()), Some(Created::New));
        }
        memory.evicted().await;
        let ended = memory.reap(None);
        assert!(ended.iter().all(|one| one.is_evicted) && ended.first().is_some_and(|one| one.value.id == id(0)));
        assert_eq!(memory.evictions(), ended.len() as u64);
        assert!(memory.touch(&id(0)).is_none() && memory.touch(&id(4)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_can_never_fit_is_refused() {
        let memory = Memory::within(LIFE, SessionLimits::of_total(8 * 1024));
        let mut long = session(1);
        long.metadata.insert("text".to_owned(), "x".repeat(4 * 1024));
        assert_eq!(memory.create(long, &Owner::default()), None);
        assert_eq!(memory.create(session(2), &Owner::default()), Some(Created::New));
    }
}
