//! The backends of a virtual server, which come, change and go while it serves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::json;
use skep_mcp::{Era, Message};
use skep_upstream::{Call, CallError, ClientContext, Replies};
use skep_workload::backoff::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::aggregate::BackendName;
use crate::backend::{Backend, BackendSpec};
use crate::catalogue::meta;
use crate::health::{MonitorSettings, monitor};
use crate::offer::Viewer;

/// How long is waited before the stream of changes of a backend is opened again, at first.
const AGAIN: Duration = Duration::from_secs(1);

/// The backends by their names.
pub type BackendSet = Arc<BTreeMap<BackendName, Arc<Backend>>>;

/// The backends of a virtual server.
#[derive(Debug)]
pub struct Backends {
    set: watch::Sender<BackendSet>,
    /// Whether one of them is called with the credentials of clients.
    has_of_client: AtomicBool,
    /// Counts changes: of which backends there are, what they offer, and how they are. Each is counted after it happened.
    changes: Arc<watch::Sender<u64>>,
    monitor: Option<MonitorSettings>,
}

/// A backend that cannot be served, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub name: BackendName,
    /// Why.
    pub reason: String,
}

// === impl Backends ===

impl Backends {
    /// None yet. They are checked if there are settings for that.
    pub fn new(monitor: Option<MonitorSettings>) -> Arc<Self> {
        Arc::new(Self {
            set: watch::Sender::new(BackendSet::default()),
            has_of_client: AtomicBool::new(false),
            changes: Arc::new(watch::Sender::new(0)),
            monitor,
        })
    }

    /// Those that there are now.
    pub fn all(&self) -> BackendSet {
        self.set.borrow().clone()
    }

    /// The backend of a name.
    pub fn get(&self, name: &str) -> Option<Arc<Backend>> {
        self.set.borrow().get(name).cloned()
    }

