//! Statuses on real pods: ready means that the current pods and their backend serve, and a failure has its reason.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use skep_testkit::{Seen, eventually};

use crate::cluster::{PATIENCE, fixture_image};
use crate::home::{Home, get, http, stdio, with};

/// A variable with which the proxy does not start: it refuses an invalid HTTP proxy.
const BROKEN: &str = "ftp://nowhere.example";

fn broken_proxy() -> Value {
    json!([{ "name": "HTTPS_PROXY", "value": BROKEN }])
}

#[tokio::test]
async fn a_proxy_that_cannot_start_is_not_ready_while_the_old_one_serves() -> Result<()> {
    let home = Home::new("stalled").await?;
    home.create("web", http(&fixture_image()?)).await?;
    home.condition("MCPServer", "web", "Ready", "True", "Ready").await?;
    let caller = home.caller(&home.address("web").await?).await?;

    // The proxy that would authenticate clients does not start.
    let provider = json!({ "type": "inline", "inline": { "issuer": "https://idp.example" } });
    home.create_kind("MCPOIDCConfig", "provider", provider).await?;
    let broken = json!({ "spec": {
        "resourceOverrides": { "proxyDeployment": { "env": broken_proxy() } },
        "oidcConfigRef": { "name": "provider", "audience": "web" },
    } });
    home.servers().patch("web", &PatchParams::default(), &Patch::Merge(broken)).await?;
    let ready = home.condition("MCPServer", "web", "Ready", "False", "RolloutStalled").await?;
    // The status has the program's own message, which the kubelet got as its termination message.
    let message = ready["message"].as_str().unwrap_or_default();
    ensure!(message.contains("CrashLoopBackOff") && message.contains("`HTTPS_PROXY` is not the address"), "{message}");
    home.condition("MCPServer", "web", "Stalled", "True", "RolloutStalled").await?;
    home.phase("MCPServer", "web", "Ready").await?;
    ensure!(caller.call("who", "{}")?.starts_with("web-0"), "the old proxy does not serve");
    let status = home.servers().get("web").await?.data;
    ensure!(status.pointer("/status/oidcConfigHash").is_none(), "authentication is not in force: {status}");

    // However often it restarts, the status is written once.
    let written = home.versions_until_restarted("web", "app=mcpserver,app.kubernetes.io/instance=web", 3).await?;
    ensure!(written.len() == 1, "{} versions of a status that says one thing", written.len());

    let mended = json!({ "spec": { "resourceOverrides": null, "oidcConfigRef": null } });
    home.servers().patch("web", &PatchParams::default(), &Patch::Merge(mended)).await?;
    home.condition("MCPServer", "web", "Ready", "True", "Ready").await?;
    home.cluster.remove().await
}

#[tokio::test]
async fn remote_proxies_and_virtual_servers_whose_new_pods_cannot_start_say_so() -> Result<()> {
    let home = Home::new("stalled-others").await?;
    let member = with(http(&fixture_image()?), "groupRef", json!({ "name": "g" }));
    home.create_kind("MCPGroup", "g", json!({})).await?;
    home.create("web", member).await?;
    home.condition("MCPServer", "web", "Ready", "True", "Ready").await?;
    let remote =
        json!({ "remoteUrl": format!("http://{}/mcp", home.address("web").await?), "allowPrivateEndpoint": true });
    home.create_kind("MCPRemoteProxy", "far", remote).await?;
    let group = json!({ "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" } });
    home.create_kind("VirtualMCPServer", "v", group).await?;
    let overrides = json!({ "resourceOverrides": { "proxyDeployment": { "env": broken_proxy() } } });
    let missing = json!([{ "name": "vmcp", "image": "localhost/no-such-image:1" }]);
    let template = json!({ "podTemplateSpec": { "spec": { "containers": missing } } });
    for (kind, name, service, broken, why) in [
        ("MCPRemoteProxy", "far", "mcp-far-remote-proxy", overrides, "`HTTPS_PROXY` is not the address"),
        ("VirtualMCPServer", "v", "vmcp-v", template, "no-such-image"),
    ] {
        home.condition(kind, name, "Ready", "True", "DeploymentReady").await?;
        let address = home.address_of(service).await?;
        home.kind(kind).patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": broken }))).await?;
        let ready = home.condition(kind, name, "Ready", "False", "RolloutStalled").await?;
        let message = ready["message"].as_str().unwrap_or_default();
        ensure!(message.contains(why), "{kind}: {message}");
        home.phase(kind, name, "Ready").await?;
        ensure!(get(&address, "/health")?.0.starts_with("HTTP/1.1 200"), "the old pod of {kind} does not serve");
        let mended = json!({ "spec": { "resourceOverrides": null, "podTemplateSpec": null } });
        home.kind(kind).patch(name, &PatchParams::default(), &Patch::Merge(mended)).await?;
        home.condition(kind, name, "Ready", "True", "DeploymentReady").await?;
    }
    home.cluster.remove().await
}

