//! Events: what people see in `kubectl describe`. Only when a condition turns, never on every look, and never a reason to fail.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use serde_json::Value;
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::Resource;
use skep_plan::status::Status;

/// Tells people what happened.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

// === impl Events ===

impl Events {
    /// Events that name `controller` as their source.
    pub fn new(client: Client, controller: &str, instance: Option<String>) -> Self {
        Self { recorder: Recorder::new(client, Reporter { controller: controller.to_owned(), instance }) }
    }

    /// Publishes the conditions that turned: a warning for one that stopped holding, a note for one that holds again.
    pub async fn transitions(&self, me: &Resource, old: &Value, new: &Status) {
        for condition in new.conditions() {
            let known = old.get("conditions").and_then(Value::as_array).into_iter().flatten();
            let before = known.into_iter().find(|known| known.get("type").is_some_and(|kind| *kind == condition.kind));
            let was = before.and_then(|before| before.get("status")).and_then(Value::as_str);
            let is_fault = is_fault(&condition.kind, condition.holds);
            let turned = match was {
                // The first word about something is news only when it is bad.
                None => is_fault && condition.kind != "Ready",
                Some(was) => (was == "True") != condition.holds,
            };
            if !turned {
                continue;
            }
            let event = Event {
                type_: if is_fault { EventType::Warning } else { EventType::Normal },
                reason: condition.reason.clone(),
                note: Some(condition.message.clone()),
                action: condition.kind.clone(),
                secondary: None,
            };
            if let Err(error) = self.recorder.publish(&event, &object_reference(me)).await {
                tracing::debug!(%error, "event not published");
            }
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Events").finish_non_exhaustive()
    }
}

/// Some conditions report a fault by holding.
fn is_fault(kind: &str, holds: bool) -> bool {
    match kind {
        "DeletionBlocked" | "SessionStorageWarning" | "StdioReplicaCapped" | "IdentitySynthesized" => holds,
        _ => !holds,
    }
}

fn object_reference(me: &Resource) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{GROUP}/{STORED_VERSION}")),
        kind: Some(me.kind().as_str().to_owned()),
        name: Some(me.name().to_owned()),
        namespace: Some(me.namespace().to_owned()),
        uid: me.metadata().uid.clone(),
        ..ObjectReference::default()
    }
}
