//! Sessions of a server that speaks HTTP: whose they are, under which name the server knows them, and a new handshake when it
//! does not know them any more.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use skep_net::Body;
use skep_net::body::{Limit, collect};
use skep_store::Session;
use skep_store::session::normalised;

use super::{ForwardError, Outgoing, Transparent};
use crate::exchange::Exchange;
use crate::http::SESSION;
use crate::sessions::Unavailable;
use crate::sessions::initialize::{self, INITIALIZE};

/// The name under which the server knows a session, if it is another one than the caller's.
const AT_SERVER: &str = "backend_sid";
/// The pod that knows a session, if there are several to choose from.
const POD: &str = "backend_pod";
/// Where a session was opened.
const URL: &str = "backend_url";
/// The path that a session was opened at.
const PATH: &str = "skep_path";
/// The longest such path that is kept, in bytes. It counts against the client's share of sessions.
const LONGEST_PATH: usize = 1024;
/// How long the server may take to end a session.
const CLOSING: Duration = Duration::from_secs(5);
/// How much of the answer to a handshake is read.
const ANSWER: Limit = Limit { bytes: 1024 * 1024, idle: Duration::from_secs(30), pace: 1 };

/// How long a new handshake may take, with waiting for one that is under way.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Handshakes that are under way: one at a time for each session.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

/// A place in the line for the handshake of a session.
struct Turn<'a> {
    turns: &'a Turns,
    name: &'a str,
    lock: Arc<tokio::sync::Mutex<()>>,
}

/// A session that a caller may use.
#[derive(Clone, Debug)]
pub(super) struct ClientSession {
    /// The caller's name of it.
    name: String,
    session: Arc<Session>,
}

/// Names the session in a message, unless that names it already, and nothing else.
pub(super) fn name(headers: &mut HeaderMap, session: &str) {
    let mut named = headers.get_all(&SESSION).iter();
    if named.next().is_some_and(|value| value == session) && named.next().is_none() {
        return;
    }
    if let Ok(value) = HeaderValue::from_str(session) {
        headers.insert(SESSION, value);
    }
}

fn pod_of(session: &Session) -> Option<SocketAddr> {
    session.metadata.get(POD)?.parse().ok()
}

// === impl Turns ===

impl Turns {
    fn of<'a>(&'a self, name: &'a str) -> Turn<'a> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Turn { turns: self, name, lock: turns.entry(name.to_owned()).or_default().clone() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(std::mem::take(&mut self.lock));
        // If the table's is the only one left, nobody waits.
        if turns.get(self.name).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            turns.remove(self.name);
        }
    }
}

// === impl ClientSession ===

impl ClientSession {
    /// The caller's name of it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The name that the server knows it by.
    pub(super) fn at_server(&self) -> &str {
        self.session.metadata.get(AT_SERVER).map_or(&self.name, String::as_str)
    }

    /// The pod that knows it.
    pub(super) fn pod(&self) -> Option<SocketAddr> {
        pod_of(&self.session)
    }
}

// === impl Transparent ===

impl Transparent {
    /// Finds a session of this caller, in one look.
    pub(super) async fn find(&self, name: String, exchange: &Exchange) -> Result<Option<ClientSession>, Unavailable> {
        let session = self.sessions.find(&name, exchange).await?;
        Ok(session.map(|session| ClientSession { name, session }))
    }

    /// Takes note of what an answer says about sessions, and keeps the caller's name of its session in it.
    pub(super) async fn follow(
        &self,
        exchange: &Exchange,
        session: Option<&ClientSession>,
        is_initialize: bool,
        outgoing: &Outgoing,
        response: &mut Response<Body>,
    ) -> Result<(), Unavailable> {
        let status = response.status();
        if let Some(session) = session {
            if outgoing.method == Method::DELETE && (status.is_success() || status == StatusCode::NOT_FOUND) {
                self.sessions.close(&session.name).await?;
            }
            if response.headers().contains_key(SESSION) {
                name(response.headers_mut(), &session.name);
            }
            return Ok(());
        }
        if !is_initialize || status != StatusCode::OK {
            return Ok(());
        }
        let Some(name) = response.headers().get(SESSION).and_then(|name| name.to_str().ok()) else { return Ok(()) };
        let base = self.target.base().map(|uri| uri.to_string()).unwrap_or_default();
        let mut metadata = vec![(URL.to_owned(), base.trim_end_matches('/').to_owned())];
        metadata.extend(outgoing.pod.map(|pod| (POD.to_owned(), pod.to_string())));
        let path = Some(exchange.head.uri.path()).filter(|path| path.len() <= LONGEST_PATH);
        metadata.extend(path.map(|path| (PATH.to_owned(), path.to_owned())));
        if normalised(name) != name {
            // The store knows it by another name, and only this one ends it at the server.
            metadata.push((AT_SERVER.to_owned(), name.to_owned()));
        }
        metadata.extend(initialize::kept(&outgoing.body).map(|kept| (INITIALIZE.to_owned(), kept)));
        self.sessions.adopt(name, exchange, metadata).await
    }

