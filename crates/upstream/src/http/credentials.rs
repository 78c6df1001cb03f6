//! Credentials for a server, obtained for each request in the name of the client that it is sent for.

use std::fmt::Debug;

use http::{Response, StatusCode};
use skep_net::Body;

use super::{HttpUpstream, ServerRequest};
use crate::error::CallError;
use crate::upstream::BoxFuture;

/// What adds credentials to the requests for a server.
pub trait Credentials: Debug + Send + Sync {
    /// Adds them to a request that is complete otherwise, in the name of [`ServerRequest::caller`]. A request of the proxy's own, such as a
    /// health check, has no caller.
    fn add<'a>(&'a self, request: &'a mut ServerRequest) -> BoxFuture<'a, Result<(), CredentialsError>>;

    /// The server refused a request with these credentials, which are not used again.
    fn refused(&self, request: &ServerRequest);
}

/// Why there are no credentials for a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// They are obtained in the name of a client, and the client was not authenticated.
    #[error("the server is called in the name of a client, and this client is not authenticated")]
    NoCaller,
    /// What issues them refused, or cannot be reached. Without tokens and secrets.
    #[error("{0}")]
    NotIssued(String),
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Sends a request with credentials; once more with new ones if the server refuses them.
    pub(super) async fn send_with_credentials(&self, request: &ServerRequest) -> Result<Response<Body>, SendError> {
        let Some(credentials) = &self.options.credentials else { return Ok(self.send(request).await?) };
        let mut with = request.clone();
        credentials.add(&mut with).await?;
        let response = self.send(&with).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        credentials.refused(&with);
        let mut renewed = request.clone();
        credentials.add(&mut renewed).await?;
        // A fixed credential is as wrong as it was.
        if renewed.headers == with.headers {
            return Ok(response);
        }
        Ok(self.send(&renewed).await?)
    }
}

/// Why a request of an upstream has no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// The server cannot be reached, or broke the connection.
    #[error(transparent)]
    Server(#[from] skep_net::client::Error),
    /// There are no credentials for it.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

// === impl CredentialsError ===

impl From<CredentialsError> for CallError {
    fn from(error: CredentialsError) -> Self {
        Self::NoCredentials(error.to_string().into())
    }
}
