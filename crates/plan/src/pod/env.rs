//! The environment variables of a container, in the order in which they are written.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skep_bounds::ENV_VARIABLES;

use crate::overrides::DroppedOverrides;

/// The variables of one container: the operator's own, and those that a user adds.
///
/// A variable of the operator's displaces a user's of the same name, whichever is added first. Among variables of the same origin
/// the first one stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Env {
    /// In their order. One that was displaced leaves its place empty.
    variables: Vec<Option<Variable>>,
    /// The place of each, by name.
    places: BTreeMap<String, usize>,
    dropped: DroppedOverrides,
}

#[derive(Clone, Debug, PartialEq)]
struct Variable {
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
        match self.find(name) {
            None => self.push(name, entry, Some(field)),
            Some(known) if known.user_field.is_none() && known.entry != entry => self.dropped.add(field, name),
            Some(_) => {}
        }
        self
    }

    /// The variables that every container of ours gets, last.
    pub fn required(&mut self) -> &mut Self {
        let reads_secrets = self.places.keys().any(|name| name.starts_with("TOOLHIVE_SECRET_"));
        self.value("XDG_CONFIG_HOME", "/tmp").value("HOME", "/tmp");
        self.value("TOOLHIVE_RUNTIME", "kubernetes").value("UNSTRUCTURED_LOGS", "false");
        if reads_secrets {
            self.value("TOOLHIVE_SECRETS_PROVIDER", "environment");
        }
        self
    }

    /// The list, for a container.
    pub fn list(&self) -> Value {
        self.variables.iter().flatten().map(|variable| variable.entry.clone()).collect()
    }

    /// The variables that the operator set, as entries of the list.
    pub(crate) fn stamped(&self) -> impl Iterator<Item = &Value> {
        self.variables.iter().flatten().filter(|variable| variable.user_field.is_none()).map(|variable| &variable.entry)
    }

    /// The variables of users that gave way to the operator's.
    pub(crate) const fn dropped(&self) -> &DroppedOverrides {
        &self.dropped
    }

    fn stamp(&mut self, name: &str, entry: Value) -> &mut Self {
        match self.find(name).map(|known| (known.user_field, known.entry != entry)) {
            Some((None, _)) => return self,
            Some((Some(field), differs)) if differs => self.dropped.add(field, name),
            Some(_) | None => {}
        }
        self.push(name, entry, None);
        self
    }

    fn find(&self, name: &str) -> Option<&Variable> {
        self.places.get(name).and_then(|place| self.variables.get(*place)?.as_ref())
    }

    /// Adds a variable at the end; one of the same name leaves its place.
    fn push(&mut self, name: &str, entry: Value, user_field: Option<&'static str>) {
        let displaced = self.places.insert(name.to_owned(), self.variables.len());
        if let Some(place) = displaced.and_then(|place| self.variables.get_mut(place)) {
            *place = None;
        }
        self.variables.push(Some(Variable { entry, user_field }));
    }
}

/// Refuses more variables in a field than a container gets. Each is copied into every form that the pod template goes through.
pub(crate) fn check_count(field: &str, count: usize) -> Result<(), String> {
    if count <= ENV_VARIABLES {
        return Ok(());
    }
    Err(format!("{field}: there are {count} variables; write at most {ENV_VARIABLES}, or put them into a file"))
}

#[cfg(test)]
mod tests {
    use skep_api::resource::KindName;

    use super::*;
    use crate::plan::{Verdict, plan};
    use crate::validate::testing::{Surroundings, resource};

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
    #[test]
    fn a_variable_is_found_by_its_place_among_many() {
        let mut env = Env::new();
        for number in 0..40_000 {
            env.user(FIELD, &format!("E{number}"), "theirs");
        }
        for number in 0..20_000 {
            env.value(&format!("E{number}"), "ours");
        }
        let list = env.list();
        assert_eq!(list.as_array().map(Vec::len), Some(40_000));
        assert_eq!(list[0], json!({ "name": "E20000", "value": "theirs" }));
        assert_eq!(list[39_999], json!({ "name": "E19999", "value": "ours" }));
        assert_eq!((env.stamped().count(), env.dropped().listed().len()), (20_000, 20_000));
    }

    #[test]
    fn a_container_gets_a_thousand_variables_of_a_user() {
        assert_eq!(check_count(FIELD, 1_000), Ok(()));
        let refused = check_count(FIELD, 1_001).unwrap_err();
        assert!(refused.starts_with("spec.env: there are 1001 variables; write at most 1000"), "{refused}");
    }

    #[test]
    fn every_kind_that_takes_variables_counts_them() {
        let env: Vec<Value> = (0..1_001).map(|number| json!({ "name": format!("E{number}"), "value": "" })).collect();
        let overrides = json!({ "proxyDeployment": { "env": env } });
        for (kind, spec) in [
            (KindName::MCPServer, json!({ "image": "registry.example/a:1", "resourceOverrides": overrides })),
            (KindName::MCPRemoteProxy, json!({ "remoteUrl": "https://a.example", "resourceOverrides": overrides })),
            (KindName::EmbeddingServer, json!({ "model": "m", "env": env })),
        ] {
            let plan = plan(&resource(kind, "a", &spec), &Surroundings::default().world());
            let Verdict::Refuse(why) = &plan.verdict else { panic!("{kind}: {:?}", plan.verdict) };
            assert!(why.contains("there are 1001 variables; write at most 1000"), "{kind}: {why}");
            assert!(plan.children.is_empty(), "{kind}");
        }
    }
}
