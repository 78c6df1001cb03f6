//! Leaving a cluster: what the chart's hook is made of, and that its rights are enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use http::{Method, Request};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_operator::rbac;
use skep_operator::run::LEASE;
use skep_operator::uninstall::{Step, Uninstall, UninstallError};
use skep_operator::write::api_resource;
use skep_testkit::{ControlPlane, Seen, eventually};

use crate::between::{Verdict, between};
use crate::charts::as_json;
use crate::helm::{HOME, hooks, objects, template, text, values_file, values_files};
use crate::running::{PATIENCE, plane, start_leading};
use crate::upgrade::deep_server;

#[test]
fn the_hook_runs_before_anything_is_deleted_and_leaves_nothing_behind() {
    let hooks = hooks("");
    let expected = [
        "ClusterRole/skep-operator-uninstall-resources",
        "ClusterRoleBinding/skep-operator-uninstall-resources",
        "Job/skep-operator-uninstall",
        "Role/skep-operator-uninstall",
        "RoleBinding/skep-operator-uninstall",
        "ServiceAccount/skep-operator-uninstall",
    ];
    assert_eq!(hooks.names(), expected);
    for object in &hooks.0 {
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "pre-delete", "{object}");
        assert_eq!(annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded", "{object}");
    }
    let pod = &hooks.only("Job")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "skep-operator-uninstall");
    let arguments = json!(["uninstall", format!("--namespace={HOME}"), "--deployment=skep-operator"]);
    assert_eq!(pod["containers"][0]["args"], arguments);
    assert_eq!(pod["containers"][0]["image"], objects("").container()["image"]);
    assert_eq!(pod["securityContext"], objects("").pod()["securityContext"]);
}

