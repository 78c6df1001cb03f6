//! Where sessions are.
//!
//! Two places and one set of operations. They are an enum and not a trait object: a look at a session in memory is then a
//! hash and a lock, without an allocation for a future.

mod memory;
mod prefix;
mod redis;

use std::sync::Arc;
use std::time::Duration;

pub use self::memory::Memory;
pub use self::prefix::{Prefix, PrefixError};
pub use self::redis::Redis;

use crate::{Session, StoreError};

/// The sessions of a proxy. A session that nobody touches for its time to live is gone.
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
    /// There is one of that id, which is left as it was.
    Existed,
}

// What waits for Redis is boxed: a call that looks into memory would carry the room for it.
impl Sessions {
    /// How long a session lives after it was last touched.
    pub fn time_to_live(&self) -> Duration {
        match self {
            Self::Memory(memory) => memory.time_to_live(),
            Self::Redis(redis) => redis.time_to_live(),
        }
    }

    /// Stores a new session. Of several at once with the same id, one wins.
    pub async fn create(&self, session: Session) -> Result<Created, StoreError> {
        match self {
            Self::Memory(memory) => memory.create(session).ok_or(StoreError::Full),
            Self::Redis(redis) => Box::pin(redis.create(&session)).await,
        }
    }

    /// A session, if there is one. Its time to live begins anew.
    pub async fn touch(&self, id: &str) -> Result<Option<Arc<Session>>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.touch(id)),
            Self::Redis(redis) => Box::pin(redis.touch(id)).await,
        }
    }

    /// Replaces a session, whose time to live begins anew. Says whether it was there: one that is gone stays gone.
    pub async fn update(&self, session: Session) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.update(session)),
            Self::Redis(redis) => Box::pin(redis.update(&session)).await,
        }
    }

    /// Removes a session. Says whether it was there.
    pub async fn delete(&self, id: &str) -> Result<bool, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.delete(id)),
            Self::Redis(redis) => Box::pin(redis.delete(id)).await,
        }
    }

    /// How many there are. It looks at all of them: for metrics, not for requests.
    pub async fn count(&self) -> Result<usize, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.count()),
            Self::Redis(redis) => redis.count().await,
        }
    }

    /// Takes out the sessions whose time is up, so that their streams can be closed. Memory needs it called now and then,
    /// half the time to live being often enough; Redis forgets by itself and tells nobody.
    pub fn reap(&self) -> Vec<Arc<Session>> {
        match self {
            Self::Memory(memory) => memory.reap(),
            Self::Redis(_) => Vec::new(),
        }
    }
}