    /// Ends a session at the server that ended here without its client's word: the server would keep it for longer. Whether the
    /// server heeds it is its own affair, and credentials of clients are not kept for it.
    pub(crate) async fn close_at_server(&self, session: &Session) {
        let path = session.metadata.get(PATH).and_then(|path| path.parse().ok());
        let name = session.metadata.get(AT_SERVER).unwrap_or(&session.id);
        let (Some(path), Ok(name)) = (path, HeaderValue::from_str(name)) else { return };
        let Some(uri) = self.target.uri(&path, None) else { return };
        let (headers, body) = (HeaderMap::from_iter([(SESSION, name)]), bytes::Bytes::new());
        let (method, pod) = (Method::DELETE, None);
        let mut outgoing = Outgoing { method, uri, pod, headers, body, is_message: false, origin_allowed: false };
        if let (Some(pod), Some(pods)) = (pod_of(session), &self.pods) {
            // Another workload may have the address of a pod that is gone.
            if !pods.has(pod).await {
                return;
            }
            self.go_to(Some(pod), &mut outgoing);
        }
        match tokio::time::timeout(CLOSING, self.send(&outgoing)).await {
            Ok(Ok(response)) => tracing::debug!(status = %response.status(), "session closed at the server"),
            Ok(Err(error)) => tracing::debug!(%error, "session not closed at the server"),
            Err(_elapsed) => tracing::debug!("session not closed at the server: it does not answer"),
        }
    }

    /// A server that does not know a session any more is greeted again in the caller's name, and then gets the call that it did
    /// not take. Says how that went; nothing if there can be no new handshake.
    pub(super) async fn reinitialize(
        self: &Arc<Self>,
        known: &ClientSession,
        outgoing: &Outgoing,
    ) -> Option<Result<Response<Body>, ForwardError>> {
        let mut again = outgoing.clone();
        match tokio::time::timeout(HANDSHAKE, self.renew(known, &mut again)).await {
            Ok(Ok(renewed)) => renewed?,
            // Whether the session is still one, nobody knows: to call it unknown would end it.
            Ok(Err(unavailable)) => return Some(Err(ForwardError::Store(unavailable))),
            Err(_elapsed) => {
                tracing::warn!("the server did not know a session any more and takes too long to be greeted again");
                return None;
            }
        }
        // The call may take as long as it wants: nobody waits for it but its caller.
        Some(self.send(&again).await.map_err(ForwardError::Server))
    }

    /// Renews a session, unless somebody else just did, and makes a call one of the new session. Nothing if that cannot be.
    async fn renew(&self, known: &ClientSession, again: &mut Outgoing) -> Result<Option<()>, Unavailable> {
        let Some(initialize) = known.session.metadata.get(INITIALIZE) else { return Ok(None) };
        let turn = self.turns.of(&known.name);
        let _one_at_a_time = turn.lock.lock().await;
        // Somebody else may have done it while we waited.
        let Some(now) = self.sessions.store().touch(&known.name).await? else { return Ok(None) };
        let at_server = |session: &Session| session.metadata.get(AT_SERVER).cloned();
        let name = if at_server(&now) == at_server(&known.session) {
            let name = self.initialize_anywhere(initialize, again).await;
            if let Some(name) = &name {
                self.rename(&now, name, again.pod).await;
            }
            name
        } else {
            self.go_to(pod_of(&now), again);
            at_server(&now)
        };
        let name = name.and_then(|name| HeaderValue::from_str(&name).ok());
        Ok(name.map(|name| {
            again.headers.insert(SESSION, name);
        }))
    }

    /// The handshake with a pod whose turn it is, or with the Service. Returns the name of the new session.
    async fn initialize_anywhere(&self, initialize: &str, again: &mut Outgoing) -> Option<String> {
        let pod = match &self.pods {
            Some(pods) => pods.next().await,
            None => None,
        };
        self.go_to(pod, again);
        let greeted = self.greet(initialize, again).await;
        if greeted.is_some() || again.pod.is_none() {
            return greeted;
        }
        // That pod may be gone as well; the Service knows who is there.
        self.go_to(None, again);
        self.greet(initialize, again).await
    }

    /// Keeps by which name the server knows a session now, and at which pod.
    async fn rename(&self, session: &Session, name: &str, pod: Option<SocketAddr>) {
        let mut renewed = session.clone();
        renewed.metadata.insert(AT_SERVER.to_owned(), name.to_owned());
        match pod {
            Some(pod) => renewed.metadata.insert(POD.to_owned(), pod.to_string()),
            None => renewed.metadata.remove(POD),
        };
        if let Err(unavailable) = self.sessions.store().update(renewed).await {
            tracing::warn!(%unavailable, "the new name of a session is not kept");
        }
        tracing::info!("the server did not know a session any more and was greeted again");
    }

    /// The handshake, both parts of it. Returns the name of the new session.
    async fn greet(&self, initialize: &str, like: &Outgoing) -> Option<String> {
        let mut headers = like.headers.clone();
        headers.remove(SESSION);
        headers.insert(http::header::CONTENT_TYPE, crate::http::JSON);
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let body = bytes::Bytes::copy_from_slice(initialize.as_bytes());
        let (uri, pod, origin_allowed) = (&like.uri, like.pod, like.origin_allowed);
        let like = |headers, body| Outgoing {
            method: Method::POST,
            uri: uri.clone(),
            pod,
            headers,
            body,
            is_message: true,
            origin_allowed,
        };
        let hello = like(headers.clone(), body);
        let response = self.send(&hello).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        let name = response.headers().get(SESSION)?.to_str().ok()?.to_owned();
        // Read, so that the connection can be used again.
        let _answer = collect(response.into_body(), ANSWER).await;
        headers.insert(SESSION, HeaderValue::from_str(&name).ok()?);
        let body = bytes::Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        let told = like(headers, body);
        let accepted = self.send(&told).await.ok()?;
        let _answer = collect(accepted.into_body(), ANSWER).await;
        Some(name)
    }
}
