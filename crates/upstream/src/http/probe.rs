//! Which era the server speaks, found out when it is first asked for: `server/discover`, which servers of earlier versions refuse.
//!
//! | response to `server/discover` | state |
//! | --- | --- |
//! | a result that lists 2026-07-28 | ready, modern; legacy as well if it lists an earlier version, or takes `initialize` |
//! | 401, 403, or there are no credentials without a client | as before: each call probes in the name of its client |
//! | 407, 408, 429 | as before: probed again with backoff, and by each call |
//! | 5xx, no connection | failing: probed again with backoff, and by each call |
//! | anything else | ready, legacy: sessions begin with `initialize` |
//!
//! What a client's probe fails with concerns that client only: a gateway may refuse one client and serve the next. A response that is no
//! answer to `server/discover` says that the server is legacy only if it takes `initialize` in the name of that client.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Method, StatusCode};
use skep_mcp::headers::SESSION_ID;
use skep_mcp::{Era, Eras, Message};
use skep_workload::backoff::Backoff;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::client_session::ClientSession;
use super::credentials::{CredentialsError, SendError};
use super::handshake::only_response;
use super::{HttpUpstream, Transport, protocol_headers, unreachable_reason};
use crate::era;
use crate::error::CallError;
use crate::handshake::{discover_request, eras_of};
use crate::upstream::{ClientContext, UpstreamState};

/// How long is waited before a server is probed again, at first.
const AGAIN: Duration = Duration::from_millis(500);
/// What a server of both eras takes. The session is not used.
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"skep","version":"0"}}}"#;
/// How long the server may take for its response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What is being done to find out the eras of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Probing {
    /// Nothing: they are known, or were not asked for.
    #[default]
    Idle,
    /// It is probed for the first time.
    First,
    /// It is probed again, with backoff.
    Again,
    /// Only clients can probe it.
    ByClients,
}

/// Why the eras of a server are not known.
#[derive(Debug)]
enum ProbeError {
    /// It says nothing without the credentials of a client.
    NeedsClient(CallError),
    /// Its response says nothing of it.
    Inconclusive(StatusCode),
    /// It does not know `server/discover`, or does not serve the client.
    NotAnswered(CallError),
    /// It cannot be called.
    Call(CallError),
}

// === impl ProbeError ===

impl From<CallError> for ProbeError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<ProbeError> for CallError {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::NeedsClient(error) | ProbeError::NotAnswered(error) | ProbeError::Call(error) => error,
            ProbeError::Inconclusive(status) => Self::Rejected(status),
        }
    }
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Begins to probe the server, unless that is in progress, it is ready, or it says nothing without a client.
    pub(super) fn start_probing(&self) {
        let is_ready = self.is_ready();
        let begin = |probing: &mut Probing| {
            let begins = !is_ready && *probing == Probing::Idle;
            if begins {
                *probing = Probing::First;
            }
            begins
        };
        if self.probing.send_if_modified(begin) {
            tokio::spawn(probe(self.me.clone()).in_current_span());
        }
    }

    /// Probes the server in the name of a client, unless its eras are known, or may be known without the client.
    pub(super) async fn probe_as(&self, client: &ClientContext) -> Result<(), CallError> {
        self.start_probing();
        let (mut state, mut probing) = (self.state.subscribe(), self.probing.subscribe());
        loop {
            if matches!(&*state.borrow_and_update(), UpstreamState::Ready(_)) {
                return Ok(());
            }
            if *probing.borrow_and_update() != Probing::First {
                break;
            }
            let changed = tokio::select! {
                changed = state.changed() => changed,
                changed = probing.changed() => changed,
            };
            changed.map_err(|_closed| CallError::NotSent)?;
        }
        let probed = tokio::time::timeout(TIMEOUT, self.eras_for(client)).await;
        let eras = probed.unwrap_or(Err(CallError::Timeout))?;
        self.set_unless_ready(UpstreamState::ready(eras));
        Ok(())
    }

    /// The eras of the server, as it shows them to a client.
    async fn eras_for(&self, client: &ClientContext) -> Result<Eras, CallError> {
        match self.probe_once(client).await {
            Err(ProbeError::NotAnswered(error)) => {
                let client = self.client_of(None, Some(client));
                let is_legacy = self.is_initialized(&client).await || self.is_initialized_by_stream(&client).await;
                is_legacy.then_some(Eras::Legacy).ok_or(error)
            }
            probed => Ok(probed?),
        }
    }

    fn is_ready(&self) -> bool {
        matches!(&*self.state.borrow(), UpstreamState::Ready(_))
    }

    /// Sets the state, unless another probe found the eras of the server meanwhile.
    fn set_unless_ready(&self, new: UpstreamState) {
        self.state.send_if_modified(|state| {
            let is_set = !matches!(state, UpstreamState::Ready(_));
            if is_set {
                *state = new;
            }
            is_set
        });
    }

    /// The server cannot be reached: it is probed until it can.
    pub(super) fn lost(&self, error: &skep_net::client::Error) -> CallError {
        tracing::debug!(%error, "server unreachable");
        let reason = unreachable_reason(error);
        if self.options.eras.is_some() {
            return CallError::Unavailable(reason.into());
        }
        self.state.send_replace(UpstreamState::Failing(reason.as_str().into()));
        // It may be another server when it is back.
        self.probing.send_if_modified(|probing| {
            let is_by_clients = *probing == Probing::ByClients;
            if is_by_clients {
                *probing = Probing::Idle;
            }
            is_by_clients
        });
        self.start_probing();
        CallError::Unavailable(reason.into())
    }

    /// Probes the server once in the name of a client. Says its eras, or why they are not known.
    async fn probe_once(&self, client: &ClientContext) -> Result<Eras, ProbeError> {
        if self.transport.get() == Some(&Transport::Sse) {
            return Ok(Eras::Legacy);
        }
        let message = Message::parse(discover_request().into()).map_err(|_never| CallError::NotSent)?;
        let mut request = self.post(message.body().clone())?;
        let client = self.client_of(None, Some(client));
        request.headers = protocol_headers::of_message(client.headers.clone(), Era::Modern, &message, None, &[]);
        request.caller = client.caller.clone();
        let sent = self.send_with_credentials(&request).await;
        let response = sent.map_err(|error| match error {
            SendError::Server(error) => CallError::Unavailable(unreachable_reason(&error).into()).into(),
            SendError::Credentials(CredentialsError::NoCaller) => {
                ProbeError::NeedsClient(CredentialsError::NoCaller.into())
            }
            SendError::Credentials(error) => CallError::from(error).into(),
        })?;
        let status = response.status();
        match status.as_u16() {
            401 | 403 => return Err(ProbeError::NeedsClient(CallError::Rejected(status))),
            // Of the way to the server, or of its load, and not of its era.
            407 | 408 | 429 => return Err(ProbeError::Inconclusive(status)),
            _ if status.is_server_error() => return Err(CallError::Rejected(status).into()),
            _ => {}
        }
        match only_response(response, &message).await {
            // Servers of both eras list what `server/discover` is for: the modern one.
            Ok(discovered) => match eras_of(&discovered) {
                Eras::Modern if self.is_initialized(&client).await => Ok(Eras::Both),
                eras => Ok(eras),
            },
            Err(error) => Err(ProbeError::NotAnswered(error)),
        }
    }

    /// Whether a server of 2026-07-28 takes `initialize` as well. The session that it opens is closed at once.
    async fn is_initialized(&self, client: &ClientContext) -> bool {
        let Ok(message) = Message::parse(INITIALIZE.into()) else { return false };
        let Ok(mut request) = self.post(message.body().clone()) else { return false };
        request.headers = protocol_headers::of_message(client.headers.clone(), Era::Legacy, &message, None, &[]);
        request.caller = client.caller.clone();
        let Ok(response) = self.send_with_credentials(&request).await else { return false };
        let session = response.headers().get(SESSION_ID).cloned();
        let initialized = only_response(response, &message).await;
        let is_initialized = initialized.is_ok_and(|initialized| era::protocol_version(&initialized).is_some());
        if let (Some(session), Ok(mut closing)) = (session, self.request_of(Method::DELETE, None)) {
            closing.headers = client.headers.clone();
            closing.caller = client.caller.clone();
            closing.headers.insert(SESSION_ID, session);
            // The server expires it otherwise.
            let _closed = self.send_with_credentials(&closing).await;
        }
        is_initialized
    }

    /// Whether a server that may be one of HTTP+SSE takes `initialize` by that. The stream is closed at once.
    async fn is_initialized_by_stream(&self, client: &ClientContext) -> bool {
        let initialize = Message::parse(INITIALIZE.into()).ok().filter(|_| self.transport.get().is_none());
        let (Some(me), Some(initialize)) = (self.me.upgrade(), initialize) else { return false };
        let session = ClientSession::new("probe".into(), initialize, client);
        let opened = me.open_stream(&session).await;
        opened.is_ok_and(|(_initialized, link)| link.is_some())
    }
}

