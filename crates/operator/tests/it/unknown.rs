//! What the operator cannot read, and what it stumbles over: other objects are reconciled meanwhile, and nothing is given up.

use anyhow::Result;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;
use skep_testkit::{Seen, eventually};

use crate::running::{PATIENCE, Running, condition, operator, start};

fn tools() -> Value {
    json!({ "toolsFilter": ["a"] })
}

fn oidc() -> Value {
    json!({ "type": "inline", "inline": { "issuer": "https://idp.example" } })
}

fn server() -> Value {
    json!({
        "image": "registry.example/a:1", "transport": "streamable-http",
        "toolConfigRef": { "name": "shared-tools" }, "oidcConfigRef": { "name": "idp", "audience": "a" },
    })
}

/// Takes the image out of a server's spec, without which no operator can read it, and leaves its references. The schema requires
/// it, so a schema that does not has to be in place.
async fn spoil(operator: &Running, name: &str) -> Result<()> {
    let without = Patch::Merge(json!({ "spec": { "image": null } }));
    operator.resources(KindName::MCPServer).patch(name, &PatchParams::default(), &without).await?;
    let reported = |one: &Value| condition(one, "Ready") == Some(("False", "SpecInvalid"));
    operator.until(KindName::MCPServer, name, "cannot be read", reported).await?;
    Ok(())
}

/// The definitions with the rules of MCPServers taken out.
async fn lenient(plane: &skep_testkit::ControlPlane) -> Result<()> {
    crate::running::define(plane).await?;
    let definition = serde_json::to_value(KindName::MCPServer.definition()?)?;
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let mut definition = definition;
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] = open.clone();
        version["schema"]["openAPIV3Schema"]["properties"]["status"] = open.clone();
    }
    let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    plane.kubectl_with_input(&arguments, &definition.to_string()).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn an_object_that_cannot_be_read_keeps_its_configs_from_being_deleted() -> Result<()> {
    let plane = skep_testkit::ControlPlane::start().await?;
    lenient(&plane).await?;
    let first = start(&plane, plane.namespace("unreadable").await?)?;
    first.create(KindName::MCPToolConfig, "shared-tools", tools()).await?;
    first.create(KindName::MCPToolConfig, "unrelated", tools()).await?;
    first.create(KindName::MCPOIDCConfig, "idp", oidc()).await?;
    first.create(KindName::MCPServer, "s", server()).await?;
    let users = json!([{ "kind": "MCPServer", "name": "s" }]);
    let used = |one: &Value| one["status"]["referencingWorkloads"] == users;
    first.until(KindName::MCPToolConfig, "shared-tools", "is used", used).await?;

    // It is known what it referred to when it could be read.
    spoil(&first, "s").await?;
    first.resources(KindName::MCPToolConfig).delete("shared-tools", &DeleteParams::default()).await?;
    let blocked = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "ReferencedByWorkloads"));
    first.until(KindName::MCPToolConfig, "shared-tools", "is blocked", blocked).await?;

    // The next operator never could read it, and finds the names in it.
    let namespace = first.namespace.clone();
    first.stop().await?;
    let second = start(&plane, namespace)?;
    second.resources(KindName::MCPOIDCConfig).delete("idp", &DeleteParams::default()).await?;
    let unknown = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "UsersUnknown"));
    for (kind, name) in [(KindName::MCPOIDCConfig, "idp"), (KindName::MCPToolConfig, "shared-tools")] {
        let config = second.until(kind, name, "is blocked", unknown).await?;
        assert!(config["status"].to_string().contains("MCPServer `s` cannot be read"), "{config}");
    }
    // What it cannot mean goes.
    second.resources(KindName::MCPToolConfig).delete("unrelated", &DeleteParams::default()).await?;
    second.gone(KindName::MCPToolConfig, "unrelated").await?;

    // Once it can be read again, its references count, and once it is gone, nothing holds them.
    second.edit(KindName::MCPServer, "s", json!({ "image": "registry.example/a:1", "oidcConfigRef": null })).await?;
    second.gone(KindName::MCPOIDCConfig, "idp").await?;
    second.until(KindName::MCPToolConfig, "shared-tools", "is blocked by a user", blocked).await?;
    spoil(&second, "s").await?;
    second.resources(KindName::MCPServer).delete("s", &DeleteParams::default()).await?;
    second.gone(KindName::MCPServer, "s").await?;
    second.gone(KindName::MCPToolConfig, "shared-tools").await?;
    second.stop().await?;
    plane.stop();
    Ok(())
}

