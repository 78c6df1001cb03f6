//! Messages that have no response: notifications, and a client's responses to requests of the server.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use skep_mcp::{Era, Kind, Message};

use super::client_session::ClientSession;
use super::handshake::accepted;
use super::{HttpUpstream, ServerRequest, protocol_headers};
use crate::error::CallError;
use crate::upstream::{ClientContext, SessionId};

/// How long the server may take to close a session.
const CLOSING: Duration = Duration::from_secs(5);

// === impl HttpUpstream ===

impl HttpUpstream {
    /// Forwards a message of a client that has no response.
    pub(super) async fn notify(&self, session: Option<&SessionId>, message: &Message) -> Result<(), CallError> {
        let session = match session {
            Some(session) => Some(self.session(session).ok_or(CallError::NotSent)?),
            None => None,
        };
        if let Some(session) = &session {
            session.touch(&ClientContext::default());
        }
        match (message.kind(), message.method()) {
            // It was sent with the handshake.
            (_, Some("notifications/initialized")) => return Ok(()),
            (_, Some("notifications/cancelled")) => {
                let cancelled = session.as_ref().zip(message.cancels()).and_then(|(session, id)| session.end(&id));
                if let Some(call) = cancelled {
                    // The call may be over.
                    let _over = call.cancel.send(());
                }
            }
            (Kind::Response | Kind::Error, _) => {
                let is_asked = session.as_ref().is_some_and(|session| session.answer(message.id().as_ref()));
                if !is_asked {
                    tracing::debug!("dropping a response to no request of the server");
                    return Ok(());
                }
            }
            _ => {}
        }
        let upstream = self.me.upgrade().ok_or(CallError::NotSent)?;
        upstream.post_message(session.as_ref(), message, None).await
    }

    /// Sends a message that has no response, once more if the server forgot the session.
    pub(super) async fn post_message(
        self: &Arc<Self>,
        session: Option<&Arc<ClientSession>>,
        message: &Message,
        own: Option<&ClientContext>,
    ) -> Result<(), CallError> {
        let mut link = match session {
            Some(session) => Some(session.link(self).await?),
            None => None,
        };
        let era = if session.is_some() { Era::Legacy } else { self.era() };
        for is_last in [false, true] {
            let client = self.client_of(session.map(|session| &**session), own);
            let mut request = self.request_of(Method::POST, link.as_deref())?;
            request.body = message.body().clone();
            request.is_message = true;
            request.headers = protocol_headers::of_message(client.headers, era, message, link.as_deref(), &[]);
            request.caller = client.caller;
            let response = self.send_message(&request).await?;
            let is_forgotten = response.status() == StatusCode::NOT_FOUND && !is_last;
            match (session, &link) {
                (Some(session), Some(forgotten)) if is_forgotten && message.method().is_some() => {
                    link = Some(session.relink(self, Some(forgotten)).await?);
                }
                _ => return accepted(response).await,
            }
        }
        Err(CallError::NotSent)
    }

    /// Sends a message that has no response to the endpoint that a stream named.
    pub(super) async fn post_to(
        &self,
        endpoint: &Uri,
        session: Option<&Arc<ClientSession>>,
        message: &Message,
    ) -> Result<(), CallError> {
        let client = self.client_of(session.map(|session| &**session), None);
        let mut request = ServerRequest::new(Method::POST, endpoint.clone());
        request.body = message.body().clone();
        request.is_message = true;
        request.headers = protocol_headers::of_message(client.headers, Era::Legacy, message, None, &[]);
        request.caller = client.caller;
        accepted(self.send_message(&request).await?).await
    }

    /// Closes a session of a client, here and at the server.
    pub async fn close_session(self: &Arc<Self>, session: &SessionId) {
        let Some(session) = self.with_sessions(|sessions| sessions.remove(session)) else { return };
        session.end_all();
        let _late = tokio::time::timeout(CLOSING, session.left()).await;
        let Some(link) = session.take_link().await.filter(|link| link.session.is_some()) else { return };
        let Ok(mut request) = self.request_of(Method::DELETE, Some(&link)) else { return };
        let client = self.client_of(Some(&session), None);
        request.headers = protocol_headers::of_session(client.headers, Some(&link));
        request.caller = client.caller;
        match tokio::time::timeout(CLOSING, self.send_with_credentials(&request)).await {
            Ok(Ok(response)) => tracing::debug!(status = %response.status(), "session closed at the server"),
            Ok(Err(error)) => tracing::debug!(%error, "session not closed at the server"),
            Err(_elapsed) => tracing::debug!("session not closed at the server: it does not answer"),
        }
    }
}