    /// How many changes there were: what was made of the backends holds until there is another one.
    pub(crate) fn generation(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Whether one of them is called with the credentials of clients.
    pub(crate) fn has_of_client(&self) -> bool {
        self.has_of_client.load(Ordering::Acquire)
    }

    /// Tells of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether backends are checked.
    pub fn is_monitored(&self) -> bool {
        self.monitor.is_some()
    }

    /// Makes these the backends. One that did not change keeps its connections, its sessions and what is known of it. One that is configured
    /// in another way, as with a rotated credential, keeps what it offered until it is listed anew. Returns those that cannot be called.
    pub fn apply(self: &Arc<Self>, specs: Vec<BackendSpec>) -> Vec<LeftOut> {
        let (known, mut next, mut left_out) = (self.all(), BTreeMap::new(), Vec::new());
        for spec in specs {
            let name = spec.name.clone();
            let before = known.get(&name);
            if let Some(same) = before.filter(|backend| backend.spec.digest == spec.digest) {
                next.insert(name, same.clone());
                continue;
            }
            match Backend::new(spec) {
                Ok(backend) => {
                    if let Some(before) = before.filter(|before| before.spec.is_of_same_server(&backend.spec)) {
                        backend.offers.inherit(&before.offers);
                    }
                    next.insert(name, backend);
                }
                Err(error) => left_out.push(LeftOut { name, reason: error.to_string() }),
            }
        }
        self.replace(next);
        left_out
    }

    /// Makes these the backends.
    pub fn replace(self: &Arc<Self>, next: BTreeMap<BackendName, Arc<Backend>>) {
        let known = self.all();
        let is_known =
            |backend: &Arc<Backend>| known.get(backend.name()).is_some_and(|known| Arc::ptr_eq(known, backend));
        let new: Vec<_> = next.values().filter(|backend| !is_known(backend)).cloned().collect();
        if new.is_empty() && next.len() == known.len() {
            return;
        }
        let has_of_client = next.values().any(|backend| backend.spec.strategy.is_of_client());
        self.has_of_client.store(has_of_client, Ordering::Release);
        self.set.send_replace(Arc::new(next));
        for backend in new {
            backend.offers.count_in(Arc::downgrade(&self.changes));
            self.watch(&backend);
        }
        self.changed();
    }

    /// What is known of a backend changed.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Follows a backend until it is gone.
    fn watch(self: &Arc<Self>, backend: &Arc<Backend>) {
        let me = Arc::downgrade(self);
        let changed = move || {
            if let Some(me) = me.upgrade() {
                me.changed();
            }
        };
        if let Some(settings) = self.monitor {
            tokio::spawn(monitor(Arc::downgrade(backend), settings, changed).in_current_span());
        }
        // A backend that knows its clients by their credentials has nothing to say to none of them. It is listened to by each client that
        // listens itself.
        if !backend.spec.strategy.is_of_client() {
            tokio::spawn(listen(Arc::downgrade(backend), Viewer::Anyone, ClientContext::default).in_current_span());
        }
    }
}

/// Hears of changes of what a backend offers to a viewer, in the name of this client, until it is gone.
pub(crate) async fn listen(backend: Weak<Backend>, viewer: Viewer, client: impl Fn() -> ClientContext + Send + Sync) {
    let mut backoff = Backoff::new(AGAIN);
    loop {
        let since = Instant::now();
        {
            let Some(upstream) = backend.upgrade().map(|backend| backend.upstream.clone()) else { return };
            let Some(call) = listen_call(client()) else { return };
            let changed = |backend: &Arc<Backend>| match viewer {
                Viewer::Anyone => backend.offers.expire_and_refresh(backend),
                Viewer::Client(_) => backend.offers.expire_and_refresh_for(backend, viewer, &client()),
            };
            if let Err(error) = listen_once(&backend, upstream.call(call).await, changed).await {
                tracing::debug!(%error, "stream of changes of a backend ended");
            }
        }
        tokio::time::sleep(backoff.after(since.elapsed())).await;
    }
}

/// Hears of changes until the stream ends. The backend may be gone by then, and its stream ends with it.
async fn listen_once(
    backend: &Weak<Backend>,
    replies: Result<Replies, CallError>,
    changed: impl Fn(&Arc<Backend>) + Send,
) -> Result<(), CallError> {
    let Replies { interim, mut response } = replies?;
    let Some(mut interim) = interim else { return Ok(()) };
    let mut ended = std::pin::pin!(response.response());
    let mut alive = tokio::time::interval(AGAIN);
    loop {
        tokio::select! {
            message = interim.recv() => match message.map(Message::parse) {
                Some(Ok(message)) if is_list_changed(&message) => {
                    let Some(backend) = backend.upgrade() else { return Ok(()) };
                    changed(&backend);
                }
                Some(_) => {}
                None => return Ok(()),
            },
            ended = &mut ended => return ended.map(drop),
            _ = alive.tick() => if backend.strong_count() == 0 {
                return Ok(());
            },
        }
    }
}

fn is_list_changed(message: &Message) -> bool {
    message.method().is_some_and(|method| method.ends_with("/list_changed"))
}

fn listen_call(client: ClientContext) -> Option<Call> {
    let notifications = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true });
    let params = json!({ "_meta": meta(), "notifications": notifications });
    let request = json!({ "jsonrpc": "2.0", "id": "changes", "method": "subscriptions/listen", "params": params });
    let message = Message::parse(request.to_string().into()).ok()?;
    Some(Call { takes_interim: true, client, ..Call::new(message, Era::Modern) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use skep_mcp::list::List;
    use skep_net::Addresses;
    use skep_upstream::http::Transport;

    use super::*;
    use crate::backend::TIMEOUT;
    use crate::catalogue::{Catalogue, Item};
    use crate::credentials::Strategy;
    use crate::offer::Viewer;

    fn spec(url: &str, digest: u8) -> BackendSpec {
        BackendSpec {
            name: "a".into(),
            url: url.to_owned(),
            transport: Transport::StreamableHttp,
            auth_type: "unauthenticated".to_owned(),
            strategy: Strategy::None,
            headers: http::HeaderMap::new(),
            addresses: Addresses::Machine,
            ca_bundle: None,
            timeout: TIMEOUT,
            metadata: BTreeMap::new(),
            auth_config_ref: None,
            digest: [digest; 32],
        }
    }

    #[tokio::test]
    async fn a_rotated_credential_takes_no_tool_away() {
        let backends = Backends::new(None);
        let known = |backends: &Backends| {
            let backend = backends.get("a").unwrap();
            backend.offers.known(Viewer::Anyone).map(|known| known.catalogue.tools[0].name.to_string())
        };
        assert_eq!(backends.apply(vec![spec("http://a.example/mcp", 1)]), []);
        let tools = vec![Item::parse(List::Tools, r#"{"name":"tool"}"#).unwrap()];
        let before = backends.get("a").unwrap();
        before.offers.take(Viewer::Anyone, Catalogue { tools, ..Catalogue::default() });
        backends.apply(vec![spec("http://a.example/mcp", 2)]);
        assert!(!Arc::ptr_eq(&before, &backends.get("a").unwrap()));
        assert_eq!(known(&backends).as_deref(), Some("tool"));
        backends.apply(vec![spec("http://other.example/mcp", 3)]);
        assert_eq!(known(&backends), None, "that is another server");
    }
}
