//! Kinds that a cluster does not serve, serves in another version, or hides from the operator: each concerns that kind alone.

use anyhow::Result;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use skep_api::crd::{OLDER_VERSION, STORED_VERSION};
use skep_api::resource::KindName;
use skep_operator::rbac;
use skep_operator::served::resource_in;
use skep_plan::child::ChildKind;
use skep_testkit::ControlPlane;

use crate::between::{Verdict, between, refusal};
use crate::running::{Running, condition, define, plane, start, start_as, start_leading, start_leading_as};

fn webhooks() -> Value {
    json!({ "validating": [{ "name": "check", "url": "https://hooks.example/1" }] })
}

fn server(config: &str, name: &str) -> Value {
    let mut spec = json!({ "image": "registry.example/a:1", "transport": "streamable-http" });
    spec[config] = json!({ "name": name });
    spec
}

/// Puts a definition in place, with these versions only.
async fn redefine(plane: &ControlPlane, kind: KindName, versions: &[&str]) -> Result<()> {
    let mut definition = serde_json::to_value(kind.definition()?)?;
    let all = definition["spec"]["versions"].as_array_mut().unwrap();
    all.retain(|version| versions.iter().any(|name| version["name"] == *name));
    for version in all.iter_mut() {
        version["storage"] = json!(version["name"] == versions[0]);
    }
    let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    plane.kubectl_with_input(&arguments, &definition.to_string()).await?.success()?;
    let name = format!("crd/{}.toolhive.stacklok.dev", kind.plural());
    plane.kubectl(&["wait", "--for=condition=Established", &name, "--timeout=180s"]).await?.success()?;
    Ok(())
}

async fn undefine(plane: &ControlPlane, kind: KindName) -> Result<()> {
    let name = format!("{}.toolhive.stacklok.dev", kind.plural());
    plane.kubectl(&["delete", "crd", &name, "--wait", "--timeout=180s"]).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn a_kind_that_is_served_in_the_older_version_only_works_in_that_version() -> Result<()> {
    let plane = ControlPlane::start().await?;
    define(&plane).await?;
    undefine(&plane, KindName::MCPWebhookConfig).await?;
    redefine(&plane, KindName::MCPWebhookConfig, &[OLDER_VERSION]).await?;
    let operator = start(&plane, plane.namespace("older").await?)?;
    operator.reported("mcpwebhookconfigs degraded: served as toolhive.stacklok.dev/v1alpha1 only").await?;
    let report = operator.reported("readyz check passed").await?;
    assert!(report.contains("mcpservers ok: v1beta1"), "{report}");
    let metric = format!(
        "kind_watched{{kind=\"MCPWebhookConfig\",namespace=\"{}\",version=\"v1alpha1\"}} 1",
        operator.namespace
    );
    assert!(operator.metrics().contains(&metric), "{}", operator.metrics());

    // It is read and written there: the hash reaches the server, the users and the finalizer reach the config.
    let older: Api<DynamicObject> = Api::namespaced_with(
        operator.client.clone(),
        &operator.namespace,
        &resource_in(KindName::MCPWebhookConfig, OLDER_VERSION),
    );
    let config = json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": { "name": "hooks" }, "spec": webhooks(),
    });
    older.create(&PostParams::default(), &serde_json::from_value(config)?).await?;
    operator.create(KindName::MCPServer, "s", server("webhookConfigRef", "hooks")).await?;
    let url = |config: &Value| config["validating_webhooks"][0]["url"] == "https://hooks.example/1";
    operator.run_config("s", "names the webhook", url).await?;
    let users = json!([{ "kind": "MCPServer", "name": "s" }]);
    skep_testkit::eventually("the config lists its user", crate::running::PATIENCE, || async {
        let config = serde_json::to_value(older.get("hooks").await?)?;
        let is_held = config["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let is_listed = config["status"]["referencingWorkloads"] == users;
        Ok(if is_held && is_listed {
            skep_testkit::Seen::Yes(())
        } else {
            skep_testkit::Seen::NotYet(config.to_string())
        })
    })
    .await?;

    // A definition that is updated is noticed.
    redefine(&plane, KindName::MCPWebhookConfig, &[STORED_VERSION, OLDER_VERSION]).await?;
    operator.reported("mcpwebhookconfigs ok: v1beta1").await?;
    let spec = json!({ "validating": [{ "name": "check", "url": "https://hooks.example/2" }] });
    operator.edit(KindName::MCPWebhookConfig, "hooks", spec).await?;
    let url = |config: &Value| config["validating_webhooks"][0]["url"] == "https://hooks.example/2";
    operator.run_config("s", "follows", url).await?;
    operator.stop().await?;
    plane.stop();
    Ok(())
}

