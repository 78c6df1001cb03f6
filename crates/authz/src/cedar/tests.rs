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
fn a_number_that_no_policy_can_see_denies() {
    let engine = engine(&["permit(principal, action, resource);"], &json!({}));
    assert!(call(&engine, &json!({"sub": "ada"}), "t", &json!({"n": 5})).is_allowed);
    assert!(!call(&engine, &json!({"sub": "ada"}), "t", &json!({"n": 1e300})).is_allowed);
}
