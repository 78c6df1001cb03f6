//! The stream of a session over HTTP+SSE: the server names the endpoint for messages on it, and all responses come on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use http::{Method, Uri};
use skep_mcp::{Era, Kind, Message};
use skep_net::Budget;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;
use url::Url;

use super::client_session::{ClientSession, Link, PendingCall, Task};
use super::handshake::{accepted, version};
use super::listen::Source;
use super::messages::{Messages, is_events};
use super::{HttpUpstream, protocol_headers};
use crate::error::CallError;
use crate::replies::INTERIM;

/// The stream of a session.
#[derive(Debug)]
pub(super) struct SseStream {
    /// Where messages go.
    pub(super) endpoint: Uri,
    is_open: Arc<AtomicBool>,
    /// Reads the stream. Ends with the session.
    _reading: Task,
}

// === impl SseStream ===

impl SseStream {
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Opens the stream of a session, and initializes the server by it.
    pub(super) async fn open_stream(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
    ) -> Result<(Message, Option<Link>), CallError> {
        let mut request = self.request_of(Method::GET, None)?;
        let client = self.client_of(Some(session), None);
        request.headers = protocol_headers::of_stream(client.headers, None);
        request.caller = client.caller;
        let stream_uri = request.uri.clone();
        let response = self.send_message(&request).await?;
        if !response.status().is_success() {
            return Err(CallError::Rejected(response.status()));
        }
        if !is_events(response.headers()) {
            return Err(CallError::Malformed);
        }
        let mut messages = Messages::of(response, &Budget::default());
        let endpoint = endpoint(&mut messages, &stream_uri).await?;
        let is_open = Arc::new(AtomicBool::new(true));
        let (weak, open) = (Arc::downgrade(session), is_open.clone());
        let upstream = Arc::downgrade(self);
        let reading = tokio::spawn(read(upstream, weak, messages, endpoint.clone(), open).in_current_span());
        let stream = SseStream { endpoint, is_open, _reading: Task(reading.abort_handle()) };
        let mut link = Link { session: None, version: None, pod: None, stream: Some(stream) };
        let initialized = self.initialize_on(session, &link).await?;
        if initialized.kind() == Kind::Error {
            return Ok((initialized, None));
        }
        link.version = version(&initialized);
        self.send_initialized(session, &link).await?;
        Ok((initialized, Some(link)))
    }

    /// Sends `initialize`, and waits for its response on the stream.
    async fn initialize_on(&self, session: &ClientSession, link: &Link) -> Result<Message, CallError> {
        let id = session.initialize().id().ok_or(CallError::NotSent)?;
        let (sender, mut messages) = mpsc::channel(INTERIM);
        let (cancel, _never) = oneshot::channel();
        session.begin(id.clone(), PendingCall { cancel, token: None, messages: sender });
        let mut request = self.request_of(Method::POST, Some(link))?;
        request.body = session.initialize().body().clone();
        request.is_message = true;
        let client = self.client_of(Some(session), None);
        request.headers =
            protocol_headers::of_message(client.headers, Era::Legacy, &session.initialize(), Some(link), &[]);
        request.caller = client.caller;
        let initialized = async {
            accepted(self.send_message(&request).await?).await?;
            loop {
                let message = messages.recv().await.ok_or(CallError::Disconnected)?;
                if message.method().is_none() {
                    return Ok(message);
                }
            }
        };
        let initialized = initialized.await;
        session.end(&id);
        initialized
    }
}

/// The endpoint that a stream names. It must be at the host that the stream is of: messages carry credentials.
async fn endpoint(messages: &mut Messages, stream: &Uri) -> Result<Uri, CallError> {
    loop {
        let event = messages.next_event().await?.ok_or(CallError::Disconnected)?;
        let Some(data) = event.data.filter(|_| event.name.as_deref() == Some(b"endpoint")) else { continue };
        let base = Url::parse(&stream.to_string()).map_err(|_invalid| CallError::Malformed)?;
        let named = std::str::from_utf8(&data).ok().and_then(|named| base.join(named.trim()).ok());
        let named = named.filter(|named| named.origin() == base.origin()).ok_or(CallError::Malformed)?;
        return named.as_str().parse().map_err(|_invalid| CallError::Malformed);
    }
}

/// Reads the stream of a session until it ends, and hands each message to what it belongs to.
async fn read(
    upstream: Weak<HttpUpstream>,
    session: Weak<ClientSession>,
    mut messages: Messages,
    endpoint: Uri,
    is_open: Arc<AtomicBool>,
) {
    loop {
        let message = match messages.next().await {
            Ok(Some(message)) => message,
            Err(CallError::Malformed) => {
                tracing::warn!("skipping malformed message of the server");
                continue;
            }
            Ok(None) | Err(_) => break,
        };
        let (Some(upstream), Some(session)) = (upstream.upgrade(), session.upgrade()) else { return };
        // A ping is about the stream, and no client answers it.
        let is_ping = message.method() == Some("ping");
        match session.owner(&message).filter(|_| !is_ping) {
            Some(call) => {
                // The call may be over.
                let _over = call.send(message).await;
            }
            None => upstream.deliver(Some(&session), message, Source::Stream(&endpoint), None).await,
        }
    }
    is_open.store(false, Ordering::Release);
    if let Some(session) = session.upgrade() {
        session.end_all();
    }
}
