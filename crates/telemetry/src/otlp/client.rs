//! The exporters' HTTP client: the one outbound client, bounded in time and in the size of responses.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use skep_net::body::{Limit, collect};
use skep_net::{Body, Client};

/// The longest response of a collector, in bytes.
const LONGEST: usize = 64 * 1024;

/// Sends requests to a collector. Its name in texts has no header, whose value may be secret.
pub(super) struct CollectorClient {
    client: Client,
    timeout: Duration,
}

// === impl CollectorClient ===

impl CollectorClient {
    pub(super) fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.client.send(request.map(Body::full)).await.map_err(|error| with_source(&error))?;
        let (parts, body) = response.into_parts();
        let body = collect(body, Limit { bytes: LONGEST, idle: self.timeout, pace: 1 }).await?;
        Ok(Response::from_parts(parts, body))
    }
}

impl HttpClient for CollectorClient {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let sent = tokio::time::timeout(self.timeout, self.send(request)).await;
            sent.map_err(|_elapsed| format!("no response within {} s", self.timeout.as_secs()))?
        })
    }
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CollectorClient")
    }
}

fn with_source(error: &skep_net::client::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
