//! The backends of a virtual server, and the credentials it calls them with.

use super::*;
use crate::world::Found;

/// A server of each kind and transport.
pub(super) fn mixed() -> Surroundings {
    let member = |spec: Value| {
        let mut spec = spec;
        spec["groupRef"] = json!({ "name": "team" });
        spec
    };
    let server =
        |transport: &str, mode: &str| member(json!({ "image": "i", "transport": transport, "proxyMode": mode }));
    let entry = member(json!({
        "remoteUrl": "https://mcp.example.com/mcp",
        "transport": "sse",
        "externalAuthConfigRef": { "name": "key" },
        "caBundleRef": { "configMapRef": { "name": "ca", "key": "" } },
        "headerForward": {
            "addPlaintextHeaders": { "X-Team": "a" },
            "addHeadersFromSecret": [{ "headerName": "X-Key", "valueSecretRef": { "name": "s", "key": "k" } }],
        },
    }));
    let proxy = member(json!({ "remoteUrl": "https://other.example.com", "proxyPort": 9090 }));
    group()
        .with(resource(KindName::MCPServer, "sse", &server("sse", "streamable-http")))
        .with(resource(KindName::MCPServer, "stdio", &server("stdio", "sse")))
        .with(resource(KindName::MCPServer, "http", &server("streamable-http", "sse")))
        .with(resource(KindName::MCPRemoteProxy, "proxy", &proxy))
        .with(resource(KindName::MCPServerEntry, "entry", &entry))
        .with(resource(KindName::MCPServer, "stranger", &json!({ "image": "i" })))
        .with(header_config("key", "s"))
        .with_secret("s", "k")
}

fn header_config(name: &str, secret: &str) -> Resource {
    let spec = json!({ "type": "headerInjection", "headerInjection": {
        "headerName": "X-Api-Key", "valueSecretRef": { "name": secret, "key": "k" },
    }});
    resource(KindName::MCPExternalAuthConfig, name, &spec)
}

pub(super) fn inline() -> Value {
    with(&json!({ "outgoingAuth": { "source": "inline" } }))
}

fn explicit(name: &str) -> Value {
    json!({ "type": "externalAuthConfigRef", "externalAuthConfigRef": { "name": name } })
}

fn outgoing(source: &str, default: &Value, backends: &Value) -> Value {
    with(&json!({ "outgoingAuth": { "source": source, "default": default, "backends": backends } }))
}

#[test]
fn members_stand_in_the_configuration_as_they_really_speak() {
    let plan = planned(&inline(), &mixed());
    let config = config(&plan);
    let seen: Vec<(&str, &str, &str)> = config["backends"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["transport"].as_str().unwrap(), one["url"].as_str().unwrap()))
        .collect();
    let expected = [
        ("entry", "sse", "https://mcp.example.com/mcp"),
        ("http", "streamable-http", "http://mcp-http-proxy.ns.svc.cluster.local:8080/mcp"),
        ("proxy", "streamable-http", "http://mcp-proxy-remote-proxy.ns.svc.cluster.local:9090"),
        ("sse", "sse", "http://mcp-sse-proxy.ns.svc.cluster.local:8080/sse#sse"),
        ("stdio", "sse", "http://mcp-stdio-proxy.ns.svc.cluster.local:8080/sse#stdio"),
    ];
    assert_eq!(seen, expected);
    let entry = &config["backends"][0];
    assert_eq!(
        (&entry["type"], &entry["caBundlePath"]),
        (&json!("entry"), &json!("/etc/toolhive/ca-bundles/entry/ca.crt"))
    );
    let metadata = json!({
        "tool_type": "mcp", "workload_type": "server_entry", "namespace": "ns", "group": "team",
        "remote_url": "https://mcp.example.com/mcp",
    });
    assert_eq!(entry["metadata"], metadata);
    assert!(reported(&plan, "BackendsConfigured").0);
    assert_eq!(child(&plan, ChildKind::Role)["rules"].as_array().unwrap().len(), 2);
}

#[test]
fn the_state_of_a_member_changes_nothing() {
    let object = json!({
        "metadata": { "name": "http", "namespace": "ns", "annotations": { "note": "n" } },
        "spec": { "image": "i", "transport": "streamable-http", "groupRef": { "name": "team" } },
        "status": { "phase": "Failed" },
    });
    let flipped = mixed().with(Resource::from_value(KindName::MCPServer, object).unwrap());
    assert_eq!(planned(&inline(), &flipped).children, planned(&inline(), &mixed()).children);
}

