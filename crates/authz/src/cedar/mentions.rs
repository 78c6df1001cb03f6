//! What policies refer to by name. Only that is made of a request: a client's arguments may be thousands, and hints of tools may have to be
//! obtained first.
//!
//! It is read off the parsed policies and not off their texts, where a name may be written with escapes. Too much is harmless; too little would
//! be a policy that does not apply.

use std::collections::BTreeSet;

use cedar_policy::{Policy, PolicySet};
use serde_json::Value;

use crate::query::HINTS;

/// The prefix of the attributes that arguments become.
const ARGUMENT: &str = "arg_";

/// The attributes that policies refer to.
#[derive(Debug, Default)]
pub(super) struct Mentions {
    attributes: BTreeSet<String>,
    /// Whether all attributes count: a policy has the context as a value, not only attributes of it.
    is_everything: bool,
}

// === impl Mentions ===

impl Mentions {
    pub(super) fn of(policies: &PolicySet) -> Self {
        let mut mentions = Self::default();
        for policy in policies.policies() {
            mentions.add(policy);
        }
        mentions
    }

    fn add(&mut self, policy: &Policy) {
        match policy.to_json() {
            Ok(policy) => self.walk(&policy),
            Err(_) => self.is_everything = true,
        }
    }

    /// Walks the tree of a policy, without recursion.
    fn walk(&mut self, policy: &Value) {
        let mut rest = vec![policy];
        while let Some(node) = rest.pop() {
            match node {
                Value::Array(nodes) => rest.extend(nodes),
                Value::Object(members) => {
                    // `{"Var": "context"}` that is not the left side of an access is a value.
                    self.is_everything |= is_context(node);
                    for (operator, operand) in members {
                        match (operator.as_str(), operand.get("left")) {
                            ("." | "has", Some(left)) => {
                                self.note(operand.get("attr"));
                                rest.extend(Some(left).filter(|left| !is_context(left)));
                            }
                            _ => rest.push(operand),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn note(&mut self, attribute: Option<&Value>) {
        match attribute {
            Some(Value::String(name)) => drop(self.attributes.insert(name.clone())),
            // Not a name in a form that is known here.
            _ => self.is_everything = true,
        }
    }

    /// Whether a policy may depend on an attribute.
    pub(super) fn has(&self, attribute: &str) -> bool {
        self.is_everything || self.attributes.contains(attribute)
    }

    /// Whether a policy may depend on an argument: on its value, or on its presence.
    pub(super) fn has_argument(&self, name: &str) -> bool {
        self.is_everything || self.has(&format!("{ARGUMENT}{name}")) || self.has(&format!("{ARGUMENT}{name}_present"))
    }

    /// Whether a policy may depend on what tools say about themselves. Hints are attributes of the tool, and not of the context.
    pub(super) fn has_hints(&self) -> bool {
        HINTS.iter().any(|hint| self.attributes.contains(*hint))
    }
}

fn is_context(node: &Value) -> bool {
    node.get("Var").and_then(Value::as_str) == Some("context")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(condition: &str) -> Mentions {
        let policy = format!("permit(principal, action, resource) when {{ {condition} }};");
        Mentions::of(&policy.parse().unwrap())
    }

    #[test]
    fn attributes_are_found_however_they_are_written() {
        for condition in [
            "context.arg_x == 1",
            "context has arg_x",
            r#"context["arg_x"] == 1"#,
            r#"context["\u{61}rg_x"] == 1"#,
            "resource.arg_x == 1",
            "resource has arg_x.y",
            "if resource has arg_x then true else false",
            "[1].contains(resource.arg_x)",
            "{a: context.arg_x}.a == 1",
            r#"resource.arg_x like "a*""#,
            "decimal(resource.arg_x) == decimal(\"1.0\")",
            "(if true then resource else principal).arg_x == 1",
        ] {
            let mentions = of(condition);
            assert!(mentions.has("arg_x") && mentions.has_argument("x"), "{condition}");
            assert!(!mentions.has("arg_z") && !mentions.has_argument("z"), "{condition}");
        }
        assert!(of("context.arg_list_present").has_argument("list"));
    }

    #[test]
    fn a_context_that_is_a_value_is_all_of_its_attributes() {
        for condition in [
            "context == {a: 1}",
            "[context].contains({a: 1})",
            "(if true then context else {}) has arg_x",
            "{a: context}.a has arg_x",
        ] {
            assert!(of(condition).has("arg_z"), "{condition}");
        }
        assert!(!of("resource == Tool::\"a\" && principal == Client::\"b\" && context has a").has("arg_z"));
    }

    #[test]
    fn hints_are_found_and_texts_that_look_like_them_are_not() {
        assert!(of("resource has destructiveHint && resource.destructiveHint").has_hints());
        assert!(of(r#"resource has "destructive\u{48}int""#).has_hints());
        assert!(!of(r#"resource.name == "destructiveHint" || context == {}"#).has_hints());
    }
}
