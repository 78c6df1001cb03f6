//! Every condition, and what each failure comes to.

use super::*;
use crate::key::Key;
use crate::validate::testing::crash;
use crate::world::Found;

fn oidc() -> Value {
    json!({ "type": "inline", "inline": {
        "issuer": "https://issuer.example",
        "clientId": "c",
        "clientSecretRef": { "name": "oidc", "key": "secret" },
    }})
}

fn guarded() -> Value {
    with(&json!({ "incomingAuth": { "type": "oidc", "oidcConfigRef": { "name": "idp", "audience": "a" } } }))
}

fn upstream(name: &str) -> Value {
    json!({ "name": name, "type": "oidc", "oidcConfig": {
        "issuerUrl": "https://up.example", "clientId": "c", "clientSecretRef": { "name": "up", "key": "secret" },
    }})
}

/// A spec with an embedded authorization server, and policies.
pub(super) fn with_server(upstreams: &[&str]) -> Value {
    let upstreams: Vec<Value> = upstreams.iter().map(|name| upstream(name)).collect();
    with(&json!({
        "incomingAuth": {
            "type": "oidc",
            "oidcConfigRef": { "name": "own", "audience": "https://mcp.example", "resourceUrl": "https://mcp.example" },
            "authzConfig": { "type": "inline", "inline": { "policies": ["permit(principal, action, resource);"] } },
        },
        "authServerConfig": { "issuer": "https://mcp.example", "upstreamProviders": upstreams },
    }))
}

pub(super) fn own_issuer() -> Surroundings {
    let config = json!({ "type": "inline", "inline": { "issuer": "https://mcp.example" } });
    team().with(resource(KindName::MCPOIDCConfig, "own", &config)).with_secret("up", "secret")
}

#[test]
fn a_missing_group_is_waited_for() {
    let plan = planned(&spec(), &Surroundings::default());
    assert_fails(&plan, true, "Failed", "GroupRefValidated", "GroupRefNotFound");
    let going = Surroundings::default().with(deleted(KindName::MCPGroup, "team", &json!({})));
    assert_fails(&planned(&spec(), &going), true, "Pending", "GroupRefValidated", "GroupRefNotReady");
}

#[test]
fn all_problems_of_a_spec_are_reported_at_once() {
    let wrong = with(&json!({
        "passthroughHeaders": ["Cookie"],
        "outgoingAuth": { "backends": { "Not A Name": { "type": "externalAuthConfigRef" } } },
        "config": {
            "aggregation": { "conflictResolution": "priority", "tools": [{ "workload": "a" }, { "workload": "a" }] },
            "compositeTools": [{ "name": "t", "description": "d", "steps": [] }],
            "operational": {
                "timeouts": { "default": "soon" },
                "failureHandling": { "healthCheckInterval": "5s", "healthCheckTimeout": "10s" },
            },
            "optimizer": {},
            "rateLimiting": { "shared": { "maxTokens": 1, "refillPeriod": "0s" } },
        },
    }));
    let plan = planned(&wrong, &team());
    assert_fails(&plan, false, "Failed", "Valid", "ValidationFailed");
    let why = reported(&plan, "Valid").2;
    for part in [
        "spec.passthroughHeaders: header `Cookie`",
        "spec.outgoingAuth.backends[Not A Name].externalAuthConfigRef.name: it is empty",
        "spec.outgoingAuth.backends: `Not A Name` is not a valid",
        "spec.config.aggregation.conflictResolutionConfig.priorityOrder: it is empty",
        "spec.config.aggregation.tools[1].workload: `a` has an earlier entry",
        "spec.config.compositeTools[0].steps: there is no step",
        "spec.config.operational.timeouts.default: `soon` is not a duration",
        "spec.config.operational.failureHandling.healthCheckTimeout: `10s` must be shorter",
        "spec.config.rateLimiting.shared.refillPeriod: `0s` is not above zero",
        "spec.config.optimizer.embeddingService: it is missing",
    ] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
    assert!(plan.status.find("BackendAuthConfig-Not A Name").is_none(), "no condition can be called so");
}

#[test]
fn a_name_that_no_service_can_have_is_refused() {
    for name in ["has.dots".to_owned(), "x".repeat(59)] {
        let me = resource(KindName::VirtualMCPServer, &name, &spec());
        assert!(matches!(crate::plan::plan(&me, &team().world()).verdict, Verdict::Refuse(_)), "{name}");
    }
    let me = resource(KindName::VirtualMCPServer, &format!("1{}", "x".repeat(57)), &spec());
    assert_eq!(crate::plan::plan(&me, &team().world()).verdict, Verdict::Apply);
}

