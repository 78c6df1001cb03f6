//! The definitions on a real API server: defaults, both versions, unknown fields, kubectl.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use skep_api::admission::{Admission, Admitted};
use skep_api::custom::Custom;
use skep_api::kinds::{EmbeddingServerSpec, MCPGroupSpec, MCPServerSpec};
use skep_api::{crd, manifest};

use crate::compat::repository;
use crate::plane::{create, plane};
use crate::types::through_types;

#[tokio::test]
async fn every_kind_makes_the_round_trip_in_both_versions() -> Result<()> {
    let plane = plane().await?;
    let admission = Admission::new()?;
    let mut seen = BTreeSet::new();
    for (written, read) in [(crd::STORED_VERSION, crd::OLDER_VERSION), (crd::OLDER_VERSION, crd::STORED_VERSION)] {
        let namespace = plane.namespace("round-trip").await?;
        for mut object in examples()? {
            object["apiVersion"] = json!(format!("{}/{written}", crd::GROUP));
            let kind = object["kind"].as_str().context("an example has no kind")?.to_owned();
            let name = object["metadata"]["name"].as_str().context("an example has no name")?.to_owned();
            let stored: Value = serde_json::from_str(&create(plane, &namespace, &object).await?.success()?)?;
            let path = format!("{}.{read}.{}/{name}", kind.to_lowercase(), crd::GROUP);
            let back = plane.kubectl(&["get", "-n", &namespace, "-o", "json", &path]).await?.success()?;
            let back: Value = serde_json::from_str(&back)?;
            assert_eq!(back["apiVersion"], format!("{}/{read}", crd::GROUP), "{kind}");
            assert_eq!(back["spec"], stored["spec"], "{kind} changes between the versions");
            // Our types lose nothing and add nothing: what the API server stored is what they write.
            assert_eq!(through_types(&kind, &stored)?, stored["spec"], "{kind} changes in our types");
            // The offline admission fills in the same defaults.
            let Ok(Admitted::Ours(defaulted)) = admission.admit(&object) else {
                panic!("{kind} {name} is not admitted")
            };
            assert_eq!(defaulted["spec"], stored["spec"], "{kind} is defaulted differently without an API server");
            seen.insert(kind);
        }
    }
    assert_eq!(seen.len(), crd::all()?.len(), "the examples do not show every kind: {seen:?}");
    Ok(())
}

#[tokio::test]
async fn defaults_are_filled_in() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("defaults").await?;
    let server = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "plain" },
        "spec": { "image": "registry.example/a", "volumes": [{ "name": "v", "hostPath": "/a", "mountPath": "/b" }] },
    });
    let stored: Value = serde_json::from_str(&create(plane, &namespace, &server).await?.success()?)?;
    let expected = json!({
        "image": "registry.example/a", "proxyMode": "streamable-http", "proxyPort": 8080, "sessionAffinity": "ClientIP",
        "transport": "stdio", "trustProxyHeaders": false,
        "volumes": [{ "name": "v", "hostPath": "/a", "mountPath": "/b", "readOnly": false }],
    });
    assert_eq!(stored["spec"], expected);
    Ok(())
}

#[tokio::test]
async fn embedded_kubernetes_objects_keep_unknown_fields() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("unknown").await?;
    let template =
        json!({ "spec": { "fieldOfTomorrow": { "deep": [1] }, "containers": [{ "name": "mcp", "newer": true }] } });
    let server = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "s" },
        "spec": { "image": "registry.example/a", "podTemplateSpec": template },
    });
    let stored: Value = serde_json::from_str(&create(plane, &namespace, &server).await?.success()?)?;
    assert_eq!(stored["spec"]["podTemplateSpec"], template);
    assert_eq!(through_types("MCPServer", &stored)?["podTemplateSpec"], template);

    let config = json!({ "fieldOfTomorrow": { "deep": [1] }, "name": "v" });
    let virtual_server = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "VirtualMCPServer", "metadata": { "name": "v" },
        "spec": { "incomingAuth": { "type": "anonymous" }, "groupRef": { "name": "g" }, "config": config },
    });
    let stored: Value = serde_json::from_str(&create(plane, &namespace, &virtual_server).await?.success()?)?;
    assert_eq!(stored["spec"]["config"], config);
    assert_eq!(through_types("VirtualMCPServer", &stored)?["config"], config);
    Ok(())
}

