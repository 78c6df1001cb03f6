//! Policies and entities as people write them: in documentation, examples and issues of Cedar and of ToolHive. All of them must
//! be accepted, and entities must mean what they mean to Go's Cedar.

use cedar_policy::{Authorizer, Context, Decision, Entities, EntityUid, PolicySet, Request};
use serde_json::{Value, json};
use skep_authz::{check, entities};

const POLICIES: &[&str] = &[
    "permit(principal, action, resource);",
    "permit(principal, action == Action::\"call_tool\", resource == Tool::\"weather\");",
    "permit(principal, action == Action::\"call_tool\", resource == Tool::\"fetch\");\n",
    "permit(principal, action == Action::\"get_prompt\", resource == Prompt::\"greeting\");",
    "permit(principal, action == Action::\"read_resource\", resource == Resource::\"file:///data/report.txt\");",
    "permit(principal == Client::\"alice@example.com\", action, resource);",
    "permit(principal in THVGroup::\"engineering\", action == Action::\"call_tool\", resource);",
    "permit(principal in THVRole::\"admin\", action, resource in MCP::\"weather\");",
    "permit(principal, action in [Action::\"call_tool\", Action::\"get_prompt\"], resource);",
    "permit(principal is Client, action, resource is Tool);",
    "permit(principal is Client in THVGroup::\"admins\", action, resource);",
    "forbid(principal, action == Action::\"call_tool\", resource == Tool::\"delete_database\");",
    "forbid(principal, action, resource) unless { principal.claim_email like \"*@example.com\" };",
    "permit(principal, action == Action::\"call_tool\", resource) when { resource has readOnlyHint && resource.readOnlyHint == true };",
    "permit(principal, action, resource) when { principal.claim_roles.contains(\"admin\") };",
    "permit(principal, action, resource) when { principal.claim_roles.containsAny([\"admin\", \"operator\"]) };",
    "permit(principal, action == Action::\"call_tool\", resource == Tool::\"calculator\") when { context.arg_operation == \"add\" || context.arg_operation == \"subtract\" };",
    "permit(principal, action, resource) when { context has arg_limit && context.arg_limit.lessThan(decimal(\"100.0\")) };",
    "permit(principal, action, resource)\nwhen {\n  // only from the office\n  context has arg_ip && ip(\"10.0.0.0/8\").isInRange(ip(\"10.0.0.0/8\"))\n};",
    "@id(\"admins\")\n@description(\"Administrators (all of them) may do everything\")\npermit(principal, action, resource) when { principal.claim_groups.contains(\"admins\") };",
    "permit(principal, action, resource) when { if context has arg_dry_run then context.arg_dry_run == true else false };",
    "permit(principal, action, resource) when { principal has claim_org.team && principal.claim_org.team == \"ml\" };",
    "permit(principal, action, resource) when { principal.claim_level >= 3 && !(principal.claim_suspended) };",
    "permit(principal, action, resource) when { [\"a\", \"b\", \"c\"].contains(resource.name) };",
    "permit(principal, action, resource) when { {\"a\": 1, b: 2}.b == 2 };",
    "permit(principal, action, resource) when { datetime(\"2024-10-15\") < datetime(\"2025-10-15\") };",
    "permit(principal, action, resource) when { principal.claim_sub == \"it's \\\"quoted\\\" \\u{1F600} (\" };",
    "permit(principal, action, resource); forbid(principal, action, resource) when { context.claim_blocked };",
    "\n\n  // a comment\n  permit (\n    principal,\n    action == Action::\"call_tool\",\n    resource\n  );\n",
    "permit(principal, action, resource) when { resource.arg_path like \"/home/*/public/*\" } unless { resource.arg_path like \"*..*\" };",
];

/// Texts of entities, and what `member` must be: whether `User::"alice"` is in `Group::"admins"`.
fn entities_as_written() -> Vec<(Value, bool)> {
    let alice = json!({ "type": "User", "id": "alice" });
    let admins = json!({ "type": "Group", "id": "admins" });
    vec![
        (json!([]), false),
        (json!(null), false),
        (json!([{ "uid": alice, "attrs": {}, "parents": [admins] }]), true),
        (json!([{ "uid": alice, "parents": [admins] }]), true),
        (json!([{ "uid": alice, "attrs": { "level": 3 } }]), false),
        (json!([{ "uid": alice }]), false),
        (json!([{ "uid": alice, "attrs": null, "parents": null, "tags": null }]), false),
        (json!([{ "uid": alice, "parents": [admins], "comment": "on call", "_links": [1] }]), true),
        (json!([{ "uid": { "__entity": alice }, "parents": [{ "__entity": admins }] }]), true),
        (
            json!([{ "uid": { "type": "User", "id": "alice", "name": "Alice" }, "parents": [{ "type": "Group", "id": "admins", "x": 1 }] }]),
            true,
        ),
        (
            json!([{ "uid": alice, "parents": [{ "type": "Team", "id": "ops" }] }, { "uid": { "type": "Team", "id": "ops" }, "parents": [admins] }]),
            true,
        ),
        (
            json!([{ "uid": alice, "parents": [admins] }, { "uid": admins, "attrs": { "owner": { "__entity": alice } } }]),
            true,
        ),
        (json!([{ "uid": alice, "parents": [alice, admins] }]), true),
        (json!([{ "uid": alice, "parents": [admins] }, { "uid": alice, "parents": [] }]), false),
        (json!([{ "uid": alice }, { "uid": alice, "parents": [admins] }]), true),
        (json!([{ "UID": alice, "Parents": [admins], "Attrs": { "a": 1 } }]), true),
        (
            json!([{ "uid": alice, "attrs": { "ip": { "__extn": { "fn": "ip", "arg": "10.0.0.1", "why": "office" } } }, "parents": [admins] }]),
            true,
        ),
        (
            json!([{ "uid": alice, "attrs": { "nested": { "deep": [{ "x": true }, { "x": false }] } }, "tags": { "t": "v" } }]),
            false,
        ),
        (json!([null, { "uid": alice, "parents": [admins] }]), true),
        (
            json!([{ "uid": { "type": "Corp::Group", "id": "" }, "parents": [] }, { "uid": alice, "parents": [admins] }]),
            true,
        ),
    ]
}

