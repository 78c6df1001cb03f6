//! Sessions in Redis. Every operation on one session is one command, so it is atomic across replicas.
//!
//! Each replica counts per owner the sessions that it sees. A session that it evicts is deleted in Redis, unless
//! another replica used it meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, cmd};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ledger::{Ended, Ledger, Owner, SessionLimits};
use super::{Created, Prefix, texts};
use crate::redis::{Retry, Server};
use crate::session::normalised;
use crate::{Session, StoreError};

/// The `COUNT` of a `SCAN` step: how many keys Redis visits before it serves other commands.
const AT_ONCE: usize = 1000;

/// Deletes those keys that live no longer than so many milliseconds each, atomically: a replica that uses one meanwhile
/// comes before or after all of it.
const EVICT: &str = "local deleted = 0
for at, key in ipairs(KEYS) do
  if redis.call('PTTL', key) <= tonumber(ARGV[at]) then deleted = deleted + redis.call('DEL', key) end
end
return deleted";

/// How many sessions one command evicts. A new session displaces a few at most, so there is hardly ever a second one.
const BATCH: usize = 100;

/// How much longer than expected a session may live in Redis before another replica must have used it.
const SLACK: Duration = Duration::from_secs(1);

/// Sessions in Redis.
#[derive(Clone, Debug)]
pub struct Redis {
    server: Server,
    prefix: Prefix,
    time_to_live: Duration,
    seen: Arc<Seen>,
}

/// The sessions that this replica sees.
#[derive(Debug)]
struct Seen {
    ledger: Mutex<Ledger<()>>,
    evicted: Notify,
}

impl Redis {
    /// The sessions under this prefix. Each lives this long after its last use.
    pub fn new(server: Server, prefix: Prefix, time_to_live: Duration) -> Self {
        Self::within(server, prefix, time_to_live, SessionLimits::default())
    }

    /// The same, with limits for the sessions that this replica sees.
    pub fn within(server: Server, prefix: Prefix, time_to_live: Duration, limits: SessionLimits) -> Self {
        let seen = Seen { ledger: Mutex::new(Ledger::new(time_to_live, limits)), evicted: Notify::new() };
        Self { server, prefix, time_to_live, seen: Arc::new(seen) }
    }

    pub(super) fn time_to_live(&self) -> Duration {
        self.time_to_live
    }

    pub(super) fn unused_time_to_live(&self) -> Duration {
        self.ledger().unused_time_to_live()
    }

    pub(super) async fn create(&self, session: &Session, owner: &Owner) -> Result<Created, StoreError> {
        let mut set = self.set(session, self.unused_time_to_live())?;
        set.arg("NX");
        // Not retried: the second attempt would find what the first one created.
        let stored: bool = self.server.run(&set, Retry::IfUnsent).await?;
        if !stored {
            return Ok(Created::Existed);
        }
        self.count_in(session, owner).await?;
        Ok(Created::New)
    }

    pub(super) async fn touch(
        &self,
        id: &str,
        owner: impl FnOnce() -> Owner,
    ) -> Result<Option<Arc<Session>>, StoreError> {
        let id = normalised(id);
        let mut get = cmd("GETEX");
        get.arg(self.prefix.key(&id));
        expiring(&mut get, self.time_to_live);
        let found: Option<Vec<u8>> = self.server.run(&get, Retry::Yes).await?;
        let Some(json) = found else {
            self.ledger().remove(&id, Instant::now());
            return Ok(None);
        };
        let session: Session = serde_json::from_slice(&json).map_err(|source| unreadable(&id, source))?;
        if self.ledger().touch(&id, Instant::now()).is_none() {
            // Another replica opened it. From now on it counts here as well.
            self.count_in(&session, &owner()).await?;
            self.ledger().touch(&id, Instant::now());
        }
        Ok(Some(Arc::new(session)))
    }

    pub(super) async fn update(&self, session: &Session) -> Result<bool, StoreError> {
        let mut set = self.set(session, self.time_to_live)?;
        set.arg("XX");
        let is_there = self.server.run(&set, Retry::Yes).await?;
        self.ledger().update(&session.id, texts(session), (), Instant::now());
        Ok(is_there)
    }

    pub(super) async fn delete(&self, id: &str) -> Result<bool, StoreError> {
        let id = normalised(id);
        self.ledger().remove(&id, Instant::now());
        let mut delete = cmd("DEL");
        delete.arg(self.prefix.key(&id));
        self.server.run(&delete, Retry::Yes).await
    }

    pub(super) fn evictions(&self) -> u64 {
        self.ledger().evictions()
    }

    pub(super) async fn evicted(&self) {
        self.seen.evicted.notified().await;
    }

    pub(super) fn reap(&self, now: Option<Instant>) -> Vec<Ended<()>> {
        self.ledger().reap(now)
    }

    pub(super) async fn count(&self) -> Result<usize, StoreError> {
        let pattern = self.prefix.pattern();
        let (mut count, mut cursor) = (0, 0_u64);
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(AT_ONCE);
            let keys: Vec<Vec<u8>>;
            (cursor, keys) = self.server.run(&scan, Retry::Yes).await?;
            count += keys.len();
            if cursor == 0 {
                return Ok(count);
            }
        }
    }

    /// Counts a session for its owners, and deletes those that are evicted for it.
    async fn count_in(&self, session: &Session, owner: &Owner) -> Result<(), StoreError> {
        let (evicted, now) = {
            let mut ledger = self.ledger();
            let now = Instant::now();
            let before = ledger.evictions();
            // One that is larger than a share is stored and not counted: Redis has limits of its own.
            let _inserted = ledger.insert(&session.id, texts(session), owner, (), now);
            (ledger.evicted_since(before), now)
        };
        if evicted.is_empty() {
            return Ok(());
        }
        self.seen.evicted.notify_one();
        for batch in evicted.chunks(BATCH) {
            self.evict(batch, now).await?;
        }
        Ok(())
    }

    /// Deletes sessions, except those that live longer than they would if this replica had been the last one to use
    /// them.
    async fn evict(&self, evicted: &[Ended<()>], now: Instant) -> Result<(), StoreError> {
        let mut evict = cmd("EVAL");
        evict.arg(EVICT).arg(evicted.len());
        for one in evicted {
            evict.arg(self.prefix.key(&one.id));
        }
        for one in evicted {
            let expected = one.expires.saturating_duration_since(now) + SLACK;
            evict.arg(u64::try_from(expected.as_millis()).unwrap_or(u64::MAX));
        }
        self.server.run::<u64>(&evict, Retry::Yes).await?;
        Ok(())
    }

    /// A panic while it is held cannot leave the ledger half changed.
    fn ledger(&self) -> MutexGuard<'_, Ledger<()>> {
        self.seen.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `SET key json EX ttl`, to be completed.
    fn set(&self, session: &Session, life: Duration) -> Result<Cmd, StoreError> {
        let json = serde_json::to_vec(session).map_err(|source| unreadable(&session.id, source))?;
        let mut set = cmd("SET");
        set.arg(self.prefix.key(&session.id)).arg(json);
        expiring(&mut set, life);
        Ok(set)
    }
}

/// The time to live in seconds, or in milliseconds if it has a fraction.
fn expiring(command: &mut Cmd, life: Duration) {
    match life.subsec_millis() {
        0 if life.as_secs() > 0 => command.arg("EX").arg(life.as_secs()),
        _ => command.arg("PX").arg(u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1)),
    };
}

fn unreadable(id: &str, source: serde_json::Error) -> StoreError {
    StoreError::Unreadable { id: id.to_owned(), source }
}
