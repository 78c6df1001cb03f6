//! The rights of an installed operator, as the API server sees them: enough, and no more.

use std::time::Duration;

use serde_json::{Value, json};
use skep_operator::rbac::grants::{Grant, ROLES};
use skep_testkit::{ControlPlane, Seen, eventually};

use crate::helm::chart;

/// An installed release, and the namespace that it works in.
struct Release {
    plane: &'static ControlPlane,
    home: String,
    work: String,
}

impl Release {
    /// Installs the chart in cluster scope, or for one namespace.
    async fn install(scope: &str) -> Self {
        let plane = ControlPlane::shared().await.unwrap();
        let home = plane.namespace("home").await.unwrap();
        let work = plane.namespace("work").await.unwrap();
        let chart = chart("skep");
        let settings = [
            format!("--set=fullnameOverride={home}"),
            format!("--set=operator.rbac.scope={scope}"),
            format!("--set=operator.rbac.allowedNamespaces={{{work}}}"),
        ];
        let mut arguments = vec!["install", "skep", chart.to_str().unwrap(), "--namespace", &home];
        arguments.extend(settings.iter().map(String::as_str));
        plane.helm(&arguments).await.unwrap().success().unwrap();
        let release = Self { plane, home, work };
        // The authorizer learns of new Roles by watching, so a moment later.
        eventually("the authorizer to know the release", Duration::from_secs(30), async || {
            let ready = release.may("list", "/pods", &release.work).await
                && release.may("create", "coordination.k8s.io/leases", &release.home).await;
            Ok(if ready { Seen::Yes(()) } else { Seen::NotYet("refused so far".to_owned()) })
        })
        .await
        .unwrap();
        release
    }

    fn user(&self) -> String {
        format!("system:serviceaccount:{0}:{0}", self.home)
    }

    /// Whether the operator may do it: a verb, and `group/resource` or `group/resource/part`.
    async fn may(&self, verb: &str, what: &str, namespace: &str) -> bool {
        self.may_with(verb, what, namespace, "").await
    }

    /// Whether the operator may do it with an object of that name.
    async fn may_with(&self, verb: &str, what: &str, namespace: &str, name: &str) -> bool {
        let parts: Vec<_> = what.split('/').collect();
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": self.user(),
                "resourceAttributes": {
                    "verb": verb,
                    "group": parts[0],
                    "resource": parts[1],
                    "subresource": parts.get(2).unwrap_or(&""),
                    "namespace": namespace,
                    "name": name,
                },
            },
        });
        let arguments = ["create", "--filename=-", "--output=json"];
        let answer = self.plane.kubectl_with_input(&arguments, &review.to_string()).await.unwrap().success().unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["status"]["allowed"].as_bool().unwrap()
    }

    /// Server-side applies an object as the operator, without keeping it.
    async fn apply(&self, object: &Value) -> anyhow::Result<String> {
        let user = format!("--as={}", self.user());
        let arguments =
            ["apply", "--server-side", "--dry-run=server", "--filename=-", "--namespace", &self.work, &user];
        self.plane.kubectl_with_input(&arguments, &object.to_string()).await?.success()
    }
}

fn role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": rules,
    })
}

/// The Roles of the children.
fn handed_on() -> Vec<Value> {
    let mut objects = Vec::new();
    for (number, handed) in ROLES.iter().enumerate() {
        let rule = |grant: &Grant| {
            let verbs: Vec<_> = grant.verbs.iter().map(|verb| verb.as_str()).collect();
            json!({"apiGroups": [grant.group], "resources": grant.resources, "verbs": verbs})
        };
        let rules: Value = handed.rules.iter().map(rule).collect();
        objects.push(role(&format!("role-{number}"), &rules));
    }
    objects
}

/// The smallest object of every kind that the operator applies.
fn children() -> Vec<Value> {
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "a", "image": "registry.example/a:1"}]},
    });
    let workload = |kind: &str| {
        json!({
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": "child"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
        })
    };
    let core = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "child"}});
    let mut service = core("Service");
    service["spec"] = json!({"selector": {"app": "a"}, "ports": [{"port": 80}]});
    vec![workload("Deployment"), workload("StatefulSet"), service, core("ConfigMap"), core("ServiceAccount")]
}

#[tokio::test]
async fn the_operator_may_write_its_children_and_their_roles_in_either_scope() {
    for scope in ["cluster", "namespace"] {
        let release = Release::install(scope).await;
        for object in children().iter().chain(&handed_on()) {
            let applied = release.apply(object).await;
            applied.unwrap_or_else(|error| panic!("scope {scope}: {error}"));
        }
        // The test would notice: what the operator does not hold it cannot hand on.
        let shell = json!([{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}]);
        let error = release.apply(&role("too-much", &shell)).await.unwrap_err().to_string();
        assert!(error.contains("attempting to grant RBAC permissions not currently held"), "{error}");
    }
}