fn is_member(text: &str) -> bool {
    let entities = entities::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let policy: PolicySet = "permit(principal in Group::\"admins\", action, resource);".parse().unwrap();
    is_allowed(&policy, &entities)
}

/// Whether a policy permits what `User::"alice"` does.
fn is_allowed(policy: &PolicySet, entities: &Entities) -> bool {
    let uid = |text: &str| text.parse::<EntityUid>().unwrap();
    let request =
        Request::new(uid("User::\"alice\""), uid("Action::\"a\""), uid("Tool::\"t\""), Context::empty(), None).unwrap();
    Authorizer::new().is_authorized(&request, policy, entities).decision() == Decision::Allow
}

#[test]
fn policies_as_people_write_them_are_accepted() {
    for policy in POLICIES {
        assert_eq!(check("cedarv1", &json!({ "policies": [policy] })), Ok(()), "{policy}");
    }
    assert_eq!(check("cedarv1", &json!({ "policies": POLICIES })), Ok(()));
}

#[test]
fn entities_as_people_write_them_mean_what_the_original_makes_of_them() {
    let cases = entities_as_written();
    assert!(POLICIES.len() + cases.len() >= 25);
    for (entities, expected) in cases {
        let text = entities.to_string();
        assert_eq!(is_member(&text), expected, "{text}");
        let config = json!({ "policies": [POLICIES[0]], "entities_json": text });
        assert_eq!(check("cedarv1", &config), Ok(()), "{text}");
    }
    for blank in ["", " \n"] {
        assert!(!is_member(blank));
    }
}

/// References to entities in attributes, as people write them, and the condition that must be true of them.
#[test]
fn attributes_refer_to_entities_in_both_forms() {
    let admins = json!({ "type": "Group", "id": "admins" });
    for (attribute, condition) in [
        (json!({ "__entity": admins }), "principal.a == Group::\"admins\""),
        (admins.clone(), "principal.a == Group::\"admins\""),
        (admins.clone(), "principal.a in Group::\"all\""),
        (json!({ "Type": "Group", "ID": "admins" }), "principal.a == Group::\"admins\""),
        (json!({ "type": "Group", "id": "admins", "note": [1] }), "principal.a == Group::\"admins\""),
        (json!([admins, { "type": "Group", "id": "users" }]), "principal.a.contains(Group::\"users\")"),
        (json!({ "deep": { "in": [admins] } }), "principal.a.deep[\"in\"].contains(Group::\"admins\")"),
        // These are records.
        (json!({ "type": "Group" }), "principal.a.type == \"Group\""),
        (json!({ "type": "Group", "id": 1 }), "principal.a.id == 1"),
        (json!({ "type": { "type": "Group", "id": "admins" }, "id": "x" }), "principal.a.type == Group::\"admins\""),
    ] {
        let alice = json!({ "uid": { "type": "User", "id": "alice" }, "attrs": { "a": attribute }, "tags": { "a": attribute } });
        let group = json!({ "uid": admins, "parents": [{ "type": "Group", "id": "all" }] });
        let entities = entities::parse(&json!([alice, group]).to_string()).unwrap();
        let policy: PolicySet = format!("permit(principal, action, resource) when {{ {condition} }};").parse().unwrap();
        assert!(is_allowed(&policy, &entities), "{attribute}: {condition}");
    }
}

#[test]
fn policies_that_no_implementation_reads_are_refused_with_the_place() {
    for (text, expected) in [
        ("{", "not valid JSON"),
        ("{}", "the text is not a list of entities"),
        ("[1]", "[0] is not an entity"),
        ("[{}]", "[0].uid is not an entity"),
        (r#"[{"uid":"User::\"a\""}]"#, "[0].uid is not an entity"),
        (r#"[{"uid":{"type":"User"}}]"#, "[0].uid is not an entity"),
        (r#"[{"uid":{"type":"User","id":7}}]"#, "[0].uid is not an entity"),
        (r#"[{"uid":{"type":"U","id":"a"},"parents":{}}]"#, "[0].parents is not a list"),
        (r#"[{"uid":{"type":"U","id":"a"},"parents":[{"type":"U","id":"b"},"x"]}]"#, "[0].parents[1] is not an entity"),
        (r#"[{"uid":{"type":"U","id":"a"},"attrs":[]}]"#, "[0].attrs is not an object"),
        (r#"[{"uid":{"type":"U","id":"a"},"attrs":{"n":1.5}}]"#, "not a list of Cedar entities"),
        (r#"[{"uid":{"type":"U","id":"a"},"attrs":{"n":null}}]"#, "not a list of Cedar entities"),
    ] {
        let error = entities::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected) && error.lines().count() == 1, "{text}: {error}");
    }
}
