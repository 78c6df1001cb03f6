use serde_json::{Value, json};
use skep_api::resource::KindName;

use super::testing::{Surroundings, changed, resource};
use super::*;

/// A valid spec, and changes of it with the only thing that must be said about each.
fn assert_rules(kind: KindName, reason: &str, good: &Value, cases: &[(&str, Value, &str)]) {
    let surroundings = Surroundings::default();
    let validated = |spec: &Value| validate(&resource(kind, "c", spec), &surroundings.world());
    assert_eq!(validated(good), Ok(()), "{kind}: {good}");
    for (place, value, expected) in cases {
        let found = validated(&changed(good, place, value));
        let Err(invalid) = found else {
            assert!(expected.is_empty(), "{kind} {place} {value}: nothing was found, not `{expected}`");
            continue;
        };
        assert!(!expected.is_empty(), "{kind} {place} {value}: {invalid}");
        assert_eq!(invalid.reason(), reason, "{kind} {place}");
        assert!(invalid.to_string().starts_with(expected), "{kind} {place} {value}: {invalid}");
        let joined = invalid.to_string().matches("; spec.").count();
        assert_eq!(joined, 0, "{kind} {place}: more than one problem: {invalid}");
    }
}

#[test]
fn tools_have_names_of_their_own() {
    let good = json!({
        "toolsFilter": ["fetch", "search"],
        "toolsOverride": { "get": { "name": "fetch" }, "find": { "name": "search", "description": "d" }, "x": { "annotations": {} } },
    });
    assert_rules(
        KindName::MCPToolConfig,
        "ValidationFailed",
        &good,
        &[
            ("/toolsFilter/1", json!(" "), "spec.toolsFilter[1]: it is empty"),
            ("/toolsOverride/x", json!({}), "spec.toolsOverride[x]: it changes nothing"),
            ("/toolsOverride/x", json!({ "name": "", "description": "" }), "spec.toolsOverride[x]: it changes nothing"),
            (
                "/toolsOverride/find/name",
                json!("fetch"),
                "spec.toolsOverride[get]: `fetch` would be the name of `find` too",
            ),
            ("/toolsOverride/find/name", json!("x"), "spec.toolsOverride[x]: `x` would be the name of `find` too"),
            ("/toolsOverride/", json!({ "name": "y" }), "spec.toolsOverride: a key is empty"),
            // Two tools may trade names.
            ("/toolsOverride", json!({ "a": { "name": "b" }, "b": { "name": "a" } }), ""),
        ],
    );
    assert_rules(KindName::MCPToolConfig, "", &json!({}), &[]);
}

#[test]
fn an_identity_provider_is_one_and_is_reached_over_tls() {
    let inline = json!({ "type": "inline", "inline": {
        "issuer": "https://idp.example",
        "jwksUrl": "https://idp.example/keys",
        "introspectionUrl": "https://idp.example/introspect",
        "clientSecretRef": { "name": "s", "key": "k" },
        "caBundleRef": { "configMapRef": { "name": "ca", "key": "" } },
    }});
    assert_rules(
        KindName::MCPOIDCConfig,
        "ConfigInvalid",
        &inline,
        &[
            ("/inline", Value::Null, "spec.inline: it is missing"),
            ("/kubernetesServiceAccount", json!({}), "spec.kubernetesServiceAccount: it goes with type"),
            ("/type", json!("kubernetesServiceAccount"), "spec.kubernetesServiceAccount: it is missing"),
            ("/inline/issuer", json!("idp.example"), "spec.inline.issuer: `idp.example` is not a URL"),
            (
                "/inline/issuer",
                json!("http://idp.example"),
                "spec.inline.issuer: `http://idp.example` must begin with `https://`",
            ),
            ("/inline/jwksUrl", json!("ftp://x"), "spec.inline.jwksUrl: `ftp://x` must begin"),
            ("/inline/introspectionUrl", json!("http://x"), "spec.inline.introspectionUrl: `http://x` must begin"),
            ("/inline/clientSecretRef/name", json!(""), "spec.inline.clientSecretRef.name: it is empty"),
            ("/inline/clientSecretRef/key", json!(""), "spec.inline.clientSecretRef.key: it is empty"),
            ("/inline/caBundleRef", json!({}), "spec.inline.caBundleRef: it names no ConfigMap"),
            ("/inline/caBundleRef/configMapRef/name", json!(""), "spec.inline.caBundleRef: it names no ConfigMap"),
        ],
    );
    let plain = json!({ "type": "inline", "inline": { "issuer": "http://idp.example", "insecureAllowHTTP": true } });
    assert_rules(KindName::MCPOIDCConfig, "", &plain, &[]);
    let cluster = json!({ "type": "kubernetesServiceAccount", "kubernetesServiceAccount": {} });
    assert_rules(
        KindName::MCPOIDCConfig,
        "ConfigInvalid",
        &cluster,
        &[
            ("/inline", json!({ "issuer": "https://x" }), "spec.inline: it goes with type `inline` only"),
            (
                "/kubernetesServiceAccount/issuer",
                json!("http://x"),
                "spec.kubernetesServiceAccount.issuer: `http://x` must begin",
            ),
            (
                "/kubernetesServiceAccount/issuer",
                json!("kubernetes/serviceaccount"),
                "spec.kubernetesServiceAccount.issuer: `kube",
            ),
            (
                "/kubernetesServiceAccount",
                json!({ "issuer": "kubernetes/serviceaccount", "jwksUrl": "https://k/keys" }),
                "",
            ),
        ],
    );
}

