//! Whom it concerns what the server says unasked. A server on stdio does not say whom it means: it is taken to mean whose call it
//! works on. Where that can be more than one, it goes to no client.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use skep_mcp::{Edit, Message, answer, splice, value};
use tokio::time::Instant;

use super::call::PendingCall;
use super::capabilities::RelayError;
use super::log_level::level_of;
use super::server_requests::NO_OWNER;
use super::session::Session;
use super::upstream::{State, StdioUpstream, parameter};
use crate::listener::QueueError;
use crate::upstream::SessionId;
use crate::upstream::abbreviate;

/// How long a call that was left counts like one in flight: the server may be notified late, or not care.
const LATELY: Duration = Duration::from_mins(1);
/// How many calls that were left are remembered.
const LEFT: usize = 1000;

/// Where a message says which subscription it belongs to.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Calls that their clients left, and that the server may still work on. Many servers never answer them.
#[derive(Debug, Default)]
pub(super) struct AbandonedCalls {
    calls: BTreeMap<u64, AbandonedCall>,
    /// Whether there were more than are remembered.
    has_more: bool,
}

#[derive(Debug)]
pub(super) struct AbandonedCall {
    session: Option<SessionId>,
    can_be_asked: bool,
    /// How much of the server's log it asked for.
    pub(super) logs: Option<u8>,
    since: Instant,
}

/// The session that something concerns, as far as the calls in flight tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner<'a> {
    /// No call is in flight that it could be about.
    None,
    /// It can only be about calls of this session.
    Session(&'a SessionId),
    /// It may be about calls of several sessions, or of clients without one, who may be many or one.
    Unclear,
}

// === impl AbandonedCalls ===

impl AbandonedCalls {
    /// A client left.
    pub(super) fn add(&mut self, wire: u64, pending: &PendingCall) {
        if !pending.is_work() {
            return;
        }
        if self.calls.len() >= LEFT {
            self.calls.pop_first();
            self.has_more = true;
        }
        let (session, can_be_asked) = (pending.session.clone(), pending.can_be_asked());
        self.calls.insert(wire, AbandonedCall { session, can_be_asked, logs: pending.logs, since: Instant::now() });
    }

    /// The server does not work on it any more, or never did.
    pub(super) fn remove(&mut self, wire: u64) {
        self.calls.remove(&wire);
    }

    /// Who left calls just now.
    pub(super) fn lately(&self) -> impl Iterator<Item = &AbandonedCall> {
        self.calls.values().filter(|one| one.since.elapsed() < LATELY)
    }

    /// Who left calls that the server may have a question about.
    fn asked(&self) -> impl Iterator<Item = Option<&SessionId>> {
        let askers = self.calls.values().filter(|one| one.can_be_asked).map(|one| one.session.as_ref());
        askers.chain(self.has_more.then_some(None))
    }
}

// === impl StdioUpstream ===

impl StdioUpstream {
    /// Routes a notification of the server.
    pub(super) fn route_notification(&self, message: &Message) {
        let method = message.method().unwrap_or_default();
        if method == "notifications/tools/list_changed" {
            self.catalogue.forget();
        }
        if let Some(wire) = subscription(message) {
            return self.pass_to_subscriber(message, wire);
        }
        match method {
            "notifications/progress" => self.progress(message),
            "notifications/resources/updated" => {
                let uri = parameter(message, "uri").unwrap_or_default();
                self.with(|state| {
                    let who: BTreeSet<SessionId> =
                        state.subscriptions.get(&uri).into_iter().flat_map(|who| who.keys().cloned()).collect();
                    state.pass_to(message.body(), |session, _| who.contains(session));
                });
            }
            "notifications/message" => {
                let level = parameter(message, "level").map_or(7, |level| level_of(&level));
                self.with(|state| {
                    if state.pass_to_asker(message.body(), level) {
                        return;
                    }
                    // With no call in flight, here or elsewhere, it is for all sessions that asked for a log this detailed.
                    if !state.pass_about_work(message.body()) && !state.is_shared() {
                        state.pass_to(message.body(), |_, one| one.level.is_some_and(|wanted| level <= wanted));
                    }
                });
            }
            "notifications/cancelled" => self.withdraw(message),
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => {
                self.with(|state| state.pass_to(message.body(), |_, _| true));
            }
            // A task goes on when the call that began it is over: the owner of the call in flight need not be its owner, who asks for it anyway.
            "notifications/tasks/status" => {}
            _ => {
                self.with(|state| state.pass_about_work(message.body()));
            }
        }
    }

    /// A report on a request, for its client.
    fn progress(&self, message: &Message) {
        let wire = message.progress_token().and_then(|token| token.raw().parse::<u64>().ok());
        let found = self.with(|state| {
            let pending = state.waiting.get(&wire?)?;
            Some((pending.token.clone()?, pending.interim.clone()?))
        });
        let Some((token, interim)) = found else { return };
        let edit = Edit::set(&["params", "progressToken"], &token);
        if let Ok(restored) = splice::apply(message, &[edit])
            && interim.try_send(restored.into_body()).is_err()
        {
            tracing::debug!("dropping a progress notification: its reader is behind");
        }
    }

