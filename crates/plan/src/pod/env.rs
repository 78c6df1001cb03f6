//! The environment variables of a container with their sources, in the order in which they are written.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skep_bounds::ENV_VARIABLES;

use crate::error::PlanError;
use crate::overrides::DroppedOverrides;

/// Variables of every container of ours, for which a process has values of its own.
pub(crate) const OF_PODS: [(&str, &str); 4] =
    [("XDG_CONFIG_HOME", "/tmp"), ("HOME", "/tmp"), ("TOOLHIVE_RUNTIME", "kubernetes"), ("UNSTRUCTURED_LOGS", "false")];

/// The variables of one container: the operator's own, and those that a user adds.
///
/// A variable of the operator's displaces a user's of the same name, whichever is added first. Among variables of the same origin
/// the first one stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Env {
    /// In their order. One that was displaced leaves its place empty.
    variables: Vec<Option<Owned>>,
    /// The place of each, by name.
    places: BTreeMap<String, usize>,
    dropped: DroppedOverrides,
}

/// An environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Where its value comes from.
    pub source: EnvSource,
}

/// Where the value of an environment variable comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvSource {
    /// The value itself.
    Value(String),
    /// A key of a Secret.
    Secret(KeySelector),
    /// A key of a ConfigMap.
    ConfigMap(KeySelector),
    /// The pod: the path of one of its fields, or empty for what only a kubelet knows.
    Pod(String),
}

/// A key of a Secret or ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySelector {
    /// The name of the object.
    pub name: String,
    /// The key.
    pub key: String,
    /// Whether the variable is left out where the key does not exist.
    pub optional: bool,
}

/// A variable, and who set it.
#[derive(Clone, Debug, PartialEq)]
struct Owned {
    variable: Variable,
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
        self.stamp(Variable::value(name, value))
    }

    /// A key of a Secret.
    pub fn secret(&mut self, name: &str, secret: &str, key: &str) -> &mut Self {
        self.stamp(Variable::secret(name, secret, key))
    }

    /// A field of the pod itself.
    pub fn field(&mut self, name: &str, path: &str) -> &mut Self {
        self.stamp(Variable { name: name.to_owned(), source: EnvSource::Pod(path.to_owned()) })
    }

    /// A variable that a user sets in `field`. It never displaces one of the operator's.
    pub fn user(&mut self, field: &'static str, name: &str, value: &str) -> &mut Self {
        let variable = Variable::value(name, value);
        match self.find(name) {
            None => self.push(variable, Some(field)),
            Some(known) if known.user_field.is_none() && known.variable != variable => self.dropped.add(field, name),
            Some(_) => {}
        }
        self
    }

    /// The variables that every container of ours gets, last.
    pub fn required(&mut self) -> &mut Self {
        let reads_secrets = self.places.keys().any(|name| name.starts_with("TOOLHIVE_SECRET_"));
        for (name, value) in OF_PODS {
            self.value(name, value);
        }
        if reads_secrets {
            self.value("TOOLHIVE_SECRETS_PROVIDER", "environment");
        }
        self
    }

    /// The list, for a container.
    pub fn list(&self) -> Value {
        self.variables().map(Variable::entry).collect()
    }

    /// The variables in their order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.variables.iter().flatten().map(|owned| &owned.variable)
    }

    /// The variables that the operator set.
    pub(crate) fn stamped(&self) -> impl Iterator<Item = &Variable> {
        let owned = self.variables.iter().flatten();
        owned.filter(|owned| owned.user_field.is_none()).map(|owned| &owned.variable)
    }

    /// The variables of users that gave way to the operator's.
    pub(crate) const fn dropped(&self) -> &DroppedOverrides {
        &self.dropped
    }

    fn stamp(&mut self, variable: Variable) -> &mut Self {
        match self.find(&variable.name).map(|known| (known.user_field, known.variable != variable)) {
            Some((None, _)) => return self,
            Some((Some(field), differs)) if differs => self.dropped.add(field, &variable.name),
            Some(_) | None => {}
        }
        self.push(variable, None);
        self
    }

    fn find(&self, name: &str) -> Option<&Owned> {
        self.places.get(name).and_then(|place| self.variables.get(*place)?.as_ref())
    }

    /// Adds a variable at the end; one of the same name leaves its place.
    fn push(&mut self, variable: Variable, user_field: Option<&'static str>) {
        let displaced = self.places.insert(variable.name.clone(), self.variables.len());
        if let Some(place) = displaced.and_then(|place| self.variables.get_mut(place)) {
            *place = None;
        }
        self.variables.push(Some(Owned { variable, user_field }));
    }
}

