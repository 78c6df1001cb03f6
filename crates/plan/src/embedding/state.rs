//! Phase and readiness of an embedding server: from what was wrong with its plan, and from its pods.

use skep_api::kinds::EmbeddingServer;
use skep_api::resource::Resource;

use crate::error::{MissingKey, PlanError};
use crate::key::ObjectKind;
use crate::readiness::{Readiness, ReadinessTexts, was_ready};
use crate::rollout::{Planned, Serving, Stage, observe};
use crate::status::Status;
use crate::world::World;

const TEXTS: ReadinessTexts = ReadinessTexts {
    subject: "Embedding server",
    no_pods: "Waiting for statefulset",
    failed: "Embedding server failed to start",
    stopped: "Pending",
    ready: "Ready",
    not_ready: "NotReady",
};

/// Adds phase, message, readiness and the number of ready pods.
pub(super) fn add(
    status: &mut Status,
    me: &Resource,
    object: &EmbeddingServer,
    error: Option<&PlanError>,
    world: &World<'_>,
) {
    let live = world.live;
    let was_ready = was_ready(&object.metadata, object.status.as_ref().map(|status| status.conditions.as_slice()));
    let planned = if error.is_none() { Planned::Revision } else { Planned::Nothing };
    let rollout = observe(live.workload.as_ref(), &live.pods, planned, was_ready);
    // The pods wait for the token by themselves; only the waiting is reported.
    let secret = object.spec.hf_token_secret_ref.as_ref();
    let secret = secret.and_then(|one| {
        MissingKey::check("spec.hfTokenSecretRef", (ObjectKind::Secret, &one.name, &one.key), me.namespace(), world)
            .err()
    });
    let is_serving = rollout.serving != Serving::Nothing;
    let refused = error.and_then(|error| Readiness::refused(&error.verdict(), error.reason(), "Failed", is_serving));
    let readiness = match (refused, secret, &rollout.stage) {
        (Some(refused), _, _) => refused,
        (None, Some(missing), _) if !is_serving => Readiness::waiting("Pending", "SecretNotFound", missing.to_string()),
        (None, _, Stage::RollingOut(_)) if !is_serving => {
            Readiness::rolling_out("Downloading", "Downloading embedding model".to_owned())
        }
        _ => Readiness::of(&rollout, &TEXTS),
    };
    readiness.write(status);
    let ready = live.workload.as_ref().map_or(0, |workload| workload.ready);
    status.set("readyReplicas", (ready > 0).then_some(ready));
}