#[test]
fn a_bad_template_is_refused() {
    let plan = planned(&with(&json!({ "podTemplateSpec": { "spec": { "containers": 7 } } })), &team());
    assert_fails(&plan, false, "Failed", "PodTemplateSpecValid", "InvalidPodTemplateSpec");
}

#[test]
fn composite_tools_are_looked_up_and_validated() {
    let spec = with(&json!({ "config": { "compositeToolRefs": [{ "name": "def" }] } }));
    let definition = |steps: &Value| {
        let spec = json!({ "name": "both", "description": "d", "steps": steps });
        team().with(resource(KindName::VirtualMCPCompositeToolDefinition, "def", &spec))
    };
    assert_fails(&planned(&spec, &team()), true, "Failed", "CompositeToolRefsValidated", "CompositeToolRefNotFound");
    let empty = planned(&spec, &definition(&json!([])));
    assert_fails(&empty, false, "Failed", "CompositeToolRefsValidated", "CompositeToolRefInvalid");
    let good = definition(&json!([{ "id": "a", "tool": "x", "timeout": "90s" }]));
    let plan = planned(&spec, &good);
    assert_eq!(reported(&plan, "CompositeToolRefsValidated").1, "CompositeToolRefsValid");
    assert_eq!(config(&plan)["compositeTools"][0]["steps"][0]["timeout"], "1m30s");
    assert_eq!(config(&plan).get("compositeToolRefs"), None);

    let tool = json!({ "name": "both", "description": "d", "steps": [{ "id": "a", "tool": "x" }] });
    let twice = planned(&changed(&spec, "/config/compositeTools", &json!([tool])), &good);
    assert_fails(&twice, false, "Failed", "CompositeToolRefsValidated", "CompositeToolRefInvalid");
}

#[test]
fn an_embedding_server_is_waited_for() {
    let spec = with(&json!({ "embeddingServerRef": { "name": "emb" } }));
    assert_fails(&planned(&spec, &team()), true, "Failed", "EmbeddingServerReady", "EmbeddingServerNotFound");
    let with_phase = |phase: &str, ready: i32| {
        let object = json!({
            "metadata": { "name": "emb", "namespace": "ns" },
            "spec": { "image": "i", "port": 9000 },
            "status": { "phase": phase, "readyReplicas": ready },
        });
        team().with(Resource::from_value(KindName::EmbeddingServer, object).unwrap())
    };
    for (phase, ready, expected, reason) in [
        ("Downloading", 0, "Pending", "EmbeddingServerNotReady"),
        ("Ready", 0, "Pending", "EmbeddingServerNotReady"),
        ("Failed", 0, "Failed", "EmbeddingServerFailed"),
    ] {
        assert_fails(&planned(&spec, &with_phase(phase, ready)), true, expected, "EmbeddingServerReady", reason);
    }
    let plan = planned(&spec, &with_phase("Ready", 1));
    assert!(reported(&plan, "EmbeddingServerReady").0);
    assert_eq!(config(&plan)["optimizer"]["embeddingService"], "http://emb.ns.svc.cluster.local:9000");
}

#[test]
fn references_to_configurations_are_followed() {
    let missing = planned(&guarded(), &team());
    assert_fails(&missing, true, "Failed", "OIDCConfigRefValidated", "OIDCConfigRefNotFound");
    let telemetry = planned(&with(&json!({ "telemetryConfigRef": { "name": "t" } })), &team());
    assert_fails(&telemetry, true, "Failed", "TelemetryConfigRefValidated", "TelemetryConfigRefNotFound");

    let surroundings = team().with(resource(KindName::MCPOIDCConfig, "idp", &oidc()));
    let without_secret = planned(&guarded(), &surroundings);
    assert_fails(&without_secret, true, "Failed", "AuthConfigured", "AuthInvalid");
    assert!(
        reported(&without_secret, "AuthConfigured")
            .2
            .contains("Secret `oidc` not found; create it with the key `secret`")
    );

    let plan = planned(&guarded(), &surroundings.with_secret("oidc", "secret"));
    assert!(reported(&plan, "OIDCConfigRefValidated").0);
    assert!(plan.status.field("oidcConfigHash").unwrap().is_string());
    let incoming = config(&plan)["incomingAuth"].clone();
    assert_eq!(
        incoming,
        json!({ "type": "oidc", "oidc": {
            "issuer": "https://issuer.example",
            "clientId": "c",
            "clientSecretEnv": "VMCP_OIDC_CLIENT_SECRET",
            "audience": "a",
            "resource": "http://vmcp-virtual.ns.svc.cluster.local:4483",
        }})
    );
    assert_eq!(variables(&plan)[2], "VMCP_OIDC_CLIENT_SECRET");
    let stamps = &child(&plan, ChildKind::Deployment)["spec"]["template"]["metadata"]["annotations"];
    assert!(stamps[crate::pod::INPUTS].is_string(), "a new secret rolls the pods");
}

