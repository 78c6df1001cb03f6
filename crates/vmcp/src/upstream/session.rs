//! The sessions of legacy clients: what each of them opened at which backend, and what is in flight.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skep_mcp::{Id, Message};
use skep_upstream::{ClientContext, KeptClient, Listener, SessionId, Upstream, initialize};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::kept::Kept;
use crate::aggregate::BackendName;
use crate::backend::Backend;

/// How many requests of backends may wait for the client of one session. More are refused.
const ASKED: usize = 100;

/// How long a request of a backend waits at least for an answer of the client.
const UNANSWERED: Duration = Duration::from_mins(10);

/// The sessions of a virtual server.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<SessionId, Session>>);

/// The session of a client.
#[derive(Debug)]
pub(super) struct Session {
    /// What is kept of the client's `initialize`, by which sessions at backends are opened.
    pub(super) initialize: Message,
    /// The client, as its last request had it.
    pub(super) client: KeptClient,
    /// The backends that it has a session at.
    pub(super) opened: BTreeMap<BackendName, Opened>,
    /// Its requests in flight.
    pub(super) calls: HashMap<Id, InFlight>,
    /// Requests of backends that it has not answered, by the ids that it knows them by.
    pub(super) asked: HashMap<Id, Waiting>,
    /// Where goes what is sent to it outside of calls.
    pub(super) listener: Option<Listener>,
    /// What another replica must know of it as well.
    pub(super) kept: Kept,
    /// Held while that is written, so that what is older never replaces what is newer.
    pub(super) keeping: Arc<tokio::sync::Mutex<()>>,
    /// What the ids begin with that the client knows requests of backends by. It is random: the replica or process that had the session before
    /// counted as well, and a late answer to one of its requests must not answer another one here.
    prefix: Box<str>,
    last_id: u64,
    used: Instant,
}

/// A session at a backend. It ends when this is dropped with the session.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) backend: Arc<Backend>,
    /// What reads the events of it, while the client listens.
    pub(super) listening: Option<Task>,
}

/// A request of a client in flight.
#[derive(Debug)]
pub(super) enum InFlight {
    /// It was forwarded to a backend.
    Backend(Arc<Backend>),
    /// It is worked on here.
    Task(AbortHandle),
}

/// A request that waits for a client.
#[derive(Debug)]
pub(super) enum Asked {
    /// It is of a backend, which knows it by this id.
    Backend(Arc<Backend>, Id),
    /// It is of a step of a composite tool.
    Step(oneshot::Sender<Message>),
}

/// A request that waits for a client, until it answers, or until nothing waits for the answer.
#[derive(Debug)]
pub(super) struct Waiting {
    asked: Asked,
    /// The call of the client that it came with, and ends with.
    during: Option<Id>,
    /// By what its backend knows reports of its progress. The client knows them by the id.
    token: Option<Id>,
    since: Instant,
}

/// A task that ends with this.
#[derive(Debug)]
pub(super) struct Task(pub(super) AbortHandle);

// === impl Task ===

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// === impl Sessions ===

impl Sessions {
    pub(super) fn open(&self, id: &SessionId, initialize: &Message, client: &ClientContext) {
        let session = Session::new(initialize, client);
        let _replaced = self.all(|sessions| sessions.insert(id.clone(), session));
    }

    /// Takes over a session that another replica opened. One that is known stays as it is.
    pub(super) fn restore(&self, id: &SessionId, initialize: &Message) {
        self.all(|sessions| {
            let new = || Session::new(initialize, &ClientContext::default());
            sessions.entry(id.clone()).or_insert_with(new);
        });
    }

    /// Notes that a client uses its session, and what is known of it now.
    pub(super) fn touch(&self, id: &SessionId, client: &ClientContext) {
        self.with(id, |session| {
            session.used = Instant::now();
            session.client.update(client);
        });
    }

    /// Ends a session. Returns the backends that it has a session at.
    pub(super) fn close(&self, id: &SessionId) -> Vec<Arc<Backend>> {
        let closed = self.all(|sessions| sessions.remove(id));
        let Some(session) = closed else { return Vec::new() };
        for call in session.calls.values() {
            if let InFlight::Task(task) = call {
                task.abort();
            }
        }
        session.opened.values().map(|opened| opened.backend.clone()).collect()
    }

