//! The other kinds on a real API server: remote proxies, groups, entries, virtual servers, embeddings, registries.

use std::future::ready;

use anyhow::Result;
use http::{Method, Request};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;

use crate::between::{Verdict, between, refusal};
use crate::running::{Running, condition, operator, plane, start_as};

async fn secret(operator: &Running, name: &str, data: Value) -> Result<()> {
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(operator.client.clone(), &operator.namespace);
    let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data });
    secrets.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

fn virtual_server() -> Value {
    json!({
        "groupRef": { "name": "g" },
        "incomingAuth": { "type": "oidc", "oidcConfigRef": { "name": "idp", "audience": "a" } },
    })
}

#[tokio::test]
async fn every_kind_of_user_of_a_config_is_listed_and_protects_it() -> Result<()> {
    let operator = operator("everyone").await?;
    operator
        .create(
            KindName::MCPOIDCConfig,
            "idp",
            json!({ "type": "inline", "inline": { "issuer": "https://idp.example" } }),
        )
        .await?;
    let oidc = json!({ "name": "idp", "audience": "a" });
    operator.create(KindName::MCPServer, "s", json!({ "image": "i", "oidcConfigRef": oidc })).await?;
    operator
        .create(KindName::MCPRemoteProxy, "r", json!({ "remoteUrl": "https://mcp.example", "oidcConfigRef": oidc }))
        .await?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;
    operator.create(KindName::VirtualMCPServer, "v", virtual_server()).await?;
    let all = json!([{ "kind": "MCPRemoteProxy", "name": "r" }, { "kind": "MCPServer", "name": "s" }, { "kind": "VirtualMCPServer", "name": "v" }]);
    operator
        .until(KindName::MCPOIDCConfig, "idp", "lists all", |one| one["status"]["referencingWorkloads"] == all)
        .await?;
    for (kind, name) in [(KindName::MCPServer, "s"), (KindName::MCPRemoteProxy, "r"), (KindName::VirtualMCPServer, "v")]
    {
        let valid = |one: &Value| condition(one, "OIDCConfigRefValidated").is_some_and(|(status, _)| status == "True");
        operator.until(kind, name, "sees it", valid).await?;
    }
    // Another client empties the list; the protection does not trust it.
    let configs = operator.resources(KindName::MCPOIDCConfig);
    let lie = Patch::Merge(json!({ "status": { "referencingWorkloads": [] } }));
    configs.patch_status("idp", &PatchParams::default(), &lie).await?;
    configs.delete("idp", &DeleteParams::default()).await?;
    let blocked = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "ReferencedByWorkloads"));
    let config = operator.until(KindName::MCPOIDCConfig, "idp", "is blocked", blocked).await?;
    assert_eq!(config["status"]["referencingWorkloads"], all, "the list is made anew");
    for (kind, name) in [(KindName::MCPServer, "s"), (KindName::MCPRemoteProxy, "r"), (KindName::VirtualMCPServer, "v")]
    {
        operator.resources(kind).delete(name, &DeleteParams::default()).await?;
    }
    skep_testkit::eventually("the config goes", crate::running::PATIENCE, || async {
        Ok(match configs.get_opt("idp").await? {
            None => skep_testkit::Seen::Yes(()),
            Some(_) => skep_testkit::Seen::NotYet("it is still there".to_owned()),
        })
    })
    .await?;
    operator.stop().await
}