    /// A notification for the client whose request, which stays open, is the subscription.
    fn pass_to_subscriber(&self, message: &Message, wire: u64) {
        let found = self.with(|state| {
            let pending = state.waiting.get(&wire)?;
            Some((pending.id.clone(), pending.interim.clone()?))
        });
        let Some((id, interim)) = found else { return };
        let edit = Edit::set(&["params", "_meta", SUBSCRIPTION], &id);
        if let Ok(restored) = splice::apply(message, &[edit])
            && interim.try_send(restored.into_body()).is_err()
        {
            tracing::warn!("dropping a notification of a subscription: its reader is behind");
        }
    }
}

// === impl State ===

impl State {
    /// Whether a client here waits for a response that the server may have a question about.
    pub(super) fn is_at_work(&self) -> bool {
        self.waiting.values().any(PendingCall::can_be_asked)
    }

    /// Passes a question of the server to whom it concerns, and says who that is.
    pub(super) fn pass_question(&self, body: &Bytes, request: &Message) -> Result<SessionId, RelayError> {
        const DEAF: RelayError =
            RelayError { code: answer::METHOD_NOT_FOUND, why: "the client that it concerns does not listen" };
        let waiting = self.waiting.values().filter(|one| one.can_be_asked()).map(|one| one.session.as_ref());
        let left = self.left.lately().filter(|one| one.can_be_asked).map(|one| one.session.as_ref());
        let owner = match Owner::of(waiting.chain(left)) {
            Owner::None => Owner::of(self.left.asked()),
            owner => owner,
        };
        match owner {
            Owner::Session(session) => {
                let capabilities = self.sessions.get(session).and_then(|one| one.capabilities);
                match capabilities.and_then(|capabilities| capabilities.refuse(request)) {
                    Some(refused) => Err(refused),
                    None => self.pass_to_owner(body, session).then(|| session.clone()).ok_or(DEAF),
                }
            }
            // What their clients can do does not say whose call it is about: the one that cannot answer may be meant.
            Owner::Unclear => Err(NO_OWNER),
            Owner::None => {
                let session = self.only_capable(request).ok_or(NO_OWNER)?;
                self.pass_to_session(body, &session).then_some(session).ok_or(DEAF)
            }
        }
    }

    /// Forwards what may be about a call to the one client whose call it can only be about, and to no other. Says whether
    /// any call is in flight at all.
    pub(super) fn pass_about_work(&self, body: &Bytes) -> bool {
        let waiting = self.waiting.values().filter(|one| one.is_work()).map(|one| one.session.as_ref());
        let left = self.left.lately().map(|one| one.session.as_ref());
        let owner = Owner::of(waiting.chain(left));
        if !matches!(owner, Owner::Session(session) if self.pass_to_owner(body, session)) {
            tracing::debug!("dropping a notification of the server that belongs to no session");
        }
        owner != Owner::None
    }

    /// Passes a message to the open answer to the last call of a session, or to where it listens.
    pub(super) fn pass_to_owner(&self, body: &Bytes, session: &SessionId) -> bool {
        let theirs = self.waiting.iter().filter(|(_, one)| one.can_be_asked() && one.session.as_ref() == Some(session));
        let open = theirs.max_by_key(|(wire, _)| **wire).and_then(|(_, one)| one.interim.as_ref());
        let passed = open.is_some_and(|interim| interim.try_send(body.clone()).is_ok());
        passed || self.pass_to_session(body, session)
    }

    /// The only listening session whose client can answer such a request: for requests that are about no call.
    fn only_capable(&self, request: &Message) -> Option<SessionId> {
        let can = |one: &Session| one.capabilities.is_some_and(|capabilities| capabilities.covers(request));
        let listens = |one: &Session| one.listener.as_ref().is_some_and(|listener| !listener.is_closed());
        let mut able = self.sessions.iter().filter(|(_, one)| listens(one) && can(one));
        let (session, _) = able.next()?;
        able.next().is_none().then(|| session.clone())
    }

    pub(super) fn pass_to_session(&self, body: &Bytes, session: &SessionId) -> bool {
        let listener = self.sessions.get(session).and_then(|one| one.listener.as_ref());
        listener.is_some_and(|listener| listener.queue(body).is_ok())
    }

    pub(super) fn pass_to(&self, body: &Bytes, wanted: impl Fn(&SessionId, &Session) -> bool) {
        for (session, one) in self.sessions.iter().filter(|(session, one)| wanted(session, one)) {
            let Some(listener) = &one.listener else { continue };
            if let Err(error @ (QueueError::Full | QueueError::OverBudget)) = listener.queue(body) {
                tracing::warn!(session = %abbreviate(session), %error, "dropping a message for a listening session");
            }
        }
    }
}

// === impl Owner ===

impl<'a> Owner<'a> {
    /// The one owner of calls. Ends at the first call of another one: there may be thousands, and a server may log with each.
    fn of(calls: impl Iterator<Item = Option<&'a SessionId>>) -> Self {
        let mut owner = Self::None;
        for session in calls {
            owner = match (owner, session) {
                (Self::None, Some(session)) => Self::Session(session),
                (Self::Session(one), Some(session)) if one == session => owner,
                _ => return Self::Unclear,
            };
        }
        owner
    }
}

/// The request that a message says to belong to, by the id that we gave it.
fn subscription(message: &Message) -> Option<u64> {
    let id = value::find(message.meta()?, &[SUBSCRIPTION])?;
    id.trim_matches('"').parse().ok()
}
