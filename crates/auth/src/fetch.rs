//! Requests to an identity provider: bounded in size and time, over the one outbound client, which checks every address that it dials.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use serde_json::Value;
use skep_net::body::{Limit, collect};
use skep_net::{Body, Client, redirect};

use crate::Secret;

/// How long a provider may take for a response, body included.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest document of a provider, in bytes.
const LONGEST: usize = 1024 * 1024;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("skep/", env!("CARGO_PKG_VERSION")));
/// The API server of Kubernetes serves keys as `application/jwk-set+json` and nothing else.
const DOCUMENT: HeaderValue = HeaderValue::from_static("application/json, application/jwk-set+json, */*");

/// Sends requests to an identity provider.
#[derive(Clone, Debug)]
pub struct Fetcher {
    client: Client,
    /// A file with a token for the provider itself. Read for each request: Kubernetes replaces such tokens before they expire.
    token_file: Option<PathBuf>,
    timeout: Duration,
}

/// A request to a provider.
#[derive(Debug)]
pub struct Ask<'a> {
    /// Where to.
    pub url: &'a str,
    /// The body and its media type, for a POST.
    pub body: Option<(Bytes, HeaderValue)>,
    /// Credentials of our own, instead of the token of the file.
    pub authorization: Option<HeaderValue>,
    /// The longest response, in bytes.
    pub limit: usize,
}

/// A response of a provider.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Why a provider did not answer. No text holds a query, a token or a body.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is not one.
    #[error("`{0}` is not a URL")]
    Url(String),
    /// The provider's own token cannot be read.
    #[error("the token file cannot be read: {0}")]
    TokenFile(std::io::ErrorKind),
    /// The provider cannot be reached.
    #[error("{}", with_source(.0))]
    Unreachable(#[source] skep_net::client::Error),
    /// The response broke off, or is too long.
    #[error("the response cannot be read: {0}")]
    Body(#[source] skep_net::BodyError),
    /// It took too long.
    #[error("no response within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The response is an error.
    #[error("the response is {0}")]
    Status(StatusCode),
    /// The response is not a JSON object.
    #[error("the response is not a JSON object")]
    NotJson,
}

// === impl Fetcher ===

impl Fetcher {
    /// A fetcher over a client.
    pub fn new(client: Client, token_file: Option<PathBuf>, timeout: Duration) -> Self {
        Self { client, token_file, timeout }
    }

    /// A JSON document, and the headers that say how long it may be kept.
    pub async fn document(&self, url: &str) -> Result<(Value, HeaderMap), FetchError> {
        let answer = self.ask(Ask { url, body: None, authorization: None, limit: LONGEST }).await?;
        if answer.status != StatusCode::OK {
            return Err(FetchError::Status(answer.status));
        }
        Ok((answer.json()?, answer.headers))
    }

    /// Sends a request, and reads the whole response.
    pub async fn ask(&self, ask: Ask<'_>) -> Result<Answer, FetchError> {
        let response = tokio::time::timeout(self.timeout, self.send(&ask));
        response.await.map_err(|_elapsed| FetchError::Timeout(self.timeout))?
    }

    async fn send(&self, ask: &Ask<'_>) -> Result<Answer, FetchError> {
        let without_query = || ask.url.split(['?', '#']).next().unwrap_or_default().to_owned();
        let mut uri: Uri = ask.url.parse().map_err(|_| FetchError::Url(without_query()))?;
        let authorization = match &ask.authorization {
            Some(authorization) => Some(authorization.clone()),
            None => self.own_token().await?,
        };
        for _ in 0..=redirect::MOST {
            let request = request(ask, &uri, authorization.as_ref());
            let response = self.client.send(request).await.map_err(FetchError::Unreachable)?;
            let location = response.headers().get(http::header::LOCATION);
            // Redirects lead to the same host only, so credentials stay with it.
            if let Ok(next) = redirect::next(&uri, response.status(), location) {
                uri = next;
                continue;
            }
            let (parts, body) = response.into_parts();
            let limit = Limit { bytes: ask.limit, idle: self.timeout, pace: 1 };
            let body = collect(body, limit).await.map_err(FetchError::Body)?;
            return Ok(Answer { status: parts.status, headers: parts.headers, body });
        }
        Err(FetchError::Status(StatusCode::LOOP_DETECTED))
    }

    async fn own_token(&self) -> Result<Option<HeaderValue>, FetchError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let token = tokio::fs::read_to_string(path).await.map_err(|error| FetchError::TokenFile(error.kind()))?;
        let invalid = |_| FetchError::TokenFile(std::io::ErrorKind::InvalidData);
        bearer(&Secret::new(token.trim())).map(Some).map_err(invalid)
    }
}

fn request(ask: &Ask<'_>, uri: &Uri, authorization: Option<&HeaderValue>) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = uri.clone();
    request.headers_mut().extend([(USER_AGENT, AGENT), (ACCEPT, DOCUMENT)]);
    if let Some((body, media_type)) = &ask.body {
        *request.method_mut() = Method::POST;
        *request.body_mut() = Body::full(body.clone());
        request.headers_mut().insert(CONTENT_TYPE, media_type.clone());
    }
    if let Some(authorization) = authorization {
        request.headers_mut().insert(AUTHORIZATION, authorization.clone());
    }
    request
}

/// The header with a bearer token.
pub fn bearer(token: &Secret) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut header = HeaderValue::from_str(&format!("Bearer {}", token.expose()))?;
    header.set_sensitive(true);
    Ok(header)
}

// === impl Answer ===

impl Answer {
    /// The body as a JSON object.
    pub fn json(&self) -> Result<Value, FetchError> {
        serde_json::from_slice(&self.body).ok().filter(Value::is_object).ok_or(FetchError::NotJson)
    }
}

/// An error with its cause: operators need both.
fn with_source(error: &skep_net::client::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
