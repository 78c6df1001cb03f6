//! `subscriptions/listen` of 2026-07-28: one stream for changes of the lists and of single resources, whichever backends they are of.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use skep_mcp::list::List;
use skep_mcp::{Edit, Era, Id, Message, answer, splice};
use skep_upstream::{Call, CallError, ClientContext, InFlight, PendingResponse, Replies};
use skep_workload::backoff::Backoff;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::events::{as_shown, changed_lists};
use super::{VirtualUpstream, answers};
use crate::aggregate::BackendName;
use crate::backend::Backend;
use crate::catalogue::meta;

/// How many messages may wait for a client.
const QUEUE: usize = 100;
/// How many resources one subscription may name.
const RESOURCES: usize = 1000;
/// Changes that follow each other within this time are reported once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long the response to a task of ours is waited for beyond its deadline: it says itself that it took too long.
const LATE: Duration = Duration::from_secs(1);
/// How long is waited before a stream of a backend is opened again, at first.
const AGAIN: Duration = Duration::from_secs(1);
/// The member that says which subscription a message is of.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A request that a task of ours answers.
#[derive(Debug)]
pub(super) struct TaskCall {
    pub(super) task: AbortHandle,
    /// Until when it may take, if it has a deadline of its own: the client may be asked meanwhile, or steps may take long.
    pub(super) until: Option<Instant>,
}

/// What a client wants to know.
#[derive(Debug)]
struct Wanted {
    lists: Vec<(&'static str, &'static str)>,
    resources: BTreeMap<String, (Arc<Backend>, Box<str>)>,
}

/// A backend, and the resources of it that a client wants to know of.
type OfBackend = (Arc<Backend>, Vec<Box<str>>);

// === impl TaskCall ===

impl InFlight for TaskCall {
    fn cancel(&self) {
        self.task.abort();
    }

    fn is_sent(&self) -> bool {
        true
    }

    fn extended_deadline(&self, _timeout: Duration) -> Option<Instant> {
        self.until.map(|until| until + LATE).filter(|until| *until > Instant::now())
    }
}

// === impl VirtualUpstream ===

impl VirtualUpstream {
    /// Opens a stream of changes, which ends when the client closes it.
    pub(super) async fn subscribe(self: Arc<Self>, call: Call) -> Result<Replies, CallError> {
        let id = call.message.id().ok_or(CallError::NotSent)?;
        if !call.takes_interim {
            let text = "subscriptions/listen is answered by a stream: send `Accept: text/event-stream`";
            return answers::refuse(&call, answer::INVALID_REQUEST, text);
        }
        let wanted = match self.wanted(&call).await {
            Ok(wanted) => wanted,
            Err(problem) => return answers::refuse(&call, answer::INVALID_PARAMS, problem),
        };
        let (sender, interim) = mpsc::channel(QUEUE);
        let (outcome, response) = oneshot::channel();
        let _room = sender.try_send(acknowledged(&id, &wanted));
        let me = Arc::downgrade(&self);
        let task = tokio::spawn(
            async move {
                stream(me, call.client, id, wanted, sender).await;
                // The stream of the client ends with this.
                drop(outcome);
            }
            .in_current_span(),
        );
        let call = TaskCall { task: task.abort_handle(), until: None };
        Ok(Replies { interim: Some(interim), response: PendingResponse::new(response, Box::new(call)) })
    }

    /// What a client asks for, as far as there is something to report.
    async fn wanted(&self, call: &Call) -> Result<Wanted, &'static str> {
        let params = call.message.params().and_then(|params| serde_json::from_slice::<Value>(params).ok());
        let notifications = params.as_ref().and_then(|params| params.get("notifications")).and_then(Value::as_object);
        let notifications = notifications.ok_or("invalid subscriptions/listen params: missing notifications")?;
        let is_wanted = |name: &str| notifications.get(name).and_then(Value::as_bool).unwrap_or_default();
        let lists = [
            ("toolsListChanged", "notifications/tools/list_changed"),
            ("promptsListChanged", "notifications/prompts/list_changed"),
            ("resourcesListChanged", "notifications/resources/list_changed"),
        ];
        let lists = lists.into_iter().filter(|(name, _)| is_wanted(name)).collect();
        let uris = notifications.get("resourceSubscriptions").and_then(Value::as_array);
        let uris: Vec<&str> = uris.into_iter().flatten().filter_map(Value::as_str).collect();
        if uris.len() > RESOURCES {
            return Err("too many resourceSubscriptions: subscribe to fewer in one request");
        }
        let mut resources = BTreeMap::new();
        for uri in uris {
            let view = self.naming(&call.client, List::Resources, uri).await;
            let Some((backend, original)) = view.view.resource(uri) else { continue };
            let backend = self.backends.get(&backend).filter(|_| view.abilities_of(&backend).subscriptions);
            resources.extend(backend.map(|backend| (uri.to_owned(), (backend, original))));
        }
        Ok(Wanted { lists, resources })
    }
}

/// The first message of a stream: what will be reported.
fn acknowledged(id: &Id, wanted: &Wanted) -> Bytes {
    let mut notifications: Map<String, Value> =
        wanted.lists.iter().map(|(name, _)| ((*name).to_owned(), json!(true))).collect();
    if !wanted.resources.is_empty() {
        let uris: Vec<&String> = wanted.resources.keys().collect();
        notifications.insert("resourceSubscriptions".to_owned(), json!(uris));
    }
    let notifications = Value::Object(notifications);
    let id = id.raw();
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"{SUBSCRIPTION}":{id}}},"notifications":{notifications}}}}}"#
    )
    .into()
}

