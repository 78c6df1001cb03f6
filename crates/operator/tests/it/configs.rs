//! Configurations and their users: hashes, who uses what, order that does not matter, deletion that waits.

use anyhow::Result;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;
use skep_testkit::{Seen, eventually};

use crate::running::{PATIENCE, condition, operator};

fn webhooks(url: &str) -> Value {
    json!({ "validating": [{ "name": "check", "url": url }] })
}

fn server(webhooks: Option<&str>) -> Value {
    match webhooks {
        Some(name) => {
            json!({ "image": "registry.example/a:1", "transport": "streamable-http", "webhookConfigRef": { "name": name } })
        }
        None => json!({ "image": "registry.example/a:1", "transport": "streamable-http", "webhookConfigRef": null }),
    }
}

fn users(object: &Value) -> Value {
    object.pointer("/status/referencingWorkloads").cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_server_with_a_missing_config_fails_and_heals_the_moment_the_config_appears() -> Result<()> {
    let operator = operator("order").await?;
    operator.create(KindName::MCPServer, "s", server(Some("hooks"))).await?;
    let failed = |object: &Value| {
        object["status"]["phase"] == "Failed" && condition(object, "Ready") == Some(("False", "NotReady"))
    };
    let seen = operator.until(KindName::MCPServer, "s", "fails", failed).await?;
    assert!(seen["status"]["message"].as_str().unwrap().contains("MCPWebhookConfig `hooks` not found"), "{seen}");
    assert_eq!(condition(&seen, "WebhookConfigValidated"), Some(("False", "WebhookConfigNotFound")));
    operator.settled().await?;

    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/1")).await?;
    let healed =
        |object: &Value| object["status"]["phase"] == "Pending" && object["status"]["webhookConfigHash"].is_string();
    let server = operator.until(KindName::MCPServer, "s", "heals", healed).await?;
    let config = operator
        .until(KindName::MCPWebhookConfig, "hooks", "has a hash", |one| one["status"]["configHash"].is_string())
        .await?;
    assert_eq!(server["status"]["webhookConfigHash"], config["status"]["configHash"]);
    operator.stop().await
}

#[tokio::test]
async fn a_change_of_a_config_reaches_the_run_config_without_a_change_of_the_server() -> Result<()> {
    let operator = operator("change").await?;
    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/1")).await?;
    let created = operator.create(KindName::MCPServer, "s", server(Some("hooks"))).await?;
    let url = |config: &Value| config["validating_webhooks"][0]["url"].clone();
    operator.run_config("s", "names the webhook", |config| url(config) == "https://hooks.example/1").await?;
    let before = operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;

    operator.edit(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/2")).await?;
    operator.run_config("s", "follows", |config| url(config) == "https://hooks.example/2").await?;
    let checksum = |object: &Value| {
        object.pointer("/spec/template/metadata/annotations").unwrap()["toolhive.stacklok.dev/runconfig-checksum"]
            .clone()
    };
    operator.child(ChildKind::Deployment, "s", "rolls", |after| checksum(after) != checksum(&before)).await?;
    let after = operator.resources(KindName::MCPServer).get("s").await?;
    assert_eq!(after.metadata.generation, created.metadata.generation);
    operator.stop().await
}

/// Ours: the original has webhooks for MCPServers only.
#[tokio::test]
async fn a_remote_proxy_has_webhooks_and_follows_their_config() -> Result<()> {
    let operator = operator("remote-hooks").await?;
    let spec = json!({ "remoteUrl": "https://mcp.example/mcp", "webhookConfigRef": { "name": "hooks" } });
    operator.create(KindName::MCPRemoteProxy, "r", spec).await?;
    let failed =
        |object: &Value| condition(object, "WebhookConfigValidated") == Some(("False", "WebhookConfigNotFound"));
    operator.until(KindName::MCPRemoteProxy, "r", "misses its config", failed).await?;
    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/1")).await?;
    let url = |config: &Value| config["validating_webhooks"][0]["url"].clone();
    operator.run_config("r", "names the webhook", |config| url(config) == "https://hooks.example/1").await?;
    let is_listed = |object: &Value| users(object) == json!([{ "kind": "MCPRemoteProxy", "name": "r" }]);
    operator.until(KindName::MCPWebhookConfig, "hooks", "lists its user", is_listed).await?;
    operator.edit(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/2")).await?;
    operator.run_config("r", "follows", |config| url(config) == "https://hooks.example/2").await?;
    operator.stop().await
}

/// Ours: the original has webhooks for MCPServers only.
#[tokio::test]
async fn a_virtual_server_has_webhooks_and_follows_and_keeps_their_config() -> Result<()> {
    let operator = operator("virtual-hooks").await?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;
    let spec = json!({
        "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" }, "webhookConfigRef": { "name": "hooks" },
    });
    let created = operator.create(KindName::VirtualMCPServer, "v", spec).await?;
    let failed = |one: &Value| {
        one["status"]["phase"] == "Failed" && condition(one, "Ready") == Some(("False", "WebhookConfigNotFound"))
    };
    let seen = operator.until(KindName::VirtualMCPServer, "v", "fails", failed).await?;
    assert_eq!(condition(&seen, "WebhookConfigValidated"), Some(("False", "WebhookConfigNotFound")));
    operator.settled().await?;

    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/1")).await?;
    let healed = |one: &Value| one["status"]["phase"] == "Pending" && one["status"]["webhookConfigHash"].is_string();
    let server = operator.until(KindName::VirtualMCPServer, "v", "heals", healed).await?;
    let is_listed = |one: &Value| {
        one["status"]["configHash"].is_string() && users(one) == json!([{ "kind": "VirtualMCPServer", "name": "v" }])
    };
    let config = operator.until(KindName::MCPWebhookConfig, "hooks", "lists its user", is_listed).await?;
    assert_eq!(server["status"]["webhookConfigHash"], config["status"]["configHash"]);
    let before = operator.child(ChildKind::Deployment, "v", "exists", |_| true).await?;

    operator.edit(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/2")).await?;
    let names =
        |map: &Value| map["data"]["config.yaml"].as_str().is_some_and(|text| text.contains("https://hooks.example/2"));
    operator.child(ChildKind::ConfigMap, "v-vmcp-config", "follows", names).await?;
    let checksum = |one: &Value| {
        one.pointer("/spec/template/metadata/annotations").unwrap()["toolhive.stacklok.dev/runconfig-checksum"].clone()
    };
    operator.child(ChildKind::Deployment, "v", "rolls", |after| checksum(after) != checksum(&before)).await?;
    let after = operator.resources(KindName::VirtualMCPServer).get("v").await?;
    assert_eq!(after.metadata.generation, created.metadata.generation);

    operator.resources(KindName::MCPWebhookConfig).delete("hooks", &DeleteParams::default()).await?;
    let blocked = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "ReferencedByWorkloads"));
    operator.until(KindName::MCPWebhookConfig, "hooks", "is blocked", blocked).await?;
    operator.edit(KindName::VirtualMCPServer, "v", json!({ "webhookConfigRef": null })).await?;
    let is_without = |one: &Value| one["status"]["webhookConfigHash"].is_null();
    operator.until(KindName::VirtualMCPServer, "v", "is without", is_without).await?;
    let configs = operator.resources(KindName::MCPWebhookConfig);
    let configs = &configs;
    eventually("the config goes", PATIENCE, || async move {
        Ok(match configs.get_opt("hooks").await? {
            None => Seen::Yes(()),
            Some(_) => Seen::NotYet("it is still there".to_owned()),
        })
    })
    .await?;
    operator.stop().await
}

/// The watch brings back what we write, often before the answer. It does not pass for a change by another client.
#[tokio::test]
async fn a_new_server_is_reconciled_once_and_once_more_for_an_edit_of_its_config() -> Result<()> {
    const SERVERS: u64 = 20;
    let operator = operator("reconciles").await?;
    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/1")).await?;
    let hashed = |config: &Value| config.pointer("/status/configHash").is_some();
    operator.until(KindName::MCPWebhookConfig, "hooks", "is known", hashed).await?;
    for number in 0..SERVERS {
        operator.create(KindName::MCPServer, &format!("s{number}"), server(Some("hooks"))).await?;
    }
    operator.settled().await?;
    let reconciles = || operator.counted("reconciles", &["MCPServer"]);
    assert_eq!(reconciles(), SERVERS, "at new servers");
    operator.edit(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/2")).await?;
    for number in 0..SERVERS {
        let follows = |config: &Value| config["validating_webhooks"][0]["url"] == "https://hooks.example/2";
        operator.run_config(&format!("s{number}"), "follows", follows).await?;
    }
    operator.settled().await?;
    assert_eq!(reconciles(), 2 * SERVERS);
    operator.stop().await
}

#[tokio::test]
async fn the_users_of_a_config_are_right_after_a_server_is_created_changed_and_deleted() -> Result<()> {
    let operator = operator("users").await?;
    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/1")).await?;
    operator.create(KindName::MCPServer, "a", server(Some("hooks"))).await?;
    operator.create(KindName::MCPServer, "b", server(Some("hooks"))).await?;
    let both = json!([{ "kind": "MCPServer", "name": "a" }, { "kind": "MCPServer", "name": "b" }]);
    operator.until(KindName::MCPWebhookConfig, "hooks", "lists both", |one| users(one) == both).await?;
    operator.edit(KindName::MCPServer, "a", server(None)).await?;
    let one = json!([{ "kind": "MCPServer", "name": "b" }]);
    operator.until(KindName::MCPWebhookConfig, "hooks", "lists one", |config| users(config) == one).await?;
    operator.resources(KindName::MCPServer).delete("b", &DeleteParams::default()).await?;
    operator.until(KindName::MCPWebhookConfig, "hooks", "lists none", |config| users(config).is_null()).await?;
    operator.stop().await
}

#[tokio::test]
async fn a_config_in_use_stays_until_its_last_user_goes_and_then_goes_at_once() -> Result<()> {
    let operator = operator("deletion").await?;
    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/1")).await?;
    operator.create(KindName::MCPServer, "s", server(Some("hooks"))).await?;
    operator.until(KindName::MCPWebhookConfig, "hooks", "is used", |one| users(one)[0]["name"] == "s").await?;
    operator.resources(KindName::MCPWebhookConfig).delete("hooks", &DeleteParams::default()).await?;
    let blocked = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "ReferencedByWorkloads"));
    let config = operator.until(KindName::MCPWebhookConfig, "hooks", "is blocked", blocked).await?;
    let message = config["status"]["conditions"].to_string();
    assert!(message.contains("MCPServer `s`"), "{message}");
    operator.settled().await?;

    let started = std::time::Instant::now();
    operator.edit(KindName::MCPServer, "s", server(None)).await?;
    skep_testkit::eventually("the config goes", crate::running::PATIENCE, || async {
        Ok(match operator.resources(KindName::MCPWebhookConfig).get_opt("hooks").await? {
            None => skep_testkit::Seen::Yes(()),
            Some(_) => skep_testkit::Seen::NotYet("it is still there".to_owned()),
        })
    })
    .await?;
    assert!(started.elapsed() < std::time::Duration::from_secs(15), "released by the 30 s re-check, not by the watch");
    operator.stop().await
}

