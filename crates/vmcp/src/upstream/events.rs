//! What a legacy client is sent outside of its calls: changes of the lists, and what backends send to its sessions there.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use skep_mcp::list::List;
use skep_mcp::{Edit, Era, Kind, Message, Raw, method, splice, value};
use skep_net::Budget;
use skep_upstream::{Call, CallError, Listener, Replies, SessionId, is_log_level};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::session::Task;
use super::{VirtualUpstream, answers};
use crate::backend::Backend;
use crate::offer::Viewer;
use crate::view::ClientView;

/// Changes that follow each other within this time are reported once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long a backend may take for a request of our own, such as for a log level.
const OWN: Duration = Duration::from_secs(10);

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
        let is_wanted = call.message.method() == Some("resources/subscribe");
        let session = call.session.clone();
        if let Some(session) = session.as_ref().filter(|_| !is_wanted) {
            self.forget_subscription(session, &uri).await;
        }
        let view = self.naming(&call.client, List::Resources, &uri).await;
        let Some((backend, original)) = view.view.resource(&uri) else {
            return answers::unknown_resource(&call, &uri);
        };
        if !view.abilities_of(&backend).subscriptions {
            // There is nothing to report: the backend never says that it changed.
            return answers::empty(&call);
        }
        let at = self.backends.get(&backend);
        if let (Some(session), Some(at), true) = (&session, &at, is_wanted) {
            self.note_subscription(session, &uri, at).await;
        }
        let me = self.me.clone();
        let forwarded = self.forward_as(call, &view, &backend, &["params", "uri"], &original).await;
        let refused = move |is_refused: bool| {
            if let (Some(me), Some(session), true) = (me.upgrade(), session, is_refused && is_wanted) {
                tokio::spawn(async move { me.forget_subscription(&session, &uri).await }.in_current_span());
            }
        };
        match forwarded {
            Ok(Replies { interim, response }) => {
                let response = response.then(move |response| {
                    refused(!response.as_ref().is_ok_and(|response| response.kind() == Kind::Response));
                    response
                });
                Ok(Replies { interim, response })
            }
            Err(error) => {
                refused(true);
                Err(error)
            }
        }
    }

    /// Sets the log level of a session, at all backends that it uses now or later.
    pub(super) async fn set_level(&self, call: &Call) -> Result<Replies, CallError> {
        let level = call.message.params().and_then(|params| value::find_text(params, &["level"]));
        let Some(level) = level.filter(|level| is_log_level(level)) else {
            let text =
                "`level` is not a log level: use debug, info, notice, warning, error, critical, alert or emergency";
            return answers::refuse(call, skep_mcp::answer::INVALID_PARAMS, text);
        };
        let Some(session) = &call.session else { return answers::empty(call) };
        self.note_level(session, &level).await;
        for backend in self.opened(session) {
            self.send_level(session, &backend, &level);
        }
        answers::empty(call)
    }

    /// Asks a backend for its log. Most have none, and say so.
    pub(super) fn send_level(&self, session: &SessionId, backend: &Arc<Backend>, level: &str) {
        let params = json!({ "level": level });
        let Some(sent) = self.send_own(session, backend, "logging/setLevel", &params) else { return };
        tokio::spawn(
            async move {
                if !sent.await {
                    tracing::debug!("log level not set at a backend");
                }
            }
            .in_current_span(),
        );
    }

    /// Sends a request of our own in a session at a backend, in the name of its client. Says whether the backend did as it was asked.
    pub(super) fn send_own(
        &self,
        session: &SessionId,
        backend: &Arc<Backend>,
        method: &str,
        params: &serde_json::Value,
    ) -> Option<impl Future<Output = bool> + Send + use<>> {
        let client = self.sessions.with(session, |mine| mine.client.clone()).unwrap_or_default();
        let id = uuid::Uuid::new_v4().to_string();
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let message = Message::parse(request.to_string().into()).ok()?;
        let call = Call { session: Some(session.clone()), client, ..Call::new(message, Era::Legacy) };
        let upstream = backend.upstream.clone();
        Some(async move {
            let sent = async { upstream.call(call).await?.response.response().await };
            let responded = tokio::time::timeout(OWN, sent).await.unwrap_or(Err(CallError::Timeout));
            responded.is_ok_and(|response| response.kind() == Kind::Response)
        })
    }
}

/// Reports changes of the lists to a session, as long as it listens.
async fn report_changes(me: Weak<VirtualUpstream>, session: SessionId, listener: Listener) {
    let Some(mut changes) = me.upgrade().map(|me| me.backends.changes()) else { return };
    let mut seen: Option<Arc<ClientView>> = None;
    let mut streams = Vec::new();
    loop {
        {
            let Some(me) = me.upgrade() else { return };
            let Some(client) = me.sessions.with(&session, |mine| mine.client.clone()) else { return };
            changes.borrow_and_update();
            drop(std::mem::replace(&mut streams, me.viewer_streams(&client)));
            let now = me.view(&client).await;
            me.resubscribe(&session, &now);
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
    loop {
        // Without the client, the stream of the backend is of no use, and is closed with this.
        let bytes = tokio::select! {
            bytes = events.recv() => bytes,
            () = listener.closed() => return,
        };
        let Some(bytes) = bytes else { return };
        let (Some(me), Some(backend)) = (me.upgrade(), backend.upgrade()) else { return };
        let Ok(message) = Message::parse(bytes) else { continue };
        let client = me.sessions.with(&session, |mine| mine.client.clone()).unwrap_or_default();
        // The lists of clients are those of all backends together, and reported by us.
        if message.method().is_some_and(|method| method.ends_with("/list_changed")) {
            match Viewer::of(&client, backend.spec.strategy.is_of_client()) {
                viewer @ Viewer::Client(_) if backend.spec.strategy.is_of_client() => {
                    backend.offers.expire_and_refresh_for(&backend, viewer, &client);
                }
                _ => backend.offers.expire_and_refresh(&backend),
            }
            continue;
        }
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
