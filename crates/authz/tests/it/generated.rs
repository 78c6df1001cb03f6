//! Ten thousand generated policies and requests decide as Cedar called directly, with every claim, argument and hint as an attribute: what the
//! engine leaves out, because no policy is about it, changes no decision.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use cedar_policy::{
    Authorizer, Context, Decision as Effect, Entities, Entity, EntityUid, PolicySet, Request, RestrictedExpression,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use skep_authz::cedar::Cedar;
use skep_authz::query::{Annotations, Feature, Operation, Query};

/// How many sets of policies are generated, and how many requests for each.
const SETS: u32 = 2_000;
const REQUESTS: usize = 5;

const SCOPES: &[&str] = &[
    "principal, action, resource",
    r#"principal == Client::"ada", action, resource"#,
    r#"principal in THVGroup::"staff", action, resource"#,
    r#"principal, action == Action::"call_tool", resource"#,
    r#"principal, action in [Action::"get_prompt", Action::"read_resource"], resource"#,
    r#"principal, action, resource == Tool::"weather""#,
    r#"principal, action, resource in MCP::"srv""#,
    "principal is Client, action, resource is Resource",
];
const ATOMS: &[&str] = &[
    "true",
    r#"principal.claim_email == "ada@example.com""#,
    r#"principal has claim_level && principal.claim_level.greaterThan(decimal("3.0"))"#,
    "context has claim_vip && context.claim_vip",
    r#"principal has claim_groups && principal.claim_groups.contains("dev")"#,
    r#"principal in THVGroup::"dev""#,
    r#"context.arg_city == "Bern""#,
    r#"context has arg_city && context.arg_city like "B*""#,
    r#"context has arg_limit && context.arg_limit.lessThan(decimal("5.5"))"#,
    "resource has arg_dry && resource.arg_dry",
    "context has arg_list_present && !(context has arg_none_present)",
    "resource has readOnlyHint && resource.readOnlyHint",
    "resource has destructiveHint && resource.destructiveHint",
    r#"resource.name == "weather" || resource.feature == "prompt""#,
    r#"resource has uri && resource.uri like "file:///*""#,
    r#"action.operation == "call_tool""#,
    // These fail, for some requests or for all.
    r#"decimal(context.arg_city) == decimal("1.0")"#,
    "principal.claim_missing == 1",
    "resource.readOnlyHint",
    // These have the whole context.
    "context == {}",
    "[context].containsAny([{arg_dry: true}])",
    r#"context["arg_city"] == "Bern" && context["\u{61}rg_dry"]"#,
];

fn condition() -> impl Strategy<Value = String> {
    let atom = select(ATOMS).prop_map(str::to_owned);
    atom.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("({left}) && ({right})")),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("({left}) || ({right})")),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("if {left} then {right} else false")),
            inner.prop_map(|inner| format!("!({inner})")),
        ]
    })
}

fn policies() -> impl Strategy<Value = Vec<String>> {
    let effect = prop_oneof![3 => Just("permit"), 1 => Just("forbid")];
    let word = prop_oneof![4 => Just("when"), 1 => Just("unless")];
    let policy = (effect, select(SCOPES), prop::option::weighted(0.8, (word, condition())));
    let policy = policy.prop_map(|(effect, scope, condition)| match condition {
        None => format!("{effect}({scope});"),
        Some((word, condition)) => format!("{effect}({scope}) {word} {{ {condition} }};"),
    });
    prop::collection::vec(policy, 1..6)
}

