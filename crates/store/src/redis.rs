//! The connection to a Redis server.
//!
//! One connection carries the commands of all requests. When it breaks, it reconnects at once and again at the next
//! command, never in a background loop; commands fail meanwhile. A connection that is not broken but useless, because
//! the server denies access or has become a replica, is replaced.

mod error;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{
    Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo as _, ProtocolVersion, RedisConnectionInfo,
    RedisError, TlsCertificates,
};
use tokio::time::Instant;

pub use self::error::UnavailableError;
use self::error::Verdict;
use crate::StoreError;

/// The timeout for connecting, handshake included.
const DIAL: Duration = Duration::from_secs(5);

/// The timeout for a command.
const ANSWER: Duration = Duration::from_secs(3);

/// How long a replacement connection is kept before it may be replaced in turn.
const REPLACEMENT_DELAY: Duration = Duration::from_secs(1);

/// The address of a server and our credentials.
#[derive(Clone)]
pub struct Options {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Use TLS.
    pub tls: Option<Tls>,
    /// The number of the database.
    pub database: i64,
    /// The user; `None` is the server's default user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// The TLS settings for a server.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The CA certificates for the server, as PEM; `None` means those of the machine.
    pub roots: Option<Vec<u8>>,
}

/// An invalid address. It is not shown: it may hold a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the address of a Redis server; write it like `redis.example.com:6379` or `rediss://redis.example.com:6379/0`"
)]
pub struct AddressError;

/// A connected server. Clones share the connection.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    name: String,
    client: Client,
    config: ConnectionManagerConfig,
    link: Mutex<Link>,
}

/// The current connection.
#[derive(Clone)]
struct Link {
    connection: ConnectionManager,
    /// When it replaced another one.
    since: Option<Instant>,
}

/// Whether a command may be retried when the connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// It is idempotent.
    Yes,
    /// Only if the first one cannot have arrived.
    IfUnsent,
}

impl Options {
    /// Parses `host:port`, or a URL with scheme `redis` or `rediss` and optional user, password and database.
    pub fn parse(address: &str) -> Result<Self, AddressError> {
        let url = if address.contains("://") { address.to_owned() } else { format!("redis://{address}") };
        if !url.starts_with("redis://") && !url.starts_with("rediss://") {
            return Err(AddressError);
        }
        let info = url.into_connection_info().map_err(|_| AddressError)?;
        let (host, port, tls) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (host.clone(), *port, None),
            ConnectionAddr::TcpTls { host, port, insecure: false, .. } => (host.clone(), *port, Some(Tls::default())),
            _ => return Err(AddressError),
        };
        if host.is_empty() {
            return Err(AddressError);
        }
        let settings = info.redis_settings();
        Ok(Self {
            host,
            port,
            tls,
            database: settings.db(),
            username: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
        })
    }

    fn client(&self) -> Result<Client, RedisError> {
        let (host, port) = (self.host.clone(), self.port);
        let address = match self.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        };
        // RESP3 reports the end of a connection by itself, not only at the next command.
        let mut settings = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info()?.set_tcp_settings(tcp()).set_redis_settings(settings);
        match &self.tls {
            None => Client::open(info),
            Some(tls) => {
                // The client uses the process-wide provider; an error means that there is one already.
                let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: tls.roots.clone() })
            }
        }
    }
}

/// Disables Nagle's algorithm, and detects a server that vanished without closing.
fn tcp() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(DIAL);
    settings
}

impl Server {
    /// Connects, and fails if the server is unreachable or denies access.
    pub async fn connect(options: &Options) -> Result<Self, StoreError> {
        let client = options.client().map_err(|error| unavailable(&error))?;
        let connected = ConnectionManager::new_with_config(client.clone(), config()).await;
        let server = Self::new(options, client, connected.map_err(|error| unavailable(&error))?);
        server.ping().await?;
        Ok(server)
    }