#[test]
fn policies_of_another_engine_are_refused_by_name() {
    let spec = with(&json!({ "incomingAuth": { "type": "anonymous", "authzConfigRef": { "name": "z" } } }));
    let shared = |engine: &str, config: &Value| {
        let spec = json!({ "type": engine, "config": config });
        team().with(resource(KindName::MCPAuthzConfig, "z", &spec))
    };
    let plan = planned(&spec, &shared("httpv1", &json!({ "http": { "url": "https://pdp.example" } })));
    assert_fails(&plan, false, "Failed", "AuthzConfigRefValidated", "AuthzConfigRefNotValid");
    assert!(reported(&plan, "Ready").2.contains("`httpv1`"));
    let cedar = json!({ "policies": ["permit(principal, action, resource);"], "entities_json": "[]" });
    let plan = planned(&spec, &shared("cedarv1", &cedar));
    assert!(plan.status.field("authzConfigHash").unwrap().is_string());
    let expected =
        json!({ "type": "cedar", "policies": ["permit(principal, action, resource);"], "entitiesJson": "[]" });
    assert_eq!(config(&plan)["incomingAuth"]["authz"], expected);
}

#[test]
fn policies_in_a_config_map_are_read() {
    let spec = with(&json!({ "incomingAuth": {
        "type": "anonymous",
        "authzConfig": { "type": "configMap", "configMap": { "name": "policies" }, "groupClaimName": "groups" },
    }}));
    let holding = |text: &str| {
        let mut surroundings = team();
        let key = Key { kind: crate::key::ObjectKind::ConfigMap, namespace: "ns".into(), name: "policies".into() };
        surroundings.found.insert(key, Found::config_map([("authz.json".to_owned(), text.to_owned())].into()));
        surroundings
    };
    assert_fails(&planned(&spec, &team()), true, "Failed", "AuthConfigured", "AuthzConfigMapNotFound");
    let other = holding(r#"{"version":"1.0","type":"httpv1","pdp":{}}"#);
    assert_fails(&planned(&spec, &other), false, "Failed", "AuthConfigured", "AuthzConfigMapInvalid");
    let bad = planned(&spec, &holding(r#"{"type":"cedarv1","cedar":{"bad":true}}"#));
    assert_fails(&bad, false, "Failed", "AuthConfigured", "AuthzConfigMapInvalid");
    assert!(reported(&bad, "Ready").2.starts_with("spec.incomingAuth.authzConfig: "));
    let good = holding(r#"{"version":"1.0","type":"cedarv1","cedar":{"policies":["p"],"entities_json":"[]"}}"#);
    let authz = config(&planned(&spec, &good))["incomingAuth"]["authz"].clone();
    assert_eq!((&authz["policies"], &authz["groupClaimName"]), (&json!(["p"]), &json!("groups")));
}

#[test]
fn an_authorization_server_comes_with_its_document() {
    let plan = planned(&with_server(&["up"]), &own_issuer());
    assert_eq!(plan.verdict, Verdict::Apply);
    assert_eq!(reported(&plan, "AuthServerConfigValidated").1, "AuthServerConfigValid");
    assert_eq!(reported(&plan, "IdentitySynthesized").1, "AllUpstreamsHaveUserInfo");
    let map = child(&plan, ChildKind::ConfigMap);
    let document = map["data"]["authserver-config.yaml"].as_str().unwrap();
    assert!(document.contains("allowed_audiences:\n    - https://mcp.example\n"), "{document}");
    assert_eq!(config(&plan)["incomingAuth"]["authz"]["primaryUpstreamProvider"], "up");
    assert!(variables(&plan).contains(&"TOOLHIVE_UPSTREAM_CLIENT_SECRET_UP".to_owned()));
    assert!(plan.status.find("AuthzUpstreamSelectionWarning").is_none());
    let none = planned(&spec(), &team());
    assert!(
        none.status.find("AuthServerConfigValidated").is_none() && none.status.find("IdentitySynthesized").is_none()
    );
}

#[test]
fn an_authorization_server_and_its_callers_must_fit() {
    let fails = |spec: &Value, reason: &str| {
        assert_fails(&planned(spec, &own_issuer()), false, "Failed", "AuthServerConfigValidated", reason);
    };
    fails(&changed(&with_server(&["up"]), "/authServerConfig/issuer", &json!("nowhere")), "AuthServerConfigInvalid");
    fails(&changed(&with_server(&["up"]), "/incomingAuth/type", &json!("anonymous")), "AuthServerConfigInvalid");
    let other = changed(&with_server(&["up"]), "/authServerConfig/issuer", &json!("https://other.example"));
    fails(&other, "AuthServerConfigInvalid");
    let primary = "/incomingAuth/authzConfig/inline/primaryUpstreamProvider";
    fails(&changed(&with_server(&["up"]), primary, &json!("gone")), "AuthzUpstreamUnknown");
    let without = changed(&changed(&with_server(&[]), primary, &json!("up")), "/authServerConfig", &Value::Null);
    fails(&without, "AuthzPrimaryProviderRequiresAuthServer");

    let several = planned(&with_server(&["one", "two"]), &own_issuer());
    assert_eq!(several.verdict, Verdict::Apply);
    assert_eq!(reported(&several, "AuthzUpstreamSelectionWarning").1, "AuthzUpstreamAutoSelected");
    assert_eq!(config(&several)["incomingAuth"]["authz"]["primaryUpstreamProvider"], "one");
    let chosen = changed(&with_server(&["one", "two"]), "/authServerConfig/primaryUpstreamProvider", &json!("two"));
    let chosen = planned(&chosen, &own_issuer());
    assert!(chosen.status.find("AuthzUpstreamSelectionWarning").is_none());
    assert_eq!(config(&chosen)["incomingAuth"]["authz"]["primaryUpstreamProvider"], "two");
    let mut poor = own_issuer();
    poor.found.retain(|key, _| key.name != "up");
    assert_fails(&planned(&with_server(&["up"]), &poor), true, "Failed", "AuthConfigured", "AuthInvalid");
}

#[test]
fn the_phase_comes_from_pods_and_backends() {
    let seen = |pods: &[PodState], backends: &[&str]| {
        let backends: Vec<Value> = backends
            .iter()
            .enumerate()
            .map(|(index, state)| json!({ "name": format!("b{index}"), "status": state }))
            .collect();
        let object = json!({
            "metadata": { "name": "virtual", "namespace": "ns", "uid": "u" },
            "spec": spec(),
            "status": { "phase": "Pending", "discoveredBackends": backends },
        });
        let surroundings = team().carried_out(&planned(&spec(), &team()), pods);
        crate::plan::plan(&Resource::from_value(KindName::VirtualMCPServer, object).unwrap(), &surroundings.world())
    };
    let check = |pods: &[PodState], backends: &[&str], expected: &str, reason: &str, message: &str| {
        let plan = seen(pods, backends);
        assert_eq!(phase(&plan), expected, "{message}");
        assert_eq!(reported(&plan, "Ready"), (expected == "Ready", reason.to_owned(), message.to_owned()));
    };
    let running = "Virtual MCP server is running";
    let all_away = "Virtual MCP server is running but all 2 backends are unhealthy";
    let half = "Virtual MCP server is running with 1/2 backends available";
    let unknown = "Virtual MCP server is running; nothing is known yet of its 1 backends";
    let failed = "Virtual MCP server failed to start: pod `virtual-0`: CrashLoopBackOff: no config";
    check(&[], &[], "Pending", "DeploymentNotReady", "No pods found for Virtual MCP server");
    check(&[PodState::Pending], &["ready"], "Pending", "RollingOut", "Virtual MCP server is starting");
    check(&[crash("no config")], &[], "Failed", "RolloutStalled", failed);
    check(&[PodState::Ready], &[], "Ready", "DeploymentReady", running);
    check(&[PodState::Ready], &["ready", "unauthenticated"], "Ready", "DeploymentReady", running);
    check(&[PodState::Ready], &["ready", "unavailable"], "Degraded", "BackendsDegraded", half);
    check(&[PodState::Ready], &["unavailable", "degraded"], "Degraded", "BackendsUnavailable", all_away);
    check(&[PodState::Ready], &["unknown"], "Degraded", "BackendsUnknown", unknown);
    let plan = seen(&[PodState::Ready], &["ready", "degraded"]);
    let found = (true, "BackendsDiscovered".to_owned(), "Discovered 2 backends".to_owned());
    assert_eq!(reported(&plan, "BackendsDiscovered"), found);
    let degraded = (true, "BackendsDegraded".to_owned(), "1 backends degraded".to_owned());
    assert_eq!(reported(&plan, "Degraded"), degraded);
    assert!(seen(&[PodState::Ready], &["ready"]).status.find("Degraded").is_none());
}

#[test]
fn a_spec_that_an_older_definition_accepted_never_opens_the_server() {
    let open = with(&json!({ "incomingAuth": { "type": "oidc" } }));
    assert_fails(&planned(&open, &team()), false, "Failed", "Valid", "ValidationFailed");
}

#[test]
fn a_template_that_cannot_be_merged_is_refused() {
    let template = json!({ "spec": { "containers": [{ "name": "vmcp", "$patch": "improve" }] } });
    let plan = planned(&with(&json!({ "podTemplateSpec": template })), &team());
    assert_fails(&plan, false, "Failed", "PodTemplateSpecValid", "InvalidPodTemplateSpec");
}