#[test]
fn headers_and_authorities_of_entries_reach_the_pod() {
    let plan = planned(&inline(), &mixed());
    let expected = [
        "VMCP_NAME",
        "VMCP_NAMESPACE",
        "TOOLHIVE_HEADER_FORWARD_ENTRY",
        "TOOLHIVE_SECRET_HEADER_FORWARD_X_KEY_ENTRY",
        "VMCP_SESSION_HMAC_SECRET",
        "XDG_CONFIG_HOME",
        "HOME",
        "TOOLHIVE_RUNTIME",
        "UNSTRUCTURED_LOGS",
        "TOOLHIVE_SECRETS_PROVIDER",
    ];
    assert_eq!(variables(&plan), expected);
    let manifest = container(&plan)["env"][2]["value"].as_str().unwrap().to_owned();
    let expected =
        r#"{"addHeadersFromSecret":{"X-Key":"HEADER_FORWARD_X_KEY_ENTRY"},"addPlaintextHeaders":{"X-Team":"a"}}"#;
    assert_eq!(manifest, expected);
    let pod = child(&plan, ChildKind::Deployment)["spec"]["template"]["spec"].clone();
    let volume = json!({ "name": "ca-bundle-entry", "configMap": {
        "name": "ca", "items": [{ "key": "ca.crt", "path": "ca.crt" }], "optional": true,
    }});
    assert_eq!(pod["volumes"][1], volume);
    let mount = json!({ "name": "ca-bundle-entry", "mountPath": "/etc/toolhive/ca-bundles/entry", "readOnly": true });
    assert_eq!(pod["containers"][0]["volumeMounts"][1], mount);
    let long = resource(
        KindName::MCPServerEntry,
        &"e".repeat(200),
        &json!({
            "remoteUrl": "https://mcp.example.com", "transport": "sse", "groupRef": { "name": "team" },
            "caBundleRef": { "configMapRef": { "name": "ca", "key": "" } },
        }),
    );
    let pod = child(&planned(&inline(), &mixed().with(long)), ChildKind::Deployment);
    let name = pod["spec"]["template"]["spec"]["volumes"][1]["name"].as_str().unwrap().to_owned();
    assert!(crate::text::is_dns_label(&name), "{name}");
}

#[test]
fn a_change_that_pods_read_through_a_member_rolls_them() {
    let stamp = |surroundings: &Surroundings| {
        let deployment = child(&planned(&inline(), surroundings), ChildKind::Deployment);
        deployment["spec"]["template"]["metadata"]["annotations"][crate::pod::INPUTS].clone()
    };
    let before = stamp(&mixed());
    assert!(before.is_string());
    assert_ne!(stamp(&mixed().with_config_map("ca", "ca.crt")), before);
}

#[test]
fn discovered_members_leave_no_trace_in_the_pod() {
    let plan = planned(&spec(), &mixed());
    assert_eq!(plan.children, planned(&spec(), &group()).children);
    assert_eq!(reported(&plan, "DiscoveredAuthConfig-entry").1, "ConversionSucceeded");
    let mut poor = mixed();
    poor.found.retain(|key, _| key.name != "s");
    let plan = planned(&spec(), &poor);
    assert_eq!(plan.verdict, Verdict::Apply);
    let (holds, reason, message) = reported(&plan, "DiscoveredAuthConfig-entry");
    assert_eq!((holds, reason.as_str()), (false, "ConversionFailed"));
    assert_eq!(message, "MCPExternalAuthConfig `key`: Secret `s` not found; create it with the key `k`");
}

