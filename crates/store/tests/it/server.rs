//! A real Redis on loopback, in a directory of its own, stopped and removed with the test.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redis::aio::MultiplexedConnection;
use skep_store::redis::{Options, Server, Tls};
use skep_testkit::pki::Authority;
use skep_testkit::{Seen, eventually};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const PASSWORD: &str = "not-a-secret-but-must-not-show";

pub(crate) struct RedisServer {
    directory: TempDir,
    process: Child,
    pub(crate) options: Options,
}

impl RedisServer {
    /// A server that requires a password of its default user.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(None, |port, _| Ok(format!("port {port}\nrequirepass {PASSWORD}\n"))).await
    }

    /// A server that speaks TLS only and has a named user.
    pub(crate) async fn start_tls() -> Result<Self> {
        let authority = Authority::generate()?;
        let identity = authority.issue("redis", None, &["localhost", "127.0.0.1"])?;
        let roots = authority.certificate();
        let tls = Some(Tls { roots: Some(roots.clone().into_bytes()) });
        let mut server = Self::start_with(tls, move |port, directory| {
            fs::write(directory.join("ca.pem"), &roots)?;
            fs::write(directory.join("redis.pem"), &identity.certificate)?;
            fs::write(directory.join("redis.key"), &identity.key)?;
            Ok(format!(
                "port 0\ntls-port {port}\ntls-ca-cert-file ca.pem\ntls-cert-file redis.pem\ntls-key-file redis.key\n\
                 tls-auth-clients no\nrequirepass {PASSWORD}\nuser skep on ~* &* +@all >{PASSWORD}\n"
            ))
        })
        .await?;
        server.options.username = Some("skep".to_owned());
        Ok(server)
    }

    /// The port is free when it is chosen but may be in use when it is bound, so this tries a few.
    async fn start_with(tls: Option<Tls>, config: impl Fn(u16, &Path) -> Result<String>) -> Result<Self> {
        let mut failed = None;
        for _ in 0..5 {
            let directory = tempfile::Builder::new().prefix("skep-redis-").tempdir()?;
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let config = config(port, directory.path())?;
            fs::write(directory.path().join("redis.conf"), config + "bind 127.0.0.1\nsave \"\"\nappendonly no\n")?;
            let process = spawn(directory.path())?;
            let mut options = Options::parse(&format!("127.0.0.1:{port}"))?;
            options.password = Some(PASSWORD.to_owned());
            options.tls.clone_from(&tls);
            let mut server = Self { directory, process, options };
            match server.wait().await {
                Ok(()) => return Ok(server),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.context("never tried")?)
    }

    /// Waits until it responds.
    pub(crate) async fn wait(&mut self) -> Result<()> {
        let (process, options, directory) = (&mut self.process, &self.options, &self.directory);
        eventually("Redis answers", PATIENCE, || {
            let exited = process.try_wait();
            async move {
                if let Some(status) = exited? {
                    bail!("redis-server: {status}: {}", fs::read_to_string(directory.path().join("log"))?);
                }
                Ok(match Server::connect(options).await {
                    Ok(_) => Seen::Yes(()),
                    Err(error) => Seen::NotYet(format!("{error:?}")),
                })
            }
        })
        .await
    }

    pub(crate) async fn connect(&self) -> Result<Server> {
        Ok(Server::connect(&self.options).await?)
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Restarts it on the same port, empty.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.process = spawn(self.directory.path())?;
        self.wait().await
    }

    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        let status = Command::new("kill").args(["-s", signal, &self.process.id().to_string()]).status()?;
        if status.success() { Ok(()) } else { bail!("kill -s {signal}: {status}") }
    }

    /// A separate connection. It stays even if the server denies new ones.
    pub(crate) async fn admin(&self) -> Result<MultiplexedConnection> {
        let url = format!("redis://:{PASSWORD}@{}:{}", self.options.host, self.options.port);
        Ok(redis::Client::open(url)?.get_multiplexed_async_connection().await?)
    }

    /// The server's response to a command on a separate connection.
    pub(crate) async fn ask(&self, words: &[&str]) -> Result<String> {
        say(&mut self.admin().await?, words).await
    }
}

/// The server's response to a command.
pub(crate) async fn say(connection: &mut MultiplexedConnection, words: &[&str]) -> Result<String> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    let answer: redis::Value = command.query_async(connection).await?;
    Ok(match answer {
        redis::Value::BulkString(bytes) => String::from_utf8(bytes)?,
        redis::Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

/// An address that forwards each new connection to the server that is current, as a Kubernetes Service does.
pub(crate) struct Service {
    pub(crate) port: u16,
    target: watch::Sender<u16>,
    task: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start(server: &RedisServer) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (target, chosen) = watch::channel(server.options.port);
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let port = *chosen.borrow();
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
                        // Either side may close.
                        let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Ok(Self { port, target, task })
    }

    pub(crate) fn lead_to(&self, server: &RedisServer) {
        self.target.send_replace(server.options.port);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended already, which is fine.
        let _gone = self.process.kill();
        let _collected = self.process.wait();
    }
}

fn spawn(directory: &Path) -> Result<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(directory.join("log"))?;
    Command::new("redis-server")
        .arg("redis.conf")
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start `redis-server`; install Debian's package of that name")
}