#[test]
fn the_rules_of_the_hook_are_those_of_the_table() {
    let named = |rules: Value| {
        let text = rules.to_string().replace("{{ include `skep.fullname` . }}", "skep-operator");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let cluster = hooks("");
    assert_eq!(cluster.only("ClusterRole")["rules"], as_json(&rbac::uninstall_rules()));
    assert_eq!(cluster.only("Role")["rules"], named(as_json(&rbac::uninstall_home_rules())));

    let narrow = hooks(&values_file("namespace-scope"));
    assert_eq!(narrow.of_kind("ClusterRole").count() + narrow.of_kind("ClusterRoleBinding").count(), 0);
    let mut namespaces: Vec<_> = narrow
        .of_kind("Role")
        .filter(|role| role["rules"] == as_json(&rbac::uninstall_rules()))
        .map(|role| text(role, "/metadata/namespace"))
        .collect();
    namespaces.sort_unstable();
    assert_eq!(namespaces, ["123", "team-a", "team-b"]);
    let arguments = &narrow.only("Job")["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(arguments[3], "--watch-namespace=team-a,team-b,123");
}

#[test]
fn the_hook_can_be_switched_off() {
    assert_eq!(hooks("{operator: {uninstallHook: {enabled: false}}}").names(), [""; 0]);
    for (name, values) in values_files() {
        assert_eq!(hooks(&values).of_kind("Job").count(), 1, "{name}");
    }
}

/// An operator whose Deployment is called as its namespace, and that watches nothing else.
fn leaving(home: &str) -> Uninstall {
    let name = home.to_owned();
    Uninstall { home: name.clone(), deployment: name.clone(), namespaces: vec![name], dry_run: false, is_gone: false }
}

/// What an operator has held on to can be deleted after it has gone, with the rights of the hook and no others.
#[tokio::test]
async fn the_hook_does_its_work_with_its_own_rights_and_no_others() -> Result<()> {
    let plane = plane().await?;
    let home = plane.namespace("leave").await?;
    let operator = start_leading(plane, home.clone())?;
    operator.create(KindName::MCPToolConfig, "tools", json!({ "toolsFilter": ["a"] })).await?;
    operator.create(KindName::MCPServer, "s", json!({ "image": "i", "toolConfigRef": { "name": "tools" } })).await?;
    for (kind, name) in [(KindName::MCPToolConfig, "tools"), (KindName::MCPServer, "s")] {
        let held = |one: &Value| one["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        operator.until(kind, name, "has a finalizer", held).await?;
    }
    let (tools, servers) = (operator.resources(KindName::MCPToolConfig), operator.resources(KindName::MCPServer));
    let leases: Api<Lease> = Api::namespaced(operator.client.clone(), &home);
    // It shuts down gracefully, and what is deleted now waits for it.
    operator.stop().await?;
    tools.delete("tools", &DeleteParams::default()).await?;
    servers.delete("s", &DeleteParams::default()).await?;
    assert!(servers.get_opt("s").await?.is_some());

    let values =
        format!("{{fullnameOverride: {home}, operator: {{rbac: {{scope: namespace, allowedNamespaces: [{home}]}}}}}}");
    let manifests = template(&crate::helm::chart("skep"), &values).unwrap().replace(HOME, &home);
    let all = crate::helm::Objects::parse(&manifests);
    for object in all.0.iter().filter(|object| object.pointer("/metadata/annotations/helm.sh~1hook").is_some()) {
        if object["kind"] != "Job" {
            plane.kubectl_with_input(&["create", "-f", "-"], &object.to_string()).await?.success()?;
        }
    }
    let config = plane.as_service_account(&home, &format!("{home}-uninstall")).await?;
    let client = kube::Client::try_from(config)?;
    let leaving = leaving(&home);
    let steps = std::cell::RefCell::new(Vec::new());
    // The authorizer learns of new Roles by watching, so a moment later: the Job is tried again for that.
    eventually("the hook to be done", PATIENCE, || async {
        let done = leaving.run(&client, |step| steps.borrow_mut().push(step.clone())).await;
        Ok(match done {
            Ok(()) => Seen::Yes(()),
            Err(error) => Seen::NotYet(format!("{error:?}")),
        })
    })
    .await?;
    for (objects, name) in [(&tools, "tools"), (&servers, "s")] {
        assert!(objects.get_opt(name).await?.is_none(), "{name} is still there");
    }
    assert!(leases.get_opt(LEASE).await?.is_none());
    let steps = steps.into_inner();
    assert!(steps.contains(&Step::LeaseDeleted { lease: LEASE }), "{steps:?}");
    Ok(())
}

/// A merge patch replaces the list of finalizers whole: one that another controller adds at the same moment must not get lost.
#[tokio::test]
async fn a_finalizer_that_another_controller_adds_meanwhile_stays() -> Result<()> {
    const OURS: &str = "mcpserver.toolhive.stacklok.dev/finalizer";
    const THEIRS: &str = "other.example/finalizer";
    let plane = plane().await?;
    let home = plane.namespace("leave").await?;
    let servers: Api<DynamicObject> = Api::namespaced_with(plane.client()?, &home, &api_resource(KindName::MCPServer));
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
        "metadata": { "name": "s", "finalizers": [OURS] }, "spec": { "image": "i" },
    });
    servers.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let patches = Arc::new(AtomicUsize::new(0));
    let (counted, other) = (patches.clone(), servers.clone());
    let client = between(plane.client()?, move |request: Request<Body>| {
        let (counted, other) = (counted.clone(), other.clone());
        async move {
            let is_patch = request.method() == Method::PATCH;
            if is_patch && counted.fetch_add(1, Ordering::SeqCst) == 0 {
                let added = Patch::Merge(json!({ "metadata": { "finalizers": [OURS, THEIRS] } }));
                other.patch("s", &PatchParams::default(), &added).await.unwrap();
            }
            Verdict::Pass(request)
        }
    });
    Uninstall { is_gone: true, ..leaving(&home) }.run(&client, |_| {}).await?;
    assert_eq!(servers.get("s").await?.metadata.finalizers.unwrap_or_default(), [THEIRS]);
    assert_eq!(patches.load(Ordering::SeqCst), 2, "it is tried again from a fresh read");
    Ok(())
}

/// Acceptance C1: the release, and nothing else, with the version that it was made from.
#[tokio::test]
async fn a_release_carries_the_version_that_it_was_made_from() -> Result<()> {
    let plane = plane().await?;
    let home = plane.namespace("leave").await?;
    let servers = held(plane, &home, "s").await?;
    let version = servers.get("s").await?.metadata.resource_version;
    let (client, sent) = crate::workloads::recording(plane.client()?);
    Uninstall { is_gone: true, ..leaving(&home) }.run(&client, |_| {}).await?;
    let path = format!("/apis/toolhive.stacklok.dev/v1beta1/namespaces/{home}/mcpservers/s");
    let body = json!({ "metadata": { "finalizers": [], "resourceVersion": version } });
    let how = "PATCH application/merge-patch+json".to_owned();
    assert_eq!(*sent.lock().unwrap(), [(how, path, body)]);
    Ok(())
}

/// A server in a namespace, held by our finalizer.
async fn held(plane: &ControlPlane, namespace: &str, name: &str) -> Result<Api<DynamicObject>> {
    let servers: Api<DynamicObject> =
        Api::namespaced_with(plane.client()?, namespace, &api_resource(KindName::MCPServer));
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
        "metadata": { "name": name, "finalizers": ["mcpserver.toolhive.stacklok.dev/finalizer"] }, "spec": { "image": "i" },
    });
    servers.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(servers)
}

