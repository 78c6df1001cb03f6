//! Requests of backends to a client, such as elicitation: which ids and progress tokens they have on each side.

use std::sync::Arc;

use bytes::Bytes;
use skep_mcp::{Edit, Id, Kind, Message, answer, splice};
use skep_upstream::{CallError, SessionId};

use super::VirtualUpstream;
use super::forward::concerns_requests;
use super::session::{Asked, Session};
use crate::backend::Backend;

// === impl VirtualUpstream ===

impl VirtualUpstream {
    /// A message of a backend as the client of a session gets it, during a call of it or by itself. Nothing if it does not get it.
    pub(super) async fn for_client(
        &self,
        session: &SessionId,
        backend: &Arc<Backend>,
        during: Option<&Id>,
        bytes: Bytes,
    ) -> Option<Bytes> {
        // Most are notifications, and stay as they are.
        let message = Message::parse(bytes.clone()).ok()?;
        if !concerns_requests(&message) {
            return Some(bytes);
        }
        if message.kind() == Kind::Notification {
            let own = message.cancels()?;
            let known = self.sessions.with(session, |session| session.cancelled(backend, &own)).flatten()?;
            let edits = [Edit::set(&["params", "requestId"], &known)];
            return splice::apply(&message, &edits).ok().map(Message::into_body);
        }
        let own = message.id()?;
        let (asked, token) = (Asked::Backend(backend.clone(), own.clone()), message.progress_token());
        let ask = |session: &mut Session| session.ask(asked, during.cloned(), token.clone());
        if let Some(known) = self.sessions.with(session, ask).flatten() {
            let mut edits = vec![Edit::set(&["id"], &known)];
            // Two backends may choose the same token.
            edits.extend(token.is_some().then(|| Edit::set(&["params", "_meta", "progressToken"], &known)));
            return splice::apply(&message, &edits).ok().map(Message::into_body);
        }
        let text = "too many requests wait for the client";
        let refusal = answer::error(Some(&own), answer::INTERNAL_ERROR, text, None);
        if let Ok(refusal) = Message::parse(refusal) {
            let _lost = backend.upstream.send(Some(session), &refusal).await;
        }
        None
    }

    /// Forwards a report of the client's progress to the backend whose request it is about, and to no other.
    pub(super) async fn report_progress(&self, session: &SessionId, message: &Message) -> Result<(), CallError> {
        let token = message.progress_token();
        let found =
            token.and_then(|token| self.sessions.with(session, |session| session.progressing(&token)).flatten());
        let Some((backend, own)) = found else {
            tracing::debug!("dropping a report of progress of no request of a backend");
            return Ok(());
        };
        let renamed = splice::apply(message, &[Edit::set(&["params", "progressToken"], &own)]);
        let renamed = renamed.map_err(|_malformed| CallError::Malformed)?;
        backend.upstream.send(Some(session), &renamed).await
    }

    /// Takes the response of a client to the one that asked: a backend, or a step.
    pub(super) async fn answer_backend(&self, session: &SessionId, message: &Message) -> Result<(), CallError> {
        let asked = message.id().and_then(|id| self.sessions.with(session, |session| session.answered(&id)).flatten());
        match asked {
            Some(Asked::Backend(backend, own)) => {
                let renamed = splice::apply(message, &[Edit::set(&["id"], &own)]);
                let renamed = renamed.map_err(|_malformed| CallError::Malformed)?;
                backend.upstream.send(Some(session), &renamed).await
            }
            Some(Asked::Step(step)) => {
                // The step may have ended.
                let _ended = step.send(message.clone());
                Ok(())
            }
            None => {
                tracing::debug!("dropping a response to no request of a backend");
                Ok(())
            }
        }
    }
}