#[test]
fn each_kind_of_outgoing_authentication_becomes_a_strategy() {
    let config_of = |name: &str, spec: Value| resource(KindName::MCPExternalAuthConfig, name, &spec);
    let surroundings = mixed()
        .with(config_of("none", json!({ "type": "unauthenticated" })))
        .with(config_of("exchange", json!({ "type": "tokenExchange", "tokenExchange": {
            "tokenUrl": "https://t.example", "audience": "a", "clientId": "c", "subjectTokenType": "jwt",
            "clientSecretRef": { "name": "s", "key": "k" },
        }})))
        .with(config_of("aws", json!({ "type": "awsSts", "awsSts": {
            "region": "eu-west-1", "fallbackRoleArn": "arn:aws:iam::123456789012:role/r",
        }})))
        .with(config_of("xaa", json!({ "type": "xaa", "xaa": {
            "idpTokenUrl": "https://idp.example/t", "targetTokenUrl": "https://t.example/t", "targetAudience": "https://t.example",
            "idpClientId": "i", "idpClientSecretRef": { "name": "s", "key": "k" },
            "targetClientId": "t", "targetClientSecretRef": { "name": "s", "key": "k" },
        }})))
        .with(config_of("bearer", json!({ "type": "bearerToken", "bearerToken": { "tokenSecretRef": { "name": "s", "key": "k" } } })))
        .with(config_of("obo", json!({ "type": "obo", "obo": {} })));
    let backends = json!({
        "aws": explicit("aws"), "bearer": explicit("bearer"), "exchange": explicit("exchange"), "gone": explicit("gone"),
        "none": explicit("none"), "obo": explicit("obo"), "xaa": explicit("xaa"),
    });
    let plan = planned(&outgoing("discovered", &explicit("key"), &backends), &surroundings);
    assert_eq!(plan.verdict, Verdict::Apply);
    let written = config(&plan)["outgoingAuth"].clone();
    assert_eq!(
        written["default"],
        json!({ "type": "header_injection", "headerInjection": {
            "headerName": "X-Api-Key", "headerValueEnv": "TOOLHIVE_HEADER_INJECTION_VALUE_KEY",
        }})
    );
    assert_eq!(
        written["backends"]["exchange"],
        json!({ "type": "token_exchange", "tokenExchange": {
            "tokenUrl": "https://t.example", "clientId": "c", "audience": "a",
            "clientSecretEnv": "TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET_EXCHANGE",
            "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
        }})
    );
    assert_eq!(written["backends"]["aws"]["awsSts"]["region"], "eu-west-1");
    assert_eq!(written["backends"]["xaa"]["xaa"]["idpClientSecretEnv"], "TOOLHIVE_XAA_IDP_CLIENT_SECRET_XAA");
    // A backend whose strategy fails is called without credentials, and never with the default's key.
    for (name, reason) in [("bearer", "ConversionFailed"), ("gone", "ConversionFailed"), ("obo", "NotSupported")] {
        assert_eq!(written["backends"][name], json!({ "type": "unauthenticated" }), "{name}");
        assert_eq!(reported(&plan, &format!("BackendAuthConfig-{name}")).1, reason);
    }
    assert_eq!(reported(&plan, "DefaultAuthConfig").1, "ConversionSucceeded");
    let secrets = [
        "TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET_EXCHANGE",
        "TOOLHIVE_XAA_IDP_CLIENT_SECRET_XAA",
        "TOOLHIVE_XAA_TARGET_CLIENT_SECRET_XAA",
        "TOOLHIVE_HEADER_INJECTION_VALUE_KEY",
    ];
    assert_eq!(variables(&plan)[2..6], secrets);
}

#[test]
fn a_member_without_resolved_credentials_is_left_out_of_the_configuration() {
    let spec =
        outgoing("inline", &Value::Null, &json!({ "http": explicit("gone"), "entry": { "type": "discovered" } }));
    let plan = planned(&spec, &mixed());
    assert_eq!(plan.verdict, Verdict::Apply);
    let config = config(&plan);
    assert!(!config["backends"].as_array().unwrap().iter().any(|one| one["name"] == "http"));
    assert_eq!(config["outgoingAuth"]["backends"]["entry"]["type"], "header_injection", "as the entry itself says");
    let (holds, reason, message) = reported(&plan, "BackendsConfigured");
    assert_eq!((holds, reason.as_str()), (false, "BackendsLeftOut"));
    assert!(message.contains("`http` is left out: MCPExternalAuthConfig `gone` not found"), "{message}");
}

#[test]
fn a_dangerous_entry_is_left_out() {
    let entry = json!({ "remoteUrl": "http://169.254.169.254/", "transport": "sse", "groupRef": { "name": "team" } });
    let plan = planned(&inline(), &team().with(resource(KindName::MCPServerEntry, "metadata", &entry)));
    assert_eq!(config(&plan)["backends"].as_array().unwrap().len(), 2);
    assert_eq!(reported(&plan, "BackendsConfigured").1, "BackendsLeftOut");
}

