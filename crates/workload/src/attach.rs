//! The standard input and output of a server in a cluster: an attachment to the right pod.

use std::pin::Pin;
use std::task::{Context, Poll};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, AttachedProcess, ListParams};
use tokio::io::{AsyncRead, ReadBuf};

use crate::cluster::Cluster;
use crate::objects::CONTAINER;
use crate::pipe::Pipe;

/// How much of one stream may wait to be read, in bytes. The pod's writes wait beyond that.
const BUFFER: usize = 64 * 1024;

/// Why there is no attachment. Trying again later may help.
#[derive(Debug, thiserror::Error)]
pub enum Detached {
    /// No pod runs.
    #[error("no pod of {0} runs")]
    NoPod(String),
    /// The API server, or the node of the pod.
    #[error("cannot attach to {object}: {error}")]
    Api {
        /// To what.
        object: String,
        /// Why not.
        error: Box<kube::Error>,
    },
}

/// What the server writes, until the attachment ends. The stream alone does not say so when the connection breaks: whoever
/// reads it would wait for ever.
struct UntilEnded<Stream, Ended> {
    stream: Stream,
    ended: Pin<Box<Ended>>,
    is_over: bool,
}

/// An attachment. Ends with its value, so that a server is never read by two.
struct Held(AttachedProcess);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// === impl Cluster ===

impl Cluster {
    /// Attaches to the server's pod, with its three streams kept apart.
    pub async fn attach(&self) -> Result<Pipe, Detached> {
        let failed = |object: String| move |error| Detached::Api { object, error: Box::new(error) };
        let name = &self.server().name;
        let pods: Api<Pod> = Api::namespaced(self.client().clone(), self.namespace());
        let found = pods.list(&ListParams::default().labels(&format!("app={name}"))).await;
        let found = found.map_err(failed(format!("the pods of {name}")))?;
        let pod = pick(&found.items).ok_or_else(|| Detached::NoPod(name.clone()))?;
        let parameters = AttachParams::default()
            .container(CONTAINER)
            .stdin(true)
            .stdout(true)
            .stderr(true)
            .tty(false)
            .max_stdin_buf_size(BUFFER)
            .max_stdout_buf_size(BUFFER)
            .max_stderr_buf_size(BUFFER);
        let attached = pods.attach(pod, &parameters).await;
        let mut attached = attached.map_err(failed(format!("pod {pod}")))?;
        let streams = (attached.stdin(), attached.stdout(), attached.stderr(), attached.take_status());
        let (Some(stdin), Some(stdout), Some(stderr), Some(ended)) = streams else {
            return Err(Detached::NoPod(name.clone()));
        };
        let stdout = UntilEnded { stream: stdout, ended: Box::pin(ended), is_over: false };
        tracing::info!(pod, "attached");
        Ok(Pipe {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            held: Box::new(Held(attached)),
        })
    }
}

// === impl UntilEnded ===

impl<Stream: AsyncRead + Unpin, Ended: Future> AsyncRead for UntilEnded<Stream, Ended> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            return Poll::Ready(read);
        }
        if !self.is_over && self.ended.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        // Nobody writes any more, but something may have been written since the look above.
        self.is_over = true;
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => Poll::Ready(Ok(())),
            read @ Poll::Ready(_) => read,
        }
    }
}

/// The pod to attach to: one whose server runs and that is not on its way out. Of several the one made last, as the others are
/// of an older make; of those made at once the first by name.
fn pick(pods: &[Pod]) -> Option<&str> {
    let runs = |pod: &&Pod| {
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none()
            && containers.iter().any(|container| {
                container.name == CONTAINER && container.state.as_ref().is_some_and(|state| state.running.is_some())
            })
    };
    let best = pods.iter().filter(runs).min_by(|one, other| {
        let made = |pod: &Pod| pod.metadata.creation_timestamp.clone();
        made(other).cmp(&made(one)).then_with(|| one.metadata.name.cmp(&other.metadata.name))
    });
    best.and_then(|pod| pod.metadata.name.as_deref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn an_attachment_that_breaks_ends_its_stream_after_what_came_before() {
        let (stream, mut writer) = tokio::io::simplex(64);
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let mut stdout = UntilEnded { stream, ended: Box::pin(ended), is_over: false };
        let read = tokio::spawn(async move {
            let mut text = String::new();
            stdout.read_to_string(&mut text).await.map(|_| text)
        });
        writer.write_all(b"last words").await.unwrap();
        tokio::task::yield_now().await;
        assert!(!read.is_finished());
        // As a broken connection leaves it: the writer is gone without having said that it is.
        drop((writer, end));
        assert_eq!(read.await.unwrap().unwrap(), "last words");
    }

    fn pod(name: &str, made: u32, runs: bool, going: bool) -> Pod {
        let state = if runs { json!({ "running": {} }) } else { json!({ "waiting": {} }) };
        let mut pod = json!({
            "metadata": { "name": name, "creationTimestamp": format!("2026-01-01T00:00:{made:02}Z") },
            "status": { "containerStatuses": [{ "name": "mcp", "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "state": state }] },
        });
        if going {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn the_pod_that_runs_and_stays_is_picked_the_newest_first() {
        for (pods, wanted) in [
            (vec![], None),
            (vec![pod("s-0", 1, false, false)], None),
            (vec![pod("s-0", 1, true, true)], None),
            (vec![pod("s-1", 1, true, false), pod("s-0", 1, true, false)], Some("s-0")),
            (vec![pod("s-0", 1, true, false), pod("s-1", 2, true, false)], Some("s-1")),
            (vec![pod("s-0", 3, true, true), pod("s-1", 2, true, false)], Some("s-1")),
        ] {
            assert_eq!(pick(&pods), wanted);
        }
    }
}
