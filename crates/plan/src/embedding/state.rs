//! Phase and readiness of an embedding server: from what was wrong with its plan, and from its pods.

use skep_api::kinds::EmbeddingServerSpec;
use skep_api::resource::Resource;

use crate::refusal::{Refusal, missing_secret};
use crate::status::Status;
use crate::world::{PodState, World};

/// Adds phase, message, readiness and the number of ready pods.
pub(super) fn add(
    status: &mut Status,
    me: &Resource,
    spec: &EmbeddingServerSpec,
    refusal: Option<&Refusal>,
    world: &World<'_>,
) {
    let live = world.live;
    let ready = live.workload.as_ref().map_or(0, |workload| workload.ready);
    let failed = live.pods.iter().find_map(|pod| match &pod.state {
        PodState::Failed(why) => Some(format!("pod `{}` cannot run: {why}", pod.name)),
        PodState::Ready | PodState::Pending => None,
    });
    // The pods wait for the token by themselves; only the waiting is told.
    let secret = spec.hf_token_secret_ref.as_ref();
    let secret =
        secret.and_then(|one| missing_secret("spec.hfTokenSecretRef", &one.name, &one.key, me.namespace(), world));
    let (phase, reason, message) = match (refusal, secret, failed) {
        (Some(refusal), _, _) => ("Failed", refusal.reason, refusal.message.clone()),
        _ if ready > 0 && ready < spec.replicas => {
            ("Ready", "Ready", format!("Embedding server is running; {ready} of {} pods are ready", spec.replicas))
        }
        _ if ready > 0 => ("Ready", "Ready", "Embedding server is running".to_owned()),
        (None, Some(message), _) => ("Pending", "SecretNotFound", message),
        (None, None, Some(message)) => ("Failed", "PodFailed", message),
        _ if live.pods.is_empty() => ("Pending", "NotReady", "Waiting for statefulset".to_owned()),
        _ => ("Downloading", "NotReady", "Downloading embedding model".to_owned()),
    };
    status
        .set("phase", phase)
        .set("message", message.as_str())
        .set("readyReplicas", (ready > 0).then_some(ready))
        .condition("Ready", phase == "Ready", reason, message);
}