    /// Lets go of the sessions at backends that are none any more. Returns those to be closed: no call of the client is in flight there.
    pub(super) fn forget(&self, is_gone: impl Fn(&Arc<Backend>) -> bool) -> Vec<(SessionId, Arc<Backend>)> {
        let forgotten = self.all(|sessions| {
            let of_session = |(id, session): (&SessionId, &mut Session)| {
                let gone = session.forget(&is_gone);
                let gone = gone.into_iter().map(|opened| (id.clone(), session.uses(&opened.backend), opened));
                gone.collect::<Vec<_>>()
            };
            sessions.iter_mut().flat_map(of_session).collect::<Vec<_>>()
        });
        // Their tasks end here, outside of the lock.
        let unused = forgotten.into_iter().filter(|(_, is_used, _)| !is_used);
        unused.map(|(id, _, opened)| (id, opened.backend)).collect()
    }

    /// Those that were idle for so long: without a request in flight, and without a listener.
    pub(super) fn idle(&self, time: Duration) -> Vec<SessionId> {
        self.all(|sessions| {
            let idle = sessions.iter_mut().filter_map(|(id, session)| {
                if session.listener.as_ref().is_some_and(|listener| !listener.is_closed()) {
                    session.used = Instant::now();
                }
                (session.calls.is_empty() && session.used.elapsed() >= time).then(|| id.clone())
            });
            idle.collect()
        })
    }

    /// Closes idle sessions at a backend whose client has none here any more: they were opened while the client's own one ended.
    pub(super) fn close_unknown(&self, backend: &Arc<dyn Upstream>, time: Duration) {
        let idle = backend.idle_sessions(time);
        let unknown = self.all(|sessions| idle.into_iter().filter(|id| !sessions.contains_key(id)).collect::<Vec<_>>());
        for session in unknown {
            backend.clone().close(&session);
        }
    }

    /// Acts on a session. Nothing if there is none.
    pub(super) fn with<T>(&self, id: &str, act: impl FnOnce(&mut Session) -> T) -> Option<T> {
        self.all(|sessions| sessions.get_mut(id).map(act))
    }

