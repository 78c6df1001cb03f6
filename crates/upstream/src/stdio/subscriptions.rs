//! What clients subscribe to: which resources, and how much of the log. The server knows the sum of it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use skep_mcp::{Era, Kind, Message, Raw, answer};
use skep_net::Budget;
use skep_net::budget::{OverBudgetError, Purpose, Reservation};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::log_level::{level_name, level_of};
use super::upstream::{State, StdioUpstream, parameter};
use crate::error::CallError;
use crate::replies::PendingResponse;
use crate::upstream::SessionId;

/// How many resources can be subscribed to at once. Two that share a turn wait for each other.
const TURNS: usize = 64;

/// How many resources one client can subscribe to, and how long the name of one may be, in bytes. All of it is kept.
pub(crate) const MOST: usize = 1000;
pub(crate) const LONGEST: usize = 8 * 1024;
/// What a subscription takes beside the URI, in bytes: its places in two maps, the name of its session, what counts it.
const SUBSCRIPTION: usize = 512;
/// Which part of the memory budget all subscriptions may have. One client may have half of that.
const PART: usize = 4;
/// How long the server may take for a request of the proxy's own.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Whether a request changes what a client is subscribed to.
pub(super) fn changes_session(message: &Message) -> bool {
    matches!(message.method(), Some("resources/subscribe" | "resources/unsubscribe" | "logging/setLevel"))
}

/// Whose turn it is to change a subscription at the server. One after the other, or a last unsubscribe could overtake a first
/// subscribe.
#[derive(Debug)]
pub(super) struct SubscriptionLocks([Mutex<()>; TURNS]);

/// The part of the memory budget that subscriptions may have. It stays for as long as they do, so it must leave room for calls.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(OnceLock<Budget>);

/// What counts a subscription, in the part for all of them and in the share of its client.
#[derive(Debug)]
pub(crate) struct Counted {
    _part: Reservation,
    _share: Reservation,
}

/// A subscription that the server has not agreed to. It ends with its value, also when the client goes.
struct TentativeSubscription<'a> {
    upstream: &'a StdioUpstream,
    uri: &'a str,
    session: &'a SessionId,
    is_agreed: bool,
}

// === impl SubscriptionLocks ===

impl Default for SubscriptionLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl SubscriptionLocks {
    async fn of(&self, uri: &str) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        uri.hash(&mut hasher);
        let turn = usize::try_from(hasher.finish() % TURNS as u64).ok()?;
        Some(self.0.get(turn)?.lock().await)
    }
}

// === impl Subscriptions ===

impl Subscriptions {
    /// Counts one more subscription of the client whose share this is.
    pub(crate) fn count(&self, uri: &str, share: &Budget) -> Result<Counted, OverBudgetError> {
        let part = self.0.get_or_init(|| Budget::new(share.limit() / PART));
        let part = share.client().map_or_else(|| part.clone(), |client| part.of_client(client));
        let bytes = uri.len() + SUBSCRIPTION;
        let of_part = part.reserve(bytes, Purpose::Response)?;
        Ok(Counted { _part: of_part, _share: share.reserve(bytes, Purpose::Response)? })
    }
}

// === impl TentativeSubscription ===

impl Drop for TentativeSubscription<'_> {
    fn drop(&mut self) {
        if !self.is_agreed {
            self.upstream.unsubscribe(self.uri, self.session);
        }
    }
}

// === impl StdioUpstream ===

impl StdioUpstream {
    /// The answer to a legacy request that changes what a client is subscribed to; nothing for any other request.
    pub(super) async fn change_session(
        self: &Arc<Self>,
        message: &Message,
        session: &SessionId,
        budget: &Budget,
    ) -> Option<Result<Message, CallError>> {
        let subscribes = match message.method()? {
            "resources/subscribe" => true,
            "resources/unsubscribe" => false,
            "logging/setLevel" => {
                let level = parameter(message, "level").map_or(7, |level| level_of(&level));
                if self.set_level(session, level).is_some() {
                    self.send_level();
                }
                return Some(empty_result(message));
            }
            _ => return None,
        };
        let uri = parameter(message, "uri").filter(|uri| !uri.is_empty())?;
        Some(self.subscription(message, &uri, session, subscribes.then_some(budget)).await)
    }

