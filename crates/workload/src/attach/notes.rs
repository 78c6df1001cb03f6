//! What is kept beside a server for the next proxy in front of it: an annotation of its StatefulSet, outside the template of its
//! pods, so that nothing restarts because of it.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::pipe::{Notes, Taken};

/// The annotation.
const HANDSHAKE: &str = "toolhive.stacklok.dev/handshake";
/// Who writes it.
const MANAGER: &str = "skep-proxy";
/// The longest text that is kept, in bytes. All annotations of an object may have 256 KiB.
const LONGEST: usize = 64 * 1024;

/// The notes of one container.
#[derive(Clone, Debug)]
pub(super) struct OnSet {
    pub(super) sets: Api<DynamicObject>,
    pub(super) name: String,
    pub(super) container: String,
}

#[derive(Debug, Deserialize, Serialize)]
struct Note {
    /// The container that it is about.
    container: String,
    text: String,
}

impl Notes for OnSet {
    fn keep(&self, text: String) -> Taken<()> {
        let this = self.clone();
        Box::pin(async move {
            if text.len() > LONGEST {
                return tracing::debug!(length = text.len(), "what the server said of itself is too long to be kept");
            }
            let note = json!(Note { container: this.container, text }).to_string();
            let change = Patch::Merge(json!({ "metadata": { "annotations": { HANDSHAKE: note } } }));
            let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            if let Err(error) = this.sets.patch(&this.name, &parameters, &change).await {
                tracing::warn!(%error, "what the server said of itself is not kept for the next proxy");
            }
        })
    }

    fn kept(&self) -> Taken<Option<String>> {
        let this = self.clone();
        Box::pin(async move {
            let set = this.sets.get_opt(&this.name).await.ok()??;
            let note: Note = serde_json::from_str(set.metadata.annotations?.get(HANDSHAKE)?).ok()?;
            (note.container == this.container).then_some(note.text)
        })
    }
}
