//! The environment variables of a container, in the order in which they are written.

use serde_json::{Value, json};

use crate::overrides::DroppedOverrides;

/// The variables of one container: the operator's own, and those that a user adds.
///
/// A variable of the operator's displaces a user's of the same name, whichever is added first. Among variables of the same origin
/// the first one stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Env {
    variables: Vec<Variable>,
    dropped: DroppedOverrides,
}

#[derive(Clone, Debug, PartialEq)]
struct Variable {
    name: String,
    entry: Value,
    /// The field that a user set it in; none for one of the operator's.
    user_field: Option<&'static str>,
}

// === impl Env ===

impl Env {
    /// No variables yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A plain value.
    pub fn value(&mut self, name: &str, value: &str) -> &mut Self {
        self.stamp(name, json!({ "name": name, "value": value }))
    }

    /// A key of a Secret.
    pub fn secret(&mut self, name: &str, secret: &str, key: &str) -> &mut Self {
        self.stamp(name, json!({ "name": name, "valueFrom": { "secretKeyRef": { "name": secret, "key": key } } }))
    }

    /// A field of the pod itself.
    pub fn field(&mut self, name: &str, path: &str) -> &mut Self {
        // The API server would fill in the version; it is sent, so that what we own is what is there.
        let source = json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": path } });
        self.stamp(name, json!({ "name": name, "valueFrom": source }))
    }

    /// A variable that a user sets in `field`. It never displaces one of the operator's.
    pub fn user(&mut self, field: &'static str, name: &str, value: &str) -> &mut Self {
        let entry = json!({ "name": name, "value": value });
        match self.variables.iter().find(|known| known.name == name) {
            None => self.variables.push(Variable { name: name.to_owned(), entry, user_field: Some(field) }),
            Some(known) if known.user_field.is_none() && known.entry != entry => self.dropped.add(field, name),
            Some(_) => {}
        }
        self
    }

    /// The variables that every container of ours gets, last.
    pub fn required(&mut self) -> &mut Self {
        let reads_secrets = self.variables.iter().any(|variable| variable.name.starts_with("TOOLHIVE_SECRET_"));
        self.value("XDG_CONFIG_HOME", "/tmp").value("HOME", "/tmp");
        self.value("TOOLHIVE_RUNTIME", "kubernetes").value("UNSTRUCTURED_LOGS", "false");
        if reads_secrets {
            self.value("TOOLHIVE_SECRETS_PROVIDER", "environment");
        }
        self
    }

    /// The list, for a container.
    pub fn list(&self) -> Value {
        self.variables.iter().map(|variable| variable.entry.clone()).collect()
    }

    /// The variables that the operator set, as entries of the list.
    pub(crate) fn stamped(&self) -> impl Iterator<Item = &Value> {
        self.variables.iter().filter(|variable| variable.user_field.is_none()).map(|variable| &variable.entry)
    }

    /// The variables of users that gave way to the operator's.
    pub(crate) const fn dropped(&self) -> &DroppedOverrides {
        &self.dropped
    }

    fn stamp(&mut self, name: &str, entry: Value) -> &mut Self {
        match self.variables.iter().position(|known| known.name == name) {
            None => {}
            Some(place) => match self.variables.get(place).and_then(|known| known.user_field) {
                None => return self,
                Some(field) => {
                    if self.variables.remove(place).entry != entry {
                        self.dropped.add(field, name);
                    }
                }
            },
        }
        self.variables.push(Variable { name: name.to_owned(), entry, user_field: None });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: &str = "spec.env";

    #[test]
    fn a_variable_of_the_operator_displaces_a_users_whichever_comes_first() {
        let mut env = Env::new();
        env.value("BEFORE", "ours").user(FIELD, "BEFORE", "theirs").user(FIELD, "AFTER", "theirs");
        env.user(FIELD, "FREE", "theirs").user(FIELD, "FREE", "again").field("AFTER", "metadata.name");
        let source = json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } });
        let expected = json!([
            { "name": "BEFORE", "value": "ours" },
            { "name": "FREE", "value": "theirs" },
            { "name": "AFTER", "valueFrom": source },
        ]);
        assert_eq!(env.list(), expected);
        let mut dropped = DroppedOverrides::default();
        dropped.add(FIELD, "AFTER");
        dropped.add(FIELD, "BEFORE");
        assert_eq!(env.dropped(), &dropped);
    }

    #[test]
    fn a_user_who_sets_what_the_operator_sets_loses_nothing() {
        let mut env = Env::new();
        env.value("A", "1").user(FIELD, "A", "1").user(FIELD, "B", "2").value("B", "2");
        assert_eq!(env.list(), json!([{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }]));
        assert_eq!(env.dropped(), &DroppedOverrides::default());
    }
}