    /// The server is sent the first subscription to a resource, and the last unsubscription. `subscribes` is the
    /// budget that a new subscription counts in; `None` unsubscribes.
    async fn subscription(
        self: &Arc<Self>,
        message: &Message,
        uri: &str,
        session: &SessionId,
        subscribes: Option<&Budget>,
    ) -> Result<Message, CallError> {
        let _turn = self.turns.of(uri).await;
        let concerns_server = match subscribes {
            None => self.unsubscribe(uri, session),
            Some(_) if uri.len() > LONGEST || !self.has_room(uri, session) => {
                let text =
                    format!("a client can subscribe to {MOST} resources whose URIs have at most {LONGEST} bytes");
                return invalid(message, &text);
            }
            Some(_) if self.is_subscribed(uri, session) => false,
            Some(budget) => match self.subscriptions.count(uri, budget) {
                Ok(counted) => self.subscribe(uri, session, counted),
                Err(over) => {
                    tracing::warn!(%over, "refusing a subscription: over the memory for subscriptions");
                    let text = "no room for another subscription: the sessions of this client, or of all clients, have \
                                subscribed to as much as the proxy keeps; unsubscribe from others first";
                    return invalid(message, text);
                }
            },
        };
        if !concerns_server {
            return empty_result(message);
        }
        let mut tentative = TentativeSubscription { upstream: self, uri, session, is_agreed: subscribes.is_none() };
        let mut call = self.forward(message, Era::Legacy, Some(session.clone()), None).await?;
        let answer = call.response().await?;
        tentative.is_agreed |= answer.kind() == Kind::Response;
        Ok(answer)
    }