#[tokio::test]
async fn a_remote_proxy_gets_its_children_and_says_what_is_wrong_with_its_spec() -> Result<()> {
    let operator = operator("remote").await?;
    operator
        .create(KindName::MCPRemoteProxy, "r", json!({ "remoteUrl": "https://mcp.example/mcp", "proxyPort": 9000 }))
        .await?;
    let deployment = operator.child(ChildKind::Deployment, "r", "exists", |_| true).await?;
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["args"],
        json!(["run", "--foreground=true", "placeholder-for-remote-proxy"])
    );
    let proxy = operator
        .until(KindName::MCPRemoteProxy, "r", "has a status", |one| one["status"]["phase"] == "Pending")
        .await?;
    assert_eq!(
        proxy["status"]["url"],
        format!("http://mcp-r-remote-proxy.{}.svc.cluster.local:9000", operator.namespace)
    );
    assert_eq!(condition(&proxy, "ConfigurationValid"), Some(("True", "ConfigurationValid")));
    assert_eq!(condition(&proxy, "AuthConfigured"), None);
    operator.run_config("r", "names the remote", |config| config["remote_url"] == "https://mcp.example/mcp").await?;

    for (name, spec, reason) in [
        ("private", json!({ "remoteUrl": "http://10.0.0.1/mcp" }), "RemoteURLInvalid"),
        (
            "metadata",
            json!({ "remoteUrl": "http://169.254.169.254/mcp", "allowPrivateEndpoint": true }),
            "RemoteURLInvalid",
        ),
        (
            "policy",
            json!({ "remoteUrl": "https://a.example", "authzConfig": { "type": "inline", "inline": { "policies": ["no"] } } }),
            "AuthzPolicySyntaxInvalid",
        ),
        (
            "map",
            json!({ "remoteUrl": "https://a.example", "authzConfig": { "type": "configMap", "configMap": { "name": "gone" } } }),
            "AuthzConfigMapNotFound",
        ),
        (
            "header",
            json!({ "remoteUrl": "https://a.example", "headerForward": { "addHeadersFromSecret": [{ "headerName": "x", "valueSecretRef": { "name": "gone", "key": "k" } }] } }),
            "HeaderSecretNotFound",
        ),
    ] {
        operator.create(KindName::MCPRemoteProxy, name, spec).await?;
        let refused = |one: &Value| {
            condition(one, "ConfigurationValid") == Some(("False", reason)) && one["status"]["phase"] == "Failed"
        };
        operator.until(KindName::MCPRemoteProxy, name, reason, refused).await?;
        assert!(operator.children(ChildKind::Deployment).get_opt(name).await?.is_none());
    }
    // What was missing appears, and the watch sees it.
    secret(&operator, "gone", json!({ "k": "v" })).await?;
    operator.until(KindName::MCPRemoteProxy, "header", "heals", |one| one["status"]["phase"] == "Pending").await?;
    operator.stop().await
}

#[tokio::test]
async fn a_child_that_the_api_server_refuses_is_reported_in_the_status() -> Result<()> {
    let operator = operator("refused").await?;
    let template = |policy: &str| json!({ "spec": { "dnsPolicy": policy } });
    operator
        .create(
            KindName::MCPRemoteProxy,
            "r",
            json!({ "remoteUrl": "https://a.example", "podTemplateSpec": template("Nobody") }),
        )
        .await?;
    let reported =
        |one: &Value| condition(one, "Ready") == Some(("False", "ApplyRefused")) && one["status"]["phase"] == "Failed";
    let proxy = operator.until(KindName::MCPRemoteProxy, "r", "is reported", reported).await?;
    assert!(proxy["status"]["message"].as_str().unwrap().contains("dnsPolicy"), "{proxy}");
    operator.edit(KindName::MCPRemoteProxy, "r", json!({ "podTemplateSpec": template("Default") })).await?;
    operator.until(KindName::MCPRemoteProxy, "r", "heals", |one| one["status"]["phase"] == "Pending").await?;
    operator.stop().await
}

/// As a quota does, and a policy.
#[tokio::test]
async fn a_child_that_is_forbidden_is_reported_in_the_status_with_the_reason() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("forbidden").await?;
    let forbidding = between(plane.client()?, |request: Request<Body>| {
        let hit = request.method() == Method::PATCH && request.uri().path().ends_with("/deployments/s");
        ready(if hit { Verdict::Answer(refusal(403, "Forbidden")) } else { Verdict::Pass(request) })
    });
    let operator = start_as(forbidding, plane, namespace)?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "i" })).await?;
    let reported =
        |one: &Value| condition(one, "Ready") == Some(("False", "ApplyRefused")) && one["status"]["phase"] == "Failed";
    let server = operator.until(KindName::MCPServer, "s", "is reported", reported).await?;
    let message = server["status"]["message"].as_str().unwrap();
    assert!(message.contains("Forbidden for the test") && message.contains("a quota"), "{message}");
    operator.stop().await
}

