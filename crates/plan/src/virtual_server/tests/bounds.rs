//! What one virtual server may make a plan do, however much it refers to.

use super::*;

/// A configuration whose matchers have 16,200 tokens, as far as they count.
fn costly(name: &str) -> Resource {
    let mapping = json!({ "matcher": format!("claims.x in [{}]", vec!["-1"; 112].join(",")), "roleArn": "r" });
    aws(name, &vec![mapping; 8])
}

fn aws(name: &str, mappings: &[Value]) -> Resource {
    let spec = json!({ "type": "awsSts", "awsSts": { "region": "eu-central-1", "roleMappings": mappings } });
    resource(KindName::MCPExternalAuthConfig, name, &spec)
}

/// A spec in which each of these backends signs in by a configuration.
fn signing_in(source: &str, backends: impl IntoIterator<Item = (String, String)>) -> Value {
    let backends: serde_json::Map<String, Value> = backends
        .into_iter()
        .map(|(backend, config)| {
            (backend, json!({ "type": "externalAuthConfigRef", "externalAuthConfigRef": { "name": config } }))
        })
        .collect();
    with(&json!({ "outgoingAuth": { "source": source, "backends": backends } }))
}

/// The conditions about backends, in their order: whether each holds, and its message.
fn of_backends(plan: &Plan) -> Vec<(bool, &str)> {
    let all = plan.status.conditions().iter().filter(|one| one.kind.contains("AuthConfig-"));
    all.map(|one| (one.is_true(), one.message.as_str())).collect()
}

/// If it were validated at each reference, the budget for matchers would be spent with the fourth.
#[test]
fn a_configuration_is_validated_once_however_many_backends_refer_to_it() {
    let backends = (0..50).map(|number| (format!("b{number}"), "x".to_owned()));
    let plan = planned(&signing_in("inline", backends), &team().with(costly("x")));
    let told = of_backends(&plan);
    assert_eq!(told.len(), 50);
    assert!(told.iter().all(|(holds, _)| *holds), "{told:?}");

    let mut discovered = group().with(costly("x"));
    for number in 0..50 {
        let spec = json!({ "remoteUrl": "https://a.example/mcp", "transport": "sse", "groupRef": { "name": "team" }, "externalAuthConfigRef": { "name": "x" } });
        discovered = discovered.with(resource(KindName::MCPServerEntry, &format!("e{number}"), &spec));
    }
    let plan = planned(&with(&json!({ "outgoingAuth": { "source": "discovered" } })), &discovered);
    let told = of_backends(&plan);
    assert_eq!(told.len(), 50);
    assert!(told.iter().all(|(holds, _)| *holds), "{told:?}");
}

#[test]
fn the_matchers_of_all_configurations_are_bounded_together() {
    let mut all = team();
    for number in 0..6 {
        all = all.with(costly(&format!("x{number}")));
    }
    let backends = (0..6).map(|number| (format!("b{number}"), format!("x{number}")));
    let plan = planned(&signing_in("inline", backends), &all);
    let told = of_backends(&plan);
    assert_eq!(told.iter().map(|(holds, _)| *holds).collect::<Vec<_>>(), [true, true, true, true, false, false]);
    assert!(told[4].1.contains("have more than 65536 words and signs in their matchers"), "{told:?}");
}

#[test]
fn what_backends_take_over_is_bounded() {
    let mapping = json!({ "claim": "c".repeat(150_000), "roleArn": "r" });
    let all = team().with(aws("x", &[mapping.clone(), mapping]));
    let backends = (0..100).map(|number| (format!("b{number:02}"), "x".to_owned()));
    let plan = planned(&signing_in("inline", backends), &all);
    let told = of_backends(&plan);
    assert_eq!(told.iter().take_while(|(holds, _)| *holds).count(), 3, "{told:?}");
    assert!(told[99].1.contains("takes over more than 1048576 bytes of configurations"), "{:?}", told[99]);
}

#[test]
fn what_tools_take_over_is_bounded() {
    let tools = |count: usize| {
        let tools: Vec<Value> = (0..count)
            .map(|number| json!({ "workload": format!("w{number}"), "toolConfigRef": { "name": "c" } }))
            .collect();
        with(&json!({ "config": { "aggregation": { "tools": tools } } }))
    };
    let config = json!({ "toolsFilter": ["t".repeat(300_000)] });
    let all = team().with(resource(KindName::MCPToolConfig, "c", &config));
    assert_eq!(planned(&tools(3), &all).verdict, Verdict::Apply);
    let plan = planned(&tools(4), &all);
    let message = "spec.config.aggregation.tools take over more than 1048576 bytes of MCPToolConfigs";
    assert!(told(&plan, "ToolConfigValidated").2.starts_with(message), "{:?}", plan.verdict);
    assert_eq!(phase(&plan), "Failed");
    assert!(plan.children.is_empty());
}