#[test]
fn a_policy_is_checked_by_its_engine() {
    assert_rules(
        KindName::MCPAuthzConfig,
        "ConfigInvalid",
        &json!({ "type": "cedarv1", "config": { "policies": ["permit (principal, action, resource);"] } }),
        &[
            ("/type", json!("opa"), "spec.type: there is no engine `opa`; choose `cedarv1` or `httpv1`"),
            ("/type", json!("httpv1"), ""),
            ("/config", json!({}), "spec.config: it is empty; write the configuration of `cedarv1`"),
            ("/config/bad", json!(1), "spec.config: cedarv1 does not like it"),
        ],
    );
}

#[test]
fn telemetry_sends_something_and_each_header_once() {
    let good = json!({ "openTelemetry": {
        "enabled": true,
        "endpoint": "otel:4318",
        "tracing": { "enabled": true },
        "headers": { "x-team": "a" },
        "sensitiveHeaders": [{ "name": "authorization", "secretKeyRef": { "name": "s", "key": "k" } }],
        "caBundleRef": { "configMapRef": { "name": "ca", "key": "ca.crt" } },
    }});
    let header = |name: &str| json!([{ "name": name, "secretKeyRef": { "name": "s", "key": "k" } }]);
    let twice = json!([
        { "name": "a-b", "secretKeyRef": { "name": "s", "key": "k" } },
        { "name": "A-B", "secretKeyRef": { "name": "s", "key": "k" } },
    ]);
    assert_rules(
        KindName::MCPTelemetryConfig,
        "ValidationFailed",
        &good,
        &[
            ("/openTelemetry/tracing", Value::Null, "spec.openTelemetry.endpoint: nothing is sent there"),
            ("/openTelemetry/endpoint", json!("grpc://otel:4317"), "spec.openTelemetry.endpoint: not the address"),
            ("/openTelemetry/endpoint", json!("https://"), "spec.openTelemetry.endpoint: not the address"),
            ("/openTelemetry/endpoint", json!("u:p@otel"), "spec.openTelemetry.endpoint: not the address"),
            ("/openTelemetry/tracing/enabled", json!(false), "spec.openTelemetry.endpoint: nothing is sent there"),
            (
                "/openTelemetry/sensitiveHeaders/0/name",
                json!(""),
                "spec.openTelemetry.sensitiveHeaders[0].name: `` is not the name",
            ),
            (
                "/openTelemetry/sensitiveHeaders/0/secretKeyRef/name",
                json!(""),
                "spec.openTelemetry.sensitiveHeaders[0].secretKeyRef.name",
            ),
            (
                "/openTelemetry/sensitiveHeaders/0/secretKeyRef/key",
                json!(""),
                "spec.openTelemetry.sensitiveHeaders[0].secretKeyRef.key",
            ),
            (
                "/openTelemetry/sensitiveHeaders",
                header("X-Team"),
                "spec.openTelemetry.sensitiveHeaders[0]: header `X-Team` stands in headers",
            ),
            (
                "/openTelemetry/sensitiveHeaders",
                twice,
                "spec.openTelemetry.sensitiveHeaders[1]: header `A-B` is as good as",
            ),
            ("/openTelemetry/headers", json!({ "x y": "1" }), "spec.openTelemetry.headers: `x y` is not the name"),
            ("/openTelemetry/insecure", json!(true), "spec.openTelemetry.caBundleRef: there is no TLS"),
            ("/openTelemetry/caBundleRef", json!({}), "spec.openTelemetry.caBundleRef: it names no ConfigMap"),
            ("/openTelemetry", Value::Null, ""),
        ],
    );
}

