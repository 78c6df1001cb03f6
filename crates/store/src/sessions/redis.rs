//! Sessions in Redis. Every operation on one session is one command: no other replica can come in between.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, cmd};

use super::{Created, Prefix};
use crate::redis::{Again, Server};
use crate::session::normalised;
use crate::{Session, StoreError};

/// How many keys Redis looks at before it answers others, when it is asked to count.
const AT_ONCE: usize = 1000;

/// Sessions in Redis.
#[derive(Clone, Debug)]
pub struct Redis {
    server: Server,
    prefix: Prefix,
    time_to_live: Duration,
}

impl Redis {
    /// The sessions under this prefix. Each lives this long after it was last touched.
    pub fn new(server: Server, prefix: Prefix, time_to_live: Duration) -> Self {
        Self { server, prefix, time_to_live }
    }

    pub(super) fn time_to_live(&self) -> Duration {
        self.time_to_live
    }

    pub(super) async fn create(&self, session: &Session) -> Result<Created, StoreError> {
        let mut set = self.set(session)?;
        set.arg("NX");
        // Not twice: the second would find what the first had left.
        let stored: bool = self.server.run(&set, Again::IfUnsent).await?;
        Ok(if stored { Created::New } else { Created::Existed })
    }

    pub(super) async fn touch(&self, id: &str) -> Result<Option<Arc<Session>>, StoreError> {
        let id = normalised(id);
        let mut get = cmd("GETEX");
        get.arg(self.prefix.key(&id));
        self.expiring(&mut get);
        let found: Option<Vec<u8>> = self.server.run(&get, Again::Yes).await?;
        let Some(json) = found else { return Ok(None) };
        let session = serde_json::from_slice(&json);
        session.map(|session| Some(Arc::new(session))).map_err(|source| unreadable(&id, source))
    }

    pub(super) async fn update(&self, session: &Session) -> Result<bool, StoreError> {
        let mut set = self.set(session)?;
        set.arg("XX");
        self.server.run(&set, Again::Yes).await
    }

    pub(super) async fn delete(&self, id: &str) -> Result<bool, StoreError> {
        let mut delete = cmd("DEL");
        delete.arg(self.prefix.key(&normalised(id)));
        self.server.run(&delete, Again::Yes).await
    }

    pub(super) async fn count(&self) -> Result<usize, StoreError> {
        let pattern = self.prefix.pattern();
        let (mut count, mut cursor) = (0, 0_u64);
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(AT_ONCE);
            let keys: Vec<Vec<u8>>;
            (cursor, keys) = self.server.run(&scan, Again::Yes).await?;
            count += keys.len();
            if cursor == 0 {
                return Ok(count);
            }
        }
    }

    /// `SET key json EX ttl`, to be completed.
    fn set(&self, session: &Session) -> Result<Cmd, StoreError> {
        let json = serde_json::to_vec(session).map_err(|source| unreadable(&session.id, source))?;
        let mut set = cmd("SET");
        set.arg(self.prefix.key(&session.id)).arg(json);
        self.expiring(&mut set);
        Ok(set)
    }

    /// The time to live in seconds, or in milliseconds if it has a fraction.
    fn expiring(&self, command: &mut Cmd) {
        let life = self.time_to_live;
        match life.subsec_millis() {
            0 if life.as_secs() > 0 => command.arg("EX").arg(life.as_secs()),
            _ => command.arg("PX").arg(u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1)),
        };
    }
}

fn unreadable(id: &str, source: serde_json::Error) -> StoreError {
    StoreError::Unreadable { id: id.to_owned(), source }
}
