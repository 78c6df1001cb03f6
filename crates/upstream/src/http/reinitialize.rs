//! Re-initializing a forwarded session that the server forgot, in the name of its client: the client's session survives a restart.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use skep_mcp::headers::SESSION_ID;
use skep_net::Body;
use skep_net::body::{Limit, collect};
use skep_store::{Session, Sessions as Store, StoreError};

use super::server_session::{AT_SERVER, POD, pod_of};
use super::{ForwardError, HttpUpstream, ServerRequest, ServerSession};
use crate::initialize::{INITIALIZE, INITIALIZED};

/// What the `Authorization` of a request begins with that is signed over its own body (AWS Signature Version 4).
const SIGNATURE: &str = "AWS4-HMAC-SHA256 ";

/// How much of the response to `initialize` is read.
const RESPONSE: Limit = Limit { bytes: 1024 * 1024, idle: Duration::from_secs(30), pace: 1 };

/// How long re-initialization may take, with waiting for one that is in flight.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Re-initializations in flight: one at a time for each session.
#[derive(Debug, Default)]
pub(super) struct Renewals(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

/// A place in the queue for the re-initialization of a session.
struct Turn<'a> {
    renewals: &'a Renewals,
    name: &'a str,
    lock: Arc<tokio::sync::Mutex<()>>,
}

// === impl Renewals ===

impl Renewals {
    fn of<'a>(&'a self, name: &'a str) -> Turn<'a> {
        let mut renewals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Turn { renewals: self, name, lock: renewals.entry(name.to_owned()).or_default().clone() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut renewals = self.renewals.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(std::mem::take(&mut self.lock));
        // If the table's is the only one left, no other request waits.
        if renewals.get(self.name).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            renewals.remove(self.name);
        }
    }
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Re-initializes a session, and sends the request again that the server refused. Nothing if the session cannot be
    /// re-initialized. A signature is for one body alone, so that no other message is sent with the headers of a signed request: its client
    /// initializes a new session.
    pub(super) async fn reinitialize(
        &self,
        known: &ServerSession,
        request: &ServerRequest,
    ) -> Option<Result<Response<Body>, ForwardError>> {
        let store = self.options.store.as_ref()?;
        if is_signed(request) {
            tracing::info!("session not re-initialized: its requests are signed one by one");
            return None;
        }
        let mut again = request.clone();
        match tokio::time::timeout(HANDSHAKE, self.renew(store, known, &mut again)).await {
            Ok(Ok(renewed)) => renewed?,
            // Whether the session still exists is not known: a 404 would end it.
            Ok(Err(unavailable)) => return Some(Err(ForwardError::Store(unavailable))),
            Err(_elapsed) => {
                tracing::warn!("session not re-initialized: the server takes too long");
                return None;
            }
        }
        // The request may take as long as it wants: only its own client waits for it.
        Some(self.send(&again).await.map_err(ForwardError::Server))
    }

    /// Renews a session, unless another request just did, and makes a request one of the new session. Nothing if that cannot be.
    async fn renew(
        &self,
        store: &Store,
        known: &ServerSession,
        again: &mut ServerRequest,
    ) -> Result<Option<()>, StoreError> {
        let Some(initialize) = known.session.metadata.get(INITIALIZE) else { return Ok(None) };
        let turn = self.renewals.of(&known.name);
        let _one_at_a_time = turn.lock.lock().await;
        // Another request may have done it while this one waited.
        let Some(now) = store.touch(&known.name).await? else { return Ok(None) };
        let at_server = |session: &Session| session.metadata.get(AT_SERVER).cloned();
        let id = if at_server(&now) == at_server(&known.session) {
            let id = self.initialize_anywhere(initialize, again).await;
            if let Some(id) = &id {
                keep(store, &now, id, again.pod).await;
            }
            id
        } else {
            self.route_to(pod_of(&now), again);
            at_server(&now)
        };
        let id = id.and_then(|id| HeaderValue::from_str(&id).ok());
        Ok(id.map(|id| {
            again.headers.insert(SESSION_ID, id);
        }))
    }

    /// The handshake with the next pod, or with the Service. Returns the id of the new session.
    async fn initialize_anywhere(&self, initialize: &str, again: &mut ServerRequest) -> Option<String> {
        let pod = match &self.options.pods {
            Some(pods) => pods.next().await,
            None => None,
        };
        self.route_to(pod, again);
        let initialized = self.initialize_like(initialize, again).await;
        if initialized.is_some() || again.pod.is_none() {
            return initialized;
        }
        // That pod may be gone as well; the Service knows which ones are ready.
        self.route_to(None, again);
        self.initialize_like(initialize, again).await
    }

    /// The handshake, both parts of it, with the headers of a request. Returns the id of the new session.
    async fn initialize_like(&self, initialize: &str, like: &ServerRequest) -> Option<String> {
        let mut headers = like.headers.clone();
        headers.remove(SESSION_ID);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let request = like.with_message(headers.clone(), Bytes::copy_from_slice(initialize.as_bytes()));
        let response = self.send(&request).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        let id = response.headers().get(SESSION_ID)?.to_str().ok()?.to_owned();
        // Read, so that the connection can be used again.
        let _ignored = collect(response.into_body(), RESPONSE).await;
        headers.insert(SESSION_ID, HeaderValue::from_str(&id).ok()?);
        let accepted = self.send(&like.with_message(headers, Bytes::from_static(INITIALIZED))).await.ok()?;
        let _ignored = collect(accepted.into_body(), RESPONSE).await;
        Some(id)
    }
}

/// Whether a signature in the headers of a request is over its body.
fn is_signed(request: &ServerRequest) -> bool {
    let credentials = request.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    credentials.is_some_and(|credentials| credentials.starts_with(SIGNATURE))
}

/// Keeps under which id the server knows a session now, and at which pod.
async fn keep(store: &Store, session: &Session, id: &str, pod: Option<SocketAddr>) {
    let mut renewed = session.clone();
    renewed.metadata.insert(AT_SERVER.to_owned(), id.to_owned());
    match pod {
        Some(pod) => renewed.metadata.insert(POD.to_owned(), pod.to_string()),
        None => renewed.metadata.remove(POD),
    };
    if let Err(unavailable) = store.update(renewed).await {
        tracing::warn!(%unavailable, "new id of a re-initialized session not stored");
    }
    tracing::info!("session re-initialized");
}