#[tokio::test]
async fn children_of_a_kind_name_it_as_their_owner_in_the_version_that_is_served() -> Result<()> {
    let plane = ControlPlane::start().await?;
    define(&plane).await?;
    undefine(&plane, KindName::MCPServer).await?;
    redefine(&plane, KindName::MCPServer, &[OLDER_VERSION]).await?;
    let operator = start(&plane, plane.namespace("owners").await?)?;
    let servers: Api<DynamicObject> = Api::namespaced_with(
        operator.client.clone(),
        &operator.namespace,
        &resource_in(KindName::MCPServer, OLDER_VERSION),
    );
    let server = json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPServer", "metadata": { "name": "s" },
        "spec": { "image": "registry.example/a:1" },
    });
    servers.create(&PostParams::default(), &serde_json::from_value(server)?).await?;
    // What its proxy makes.
    let labels = json!({ "app": "s", "toolhive": "true", "toolhive-name": "s" });
    let template =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "mcp", "image": "i" }] } });
    let backend = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "s", "labels": labels },
        "spec": { "serviceName": "s", "selector": { "matchLabels": { "app": "s" } }, "template": template },
    });
    let sets = operator.children(ChildKind::StatefulSet);
    sets.create(&PostParams::default(), &serde_json::from_value(backend)?).await?;
    let owner = |version: &'static str| {
        let wanted = format!("toolhive.stacklok.dev/{version}");
        move |one: &Value| one["metadata"]["ownerReferences"][0]["apiVersion"] == wanted.as_str()
    };
    for (kind, name) in [(ChildKind::Deployment, "s"), (ChildKind::StatefulSet, "s")] {
        operator.child(kind, name, "names the older version", owner(OLDER_VERSION)).await?;
    }

    // Nothing but the definition changes: the garbage collector finds no owner in a version that goes.
    redefine(&plane, KindName::MCPServer, &[STORED_VERSION, OLDER_VERSION]).await?;
    operator.reported("mcpservers ok: v1beta1").await?;
    for (kind, name) in [
        (ChildKind::Deployment, "s"),
        (ChildKind::Service, "mcp-s-proxy"),
        (ChildKind::ConfigMap, "s-runconfig"),
        (ChildKind::StatefulSet, "s"),
    ] {
        operator.child(kind, name, "names the stored version", owner(STORED_VERSION)).await?;
    }
    operator.settled().await?;
    operator.stop().await?;
    plane.stop();
    Ok(())
}

