//! The document beyond its defaults.

use super::*;
use crate::world::DefaultRedis;

#[test]
fn tools_are_taken_from_their_configuration_where_the_spec_says_nothing() {
    let tools = json!({ "toolsFilter": ["a", "b"], "toolsOverride": {
        "a": { "name": "theirs" },
        "b": { "name": "b2", "annotations": { "title": "B" } },
    }});
    let aggregation = json!({ "tools": [
        { "workload": "member", "toolConfigRef": { "name": "tools" }, "overrides": { "a": { "name": "mine" } } },
        { "workload": "entry", "toolConfigRef": { "name": "tools" }, "filter": ["c"] },
    ]});
    let spec = with(&json!({ "config": { "aggregation": aggregation } }));
    assert_fails(&planned(&spec, &team()), true, "Failed", "ToolConfigValidated", "ToolConfigNotFound");
    let plan = planned(&spec, &team().with(resource(KindName::MCPToolConfig, "tools", &tools)));
    assert_eq!(reported(&plan, "ToolConfigValidated").1, "ToolConfigValid");
    let overrides = json!({ "a": { "name": "mine" }, "b": { "name": "b2", "annotations": { "title": "B" } } });
    let theirs = json!({ "a": { "name": "theirs" }, "b": { "name": "b2", "annotations": { "title": "B" } } });
    let expected = json!([
        { "workload": "member", "filter": ["a", "b"], "overrides": overrides },
        { "workload": "entry", "filter": ["c"], "overrides": theirs },
    ]);
    assert_eq!(config(&plan)["aggregation"]["tools"], expected);
}

/// Whether names conflict is known when the backends list their tools, not before.
#[test]
fn manual_resolution_needs_no_overrides() {
    let plan = planned(&with(&json!({ "config": { "aggregation": { "conflictResolution": "manual" } } })), &team());
    assert_eq!(plan.verdict, crate::plan::Verdict::Apply);
    assert_eq!(config(&plan)["aggregation"]["conflictResolution"], "manual");
}

#[test]
fn sections_are_completed_and_written_as_the_original_writes_them() {
    let spec = with(&json!({
        "passthroughHeaders": ["X-Team"],
        "sessionStorage": { "provider": "redis", "address": "redis:6379", "passwordRef": { "name": "r", "key": "p" } },
        "config": {
            "passthroughHeaders": ["X-Other"],
            "audit": { "enabled": true },
            "operational": {
                "logLevel": "debug",
                "timeouts": { "default": "90s", "perWorkload": { "member": "120s" } },
                "failureHandling": { "circuitBreaker": { "enabled": true, "timeout": "90s" } },
            },
            "rateLimiting": { "shared": { "maxTokens": 5, "refillPeriod": "60s" } },
            "future": { "a": 1 },
        },
    }));
    let plan = planned(&spec, &team());
    let expected = "\
name: virtual
groupRef: team
incomingAuth:
    type: anonymous
outgoingAuth:
    source: discovered
aggregation:
    conflictResolution: prefix
    conflictResolutionConfig:
        prefixFormat: '{workload}_'
operational:
    logLevel: debug
    timeouts:
        default: 1m30s
        perWorkload:
            member: 2m0s
    failureHandling:
        healthCheckInterval: 30s
        unhealthyThreshold: 3
        healthCheckTimeout: 10s
        statusReportingInterval: 30s
        partialFailureMode: fail
        circuitBreaker:
            enabled: true
            failureThreshold: 5
            timeout: 1m30s
audit:
    enabled: true
    component: virtual
    includeRequestData: false
    includeResponseData: false
    detectApplicationErrors: true
    maxDataSize: 1024
    maxDelegationDepth: 10
sessionStorage:
    provider: redis
    address: redis:6379
    db: 0
rateLimiting:
    shared:
        maxTokens: 5
        refillPeriod:
            duration: 1m0s
passthroughHeaders:
    - X-Team
future:
    a: 1
";
    assert_eq!(config_yaml(&plan), expected);
    assert_eq!(container(&plan)["args"].as_array().unwrap().last(), Some(&json!("--debug")));
    assert!(variables(&plan).contains(&"THV_SESSION_REDIS_PASSWORD".to_owned()));
}

#[test]
fn an_audit_log_that_is_off_is_not_written() {
    let plan = planned(&with(&json!({ "config": { "audit": { "enabled": false } } })), &team());
    assert_eq!(config(&plan).get("audit"), None);
}

