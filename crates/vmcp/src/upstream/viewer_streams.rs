//! Changes of backends that offer each client something else: one stream for each viewer that listens, whichever of its sessions and
//! subscriptions do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use skep_upstream::ClientContext;
use tracing::Instrument as _;

use super::VirtualUpstream;
use super::session::Task;
use crate::aggregate::BackendName;
use crate::backend::Backend;
use crate::backends::listen;
use crate::offer::Viewer;

/// The streams of all viewers.
#[derive(Debug, Default)]
pub(super) struct ViewerStreams(Mutex<HashMap<(BackendName, Viewer), Weak<ViewerStream>>>);

/// A stream of changes of one backend, in the name of one viewer. It ends with the last client that holds it.
#[derive(Debug)]
pub(super) struct ViewerStream {
    backend: Weak<Backend>,
    /// The client, as the last request of one of those that hold it had it: a token is renewed from time to time.
    client: Arc<Mutex<ClientContext>>,
    _task: Task,
}

// === impl ViewerStreams ===

impl ViewerStreams {
    /// The stream of a viewer, opened if there is none.
    fn hold(&self, backend: &Arc<Backend>, viewer: Viewer, client: &ClientContext) -> Arc<ViewerStream> {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (backend.name().clone(), viewer);
        let known = streams.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.backend.as_ptr() == Arc::as_ptr(backend)) {
            *known.client.lock().unwrap_or_else(PoisonError::into_inner) = client.clone();
            return known;
        }
        streams.retain(|_, stream| stream.strong_count() > 0);
        let opened = Arc::new(ViewerStream::open(backend, viewer, client));
        streams.insert(key, Arc::downgrade(&opened));
        opened
    }
}

// === impl ViewerStream ===

impl ViewerStream {
    fn open(backend: &Arc<Backend>, viewer: Viewer, client: &ClientContext) -> Self {
        let (backend, client) = (Arc::downgrade(backend), Arc::new(Mutex::new(client.clone())));
        let current = client.clone();
        let current = move || current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let task = tokio::spawn(listen(backend.clone(), viewer, current).in_current_span());
        Self { backend, client, _task: Task(task.abort_handle()) }
    }
}

// === impl VirtualUpstream ===

impl VirtualUpstream {
    /// The streams by which a client that listens hears of changes that concern it alone, as long as it holds them.
    pub(super) fn viewer_streams(&self, client: &ClientContext) -> Vec<Arc<ViewerStream>> {
        let all = self.backends.all();
        let streams = all.values().filter_map(|backend| {
            let is_of_client = backend.spec.strategy.is_of_client();
            let viewer = Viewer::of(client, is_of_client);
            // One that talks to the virtual server itself says there that its lists changed.
            let is_heard = viewer == Viewer::Anyone || (!is_of_client && backend.offers.is_known_to_anyone());
            (!is_heard).then(|| self.viewer_streams.hold(backend, viewer, client))
        });
        streams.collect()
    }
}
