//! The operator in the cluster, from our own image, installed by our own charts, with the RBAC of the chart and no
//! more.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use skep_testkit::assets::{Assets, Tool};

use crate::home::Home;

#[tokio::test]
async fn the_charts_install_an_operator_that_reconciles_manifests() -> Result<()> {
    let tenant = Home::new("operator").await?;
    let (cluster, home) = (&tenant.cluster, tenant.namespace.clone());

    let server = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": "time" },
        "spec": { "image": "registry.example/time:1", "transport": "streamable-http" },
    });
    let kind = GroupVersionKind::gvk("toolhive.stacklok.dev", "v1beta1", "MCPServer");
    let servers: Api<DynamicObject> =
        Api::namespaced_with(cluster.client(), &home, &ApiResource::from_gvk_with_plural(&kind, "mcpservers"));
    servers.create(&PostParams::default(), &serde_json::from_value(server)?).await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &home);
    cluster.until("the proxy's Deployment", || async { Ok(deployments.get_opt("time").await?.is_some()) }).await?;
    cluster
        .until("a status", || async {
            let status = servers.get("time").await?.data;
            Ok(status.pointer("/status/url").and_then(Value::as_str).is_some_and(|url| url.contains("mcp-time-proxy")))
        })
        .await?;
    // It is the leader, it is healthy, and it did not restart.
    let operator = deployments.get(&home).await?.status.context("the operator has no status")?;
    assert_eq!(operator.ready_replicas, Some(1));
    cluster.no_restarts("app.kubernetes.io/name=skep").await?;
    servers.delete("time", &kube::api::DeleteParams::default()).await?;
    cluster.until("the server to go", || async { Ok(servers.get_opt("time").await?.is_none()) }).await?;
    cluster.until("its Deployment to go", || async { Ok(deployments.get_opt("time").await?.is_none()) }).await?;
    tenant.cluster.remove().await
}

/// Whether the definitions are installed: several tests need them at once.
static DEFINED: std::sync::Mutex<bool> = std::sync::Mutex::new(false);

/// The namespaces that an operator watches.
pub(crate) enum Scope<'a> {
    Cluster,
    Namespaces(&'a [&'a str]),
}

/// Installs the definitions, and an operator in a namespace.
pub(crate) fn install(home: &str, image: &str, scope: &Scope<'_>) -> Result<()> {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let definitions = format!("{repository}/charts/skep-crds");
    let mut defined = DEFINED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !*defined {
        helm(&["upgrade", "--install", "skep-crds", &definitions, "--namespace", "default"])?;
        *defined = true;
    }
    drop(defined);
    let chart = format!("{repository}/charts/skep");
    let mut settings = vec![
        format!("operator.image={image}"),
        format!("operator.toolhiveRunnerImage={image}"),
        format!("operator.vmcpImage={image}"),
        format!("fullnameOverride={home}"),
    ];
    match scope {
        Scope::Cluster => settings.push("operator.rbac.scope=cluster".to_owned()),
        Scope::Namespaces(allowed) => {
            settings.push("operator.rbac.scope=namespace".to_owned());
            settings.push(format!("operator.rbac.allowedNamespaces={{{}}}", allowed.join(",")));
        }
    }
    let mut arguments = vec!["install", "skep", &chart, "--namespace", home, "--wait", "--timeout", "120s"];
    for setting in &settings {
        arguments.extend(["--set", setting]);
    }
    helm(&arguments)
}

/// Removes the operator; the definitions stay.
pub(crate) fn uninstall(home: &str) -> Result<()> {
    helm(&["uninstall", "skep", "--namespace", home, "--wait", "--timeout", "120s"])
}

fn helm(arguments: &[&str]) -> Result<()> {
    let assets = Assets::from_env()?;
    assets.ensure(&[Tool::Helm])?;
    let kubeconfig = std::env::var_os("SKEP_E2E_KUBECONFIG").context("no cluster was chosen: run `cargo xtask e2e`")?;
    let output = Command::new(assets.find(Tool::Helm)?).args(arguments).env("KUBECONFIG", kubeconfig).output()?;
    if !output.status.success() {
        bail!("`helm {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