#[test]
fn a_group_without_members_is_waited_for_where_they_must_be_named() {
    assert_fails(&planned(&inline(), &group()), true, "Pending", "BackendsConfigured", "NoBackends");
    assert_eq!(planned(&spec(), &group()).verdict, Verdict::Apply);
    let named = json!({ "backends": [{ "name": "b", "url": "http://b", "transport": "sse" }] });
    let mut named_spec = inline();
    named_spec["config"] = named;
    assert_eq!(planned(&named_spec, &group()).verdict, Verdict::Apply);
}

#[test]
fn two_configurations_never_share_a_variable() {
    let surroundings =
        mixed().with(header_config("a.b", "s")).with(header_config("a-b", "other")).with_secret("other", "k");
    let spec = outgoing("discovered", &Value::Null, &json!({ "one": explicit("a.b"), "two": explicit("a-b") }));
    let plan = planned(&spec, &surroundings);
    assert_eq!(reported(&plan, "BackendAuthConfig-one").1, "ConversionSucceeded");
    assert_eq!(reported(&plan, "BackendAuthConfig-two").1, "ConversionFailed");
}

#[test]
fn the_subject_of_an_exchange_is_the_only_upstream_provider() {
    let exchange =
        json!({ "type": "tokenExchange", "tokenExchange": { "tokenUrl": "https://t.example", "audience": "a" } });
    let inject = json!({ "type": "upstreamInject", "upstreamInject": { "providerName": "one" } });
    let own = json!({ "type": "inline", "inline": { "issuer": "https://mcp.example" } });
    let surroundings = team()
        .with(resource(KindName::MCPExternalAuthConfig, "exchange", &exchange))
        .with(resource(KindName::MCPExternalAuthConfig, "inject", &inject))
        .with(resource(KindName::MCPOIDCConfig, "own", &own));
    let upstream = |name: &&str| json!({ "name": name, "type": "oidc", "oidcConfig": { "issuerUrl": "https://up.example", "clientId": "c" } });
    let with_upstreams = |names: &[&str]| {
        let mut spec =
            outgoing("discovered", &Value::Null, &json!({ "a": explicit("exchange"), "b": explicit("inject") }));
        let incoming =
            json!({ "name": "own", "audience": "https://mcp.example", "resourceUrl": "https://mcp.example" });
        spec["incomingAuth"] = json!({ "type": "oidc", "oidcConfigRef": incoming });
        let upstreams: Vec<Value> = names.iter().map(upstream).collect();
        spec["authServerConfig"] = json!({ "issuer": "https://mcp.example", "upstreamProviders": upstreams });
        planned(&spec, &surroundings)
    };
    let plan = with_upstreams(&["one"]);
    assert_eq!(config(&plan)["outgoingAuth"]["backends"]["a"]["tokenExchange"]["subjectProviderName"], "one");
    assert_eq!(config(&plan)["outgoingAuth"]["backends"]["b"]["upstreamInject"]["providerName"], "one");
    let plan = with_upstreams(&["one", "two"]);
    assert_eq!(reported(&plan, "BackendAuthConfig-a").1, "AmbiguousSubjectProvider");
    assert_eq!(reported(&plan, "BackendAuthConfig-b").1, "ConversionSucceeded");
    assert_eq!(reported(&with_upstreams(&["two"]), "BackendAuthConfig-b").1, "ConversionFailed");
    let without = planned(&outgoing("discovered", &explicit("inject"), &json!({})), &surroundings);
    assert_eq!(reported(&without, "DefaultAuthConfig").1, "ConversionFailed");
}

#[test]
fn headers_of_one_entry_never_reach_another() {
    let entry = |headers: &Value| {
        json!({
            "remoteUrl": "https://mcp.example.com", "transport": "sse", "groupRef": { "name": "team" }, "headerForward": headers,
        })
    };
    let surroundings = group().with(resource(KindName::MCPServerEntry, "a-b", &entry(&Value::Null))).with(resource(
        KindName::MCPServerEntry,
        "a.b",
        &entry(&json!({ "addPlaintextHeaders": { "X-Key": "k" } })),
    ));
    let plan = planned(&inline(), &surroundings);
    assert_eq!(config(&plan)["backends"].as_array().unwrap().len(), 1);
    assert!(!variables(&plan).contains(&"TOOLHIVE_HEADER_FORWARD_A_B".to_owned()));
    assert_eq!(reported(&plan, "BackendsConfigured").1, "BackendsLeftOut");
}

/// As the operator plans for Skep's own image, which lacks these features.
fn for_own_image(mut surroundings: Surroundings, lacked: &[Feature]) -> Surroundings {
    surroundings.settings.unsupported_by_vmcp = Some(lacked.iter().copied().collect());
    surroundings
}

