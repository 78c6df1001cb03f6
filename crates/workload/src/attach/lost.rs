//! Whether the attached pod still exists. When its node is lost, the attachment itself does not end: it only falls
//! silent. So the pod is watched, and the output ends when the pod is lost.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{oneshot, watch as signal};

use super::{Pod, container, is_ready, pick, runs};

/// How often a better pod is searched for while the attached one is not ready.
const LOOK: Duration = Duration::from_secs(15);

/// The state of the attached pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is fine.
    Stays,
    /// It is not ready. If there is a better one, that should be attached to.
    Doubtful,
    /// It is gone.
    Gone,
}

/// The attached pod, and how to find the others.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) pods: Api<Pod>,
    /// The labels of all pods of the server.
    pub(super) labels: String,
    pub(super) name: String,
    pub(super) uid: Option<String>,
    /// Receives the identity of the container. What was seen before the attachment may have been the previous one: the
    /// kubelet reports a restart late.
    pub(super) container: signal::Sender<Option<String>>,
}

/// The output of a pod, until that pod is lost.
pub(super) struct Until<Output> {
    output: Output,
    lost: Option<oneshot::Receiver<()>>,
}

// === impl Attached ===

impl Attached {
    /// Waits until the pod is lost. Broken watches and an unavailable API server say nothing about the pod.
    pub(super) async fn lost(self) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut changes = std::pin::pin!(watch(self.pods.clone(), config).default_backoff());
        let (mut listed, mut fate) = (false, Fate::Stays);
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                () = tokio::time::sleep(LOOK), if fate == Fate::Doubtful => None,
            };
            match change {
                Some(Ok(Event::Init)) => listed = false,
                Some(Ok(Event::InitApply(pod) | Event::Apply(pod))) => {
                    listed = true;
                    self.see(&pod);
                    fate = self.fate(&pod);
                }
                Some(Ok(Event::InitDone)) if listed => {}
                Some(Ok(Event::InitDone | Event::Delete(_))) => fate = Fate::Gone,
                Some(Err(error)) => tracing::debug!(%error, "pod watch interrupted"),
                None => {}
            }
            let is_lost = match fate {
                Fate::Stays => false,
                Fate::Doubtful => self.has_better_pod().await,
                Fate::Gone => true,
            };
            if is_lost {
                tracing::warn!(pod = self.name, "pod lost, closing the attachment");
                return;
            }
        }
    }

    fn fate(&self, pod: &Pod) -> Fate {
        let is_over = pod.metadata.deletion_timestamp.is_some() && !runs(pod);
        if pod.metadata.uid != self.uid || is_over {
            return Fate::Gone;
        }
        if is_ready(pod) { Fate::Stays } else { Fate::Doubtful }
    }

    /// An attachment ends with its container, so another container that is seen while it lasts is the attached one.
    fn see(&self, pod: &Pod) {
        let now = container(pod).filter(|_| pod.metadata.uid == self.uid);
        self.container.send_if_modified(|known| {
            let is_news = now.is_some() && *known != now;
            if is_news {
                *known = now;
            }
            is_news
        });
    }

    async fn has_better_pod(&self) -> bool {
        let Ok(found) = self.pods.list(&ListParams::default().labels(&self.labels)).await else { return false };
        // It may have become ready in between.
        let is_ready_again = found.items.iter().any(|pod| pod.metadata.uid == self.uid && is_ready(pod));
        !is_ready_again && pick(&found.items).is_some_and(|best| best.metadata.uid != self.uid)
    }
}

// === impl Until ===

impl<Output> Until<Output> {
    pub(super) fn new(output: Output, lost: oneshot::Receiver<()>) -> Self {
        Self { output, lost: Some(lost) }
    }
}

impl<Output: AsyncRead + Unpin> AsyncRead for Until<Output> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        let read = Pin::new(&mut this.output).poll_read(context, buffer);
        // A pod that sends output exists.
        if read.is_pending()
            && let Some(lost) = &mut this.lost
            && let Poll::Ready(heard) = Pin::new(lost).poll(context)
        {
            this.lost = None;
            if heard.is_ok() {
                return Poll::Ready(Ok(()));
            }
        }
        read
    }
}

#[cfg(test)]
mod tests;