#[tokio::test]
async fn of_many_that_may_use_an_unreadable_config_ten_are_named() -> Result<()> {
    let operator = operator("possible").await?;
    let deep = (0..110).fold(json!(1), |inner, _| json!({ "x": inner }));
    let spec = json!({ "image": "i", "podTemplateSpec": deep, "oidcConfigRef": { "name": "idp", "audience": "a" } });
    for number in 0..12 {
        operator.create(KindName::MCPServer, &format!("s{number}"), spec.clone()).await?;
    }
    let finalizer = KindName::MCPOIDCConfig.finalizer();
    let bare = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPOIDCConfig",
        "metadata": { "name": "idp", "namespace": operator.namespace, "finalizers": [finalizer] },
    });
    let configs = operator.resources(KindName::MCPOIDCConfig);
    configs.create(&kube::api::PostParams::default(), &serde_json::from_value(bare)?).await?;
    configs.delete("idp", &DeleteParams::default()).await?;
    let named = |one: &Value| {
        let conditions = one["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let blocked = conditions.iter().find(|condition| condition["type"] == "DeletionBlocked");
        let message = blocked.and_then(|blocked| blocked["message"].as_str()).unwrap_or_default();
        condition(one, "Valid") == Some(("False", "SpecInvalid"))
            && condition(one, "DeletionBlocked") == Some(("True", "UsersUnknown"))
            && message.contains("and 2 more")
            && message.matches("MCPServer `").count() == 10
    };
    operator.until(KindName::MCPOIDCConfig, "idp", "names ten", named).await?;
    operator.settled().await?;
    operator.stop().await
}

#[tokio::test]
async fn a_panic_ends_one_reconcile_only() -> Result<()> {
    let operator = operator("panic").await?;
    let policy = |text: &str| json!({ "type": "cedarv1", "config": { "policies": [text] } });
    operator.create(KindName::MCPAuthzConfig, "bad", policy("permit( // panic for the test")).await?;
    let panics = || operator.counted("reconcile_panics", &["kind=\"MCPAuthzConfig\""]);
    eventually("it is retried", PATIENCE, || async {
        Ok(if panics() >= 3 { Seen::Yes(()) } else { Seen::NotYet(format!("{} panics", panics())) })
    })
    .await?;
    // Every worker has stumbled over it by now, if one panic took one with it.
    for number in 0..20 {
        operator.create(KindName::MCPServer, &format!("s{number}"), json!({ "image": "i" })).await?;
    }
    for number in 0..20 {
        operator.child(ChildKind::Deployment, &format!("s{number}"), "exists", |_| true).await?;
    }
    // With backoff: a tight loop would have panicked thousands of times.
    assert!(panics() < 20, "{} panics", panics());
    assert!(operator.counted("reconciles", &["result=\"panic\""]) >= 3);
    operator.edit(KindName::MCPAuthzConfig, "bad", policy("permit(principal, action, resource);")).await?;
    let valid = |one: &Value| condition(one, "Valid").is_some_and(|(status, _)| status == "True");
    operator.until(KindName::MCPAuthzConfig, "bad", "heals", valid).await?;
    operator.stop().await
}

/// A workload that names a policy panics with it; its neighbours do not.
#[tokio::test]
async fn a_panic_leaves_nothing_locked() -> Result<()> {
    let running = operator("panics").await?;
    let policy = json!({ "type": "cedarv1", "config": { "policies": ["permit( // panic for the test"] } });
    running.create(KindName::MCPAuthzConfig, "bad", policy).await?;
    running.create(KindName::MCPServer, "s", json!({ "image": "i", "authzConfigRef": { "name": "bad" } })).await?;
    eventually("both panic", PATIENCE, || async {
        let kinds = ["MCPAuthzConfig", "MCPServer"].map(|kind| running.counted("reconcile_panics", &[kind]));
        Ok(if kinds.iter().all(|count| *count > 0) { Seen::Yes(()) } else { Seen::NotYet(format!("{kinds:?}")) })
    })
    .await?;
    running.edit(KindName::MCPServer, "s", json!({ "authzConfigRef": null })).await?;
    running.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    running.stop().await
}
