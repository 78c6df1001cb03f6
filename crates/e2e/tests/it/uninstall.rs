//! Uninstalling: after `helm uninstall`, nothing waits for an operator that is gone.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::cluster::fixture_image;
use crate::home::{Home, http, with};
use crate::operator::uninstall;

#[tokio::test]
async fn after_helm_uninstall_a_namespace_with_resources_can_be_deleted() -> Result<()> {
    let home = Home::new("leave").await?;
    let name = format!("{}-uninstall", home.namespace);
    home.create_kind("MCPToolConfig", "tools", json!({ "toolsFilter": ["who"] })).await?;
    home.create_kind("MCPGroup", "team", json!({})).await?;
    let spec = with(http(&fixture_image()?), "toolConfigRef", json!({ "name": "tools" }));
    home.create("web", spec).await?;
    home.ready("web").await?;
    for (kind, object) in [("MCPServer", "web"), ("MCPToolConfig", "tools"), ("MCPGroup", "team")] {
        let objects = home.kind(kind);
        home.cluster
            .until(&format!("{kind} {object} is held"), || async {
                Ok(objects.get(object).await?.metadata.finalizers.is_some_and(|held| !held.is_empty()))
            })
            .await?;
    }

    uninstall(&home.namespace)?;

    // The operator's workloads keep running, and nothing of the operator or of the hook is left.
    let deployments = home.api::<Deployment>();
    ensure!(deployments.get_opt(&home.namespace).await?.is_none(), "the operator is still there");
    ensure!(deployments.get("web").await?.status.and_then(|status| status.ready_replicas) == Some(1), "no proxy");
    ensure!(home.api::<Job>().get_opt(&name).await?.is_none(), "the Job of the hook is left");
    ensure!(home.api::<ServiceAccount>().get_opt(&name).await?.is_none(), "the account of the hook is left");
    ensure!(home.api::<Role>().get_opt(&name).await?.is_none(), "the Role of the hook is left");
    ensure!(home.api::<RoleBinding>().get_opt(&name).await?.is_none(), "the RoleBinding of the hook is left");
    let lease = home.api::<Lease>().get_opt("toolhive-operator-leader-election").await?;
    ensure!(lease.is_none(), "the Lease is left: {lease:?}");

    let namespaces = Api::<Namespace>::all(home.cluster.client());
    namespaces.delete(&home.namespace, &DeleteParams::default()).await?;
    home.cluster
        .until("the namespace to go", || async { Ok(namespaces.get_opt(&home.namespace).await?.is_none()) })
        .await
}
