//! Names that no Secret or ConfigMap has: the operator never puts one into a URL, says so, and lets the resource go.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use http::{Method, Request};
use kube::api::DeleteParams;
use kube::client::Body;
use serde_json::{Value, json};
use skep_api::resource::KindName;

use crate::between::{Verdict, between, refusal};
use crate::running::{plane, start_as};

/// What would list Secrets, watch them, leave the collection, or be no URL at all.
const NAMES: &[&str] = &["?", "?watch=true", "a b", "../x", "a/b", "%2e"];

/// Whether a request reads one Secret or ConfigMap, as `get` of a plan does.
fn reads_content(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    let is_content = path.contains("/secrets") || path.contains("/configmaps");
    request.method() == Method::GET && is_content && !path.ends_with("/secrets") && !path.ends_with("/configmaps")
}

fn reported(object: &Value, name: &str) -> bool {
    object["status"].to_string().contains(&format!("`{name}` is not a valid object name"))
}

#[tokio::test]
async fn a_name_that_no_secret_has_is_never_asked_for_and_a_condition_says_so() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("names").await?;
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let intercept = {
        let requests = requests.clone();
        move |request: Request<Body>| {
            requests.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            std::future::ready(Verdict::Pass(request))
        }
    };
    let operator = start_as(between(plane.client()?, intercept), plane, namespace)?;
    for (index, name) in NAMES.iter().enumerate() {
        let secret = json!({ "name": name, "key": "k" });
        let server = json!({ "image": "registry.example/a:1", "transport": "stdio", "secrets": [secret], "permissionProfile": { "type": "configmap", "name": name, "key": "k" } });
        operator.create(KindName::MCPServer, &format!("s{index}"), server).await?;
        let config = json!({ "type": "bearerToken", "bearerToken": { "tokenSecretRef": secret } });
        operator.create(KindName::MCPExternalAuthConfig, &format!("c{index}"), config).await?;
    }
    for (index, name) in NAMES.iter().enumerate() {
        for (kind, object) in [(KindName::MCPServer, "s"), (KindName::MCPExternalAuthConfig, "c")] {
            let object = format!("{object}{index}");
            operator.until(kind, &object, "is refused", |one| reported(one, name)).await?;
            operator.resources(kind).delete(&object, &DeleteParams::default()).await?;
            operator.gone(kind, &object).await?;
        }
    }
    let requests = requests.lock().unwrap().clone();
    let contents = requests.iter().filter(|one| one.starts_with("GET"));
    let asked: Vec<_> = contents.filter(|one| one.contains("/secrets/") || one.contains("/configmaps/")).collect();
    assert!(asked.is_empty(), "{asked:?}");
    operator.stop().await
}

#[tokio::test]
async fn a_resource_goes_though_its_secrets_cannot_be_read() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("unread").await?;
    let intercept = |request: Request<Body>| {
        let is_refused = reads_content(&request);
        let verdict = if is_refused { Verdict::Answer(refusal(500, "InternalError")) } else { Verdict::Pass(request) };
        std::future::ready(verdict)
    };
    // The finalizer is set by one that can read.
    let first = crate::running::start(plane, namespace.clone())?;
    let secret = json!({ "name": "missing", "key": "k" });
    let server = json!({ "image": "registry.example/a:1", "transport": "stdio", "secrets": [secret] });
    first.create(KindName::MCPServer, "s", server).await?;
    let is_held = |one: &Value| !one["metadata"]["finalizers"].is_null() && !one["status"]["phase"].is_null();
    first.until(KindName::MCPServer, "s", "is held", is_held).await?;
    first.stop().await?;

    let second = start_as(between(plane.client()?, intercept), plane, namespace)?;
    second.resources(KindName::MCPServer).delete("s", &DeleteParams::default()).await?;
    second.gone(KindName::MCPServer, "s").await?;
    second.stop().await
}