    /// The same without a connection: the first command makes it. Fails only if the options cannot be used at all.
    pub fn lazy(options: &Options) -> Result<Self, StoreError> {
        let client = options.client().map_err(|error| unavailable(&error))?;
        let connection = ConnectionManager::new_lazy_with_config(client.clone(), config());
        Ok(Self::new(options, client, connection.map_err(|error| unavailable(&error))?))
    }

    fn new(options: &Options, client: Client, connection: ConnectionManager) -> Self {
        let name = format!("{}:{}", options.host, options.port);
        let link = Mutex::new(Link { connection, since: None });
        Self(Arc::new(Inner { name, client, config: config(), link }))
    }

    /// Checks the connection.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.run(&redis::cmd("PING"), Retry::Yes).await
    }

    /// Runs a command.
    pub(crate) async fn run<T: FromRedisValue>(&self, command: &Cmd, again: Retry) -> Result<T, StoreError> {
        let mut link = self.0.link().clone();
        let mut answer = command.query_async(&mut link.connection).await;
        if answer.as_ref().is_err_and(|error| again.is_due(error)) {
            // The failure has made the manager reconnect, and this waits for it.
            answer = command.query_async(&mut link.connection).await;
        }
        let verdict = answer.as_ref().err().map_or(Verdict::Keep, Verdict::of);
        if verdict != Verdict::Keep
            && let Some(mut fresh) = self.0.replaced(&link)
            && (verdict == Verdict::Replace || again == Retry::Yes)
        {
            answer = command.query_async(&mut fresh.connection).await;
        }
        answer.map_err(|error| unavailable(&error))
    }
}

impl Inner {
    /// A panic while it is held cannot leave it half changed.
    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The replacement of a useless connection, which connects at its first command. Of many commands that found the
    /// same one useless, one replaces it; none does shortly after another did.
    fn replaced(&self, found: &Link) -> Option<Link> {
        let mut link = self.link();
        if link.since == found.since {
            if found.since.is_some_and(|since| since.elapsed() < REPLACEMENT_DELAY) {
                return None;
            }
            // It cannot fail: the same settings made the first one.
            let connection = ConnectionManager::new_lazy_with_config(self.client.clone(), self.config.clone()).ok()?;
            *link = Link { connection, since: Some(Instant::now()) };
        }
        Some(link.clone())
    }
}

fn config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(DIAL))
        .set_response_timeout(Some(ANSWER))
        .set_number_of_retries(0)
}

fn unavailable(error: &RedisError) -> StoreError {
    StoreError::Unavailable(UnavailableError::of(error))
}

impl Retry {
    fn is_due(self, error: &RedisError) -> bool {
        match self {
            Self::Yes => error.is_connection_dropped(),
            Self::IfUnsent => error.is_connection_refusal(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, tls, database, username, password: _ } = self;
        formatter
            .debug_struct("Options")
            .field("host", host)
            .field("port", port)
            .field("tls", &tls.is_some())
            .field("database", database)
            .field("username", username)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Server").field(&self.0.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_users_write_them() {
        let plain = Options::parse("redis.test:6380").unwrap();
        assert_eq!((plain.host.as_str(), plain.port, plain.database), ("redis.test", 6380, 0));
        assert!(plain.tls.is_none() && plain.username.is_none() && plain.password.is_none());
        let whole = Options::parse("rediss://me:se%40cret@redis.test/3").unwrap();
        assert_eq!((whole.host.as_str(), whole.port, whole.database), ("redis.test", 6379, 3));
        assert!(whole.tls.is_some());
        assert_eq!((whole.username.as_deref(), whole.password.as_deref()), (Some("me"), Some("se@cret")));
        let six = Options::parse("[::1]:6379").unwrap();
        assert_eq!((six.host.as_str(), six.port), ("::1", 6379));
    }

    #[test]
    fn an_invalid_address_is_an_error_without_its_value() {
        for wrong in ["", "http://redis.test", "redis://", "host:port", "unix:///tmp/x", "redis://:secret@/x"] {
            assert_eq!(Options::parse(wrong).unwrap_err(), AddressError, "{wrong}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let options = Options::parse("redis://me:secret@redis.test:1/3").unwrap();
        assert!(!format!("{options:?}").contains("secret"));
    }
}
