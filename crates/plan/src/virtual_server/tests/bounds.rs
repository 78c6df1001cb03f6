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

/// A spec in which each of these backends is called with the credentials of a configuration.
fn with_outgoing_auth(source: &str, backends: impl IntoIterator<Item = (String, String)>) -> Value {
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
    let plan = planned(&with_outgoing_auth("inline", backends), &team().with(costly("x")));
    let reported = of_backends(&plan);
    assert_eq!(reported.len(), 50);
    assert!(reported.iter().all(|(holds, _)| *holds), "{reported:?}");

    let mut discovered = group().with(costly("x"));
    for number in 0..50 {
        let spec = json!({ "remoteUrl": "https://a.example/mcp", "transport": "sse", "groupRef": { "name": "team" }, "externalAuthConfigRef": { "name": "x" } });
        discovered = discovered.with(resource(KindName::MCPServerEntry, &format!("e{number}"), &spec));
    }
    let plan = planned(&with(&json!({ "outgoingAuth": { "source": "discovered" } })), &discovered);
    let reported = of_backends(&plan);
    assert_eq!(reported.len(), 50);
    assert!(reported.iter().all(|(holds, _)| *holds), "{reported:?}");
}

#[test]
fn the_matchers_of_all_configurations_are_bounded_together() {
    let mut all = team();
    for number in 0..6 {
        all = all.with(costly(&format!("x{number}")));
    }
    let backends = (0..6).map(|number| (format!("b{number}"), format!("x{number}")));
    let plan = planned(&with_outgoing_auth("inline", backends), &all);
    let reported = of_backends(&plan);
    assert_eq!(reported.iter().map(|(holds, _)| *holds).collect::<Vec<_>>(), [true, true, true, true, false, false]);
    assert!(reported[4].1.contains("have more than 65536 tokens in their matchers"), "{reported:?}");
}

#[test]
fn the_configurations_that_backends_inherit_are_bounded() {
    let mapping = json!({ "claim": "c".repeat(150_000), "roleArn": "r" });
    let all = team().with(aws("x", &[mapping.clone(), mapping]));
    let backends = (0..100).map(|number| (format!("b{number:02}"), "x".to_owned()));
    let plan = planned(&with_outgoing_auth("inline", backends), &all);
    let reported = of_backends(&plan);
    assert_eq!(reported.iter().take_while(|(holds, _)| *holds).count(), 3, "{reported:?}");
    assert!(
        reported[99].1.contains("takes over more than 1048576 bytes or 32768 values by reference"),
        "{:?}",
        reported[99]
    );
}

#[test]
fn the_configurations_that_tools_inherit_are_bounded() {
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
    let message = "spec.config.aggregation.tools: MCPToolConfig `c`: with it, this virtual server takes over more than 1048576 bytes";
    assert!(reported(&plan, "ToolConfigValidated").2.starts_with(message), "{:?}", plan.verdict);
    assert_eq!(phase(&plan), "Failed");
    assert!(plan.children.is_empty());
}