#[tokio::test]
async fn a_server_is_not_ready_without_its_backend_and_says_why() -> Result<()> {
    let home = Home::new("backend").await?;
    let fixture = fixture_image()?;
    home.create("crashes", with(http(&fixture), "args", json!(["nonsense"]))).await?;
    home.create("nowhere", http("localhost/no-such-image:1")).await?;
    let huge = json!({ "spec": { "containers": [{ "name": "mcp", "resources": { "requests": { "cpu": "4000" } } }] } });
    home.create("huge", with(http(&fixture), "podTemplateSpec", huge)).await?;
    home.create("web", http(&fixture)).await?;

    for (name, reason, words) in [
        ("crashes", "CrashLoopBackOff", "container `mcp` ended with exit code 1"),
        ("nowhere", "ImagePullBackOff", "no-such-image"),
        ("huge", "Unschedulable", "Insufficient cpu"),
    ] {
        let ready = home.condition("MCPServer", name, "Ready", "False", reason).await?;
        let message = ready["message"].as_str().unwrap_or_default();
        ensure!(message.contains(words) && message.contains(&format!("`{name}-0`")), "{name}: {message}");
        home.phase("MCPServer", name, "Failed").await?;
    }
    home.condition("MCPServer", "web", "Ready", "True", "Ready").await?;
    // A container in a crash loop runs in between, and is never taken for one that serves.
    let written = home.versions_until_restarted("crashes", "app=crashes", 3).await?;
    ensure!(written.len() == 1, "{} versions of a status that says one thing", written.len());

    let scale = json!({ "spec": { "replicas": 0 } });
    let sets = home.api::<k8s_openapi::api::apps::v1::StatefulSet>();
    sets.patch("web", &PatchParams::default(), &Patch::Merge(scale)).await?;
    home.condition("MCPServer", "web", "Ready", "False", "BackendScaledToZero").await?;
    home.cluster.remove().await
}

#[tokio::test]
async fn a_server_that_never_responds_is_not_ready_though_its_pod_is() -> Result<()> {
    let home = Home::new("mute").await?;
    let fixture = fixture_image()?;
    // Without arguments it idles.
    home.create("lines", with(stdio(&fixture), "args", json!([]))).await?;
    home.create("web", with(http(&fixture), "args", json!([]))).await?;
    home.create("answers", stdio(&fixture)).await?;
    home.condition("MCPServer", "answers", "Ready", "True", "Ready").await?;
    for name in ["lines", "web"] {
        let ready = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
        };
        let objects = home.servers();
        eventually(&format!("{name} is reported"), PATIENCE, || async {
            let is_running = home.pods(&format!("app={name}")).await?.iter().any(ready);
            let server = objects.get(name).await?.data;
            let conditions = server.pointer("/status/conditions").and_then(Value::as_array);
            let condition = conditions.into_iter().flatten().find(|one| one["type"] == "Ready").cloned();
            let condition = condition.unwrap_or_default();
            ensure!(condition["status"] != "True", "{name} is ready: {condition}");
            let message = condition["message"].as_str().unwrap_or_default();
            let is_reported = message.contains("has not answered") || condition["reason"] == "UpstreamDegraded";
            Ok(if is_running && is_reported { Seen::Yes(()) } else { Seen::NotYet(server["status"].to_string()) })
        })
        .await?;
    }
    home.cluster.remove().await
}

