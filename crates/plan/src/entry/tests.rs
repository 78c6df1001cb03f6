use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::validate::testing::{Surroundings, changed, deleted, resource};

fn spec() -> Value {
    json!({
        "remoteUrl": "https://mcp.example.com/mcp",
        "transport": "streamable-http",
        "groupRef": { "name": "g" },
        "externalAuthConfigRef": { "name": "auth" },
        "caBundleRef": { "configMapRef": { "name": "ca", "key": "" } },
        "headerForward": {
            "addPlaintextHeaders": { "X-Team": "a" },
            "addHeadersFromSecret": [{ "headerName": "X-Key", "valueSecretRef": { "name": "keys", "key": "k" } }],
        },
    })
}

fn auth(method: &str) -> Resource {
    resource(KindName::MCPExternalAuthConfig, "auth", &json!({ "type": method }))
}

fn surroundings() -> Surroundings {
    Surroundings::default()
        .with(resource(KindName::MCPGroup, "g", &json!({})))
        .with(auth("unauthenticated"))
        .with_config_map("ca", "ca.crt")
        .with_secret("keys", "k")
}

fn status(spec: &Value, surroundings: &Surroundings) -> Status {
    let me = resource(KindName::MCPServerEntry, "e", spec);
    let Resource::MCPServerEntry(object) = &me else { panic!("another kind") };
    plan(&me, object, &surroundings.world()).status
}

#[test]
fn an_entry_whose_references_are_there_is_valid() {
    let status = status(&spec(), &surroundings());
    assert_eq!(status.field("phase"), Some(&json!("Valid")));
    let reasons: BTreeMap<&str, &str> =
        status.conditions().iter().map(|one| (one.kind.as_str(), one.reason.as_str())).collect();
    let expected = BTreeMap::from([
        ("RemoteURLValidated", "RemoteURLValid"),
        ("GroupRefValidated", "GroupRefIsValid"),
        ("ExternalAuthConfigValidated", "AuthConfigValid"),
        ("CABundleRefValidated", "CABundleRefValid"),
        ("HeaderSecretRefsValidated", "HeaderSecretsValid"),
        ("Valid", "ConfigValid"),
    ]);
    assert_eq!(reasons, expected);
    assert!(status.conditions().iter().all(Condition::is_true));
}

#[test]
fn a_part_that_is_not_configured_is_valid() {
    let spec = json!({ "remoteUrl": "http://a.example", "transport": "sse", "groupRef": { "name": "g" } });
    let status = status(&spec, &surroundings());
    assert_eq!(status.find("ExternalAuthConfigValidated").unwrap().reason, "AuthConfigNotConfigured");
    assert_eq!(status.find("CABundleRefValidated").unwrap().reason, "CABundleRefNotConfigured");
    assert!(status.find("HeaderSecretRefsValidated").is_none());
    assert!(status.find("Valid").unwrap().is_true());
}

#[test]
fn every_check_has_its_condition() {
    let cases = [
        ("/remoteUrl", json!("https://localhost/mcp"), "RemoteURLValidated", "RemoteURLInvalid"),
        ("/remoteUrl", json!("https://10.0.0.1/mcp"), "RemoteURLValidated", "RemoteURLInvalid"),
        ("/groupRef/name", json!("other"), "GroupRefValidated", "GroupRefNotFound"),
        ("/externalAuthConfigRef/name", json!("other"), "ExternalAuthConfigValidated", "AuthConfigNotFound"),
        ("/caBundleRef/configMapRef/name", json!("other"), "CABundleRefValidated", "CABundleRefNotFound"),
        ("/caBundleRef/configMapRef/key", json!("other"), "CABundleRefValidated", "CABundleRefInvalid"),
        (
            "/headerForward/addHeadersFromSecret/0/valueSecretRef/name",
            json!("x"),
            "HeaderSecretRefsValidated",
            "HeaderSecretNotFound",
        ),
        (
            "/headerForward/addHeadersFromSecret/0/valueSecretRef/key",
            json!("x"),
            "HeaderSecretRefsValidated",
            "HeaderSecretNotFound",
        ),
        (
            "/headerForward/addPlaintextHeaders",
            json!({ "Host": "x" }),
            "HeaderForwardValidated",
            "HeaderForwardInvalid",
        ),
        (
            "/headerForward/addHeadersFromSecret/0/headerName",
            json!("X Y"),
            "HeaderForwardValidated",
            "HeaderForwardInvalid",
        ),
    ];
    for (place, value, kind, reason) in cases {
        let status = status(&changed(&spec(), place, &value), &surroundings());
        let condition = status.find(kind).unwrap();
        assert_eq!((condition.is_true(), condition.reason.as_str()), (false, reason), "{place}");
        let valid = status.find("Valid").unwrap();
        assert!(
            !valid.is_true() && (kind == "Valid" || valid.message == condition.message),
            "{place}: {}",
            valid.message
        );
        assert_eq!(status.field("phase"), Some(&json!("Failed")));
        assert_eq!(
            status.conditions().iter().filter(|one| !one.is_true()).count(),
            if kind == "Valid" { 1 } else { 2 }
        );
    }
}

#[test]
fn a_private_address_is_let_through_where_it_is_meant() {
    let spec = changed(&spec(), "/remoteUrl", &json!("https://10.0.0.1/mcp"));
    let spec = changed(&spec, "/allowPrivateEndpoint", &json!(true));
    assert!(status(&spec, &surroundings()).find("Valid").unwrap().is_true());
}

#[test]
fn a_group_that_is_deleted_and_an_invalid_configuration_are_reported() {
    let mut world = surroundings().with(deleted(KindName::MCPGroup, "g", &json!({})));
    assert_eq!(status(&spec(), &world).find("GroupRefValidated").unwrap().reason, "GroupRefNotReady");
    world = surroundings().with(auth("bearerToken"));
    let condition = status(&spec(), &world).find("ExternalAuthConfigValidated").unwrap().clone();
    assert_eq!(condition.reason, "AuthConfigInvalid");
    assert!(condition.message.contains("spec.bearerToken: it is missing"), "{}", condition.message);
}
