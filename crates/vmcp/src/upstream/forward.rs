//! Forwarding a request to the backend that it concerns, under the name that the backend knows.

use std::sync::Arc;

use skep_mcp::{Edit, Era, Id, Kind, Message, Raw, answer, splice};
use skep_upstream::{Call, CallError, Replies, SessionId};
use tracing::Instrument as _;

use super::observed::BackendRequest;
use super::session::{InFlight, Opened};
use super::{VirtualUpstream, answers};
use crate::aggregate::BackendName;
use crate::backend::Backend;

/// How many messages before a response may wait to be read.
const INTERIM: usize = 16;

/// A request in flight, which is over when this is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    virtual_server: Arc<VirtualUpstream>,
    session: SessionId,
    id: Id,
}

// === impl VirtualUpstream ===

impl VirtualUpstream {
    /// Forwards a request to a backend. `path` leads to the name in it, which the backend knows as `original`.
    pub(super) async fn forward_as(
        self: Arc<Self>,
        call: Call,
        backend: &BackendName,
        path: &[&str],
        original: &str,
    ) -> Result<Replies, CallError> {
        let Some(backend) = self.backends.get(backend) else {
            return answers::refuse(&call, answer::INTERNAL_ERROR, &format!("backend `{backend}` is gone"));
        };
        let renamed = splice::apply(&call.message, &[Edit::set(path, Raw::string(original))]);
        let message = renamed.map_err(|_malformed| CallError::NotSent)?;
        let id = call.message.id();
        match self.forward(Call { message, ..call }, &backend).await {
            Ok(replies) => Ok(replies),
            Err(error) => Err(of_backend(&backend, error, id.as_ref())),
        }
    }

    /// Forwards a request to a backend.
    pub(crate) async fn forward(self: Arc<Self>, call: Call, backend: &Arc<Backend>) -> Result<Replies, CallError> {
        let (session, id, era) = (call.session.clone(), call.message.id(), call.era);
        if let Some(session) = &session {
            self.open_at(session, backend)?;
        }
        let registered = match (&session, &id) {
            (Some(session), Some(id)) => Some(self.clone().register(session, id, InFlight::Backend(backend.clone()))),
            _ => None,
        };
        let mut call = Call { timeout: Some(backend.spec.timeout), ..call };
        let mut request = BackendRequest::begin(&self.instruments, backend, &mut call);
        let called = backend.upstream.clone().call(call).await;
        let Replies { interim, response } = called.inspect_err(|error| request.end(Err(error)))?;
        let interim = match (interim, session) {
            (Some(interim), Some(session)) => Some(self.clone().relay(interim, session, backend.clone())),
            (interim, _) => interim,
        };
        let (info, name) = (self.info.clone(), backend.clone());
        let response = response.then(move |response| {
            drop(registered);
            request.end(response.as_ref());
            drop(request);
            match response {
                Ok(response) if era == Era::Modern => Ok(answers::signed(response, &info)),
                Ok(response) => Ok(response),
                Err(error) => Err(of_backend(&name, error, id.as_ref())),
            }
        });
        Ok(Replies { interim, response })
    }

    /// Opens a session at a backend for a client that has one here, when it is first used.
    pub(super) fn open_at(&self, session: &SessionId, backend: &Arc<Backend>) -> Result<(), CallError> {
        let (new, level) = self
            .sessions
            .with(session, |mine| {
                let opened = mine.opened.get(backend.name());
                if opened.is_some_and(|opened| Arc::ptr_eq(&opened.backend, backend)) {
                    return (None, None);
                }
                mine.opened.insert(backend.name().clone(), Opened { backend: backend.clone(), listening: None });
                (Some(mine.initialize.clone()), mine.level.clone())
            })
            .ok_or(CallError::NotSent)?;
        let Some(initialize) = new else { return Ok(()) };
        // It is opened by its first request.
        backend.upstream.restore(session, initialize.body());
        self.follow(session, backend);
        if let Some(level) = level {
            self.send_level(session, backend, &level);
        }
        Ok(())
    }

    /// Notes a request in flight.
    pub(super) fn register(self: Arc<Self>, session: &SessionId, id: &Id, call: InFlight) -> Registered {
        self.sessions.with(session, |session| session.calls.insert(id.clone(), call));
        Registered { virtual_server: self, session: session.clone(), id: id.clone() }
    }

    /// The client cancelled a request.
    pub(super) async fn cancel(&self, session: &SessionId, message: &Message) -> Result<(), CallError> {
        let Some(id) = message.cancels() else { return Ok(()) };
        match self.sessions.with(session, |session| session.calls.remove(&id)).flatten() {
            Some(InFlight::Backend(backend)) => backend.upstream.send(Some(session), message).await,
            Some(InFlight::Task(task)) => {
                task.abort();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Forwards a notification of a client to all backends that it has a session at.
    pub(super) async fn notify_backends(&self, session: &SessionId, message: &Message) -> Result<(), CallError> {
        for backend in self.opened(session) {
            if let Err(error) = backend.upstream.send(Some(session), message).await {
                tracing::debug!(backend = &**backend.name(), %error, "notification not sent");
            }
        }
        Ok(())
    }

    /// The backends that a client has a session at.
    pub(super) fn opened(&self, session: &SessionId) -> Vec<Arc<Backend>> {
        let opened = self
            .sessions
            .with(session, |session| session.opened.values().map(|opened| opened.backend.clone()).collect());
        opened.unwrap_or_default()
    }

    /// Hands what comes before a response to the client, in its order.
    fn relay(
        self: Arc<Self>,
        mut interim: tokio::sync::mpsc::Receiver<bytes::Bytes>,
        session: SessionId,
        backend: Arc<Backend>,
    ) -> tokio::sync::mpsc::Receiver<bytes::Bytes> {
        let (sender, receiver) = tokio::sync::mpsc::channel(INTERIM);
        tokio::spawn(
            async move {
                while let Some(bytes) = interim.recv().await {
                    let Some(bytes) = self.for_client(&session, &backend, bytes).await else { continue };
                    if sender.send(bytes).await.is_err() {
                        return;
                    }
                }
            }
            .in_current_span(),
        );
        receiver
    }
}

/// An error of a backend says which one it is.
fn of_backend(backend: &Backend, error: CallError, _id: Option<&Id>) -> CallError {
    let name = &backend.spec.name;
    match error {
        CallError::Unavailable(why) => CallError::Unavailable(format!("backend `{name}`: {why}").into()),
        CallError::NoCredentials(why) => CallError::NoCredentials(format!("backend `{name}`: {why}").into()),
        error => error,
    }
}

// === impl Registered ===

impl Drop for Registered {
    fn drop(&mut self) {
        let Self { virtual_server, session, id } = self;
        // Dropped outside of the lock.
        let _ended = virtual_server.sessions.with(session, |session| session.calls.remove(id));
    }
}

/// Whether a message is a request of a backend, or says that one is cancelled.
pub(super) fn concerns_requests(message: &Message) -> bool {
    message.kind() == Kind::Request || message.method() == Some("notifications/cancelled")
}
