//! Phase, readiness and address of a registry: from what was wrong with its plan, and from its pods.

use serde_json::Value;
use skep_api::kinds::MCPRegistry;
use skep_api::resource::Resource;

use super::children;
use crate::child::Child;
use crate::error::{MissingKey, PlanError};
use crate::key::ObjectKind;
use crate::names;
use crate::pod::PodStamps;
use crate::readiness::{Readiness, ReadinessTexts, set_url, was_ready};
use crate::rollout::{Serving, Stage, observe};
use crate::status::Status;
use crate::world::World;

const TEXTS: ReadinessTexts = ReadinessTexts {
    subject: "Registry API",
    no_pods: "Registry API deployment is not ready yet",
    failed: "Registry API failed to start",
    stopped: "Pending",
    ready: "Ready",
    not_ready: "NotReady",
};

/// Adds phase, message, readiness, address and the number of ready pods.
pub(super) fn add(
    status: &mut Status,
    me: &Resource,
    object: &MCPRegistry,
    built: &Result<Vec<Child>, PlanError>,
    world: &World<'_>,
) {
    let live = world.live;
    let was_ready = was_ready(&object.metadata, object.status.as_ref().map(|status| status.conditions.as_slice()));
    let stamps = built.as_ref().ok().and_then(|children| PodStamps::planned(children));
    let rollout = observe(live.workload.as_ref(), &live.pods, stamps.as_ref().into(), was_ready);
    let is_serving = rollout.serving != Serving::Nothing;
    // The pod waits for the password by itself; only the waiting is reported.
    let secret = object.spec.pgpass_secret_ref.as_ref();
    let secret = secret.and_then(|one| {
        MissingKey::check("spec.pgpassSecretRef", (ObjectKind::Secret, &one.name, &one.key), me.namespace(), world)
            .err()
    });
    let error = built.as_ref().err();
    let refused = error.and_then(|error| Readiness::refused(&error.verdict(), error.reason(), "Failed", is_serving));
    let readiness = match (refused, secret, &rollout.stage) {
        (Some(refused), _, _) => refused,
        (None, _, Stage::Stopped) => {
            let message = "Registry API is scaled to zero; scale its Deployment up".to_owned();
            Readiness::waiting(TEXTS.stopped, TEXTS.not_ready, message)
        }
        (None, Some(missing), _) if !is_serving => Readiness::waiting("Pending", "SecretNotFound", missing.to_string()),
        (None, _, Stage::Complete(count)) => {
            let partial = if count.is_partial() { format!("; {count}") } else { String::new() };
            Readiness::ready(TEXTS.ready, format!("Registry API is ready and serving requests{partial}"))
        }
        _ => Readiness::of(&rollout, &TEXTS),
    };
    readiness.write(status);
    let service = names::registry_api(me.name());
    let url = format!("http://{}:{}", names::host(&service, me.namespace()), children::PORT);
    if is_serving {
        set_url(status, url, &verdict, &service, live);
    } else {
        // The original shows the address of a registry only while it answers.
        status.set("url", Value::Null);
    }
    let ready = live.workload.as_ref().map_or(0, |workload| workload.ready);
    status.set("readyReplicas", (ready > 0).then_some(ready));
}
