//! What the API server does with an object before it stores it, done without one: defaults, schema, cross-field rules.
//!
//! `skep check` and `skep run` have no API server, and their users deserve the same answers. The schema that decides is the one
//! in the CustomResourceDefinition; the tests put the same objects to a real API server and compare. One thing is stricter:
//! an unknown field is refused here, where the API server only warns.

mod structure;

use std::collections::BTreeMap;
use std::fmt;

use kube_cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use serde_json::Value;
use skep_bounds::OBJECT_VALUES;

use crate::crd::{self, CrdError, GROUP, STORED_VERSION};

/// Knows the schemas of all kinds and versions.
#[derive(Debug)]
pub struct Admission {
    kinds: BTreeMap<(String, String), Schema>,
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `spec.proxyPort`. Empty for the object as a whole.
    pub path: String,
    /// What is wrong, and what to do.
    pub message: String,
}

/// An object without problems.
#[derive(Clone, Debug, PartialEq)]
pub enum Admitted {
    /// An object of one of Skep's kinds, with defaults filled in.
    Ours(Value),
    /// An object of another API group; not validated.
    Foreign,
}

struct Schema {
    structural: Value,
    rules: CompiledSchema,
}

// === impl Admission ===

impl Admission {
    /// Reads the schemas out of the definitions.
    pub fn new() -> Result<Self, CrdError> {
        let mut kinds = BTreeMap::new();
        for definition in crd::all()? {
            for version in &definition.spec.versions {
                let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
                let structural = serde_json::to_value(schema).map_err(|source| CrdError::new(&definition, source))?;
                let rules = compile_schema(&structural);
                let key = (format!("{GROUP}/{}", version.name), definition.spec.names.kind.clone());
                kinds.insert(key, Schema { structural, rules });
            }
        }
        Ok(Self { kinds })
    }

    /// Validates one object. All its problems are listed, not only the first.
    pub fn admit(&self, object: &Value) -> Result<Admitted, Vec<Problem>> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        for (field, value) in [("apiVersion", &version), ("kind", &kind)] {
            if let Some(given) = object.get(field).filter(|given| !given.is_string() && !given.is_null()) {
                return Err(vec![structure::not_a_string(field, given)]);
            }
            if value.is_empty() {
                return Err(vec![Problem::new(field, "is missing; a manifest says what kind of object it is")]);
            }
        }
        if version.split('/').next() != Some(GROUP) {
            return self.misspelt_group(&version, &kind).map_or(Ok(Admitted::Foreign), |problem| Err(vec![problem]));
        }
        if object.get("spec").is_some_and(|spec| structure::has_more_values(spec, OBJECT_VALUES)) {
            let message = format!(
                "it has more than {OBJECT_VALUES} values (texts, numbers, lists and objects); write less, or split it"
            );
            return Err(vec![Problem::new("spec", &message)]);
        }
        let Some(schema) = self.kinds.get(&(version.clone(), kind.clone())) else {
            return Err(vec![self.unknown_kind(&version, &kind)]);
        };
        let object = apply_defaults(&schema.structural, object);
        let mut problems = structure::metadata_problems(&object);
        structure::check(&schema.structural, &object, "", &mut problems);
        // As on the API server: rules are evaluated only for objects that match the schema.
        if problems.is_empty()
            && let Err(errors) = Validator::new().validate_compiled(&schema.rules, &object, None)
        {
            problems.extend(errors.into_vec().into_iter().map(|error| Problem::new(&error.field_path, &error.message)));
        }
        if problems.is_empty() { Ok(Admitted::Ours(object)) } else { Err(problems) }
    }

    /// What is wrong with an object of a group and kind of ours whose version is not known.
    fn unknown_kind(&self, version: &str, kind: &str) -> Problem {
        if self.has_kind(kind) {
            return Problem::new("apiVersion", &format!("`{version}` is not served; write `{GROUP}/{STORED_VERSION}`"));
        }
        let known = self.kinds.keys().map(|(_, kind)| kind.as_str());
        let advice =
            structure::nearest(kind, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Problem::new("kind", &format!("`{kind}` is not a kind of {GROUP}{advice}"))
    }

    /// What is wrong with an object of one of our kinds whose group is almost ours, or left out. Other projects have kinds of
    /// the same names in groups of their own.
    fn misspelt_group(&self, version: &str, kind: &str) -> Option<Problem> {
        let group = version.split_once('/').map(|(group, _)| group);
        let is_meant = group.is_none_or(|group| structure::nearest(group, std::iter::once(GROUP)).is_some());
        (self.has_kind(kind) && is_meant).then(|| {
            let message = format!("`{version}` has no kind `{kind}`; write `{GROUP}/{STORED_VERSION}`");
            Problem::new("apiVersion", &message)
        })
    }

    fn has_kind(&self, kind: &str) -> bool {
        self.kinds.keys().any(|(_, known)| known == kind)
    }
}

// === impl Problem ===

impl Problem {
    fn new(path: &str, message: &str) -> Self {
        Self { path: path.to_owned(), message: message.to_owned() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(formatter, "{}", self.message)
        } else {
            write!(formatter, "{}: {}", self.path, self.message)
        }
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Schema").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_with_too_many_values_is_refused_before_all_else() {
        let admission = Admission::new().unwrap();
        let admitted = |values: usize| {
            let (version, spec) =
                (format!("{GROUP}/{STORED_VERSION}"), json!({ "image": "i", "args": vec![1; values] }));
            let object =
                json!({ "apiVersion": version, "kind": "MCPServer", "metadata": { "name": "a" }, "spec": spec });
            admission.admit(&object).unwrap_err()
        };
        // Beside the elements: the spec, its image, and the list.
        assert!(admitted(OBJECT_VALUES - 3).len() > 1);
        let refused = admitted(OBJECT_VALUES - 2);
        assert!(refused.len() == 1 && refused[0].message.starts_with("it has more than 20000 values"), "{refused:?}");
    }

    #[test]
    fn names_in_a_place_are_clipped() {
        let long = "x".repeat(100_000);
        let object = json!({ "apiVersion": format!("{GROUP}/{STORED_VERSION}"), "kind": "MCPToolConfig", "metadata": { "name": "a" },
            "spec": { "toolsOverride": { long: { "nmae": "b" } } } });
        let refused = Admission::new().unwrap().admit(&object).unwrap_err();
        assert!(
            refused[0].path.starts_with("spec.toolsOverride.xxx") && refused[0].path.ends_with("x….nmae"),
            "{refused:?}"
        );
        assert!(refused[0].path.len() < 120, "{refused:?}");
    }

    #[test]
    fn a_long_name_is_compared_with_none() {
        assert_eq!(structure::nearest("imgae", ["image"].into_iter()), Some("image"));
        assert_eq!(structure::nearest(&"x".repeat(1_000), ["x".repeat(1_001)].iter().map(String::as_str)), None);
    }
}
