//! The session store.
//!
//! Two implementations and one set of operations. They are an enum and not a trait object: reading a session in memory
//! is then a hash and a lock, without an allocation for a future.

mod ledger;
mod memory;
mod prefix;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::ledger::{Owner, SESSION_BYTES, SessionLimits, UNUSED_TIME_TO_LIVE};
pub use self::memory::Memory;
pub use self::prefix::{Prefix, PrefixError};
pub use self::redis::Redis;

use crate::{Session, StoreError};

/// The sessions of a proxy. A session that is not used for its time to live expires, and one that was never used after
/// its creation expires after a minute. Owners have limits: see [`SessionLimits`].
///
/// Ids are taken as clients send them and [normalised](crate::session::normalised) here.
#[derive(Debug)]
pub enum Sessions {
    /// In this process.
    Memory(Memory),
    /// In Redis, shared with other replicas.
    Redis(Redis),
}

/// Whether a session was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Created {
    /// It is new.
    New,
    /// A session of that id exists, and is unchanged.
    Existed,
}

/// A session that ended without a request.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its id in the store.
    pub id: Arc<str>,
    /// The session, if it was kept in this process.
    pub session: Option<Arc<Session>>,
    /// Whether it was evicted for another one; otherwise it expired.
    pub is_evicted: bool,
}

// Futures that wait for Redis are boxed: every call that reads from memory would carry their size.
impl Sessions {
    /// How long a session lives after its last use.
    pub fn time_to_live(&self) -> Duration {
        match self {
            Self::Memory(memory) => memory.time_to_live(),
            Self::Redis(redis) => redis.time_to_live(),
        }
    }

    /// How long a session lives that was never used.
    pub fn unused_time_to_live(&self) -> Duration {
        match self {
            Self::Memory(memory) => memory.unused_time_to_live(),
            Self::Redis(redis) => redis.unused_time_to_live(),
        }
    }

    /// Stores a new session that counts against no owner but the total. Of several at once with the same id, one wins.
    pub async fn create(&self, session: Session) -> Result<Created, StoreError> {
        self.create_for(session, &Owner::default()).await
    }

    /// Stores a new session of an owner. An owner at its limit loses another one for it.
    pub async fn create_for(&self, session: Session, owner: &Owner) -> Result<Created, StoreError> {
        match self {
            Self::Memory(memory) => memory.create(session, owner).ok_or(StoreError::Full),
            Self::Redis(redis) => Box::pin(redis.create(&session, owner)).await,
        }
    }

    /// Returns a session, if it exists, and renews its time to live.
    pub async fn touch(&self, id: &str) -> Result<Option<Arc<Session>>, StoreError> {
        self.touch_for(id, Owner::default).await
    }

    /// The same for an owner, which the session counts against if this replica has not seen it before.
    pub async fn touch_for(&self, id: &str, owner: impl FnOnce() -> Owner) -> Result<Option<Arc<Session>>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.touch(id)),
            Self::Redis(redis) => Box::pin(redis.touch(id, owner)).await,
        }
    }

    /// Replaces a session and renews its time to live. Returns whether it existed: an expired one is not revived.
    pub async fn update(&self, session: Session) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.update(session)),
            Self::Redis(redis) => Box::pin(redis.update(&session)).await,
        }
    }

    /// Removes a session. Returns whether it existed.
    pub async fn delete(&self, id: &str) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.delete(id)),
            Self::Redis(redis) => Box::pin(redis.delete(id)).await,
        }
    }

    /// The number of sessions. It visits all of them: for metrics, not for requests.
    pub async fn count(&self) -> Result<usize, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.count()),
            Self::Redis(redis) => redis.count().await,
        }
    }

    /// How many sessions this replica has evicted.
    pub fn evictions(&self) -> u64 {
        match self {
            Self::Memory(memory) => memory.evictions(),
            Self::Redis(redis) => redis.evictions(),
        }
    }

    /// Waits until a session was evicted.
    pub async fn evicted(&self) {
        match self {
            Self::Memory(memory) => memory.evicted().await,
            Self::Redis(redis) => redis.evicted().await,
        }
    }

    /// Returns the evicted sessions, so that their streams can be closed.
    pub fn take_evicted(&self) -> Vec<Ended> {
        self.ended(None)
    }

    /// The same, and removes expired sessions, which visits all of them: now and then is enough. With Redis, those
    /// expire that this replica has not seen used; another one may have.
    pub fn reap(&self) -> Vec<Ended> {
        self.ended(Some(Instant::now()))
    }

    fn ended(&self, now: Option<Instant>) -> Vec<Ended> {
        match self {
            Self::Memory(memory) => memory.reap(now).into_iter().map(|one| one.map(Some)).collect(),
            Self::Redis(redis) => redis.reap(now).into_iter().map(|one| one.map(|()| None)).collect(),
        }
    }
}

// === impl ledger::Ended ===

impl<T> ledger::Ended<T> {
    fn map(self, session: impl FnOnce(T) -> Option<Arc<Session>>) -> Ended {
        Ended { id: self.id, session: session(self.value), is_evicted: self.is_evicted }
    }
}

/// How many bytes the strings of a session have.
fn texts(session: &Session) -> usize {
    let metadata = session.metadata.iter().map(|(name, value)| name.len() + value.len());
    session.id.len() + metadata.sum::<usize>()
}