#[test]
fn messages_about_backends_are_short() {
    let mapping = json!({ "matcher": "x".repeat(9_000), "roleArn": "r" });
    let all = team().with(aws("x", &vec![mapping; 6]));
    let backends = (0..100).map(|number| (format!("b{number}"), "x".to_owned()));
    for source in ["inline", "discovered"] {
        let plan = planned(&with_outgoing_auth(source, backends.clone()), &all);
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
        (
            with_outgoing_auth("inline", backends),
            "spec.outgoingAuth.backends: there are 1001 entries; write at most 1000",
        ),
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
        assert_eq!(reported(&plan, "Valid").2, expected);
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
    assert!(reported(&plan, "Ready").2.contains("has 1001 members, and a virtual server serves at most 1000"));
    assert_eq!(of_backends(&plan).len(), 0);
}

/// An entry of the group with these members of `headerForward`.
fn entry(name: &str, url: &str, headers: &Value) -> Resource {
    let spec =
        json!({ "remoteUrl": url, "transport": "sse", "groupRef": { "name": "team" }, "headerForward": headers });
    resource(KindName::MCPServerEntry, name, &spec)
}

fn from_secret(headers: impl IntoIterator<Item = (String, &'static str)>) -> Value {
    let header = |(name, secret): (String, &str)| json!({ "headerName": name, "valueSecretRef": { "name": secret, "key": "k" } });
    json!({ "addHeadersFromSecret": headers.into_iter().map(header).collect::<Vec<_>>() })
}

fn inline() -> Value {
    with(&json!({ "outgoingAuth": { "source": "inline" } }))
}

const URL: &str = "https://a.example/mcp";

/// A hundred definitions of 39 KB took 600 MB: each was within its limits.
#[test]
fn composite_tools_by_reference_are_bounded_together() {
    let mut all = team();
    for number in 0..10 {
        let step = json!({ "id": "a", "tool": "t", "arguments": { "x": vec![json!({}); 5_000] } });
        let spec = json!({ "name": format!("t{number}"), "description": "d", "steps": [step] });
        all = all.with(resource(KindName::VirtualMCPCompositeToolDefinition, &format!("t{number}"), &spec));
    }
    let references = |count: usize| {
        let references: Vec<Value> = (0..count).map(|number| json!({ "name": format!("t{number}") })).collect();
        with(&json!({ "config": { "compositeToolRefs": references } }))
    };
    assert_eq!(planned(&references(6), &all).verdict, Verdict::Apply);
    let plan = planned(&references(7), &all);
    assert_fails(&plan, false, "Failed", "CompositeToolRefsValidated", "CompositeToolRefInvalid");
    assert!(reported(&plan, "CompositeToolRefsValidated").2.contains("1048576 bytes or 32768 values by reference"));
}

#[test]
fn the_headers_and_certificates_of_entries_are_bounded() {
    let headers = from_secret((0..90).map(|number| (format!("X-{number}"), "s")));
    let mut all = group().with_secret("s", "k");
    for number in 0..20 {
        all = all.with(entry(&format!("e{number:02}"), URL, &headers));
    }
    let plan = planned(&inline(), &all);
    assert_eq!(plan.verdict, Verdict::Apply);
    let condition = reported(&plan, "BackendsConfigured");
    assert!(condition.2.contains("`e10` is left out") && condition.2.contains("1000 are the most"), "{condition:?}");

    let headers = json!({ "addPlaintextHeaders": { "X-A": "a".repeat(16_000) } });
    let mut all = group();
    for number in 0..100 {
        all = all.with(entry(&format!("e{number:02}"), URL, &headers));
    }
    let plan = planned(&inline(), &all);
    let condition = reported(&plan, "BackendsConfigured");
    assert!(condition.2.contains("takes over more than 1048576 bytes"), "{condition:?}");
    let deployment = plan.children.iter().map(|child| child.body().to_string().len()).max().unwrap();
    assert!(deployment < 1_500_000, "{deployment}");
}

#[test]
fn an_entry_has_few_headers_and_a_short_url() {
    let long = format!("{URL}/{}", "a".repeat(8 * 1024));
    let many = from_secret((0..101).map(|number| (format!("X-{number}"), "s")));
    let large = json!({ "addPlaintextHeaders": { "X-A": "a".repeat(16 * 1024) } });
    for (url, headers, expected) in [
        (long.as_str(), json!({}), "and 8192 are the most"),
        (URL, many, "there are 101 headers, and 100 are the most"),
        (URL, large, "and 16384 are the most"),
    ] {
        let bad = entry("bad", url, &headers);
        let all = team().with_secret("s", "k").with(bad.clone());
        let plan = planned(&inline(), &all);
        let condition = reported(&plan, "BackendsConfigured");
        assert!(condition.2.contains("`bad` is left out") && condition.2.contains(expected), "{condition:?}");
        let own = crate::plan::plan(&bad, &all.world());
        assert!(reported(&own, "Valid").2.contains(expected), "{:?}", own.status);
    }
}

/// `HEADER_FORWARD_A_B_C` is the header `A-B` of `c`, and the header `A` of `b-c`.
#[test]
fn a_header_of_one_entry_never_arrives_at_another() {
    let one = |name: &str, header: &str, secret| entry(name, URL, &from_secret([(header.to_owned(), secret)]));
    let all = || group().with_secret("s", "k").with_secret("other", "k");
    let plan = planned(&inline(), &all().with(one("c", "A-B", "s")).with(one("b-c", "A", "other")));
    let condition = reported(&plan, "BackendsConfigured");
    let expected = "variable `TOOLHIVE_SECRET_HEADER_FORWARD_A_B_C` carries a header of another entry";
    assert!(condition.2.contains("`c` is left out") && condition.2.contains(expected), "{condition:?}");
    let plan = planned(&inline(), &all().with(one("c", "A-B", "s")).with(one("b-c", "A", "s")));
    assert!(reported(&plan, "BackendsConfigured").0, "{:?}", plan.status);

    let both = from_secret([("X-A".to_owned(), "s"), ("X_A".to_owned(), "other")]);
    let plan = planned(&inline(), &all().with(entry("e", URL, &both)));
    assert!(reported(&plan, "BackendsConfigured").0, "each has a variable of its own: {:?}", plan.status);
    let both = from_secret([("X-A".to_owned(), "s"), ("x-a".to_owned(), "other")]);
    let plan = planned(&inline(), &all().with(entry("e", URL, &both)));
    let condition = reported(&plan, "BackendsConfigured");
    assert!(condition.2.contains("headers `X-A` and `x-a` are the same header"), "{condition:?}");
}

#[test]
fn nothing_is_built_for_a_virtual_server_that_is_not_supported() {
    let mut all = team();
    all.settings.unsupported_by_vmcp = Some([Feature::VirtualServer].into());
    // What only building it would find is not found.
    let template = json!({ "spec": { "containers": [{ "name": "vmcp", "$patch": "improve" }] } });
    let plan = planned(&with(&json!({ "podTemplateSpec": template })), &all);
    assert!(plan.children.is_empty() && matches!(plan.verdict, Verdict::Refuse(_)), "{:?}", plan.verdict);
    assert_eq!(reported(&plan, "Ready").1, "NotSupported");
}