#[tokio::test]
async fn a_spec_that_this_build_cannot_run_is_refused_and_the_running_server_goes_on() -> Result<()> {
    let home = Home::new("support").await?;
    home.create("web", http(&fixture_image()?)).await?;
    home.condition("MCPServer", "web", "Ready", "True", "Ready").await?;
    let scripts = json!({ "codeMode": { "enabled": true } });
    let group = json!({ "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" }, "config": scripts });
    home.create_kind("MCPGroup", "g", json!({})).await?;
    home.create_kind("VirtualMCPServer", "v", group).await?;
    home.condition("VirtualMCPServer", "v", "Ready", "False", "NotSupported").await?;
    ensure!(home.pods("app=virtualmcpserver").await?.is_empty(), "it was started all the same");

    let provider = json!({ "issuerUrl": "https://idp.example", "clientId": "skep" });
    let provider = json!({ "name": "idp", "type": "oidc", "oidcConfig": provider });
    let sign_in = json!({ "issuer": "https://auth.example", "upstreamProviders": [provider] });
    let sign_in = json!({ "type": "embeddedAuthServer", "embeddedAuthServer": sign_in });
    home.create_kind("MCPExternalAuthConfig", "sign-in", sign_in).await?;
    let own = json!({ "type": "inline", "inline": { "issuer": "https://auth.example" } });
    home.create_kind("MCPOIDCConfig", "own", own).await?;
    let resource = "https://web.example/mcp";
    let guarded = json!({ "spec": {
        "oidcConfigRef": { "name": "own", "audience": resource, "resourceUrl": resource },
        "authServerRef": { "kind": "MCPExternalAuthConfig", "name": "sign-in" } } });
    home.servers().patch("web", &PatchParams::default(), &Patch::Merge(guarded)).await?;
    home.condition("MCPServer", "web", "Ready", "False", "NotSupported").await?;
    let status = home.servers().get("web").await?.data;
    ensure!(status.pointer("/status/authServerConfigHash").is_none(), "a guard is shown that no pod has: {status}");
    home.phase("MCPServer", "web", "Ready").await?;
    home.cluster.no_restarts("app=mcpserver").await?;
    home.cluster.remove().await
}

impl Home {
    /// Waits for a condition, and returns it.
    async fn condition(&self, kind: &str, name: &str, condition: &str, status: &str, reason: &str) -> Result<Value> {
        let objects = self.kind(kind);
        eventually(&format!("{kind} {name} has {condition}={status} ({reason})"), PATIENCE, || async {
            let object = objects.get(name).await?.data;
            let all = object.pointer("/status/conditions").and_then(Value::as_array);
            let found = all.into_iter().flatten().find(|one| one["type"] == condition);
            Ok(match found.filter(|one| one["status"] == status && one["reason"] == reason) {
                Some(found) => Seen::Yes(found.clone()),
                None => Seen::NotYet(format!("the status is {}", object.get("status").unwrap_or(&Value::Null))),
            })
        })
        .await
    }

    /// The versions of an MCPServer until a container of the pods with these labels was restarted so often.
    async fn versions_until_restarted(&self, name: &str, labels: &str, restarts: i32) -> Result<BTreeSet<String>> {
        let servers = self.servers();
        let versions = std::sync::Mutex::new(BTreeSet::new());
        self.cluster
            .until(&format!("{name} was started again {restarts} times"), || async {
                let version = servers.get(name).await?.metadata.resource_version.unwrap_or_default();
                versions.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(version);
                let count = |pod: &Pod| {
                    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
                    containers.into_iter().map(|container| container.restart_count).max().unwrap_or_default()
                };
                Ok(self.pods(labels).await?.iter().map(count).max().is_some_and(|count| count >= restarts))
            })
            .await?;
        Ok(versions.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
