//! What stands beside the node for guarded servers: an identity provider whose keys a test rotates, which takes spans as well, and the webhook
//! of the examples.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use skep_testkit::pki::{Authority, Identity};

pub(crate) const AUDIENCE: &str = "guards";
/// How long a token is valid, in seconds.
const LIFETIME: u64 = 3600;

/// An identity provider, and a collector.
pub(crate) struct Provider {
    pub(crate) url: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    keys: Mutex<Vec<(String, EcdsaKeyPair)>>,
    spans: AtomicUsize,
}

/// The webhook of the examples over mutual TLS, which is killed with this.
pub(crate) struct Webhook {
    pub(crate) url: String,
    /// What signed its certificate.
    pub(crate) authority: String,
    /// What it accepts as a client.
    pub(crate) client: Identity,
    directory: PathBuf,
    port: String,
    process: Child,
}

// === impl Provider ===

impl Provider {
    /// Starts one with a key, at an address of the node.
    pub(crate) fn start(address: &str) -> Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        let url = format!("http://{}", listener.local_addr()?);
        let provider = Self { url, state: Arc::default() };
        provider.rotate()?;
        let (state, issuer) = (provider.state.clone(), provider.url.clone());
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (state, issuer) = (state.clone(), issuer.clone());
                // A client that disconnects affects no other.
                std::thread::spawn(move || drop(state.answer(&connection, &issuer)));
            }
        });
        Ok(provider)
    }

    /// Publishes a new key alone, which signs from now on.
    pub(crate) fn rotate(&self) -> Result<()> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
        let mut keys = self.state.keys();
        let id = format!("key {}", UNIX_EPOCH.elapsed()?.as_nanos());
        *keys = vec![(id, pair)];
        Ok(())
    }

    /// A token of a user.
    pub(crate) fn token(&self, user: &str) -> Result<String> {
        let keys = self.state.keys();
        let (id, pair) = keys.first().context("there is no key")?;
        let expires = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + LIFETIME;
        let claims = json!({ "iss": self.url, "aud": AUDIENCE, "sub": user, "exp": expires });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({ "alg": "ES256", "kid": id })), part(&claims));
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// How many requests with spans came.
    pub(crate) fn spans(&self) -> usize {
        self.state.spans.load(Ordering::Relaxed)
    }
}

// === impl State ===

impl State {
    fn answer(&self, mut connection: &TcpStream, issuer: &str) -> Result<()> {
        let mut reader = BufReader::new(connection);
        let (mut line, mut first, mut length) = (String::new(), String::new(), 0);
        while reader.read_line(&mut line)? > 2 {
            let lower = line.to_ascii_lowercase();
            length = lower.strip_prefix("content-length:").and_then(|text| text.trim().parse().ok()).unwrap_or(length);
            if first.is_empty() {
                first.clone_from(&line);
            }
            line.clear();
        }
        std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
        let body = match first.split(' ').nth(1).unwrap_or_default() {
            "/.well-known/openid-configuration" => json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") }),
            "/keys" => json!({ "keys": self.published() }),
            "/v1/traces" => {
                self.spans.fetch_add(1, Ordering::Relaxed);
                json!({})
            }
            _ => json!({}),
        };
        let body = body.to_string();
        let length = body.len();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
        Ok(write!(connection, "{head}\r\nContent-Length: {length}\r\n\r\n{body}")?)
    }

    fn keys(&self) -> MutexGuard<'_, Vec<(String, EcdsaKeyPair)>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn published(&self) -> Vec<Value> {
        let keys = self.keys();
        let key = |(id, pair): &(String, EcdsaKeyPair)| {
            // A point that is not compressed: 4, and two coordinates.
            let point = pair.public_key().as_ref();
            let (x, y) = (point.get(1..33).unwrap_or_default(), point.get(33..).unwrap_or_default());
            let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": part(x), "y": part(y) })
        };
        keys.iter().map(key).collect()
    }
}

// === impl Webhook ===

impl Webhook {
    /// Starts it at an address of the node, with a secret that requests are signed with.
    pub(crate) fn start(address: &str, directory: &Path, secret: &str) -> Result<Self> {
        let authority = Authority::generate()?;
        let identity = authority.issue("webhook", None, &[address])?;
        std::fs::write(directory.join("tls.crt"), &identity.certificate)?;
        std::fs::write(directory.join("tls.key"), &identity.key)?;
        std::fs::write(directory.join("hmac"), secret)?;
        let client = trust_another_client(directory)?;
        let (process, port) = serve(directory, "0")?;
        let url = format!("https://{address}:{port}");
        Ok(Self { url, authority: authority.certificate(), client, directory: directory.to_owned(), port, process })
    }

    /// Accepts only requests that are signed with another secret.
    pub(crate) fn expect(&self, secret: &str) -> Result<()> {
        Ok(std::fs::write(self.directory.join("hmac"), secret)?)
    }

    /// Accepts only clients with another certificate: that of its new `client`.
    pub(crate) fn expect_another_client(&mut self) -> Result<()> {
        self.stop()?;
        self.client = trust_another_client(&self.directory)?;
        (self.process, self.port) = serve(&self.directory, &self.port)?;
        Ok(())
    }

    pub(crate) fn stop(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _gone = self.stop();
    }
}

/// Writes the certificate of a new authority, whose clients the webhook accepts from its next start on; returns one of them.
fn trust_another_client(directory: &Path) -> Result<Identity> {
    let authority = Authority::generate()?;
    std::fs::write(directory.join("clients.crt"), authority.certificate())?;
    authority.issue("proxy", None, &["proxy.example"])
}

/// Starts the webhook with the files of a directory; returns its process and its port.
fn serve(directory: &Path, port: &str) -> Result<(Child, String)> {
    let file = |name: &str| directory.join(name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/webhook-server.py");
    let mut command = Command::new("python3");
    command.arg(script).args(["--port", port, "--tls"]).args([file("tls.crt"), file("tls.key")]);
    command.arg("--key").arg(file("hmac")).arg("--client-ca").arg(file("clients.crt"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().context("python3 is needed")?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().context("a pipe")?).read_line(&mut line)?;
    let port = line.trim().rsplit(' ').next().filter(|port| !port.is_empty());
    let port = port.context("the webhook does not start")?.to_owned();
    Ok((process, port))
}