#[tokio::test]
async fn the_operator_does_its_work_with_the_rights_of_the_chart_and_no_others() -> anyhow::Result<()> {
    use skep_api::resource::KindName;
    use skep_plan::child::ChildKind;
    crate::running::plane().await?;
    let release = Release::install("namespace").await;
    let config = release.plane.as_service_account(&release.home, &release.home).await?;
    let operator = crate::running::start_as(kube::Client::try_from(config)?, release.plane, release.work.clone())?;
    let webhooks = json!({ "validating": [{ "name": "check", "url": "https://hooks.example", "hmacSecretRef": { "name": "hook", "key": "hmac" } }] });
    operator.create(KindName::MCPWebhookConfig, "hooks", webhooks).await?;
    operator.create(KindName::MCPGroup, "g", json!({})).await?;
    let spec = json!({ "image": "i", "webhookConfigRef": { "name": "hooks" }, "groupRef": { "name": "g" } });
    operator.create(KindName::MCPServer, "s", spec).await?;
    operator.create(KindName::MCPRemoteProxy, "r", json!({ "remoteUrl": "https://mcp.example" })).await?;
    operator.create(KindName::EmbeddingServer, "e", json!({})).await?;
    operator.create(KindName::MCPRegistry, "reg", json!({ "configYAML": "sources: []\n" })).await?;
    operator.child(ChildKind::Deployment, "s", "exists", |_| true).await?;
    operator.child(ChildKind::Deployment, "r", "exists", |_| true).await?;
    operator.child(ChildKind::StatefulSet, "e", "exists", |_| true).await?;
    operator.child(ChildKind::Deployment, "reg-api", "exists", |_| true).await?;
    let restart = json!({ "metadata": { "annotations": {
        "mcpserver.toolhive.stacklok.dev/restarted-at": "2026-01-31T12:00:00Z", "mcpserver.toolhive.stacklok.dev/restart-strategy": "immediate",
    }}});
    let servers = operator.resources(KindName::MCPServer);
    servers.patch("s", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(restart)).await?;
    let noted = |one: &Value| {
        one["metadata"]["annotations"]["mcpserver.toolhive.stacklok.dev/last-processed-restart"].is_string()
    };
    operator.until(KindName::MCPServer, "s", "is restarted", noted).await?;
    for (kind, name) in [
        (KindName::MCPServer, "s"),
        (KindName::MCPRemoteProxy, "r"),
        (KindName::MCPWebhookConfig, "hooks"),
        (KindName::MCPGroup, "g"),
    ] {
        operator.until(kind, name, "has a status", |one| one["status"]["observedGeneration"].is_number()).await?;
        operator.resources(kind).delete(name, &kube::api::DeleteParams::default()).await?;
    }
    eventually("everything goes", crate::running::PATIENCE, || async {
        let left = operator.versions().await?;
        let ours: Vec<_> =
            left.keys().filter(|key| key.starts_with("MCPServer/") || key.starts_with("MCPWebhookConfig/")).collect();
        Ok(if ours.is_empty() { Seen::Yes(()) } else { Seen::NotYet(format!("{ours:?}")) })
    })
    .await?;
    operator.stop().await
}

/// A subject without all permissions is refused a binding whose role the API server has not seen yet.
#[tokio::test]
async fn a_role_is_sent_once_and_its_binding_after_it() -> anyhow::Result<()> {
    use skep_api::resource::KindName;
    use skep_plan::child::ChildKind;
    const SERVERS: u64 = 20;
    crate::running::plane().await?;
    let release = Release::install("namespace").await;
    let config = release.plane.as_service_account(&release.home, &release.home).await?;
    let operator = crate::running::start_as(kube::Client::try_from(config)?, release.plane, release.work.clone())?;
    for number in 0..SERVERS {
        operator.create(KindName::MCPServer, &format!("s{number}"), json!({ "image": "i" })).await?;
    }
    for number in 0..SERVERS {
        operator.child(ChildKind::Deployment, &format!("s{number}"), "exists", |_| true).await?;
        operator.child(ChildKind::RoleBinding, &format!("s{number}-proxy-runner"), "exists", |_| true).await?;
    }
    operator.settled().await?;
    assert_eq!(operator.counted("api_requests", &["verb=\"apply\"", "resource=\"roles\""]), SERVERS);
    assert_eq!(
        operator.counted("reconciles", &["gone"]),
        0,
        "a role that is on its way is taken for a server that is gone"
    );
    operator.stop().await
}

#[tokio::test]
async fn the_operator_may_bind_what_it_hands_on() {
    let release = Release::install("namespace").await;
    for object in handed_on() {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let kept = release
            .plane
            .kubectl_with_input(&["create", "--filename=-", "--namespace", &release.work], &object.to_string())
            .await;
        kept.unwrap().success().unwrap();
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "child", "namespace": release.work}],
        });
        release.apply(&binding).await.unwrap();
    }
}