/// Refuses more variables in a field than a container gets. Each is copied into every form that the pod template goes through.
pub(crate) fn check_count(field: &str, count: usize) -> Result<(), PlanError> {
    if count <= ENV_VARIABLES {
        return Ok(());
    }
    let advice = format_args!("write at most {ENV_VARIABLES}, or put them into a file");
    Err(PlanError::field(field, format_args!("there are {count} variables; {advice}")))
}

// === impl Variable ===

impl Variable {
    /// A plain value.
    pub fn value(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), source: EnvSource::Value(value.to_owned()) }
    }

    /// A key of a Secret.
    pub fn secret(name: &str, secret: &str, key: &str) -> Self {
        let selector = KeySelector { name: secret.to_owned(), key: key.to_owned(), optional: false };
        Self { name: name.to_owned(), source: EnvSource::Secret(selector) }
    }

    /// The variables that a user's pod template gives to a container.
    pub(crate) fn of_container(container: &Value) -> Vec<Self> {
        let list = container.get("env").and_then(Value::as_array).into_iter().flatten();
        // A directive of a strategic merge patch is not a variable.
        list.filter(|entry| entry.get("$patch").is_none()).map(Self::of_entry).collect()
    }

    /// The entry of a container's list.
    pub(crate) fn entry(&self) -> Value {
        let source = match &self.source {
            EnvSource::Value(value) => return json!({ "name": self.name, "value": value }),
            EnvSource::Secret(selector) => json!({ "secretKeyRef": selector.to_value() }),
            EnvSource::ConfigMap(selector) => json!({ "configMapKeyRef": selector.to_value() }),
            // The API server would fill in the version; it is sent, so that what we own is what is there.
            EnvSource::Pod(path) => json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": path } }),
        };
        json!({ "name": self.name, "valueFrom": source })
    }

    fn of_entry(entry: &Value) -> Self {
        let from = |source: &str| entry.get("valueFrom").and_then(|from| from.get(source));
        let text = |object: &Value, member: &str| -> String {
            object.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let selector = |reference: &Value| KeySelector {
            name: text(reference, "name"),
            key: text(reference, "key"),
            optional: reference.get("optional").and_then(Value::as_bool).unwrap_or_default(),
        };
        let source = if let (None, Some(_)) = (entry.get("value").and_then(Value::as_str), entry.get("valueFrom")) {
            let secret = from("secretKeyRef").map(|reference| EnvSource::Secret(selector(reference)));
            let map = || from("configMapKeyRef").map(|reference| EnvSource::ConfigMap(selector(reference)));
            let field = || EnvSource::Pod(from("fieldRef").map(|field| text(field, "fieldPath")).unwrap_or_default());
            secret.or_else(map).unwrap_or_else(field)
        } else {
            EnvSource::Value(text(entry, "value"))
        };
        Self { name: text(entry, "name"), source }
    }
}

// === impl KeySelector ===

impl KeySelector {
    fn to_value(&self) -> Value {
        let mut value = json!({ "name": self.name, "key": self.key });
        if let (true, Some(value)) = (self.optional, value.as_object_mut()) {
            value.insert("optional".to_owned(), json!(true));
        }
        value
    }
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
        let refused = check_count(FIELD, 1_001).unwrap_err().to_string();
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