#[tokio::test]
async fn external_auth_that_is_missing_or_of_the_wrong_type_is_reported_and_heals() -> Result<()> {
    let operator = operator("external").await?;
    operator
        .create(
            KindName::MCPRemoteProxy,
            "r",
            json!({ "remoteUrl": "https://a.example", "externalAuthConfigRef": { "name": "auth" } }),
        )
        .await?;
    let missing = |one: &Value| {
        condition(one, "AuthConfigured") == Some(("False", "AuthInvalid"))
            && one["status"]["message"].as_str().unwrap_or_default().contains("auth")
    };
    operator.until(KindName::MCPRemoteProxy, "r", "misses it", missing).await?;
    secret(&operator, "s", json!({ "k": "v" })).await?;
    let exchange = json!({ "type": "tokenExchange", "tokenExchange": {
        "tokenUrl": "https://idp.example/token", "audience": "b", "clientSecretRef": { "name": "s", "key": "k" },
    }});
    operator.create(KindName::MCPExternalAuthConfig, "auth", exchange).await?;
    operator.until(KindName::MCPRemoteProxy, "r", "heals", |one| one["status"]["phase"] == "Pending").await?;
    let config = operator
        .run_config("r", "exchanges tokens", |config| config["token_exchange_config"]["audience"] == "b")
        .await?;
    assert_eq!(config["token_exchange_config"]["client_secret"], "", "no secret in a ConfigMap");

    operator
        .create(
            KindName::MCPServer,
            "m",
            json!({ "image": "i", "authServerRef": { "kind": "MCPExternalAuthConfig", "name": "auth" } }),
        )
        .await?;
    let wrong = |one: &Value| condition(one, "AuthServerRefValidated") == Some(("False", "AuthServerRefInvalidType"));
    let server = operator.until(KindName::MCPServer, "m", "refuses the type", wrong).await?;
    assert!(server["status"]["message"].as_str().unwrap().contains("only embeddedAuthServer is supported"), "{server}");
    operator.stop().await
}

#[tokio::test]
async fn a_virtual_server_gets_its_children_and_a_key_that_is_made_once() -> Result<()> {
    let operator = operator("virtual").await?;
    operator
        .create(
            KindName::VirtualMCPServer,
            "v",
            json!({ "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" } }),
        )
        .await?;
    let waits = |one: &Value| condition(one, "GroupRefValidated") == Some(("False", "GroupRefNotFound"));
    operator.until(KindName::VirtualMCPServer, "v", "misses its group", waits).await?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;
    operator.child(ChildKind::Deployment, "v", "exists", |_| true).await?;
    for (kind, name) in
        [(ChildKind::Service, "vmcp-v"), (ChildKind::ConfigMap, "v-vmcp-config"), (ChildKind::Role, "v-vmcp")]
    {
        operator.child(kind, name, "exists", |_| true).await?;
    }
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(operator.client.clone(), &operator.namespace);
    let key = || async {
        Ok::<_, anyhow::Error>(secrets.get("v-hmac-secret").await?.data.unwrap_or_default()["hmac-secret"].0.clone())
    };
    let first = key().await?;
    assert_eq!(first.len(), 44, "base64 of 32 bytes");
    let before = operator.settled().await?;
    let deployment = operator.child(ChildKind::Deployment, "v", "exists", |_| true).await?;
    assert_eq!(deployment["metadata"]["generation"], 1, "the key that was made first rolls nothing");
    // A member of a group that is discovered rolls nothing.
    operator.create(KindName::MCPServer, "member", json!({ "image": "i", "groupRef": { "name": "g" } })).await?;
    let after = operator.settled().await?;
    assert_eq!(before["Deployment/v"], after["Deployment/v"]);
    assert_eq!(first, key().await?);
    // What the process reports moves the phase, and is not touched.
    let report = Patch::Merge(
        json!({ "status": { "discoveredBackends": [{ "name": "member", "status": "ready" }], "backendCount": 1 } }),
    );
    operator.resources(KindName::VirtualMCPServer).patch_status("v", &PatchParams::default(), &report).await?;
    operator.settled().await?;
    let server = operator.until(KindName::VirtualMCPServer, "v", "is there", |_| true).await?;
    assert_eq!(server["status"]["backendCount"], 1);
    // An invalid key is reported; deleted, as the advice says, it is made anew, and the pods read it.
    let broken = Patch::Merge(json!({ "stringData": { "hmac-secret": "broken" } }));
    secrets.patch("v-hmac-secret", &PatchParams::default(), &broken).await?;
    let reported = |one: &Value| condition(one, "SessionKeyValid") == Some(("False", "HMACSecretValidationFailed"));
    operator.until(KindName::VirtualMCPServer, "v", "is reported", reported).await?;
    secrets.delete("v-hmac-secret", &DeleteParams::default()).await?;
    let inputs = |one: &Value| {
        let annotations = one.pointer("/spec/template/metadata/annotations").cloned().unwrap_or_default();
        annotations["toolhive.stacklok.dev/inputs-checksum"].clone()
    };
    operator.child(ChildKind::Deployment, "v", "rolls", |one| inputs(one) != inputs(&deployment)).await?;
    assert_ne!(first, key().await?);
    operator.stop().await
}

