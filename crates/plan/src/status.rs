//! The next status of a resource: what a plan sets, merged into what is stored.
//!
//! A plan has no clock. [`Status::onto`] keeps the time of a condition as long as the condition keeps its
//! value, so writing the same plan twice changes nothing.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// The longest message of a status, in characters. The API server refuses a status with a condition whose message has more than
/// 32,768, and then nothing of it would be written, however often it is retried.
const LONGEST_MESSAGE: usize = 8 * 1024;
/// The field of a status that says in a sentence what is the case.
const MESSAGE: &str = "message";

/// What a plan says about a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    fields: Vec<(&'static str, Value)>,
    conditions: Vec<Condition>,
    kept_conditions: Vec<&'static str>,
    /// If all conditions that are not set are kept: the exceptions, which are removed.
    kept_except: Option<&'static [&'static str]>,
}

/// One aspect of a resource's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, as a CamelCase reason.
    pub reason: String,
    /// What is the case and, where something is wrong, what to do.
    pub message: String,
}

/// Whether a condition holds, as Kubernetes has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It is not decided yet, as while a rollout is in progress.
    Unknown,
}

// === impl ConditionStatus ===

impl ConditionStatus {
    /// As the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

// === impl Condition ===

impl Condition {
    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    /// Whether it does not hold. An unknown condition is neither true nor false.
    pub fn is_false(&self) -> bool {
        self.status == ConditionStatus::False
    }
}

// === impl Status ===

impl Status {
    /// Sets a field; null removes it. Fields that no plan sets belong to other writers and stay.
    pub fn set(&mut self, field: &'static str, value: impl Into<Value>) -> &mut Self {
        self.fields.retain(|(name, _)| *name != field);
        self.fields.push((field, value.into()));
        self
    }

    /// Sets a condition. A second one of the same type replaces the first.
    pub fn condition(
        &mut self,
        kind: &str,
        status: impl Into<ConditionStatus>,
        reason: &str,
        message: impl Into<String>,
    ) -> &mut Self {
        let (kind, status, reason) = (kind.to_owned(), status.into(), reason.to_owned());
        let condition = Condition { kind, status, reason, message: message.into() };
        match self.conditions.iter_mut().find(|known| known.kind == condition.kind) {
            Some(known) => *known = condition,
            None => self.conditions.push(condition),
        }
        self
    }

    /// Leaves a field as it is stored, though it was set before.
    pub fn keep_field(&mut self, field: &str) -> &mut Self {
        self.fields.retain(|(name, _)| *name != field);
        self
    }

    /// Keeps a condition that another program writes.
    pub fn keep_condition(&mut self, kind: &'static str) -> &mut Self {
        self.kept_conditions.push(kind);
        self
    }

    /// Keeps every condition that is not set, but for these, which are removed.
    pub fn keep_other_conditions(&mut self, except: &'static [&'static str]) -> &mut Self {
        self.kept_except = Some(except);
        self
    }