/// What a state says of why a server cannot be used.
fn reason(error: &CallError) -> Arc<str> {
    match error {
        CallError::Unavailable(why) => why.clone(),
        CallError::Timeout => format!("no response within {TIMEOUT:?}").into(),
        error => error.to_string().into(),
    }
}

/// Probes a server with backoff until it is ready.
async fn probe(upstream: Weak<HttpUpstream>) {
    let mut backoff = Backoff::new(AGAIN);
    loop {
        let since = Instant::now();
        {
            let Some(upstream) = upstream.upgrade() else { return };
            // A client may have found it ready while this waited.
            if upstream.is_ready() {
                upstream.probing.send_replace(Probing::Idle);
                return;
            }
            let probed = tokio::time::timeout(TIMEOUT, upstream.probe_once(&ClientContext::default())).await;
            let next = match probed.unwrap_or(Err(ProbeError::Call(CallError::Timeout))) {
                Ok(eras) => {
                    upstream.set_unless_ready(UpstreamState::ready(eras));
                    Probing::Idle
                }
                Err(ProbeError::NotAnswered(why)) => {
                    tracing::debug!(%why, "server does not know server/discover");
                    upstream.set_unless_ready(UpstreamState::ready(Eras::Legacy));
                    Probing::Idle
                }
                Err(ProbeError::NeedsClient(why)) => {
                    tracing::debug!(%why, "server not probed: it takes clients only");
                    Probing::ByClients
                }
                Err(ProbeError::Inconclusive(status)) => {
                    tracing::debug!(%status, "server not probed: it takes no request now");
                    Probing::Again
                }
                Err(ProbeError::Call(why)) => {
                    tracing::debug!(%why, "server not ready");
                    upstream.set_unless_ready(UpstreamState::Failing(reason(&why)));
                    Probing::Again
                }
            };
            let next = if upstream.is_ready() { Probing::Idle } else { next };
            upstream.probing.send_replace(next);
            if next != Probing::Again {
                return;
            }
        }
        tokio::time::sleep(backoff.after(since.elapsed())).await;
    }
}

/// Whether an error of the protocol says that headers and body do not agree.
pub(super) fn is_header_mismatch(message: &Message) -> bool {
    let error = message.error().and_then(|error| serde_json::from_slice::<serde_json::Value>(error).ok());
    let code = error.as_ref().and_then(|error| error.get("code")?.as_i64());
    code == Some(skep_mcp::answer::HEADER_MISMATCH)
}
