//! What is kept of a session that a server opened: the id under which the server knows it, its pod, and its `initialize`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Uri};
use skep_mcp::headers::SESSION_ID;
use skep_store::Session;
use skep_store::session::{Kind, normalised};

use super::{HttpUpstream, ServerRequest};
use crate::initialize::{self, INITIALIZE};

/// The id under which the server knows a session, if it is another one than the client's.
pub(super) const AT_SERVER: &str = "backend_sid";
/// The pod that knows a session, if there are several to choose from.
pub(super) const POD: &str = "backend_pod";
/// The URL at which a session was opened.
const URL: &str = "backend_url";
/// The path at which a session was opened.
const PATH: &str = "skep_path";
/// The longest such path that is kept, in bytes. It counts against the client's share of sessions.
const LONGEST_PATH: usize = 1024;
/// How long the server may take to close a session.
const CLOSING: Duration = Duration::from_secs(5);

/// A session that a client may use.
#[derive(Clone, Debug)]
pub struct ServerSession {
    /// The client's id of it.
    pub(super) name: String,
    pub(super) session: Arc<Session>,
}

// === impl ServerSession ===

impl ServerSession {
    /// A session that was found in the store under the id that its client sent.
    pub fn new(name: String, session: Arc<Session>) -> Self {
        Self { name, session }
    }

    /// The client's id of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The transport that it was opened by.
    pub fn kind(&self) -> Kind {
        self.session.kind
    }

    /// The id under which the server knows it.
    pub fn at_server(&self) -> &str {
        self.session.metadata.get(AT_SERVER).map_or(&self.name, String::as_str)
    }

    /// The pod that knows it.
    pub(super) fn pod(&self) -> Option<SocketAddr> {
        pod_of(&self.session)
    }
}

/// The pod that knows a session.
pub(super) fn pod_of(session: &Session) -> Option<SocketAddr> {
    session.metadata.get(POD)?.parse().ok()
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// What is kept of a session that the server opened by a request, under the server's id.
    pub(super) fn metadata(&self, id: &str, path: &str, request: &ServerRequest) -> Vec<(String, String)> {
        let base = self.target.base().map(|uri| uri.to_string()).unwrap_or_default();
        let mut metadata = vec![(URL.to_owned(), base.trim_end_matches('/').to_owned())];
        metadata.extend(request.pod.map(|pod| (POD.to_owned(), pod.to_string())));
        let path = Some(path).filter(|path| path.len() <= LONGEST_PATH);
        metadata.extend(path.map(|path| (PATH.to_owned(), path.to_owned())));
        if normalised(id) != id {
            // The store knows it by another id, and only this one closes it at the server.
            metadata.push((AT_SERVER.to_owned(), id.to_owned()));
        }
        metadata.extend(initialize::kept(&request.body).map(|kept| (INITIALIZE.to_owned(), kept)));
        metadata
    }

    /// Closes a session at the server that ended at the proxy without a request of its client: the server would keep it for longer.
    /// The server may ignore it, and credentials of clients are not kept for it.
    pub async fn close_at_server(&self, session: &Session) {
        let path = session.metadata.get(PATH).and_then(|path| path.parse::<Uri>().ok());
        let id = session.metadata.get(AT_SERVER).unwrap_or(&session.id);
        let (Some(path), Ok(id)) = (path, HeaderValue::from_str(id)) else { return };
        let Some(uri) = self.target.uri(&path, None) else { return };
        let mut request = ServerRequest::new(Method::DELETE, uri);
        request.headers = HeaderMap::from_iter([(SESSION_ID, id)]);
        if let (Some(pod), Some(pods)) = (pod_of(session), &self.options.pods) {
            // Another workload may have the address of a pod that is gone.
            if !pods.has(pod).await {
                return;
            }
            self.route_to(Some(pod), &mut request);
        }
        match tokio::time::timeout(CLOSING, self.send(&request)).await {
            Ok(Ok(response)) => tracing::debug!(status = %response.status(), "session closed at the server"),
            Ok(Err(error)) => tracing::debug!(%error, "session not closed at the server"),
            Err(_elapsed) => tracing::debug!("session not closed at the server: it does not answer"),
        }
    }
}
