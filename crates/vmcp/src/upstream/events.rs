//! What a legacy client is sent outside of its calls: changes of the lists, and what backends send to its sessions there.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use skep_mcp::list::List;
use skep_mcp::{Edit, Era, Message, Raw, method, splice, value};
use skep_net::Budget;
use skep_upstream::{Call, CallError, Listener, Replies, SessionId};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::session::Task;
use super::{VirtualUpstream, answers};
use crate::backend::Backend;
use crate::view::ClientView;

/// Changes that follow each other within this time are reported once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long a backend may take to accept a log level.
const LEVEL: Duration = Duration::from_secs(10);

// === impl VirtualUpstream ===

impl VirtualUpstream {
    /// Begins to listen for a session. An earlier receiver of the session gets nothing more.
    pub(super) fn listen(&self, session: &SessionId, budget: Budget) -> mpsc::Receiver<Bytes> {
        let (listener, receiver) = Listener::new(budget);
        let is_there = self.sessions.with(session, |mine| mine.listener = Some(listener.clone())).is_some();
        if is_there {
            for backend in self.opened(session) {
                self.follow(session, &backend);
            }
            tokio::spawn(report_changes(self.me.clone(), session.clone(), listener).in_current_span());
        }
        receiver
    }

    /// Hands what a backend sends to a session outside of calls to the client, if that listens.
    pub(super) fn follow(&self, session: &SessionId, backend: &Arc<Backend>) {
        let Some(listener) = self.sessions.with(session, |mine| mine.listener.clone()).flatten() else { return };
        let events = backend.upstream.events(session, listener.budget().clone());
        let task = deliver(self.me.clone(), session.clone(), Arc::downgrade(backend), events, listener);
        let task = Task(tokio::spawn(task.in_current_span()).abort_handle());
        // Dropped outside of the lock.
        let _replaced = self.sessions.with(session, |mine| {
            let opened = mine.opened.get_mut(backend.name())?;
            opened.listening.replace(task)
        });
    }

    /// Subscribes a legacy client to a resource, or ends that.
    pub(super) async fn change_subscription(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let uri = method::resource(&call.message).unwrap_or_default().into_owned();
        let view = self.naming(&call.client, List::Resources, &uri).await;
        let Some((backend, original)) = view.view.resource(&uri) else {
            return answers::unknown_resource(&call, &uri);
        };
        if !view.abilities_of(&backend).subscriptions {
            // There is nothing to report: the backend never says that it changed.
            return answers::empty(&call);
        }
        self.forward_as(call, &view, &backend, &["params", "uri"], &original).await
    }

    /// Sets the log level of a session, at all backends that it uses now or later.
    pub(super) fn set_level(&self, call: &Call) -> Result<Replies, CallError> {
        let Some(session) = &call.session else { return answers::empty(call) };
        let level = call.message.params().and_then(|params| value::find_text(params, &["level"]));
        let Some(level) = level else {
            return answers::refuse(call, skep_mcp::answer::INVALID_PARAMS, "`level` is missing; name a log level");
        };
        self.sessions.with(session, |mine| mine.level = Some(level.clone().into_owned()));
        for backend in self.opened(session) {
            self.send_level(session, &backend, &level);
        }
        answers::empty(call)
    }

    /// Asks a backend for its log. Most have none, and say so.
    pub(super) fn send_level(&self, session: &SessionId, backend: &Arc<Backend>, level: &str) {
        let client = self.sessions.with(session, |mine| mine.client.clone()).unwrap_or_default();
        let id = format!("level-{}", uuid::Uuid::new_v4());
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "logging/setLevel", "params": { "level": level } });
        let Ok(message) = Message::parse(request.to_string().into()) else { return };
        let call = Call { session: Some(session.clone()), client, ..Call::new(message, Era::Legacy) };
        let upstream = backend.upstream.clone();
        tokio::spawn(
            async move {
                let sent = async { upstream.call(call).await?.response.response().await };
                if let Ok(Err(error)) = tokio::time::timeout(LEVEL, sent).await {
                    tracing::debug!(%error, "log level not set at a backend");
                }
            }
            .in_current_span(),
        );
    }
}

/// Reports changes of the lists to a session, as long as it listens.
async fn report_changes(me: Weak<VirtualUpstream>, session: SessionId, listener: Listener) {
    let Some(mut changes) = me.upgrade().map(|me| me.backends.changes()) else { return };
    let mut seen: Option<Arc<ClientView>> = None;
    loop {
        {
            let Some(me) = me.upgrade() else { return };
            let Some(client) = me.sessions.with(&session, |mine| mine.client.clone()) else { return };
            changes.borrow_and_update();
            let now = me.view(&client).await;
            for method in seen.iter().flat_map(|seen| changed_lists(seen, &now)) {
                let message = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
                if let Err(error) = listener.queue(&message.into()) {
                    tracing::warn!(%error, "dropping a report of a changed list");
                }
            }
            seen = Some(now);
        }
        tokio::select! {
            outcome = changes.changed() => if outcome.is_err() {
                return;
            },
            () = listener.closed() => return,
        }
        tokio::time::sleep(DEBOUNCE).await;
    }
}

/// The notifications that say which lists are others now.
pub(super) fn changed_lists(before: &Arc<ClientView>, now: &Arc<ClientView>) -> Vec<&'static str> {
    if Arc::ptr_eq(before, now) {
        return Vec::new();
    }
    let differ = |list: List| before.pages.list(list) != now.pages.list(list);
    let lists = [
        ("notifications/tools/list_changed", differ(List::Tools)),
        ("notifications/prompts/list_changed", differ(List::Prompts)),
        ("notifications/resources/list_changed", differ(List::Resources) || differ(List::ResourceTemplates)),
    ];
    lists.into_iter().filter(|(_, differs)| *differs).map(|(method, _)| method).collect()
}

/// Hands the events of a session at a backend to its client.
async fn deliver(
    me: Weak<VirtualUpstream>,
    session: SessionId,
    backend: Weak<Backend>,
    mut events: mpsc::Receiver<Bytes>,
    listener: Listener,
) {
    while let Some(bytes) = events.recv().await {
        let (Some(me), Some(backend)) = (me.upgrade(), backend.upgrade()) else { return };
        let Ok(message) = Message::parse(bytes) else { continue };
        // The lists of clients are those of all backends together, and reported by us.
        if message.method().is_some_and(|method| method.ends_with("/list_changed")) {
            backend.offers.expire_and_refresh(&backend);
            continue;
        }
        let client = me.sessions.with(&session, |mine| mine.client.clone()).unwrap_or_default();
        let message = as_shown(&*me.view(&client).await, &backend, message);
        let Some(bytes) = me.for_client(&session, &backend, None, message.into_body()).await else { continue };
        if let Err(error) = listener.queue(&bytes) {
            tracing::warn!(%error, "dropping a message for a listening session");
        }
    }
}

/// A report about a resource, under the URI that clients know.
pub(super) fn as_shown(view: &ClientView, backend: &Backend, message: Message) -> Message {
    if message.method() != Some("notifications/resources/updated") {
        return message;
    }
    let uri = message.params().and_then(|params| value::find_text(params, &["uri"])).map(std::borrow::Cow::into_owned);
    let shown = uri.and_then(|uri| view.view.shown_uri(backend.name(), &uri));
    let renamed = shown.map(|shown| splice::apply(&message, &[Edit::set(&["params", "uri"], Raw::string(&shown))]));
    renamed.and_then(Result::ok).unwrap_or(message)
}