#[test]
fn webhooks_are_named_bounded_and_reached_over_tls() {
    let secret = json!({ "name": "s", "key": "k" });
    let good = json!({
        "validating": [{
            "name": "check",
            "url": "https://hooks.example/check",
            "timeout": "5s",
            "tlsConfig": { "caSecretRef": secret, "clientCertSecretRef": secret, "clientKeySecretRef": secret },
            "hmacSecretRef": secret,
        }],
        "mutating": [{ "name": "change", "url": "https://hooks.example/change" }],
    });
    assert_rules(
        KindName::MCPWebhookConfig,
        "ValidationFailed",
        &good,
        &[
            ("/validating/0/name", json!(""), "validating webhook[0] \"\": name: it is empty"),
            (
                "/mutating/0/name",
                json!("x".repeat(64)),
                &format!("mutating webhook[0] \"{}\": name: it has 64", "x".repeat(64)),
            ),
            ("/mutating/0/url", json!("hooks"), "mutating webhook[0] \"change\": url: `hooks` is not a URL"),
            (
                "/mutating/0/url",
                json!("http://hooks.example"),
                "mutating webhook[0] \"change\": url: `http://hooks.example` must begin",
            ),
            ("/mutating/0", json!({ "name": "c", "url": "http://h", "tlsConfig": { "insecureSkipVerify": true } }), ""),
            ("/validating/0/timeout", json!("0s"), ""),
            (
                "/validating/0/timeout",
                json!("500ms"),
                "validating webhook[0] \"check\": timeout: `500ms` is out of bounds; choose from 1s to 30s",
            ),
            ("/validating/0/timeout", json!("31s"), "validating webhook[0] \"check\": timeout: `31s` is out of bounds"),
            (
                "/validating/0/timeout",
                json!("soon"),
                "validating webhook[0] \"check\": timeout: `soon` is not a duration",
            ),
            (
                "/validating/0/hmacSecretRef/key",
                json!(""),
                "validating webhook[0] \"check\": hmacSecretRef.key: it is empty",
            ),
            (
                "/validating/0/tlsConfig/caSecretRef/name",
                json!(""),
                "validating webhook[0] \"check\": tlsConfig.caSecretRef.name",
            ),
            (
                "/validating/0/tlsConfig/clientKeySecretRef",
                Value::Null,
                "validating webhook[0] \"check\": tlsConfig: a certificate and its key",
            ),
            (
                "/validating/0/tlsConfig/clientCertSecretRef",
                Value::Null,
                "validating webhook[0] \"check\": tlsConfig: a certificate and its key",
            ),
        ],
    );
    let none = validate(&resource(KindName::MCPWebhookConfig, "c", &json!({})), &Surroundings::default().world());
    assert_eq!(
        none.unwrap_err().to_string(),
        "spec: there is no webhook; put at least one into validating or mutating"
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let bad = json!({ "validating": [{ "name": "a", "url": "x" }, { "name": "b", "url": "y", "timeout": "1h" }] });
    let invalid =
        validate(&resource(KindName::MCPWebhookConfig, "c", &bad), &Surroundings::default().world()).unwrap_err();
    for part in ["webhook[0] \"a\": url", "webhook[1] \"b\": url", "webhook[1] \"b\": timeout"] {
        assert!(invalid.to_string().contains(part), "{invalid}");
    }
}

#[test]
fn very_many_problems_fit_into_a_condition() {
    let problems: Vec<String> = (0..12).map(|number| format!("p{number}")).collect();
    assert!(in_one_line(&problems).ends_with("p9; and 2 more"));
}

#[test]
fn settings_go_with_their_type() {
    let surroundings = Surroundings::default();
    let validated =
        |spec: &Value| validate(&resource(KindName::MCPExternalAuthConfig, "c", spec), &surroundings.world());
    let secret = json!({ "name": "s", "key": "k" });
    let exchange = json!({ "tokenUrl": "https://idp/token", "audience": "a" });
    let header = json!({ "headerName": "X-Key", "valueSecretRef": secret });
    assert_eq!(validated(&json!({ "type": "unauthenticated" })), Ok(()));
    assert_eq!(validated(&json!({ "type": "tokenExchange", "tokenExchange": exchange })), Ok(()));
    let missing = validated(&json!({ "type": "tokenExchange" })).unwrap_err();
    assert_eq!(missing.to_string(), "spec.tokenExchange: it is missing; set it, or change type");
    let both = validated(&json!({ "type": "tokenExchange", "tokenExchange": exchange, "headerInjection": header }))
        .unwrap_err();
    assert!(
        both.to_string().starts_with("spec.headerInjection: it goes with type `headerInjection`, not `tokenExchange`"),
        "{both}"
    );
    let extra = validated(&json!({ "type": "unauthenticated", "headerInjection": header })).unwrap_err();
    assert!(extra.to_string().starts_with("spec.headerInjection: it goes with type"), "{extra}");
}

#[test]
fn features_that_this_version_lacks_are_reported() {
    let obo = resource(KindName::MCPExternalAuthConfig, "c", &json!({ "type": "obo", "obo": { "tenantId": "t" } }));
    let invalid = validate(&obo, &Surroundings::default().world()).unwrap_err();
    assert_eq!(invalid.reason(), "NotSupported");
    assert!(invalid.to_string().contains("not supported by this version of Skep"));
}

#[test]
fn each_kind_of_outgoing_authentication_has_what_it_needs() {
    let (kind, reason) = (KindName::MCPExternalAuthConfig, "ValidationFailed");
    let secret = json!({ "name": "s", "key": "k" });
    let exchange = json!({ "type": "tokenExchange", "tokenExchange": {
        "tokenUrl": "http://idp.auth/token", "audience": "a", "clientId": "c", "clientSecretRef": secret, "externalTokenHeaderName": "X-Token",
    }});
    assert_rules(
        kind,
        reason,
        &exchange,
        &[
            ("/tokenExchange/tokenUrl", json!("idp"), "spec.tokenExchange.tokenUrl: `idp` is not a URL"),
            ("/tokenExchange/clientSecretRef/name", json!(""), "spec.tokenExchange.clientSecretRef.name: it is empty"),
            (
                "/tokenExchange/externalTokenHeaderName",
                json!("X Y"),
                "spec.tokenExchange.externalTokenHeaderName: `X Y` is not",
            ),
            ("/tokenExchange/externalTokenHeaderName", json!(""), ""),
        ],
    );
    let header =
        json!({ "type": "headerInjection", "headerInjection": { "headerName": "X-Key", "valueSecretRef": secret } });
    assert_rules(
        kind,
        reason,
        &header,
        &[
            ("/headerInjection/headerName", json!("X:"), "spec.headerInjection.headerName: `X:` is not the name"),
            ("/headerInjection/valueSecretRef/key", json!(""), "spec.headerInjection.valueSecretRef.key: it is empty"),
        ],
    );
    let bearer = json!({ "type": "bearerToken", "bearerToken": { "tokenSecretRef": secret } });
    assert_rules(
        kind,
        reason,
        &bearer,
        &[("/bearerToken/tokenSecretRef/name", json!(""), "spec.bearerToken.tokenSecretRef.name: it is empty")],
    );
    let inject = json!({ "type": "upstreamInject", "upstreamInject": { "providerName": "idp" } });
    assert_rules(
        kind,
        reason,
        &inject,
        &[("/upstreamInject/providerName", json!(""), "spec.upstreamInject.providerName: it is empty")],
    );
    let role = "arn:aws:iam::123456789012:role/r";
    let aws = json!({ "type": "awsSts", "awsSts": { "region": "eu-central-1", "roleMappings": [{ "claim": "admins", "roleArn": role }] } });
    assert_rules(
        kind,
        reason,
        &aws,
        &[
            ("/awsSts/region", json!(""), "spec.awsSts.region: it is empty"),
            ("/awsSts/roleMappings", json!([]), "spec.awsSts.roleMappings: no client gets a role"),
            (
                "/awsSts/roleMappings/0/matcher",
                json!("true"),
                "spec.awsSts.roleMappings[0]: exactly one of claim and matcher",
            ),
            (
                "/awsSts/roleMappings/0/claim",
                Value::Null,
                "spec.awsSts.roleMappings[0]: exactly one of claim and matcher",
            ),
            (
                "/awsSts/roleMappings/0",
                json!({ "matcher": "groups.exists(g, g == 'admins')", "roleArn": role }),
                "spec.awsSts.roleMappings[0].matcher: `groups` is unknown",
            ),
            (
                "/awsSts/roleMappings/0",
                json!({ "matcher": "claims.groups.exists(g, g == 'admins')", "roleArn": role }),
                "",
            ),
            (
                "/awsSts/sessionDuration",
                json!(899),
                "spec.awsSts.sessionDuration: `899` is out of bounds; choose from 900 to 43200",
            ),
            ("/awsSts/sessionDuration", json!(43201), "spec.awsSts.sessionDuration: `43201` is out of bounds"),
            ("/awsSts", json!({ "region": "eu-central-1", "fallbackRoleArn": role }), ""),
        ],
    );
    let access = json!({ "type": "xaa", "xaa": {
        "idpTokenUrl": "https://idp/token", "targetTokenUrl": "https://target/token", "targetAudience": "https://target",
        "idpClientId": "c", "idpClientSecretRef": secret,
    }});
    assert_rules(
        kind,
        reason,
        &access,
        &[
            ("/xaa/idpTokenUrl", json!("http://idp/token"), "spec.xaa.idpTokenUrl: `http://idp/token` must begin"),
            (
                "/xaa/targetTokenUrl",
                json!("http://target/token"),
                "spec.xaa.targetTokenUrl: `http://target/token` must begin",
            ),
            ("/xaa/targetTokenUrl", json!("http://localhost:1/token"), ""),
            ("/xaa/targetAudience", json!(""), "spec.xaa.targetAudience: it is empty"),
            ("/xaa/idpClientId", Value::Null, "spec.xaa.idpClientId: it is missing"),
            ("/xaa/targetClientSecretRef", secret.clone(), "spec.xaa.targetClientId: it is missing"),
        ],
    );
    let insecure = changed(
        &changed(&access, "/xaa/targetTokenUrl", &json!("http://t/token")),
        "/xaa/insecureTargetTokenUrl",
        &json!(true),
    );
    assert_rules(kind, reason, &insecure, &[]);
}

#[test]
fn a_hash_is_of_what_is_said_and_not_of_how() {
    let hash = |spec: &str| {
        let spec: Value = serde_json::from_str(spec).unwrap();
        config_hash(&resource(KindName::MCPAuthzConfig, "c", &spec))
    };
    let one = hash(r#"{"type":"cedarv1","config":{"policies":["p"],"a":{"x":1,"y":2}}}"#);
    assert_eq!(one, hash(r#"{"config":{"a":{"y":2,"x":1},"policies":["p"]},"type":"cedarv1"}"#));
    assert_ne!(one, hash(r#"{"config":{"a":{"y":2,"x":1},"policies":["q"]},"type":"cedarv1"}"#));
    assert!(one.len() == 16 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
    // What the schema would fill in anyway makes no difference.
    let defaults = resource(KindName::MCPTelemetryConfig, "c", &json!({ "openTelemetry": {} }));
    let written = resource(
        KindName::MCPTelemetryConfig,
        "c",
        &json!({ "openTelemetry": { "enabled": false, "insecure": false } }),
    );
    assert_eq!(config_hash(&defaults), config_hash(&written));
}
