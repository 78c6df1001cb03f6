//! What the server sends outside of calls: the listening stream of a session, and where its messages go.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, Uri};
use skep_mcp::headers::LAST_EVENT_ID;
use skep_mcp::{Kind, Message, answer};
use skep_net::Budget;
use skep_workload::backoff::Backoff;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::client_session::{ClientSession, Task};
use super::messages::{Messages, is_events};
use super::{HttpUpstream, protocol_headers};
use crate::error::CallError;
use crate::listener::Listener;
use crate::upstream::{ClientContext, SessionId};

/// How long is waited before a listening stream that ended is opened again, at first.
const RECONNECT: Duration = Duration::from_secs(1);
/// The longest such time that a server may ask for.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// What a message of the server came by, which says where the proxy's own response to it goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// The stream of a call, with what takes messages before its response.
    Call(Option<&'a mpsc::Sender<Bytes>>),
    /// The listening stream of a session.
    Listener,
    /// The stream of a session over HTTP+SSE, whose endpoint this is. It answers there and not by the session, which waits for this very stream
    /// while it is opened.
    Stream(&'a Uri),
}

/// How a listening stream ended.
enum Ended {
    /// It may be opened again, after what the server asked for.
    Broken(Option<Duration>),
    /// The server has none, or the session is over.
    Final,
}

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Begins to listen for a session. An earlier receiver of the session gets nothing more.
    pub(super) fn listen(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes> {
        let (listener, receiver) = Listener::new(budget);
        if let Some(session) = self.session(session) {
            let listening = (!self.is_sse()).then(|| {
                let task = listening(self.me.clone(), Arc::downgrade(&session), listener.clone());
                Task(tokio::spawn(task.in_current_span()).abort_handle())
            });
            session.listen(listener, listening);
        }
        receiver
    }

    /// Hands a message of the server that is no response to the client: on the stream of the call that it came by, or on the session's
    /// listening stream. A request that no client can answer is refused. `client` is that of the call, which
    /// its session may not know of yet.
    pub(super) async fn deliver(
        self: &Arc<Self>,
        session: Option<&Arc<ClientSession>>,
        message: Message,
        source: Source<'_>,
        client: Option<&ClientContext>,
    ) {
        let (kind, id) = (message.kind(), message.id());
        match (kind, message.method()) {
            (Kind::Response | Kind::Error, _) => {
                tracing::debug!("dropping a response to no call in flight");
                return;
            }
            (Kind::Request, Some("ping")) => {
                let pong = id.as_ref().map(answer::empty_result);
                return self.respond(session, pong, source, client).await;
            }
            (_, Some("notifications/tools/list_changed")) => self.catalogue.forget(),
            _ => {}
        }
        let listener = session.and_then(|session| session.listener());
        let is_asked = |id| session.is_some_and(|session| session.ask(id));
        let is_taken = kind != Kind::Request || id.clone().is_some_and(is_asked);
        let interim = if let Source::Call(interim) = source { interim } else { None };
        let is_sent = match (interim, listener) {
            _ if !is_taken => false,
            // The call has a stream of its own, so the server waits.
            (Some(interim), _) => interim.send(message.body().clone()).await.is_ok(),
            // Others share the stream with the listener, and do not wait for it.
            (None, Some(listener)) => match listener.queue(message.body()) {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(%error, "dropping a message for a listening session");
                    false
                }
            },
            (None, None) => false,
        };
        if is_sent {
            return;
        }
        if kind == Kind::Notification {
            tracing::debug!("dropping a notification: no client takes it");
        } else {
            let text = format!("{}: no client takes requests of the server", message.method().unwrap_or_default());
            let refusal = answer::error(id.as_ref(), answer::METHOD_NOT_FOUND, &text, None);
            self.respond(session, Some(refusal), source, client).await;
        }
    }

    /// Sends the proxy's own response to a request of the server.
    async fn respond(
        self: &Arc<Self>,
        session: Option<&Arc<ClientSession>>,
        response: Option<Bytes>,
        source: Source<'_>,
        client: Option<&ClientContext>,
    ) {
        let Some(Ok(response)) = response.map(Message::parse) else { return };
        let sent = match source {
            Source::Stream(endpoint) => self.post_to(endpoint, session, &response).await,
            Source::Call(_) | Source::Listener => self.post_message(session, &response, client).await,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "response to a request of the server not sent");
        }
    }

    /// Reads a listening stream to its end.
    async fn listen_once(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        last_event: &mut Option<HeaderValue>,
    ) -> Result<Ended, CallError> {
        let link = session.link(self).await?;
        let mut request = self.request_of(Method::GET, Some(&link))?;
        let client = self.client_of(Some(session), None);
        request.headers = protocol_headers::of_stream(client.headers, Some(&link));
        request.caller = client.caller;
        request.headers.extend(last_event.clone().map(|last| (LAST_EVENT_ID, last)));
        let response = self.send_message(&request).await?;
        match response.status() {
            StatusCode::NOT_FOUND if link.session.is_some() => {
                session.relink(self, Some(&link)).await?;
                return Ok(Ended::Broken(None));
            }
            status if status.is_server_error() => return Ok(Ended::Broken(None)),
            status if !status.is_success() || !is_events(response.headers()) => return Ok(Ended::Final),
            _ => {}
        }
        let mut messages = Messages::of(response, &Budget::default());
        loop {
            let message = messages.next().await;
            last_event.clone_from(&messages.last_event);
            match message {
                Ok(Some(message)) => self.deliver(Some(session), message, Source::Listener, None).await,
                Err(CallError::Malformed) => tracing::warn!("skipping malformed message of the server"),
                Ok(None) | Err(_) => return Ok(Ended::Broken(messages.retry)),
            }
        }
    }
}

/// Keeps a listening stream open until its listener is gone. It is resumed after the last event that came.
async fn listening(upstream: Weak<HttpUpstream>, session: Weak<ClientSession>, listener: Listener) {
    let (mut backoff, mut last_event) = (Backoff::new(RECONNECT), None);
    loop {
        let since = Instant::now();
        let ended = {
            let (Some(upstream), Some(session)) = (upstream.upgrade(), session.upgrade()) else { return };
            tokio::select! {
                ended = upstream.listen_once(&session, &mut last_event) => ended,
                () = listener.closed() => return,
            }
        };
        let retry = match ended {
            Ok(Ended::Final) => return,
            Ok(Ended::Broken(retry)) => retry.map(|retry| retry.min(LONGEST_RETRY)),
            Err(_unavailable) => None,
        };
        let delay = backoff.after(since.elapsed());
        tokio::select! {
            () = tokio::time::sleep(retry.unwrap_or(delay)) => {}
            () = listener.closed() => return,
        }
    }
}