/// Reports changes until the client closes the stream.
async fn stream(me: Weak<VirtualUpstream>, client: ClientContext, id: Id, wanted: Wanted, sender: mpsc::Sender<Bytes>) {
    let mut by_backend: BTreeMap<Box<str>, OfBackend> = BTreeMap::new();
    for (backend, original) in wanted.resources.into_values() {
        let key = Box::from(&**backend.name());
        by_backend.entry(key).or_insert_with(|| (backend, Vec::new())).1.push(original);
    }
    let mut streams = tokio::task::JoinSet::new();
    for (backend, uris) in by_backend.into_values() {
        streams.spawn(updates(me.clone(), backend.name().clone(), uris, client.clone(), id.clone(), sender.clone()));
    }
    let methods: Vec<&str> = wanted.lists.iter().map(|(_, method)| *method).collect();
    tokio::select! {
        () = list_changes(me, &client, &id, &methods, &sender) => {}
        () = sender.closed() => {}
    }
    streams.shutdown().await;
}

/// Reports changes of the lists.
async fn list_changes(
    me: Weak<VirtualUpstream>,
    client: &ClientContext,
    id: &Id,
    methods: &[&str],
    sender: &mpsc::Sender<Bytes>,
) {
    let Some(mut changes) = me.upgrade().map(|me| me.backends.changes()) else { return };
    let (mut seen, mut streams) = (None, Vec::new());
    loop {
        {
            let Some(me) = me.upgrade() else { return };
            changes.borrow_and_update();
            let wanted = if methods.is_empty() { Vec::new() } else { me.viewer_streams(client) };
            drop(std::mem::replace(&mut streams, wanted));
            let now = me.view(client).await;
            let reported = seen.iter().flat_map(|seen| changed_lists(seen, &now));
            for method in reported.filter(|method| methods.contains(method)).collect::<Vec<_>>() {
                let id = id.raw();
                let message = format!(
                    r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{{"{SUBSCRIPTION}":{id}}}}}}}"#
                );
                if sender.send(message.into()).await.is_err() {
                    return;
                }
            }
            seen = Some(now);
        }
        if changes.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(DEBOUNCE).await;
    }
}

/// Reports changes of the resources of one backend until the client leaves. A stream that ends is opened again with backoff.
async fn updates(
    me: Weak<VirtualUpstream>,
    name: BackendName,
    uris: Vec<Box<str>>,
    client: ClientContext,
    id: Id,
    sender: mpsc::Sender<Bytes>,
) {
    let mut backoff = Backoff::new(AGAIN);
    loop {
        let since = Instant::now();
        // One that was removed may come back, and one that changed is another one now.
        let Some(backend) = me.upgrade().map(|me| me.backends.get(&name)) else { return };
        let backend = backend.map(|backend| Arc::downgrade(&backend)).unwrap_or_default();
        match updates_once(&me, &backend, &uris, &client, &id, &sender).await {
            Ok(()) => {}
            Err(Ended::Gone) => return,
            Err(Ended::Failed(error)) => tracing::debug!(backend = &*name, %error, "subscription failed at a backend"),
        }
        tokio::time::sleep(backoff.after(since.elapsed())).await;
    }
}

/// Why a stream of a backend is not opened again, or not at once.
enum Ended {
    /// The client left.
    Gone,
    /// The backend refused it, or cannot be reached.
    Failed(CallError),
}

/// Reports changes until the stream of the backend ends.
async fn updates_once(
    me: &Weak<VirtualUpstream>,
    backend: &Weak<Backend>,
    uris: &[Box<str>],
    client: &ClientContext,
    id: &Id,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), Ended> {
    let upstream = backend.upgrade().map(|backend| backend.upstream.clone());
    let upstream = upstream.ok_or(Ended::Failed(CallError::Disconnected))?;
    let own = uuid::Uuid::new_v4().to_string();
    let params = json!({ "_meta": meta(), "notifications": { "resourceSubscriptions": uris } });
    let request = json!({ "jsonrpc": "2.0", "id": own, "method": "subscriptions/listen", "params": params });
    let message = Message::parse(request.to_string().into()).map_err(|_never| Ended::Gone)?;
    let call = Call { takes_interim: true, client: client.clone(), ..Call::new(message, Era::Modern) };
    let replies = upstream.call(call).await.map_err(Ended::Failed)?;
    let Some(mut interim) = replies.interim else { return Ok(()) };
    let mut alive = tokio::time::interval(AGAIN);
    loop {
        let bytes = tokio::select! {
            bytes = interim.recv() => bytes,
            // A backend that was removed or changed is not kept by who listens to it.
            _ = alive.tick() => if backend.strong_count() == 0 { return Ok(()) } else { continue },
        };
        let Some(bytes) = bytes else { return Ok(()) };
        let Some(me) = me.upgrade() else { return Err(Ended::Gone) };
        let Some(backend) = backend.upgrade() else { return Ok(()) };
        let Ok(message) = Message::parse(bytes) else { continue };
        if message.method() != Some("notifications/resources/updated") {
            continue;
        }
        let shown = as_shown(&*me.view(client).await, &backend, message);
        let Ok(ours) = splice::apply(&shown, &[Edit::set(&["params", "_meta", SUBSCRIPTION], id)]) else { continue };
        if sender.send(ours.into_body()).await.is_err() {
            return Err(Ended::Gone);
        }
    }
}
