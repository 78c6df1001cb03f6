//! What the data plane of this build cannot run is said at plan time.

use anyhow::Result;
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;
use skep_plan::world::Feature;

use crate::running::{condition, plane, start_lacking};

#[tokio::test]
async fn features_that_this_build_lacks_are_a_condition_and_touch_no_child() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("support").await?;
    let lacking = [Feature::Authentication, Feature::Audit, Feature::Tracing, Feature::CodeMode];
    let operator = start_lacking(plane, namespace, &lacking)?;
    let idp = json!({ "type": "inline", "inline": { "issuer": "https://idp.example" } });
    operator.create(KindName::MCPOIDCConfig, "idp", idp).await?;
    let otel = json!({ "openTelemetry": { "enabled": true, "endpoint": "o:1", "tracing": { "enabled": true } } });
    operator.create(KindName::MCPTelemetryConfig, "otel", otel).await?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;

    // What only observes calls is reported, and the server runs.
    let observed = json!({ "image": "i", "telemetryConfigRef": { "name": "otel" } });
    operator.create(KindName::MCPServer, "s", observed).await?;
    let reported = |one: &Value| condition(one, "TracingInForce") == Some(("False", "NotSupported"));
    operator.until(KindName::MCPServer, "s", "says what is not in force", reported).await?;
    let before = operator.child(ChildKind::Deployment, "s", "is there", |_| true).await?;

    // What guards or records calls is refused, and what runs stays as it is.
    for (field, asked) in [
        ("spec.audit", json!({ "audit": { "enabled": true } })),
        ("spec.oidcConfigRef", json!({ "oidcConfigRef": { "name": "idp", "audience": "a" } })),
    ] {
        operator.edit(KindName::MCPServer, "s", asked).await?;
        let refused = |one: &Value| {
            condition(one, "Ready") == Some(("False", "NotSupported"))
                && condition(one, "Stalled") == Some(("True", "NotSupported"))
                && one["status"]["message"].as_str().is_some_and(|message| message.contains(field))
        };
        operator.until(KindName::MCPServer, "s", "is refused", refused).await?;
    }
    operator.settled().await?;
    let after = operator.child(ChildKind::Deployment, "s", "is there", |_| true).await?;
    assert_eq!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);

    let guarded = json!({ "remoteUrl": "https://mcp.example", "oidcConfigRef": { "name": "idp", "audience": "a" } });
    operator.create(KindName::MCPRemoteProxy, "r", guarded).await?;
    let refused = |one: &Value| {
        condition(one, "Ready") == Some(("False", "NotSupported"))
            && condition(one, "ConfigurationValid") == Some(("False", "NotSupported"))
            && one["status"]["url"].is_null()
    };
    operator.until(KindName::MCPRemoteProxy, "r", "is refused", refused).await?;
    let scripts = json!({ "codeMode": { "enabled": true } });
    let many = json!({ "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" }, "config": scripts });
    operator.create(KindName::VirtualMCPServer, "v", many).await?;
    let refused = |one: &Value| condition(one, "Ready") == Some(("False", "NotSupported"));
    operator.until(KindName::VirtualMCPServer, "v", "is refused", refused).await?;
    for name in ["r", "v"] {
        assert!(operator.children(ChildKind::Deployment).get_opt(name).await?.is_none());
    }
    operator.stop().await
}