#[test]
fn messages_about_backends_are_short() {
    let mapping = json!({ "matcher": "x".repeat(9_000), "roleArn": "r" });
    let all = team().with(aws("x", &vec![mapping; 6]));
    let backends = (0..100).map(|number| (format!("b{number}"), "x".to_owned()));
    for source in ["inline", "discovered"] {
        let plan = planned(&signing_in(source, backends.clone()), &all);
        assert!(of_backends(&plan).iter().all(|(holds, message)| !holds && message.len() <= 512));
    }
}

#[test]
fn more_entries_than_are_checked_are_refused_and_nothing_is_resolved() {
    let backends = (0..=1_000).map(|number| (format!("b{number}"), "missing".to_owned()));
    let tool = |steps: usize| {
        let steps: Vec<Value> = (0..steps).map(|number| json!({ "id": format!("s{number}"), "tool": "t" })).collect();
        json!({ "name": "t", "description": "d", "steps": steps })
    };
    let composite = |tools: Vec<Value>| with(&json!({ "config": { "compositeTools": tools } }));
    let references: Vec<Value> = (0..=100).map(|number| json!({ "name": format!("t{number}") })).collect();
    for (spec, expected) in [
        (signing_in("inline", backends), "spec.outgoingAuth.backends: there are 1001 entries; write at most 1000"),
        (
            composite(vec![tool(0); 101]),
            "spec.config.compositeTools: there are 101 tools with 0 steps; write at most 100 tools and 1000 steps",
        ),
        (
            composite(vec![tool(91); 11]),
            "spec.config.compositeTools: there are 11 tools with 1001 steps; write at most 100 tools and 1000 steps",
        ),
        (
            with(&json!({ "config": { "compositeToolRefs": references } })),
            "spec.config.compositeToolRefs: there are 101 tools with 0 steps; write at most 100 tools and 1000 steps",
        ),
    ] {
        let plan = planned(&spec, &team());
        assert_fails(&plan, false, "Failed", "Valid", "ValidationFailed");
        assert_eq!(told(&plan, "Valid").2, expected);
        assert!(plan.status.conditions().len() < 10, "{:?}", plan.status.conditions());
    }
}

#[test]
fn composite_tools_by_reference_have_a_number_of_steps() {
    let mut all = team();
    let steps: Vec<Value> = (0..100).map(|number| json!({ "id": format!("s{number}"), "tool": "t" })).collect();
    for number in 0..11 {
        let spec = json!({ "name": format!("t{number}"), "description": "d", "steps": steps });
        all = all.with(resource(KindName::VirtualMCPCompositeToolDefinition, &format!("t{number}"), &spec));
    }
    let references = |count: usize| {
        let references: Vec<Value> = (0..count).map(|number| json!({ "name": format!("t{number}") })).collect();
        with(&json!({ "config": { "compositeToolRefs": references } }))
    };
    assert_eq!(planned(&references(10), &all).verdict, Verdict::Apply);
    assert_fails(
        &planned(&references(11), &all),
        false,
        "Failed",
        "CompositeToolRefsValidated",
        "CompositeToolRefInvalid",
    );
}

#[test]
fn a_group_with_too_many_members_is_refused() {
    let entry = json!({ "remoteUrl": "https://a.example/mcp", "transport": "sse", "groupRef": { "name": "team" }, "externalAuthConfigRef": { "name": "x" } });
    let mut all = group();
    for number in 0..1_000 {
        all = all.with(resource(KindName::MCPServerEntry, &format!("e{number}"), &entry));
    }
    let spec = with(&json!({ "outgoingAuth": { "source": "discovered" } }));
    let plan = planned(&spec, &all);
    assert_eq!((&plan.verdict, of_backends(&plan).len()), (&Verdict::Apply, 1_000));
    let all = all.with(resource(KindName::MCPServerEntry, "more", &entry));
    let plan = planned(&spec, &all);
    assert_fails(&plan, false, "Failed", "MembersListed", "TooManyMembers");
    assert!(told(&plan, "Ready").2.contains("has 1001 members, and a virtual server serves at most 1000"));
    assert_eq!(of_backends(&plan).len(), 0);
}
