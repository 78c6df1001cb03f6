//! Watches of what is not of our own kinds: where they are refused, others go on, and `/readyz` says so.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, DynamicObject, PostParams};
use kube::client::Body;
use serde_json::json;
use skep_api::resource::KindName;
use skep_operator::write::{api_resource, child_resource};
use skep_plan::child::ChildKind;
use skep_testkit::{ControlPlane, Seen, eventually};

use crate::between::{Verdict, between, refusal};
use crate::kinds::Account;
use crate::running::{PATIENCE, plane, start_as, start_watching};

async fn server_in(plane: &ControlPlane, namespace: &str, name: &str) -> Result<()> {
    let servers: Api<DynamicObject> =
        Api::namespaced_with(plane.client()?, namespace, &api_resource(KindName::MCPServer));
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer", "metadata": { "name": name }, "spec": { "image": "i" },
    });
    servers.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// A namespace that is deleted takes the operator's Role in it along: the others must not wait for it.
#[tokio::test]
async fn a_namespace_without_rights_stops_no_other_one() -> Result<()> {
    let plane = plane().await?;
    let account = Account::new(plane, "rights").await?;
    let (home, other) = (account.namespace.clone(), plane.namespace("norights").await?);
    account.grant_in(&home, &[]).await?;
    let operator = start_watching(account.client().await?, plane, &[&home, &other])?;
    let report = operator.reported("readyz check passed").await?;
    for watch in ["mcpservers", "pods (of proxies)", "deployments (children)", "Secret", "ConfigMap"] {
        assert!(report.contains(&format!("[!]cache/{other}/{watch} degraded: ")), "{watch}: {report}");
    }
    let metric = format!("cache_synced{{watch=\"Secret\",namespace=\"{other}\"}} 0");
    assert!(operator.metrics().contains(&metric), "{}", operator.metrics());
    server_in(plane, &home, "s").await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;

    // With a part of the rights it sees the server, and not what runs for it: it must not act on half of the picture.
    server_in(plane, &other, "t").await?;
    account.grant_in(&other, &["pods"]).await?;
    operator.reported(&format!("[+]cache/{other}/mcpservers ok")).await?;
    operator.reported(&format!("[+]cache/{other}/deployments (children) ok")).await?;
    server_in(plane, &home, "later").await?;
    operator.child(ChildKind::Deployment, "later", "exists", |_| true).await?;
    let elsewhere: Api<DynamicObject> =
        Api::namespaced_with(plane.client()?, &other, &child_resource(ChildKind::Deployment));
    let servers: Api<DynamicObject> = Api::namespaced_with(plane.client()?, &other, &api_resource(KindName::MCPServer));
    let untouched = servers.get("t").await?;
    assert!(untouched.metadata.finalizers.is_none() && untouched.data.get("status").is_none(), "{untouched:?}");

    account.grant_in(&other, &[]).await?;
    operator.reported(&format!("[+]cache/{other}/pods (of proxies) ok")).await?;
    eventually("the server of the other namespace to be reconciled", PATIENCE * 3, || async {
        let found = elsewhere.get_opt("t").await?;
        Ok(if found.is_some() { Seen::Yes(()) } else { Seen::NotYet(operator.readiness.report()) })
    })
    .await?;
    operator.stop().await
}

/// What happens to requests for the pods of proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodRequests {
    Pass,
    Refused(u16, &'static str),
}

#[tokio::test]
async fn a_watch_that_is_refused_or_keeps_failing_after_its_first_list_makes_the_operator_unready() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("revoked").await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client()?, &namespace);
    accounts
        .create(&PostParams::default(), &serde_json::from_value(json!({ "metadata": { "name": "default" } }))?)
        .await?;
    let (answer, answers) = tokio::sync::watch::channel(PodRequests::Pass);
    let client = between(plane.client()?, move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let is_of_proxies = request.uri().path().ends_with("/pods") && query.contains("app+in+");
        std::future::ready(match *answers.borrow() {
            PodRequests::Refused(code, reason) if is_of_proxies => Verdict::Answer(refusal(code, reason)),
            _ if is_of_proxies => Verdict::Pass(shortened(request)),
            _ => Verdict::Pass(request),
        })
    });
    let operator = start_as(client, plane, namespace.clone())?;
    operator.reported("readyz check passed").await?;
    let check = format!("cache/{namespace}/pods (of proxies)");
    let pods: Api<Pod> = Api::namespaced(plane.client()?, &namespace);
    for (number, refused) in [(1, (403, "Forbidden")), (2, (500, "InternalError"))] {
        answer.send_replace(PodRequests::Refused(refused.0, refused.1));
        let report = operator.reported(&format!("[-]{check} failed: ")).await?;
        assert!(report.contains("readyz check failed"), "{report}");
        answer.send_replace(PodRequests::Pass);
        // A watch that is open again says so with the first change that it brings.
        let labels =
            json!({ "app": "mcpserver", "app.kubernetes.io/name": "mcpserver", "app.kubernetes.io/instance": "s" });
        let pod = json!({
            "metadata": { "name": format!("p{number}"), "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "i" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        operator.reported(&format!("[+]{check} ok")).await?;
        operator.reported("readyz check passed").await?;
    }
    operator.stop().await
}

/// The same request, for a watch that the API server ends after a second.
fn shortened(request: http::Request<Body>) -> http::Request<Body> {
    let (mut parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    let kept: Vec<&str> = query.split('&').filter(|part| !part.starts_with("timeoutSeconds=")).collect();
    let uri = format!("{}?{}&timeoutSeconds=1", parts.uri.path(), kept.join("&"));
    parts.uri = uri.parse().unwrap();
    http::Request::from_parts(parts, body)
}
