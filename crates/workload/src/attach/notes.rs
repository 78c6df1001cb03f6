//! Notes about a server for the next proxy in front of it: an annotation of its StatefulSet, outside the pod template,
//! so that no pod restarts because of it.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use crate::pipe::{BoxFuture, Notes};

/// The annotation.
const HANDSHAKE: &str = "toolhive.stacklok.dev/handshake";
/// The field manager.
const MANAGER: &str = "skep-proxy";
/// The maximum length of a note, in bytes. All annotations of an object may have 256 KiB.
const LONGEST: usize = 64 * 1024;

/// The notes about one container.
#[derive(Clone, Debug)]
pub(super) struct StatefulSetNotes {
    pub(super) sets: Api<DynamicObject>,
    pub(super) name: String,
    /// The container's identity, as far as it is known.
    pub(super) container: watch::Receiver<Option<String>>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Note {
    /// The container that it is about.
    container: String,
    text: String,
}

impl Notes for StatefulSetNotes {
    /// The note is written again whenever its container turns out to be another one.
    fn keep(&self, text: String) -> BoxFuture<()> {
        let mut this = self.clone();
        Box::pin(async move {
            if text.len() > LONGEST {
                return tracing::debug!(
                    length = text.len(),
                    "initialize response of the server too long for an annotation"
                );
            }
            loop {
                let container = this.container.borrow_and_update().clone();
                if let Some(container) = container {
                    this.write(&Note { container, text: text.clone() }).await;
                }
                if this.container.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    fn kept(&self) -> BoxFuture<Option<String>> {
        let this = self.clone();
        Box::pin(async move {
            let set = this.sets.get_opt(&this.name).await.ok()??;
            let note: Note = serde_json::from_str(set.metadata.annotations?.get(HANDSHAKE)?).ok()?;
            let is_about_it = this.container.borrow().as_ref() == Some(&note.container);
            is_about_it.then_some(note.text)
        })
    }
}

impl StatefulSetNotes {
    async fn write(&self, note: &Note) {
        let change = Patch::Merge(json!({ "metadata": { "annotations": { HANDSHAKE: json!(note).to_string() } } }));
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        if let Err(error) = self.sets.patch(&self.name, &parameters, &change).await {
            tracing::warn!(%error, "failed to store the initialize response of the server for the next proxy");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Result;
    use skep_testkit::{ControlPlane, Seen, eventually};

    use super::*;
    use crate::cluster::Cluster;
    use crate::objects::Platform;
    use crate::server::Server;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn cluster() -> Result<Cluster> {
        let plane = ControlPlane::shared().await?;
        let (client, namespace) = (crate::client::client(plane.config())?, plane.namespace("notes").await?);
        let server = Server { name: "s".to_owned(), image: "i".to_owned(), generation: 1, ..Server::default() };
        Ok(Cluster::new(client, namespace, Platform::Kubernetes, server))
    }

    /// The kubelet reports a restart late: the container it still reports as the old one is the new one already.
    #[tokio::test]
    async fn notes_move_to_the_container_that_they_turn_out_to_be_about() -> Result<()> {
        let cluster = cluster().await?;
        cluster.apply().await?;
        let (sees, container) = watch::channel(None);
        let notes = cluster.notes(container);
        let keeping = tokio::spawn(notes.keep("hello".to_owned()));
        let cluster = &cluster;
        for container in ["old", "new"] {
            sees.send_replace(Some(container.to_owned()));
            eventually("the note is about this container", PATIENCE, || async move {
                let kept = cluster.notes_of(container).kept().await;
                Ok(if kept.as_deref() == Some("hello") { Seen::Yes(()) } else { Seen::NotYet(format!("{kept:?}")) })
            })
            .await?;
            assert_eq!(notes.kept().await.as_deref(), Some("hello"));
        }
        assert_eq!(cluster.notes_of("old").kept().await, None);
        // The updates end with the attachment.
        drop(sees);
        tokio::time::timeout(PATIENCE, keeping).await??;
        Ok(())
    }
}
