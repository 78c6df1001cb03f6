//! Forwarding a request to the backend that it concerns, under the name that the backend knows.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use skep_mcp::{Edit, Era, Id, Kind, Message, Raw, answer, splice};
use skep_upstream::{Call, CallError, Replies, SessionId};

use super::observed::BackendRequest;
use super::relay::Relay;
use super::session::{InFlight, Opened};
use super::{VirtualUpstream, answers, uris};
use crate::aggregate::BackendName;
use crate::backend::Backend;
use crate::health::ObservedCall;
use crate::view::ClientView;

/// How long a backend may take to accept a notification.
const NOTIFY: Duration = Duration::from_secs(10);
/// Why a backend is not called that is not well.
pub(super) const UNHEALTHY: &str = "it failed its health checks, and is called again once one succeeds";

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
        view: &Arc<ClientView>,
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
            Ok(Replies { interim, response }) if view.view.renames(backend.name()) => {
                let view = view.clone();
                let shown = move |response| uris::shown(&view.view, backend.name(), response);
                Ok(Replies { interim, response: response.then(|response| response.map(shown)) })
            }
            Ok(replies) => Ok(replies),
            Err(error) => Err(of_backend(&backend, error, id.as_ref())),
        }
    }

    /// Forwards a request to a backend.
    pub(crate) async fn forward(self: Arc<Self>, call: Call, backend: &Arc<Backend>) -> Result<Replies, CallError> {
        let (session, id, era) = (call.session.clone(), call.message.id(), call.era);
        if !backend.health.is_routable() {
            return Err(CallError::Unavailable(UNHEALTHY.into()));
        }
        let Some(mut observed) = ObservedCall::begin(&self.backends, backend) else {
            let why = "its circuit breaker is open: it failed again and again, and is tried again later";
            return Err(CallError::Unavailable(why.into()));
        };
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
        let called = called.inspect_err(|error| {
            observed.end(Some(error));
            request.end(Err(error));
        });
        let called = called?;
        let (info, name) = (self.info.clone(), backend.clone());
        let Replies { interim, response } = match session {
            Some(session) => {
                let (during, times) = (id.clone(), observed.times().clone());
                Relay { upstream: self, session, during, backend: backend.clone(), times }.run(called)
            }
            None => called,
        };
        let response = response.then(move |response| {
            drop(registered);
            observed.end(response.as_ref().err());
            drop(observed);
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
                (Some(mine.initialize.clone()), mine.kept.level().map(str::to_owned))
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

    /// Forwards a notification of a client to all backends that it has a session at: at once, and none for longer than a short time.
    pub(super) async fn notify_backends(&self, session: &SessionId, message: &Message) -> Result<(), CallError> {
        let sent = self.opened(session).into_iter().map(|backend| async move {
            let sent = tokio::time::timeout(NOTIFY, backend.upstream.send(Some(session), message)).await;
            if let Err(error) = sent.unwrap_or(Err(CallError::Timeout)) {
                tracing::debug!(backend = &**backend.name(), %error, "notification not sent");
            }
        });
        join_all(sent).await;
        Ok(())
    }

    /// The backends that a client has a session at.
    pub(super) fn opened(&self, session: &SessionId) -> Vec<Arc<Backend>> {
        let opened = self
            .sessions
            .with(session, |session| session.opened.values().map(|opened| opened.backend.clone()).collect());
        opened.unwrap_or_default()
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
        let _ended = virtual_server.sessions.with(session, |session| session.end_call(id));
    }
}

/// Whether a message is a request of a backend, or says that one is cancelled.
pub(super) fn concerns_requests(message: &Message) -> bool {
    message.kind() == Kind::Request || message.method() == Some("notifications/cancelled")
}