async fn is_released(servers: &Api<DynamicObject>, name: &str) -> Result<bool> {
    Ok(servers.get(name).await?.metadata.finalizers.unwrap_or_default().is_empty())
}

/// The operator is stopped by then: whatever is left would wait for it for ever.
#[tokio::test]
async fn an_object_that_cannot_be_released_stops_none_of_the_others() -> Result<()> {
    let plane = plane().await?;
    let home = plane.namespace("leave").await?;
    let servers = held(plane, &home, "a-refused").await?;
    for name in ["b", "c"] {
        held(plane, &home, name).await?;
    }
    let tools: Api<DynamicObject> =
        Api::namespaced_with(plane.client()?, &home, &api_resource(KindName::MCPToolConfig));
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPToolConfig",
        "metadata": { "name": "tools", "finalizers": [KindName::MCPToolConfig.finalizer()] }, "spec": { "toolsFilter": ["a"] },
    });
    tools.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let leases: Api<Lease> = Api::namespaced(plane.client()?, &home);
    let lease = json!({ "metadata": { "name": LEASE }, "spec": {} });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let client = between(plane.client()?, |request: Request<Body>| {
        let is_refused = request.method() == Method::PATCH && request.uri().path().ends_with("/a-refused")
            || request.uri().path().ends_with("/mcpoidcconfigs");
        std::future::ready(if is_refused {
            Verdict::Answer(crate::between::refusal(403, "Forbidden"))
        } else {
            Verdict::Pass(request)
        })
    });
    let error = leaving(&home).run(&client, |_| {}).await.unwrap_err().to_string();
    for part in ["2 of the steps failed", "release MCPServer", "a-refused", "list objects of kind MCPOIDCConfig"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(is_released(&servers, "b").await? && is_released(&servers, "c").await?);
    assert!(is_released(&tools, "tools").await?, "a kind after those that failed");
    assert!(leases.get_opt(LEASE).await?.is_some(), "it is the evidence for the next attempt");
    leaving(&home).run(&plane.client()?, |_| {}).await?;
    assert!(is_released(&servers, "a-refused").await? && leases.get_opt(LEASE).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn an_object_that_is_nested_too_deep_is_released_with_the_others() -> Result<()> {
    let plane = plane().await?;
    let home = plane.namespace("leave").await?;
    let servers = held(plane, &home, "good").await?;
    let deep = deep_server(&home, "deep", &[KindName::MCPServer.finalizer().unwrap()]);
    plane.kubectl_with_input(&["create", "-f", "-"], &deep).await?.success()?;
    // The first attempt meets a conflict, so that the object is read once more.
    let patches = Arc::new(AtomicUsize::new(0));
    let counted = patches.clone();
    let client = between(plane.client()?, move |request: Request<Body>| {
        let is_patch = request.method() == Method::PATCH && request.uri().path().ends_with("/deep");
        std::future::ready(if is_patch && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            Verdict::Answer(crate::between::refusal(409, "Conflict"))
        } else {
            Verdict::Pass(request)
        })
    });
    Uninstall { is_gone: true, ..leaving(&home) }.run(&client, |_| {}).await?;
    assert_eq!(patches.load(Ordering::SeqCst), 2);
    assert!(is_released(&servers, "good").await?);
    let path = "jsonpath={.metadata.finalizers}";
    let left = plane.kubectl(&["get", "mcpserver", "deep", "-n", &home, "-o", path]).await?.success()?;
    assert_eq!(left, "");
    Ok(())
}

#[tokio::test]
async fn nothing_is_released_for_an_operator_of_which_there_is_no_sign() -> Result<()> {
    let plane = plane().await?;
    let home = plane.namespace("leave").await?;
    let servers = held(plane, &home, "s").await?;
    let error = leaving(&home).run(&plane.client()?, |_| {}).await.unwrap_err();
    assert!(matches!(error, UninstallError::NoOperator { .. }), "{error}");
    assert!(!is_released(&servers, "s").await?);
    Uninstall { is_gone: true, ..leaving(&home) }.run(&plane.client()?, |_| {}).await?;
    assert!(is_released(&servers, "s").await?);
    Ok(())
}
