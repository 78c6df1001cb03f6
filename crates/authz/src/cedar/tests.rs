use serde_json::json;

use super::*;

fn engine(policies: &[&str], more: &Value) -> Cedar {
    let mut config = json!({ "policies": policies });
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    Cedar::new(&config).unwrap()
}

fn call(engine: &Cedar, claims: &Value, tool: &str, arguments: &Value) -> Decision {
    let query = Query {
        feature: Feature::Tool,
        operation: Operation::Call,
        id: tool,
        arguments: arguments.as_object(),
        annotations: Annotations::default(),
        backend: None,
    };
    match engine.principal(claims.as_object().unwrap()) {
        Ok(principal) => engine.decide(&principal, &query, "srv"),
        Err(denied) => denied,
    }
}

fn is_allowed(engine: &Cedar, claims: &Value, tool: &str) -> bool {
    call(engine, claims, tool, &json!({})).is_allowed
}

#[test]
fn a_policy_permits_what_it_names_and_nothing_else() {
    let engine = engine(
        &[
            r#"@id("weather for all") permit(principal, action == Action::"call_tool", resource == Tool::"weather");"#,
            r#"forbid(principal == Client::"eve", action, resource);"#,
        ],
        &json!({}),
    );
    let ada = json!({"sub": "ada"});
    let decision = call(&engine, &ada, "weather", &json!({}));
    assert_eq!((decision.is_allowed, decision.reason().as_str()), (true, "permitted by policy0 (weather for all)"));
    let decision = call(&engine, &ada, "delete", &json!({}));
    assert_eq!((decision.is_allowed, decision.reason().as_str()), (false, "denied: no policy permits it"));
    let decision = call(&engine, &json!({"sub": "eve"}), "weather", &json!({}));
    assert_eq!((decision.is_allowed, decision.reason().as_str()), (false, "forbidden by policy1"));
    for nameless in [json!({}), json!({"sub": ""}), json!({"sub": 1})] {
        assert_eq!(call(&engine, &nameless, "weather", &json!({})).reason(), "denied: the claims have no subject");
    }
}

#[test]
fn policies_can_refer_to_claims_arguments_groups_and_the_server() {
    let ada = json!({"sub": "ada", "email": "ada@example.com", "groups": ["dev"], "age": 36, "vip": true});
    for policy in [
        r#"permit(principal, action, resource) when { principal.claim_email == "ada@example.com" };"#,
        "permit(principal, action, resource) when { context.claim_vip };",
        r#"permit(principal in THVGroup::"dev", action, resource);"#,
        r#"permit(principal, action, resource in MCP::"srv");"#,
        r#"permit(principal, action, resource) when { context.arg_city == "Bern" };"#,
        r#"permit(principal, action, resource) when { resource.arg_city == "Bern" };"#,
        r#"permit(principal, action, resource) when { context.arg_limit.lessThan(decimal("5.5")) };"#,
        "permit(principal, action, resource) when { context.arg_filter_present && context has arg_none_present };",
        r#"permit(principal, action, resource) when { principal.claim_age.greaterThan(decimal("35.0")) };"#,
        r#"permit(principal, action, resource) when { resource.name == "weather" && resource.operation == "call" && resource.feature == "tool" };"#,
        r#"permit(principal, action, resource) when { action.operation == "call_tool" };"#,
    ] {
        let engine = engine(&[policy], &json!({}));
        let arguments = json!({"city": "Bern", "limit": 5, "filter": {"a": 1}, "none": null});
        let decision = call(&engine, &ada, "weather", &arguments);
        assert!(decision.is_allowed, "{policy}: {}", decision.reason());
        assert!(
            !call(&engine, &json!({"sub": "x"}), "other", &json!({})).is_allowed
                || policy.contains("MCP::")
                || policy.contains("call_tool")
        );
    }
}

#[test]
fn a_policy_that_fails_denies_even_what_another_permits() {
    let engine = engine(
        &[
            "permit(principal, action, resource);",
            r#"permit(principal, action, resource) when { principal.claim_missing == "x" };"#,
        ],
        &json!({}),
    );
    let decision = call(&engine, &json!({"sub": "ada"}), "weather", &json!({}));
    assert!(!decision.is_allowed && decision.reason().starts_with("denied: "), "{}", decision.reason());
}

