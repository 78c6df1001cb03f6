//! Calling a webhook: one POST within its timeout, over files that may be replaced at any time.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use skep_net::body::{BodyError, Intake, Limit, collect_within};
use skep_net::budget::{OverBudgetError, Purpose, Reservation};
use skep_net::client::{Options, Schemes};
use skep_net::{Addresses, Body, Budget, Client};

use crate::MOST_BYTES;
use crate::config::{ConfigError, WebhookConfig};
use crate::files::{MemoryFiles, Stamp, read_key, read_tls};
use crate::response::{self, Answer, ResponseError};
use crate::signature::{self, sign};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("skep/", env!("CARGO_PKG_VERSION")));
const SIGNATURE: HeaderName = HeaderName::from_static(signature::SIGNATURE);
const TIMESTAMP: HeaderName = HeaderName::from_static(signature::TIMESTAMP);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// One webhook that can be called.
#[derive(Debug)]
pub struct Service {
    config: WebhookConfig,
    addresses: Addresses,
    files: MemoryFiles,
    connections: Mutex<Connections>,
}

/// A client, and the files that it was made of.
#[derive(Debug)]
struct Connections {
    stamp: Stamp,
    client: Client,
}

/// One call.
#[derive(Debug)]
pub struct Call<'a> {
    /// Identifies it.
    pub uid: &'a str,
    /// The time, in seconds since 1970.
    pub now: i64,
    /// The payload.
    pub body: Bytes,
    /// What the response may use, which counts for the client that causes the call.
    pub budget: &'a Budget,
    /// What is reserved for the answer: it grows by the memory that the answer takes.
    pub held: &'a mut Reservation,
}

/// Why a webhook did not answer. No text holds a body or a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It cannot be reached, or broke off.
    #[error("the webhook cannot be called: {0}")]
    Network(String),
    /// It took too long.
    #[error("the webhook did not answer in time")]
    Timeout,
    /// Its status is an error.
    #[error("the webhook answered {0}")]
    Status(StatusCode),
    /// Its response is too long.
    #[error("the response has more than {MOST_BYTES} bytes")]
    TooLarge,
    /// Its response cannot be read.
    #[error(transparent)]
    Response(#[from] ResponseError),
    /// There is no memory for its response.
    #[error(transparent)]
    OverBudget(#[from] OverBudgetError),
    /// The request cannot be signed. It is not sent without its signature.
    #[error("the request cannot be signed: {0}")]
    SigningKey(String),
}

// === impl CallError ===

impl CallError {
    /// What kind of failure it is.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Network(_) => "network",
            Self::Timeout => "timeout",
            Self::Status(_) => "status",
            Self::TooLarge => "response_too_large",
            Self::Response(_) => "response",
            Self::OverBudget(_) => "memory",
            Self::SigningKey(_) => "signing_key",
        }
    }
}

// === impl Service ===

impl Service {
    /// Reads the files of a webhook; they must be valid at the start. Those in memory come before those on a disk.
    pub fn new(config: WebhookConfig, addresses: Addresses, files: MemoryFiles) -> Result<Self, ConfigError> {
        let problem = |problem| ConfigError::File { name: config.name.clone(), problem };
        if let Some(key) = &config.signing_key {
            read_key(key, &files).map_err(problem)?;
        }
        let stamp = Stamp::of(config.tls.paths());
        let client = client(&config, addresses, &files).map_err(problem)?;
        Ok(Self { addresses, files, connections: Mutex::new(Connections { stamp, client }), config })
    }

    /// What it was made of.
    pub fn config(&self) -> &WebhookConfig {
        &self.config
    }

    /// Calls the webhook once, and reads its answer.
    pub async fn call(self: &Arc<Self>, call: Call<'_>) -> Result<Answer, CallError> {
        let answer = tokio::time::timeout(self.config.timeout, self.send(call));
        answer.await.map_err(|_elapsed| CallError::Timeout)?
    }

    async fn send(self: &Arc<Self>, call: Call<'_>) -> Result<Answer, CallError> {
        let (client, key) = self.current().await?;
        let request = self.request(&call, key.as_deref());
        let response = client.send(request).await.map_err(|error| CallError::Network(with_source(&error)))?;
        let (parts, body) = response.into_parts();
        match parts.status {
            StatusCode::OK => {}
            StatusCode::UNPROCESSABLE_ENTITY => return Ok(Answer::Unprocessable),
            // A redirect is not followed: the signed body is for this webhook alone.
            status => return Err(CallError::Status(status)),
        }
        let limit = Limit { bytes: MOST_BYTES, idle: self.config.timeout, pace: 1 };
        let intake = Intake { budget: call.budget, rate: 0, purpose: Purpose::Request };
        let body = collect_within(body, limit, intake).await.map_err(|error| match error {
            BodyError::TooLarge { .. } => CallError::TooLarge,
            BodyError::OverBudget(error) => CallError::OverBudget(error),
            error => CallError::Network(error.to_string()),
        })?;
        call.held.grow(response::memory(&body))?;
        Ok(Answer::read(&body, call.uid)?)
    }

    fn request(&self, call: &Call<'_>, key: Option<&[u8]>) -> Request<Body> {
        let mut request = Request::new(Body::full(call.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.config.url.clone();
        request.headers_mut().extend([(USER_AGENT, AGENT), (ACCEPT, JSON), (CONTENT_TYPE, JSON)]);
        if let Some(key) = key {
            request.headers_mut().insert(TIMESTAMP, call.now.into());
            let signature = HeaderValue::try_from(sign(key, call.now, &call.body));
            request.headers_mut().extend(signature.into_iter().map(|signature| (SIGNATURE, signature)));
        }
        request
    }

    /// The client and the key of this moment. Files are read by a thread of their own: a disk may be slow.
    async fn current(self: &Arc<Self>) -> Result<(Client, Option<Bytes>), CallError> {
        let service = Arc::clone(self);
        let read = move || {
            let key = service.config.signing_key.as_ref().map(|key| read_key(key, &service.files)).transpose();
            key.map(|key| (service.renewed(), key)).map_err(CallError::SigningKey)
        };
        if self.config.signing_key.is_none() && self.config.tls.paths().next().is_none() {
            return read();
        }
        tokio::task::spawn_blocking(read).await.map_err(|error| CallError::Network(error.to_string()))?
    }

    /// The client for the files as they are. New files that do not fit together yet are used when they do; until then the old ones are.
    fn renewed(&self) -> Client {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(self.config.tls.paths());
        if stamp != connections.stamp {
            connections.stamp = stamp;
            match client(&self.config, self.addresses, &self.files) {
                Ok(client) => {
                    tracing::info!(webhook = self.config.name, "certificates of a webhook reloaded");
                    connections.client = client;
                }
                Err(error) => {
                    tracing::warn!(webhook = self.config.name, error, "keeping the certificates of a webhook");
                }
            }
        }
        connections.client.clone()
    }
}

fn client(config: &WebhookConfig, addresses: Addresses, files: &MemoryFiles) -> Result<Client, String> {
    let (trust, identity) = read_tls(&config.tls, files)?;
    let schemes = if config.is_plain() { Schemes::Any } else { Schemes::HttpsOnly };
    Ok(Client::new(Options { addresses, schemes, trust, identity, ..Options::default() }))
}

/// An error with its cause: operators need both.
fn with_source(error: &skep_net::client::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
