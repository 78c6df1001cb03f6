//! Events: what people see in `kubectl describe`. One per transition of a condition, not per reconcile; a failure to publish one fails nothing.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use serde_json::Value;
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::{KindName, Resource};
use skep_plan::plan::Notice;
use skep_plan::status::{ConditionStatus, Status};

use crate::migrate::{MigrationError, definition_of};
use crate::write::cluster;

/// How long a note of an event may be, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Publishes events.
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
            let is_fault = is_fault(&condition.kind, condition.status);
            let is_true = condition.is_true();
            let turned = match was {
                // A condition that is new is published only if it is a fault.
                None => is_fault && condition.kind != "Ready",
                Some("Unknown") => is_true || condition.is_false(),
                Some(was) => (was == "True") != is_true,
            };
            // What is stalled is not ready either, and that is published.
            if !turned || condition.kind == "Stalled" {
                continue;
            }
            let event = Event {
                type_: if is_fault { EventType::Warning } else { EventType::Normal },
                reason: condition.reason.clone(),
                note: Some(condition.message.clone()),
                action: condition.kind.clone(),
                secondary: None,
            };
            self.publish(event, &object_reference(me)).await;
        }
    }

    /// Publishes a warning that no condition carries.
    pub async fn notice(&self, me: &Resource, notice: &Notice) {
        let event = Event {
            type_: EventType::Warning,
            reason: notice.reason.clone(),
            note: Some(notice.message.clone()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        self.publish(event, &object_reference(me)).await;
    }

    /// Says on a definition that its objects are stored in today's version.
    pub async fn migrated(&self, kind: KindName) {
        let event = Event {
            type_: EventType::Normal,
            reason: "StorageVersionMigrationSucceeded".to_owned(),
            note: Some(format!("storage version migrated to {STORED_VERSION}")),
            action: "Migrate".to_owned(),
            secondary: None,
        };
        self.publish(event, &definition_reference(kind)).await;
    }

    /// Says on a definition why its objects are not.
    pub async fn not_migrated(&self, kind: KindName, failed: &MigrationError) {
        let action =
            if matches!(failed, MigrationError::Definition { .. }) { "PatchStoredVersions" } else { "RestoreCRs" };
        let event = Event {
            type_: EventType::Warning,
            reason: "StorageVersionMigrationFailed".to_owned(),
            note: Some(failed.to_string()),
            action: action.to_owned(),
            secondary: None,
        };
        self.publish(event, &definition_reference(kind)).await;
    }

    async fn publish(&self, mut event: Event, about: &ObjectReference) {
        event.note = event.note.as_deref().map(cut);
        if let Err(error) = cluster::publish(&self.recorder, &event, about).await {
            tracing::debug!(error = crate::failure::describe(&error), "event not published");
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Events").finish_non_exhaustive()
    }
}

/// As much of a note as the API server takes.
fn cut(note: &str) -> String {
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let end = note.floor_char_boundary(LONGEST_NOTE - '…'.len_utf8());
    format!("{}…", note.get(..end).unwrap_or_default())
}

/// Some conditions report a fault by holding.
fn is_fault(kind: &str, status: ConditionStatus) -> bool {
    match kind {
        "DeletionBlocked" | "SessionStorageWarning" | "StdioReplicaCapped" | "IdentitySynthesized" | "Stalled" => {
            status == ConditionStatus::True
        }
        _ => status == ConditionStatus::False,
    }
}

fn definition_reference(kind: KindName) -> ObjectReference {
    ObjectReference {
        api_version: Some("apiextensions.k8s.io/v1".to_owned()),
        kind: Some("CustomResourceDefinition".to_owned()),
        name: Some(definition_of(kind)),
        ..ObjectReference::default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_as_long_as_the_api_server_takes_it() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"a".repeat(LONGEST_NOTE)).len(), LONGEST_NOTE);
        for letter in ["a", "ä", "漢"] {
            let note = cut(&letter.repeat(LONGEST_NOTE + 1));
            assert!(
                note.len() <= LONGEST_NOTE && note.len() > LONGEST_NOTE - 4 && note.ends_with('…'),
                "{}",
                note.len()
            );
        }
    }
}