/// Some members of an object.
fn some(members: &[(&'static str, Value)]) -> impl Strategy<Value = Map<String, Value>> + use<> {
    let all = members.to_vec();
    let length = all.len();
    subsequence(all, 0..=length)
        .prop_map(|some| some.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn claims() -> impl Strategy<Value = Map<String, Value>> {
    let more = some(&[
        ("email", json!("ada@example.com")),
        ("groups", json!(["dev", "x"])),
        ("level", json!(4)),
        ("vip", json!(true)),
        ("exp", json!(1_900_000_000)),
        ("act", json!({"sub": "agent", "none": null, "deep": [[1.5]]})),
    ]);
    (select(vec!["ada", "bob"]), more).prop_map(|(subject, mut claims)| {
        claims.insert("sub".to_owned(), subject.into());
        claims
    })
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    let city = select(vec![json!("Bern"), json!("1.0"), json!("Biel")]);
    let more = some(&[
        ("limit", json!(5)),
        ("dry", json!(true)),
        ("list", json!([])),
        ("none", json!(null)),
        ("other", json!(-0.5)),
    ]);
    (prop::option::of(city), more).prop_map(|(city, mut arguments)| {
        arguments.extend(city.map(|city| ("city".to_owned(), city)));
        arguments
    })
}

fn annotations() -> impl Strategy<Value = Annotations> {
    let (hint, other) = (any::<Option<bool>>(), any::<Option<bool>>());
    (hint, other).prop_map(|(read_only, destructive)| Annotations { read_only, destructive, ..Annotations::default() })
}

/// What is asked: a thing, and what is done with it.
fn target() -> impl Strategy<Value = (Feature, Operation, &'static str)> {
    select(vec![
        (Feature::Tool, Operation::Call, "weather"),
        (Feature::Tool, Operation::Call, "delete"),
        (Feature::Prompt, Operation::Get, "greeting"),
        (Feature::Resource, Operation::Read, "file:///a"),
        (Feature::Tool, Operation::List, ""),
    ])
}

fn entities() -> Value {
    json!([
        {"uid": {"type": "THVGroup", "id": "dev"}, "attrs": {}, "parents": [{"type": "THVGroup", "id": "staff"}]},
        {"uid": {"type": "THVGroup", "id": "staff"}, "attrs": {"floor": 3}, "parents": []},
    ])
}

/// A value as an attribute, written as Cedar text.
fn expression(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => value.to_string(),
        Value::String(text) => format!("{text:?}"),
        Value::Number(number) => format!("decimal(\"{:.4}\")", number.as_f64().unwrap()),
        Value::Array(values) => {
            format!("[{}]", values.iter().filter_map(expression).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let members = members.iter().filter_map(|(name, value)| Some(format!("{name:?}: {}", expression(value)?)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
    })
}

fn attribute(name: String, value: &Value) -> Option<(String, RestrictedExpression)> {
    Some((name, expression(value)?.parse().unwrap()))
}

fn uid(text: &str) -> EntityUid {
    text.parse().unwrap()
}

/// What Cedar itself says, with everything that a policy could refer to.
fn directly(policies: &[String], claims: &Map<String, Value>, query: &Query<'_>) -> bool {
    let set: PolicySet = policies.concat().parse().unwrap();
    let of_claims: HashMap<_, _> =
        claims.iter().filter_map(|(name, value)| attribute(format!("claim_{name}"), value)).collect();
    let of_arguments = query.arguments.into_iter().flatten().filter_map(|(name, value)| match value {
        Value::Null | Value::Array(_) | Value::Object(_) => attribute(format!("arg_{name}_present"), &json!(true)),
        scalar => attribute(format!("arg_{name}"), scalar),
    });
    let of_arguments: HashMap<_, _> = of_arguments.collect();
    let groups = claims.get("groups").and_then(Value::as_array).into_iter().flatten();
    let groups: HashSet<_> = groups.map(|group| uid(&format!("THVGroup::{group}"))).collect();
    let principal = Entity::new(uid(&format!("Client::{}", claims["sub"])), of_claims.clone(), groups).unwrap();
    let (action, kind) = match (query.operation, query.feature) {
        (Operation::List, _) => ("list_tools", "FeatureType"),
        (_, Feature::Tool) => ("call_tool", "Tool"),
        (_, Feature::Prompt) => ("get_prompt", "Prompt"),
        (_, Feature::Resource) => ("read_resource", "Resource"),
    };
    let id = if query.operation == Operation::List { "tool" } else { query.id };
    let mut of_resource = of_arguments.clone();
    let known = query.annotations.known().map(|(name, hint)| (name, json!(hint)));
    let own =
        [("name", json!(id)), ("operation", json!(query.operation.name())), ("feature", json!(query.feature.name()))];
    let of_kind = match (query.operation, query.feature) {
        (Operation::List, feature) => Some(("type", json!(feature.name()))),
        (_, Feature::Resource) => Some(("uri", json!(id))),
        _ => None,
    };
    for (name, value) in known.chain(own).chain(of_kind) {
        of_resource.extend(attribute(name.to_owned(), &value));
    }
    let parent = HashSet::from([uid("MCP::\"srv\"")]);
    let resource = Entity::new(uid(&format!("{kind}::{id:?}")), of_resource, parent).unwrap();
    let of_action = HashMap::from_iter(attribute("operation".to_owned(), &json!(action)));
    let action = Entity::new(uid(&format!("Action::{action:?}")), of_action, HashSet::new()).unwrap();
    let context = Context::from_pairs(of_claims.into_iter().chain(of_arguments)).unwrap();
    let request = Request::new(principal.uid(), action.uid(), resource.uid(), context, None).unwrap();
    let entities = Entities::from_json_value(entities(), None).unwrap();
    let entities = entities.add_entities([principal, action, resource], None).unwrap();
    let response = Authorizer::new().is_authorized(&request, &set, &entities);
    response.decision() == Effect::Allow && response.diagnostics().errors().next().is_none()
}

#[test]
fn ten_thousand_policies_and_requests_decide_as_cedar_called_directly() {
    let requests = prop::collection::vec((claims(), arguments(), annotations(), target()), REQUESTS);
    let mut runner = TestRunner::new(Config { cases: SETS, ..Config::default() });
    let (allowed, denied, failed) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let result = runner.run(&(policies(), requests), |(policies, requests)| {
        let config = json!({ "policies": policies, "entities_json": entities().to_string() });
        let engine = Cedar::new(&config).unwrap();
        for (claims, arguments, annotations, (feature, operation, id)) in requests {
            let all = Query { feature, operation, id, arguments: Some(&arguments), annotations, backend: None };
            let expected = directly(&policies, &claims, &all);
            // As a proxy does: only what the policies are about.
            let wanted = engine.arguments(Value::Object(arguments.clone()).to_string().as_bytes()).unwrap();
            let annotations = if engine.needs_annotations() { annotations } else { Annotations::default() };
            let query = Query { arguments: Some(&wanted), annotations, ..all };
            let principal = engine.principal(&claims).unwrap();
            let decision = engine.decide(&principal, &query, "srv");
            prop_assert_eq!(
                decision.is_allowed,
                expected,
                "{:?} {:?} {:?}: {}",
                policies,
                claims,
                all,
                decision.reason()
            );
            let count = if expected { &allowed } else { &denied };
            count.set(count.get() + 1);
            failed.set(failed.get() + usize::from(!decision.errors.is_empty()));
        }
        Ok(())
    });
    result.unwrap();
    assert!(allowed.get() + denied.get() >= 10_000);
    // The generator is of use only if there is some of everything.
    let least = allowed.get().min(denied.get()).min(failed.get());
    assert!(least > 500, "{allowed:?} {denied:?} {failed:?}");
}