#[tokio::test]
async fn a_workload_leaves_the_config_that_it_uses_untouched() -> Result<()> {
    let operator = operator("owner").await?;
    let oidc = json!({ "type": "inline", "inline": { "issuer": "https://idp.example" } });
    operator.create(KindName::MCPOIDCConfig, "idp", oidc).await?;
    let spec = json!({ "image": "registry.example/a:1", "oidcConfigRef": { "name": "idp", "audience": "a" } });
    operator.create(KindName::MCPServer, "s", spec).await?;
    operator.until(KindName::MCPOIDCConfig, "idp", "is used", |one| users(one)[0]["name"] == "s").await?;
    let before = operator.settled().await?;
    // Everything that makes the server reconcile: a spec edit, an annotation, an edit of no consequence.
    for patch in [
        json!({ "spec": { "image": "registry.example/a:2" } }),
        json!({ "metadata": { "annotations": { "note": "x" } } }),
        json!({ "spec": { "replicas": 2 } }),
    ] {
        operator.resources(KindName::MCPServer).patch("s", &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    let after = operator.settled().await?;
    assert_ne!(before["MCPServer/s"], after["MCPServer/s"]);
    assert_eq!(before["MCPOIDCConfig/idp"], after["MCPOIDCConfig/idp"]);
    operator.stop().await
}

#[tokio::test]
async fn an_invalid_config_says_so_and_its_users_keep_what_they_have() -> Result<()> {
    let operator = operator("invalid").await?;
    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/1")).await?;
    operator.create(KindName::MCPServer, "s", server(Some("hooks"))).await?;
    operator.run_config("s", "names the webhook", |config| config["validating_webhooks"][0]["name"] == "check").await?;
    let before = operator.settled().await?;
    operator.edit(KindName::MCPWebhookConfig, "hooks", webhooks("http://plain.example/1")).await?;
    let invalid = |one: &Value| condition(one, "Valid") == Some(("False", "ValidationFailed"));
    operator.until(KindName::MCPWebhookConfig, "hooks", "is invalid", invalid).await?;
    operator.until(KindName::MCPServer, "s", "fails", |one| one["status"]["phase"] == "Failed").await?;
    let after = operator.settled().await?;
    for child in ["ConfigMap/s-runconfig", "Deployment/s", "Service/mcp-s-proxy"] {
        assert_eq!(before[child], after[child], "{child} was touched");
    }
    operator.stop().await
}

#[tokio::test]
async fn events_report_transitions_and_nothing_else() -> Result<()> {
    let operator = operator("events").await?;
    operator.create(KindName::MCPServer, "s", server(Some("hooks"))).await?;
    operator.until(KindName::MCPServer, "s", "fails", |one| one["status"]["phase"] == "Failed").await?;
    for note in ["1", "2", "3"] {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "note": note } } }));
        operator.resources(KindName::MCPServer).patch("s", &PatchParams::default(), &patch).await?;
    }
    operator.settled().await?;
    let events: kube::Api<k8s_openapi::api::events::v1::Event> =
        kube::Api::namespaced(operator.client.clone(), &operator.namespace);
    let reported = || async {
        let list = events.list(&kube::api::ListParams::default()).await?;
        let about = list
            .items
            .into_iter()
            .filter(|event| event.regarding.as_ref().and_then(|one| one.name.as_deref()) == Some("s"));
        let mut reported: Vec<_> =
            about.map(|event| (event.type_.unwrap_or_default(), event.reason.unwrap_or_default())).collect();
        reported.sort();
        Ok::<_, anyhow::Error>(reported)
    };
    let one = |kind: &str, reason: &str| (kind.to_owned(), reason.to_owned());
    assert_eq!(reported().await?, [one("Warning", "WebhookConfigNotFound")]);
    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks("https://hooks.example/1")).await?;
    operator.until(KindName::MCPServer, "s", "heals", |one| one["status"]["phase"] == "Pending").await?;
    operator.settled().await?;
    assert_eq!(reported().await?, [one("Normal", "WebhookConfigValid"), one("Warning", "WebhookConfigNotFound")]);
    operator.stop().await
}