#[tokio::test]
async fn a_kind_without_a_definition_is_done_without_until_it_comes() -> Result<()> {
    let plane = ControlPlane::start().await?;
    define(&plane).await?;
    undefine(&plane, KindName::MCPToolConfig).await?;
    undefine(&plane, KindName::MCPServerEntry).await?;
    let operator = start_leading(&plane, plane.namespace("missing").await?)?;
    operator.reported("mcptoolconfigs degraded: the API server does not serve it").await?;
    operator.reported("readyz check passed").await?;
    operator.create(KindName::MCPServer, "plain", json!({ "image": "i" })).await?;
    operator.child(ChildKind::Deployment, "plain", "exists", |_| true).await?;
    operator.create(KindName::MCPServer, "s", server("toolConfigRef", "tools")).await?;
    let waits = |one: &Value| condition(one, "ToolConfigValidated") == Some(("False", "KindUnavailable"));
    operator.until(KindName::MCPServer, "s", "waits", waits).await?;
    // What no object can refer to goes.
    let oidc = json!({ "type": "inline", "inline": { "issuer": "https://idp.example" } });
    operator.create(KindName::MCPOIDCConfig, "idp", oidc).await?;
    operator.resources(KindName::MCPOIDCConfig).delete("idp", &DeleteParams::default()).await?;
    operator.gone(KindName::MCPOIDCConfig, "idp").await?;

    redefine(&plane, KindName::MCPToolConfig, &[STORED_VERSION, OLDER_VERSION]).await?;
    operator.reported("mcptoolconfigs ok: v1beta1").await?;
    operator.create(KindName::MCPToolConfig, "tools", json!({ "toolsFilter": ["a"] })).await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    // And one that goes again is noticed as well, once nothing refers to its objects.
    operator.edit(KindName::MCPServer, "s", json!({ "toolConfigRef": null })).await?;
    undefine(&plane, KindName::MCPToolConfig).await?;
    operator.reported("mcptoolconfigs degraded: the API server does not serve it").await?;
    operator.stop().await?;
    plane.stop();
    Ok(())
}

/// A release to come may serve a kind in a new version only. Its objects are there, and may refer to what is being deleted.
#[tokio::test]
async fn a_kind_that_is_served_in_an_unknown_version_only_may_have_objects() -> Result<()> {
    let plane = ControlPlane::start().await?;
    define(&plane).await?;
    undefine(&plane, KindName::MCPServer).await?;
    let mut definition = serde_json::to_value(KindName::MCPServer.definition()?)?;
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    versions.truncate(1);
    (versions[0]["name"], versions[0]["storage"]) = (json!("v1"), json!(true));
    plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &definition.to_string()).await?.success()?;
    let name = "crd/mcpservers.toolhive.stacklok.dev";
    plane.kubectl(&["wait", "--for=condition=Established", name, "--timeout=180s"]).await?.success()?;
    let operator = start(&plane, plane.namespace("newer").await?)?;
    let report = operator.reported("mcpservers degraded: served as toolhive.stacklok.dev/v1 only").await?;
    assert!(report.contains("update Skep"), "{report}");
    operator.reported("readyz check passed").await?;
    operator.create(KindName::MCPToolConfig, "tools", json!({ "toolsFilter": ["a"] })).await?;
    let held = |one: &Value| one["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    operator.until(KindName::MCPToolConfig, "tools", "is held", held).await?;
    operator.resources(KindName::MCPToolConfig).delete("tools", &DeleteParams::default()).await?;
    let blocked = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "UsersUnknown"));
    let config = operator.until(KindName::MCPToolConfig, "tools", "is blocked", blocked).await?;
    assert!(config["status"].to_string().contains("update Skep"), "{config}");
    // Once it is served in a version that is known, there are no objects of it.
    undefine(&plane, KindName::MCPServer).await?;
    redefine(&plane, KindName::MCPServer, &[STORED_VERSION, OLDER_VERSION]).await?;
    operator.gone(KindName::MCPToolConfig, "tools").await?;
    operator.stop().await?;
    plane.stop();
    Ok(())
}