#[tokio::test]
async fn the_status_is_a_subresource_that_lists_who_uses_a_config() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("status").await?;
    let config = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPToolConfig", "metadata": { "name": "c" },
        "spec": {}, "status": { "configHash": "ignored" },
    });
    let stored: Value = serde_json::from_str(&create(plane, &namespace, &config).await?.success()?)?;
    assert_eq!(stored.get("status"), None, "a status is not written with the spec");
    let patch = |users: Value| json!({ "status": { "configHash": "1", "referencingWorkloads": users } }).to_string();
    let users = json!([{ "kind": "MCPServer", "name": "a" }, { "kind": "VirtualMCPServer", "name": "b" }]);
    let arguments =
        ["patch", "-n", &namespace, "mcptoolconfig", "c", "--subresource=status", "--type=merge", "-o", "json", "-p"];
    let with = |patch: String| [arguments.map(str::to_owned).to_vec(), vec![patch]].concat();
    let run = |arguments: Vec<String>| async move {
        plane.kubectl(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let patched: Value = serde_json::from_str(&run(with(patch(users.clone()))).await?.success()?)?;
    assert_eq!(patched["status"]["referencingWorkloads"], users);
    let twice = json!([{ "kind": "MCPServer", "name": "a" }, { "kind": "MCPRemoteProxy", "name": "a" }]);
    let refused = run(with(patch(twice))).await?.success().unwrap_err().to_string();
    assert!(refused.contains("referencingWorkloads[1]") && refused.contains("Duplicate"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn kubectl_finds_kinds_by_category_and_short_name_and_explains_fields() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("words").await?;
    for object in examples()? {
        create(plane, &namespace, &object).await?.success()?;
    }
    let listed = plane.kubectl(&["get", "toolhive", "-n", &namespace, "-o", "name"]).await?.success()?;
    for definition in crd::all()? {
        let names = &definition.spec.names;
        let singular = names.kind.to_lowercase();
        assert!(listed.contains(&format!("{singular}.{}/", crd::GROUP)), "{} is not listed:\n{listed}", names.kind);
        for short in names.short_names.iter().flatten() {
            let found = plane.kubectl(&["get", short, "-n", &namespace, "-o", "name"]).await?.success()?;
            assert!(found.contains(&singular), "{short} does not find {}: {found}", names.kind);
        }
        let explained = plane.kubectl(&["explain", &names.plural]).await?.success()?;
        assert!(explained.contains("DESCRIPTION:") && !explained.contains("<empty>"), "{explained}");
    }
    let explained = plane.kubectl(&["explain", "mcpserver.spec.transport"]).await?.success()?;
    assert!(explained.contains("How the server itself speaks MCP"), "{explained}");
    Ok(())
}

#[test]
fn an_object_without_a_spec_is_read_as_one_whose_spec_is_empty() {
    let bare =
        json!({ "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPGroup", "metadata": { "name": "g" } });
    let group: Custom<MCPGroupSpec> = serde_json::from_value(bare.clone()).unwrap();
    let named = ObjectMeta { name: Some("g".into()), ..ObjectMeta::default() };
    assert_eq!((group.metadata, group.spec), (named, MCPGroupSpec { description: None }));
    let embedding: Custom<EmbeddingServerSpec> = serde_json::from_value(bare.clone()).unwrap();
    assert_eq!((embedding.spec.port, embedding.spec.replicas), (8080, 1));
    let refused = serde_json::from_value::<Custom<MCPServerSpec>>(bare).unwrap_err().to_string();
    assert!(refused.contains("missing field `image`"), "{refused}");
}

/// Every object of our kinds in `examples/`.
fn examples() -> Result<Vec<Value>> {
    let mut paths: Vec<_> =
        std::fs::read_dir(repository().join("examples"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    paths.sort();
    let mut objects = Vec::new();
    for path in paths.into_iter().filter(|path| path.is_file()) {
        objects.extend(manifest::parse(&std::fs::read_to_string(path)?)?);
    }
    objects.retain(|object| object["apiVersion"].as_str().is_some_and(|version| version.starts_with(crd::GROUP)));
    Ok(objects)
}
