//! The sessions of clients: where they are kept, and whose they are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use skep_runconfig::run_config::SessionRedis;
use skep_store::redis::{Options, Server};
use skep_store::{Created, Ended, Memory, Owner, Prefix, Redis, Session};
use tokio::time::{Interval, MissedTickBehavior, interval_at};

pub use skep_store::session::Kind;
pub use skep_store::{Sessions as Store, StoreError as Unavailable};

use skep_upstream::initialize::{self, INITIALIZE};
use skep_upstream::{BoxFuture, KEPT, SessionId, SessionKeeper, abbreviate};

use crate::caller::Identity;
use crate::exchange::Exchange;
use crate::settings::Settings;

/// How often unused sessions are expired, at most.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// How long a session that must live goes without a touch, at most.
const AGAIN: Duration = Duration::from_secs(30);

/// The variable with the password of Redis.
const PASSWORD: &str = "THV_SESSION_REDIS_PASSWORD";

/// Whose a session is, and whom it counts against.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client<'a> {
    /// Who it is bound to.
    pub identity: Option<&'a Identity>,
    /// Where it was opened from.
    pub address: Option<IpAddr>,
    /// What the upstream keeps of the client for a session, in bytes.
    pub kept: usize,
}

/// The sessions of one proxy.
#[derive(Clone, Debug)]
pub struct Sessions {
    store: Arc<Store>,
    kind: Kind,
}

/// Opens the store that a RunConfig asks for.
pub(crate) async fn store(settings: &Settings, environment: &BTreeMap<String, String>) -> Result<Store, String> {
    let redis = settings.config.scaling_config.as_ref().and_then(|scaling| scaling.session_redis.as_ref());
    let Some(redis) = redis.filter(|redis| !redis.address.is_empty()) else {
        return Ok(Store::Memory(Memory::within(settings.session_ttl, settings.capacity.sessions)));
    };
    let options = options(redis, environment)?;
    let prefix = match redis.key_prefix.as_str() {
        "" => Prefix::default(),
        text => Prefix::new(text).map_err(|error| error.to_string())?,
    };
    let server = Server::connect(&options).await.map_err(|error| error.to_string())?;
    Ok(Store::Redis(Redis::within(server, prefix, settings.session_ttl, settings.capacity.sessions)))
}

/// Who we are to Redis. What stands in a URL holds unless something else is said beside it.
pub(crate) fn options(redis: &SessionRedis, environment: &BTreeMap<String, String>) -> Result<Options, String> {
    let mut options = Options::parse(&redis.address).map_err(|error| error.to_string())?;
    if redis.db != 0 {
        options.database = i64::from(redis.db);
    }
    if let Some(password) = environment.get(PASSWORD).filter(|text| !text.is_empty()) {
        options.password = Some(password.clone());
    }
    Ok(options)
}

// === impl Client ===

impl Client<'_> {
    /// Whom a session of this client counts against. An identity that all clients share distinguishes none.
    fn owner(&self) -> Owner {
        let identity = self.identity.filter(|identity| identity.is_authenticated());
        Owner { identity: identity.map(|identity| identity.key().into()), peer: self.address, beside: self.kept }
    }
}

impl<'a> From<Option<&'a Identity>> for Client<'a> {
    fn from(identity: Option<&'a Identity>) -> Self {
        Self { identity, ..Self::default() }
    }
}

impl<'a> From<&'a Exchange> for Client<'a> {
    fn from(exchange: &'a Exchange) -> Self {
        Self { identity: exchange.head.identity(), address: Some(exchange.head.client), kept: 0 }
    }
}

// === impl Sessions ===

impl Sessions {
    /// Sessions of one kind in a store.
    pub fn new(store: Store, kind: Kind) -> Self {
        Self { store: Arc::new(store), kind }
    }

    /// Sessions of another kind in the same store.
    #[must_use]
    pub fn of_kind(&self, kind: Kind) -> Self {
        Self { store: self.store.clone(), kind }
    }