    /// Forgets a session that ended. The server is unsubscribed from resources that no other session subscribes to.
    pub(super) fn end(self: &Arc<Self>, session: &SessionId) {
        let (uris, level, unanswered) = self.with(|state| {
            let ended = state.sessions.remove(session);
            let unanswered = state.take_unanswered(session);
            // Most sessions have neither: they end without a search through all others, of which there may be many.
            let (has_subscriptions, has_level) =
                ended.map_or((false, false), |one| (one.subscriptions > 0, one.level.is_some()));
            let wanted = state.subscriptions.iter().filter(|(_, who)| has_subscriptions && who.contains_key(session));
            let uris: Vec<String> = wanted.map(|(uri, _)| uri.clone()).collect();
            // Without a session that set a level, the server may log as it did.
            (uris, if has_level { state.most().and_then(|_| state.new_level()) } else { None }, unanswered)
        });
        self.refuse_abandoned(unanswered);
        if level.is_some() {
            self.send_level();
        }
        for uri in uris {
            let (upstream, session) = (self.clone(), session.clone());
            tokio::spawn(async move {
                let _turn = upstream.turns.of(&uri).await;
                // Another session may have subscribed meanwhile.
                if upstream.unsubscribe(&uri, &session) {
                    let params = format!(r#"{{"uri":{}}}"#, Raw::string(&uri).as_str());
                    upstream.request_internally("resources/unsubscribe", &params, TIMEOUT).await;
                }
            });
        }
    }

    /// Whether a client may subscribe to one more resource.
    fn has_room(&self, uri: &str, session: &SessionId) -> bool {
        let has_room = |state: &mut State| state.sessions.get(session).is_none_or(|one| one.subscriptions < MOST);
        self.is_subscribed(uri, session) || self.with(has_room)
    }

    fn is_subscribed(&self, uri: &str, session: &SessionId) -> bool {
        self.with(|state| state.subscriptions.get(uri).is_some_and(|who| who.contains_key(session)))
    }

    /// Whether a client is the first that subscribes to a resource.
    fn subscribe(&self, uri: &str, session: &SessionId, counted: Counted) -> bool {
        self.with(|state| {
            let who = state.subscriptions.entry(uri.to_owned()).or_default();
            let is_new = who.insert(session.clone(), counted).is_none();
            let is_first = is_new && who.len() == 1;
            if is_new {
                state.known(session).subscriptions += 1;
            }
            is_first
        })
    }

    /// Whether a client was the last that was subscribed to a resource.
    fn unsubscribe(&self, uri: &str, session: &SessionId) -> bool {
        self.with(|state| {
            let Some(who) = state.subscriptions.get_mut(uri) else { return true };
            if who.remove(session).is_some()
                && let Some(one) = state.sessions.get_mut(session)
            {
                one.subscriptions = one.subscriptions.saturating_sub(1);
            }
            let last = who.is_empty();
            if last {
                state.subscriptions.remove(uri);
            }
            last
        })
    }

    /// The resources that sessions subscribe to.
    pub(super) fn subscribed(&self) -> Vec<String> {
        self.with(|state| state.subscriptions.keys().cloned().collect())
    }

    /// Remembers the log level of a session. Returns the level that the server must be sent, if it changes.
    fn set_level(&self, session: &SessionId, level: u8) -> Option<u8> {
        self.with(|state| {
            state.known(session).level = Some(level);
            state.new_level()
        })
    }

    /// The log level that was sent to the server.
    pub(super) fn level(&self) -> Option<u8> {
        self.with(|state| state.level)
    }

    /// Sends the log level to the server: one request at a time, and always the latest level. However often clients change it, no more
    /// than one request waits for the server.
    fn send_level(self: &Arc<Self>) {
        if self.with(|state| std::mem::replace(&mut state.is_sending_level, true)) {
            return;
        }
        let upstream = self.clone();
        tokio::spawn(async move {
            loop {
                let level = upstream.level();
                if let Some(level) = level {
                    let params = format!(r#"{{"level":"{}"}}"#, level_name(level));
                    let until = Instant::now() + TIMEOUT;
                    if let Some(mut call) = upstream.send_internally("logging/setLevel", &params, until).await {
                        let _whatever = tokio::time::timeout_at(until, call.response()).await;
                    }
                }
                let is_latest = |state: &mut State| {
                    state.is_sending_level = state.level != level;
                    !state.is_sending_level
                };
                if upstream.with(is_latest) {
                    return;
                }
            }
        });
    }

    /// Sends a request of our own whose response does not matter. It is on its way when this returns, unless that takes too long.
    pub(super) async fn request_internally(self: &Arc<Self>, method: &str, params: &str, timeout: Duration) {
        let until = Instant::now() + timeout;
        let Some(mut call) = self.send_internally(method, params, until).await else { return };
        tokio::spawn(async move {
            let _whatever = tokio::time::timeout_at(until, call.response()).await;
        });
    }

    /// The same, for a client that waits for the response. Nothing if the request could not be sent in time.
    async fn send_internally(self: &Arc<Self>, method: &str, params: &str, until: Instant) -> Option<PendingResponse> {
        let request = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"{method}","params":{params}}}"#);
        let message = Message::parse(request.into()).ok()?;
        let call = tokio::time::timeout_at(until, self.call_internally(&message)).await.ok().and_then(Result::ok);
        if call.is_none() {
            tracing::warn!(method, "dropping a request of the proxy's own: the server does not read");
        }
        call
    }
}

// === impl State ===

impl State {
    /// The most verbose level of all clients.
    fn most(&self) -> Option<u8> {
        self.sessions.values().filter_map(|session| session.level).max()
    }

    /// The level that must be sent to the server, if it differs from the last one.
    fn new_level(&mut self) -> Option<u8> {
        let most = self.most();
        let is_new = most != self.level;
        self.level = most;
        most.filter(|_| is_new)
    }
}

fn invalid(message: &Message, text: &str) -> Result<Message, CallError> {
    let refusal = answer::error(message.id().as_ref(), answer::INVALID_PARAMS, text, None);
    Message::parse(refusal).map_err(|_| CallError::NotSent)
}

fn empty_result(message: &Message) -> Result<Message, CallError> {
    let id = message.id().ok_or(CallError::NotSent)?;
    Message::parse(answer::empty_result(&id)).map_err(|_| CallError::NotSent)
}

#[cfg(test)]
mod tests;