    fn all<T>(&self, act: impl FnOnce(&mut HashMap<SessionId, Session>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Session ===

impl Session {
    fn new(initialize: &Message, client: &ClientContext) -> Self {
        Self {
            initialize: initialize::short(initialize),
            client: KeptClient::new(client),
            opened: BTreeMap::new(),
            calls: HashMap::new(),
            asked: HashMap::new(),
            listener: None,
            kept: Kept::default(),
            keeping: Arc::default(),
            prefix: uuid::Uuid::new_v4().simple().to_string().into(),
            last_id: 0,
            used: Instant::now(),
        }
    }

    /// Notes a request for the client, which came with a call of it or by itself, and the token of its progress. Returns the id that the client
    /// knows both by; nothing if too many wait already.
    pub(super) fn ask(&mut self, asked: Asked, during: Option<Id>, token: Option<Id>) -> Option<Id> {
        if self.asked.len() >= ASKED {
            self.asked.retain(|_, waiting| waiting.is_awaited());
        }
        if self.asked.len() >= ASKED {
            return None;
        }
        self.last_id += 1;
        let known = Id::string(&format!("{}-{}", self.prefix, self.last_id));
        self.asked.insert(known.clone(), Waiting { asked, during, token, since: Instant::now() });
        Some(known)
    }

    /// Whether the client says that it can ask its user.
    pub(super) fn can_elicit(&self) -> bool {
        let params = self.initialize.params().unwrap_or_default();
        skep_mcp::value::find(params, &["capabilities", "elicitation"]).is_some_and(|found| found.starts_with('{'))
    }

    /// Takes the request that a response of the client answers.
    pub(super) fn answered(&mut self, id: &Id) -> Option<Asked> {
        // Another spelling of the same text is the same id.
        let id = Id::string(&id.text()?);
        self.asked.remove(&id).map(|waiting| waiting.asked)
    }

    /// The backend whose request the client reports progress of, and by what the backend knows such reports.
    pub(super) fn progressing(&self, token: &Id) -> Option<(Arc<Backend>, Id)> {
        let waiting = self.asked.get(&Id::string(&token.text()?))?;
        let Asked::Backend(backend, _) = &waiting.asked else { return None };
        Some((backend.clone(), waiting.token.clone()?))
    }

    /// A call of the client is over, and with it what came with it.
    pub(super) fn end_call(&mut self, id: &Id) -> Option<InFlight> {
        self.asked.retain(|_, waiting| waiting.during.as_ref() != Some(id));
        self.calls.remove(id)
    }

    /// A backend is none any more: whether it is this one that the session is open at, so that it is closed.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&Arc<Backend>) -> bool) -> Vec<Opened> {
        let is_of_gone = |waiting: &Waiting| matches!(&waiting.asked, Asked::Backend(of, _) if is_gone(of));
        self.asked.retain(|_, waiting| !is_of_gone(waiting));
        let gone: Vec<BackendName> =
            self.opened.iter().filter(|(_, opened)| is_gone(&opened.backend)).map(|(name, _)| name.clone()).collect();
        gone.iter().filter_map(|name| self.opened.remove(name)).collect()
    }

    /// Whether a call is in flight at a backend.
    pub(super) fn uses(&self, backend: &Arc<Backend>) -> bool {
        self.calls.values().any(|call| matches!(call, InFlight::Backend(of) if Arc::ptr_eq(of, backend)))
    }

    /// The id by which the client knows a request of a backend.
    pub(super) fn known_as(&self, backend: &Arc<Backend>, id: &Id) -> Option<Id> {
        let is_it = |waiting: &Waiting| matches!(&waiting.asked, Asked::Backend(of, own) if Arc::ptr_eq(of, backend) && own == id);
        self.asked.iter().find(|(_, waiting)| is_it(waiting)).map(|(known, _)| known.clone())
    }

    /// The same for a request that the backend cancels, and that is not waited for any more.
    pub(super) fn cancelled(&mut self, backend: &Arc<Backend>, id: &Id) -> Option<Id> {
        let known = self.known_as(backend, id)?;
        self.answered(&known);
        Some(known)
    }
}

// === impl Waiting ===

impl Waiting {
    /// Whether someone still waits for the answer, as far as that is known.
    fn is_awaited(&self) -> bool {
        match &self.asked {
            Asked::Step(step) => !step.is_closed(),
            Asked::Backend(..) => self.since.elapsed() < UNANSWERED,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use serde_json::json;
    use skep_net::Budget;
    use skep_net::budget::Purpose;
    use skep_upstream::UpstreamState;
    use skep_upstream::memory::MemoryUpstream;

    use super::*;

    #[test]
    fn a_session_keeps_nothing_of_the_request_that_opened_it() {
        let budget = Budget::new(1 << 20);
        let info = json!({ "name": "c", "version": "1", "icons": "x".repeat(500 * 1024) });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": info });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params }).to_string();
        for body in [body, body_of(&json!({ "elicitation": {} }), 1500), body_of(&json!({ "elicitation": {} }), 2)] {
            let length = body.len();
            let held = budget.hold(body.into(), Purpose::Request).unwrap();
            let headers = HeaderMap::from_iter([(
                "x-padding".parse().unwrap(),
                HeaderValue::from_str(&"y".repeat(9000)).unwrap(),
            )]);
            let sessions = Sessions::default();
            sessions.open(&"s".into(), &Message::parse(held).unwrap(), &ClientContext::with_headers(headers));
            assert_eq!(budget.held(), 0, "{length}: the request counts only while it is in flight");
            let kept = sessions.with("s", |session| {
                assert!(session.can_elicit(), "{length}");
                session.initialize.body().len() + session.client.headers.values().map(HeaderValue::len).sum::<usize>()
            });
            assert!(kept.unwrap() <= 8 * 1024, "{length}");
        }
    }

    #[tokio::test]
    async fn a_session_at_a_backend_that_no_client_has_any_more_is_closed() {
        let (upstream, _calls) = MemoryUpstream::new(UpstreamState::Starting);
        let backend: Arc<dyn Upstream> = upstream;
        let sessions = Sessions::default();
        let initialize = Message::parse(body_of(&json!({}), 2).into()).unwrap();
        sessions.open(&"known".into(), &initialize, &ClientContext::default());
        for session in ["known", "left"] {
            backend.restore(&session.into(), initialize.body());
        }
        sessions.close_unknown(&backend, Duration::ZERO);
        assert_eq!(backend.idle_sessions(Duration::ZERO), [SessionId::from("known")]);
    }

    fn body_of(capabilities: &serde_json::Value, padding: usize) -> String {
        let params =
            json!({ "capabilities": capabilities, "clientInfo": { "name": "c", "version": "x".repeat(padding) } });
        json!({ "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params }).to_string()
    }
}