/// A client to which two faults can be added: watches of MCPServers that are refused, and a discovery that knows no kind of ours while
/// MCPServers cannot be listed.
fn faulty(real: Client, faults: tokio::sync::watch::Receiver<Faults>) -> Client {
    between(real, move |request: http::Request<kube::client::Body>| {
        let (faults, path) = (*faults.borrow(), request.uri().path().to_owned());
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let is_of_servers = path.ends_with("/mcpservers");
        let is_discovery = path.starts_with("/apis/toolhive.stacklok.dev/") && path.split('/').count() == 4;
        std::future::ready(if faults.no_discovery && is_discovery {
            Verdict::Answer(refusal(404, "NotFound"))
        } else if is_of_servers && (faults.no_servers || (faults.no_watch && is_watch)) {
            Verdict::Answer(refusal(500, "InternalError"))
        } else {
            Verdict::Pass(request)
        })
    })
}

#[derive(Clone, Copy, Default)]
struct Faults {
    no_watch: bool,
    no_servers: bool,
    no_discovery: bool,
}

/// A config that is used by server `s`, and that is deleted meanwhile: it stays.
async fn deleted_while_used(operator: &Running) -> Result<()> {
    let users = json!([{ "kind": "MCPServer", "name": "s" }]);
    let used = |one: &Value| one["status"]["referencingWorkloads"] == users;
    operator.until(KindName::MCPToolConfig, "tools", "is used", used).await?;
    operator.resources(KindName::MCPToolConfig).delete("tools", &DeleteParams::default()).await?;
    let blocked = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "ReferencedByWorkloads"));
    operator.until(KindName::MCPToolConfig, "tools", "is blocked", blocked).await?;
    Ok(())
}

#[tokio::test]
async fn objects_whose_definition_goes_while_their_watch_is_broken_count_no_more() -> Result<()> {
    let plane = ControlPlane::start().await?;
    define(&plane).await?;
    let namespace = plane.namespace("gone").await?;
    let (faults, receiver) = tokio::sync::watch::channel(Faults { no_watch: true, ..Faults::default() });
    let before = start(&plane, namespace.clone())?;
    before.create(KindName::MCPToolConfig, "tools", json!({ "toolsFilter": ["a"] })).await?;
    before.create(KindName::MCPServer, "s", server("toolConfigRef", "tools")).await?;
    before.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    before.stop().await?;
    // This one lists the server, and hears of no change of it.
    let operator = start_as(faulty(plane.client()?, receiver), &plane, namespace)?;
    deleted_while_used(&operator).await?;
    let released = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    operator.resources(KindName::MCPServer).patch("s", &PatchParams::default(), &released).await?;
    undefine(&plane, KindName::MCPServer).await?;
    faults.send_replace(Faults::default());
    operator.reported("mcpservers degraded: the API server does not serve it").await?;
    operator.gone(KindName::MCPToolConfig, "tools").await?;
    operator.stop().await?;
    plane.stop();
    Ok(())
}

#[tokio::test]
async fn objects_of_a_kind_that_discovery_alone_does_not_find_still_count() -> Result<()> {
    let plane = ControlPlane::start().await?;
    define(&plane).await?;
    // While a kind is missing, discovery is repeated.
    undefine(&plane, KindName::MCPServerEntry).await?;
    let (faults, receiver) = tokio::sync::watch::channel(Faults::default());
    let operator = start_as(faulty(plane.client()?, receiver), &plane, plane.namespace("behind").await?)?;
    operator.create(KindName::MCPToolConfig, "tools", json!({ "toolsFilter": ["a"] })).await?;
    operator.create(KindName::MCPServer, "s", server("toolConfigRef", "tools")).await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    faults.send_replace(Faults { no_discovery: true, no_servers: true, ..Faults::default() });
    operator.reported("mcpservers degraded: the API server does not serve it").await?;
    operator.reported("mcptoolconfigs degraded: the API server does not serve it").await?;
    faults.send_replace(Faults { no_servers: true, ..Faults::default() });
    operator.reported("mcptoolconfigs ok: v1beta1").await?;
    deleted_while_used(&operator).await?;
    operator.stop().await?;
    plane.stop();
    Ok(())
}