#[tokio::test]
async fn in_namespace_scope_the_operator_may_do_nothing_elsewhere() {
    let release = Release::install("namespace").await;
    for (verb, what) in [
        ("list", "toolhive.stacklok.dev/mcpservers"),
        ("patch", "toolhive.stacklok.dev/mcpservers/status"),
        ("get", "/secrets"),
        ("create", "/secrets"),
        ("get", "/configmaps"),
        ("list", "/pods"),
        ("delete", "/pods"),
        ("create", "events.k8s.io/events"),
        ("patch", "events.k8s.io/events"),
        ("create", "apps/deployments"),
        ("create", "rbac.authorization.k8s.io/roles"),
    ] {
        assert!(release.may(verb, what, &release.work).await, "{verb} {what} at work");
        assert!(!release.may(verb, what, &release.home).await, "{verb} {what} at home");
        assert!(!release.may(verb, what, "").await, "{verb} {what} everywhere");
    }
    assert!(!release.may("list", "apiextensions.k8s.io/customresourcedefinitions", "").await);
    let leases = "coordination.k8s.io/leases";
    assert!(release.may("create", leases, &release.home).await);
    for verb in ["get", "patch"] {
        let own = release.may_with(verb, leases, &release.home, skep_operator::run::LEASE).await;
        assert!(own, "{verb} its lease at home");
        assert!(!release.may_with(verb, leases, &release.home, "another").await, "{verb} other leases at home");
    }
    for verb in ["update", "list", "delete"] {
        let own = release.may_with(verb, leases, &release.home, skep_operator::run::LEASE).await;
        assert!(!own, "{verb} leases at home");
    }
}

#[tokio::test]
async fn in_cluster_scope_the_operator_holds_no_more_than_it_uses() {
    let release = Release::install("cluster").await;
    let (definitions, status) =
        ("apiextensions.k8s.io/customresourcedefinitions", "apiextensions.k8s.io/customresourcedefinitions/status");
    assert!(release.may("list", definitions, "").await && release.may("watch", definitions, "").await);
    assert!(release.may_with("get", definitions, "", "mcpservers.toolhive.stacklok.dev").await);
    assert!(release.may_with("patch", status, "", "mcpservers.toolhive.stacklok.dev").await);
    assert!(!release.may_with("patch", status, "", "certificates.cert-manager.io").await);
    assert!(release.may("patch", "toolhive.stacklok.dev/mcpservers", &release.work).await);
    for (verb, what) in [
        ("update", "toolhive.stacklok.dev/mcpservers"),
        ("delete", "toolhive.stacklok.dev/mcpservers"),
        ("update", "toolhive.stacklok.dev/mcpservers/status"),
        ("delete", "/secrets"),
        ("patch", "/secrets"),
        ("create", "/pods/exec"),
        ("impersonate", "/serviceaccounts"),
        ("escalate", "rbac.authorization.k8s.io/roles"),
        ("bind", "rbac.authorization.k8s.io/roles"),
        ("create", "rbac.authorization.k8s.io/clusterroles"),
        ("update", "apiextensions.k8s.io/customresourcedefinitions"),
        ("delete", "apiextensions.k8s.io/customresourcedefinitions"),
    ] {
        assert!(!release.may(verb, what, &release.work).await, "{verb} {what}");
    }
}

#[tokio::test]
async fn the_notes_say_what_needs_attention() {
    let plane = ControlPlane::shared().await.unwrap();
    let notes = async |settings: &[&str]| {
        let chart = chart("skep");
        let mut arguments = vec!["install", "rel", chart.to_str().unwrap(), "--dry-run=client", "--namespace", "nest"];
        arguments.extend(settings);
        let output = plane.helm(&arguments).await.unwrap().success().unwrap();
        output.split("NOTES:").nth(1).unwrap().to_owned()
    };
    let plain = notes(&[]).await;
    assert!(plain.contains("installed as skep-operator in namespace nest"), "{plain}");
    assert!(plain.contains("watches every namespace"), "{plain}");
    assert!(plain.contains("helm uninstall rel --namespace nest"), "{plain}");
    assert_eq!(plain.matches("NOTE: ").count(), 3, "one per image that no registry serves: {plain}");

    let values = chart("skep").join("ci/every-value.yaml");
    let noisy = notes(&["--values", values.to_str().unwrap()]).await;
    let expected = [
        "TOOLHIVE_RUNNER_IMAGE in operator.env is left out",
        "operator.rbac.allowedNamespaces has no effect",
        "operator.gc has no effect",
        "operator.features.experimental has no effect",
    ];
    for part in expected {
        assert!(noisy.contains(part), "{noisy}");
    }
    assert_eq!(noisy.matches("NOTE: ").count(), expected.len(), "{noisy}");

    let by_hand = notes(&["--set=operator.uninstallHook.enabled=false"]).await;
    assert!(by_hand.contains("skep uninstall --namespace nest --deployment skep-operator"), "{by_hand}");

    let narrow = notes(&["--set=operator.rbac.scope=namespace", "--set=operator.rbac.allowedNamespaces={a,b}"]).await;
    assert!(narrow.contains("It watches: a, b."), "{narrow}");
}