    /// The condition of a type, if it is set.
    pub fn find(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// All conditions.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The value of a field, if it is set.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// The complete next status. Conditions that are not set are removed, unless they are kept.
    pub fn onto(&self, old: &Value, generation: i64, now: &str) -> Value {
        let mut next: Map<String, Value> = old.as_object().cloned().unwrap_or_default();
        for (field, value) in &self.fields {
            if value.is_null() {
                next.remove(*field);
            } else if let (MESSAGE, Value::String(message)) = (*field, value) {
                next.insert(MESSAGE.to_owned(), clipped(message).into());
            } else {
                next.insert((*field).to_owned(), value.clone());
            }
        }
        let before: Vec<&Value> = old.get("conditions").and_then(Value::as_array).into_iter().flatten().collect();
        let named =
            |kind: &str| before.iter().find(|known| known.get("type").is_some_and(|name| name == kind)).copied();
        let mut conditions: Vec<Value> =
            before.iter().filter(|known| self.keeps(known)).map(|known| (*known).clone()).collect();
        for condition in &self.conditions {
            let status = condition.status.as_str();
            let known = named(&condition.kind).filter(|known| known.get("status").is_some_and(|was| was == status));
            let since = known.and_then(|known| known.get("lastTransitionTime")).cloned().unwrap_or_else(|| json!(now));
            conditions.push(json!({
                "type": condition.kind,
                "status": status,
                "reason": condition.reason,
                "message": clipped(&condition.message),
                "observedGeneration": generation,
                "lastTransitionTime": since,
            }));
        }
        conditions.sort_by(|left, right| {
            left.get("type").and_then(Value::as_str).cmp(&right.get("type").and_then(Value::as_str))
        });
        if conditions.is_empty() {
            next.remove("conditions");
        } else {
            next.insert("conditions".into(), Value::Array(conditions));
        }
        next.insert("observedGeneration".into(), json!(generation));
        Value::Object(next)
    }

    /// Whether a condition of the status before stays as it is.
    fn keeps(&self, known: &Value) -> bool {
        let kind = known.get("type").and_then(Value::as_str).unwrap_or_default();
        let is_other = self.find(kind).is_none() && self.kept_except.is_some_and(|except| !except.contains(&kind));
        is_other || self.kept_conditions.contains(&kind)
    }
}

/// A message as a status holds it: clipped if it is too long.
pub fn clipped(message: &str) -> Cow<'_, str> {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => Cow::Owned(format!("{}…", message.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy can make a message of its own size: the API server refused the status, for ever.
    #[test]
    fn messages_are_clipped_to_what_the_api_server_accepts() {
        let long = "é".repeat(100_000);
        let mut status = Status::default();
        status.set("message", long.as_str()).set("url", long.as_str()).condition("Ready", false, "Failed", &long);
        let written = status.onto(&json!({}), 1, "now");
        for message in [&written["message"], &written["conditions"][0]["message"]] {
            let message = message.as_str().unwrap();
            assert_eq!(message.chars().count(), LONGEST_MESSAGE + 1);
            assert!(message.ends_with('…'));
        }
        assert_eq!(written["url"], *long);
        assert_eq!(clipped("as it is"), "as it is");
        assert_eq!(status.onto(&written, 1, "later"), written);
    }

    #[test]
    fn writing_the_same_twice_changes_nothing() {
        let mut status = Status::default();
        status.set("phase", "Ready").condition("Ready", true, "Ready", "it runs");
        let first = status.onto(&json!({}), 3, "2026-01-01T00:00:00Z");
        assert_eq!(status.onto(&first, 3, "2026-02-02T00:00:00Z"), first);
    }

    #[test]
    fn the_time_of_a_condition_moves_with_its_value_only() {
        let at = |holds: bool, reason: &str, old: &Value, now: &str| {
            Status::default().condition("Ready", holds, reason, "").onto(old, 1, now)["conditions"][0]["lastTransitionTime"].clone()
        };
        let old = Status::default().condition("Ready", false, "A", "").onto(&json!({}), 1, "first");
        assert_eq!(at(false, "B", &old, "second"), "first");
        assert_eq!(at(true, "B", &old, "second"), "second");
    }

    #[test]
    fn a_condition_that_is_not_decided_is_unknown_and_neither_true_nor_false() {
        let mut status = Status::default();
        status.condition("Ready", ConditionStatus::Unknown, "RollingOut", "");
        let ready = status.find("Ready").unwrap();
        assert!(!ready.is_true() && !ready.is_false());
        assert_eq!(status.onto(&json!({}), 1, "now")["conditions"][0]["status"], "Unknown");
    }

    #[test]
    fn a_field_that_is_kept_stays_as_it_was() {
        let mut status = Status::default();
        status.set("hash", "planned").set("gone", Value::Null).keep_field("hash").keep_field("gone");
        let next = status.onto(&json!({ "hash": "serving", "gone": 1 }), 1, "now");
        assert_eq!((&next["hash"], &next["gone"]), (&json!("serving"), &json!(1)));
    }

    #[test]
    fn conditions_that_are_not_set_are_removed_unless_they_are_kept() {
        let old = json!({
            "theirs": 1,
            "mine": 2,
            "conditions": [
                { "type": "Stale", "status": "True", "lastTransitionTime": "x" },
                { "type": "Theirs", "status": "True", "lastTransitionTime": "y" },
            ],
        });
        let mut status = Status::default();
        status.set("mine", Value::Null).keep_condition("Theirs");
        let expected = json!({
            "theirs": 1,
            "conditions": [{ "type": "Theirs", "status": "True", "lastTransitionTime": "y" }],
            "observedGeneration": 7,
        });
        assert_eq!(status.onto(&old, 7, "now"), expected);
    }
}