/// A service account that may do what the operator may, but for kinds that are left out, in its own namespace.
pub(crate) struct Account<'a> {
    plane: &'a ControlPlane,
    pub(crate) namespace: String,
}

impl<'a> Account<'a> {
    pub(crate) async fn new(plane: &'a ControlPlane, prefix: &str) -> Result<Self> {
        let namespace = plane.namespace(prefix).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(plane.client()?, &namespace);
        let account = serde_json::from_value(json!({ "metadata": { "name": "operator" } }))?;
        accounts.create(&PostParams::default(), &account).await?;
        Ok(Self { plane, namespace })
    }

    async fn grant(&self, without: &[KindName]) -> Result<()> {
        let without: Vec<&str> = without.iter().map(|kind| kind.plural()).collect();
        self.grant_in(&self.namespace, &without).await
    }

    /// Grants what the operator may do in a namespace, but for these resources.
    pub(crate) async fn grant_in(&self, namespace: &str, without: &[&str]) -> Result<()> {
        let mut rules: Vec<Value> = Vec::new();
        for rule in rbac::rules().iter().chain(&rbac::leader_election_rules()) {
            let is_kept = |resource: &&str| !without.contains(resource);
            let resources: Vec<&str> = rule.resources.iter().copied().filter(is_kept).collect();
            if resources.is_empty() {
                continue;
            }
            let verbs: Vec<&str> = rule.verbs.iter().map(|verb| verb.as_str()).collect();
            rules.push(json!({ "apiGroups": [rule.group], "resources": resources, "verbs": verbs }));
        }
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "operator", "namespace": namespace }, "rules": rules,
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "operator", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator" },
            "subjects": [{ "kind": "ServiceAccount", "name": "operator", "namespace": self.namespace }],
        });
        let objects = json!({ "apiVersion": "v1", "kind": "List", "items": [role, binding] });
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.plane.kubectl_with_input(&arguments, &objects.to_string()).await?.success()?;
        Ok(())
    }

    /// A client with its rights.
    pub(crate) async fn client(&self) -> Result<Client> {
        let config = self.plane.as_service_account(&self.namespace, "operator").await?;
        Ok(Client::try_from(config)?)
    }

    async fn start(&self) -> Result<Running> {
        start_leading_as(self.client().await?, self.plane, self.namespace.clone())
    }
}

#[tokio::test]
async fn a_kind_that_is_forbidden_is_waited_for_and_no_other_is() -> Result<()> {
    let account = Account::new(plane().await?, "forbidden").await?;
    account.grant(&[KindName::MCPToolConfig]).await?;
    let operator = account.start().await?;
    let report = operator.reported("mcptoolconfigs degraded: ").await?;
    assert!(report.contains("mcptoolconfigs.toolhive.stacklok.dev is forbidden"), "{report}");
    assert!(!report.contains("Status {"), "{report}");
    operator.reported("readyz check passed").await?;
    operator.create(KindName::MCPServer, "plain", json!({ "image": "i" })).await?;
    operator.child(ChildKind::Deployment, "plain", "exists", |_| true).await?;
    // The config is there, and the operator must not say that it is not.
    operator.create(KindName::MCPToolConfig, "tools", json!({ "toolsFilter": ["a"] })).await?;
    operator.create(KindName::MCPServer, "s", server("toolConfigRef", "tools")).await?;
    let waits = |one: &Value| condition(one, "ToolConfigValidated") == Some(("False", "KindUnavailable"));
    let waiting = operator.until(KindName::MCPServer, "s", "waits", waits).await?;
    assert!(waiting["status"]["message"].as_str().unwrap().contains("cannot be listed"), "{waiting}");
    assert!(operator.children(ChildKind::Deployment).get_opt("s").await?.is_none());

    account.grant(&[]).await?;
    operator.reported("mcptoolconfigs ok: v1beta1").await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    operator.stop().await
}