    /// Opens a session for a client, under an id that cannot be guessed.
    pub async fn open<'a>(&self, client: impl Into<Client<'a>>) -> Result<Arc<str>, Unavailable> {
        self.open_with(client.into(), None).await
    }

    /// The same by a handshake, which is kept where other proxies may have to go on with the session.
    pub async fn open_by<'a>(&self, sent: &[u8], client: impl Into<Client<'a>>) -> Result<Arc<str>, Unavailable> {
        let is_shared = matches!(*self.store, Store::Redis(_));
        let kept = if is_shared { initialize::kept(sent) } else { None };
        self.open_with(client.into(), kept).await
    }

    async fn open_with(&self, client: Client<'_>, sent: Option<String>) -> Result<Arc<str>, Unavailable> {
        let owner = client.owner();
        loop {
            let id = uuid::Uuid::new_v4().to_string();
            let mut session = self.session(&id, client.identity);
            session.metadata.extend(sent.iter().map(|sent| (INITIALIZE.to_owned(), sent.clone())));
            if self.store.create_for(session, &owner).await? == Created::New {
                return Ok(id.into());
            }
        }
    }

    /// Keeps a session that the server opened, under the server's name of it.
    pub async fn adopt<'a>(
        &self,
        name: &str,
        client: impl Into<Client<'a>>,
        metadata: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), Unavailable> {
        let client = client.into();
        let mut session = self.session(name, client.identity);
        session.metadata.extend(metadata);
        if self.store.create_for(session.clone(), &client.owner()).await? == Created::New {
            return Ok(());
        }
        // One that is bound to another identity stays with it.
        if self.belongs_to_another(name, client.identity).await? {
            tracing::warn!(session = abbreviate(name), "not replacing a session of another identity");
            return Ok(());
        }
        self.store.update(session).await?;
        Ok(())
    }

    /// Finds a session of this client, and keeps it alive. One of another identity is not found.
    pub async fn find<'a>(&self, id: &str, client: impl Into<Client<'a>>) -> Result<Option<Arc<Session>>, Unavailable> {
        self.find_keeping(id, client, || 0).await
    }

    /// The same where so many bytes are kept of the client beside the store, if this replica has not seen the session before.
    pub async fn find_keeping<'a>(
        &self,
        id: &str,
        client: impl Into<Client<'a>>,
        kept: impl FnOnce() -> usize,
    ) -> Result<Option<Arc<Session>>, Unavailable> {
        let client = client.into();
        let found = self.store.touch_for(id, || Client { kept: kept(), ..client }.owner()).await?;
        Ok(found.filter(|session| belongs(session, client.identity)))
    }

    /// Whether a session exists and belongs to another identity.
    pub async fn belongs_to_another(&self, id: &str, identity: Option<&Identity>) -> Result<bool, Unavailable> {
        let found = self.store.touch(id).await?;
        Ok(found.is_some_and(|session| !belongs(&session, identity)))
    }

    /// Ends a session.
    pub async fn close(&self, id: &str) -> Result<bool, Unavailable> {
        self.store.delete(id).await
    }

    /// How often a session that must live is touched: soon enough for any time to live.
    pub fn again(&self) -> Duration {
        let life = self.store.unused_time_to_live();
        (life / 2).clamp(Duration::from_millis(1), AGAIN)
    }

    /// Keeps a session alive for as long as this is waited for, which is until the session is gone.
    pub async fn keep_alive(&self, id: &str) {
        loop {
            tokio::time::sleep(self.again()).await;
            match self.store.touch(id).await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(unavailable) => tracing::debug!(%unavailable, "session of a listening client not renewed"),
            }
        }
    }

    /// The store behind.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// When to check for sessions that expired.
    pub fn expiry_checks() -> Interval {
        let mut checks = interval_at(tokio::time::Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        checks
    }

    /// Waits until sessions ended without being asked to: those that made room for others at once, those that expired at
    /// the next check. Says whether it was one.
    pub async fn ended(&self, checks: &mut Interval) -> (Vec<Ended>, bool) {
        tokio::select! {
            () = self.store.evicted() => (self.store.take_evicted(), false),
            _ = checks.tick() => (self.store.reap(), true),
        }
    }

    fn session(&self, id: &str, identity: Option<&Identity>) -> Session {
        Session::new(id, self.kind, jiff::Timestamp::now(), identity.map(Identity::key).as_deref())
    }
}