#[test]
fn credentials_that_do_not_resolve_are_never_replaced_by_none_or_by_the_default() {
    let backends = json!({ "gone": explicit("gone"), "entry": { "type": "discovered" } });
    let plan = planned(&outgoing("discovered", &explicit("missing"), &backends), &for_own_image(mixed(), &[]));
    assert_eq!(plan.verdict, Verdict::Apply);
    let written = config(&plan)["outgoingAuth"].clone();
    assert_eq!(written["backends"]["gone"], json!({ "type": UNRESOLVED }));
    assert_eq!(written["backends"]["entry"], json!({ "type": DISCOVERED }));
    assert_eq!(written["default"], json!({ "type": UNRESOLVED }));
    assert_eq!(reported(&plan, "DefaultAuthConfig").1, "ConversionFailed");
}

#[test]
fn a_strategy_that_the_image_lacks_concerns_its_backend_alone() {
    let xaa = json!({ "type": "xaa", "xaa": {
        "idpTokenUrl": "https://idp.example/t", "targetTokenUrl": "https://t.example/t", "targetAudience": "https://t.example",
        "idpClientId": "i", "idpClientSecretRef": { "name": "s", "key": "k" },
    }});
    let all = mixed().with(resource(KindName::MCPExternalAuthConfig, "xaa", &xaa));
    let all = for_own_image(all, &[Feature::CrossAppAccess]);
    let plan =
        planned(&outgoing("inline", &json!({ "type": "discovered" }), &json!({ "entry": explicit("xaa") })), &all);
    assert_eq!(plan.verdict, Verdict::Apply);
    let (holds, reason, message) = reported(&plan, "BackendAuthConfig-entry");
    assert_eq!((holds, reason.as_str()), (false, "NotSupported"), "{message}");
    assert!(!config(&plan)["backends"].to_string().contains(r#""name":"entry""#));
}

#[test]
fn a_configuration_that_the_process_refuses_is_not_applied() {
    let all = || for_own_image(team(), &[Feature::CodeMode, Feature::Optimizer, Feature::EmbeddedAuthServer]);
    for (config, place) in [
        (json!({ "codeMode": { "enabled": true } }), "spec.config.codeMode"),
        (json!({ "optimizer": { "embeddingService": "http://e" } }), "spec.config.optimizer"),
    ] {
        let plan = planned(&with(&json!({ "config": config })), &all());
        let (holds, reason, message) = reported(&plan, "Ready");
        assert_eq!((holds, reason.as_str()), (false, "NotSupported"), "{message}");
        assert!(plan.children.is_empty() && message.contains(place), "{message}");
    }
    let optimizer = |settings: &Value| {
        planned(&with(&json!({ "config": { "optimizer": settings } })), &for_own_image(team(), &[Feature::CodeMode]))
    };
    let plan = optimizer(&json!({ "embeddingService": "http://e" }));
    assert_eq!((plan.verdict, plan.children.is_empty()), (Verdict::Apply, false), "the image has it");
    let plan = optimizer(&json!({ "embeddingService": "e:80" }));
    let Verdict::Refuse(why) = &plan.verdict else { panic!("{:?}", plan.verdict) };
    assert_eq!(why, "spec.config: optimizer.embeddingService must begin with http:// or https://");
    let plan = planned(&with(&json!({ "config": { "operatoinal": {} } })), &all());
    let Verdict::Refuse(why) = &plan.verdict else { panic!("{:?}", plan.verdict) };
    assert_eq!(why, "spec.config: unknown field `operatoinal`");
    let broken = json!({ "name": "t", "description": "d", "steps": [{ "id": "a", "tool": "t", "arguments": { "q": "{{if}}" } }] });
    let plan = planned(&with(&json!({ "config": { "compositeTools": [broken] } })), &all());
    let Verdict::Refuse(why) = &plan.verdict else { panic!("{:?}", plan.verdict) };
    assert!(why.contains("compositeTools[0].steps[0].arguments.q"), "{why}");
}

/// The same rows as in the configuration of an inline virtual server, and what each is called with.
#[test]
fn members_are_found_as_an_inline_configuration_names_them() {
    let mut all = mixed().with_config_map("ca", "ca.crt");
    let before = discovered(&all.world(), "ns", "team");
    assert!(before.values().any(|member| matches!(member, Err(error) if error.to_string().contains("no URL yet"))));
    for found in all.found.values_mut() {
        let Found::Resource(resource) = found else { continue };
        let url = json!({ "url": "http://x" });
        let mut value = json!({ "metadata": resource.metadata(), "spec": resource.spec_value() });
        if matches!(resource.kind(), KindName::MCPServer | KindName::MCPRemoteProxy) {
            value["status"] = url;
        }
        *found = Found::Resource(Resource::from_value(resource.kind(), value).unwrap().into());
    }
    let members = discovered(&all.world(), "ns", "team");
    let inline = planned(&outgoing("inline", &json!({ "type": "discovered" }), &json!({})), &all);
    let rows: Vec<Value> = members.values().map(|one| json!(one.as_ref().unwrap().backend)).collect();
    assert_eq!(json!(rows), config(&inline)["backends"]);
    let entry = members["entry"].as_ref().unwrap();
    assert_eq!(json!(entry.strategy.as_ref().unwrap()), config(&inline)["outgoingAuth"]["backends"]["entry"]);
    let needed = materials(&all.world(), "ns", "team");
    assert!(needed.keys().any(|key| key.name == "s"), "{needed:?}");

    // Without its Secret it is left out, and no other is.
    all.found.retain(|key, _| key.name != "s");
    let members = discovered(&all.world(), "ns", "team");
    assert!(members["entry"].as_ref().unwrap_err().to_string().contains("Secret `s` not found"));
    assert!(members.values().filter(|member| member.is_ok()).count() > 0);
    // Without the group there is none.
    all.found.retain(|key, _| key.kind != crate::key::ObjectKind::Kind(KindName::MCPGroup));
    assert!(discovered(&all.world(), "ns", "team").is_empty());
}

/// An entry of `outgoingAuth.backends` for it counts first, so what it says itself does not decide yet.
#[test]
fn a_member_whose_own_credentials_cannot_be_used_is_found_all_the_same() {
    let bearer = json!({ "type": "bearerToken", "bearerToken": { "tokenSecretRef": { "name": "s", "key": "k" } } });
    let mut all = mixed().with_config_map("ca", "ca.crt");
    all.found.retain(|key, _| key.name != "key");
    let missing = discovered(&all.world(), "ns", "team");
    assert!(missing["entry"].as_ref().unwrap().strategy.as_ref().unwrap_err().to_string().contains("`key` not found"));
    let all = all.with(resource(KindName::MCPExternalAuthConfig, "key", &bearer));
    let members = discovered(&all.world(), "ns", "team");
    let entry = members["entry"].as_ref().unwrap();
    assert!(entry.strategy.as_ref().unwrap_err().to_string().contains("cannot authenticate with type bearerToken"));
    assert!(entry.strategy_variables.is_empty() && !entry.variables.is_empty(), "{entry:?}");
    let members = discovered(&mixed().with_config_map("ca", "ca.crt").world(), "ns", "team");
    let entry = members["entry"].as_ref().unwrap();
    assert_eq!(entry.strategy_variables.len(), 1);
    assert!(!entry.variables.keys().any(|name| entry.strategy_variables.contains_key(name)), "{entry:?}");
}

/// A server that is named by hand is called though no member stands in the document.
#[test]
fn credentials_that_do_not_resolve_are_never_replaced_where_backends_are_inline_either() {
    let mut spec =
        outgoing("inline", &explicit("key"), &json!({ "by-hand": explicit("gone"), "http": explicit("gone") }));
    spec["config"]["backends"] = json!([{ "name": "by-hand", "url": "http://b", "transport": "sse" }]);
    let written = |spec: &Value, all: &Surroundings| config(&planned(spec, all))["outgoingAuth"].clone();
    for (all, expected) in [(for_own_image(mixed(), &[]), UNRESOLVED), (mixed(), "unauthenticated")] {
        for name in ["by-hand", "http"] {
            assert_eq!(written(&spec, &all)["backends"][name], json!({ "type": expected }), "{name}");
        }
    }
    let spec = outgoing("inline", &explicit("gone"), &json!({ "http": explicit("key") }));
    let plan = planned(&spec, &for_own_image(mixed(), &[]));
    assert_eq!(config(&plan)["outgoingAuth"]["default"], json!({ "type": UNRESOLVED }));
    let names: Vec<Value> =
        config(&plan)["backends"].as_array().unwrap().iter().map(|backend| backend["name"].clone()).collect();
    assert_eq!(names, ["http"], "a member without an entry is left out");
}