#[tokio::test]
async fn configs_stay_while_their_users_cannot_be_listed() -> Result<()> {
    let account = Account::new(plane().await?, "users").await?;
    account.grant(&[KindName::MCPServer]).await?;
    let operator = account.start().await?;
    operator.reported("mcpservers degraded: ").await?;
    operator.reported("readyz check passed").await?;
    for name in ["used", "unused"] {
        operator.create(KindName::MCPToolConfig, name, json!({ "toolsFilter": ["a"] })).await?;
        let held = |one: &Value| one["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        operator.until(KindName::MCPToolConfig, name, "is held", held).await?;
    }
    operator.create(KindName::MCPServer, "s", server("toolConfigRef", "used")).await?;
    for name in ["used", "unused"] {
        operator.resources(KindName::MCPToolConfig).delete(name, &DeleteParams::default()).await?;
        let blocked = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "UsersUnknown"));
        let config = operator.until(KindName::MCPToolConfig, name, "is blocked", blocked).await?;
        assert!(config["status"].to_string().contains("MCPServers cannot be listed"), "{config}");
    }
    account.grant(&[]).await?;
    operator.gone(KindName::MCPToolConfig, "unused").await?;
    let blocked = |one: &Value| condition(one, "DeletionBlocked") == Some(("True", "ReferencedByWorkloads"));
    operator.until(KindName::MCPToolConfig, "used", "is blocked by its user", blocked).await?;
    operator.resources(KindName::MCPServer).delete("s", &DeleteParams::default()).await?;
    operator.gone(KindName::MCPToolConfig, "used").await?;
    operator.stop().await
}

#[tokio::test]
async fn a_leader_is_ready_when_its_caches_are_synced_and_not_before() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("ready").await?;
    let (open, gate) = tokio::sync::watch::channel(false);
    let slow = between(plane.client()?, move |request: http::Request<kube::client::Body>| {
        let mut gate = gate.clone();
        async move {
            if request.uri().path().ends_with("/secrets") {
                let _always_there = gate.wait_for(|open| *open).await;
            }
            Verdict::Pass(request)
        }
    });
    let operator = start_leading_as(slow, plane, namespace.clone())?;
    operator.reported("[+]leader-election ok: leader").await?;
    operator.reported(&format!("[+]cache/{namespace}/mcpservers ok: v1beta1")).await?;
    let report = operator.readiness.report();
    assert!(!operator.readiness.is_ready() && report.contains("Secret failed: not synced yet"), "{report}");
    open.send_replace(true);
    operator.reported("readyz check passed").await?;
    assert!(operator.readiness.is_ready());
    operator.stop().await
}

#[tokio::test]
async fn a_standby_is_ready_while_it_reaches_the_lease() -> Result<()> {
    let plane = plane().await?;
    let namespace = plane.namespace("standby").await?;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(plane.client()?, &namespace);
    let held = json!({
        "metadata": { "name": "toolhive-operator-leader-election" },
        "spec": { "holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": "2026-11-17T00:00:00.000000Z" },
    });
    leases.create(&PostParams::default(), &serde_json::from_value(held)?).await?;
    let (cut, line) = tokio::sync::watch::channel(false);
    let client = between(plane.client()?, move |request: http::Request<kube::client::Body>| {
        let is_cut = *line.borrow() && request.uri().path().contains("/leases");
        std::future::ready(if is_cut {
            Verdict::Answer(crate::between::refusal(403, "Forbidden"))
        } else {
            Verdict::Pass(request)
        })
    });
    let standby = start_leading_as(client, plane, namespace)?;
    standby.reported("[+]leader-election ok: standby\nreadyz check passed").await?;
    cut.send_replace(true);
    standby
        .reported("[-]leader-election failed: Forbidden for the test (Forbidden, code 403)\nreadyz check failed")
        .await?;
    cut.send_replace(false);
    standby.reported("[+]leader-election ok: standby\nreadyz check passed").await?;
    standby.stop().await
}