impl SessionKeeper for Sessions {
    fn keep<'a>(&'a self, session: &'a SessionId, kept: String) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let kept = async {
                // One that ended meanwhile is not revived.
                let Some(found) = self.store.touch(session).await? else { return Ok(()) };
                let mut found = Session::clone(&found);
                found.metadata.insert(KEPT.to_owned(), kept);
                self.store.update(found).await.map(drop)
            };
            if let Err(unavailable) = kept.await {
                let unavailable: Unavailable = unavailable;
                tracing::warn!(%unavailable, "subscriptions and log level of a session not stored");
            }
        })
    }
}

/// Whether a session is of this client. One that was opened before sessions were bound belongs to any client.
fn belongs(session: &Session, identity: Option<&Identity>) -> bool {
    session.bound_to().is_none_or(|owner| identity.is_some_and(|identity| identity.has_key(owner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(subject: &str) -> Identity {
        Identity { issuer: "https://issuer".into(), subject: subject.into(), name: "A. Name".into() }
    }

    #[tokio::test]
    async fn a_session_is_found_by_the_identity_that_opened_it_and_by_no_other() {
        let sessions = Sessions::new(Store::Memory(Memory::new(Duration::from_mins(1))), Kind::Streamable);
        let (ann, bob) = (caller("ann"), caller("bob"));
        let elsewhere = Identity { issuer: "https://other".into(), ..ann.clone() };
        // Issuer and subject cannot be taken for another pair with the same letters.
        let shifted = Identity { issuer: "https://issuer ann".into(), ..caller("") };
        let opened = sessions.open(Some(&ann)).await.unwrap();
        sessions.adopt("theirs", Some(&ann), []).await.unwrap();
        for name in [&*opened, "theirs"] {
            for stranger in [Some(&bob), Some(&elsewhere), Some(&shifted), None] {
                assert!(sessions.find(name, stranger).await.unwrap().is_none(), "{name} {stranger:?}");
            }
            assert!(sessions.find(name, Some(&ann)).await.unwrap().is_some(), "{name}");
        }
        assert!(sessions.belongs_to_another("theirs", Some(&bob)).await.unwrap());
        assert!(!sessions.belongs_to_another("theirs", Some(&ann)).await.unwrap());
        assert!(!sessions.belongs_to_another("unknown", Some(&bob)).await.unwrap());
        let unbound = sessions.open(None).await.unwrap();
        assert!(sessions.find(&unbound, Some(&bob)).await.unwrap().is_some(), "an unbound one belongs to any client");
    }

    #[tokio::test]
    async fn what_an_upstream_keeps_stands_beside_what_else_is_known_of_a_session() {
        let sessions = Sessions::new(Store::Memory(Memory::new(Duration::from_mins(1))), Kind::Streamable);
        let ann = caller("ann");
        let opened = sessions.open(Some(&ann)).await.unwrap();
        for kept in ["one", "two"] {
            sessions.keep(&opened, kept.to_owned()).await;
            let found = sessions.find(&opened, Some(&ann)).await.unwrap().unwrap();
            assert_eq!(found.metadata.get(KEPT).map(String::as_str), Some(kept));
        }
        assert!(sessions.find(&opened, Some(&caller("bob"))).await.unwrap().is_none(), "it is bound as before");
        sessions.close(&opened).await.unwrap();
        sessions.keep(&opened, "late".to_owned()).await;
        assert!(sessions.find(&opened, Some(&ann)).await.unwrap().is_none(), "one that ended is not revived");
    }

    #[test]
    fn what_is_said_beside_a_url_wins_and_what_is_not_said_leaves_it() {
        let given = |address: &str, db, password: &str| {
            let redis = SessionRedis { address: address.to_owned(), db, ..SessionRedis::default() };
            let environment = BTreeMap::from([(PASSWORD.to_owned(), password.to_owned())]);
            let options = options(&redis, &environment).unwrap();
            (options.database, options.password, options.tls.is_some())
        };
        let secret = |text: &str| Some(text.to_owned());
        assert_eq!(given("r:6379", 0, ""), (0, None, false));
        assert_eq!(given("r:6379", 2, "env"), (2, secret("env"), false));
        assert_eq!(given("rediss://:url@r:6379/3", 0, ""), (3, secret("url"), true));
        assert_eq!(given("rediss://:url@r:6379/3", 2, "env"), (2, secret("env"), true));
    }
}