#[test]
fn neither_arguments_nor_hints_displace_what_a_request_is() {
    let engine = engine(&[r#"permit(principal, action, resource) when { resource.name == "safe" };"#], &json!({}));
    let ada = json!({"sub": "ada"});
    assert!(!call(&engine, &ada, "evil", &json!({"name": "safe"})).is_allowed);
    let hinted = self::engine(
        &["permit(principal, action, resource) when { resource has readOnlyHint && resource.readOnlyHint };"],
        &json!({}),
    );
    let principal = hinted.principal(ada.as_object().unwrap()).unwrap();
    let with =
        |annotations| hinted.decide(&principal, &Query::of_element(Feature::Tool, "t", annotations), "srv").is_allowed;
    assert!(with(Annotations { read_only: Some(true), ..Annotations::default() }));
    assert!(!with(Annotations { read_only: Some(false), ..Annotations::default() }));
    assert!(!with(Annotations::default()), "what a tool does not say is not known");
}

#[test]
fn entities_of_the_configuration_keep_what_they_say_of_callers_groups_and_tools() {
    let entities = json!([
        {"uid": {"type": "THVGroup", "id": "dev"}, "attrs": {}, "parents": [{"type": "THVGroup", "id": "staff"}]},
        {"uid": {"type": "Client", "id": "ada"}, "attrs": {"level": 3, "claim_sub": "eve"}, "parents": [{"type": "Team", "id": "x"}]},
        {"uid": {"type": "Tool", "id": "weather"}, "attrs": {"owner": "ops"}, "parents": []},
    ]);
    let ada = json!({"sub": "ada", "groups": ["dev"]});
    for policy in [
        r#"permit(principal in THVGroup::"staff", action, resource);"#,
        r#"permit(principal in Team::"x", action, resource);"#,
        r#"permit(principal, action, resource) when { principal.level == 3 && principal.claim_sub == "ada" };"#,
        r#"permit(principal, action, resource) when { resource.owner == "ops" && resource.name == "weather" };"#,
        r#"permit(principal, action, resource in MCP::"srv");"#,
    ] {
        let engine = engine(&[policy], &json!({"entities_json": entities.to_string()}));
        let decision = call(&engine, &ada, "weather", &json!({}));
        assert!(decision.is_allowed, "{policy}: {}", decision.reason());
    }
}

#[test]
fn groups_have_the_type_and_the_claim_that_are_configured() {
    let more = json!({"group_entity_type": "Role", "group_claim_name": "realm.roles", "role_claim_name": "teams"});
    let engine = engine(&[r#"permit(principal in Role::"ops", action, resource);"#], &more);
    assert!(is_allowed(&engine, &json!({"sub": "a", "realm": {"roles": ["ops"]}}), "t"));
    assert!(is_allowed(&engine, &json!({"sub": "a", "teams": ["ops"]}), "t"));
    assert!(!is_allowed(&engine, &json!({"sub": "a", "groups": ["ops"]}), "t"));
}

#[test]
fn several_policies_of_one_text_have_places_of_their_own() {
    let engine = engine(
        &[
            "forbid(principal, action, resource) when { false };",
            r#"permit(principal, action, resource == Tool::"a"); permit(principal, action, resource == Tool::"b");"#,
        ],
        &json!({}),
    );
    let ada = json!({"sub": "ada"});
    assert_eq!(call(&engine, &ada, "a", &json!({})).policies, ["policy1"]);
    assert_eq!(call(&engine, &ada, "b", &json!({})).policies, ["policy1.1"]);
}

#[test]
fn strange_names_are_names_and_not_policies() {
    let engine = engine(&[r#"permit(principal == Client::"a", action, resource == Tool::"t");"#], &json!({}));
    for subject in ["a\"", "a\"; permit(principal, action, resource);", "A", "a\\", "Client::\"a\""] {
        assert!(!is_allowed(&engine, &json!({"sub": subject}), "t"), "{subject}");
    }
    assert!(is_allowed(&engine, &json!({"sub": "a"}), "t"));
    assert!(!is_allowed(&engine, &json!({"sub": "a"}), "t\""));
}

#[test]
fn without_a_token_of_the_upstream_provider_nothing_is_allowed() {
    let engine = engine(&["permit(principal, action, resource);"], &json!({"primary_upstream_provider": "github"}));
    assert!(!is_allowed(&engine, &json!({"sub": "ada"}), "t"));
}

#[test]
fn a_number_that_a_policy_cannot_see_denies_where_one_is_about_it() {
    let about = engine(
        &[
            "permit(principal, action, resource);",
            "forbid(principal, action, resource) when { context has arg_n && context.arg_n.lessThan(decimal(\"0.0\")) };",
        ],
        &json!({}),
    );
    let ada = json!({"sub": "ada"});
    assert!(call(&about, &ada, "t", &json!({"n": 5})).is_allowed);
    let denied = call(&about, &ada, "t", &json!({"n": -1e300}));
    assert_eq!(denied.reason(), "denied: `arg_n` is out of the range of a decimal");
    assert!(call(&about, &ada, "t", &json!({"m": -1e300})).is_allowed, "no policy is about it");
}

/// Left out, `forbid ... when { principal has claim_debt && ... }` would not apply.
#[test]
fn a_claim_that_a_policy_cannot_see_denies_where_one_is_about_it() {
    let about = engine(
        &[
            "permit(principal, action, resource);",
            "forbid(principal, action, resource) when { principal has claim_debt && principal.claim_debt.greaterThan(decimal(\"9.0\")) };",
        ],
        &json!({}),
    );
    assert!(is_allowed(&about, &json!({"sub": "ada", "debt": 5}), "t"));
    let deep = (0..12).fold(json!(1), |inner, _| json!([inner]));
    for hidden in [json!(1e300), json!([1, 1e300]), json!({"a": 1e18}), deep] {
        let decision = call(&about, &json!({"sub": "ada", "debt": hidden}), "t", &json!({}));
        assert!(!decision.is_allowed && decision.reason().starts_with("denied: `claim_debt` is"), "{hidden}");
        assert!(is_allowed(&about, &json!({"sub": "ada", "other": hidden}), "t"), "no policy is about it");
    }
    let whole = engine(&["permit(principal, action, resource) when { context != {a: 1} };"], &json!({}));
    assert!(!is_allowed(&whole, &json!({"sub": "ada", "debt": 1e300}), "t"));
}

#[test]
fn arguments_that_no_policy_names_cost_nothing_and_those_that_are_named_are_bounded() {
    let named = engine(&["permit(principal, action, resource) unless { context has arg_city };"], &json!({}));
    let all = engine(&["permit(principal, action, resource) when { context != {a: 1} };"], &json!({}));
    let many: Map<_, _> = (0..5_000).map(|number| (format!("a{number}"), json!("x"))).collect();
    let many = Value::Object(many).to_string();
    assert!(named.arguments(many.as_bytes()).unwrap().is_empty());
    assert_eq!(named.arguments(br#"{"city": "Bern", "x": 1}"#).unwrap().len(), 1);
    for (engine, arguments) in [(&all, many), (&named, json!({"city": "x".repeat(70_000)}).to_string())] {
        let denied = engine.arguments(arguments.as_bytes()).unwrap_err();
        assert!(!denied.is_allowed && denied.reason().contains("more than 1000 arguments"), "{}", denied.reason());
    }
    for strange in [r#"{"city": 1e999}"#, r#"{"city": 1, "city": 2}"#, "[1]"] {
        assert!(!named.arguments(strange.as_bytes()).unwrap_err().is_allowed, "{strange}");
    }
}

#[test]
fn reasons_have_no_values_of_claims_and_arguments() {
    let secret = "4111-1111-secret";
    for (condition, kind) in [
        ("decimal(context.arg_x) == decimal(\"1.0\")", "a function does not accept a value"),
        ("ip(context.claim_ip).isLoopback()", "a function does not accept a value"),
        ("context.arg_x < 5", "a value has another type"),
        ("context.arg_missing == 1", "it refers to an attribute that does not exist"),
        ("principal.missing == 1", "it refers to an attribute that does not exist"),
        ("Client::\"other\".claim_ip == 1", "it refers to an entity that does not exist"),
        ("9223372036854775807 + 1 == 1", "a number overflows"),
    ] {
        let policy = format!("@id(\"own name\") permit(principal, action, resource) when {{ {condition} }};");
        let decision =
            call(&engine(&[&policy], &json!({})), &json!({"sub": secret, "ip": secret}), "t", &json!({"x": secret}));
        let reason = decision.reason();
        assert!(
            reason.starts_with("denied: policy0 (own name) cannot be evaluated: ") && reason.contains(kind),
            "{reason}"
        );
        assert!(!format!("{decision:?}").contains("secret"), "{decision:?}");
    }
}

#[test]
fn many_decisions_about_one_caller_are_those_that_are_made_alone() {
    let entities = json!([
        {"uid": {"type": "Tool", "id": "b"}, "attrs": {"owner": "ops"}, "parents": [{"type": "Tool", "id": "a"}]},
        {"uid": {"type": "Tool", "id": "c"}, "attrs": {"kin": {"type": "Tool", "id": "a"}}, "parents": [{"type": "Tool", "id": "b"}]},
    ]);
    let engine = engine(
        &[
            r#"permit(principal, action, resource in Tool::"a");"#,
            r"permit(principal, action, resource) when { resource has kin && resource.kin has readOnlyHint };",
            r#"forbid(principal, action, resource) when { Tool::"a" has readOnlyHint && resource.name != "a" };"#,
        ],
        &json!({"entities_json": entities.to_string()}),
    );
    let principal = engine.principal(json!({"sub": "ada"}).as_object().unwrap()).unwrap();
    let mut evaluation = engine.evaluation(&principal, "srv");
    let read_only = Annotations { read_only: Some(true), ..Annotations::default() };
    for (tool, annotations) in [
        ("a", read_only),
        ("b", Annotations::default()),
        ("c", read_only),
        ("a", Annotations::default()),
        ("c", Annotations::default()),
        ("d", read_only),
        ("b", read_only),
    ] {
        let query = Query::of_element(Feature::Tool, tool, annotations);
        assert_eq!(evaluation.decide(&query), engine.decide(&principal, &query, "srv"), "{tool}");
    }
}

#[test]
fn annotations_of_tools_are_needed_where_a_policy_reads_them() {
    assert!(!engine(&["permit(principal, action, resource);"], &json!({})).needs_annotations());
    for hint in crate::query::HINTS {
        let policy = format!("permit(principal, action, resource) when {{ resource has {hint} }};");
        assert!(engine(&["permit(principal, action, resource);", &policy], &json!({})).needs_annotations());
    }
}

/// Behind a virtual server, a tool belongs to a backend as well, under whatever name it is seen.
#[test]
fn a_backend_is_a_parent_of_what_it_has() {
    let config = json!({
        "policies": [
            r#"permit(principal, action, resource in MCP::"github");"#,
            r#"permit(principal, action, resource in MCP::"srv") when { resource.name == "own" };"#,
            r#"forbid(principal, action, resource in MCP::"team");"#,
        ],
        "entities_json": r#"[{"uid":{"type":"MCP","id":"billing"},"parents":[{"type":"MCP","id":"team"}],"attrs":{}}]"#,
    });
    let cedar = Cedar::new(&config).unwrap();
    assert!(cedar.needs_backend());
    let claims = json!({ "sub": "ada" });
    let principal = cedar.principal(claims.as_object().unwrap()).unwrap();
    let decide = |id: &str, backend: Option<&str>| {
        let query = Query::of_element(Feature::Tool, id, Annotations::default());
        cedar.decide(&principal, &Query { backend, ..query }, "srv").is_allowed
    };
    assert!(decide("anything", Some("github")) && !decide("anything", Some("slack")) && !decide("anything", None));
    assert!(decide("own", None) && decide("own", Some("slack")));
    assert!(!decide("own", Some("billing")), "a backend has the parents that the entities give it");
    let plain =
        Cedar::new(&json!({ "policies": ["permit(principal, action, resource);"], "entities_json": "[]" })).unwrap();
    assert!(!plain.needs_backend());
}