/// As `kubectl delete --cascade=foreground` does: the object stays until its children are gone.
#[tokio::test]
async fn a_remote_proxy_that_is_deleted_in_the_foreground_makes_nothing_again() -> Result<()> {
    let operator = operator("foreground").await?;
    operator.create(KindName::MCPRemoteProxy, "r", json!({ "remoteUrl": "https://a.example" })).await?;
    operator.child(ChildKind::Deployment, "r", "exists", |_| true).await?;
    operator.settled().await?;
    operator.resources(KindName::MCPRemoteProxy).delete("r", &DeleteParams::foreground()).await?;
    operator.until(KindName::MCPRemoteProxy, "r", "ends", |one| one["status"]["phase"] == "Terminating").await?;
    let left = operator.settled().await?;
    assert_eq!(left.keys().collect::<Vec<_>>(), ["MCPRemoteProxy/r"]);
    operator.stop().await
}

#[tokio::test]
async fn embeddings_registries_entries_and_composite_tools_say_how_they_are() -> Result<()> {
    let operator = operator("kinds").await?;
    operator.create(KindName::EmbeddingServer, "e", json!({ "modelCache": { "size": "1Gi" } })).await?;
    let set = operator.child(ChildKind::StatefulSet, "e", "exists", |_| true).await?;
    assert_eq!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "model-cache");
    operator.until(KindName::EmbeddingServer, "e", "has a url", |one| one["status"]["url"].is_string()).await?;

    operator
        .create(
            KindName::MCPRegistry,
            "reg",
            json!({ "configYAML": "sources: []\n", "podTemplateSpec": { "spec": { "containers": 1 } } }),
        )
        .await?;
    let invalid = |one: &Value| condition(one, "PodTemplateValid") == Some(("False", "InvalidPodTemplateSpec"));
    operator.until(KindName::MCPRegistry, "reg", "is invalid", invalid).await?;
    operator.resources(KindName::MCPRegistry).delete("reg", &DeleteParams::default()).await?;
    skep_testkit::eventually("an invalid registry can be deleted", crate::running::PATIENCE, || async {
        Ok(match operator.resources(KindName::MCPRegistry).get_opt("reg").await? {
            None => skep_testkit::Seen::Yes(()),
            Some(_) => skep_testkit::Seen::NotYet("it is still there".to_owned()),
        })
    })
    .await?;

    operator
        .create(
            KindName::MCPServerEntry,
            "entry",
            json!({ "remoteUrl": "https://a.example", "transport": "sse", "groupRef": { "name": "g" } }),
        )
        .await?;
    let failed = |one: &Value| {
        one["status"]["phase"] == "Failed" && condition(one, "GroupRefValidated") == Some(("False", "GroupRefNotFound"))
    };
    operator.until(KindName::MCPServerEntry, "entry", "misses its group", failed).await?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;
    operator.until(KindName::MCPServerEntry, "entry", "is valid", |one| one["status"]["phase"] == "Valid").await?;
    operator.until(KindName::MCPGroup, "g", "lists it", |one| one["status"]["entries"] == json!(["entry"])).await?;

    let cycle = json!({ "name": "t", "steps": [{ "id": "a", "tool": "x", "dependsOn": ["b"] }, { "id": "b", "tool": "x", "dependsOn": ["a"] }] });
    operator.create(KindName::VirtualMCPCompositeToolDefinition, "t", cycle).await?;
    let refused = |one: &Value| one["status"]["validationStatus"] == "Invalid";
    operator.until(KindName::VirtualMCPCompositeToolDefinition, "t", "is invalid", refused).await?;
    let before = operator.settled().await?;
    assert_eq!(before, operator.settled().await?, "nothing is written at rest");
    operator.stop().await
}
