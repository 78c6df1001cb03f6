//! Forwarding a client's own request: its framing, its ids and the server's session id stay as they are.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use skep_mcp::headers::SESSION_ID;
use skep_net::Body;
use skep_store::StoreError;

use super::{HttpUpstream, Pods, ServerRequest, ServerSession};

/// Why a forwarded request has no response.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The server cannot be reached, or broke the connection.
    #[error(transparent)]
    Server(#[from] skep_net::client::Error),
    /// The session cannot be looked up.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A session that the server opened by a forwarded `initialize`.
#[derive(Debug)]
pub struct OpenedSession {
    /// The server's id of it, which is the client's as well.
    pub id: String,
    /// What has to be kept of it.
    pub metadata: Vec<(String, String)>,
}

/// Names the session in a message, unless that names it already, and nothing else.
fn name_session(headers: &mut HeaderMap, session: &str) {
    let mut named = headers.get_all(&SESSION_ID).iter();
    if named.next().is_some_and(|value| value == session) && named.next().is_none() {
        return;
    }
    if let Ok(value) = HeaderValue::from_str(session) {
        headers.insert(SESSION_ID, value);
    }
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Forwards a request, and returns the server's response as it is. A session that the server forgot is re-initialized, and the
    /// client sees its own id of it.
    pub async fn forward(
        &self,
        session: Option<&ServerSession>,
        request: &mut ServerRequest,
    ) -> Result<Response<Body>, ForwardError> {
        if let Some(session) = session {
            name_session(&mut request.headers, session.at_server());
        }
        let is_forgotten = match &self.options.pods {
            Some(pods) => Box::pin(self.choose_pod(pods, session, request)).await,
            None => false,
        };
        let renewed = match session {
            Some(session) if is_forgotten => Box::pin(self.reinitialize(session, request)).await,
            _ => None,
        };
        let sent = match renewed {
            Some(sent) => sent,
            None => self.send(request).await.map_err(ForwardError::Server),
        };
        let never_reached = matches!(&sent, Err(ForwardError::Server(error)) if error.never_reached());
        let is_unknown = matches!(&sent, Ok(response) if response.status() == StatusCode::NOT_FOUND);
        let again = match session {
            // The Service knows which other pods are ready.
            None if never_reached && request.pod.is_some() => {
                self.route_to(None, request);
                Some(Box::pin(self.send(request)).await.map_err(ForwardError::Server))
            }
            Some(session) if never_reached || is_unknown && request.method != Method::DELETE => {
                Box::pin(self.reinitialize(session, request)).await
            }
            _ => None,
        };
        let mut response = again.unwrap_or(sent)?;
        if let Some(session) = session.filter(|_| response.headers().contains_key(SESSION_ID)) {
            name_session(response.headers_mut(), session.name());
        }
        Ok(response)
    }

    /// The session that the server opened by a forwarded `initialize`, if it opened one. `path` is the one that the client asked for.
    pub fn opened_session(
        &self,
        path: &str,
        request: &ServerRequest,
        response: &Response<Body>,
    ) -> Option<OpenedSession> {
        if response.status() != StatusCode::OK {
            return None;
        }
        let id = response.headers().get(SESSION_ID)?.to_str().ok()?;
        Some(OpenedSession { id: id.to_owned(), metadata: self.metadata(id, path, request) })
    }

    /// A session stays with the pod that it was opened at; requests without one are spread over all. Says whether the session's pod
    /// is gone, so that the server does not know the session.
    async fn choose_pod(&self, pods: &Pods, session: Option<&ServerSession>, request: &mut ServerRequest) -> bool {
        let pod = match session {
            None => pods.next().await,
            Some(session) => session.pod(),
        };
        let is_gone = match pod {
            Some(pod) => !pods.has(pod).await,
            None => false,
        };
        self.route_to(pod.filter(|_| !is_gone), request);
        // There is nothing left to delete.
        is_gone && request.method != Method::DELETE
    }
}