#[test]
fn the_operators_redis_is_used_unless_memory_is_asked_for() {
    let mut surroundings = team();
    surroundings.settings.default_redis =
        Some(DefaultRedis { address: "shared:6379".into(), secret: Some(("r".into(), "p".into())) });
    let plan = planned(&with(&json!({ "replicas": 2 })), &surroundings);
    assert_eq!(config(&plan)["sessionStorage"]["address"], "shared:6379");
    assert_eq!(reported(&plan, "SessionStorageWarning").1, "SessionStorageConfigured");
    let memory = planned(&with(&json!({ "sessionStorage": { "provider": "memory" } })), &surroundings);
    assert_eq!(config(&memory).get("sessionStorage"), None);
    assert!(!variables(&memory).contains(&"THV_SESSION_REDIS_PASSWORD".to_owned()));
}

#[test]
fn telemetry_comes_with_its_certificate_authorities() {
    let telemetry = json!({ "openTelemetry": {
        "enabled": true, "endpoint": "https://otel.example:4318", "tracing": { "enabled": true },
        "caBundleRef": { "configMapRef": { "name": "otel-ca", "key": "ca.crt" } },
        "sensitiveHeaders": [{ "name": "X-Key", "secretKeyRef": { "name": "o", "key": "k" } }],
    }});
    let surroundings = team().with(resource(KindName::MCPTelemetryConfig, "t", &telemetry));
    let plan = planned(&with(&json!({ "telemetryConfigRef": { "name": "t" } })), &surroundings);
    let written = &config(&plan)["telemetry"];
    assert_eq!(written["caCertPath"], "/config/certs/otel/otel-ca/ca.crt");
    assert_eq!((&written["endpoint"], &written["serviceName"]), (&json!("otel.example:4318"), &json!("virtual")));
    let pod = &child(&plan, ChildKind::Deployment)["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][1]["name"], "otel-ca-bundle-otel-ca");
    let variables = variables(&plan);
    assert!(variables.contains(&"OTEL_RESOURCE_ATTRIBUTES".to_owned()));
    assert!(variables.contains(&"TOOLHIVE_OTEL_HEADER_X_KEY".to_owned()));
    assert!(plan.status.field("telemetryConfigHash").unwrap().is_string());
}

/// Every place of a value that holds no other.
fn leaves(value: &Value, place: &str, all: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, one)| leaves(one, &format!("{place}/{name}"), all)),
        Value::Array(list) => list.iter().enumerate().for_each(|(at, one)| leaves(one, &format!("{place}/{at}"), all)),
        _ => all.push(place.to_owned()),
    }
}

#[test]
fn every_spec_has_a_plan_that_says_why() {
    let mut full = conditions::with_server(&["up"]);
    full["outgoingAuth"] = json!({ "source": "inline", "default": { "type": "discovered" }, "backends": {
        "member": { "type": "externalAuthConfigRef", "externalAuthConfigRef": { "name": "none" } },
    }});
    full["config"] = json!({
        "aggregation": { "conflictResolution": "prefix", "tools": [{ "workload": "member", "filter": ["a"] }] },
        "compositeTools": [{ "name": "t", "description": "d", "steps": [{ "id": "a", "tool": "x", "timeout": "1s" }] }],
        "operational": { "failureHandling": { "circuitBreaker": { "timeout": "1s", "failureThreshold": 1 } } },
        "optimizer": { "hybridSearchSemanticRatio": "0.5", "embeddingService": "http://e" },
    });
    full["sessionStorage"] = json!({ "provider": "redis", "address": "r:1", "keyPrefix": "k" });
    full["serviceAccount"] = json!("mine");
    full["imagePullSecrets"] = json!([{ "name": "pull" }]);
    full["podTemplateSpec"] = json!({ "spec": { "containers": [{ "name": "vmcp" }] } });
    let none = resource(KindName::MCPExternalAuthConfig, "none", &json!({ "type": "unauthenticated" }));
    let surroundings = conditions::own_issuer().with(none);
    assert_eq!(planned(&full, &surroundings).verdict, Verdict::Apply);
    let mut places = Vec::new();
    leaves(&full, "", &mut places);
    let (mut applied, mut refused) = (0, 0);
    for place in &places {
        for value in
            [json!(""), json!("-"), json!("\u{e9}\0"), json!(-1), json!(i64::MAX), json!([]), json!({}), Value::Null]
        {
            let object =
                json!({ "metadata": { "name": "virtual", "namespace": "ns" }, "spec": changed(&full, place, &value) });
            let Ok(me) = Resource::from_value(KindName::VirtualMCPServer, object) else { continue };
            let plan = crate::plan::plan(&me, &surroundings.world());
            assert_eq!(plan.verdict == Verdict::Apply, !plan.children.is_empty(), "{place} = {value}");
            assert!(!reported(&plan, "Ready").2.is_empty());
            *(if plan.verdict == Verdict::Apply { &mut applied } else { &mut refused }) += 1;
        }
    }
    assert!(applied > 20 && refused > 20, "{applied} were applied and {refused} refused: too few to say anything");
}
