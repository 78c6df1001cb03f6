//! The chart's policy for pod templates, on the real API server: what it refuses, and what it lets pass.

use anyhow::Result;
use serde_json::{Value, json};
use skep_api::resource::KindName;
use skep_testkit::{ControlPlane, Seen, eventually};

use crate::helm::{objects, repository};
use crate::running::{PATIENCE, plane};

/// A namespace that the policy is for.
struct Guarded {
    plane: &'static ControlPlane,
    namespace: String,
}

impl Guarded {
    async fn new() -> Result<Self> {
        let plane = plane().await?;
        let namespace = plane.namespace("guarded").await?;
        let guarded = Self { plane, namespace };
        guarded.install().await?;
        Ok(guarded)
    }

    async fn install(&self) -> Result<()> {
        let namespace = &self.namespace;
        let policy = format!(
            "{{enabled: true, allowedServiceAccounts: [shared], \
             namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}"
        );
        let objects = objects(&format!("{{fullnameOverride: {namespace}, operator: {{podTemplatePolicy: {policy}}}}}"));
        for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
            let object = objects.only(kind).to_string();
            self.plane.kubectl_with_input(&["create", "-f", "-"], &object).await?.success()?;
        }
        // The API server learns of policies by watching, so a moment later.
        eventually("the policy to be in force", PATIENCE, || async {
            let refused = self.apply(&server(&json!({ "hostPID": true }))).await?.is_some();
            Ok(if refused { Seen::Yes(()) } else { Seen::NotYet("nothing is refused".to_owned()) })
        })
        .await
    }

    /// Applies an object without keeping it; what the API server says against it.
    async fn apply(&self, object: &Value) -> Result<Option<String>> {
        let arguments =
            ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-n", &self.namespace, "-f", "-"];
        let output = self.plane.kubectl_with_input(&arguments, &object.to_string()).await?;
        Ok(output.success().err().map(|error| error.to_string()))
    }
}

fn resource(kind: KindName, spec: &Value) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": kind.as_str(), "metadata": { "name": "s" }, "spec": spec,
    })
}

/// The smallest spec of every kind that takes a pod template.
fn specs() -> [(KindName, Value); 5] {
    [
        (KindName::EmbeddingServer, json!({})),
        (KindName::MCPRegistry, json!({ "configYAML": "sources: []\n" })),
        (KindName::MCPRemoteProxy, json!({ "remoteUrl": "https://mcp.example/mcp" })),
        (KindName::MCPServer, json!({ "image": "i" })),
        (KindName::VirtualMCPServer, json!({ "groupRef": { "name": "g" }, "incomingAuth": { "type": "anonymous" } })),
    ]
}

/// Every kind that takes a pod template, with one whose pod is so.
fn templates(pod: &Value) -> Vec<Value> {
    let with = |(kind, mut spec): (KindName, Value)| {
        spec["podTemplateSpec"] = json!({ "spec": pod });
        resource(kind, &spec)
    };
    specs().into_iter().map(with).collect()
}

fn server(pod: &Value) -> Value {
    resource(KindName::MCPServer, &json!({ "image": "i", "podTemplateSpec": { "spec": pod } }))
}

fn container(more: &Value) -> Value {
    let mut container = json!({ "name": "mcp" });
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    container
}

const HOST_PATH: &str = "directories of the node cannot be mounted (hostPath)";
const NAMESPACES: &str = "pods cannot share namespaces of the node";
const PRIVILEGED: &str = "containers cannot be privileged";
const ACCOUNT: &str = "pods cannot use a service account of others";
const SHAPE: &str = "spec.podTemplateSpec is not a pod template";

#[tokio::test]
async fn pod_templates_that_reach_the_node_or_other_accounts_are_refused_for_every_kind() -> Result<()> {
    let guarded = Guarded::new().await?;
    let context = |context: Value| json!({ "containers": [container(&json!({ "securityContext": context }))] });
    for (pod, part) in [
        (json!({ "volumes": [{ "name": "n", "hostPath": { "path": "/" } }] }), HOST_PATH),
        (json!({ "hostNetwork": true }), NAMESPACES),
        (json!({ "hostPID": true }), NAMESPACES),
        (json!({ "hostIPC": true }), NAMESPACES),
        (
            json!({ "containers": [container(&json!({ "ports": [{ "containerPort": 1, "hostPort": 1 }] }))] }),
            NAMESPACES,
        ),
        (context(json!({ "privileged": true })), PRIVILEGED),
        (context(json!({ "procMount": "Unmasked" })), PRIVILEGED),
        (context(json!({ "capabilities": { "add": ["NET_BIND_SERVICE", "SYS_ADMIN"] } })), PRIVILEGED),
        (context(json!({ "windowsOptions": { "hostProcess": true } })), PRIVILEGED),
        (json!({ "securityContext": { "windowsOptions": { "hostProcess": true } } }), PRIVILEGED),
        (json!({ "initContainers": [{ "name": "i", "securityContext": { "privileged": true } }] }), PRIVILEGED),
        (json!({ "ephemeralContainers": [{ "name": "e", "securityContext": { "privileged": true } }] }), PRIVILEGED),
        (json!({ "ephemeralContainers": { "name": "e" } }), SHAPE),
        (json!({ "serviceAccountName": "cluster-admin" }), ACCOUNT),
        (json!({ "serviceAccount": "cluster-admin" }), ACCOUNT),
        (json!("text"), SHAPE),
        (json!({ "volumes": { "name": "n", "hostPath": { "path": "/" } } }), SHAPE),
        (json!({ "containers": ["mcp"] }), SHAPE),
    ] {
        for object in templates(&pod) {
            let said = guarded.apply(&object).await?.unwrap_or_default();
            assert!(said.contains(part), "{object}: {said}");
        }
    }
    Ok(())
}

/// Pod templates are not the only way onto the node.
#[tokio::test]
async fn fields_of_specs_beside_the_template_are_refused_too() -> Result<()> {
    let guarded = Guarded::new().await?;
    let volume = json!([{ "name": "n", "hostPath": "/", "mountPath": "/n" }]);
    let host = json!([{ "name": "n", "hostPath": { "path": "/" } }]);
    for (kind, field, value, part) in [
        (KindName::MCPServer, "volumes", volume, HOST_PATH),
        (KindName::MCPRegistry, "volumes", host, HOST_PATH),
        (KindName::MCPServer, "serviceAccount", json!("other"), ACCOUNT),
        (KindName::MCPRemoteProxy, "serviceAccount", json!("other"), ACCOUNT),
        (KindName::VirtualMCPServer, "serviceAccount", json!("other"), ACCOUNT),
    ] {
        let mut spec = specs().into_iter().find(|(known, _)| *known == kind).unwrap().1;
        spec[field] = value;
        let said = guarded.apply(&resource(kind, &spec)).await?.unwrap_or_default();
        assert!(said.contains(part), "{kind} {field}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn harmless_pod_templates_pass() -> Result<()> {
    let guarded = Guarded::new().await?;
    for (kind, spec) in specs() {
        assert_eq!(guarded.apply(&resource(kind, &spec)).await?, None, "{kind}");
    }
    let harmless = json!({
        "hostNetwork": false, "serviceAccountName": "shared", "nodeSelector": { "pool": "tools" },
        "securityContext": { "runAsNonRoot": true },
        "volumes": [{ "name": "c", "configMap": { "name": "c" } }, { "name": "e", "emptyDir": {} }],
        "initContainers": [{ "name": "i", "image": "i" }],
        "containers": [container(&json!({
            "securityContext": { "privileged": false, "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] } },
            "ports": [{ "containerPort": 8080 }], "resources": { "limits": { "memory": "64Mi" } },
        }))],
    });
    for pod in [json!({}), json!(null), json!({ "volumes": null, "containers": null }), harmless] {
        for object in templates(&pod) {
            assert_eq!(guarded.apply(&object).await?, None, "{object}");
        }
    }
    let examples = repository().join("examples").read_dir()?.collect::<Result<Vec<_>, _>>()?;
    for path in examples
        .iter()
        .map(std::fs::DirEntry::path)
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
    {
        for mut object in skep_api::manifest::parse(&std::fs::read_to_string(path)?)? {
            // The one that mounts a directory of the node is what the policy is about.
            if object["kind"] == "MCPServer"
                && let Some(spec) = object["spec"].as_object_mut()
            {
                spec.remove("volumes");
            }
            assert_eq!(guarded.apply(&object).await?, None, "{object}");
        }
    }
    Ok(())
}

/// A client that writes finalizers, annotations or statuses does not answer for the spec.
#[tokio::test]
async fn an_object_that_is_older_than_the_policy_can_still_be_handled() -> Result<()> {
    let plane = plane().await?;
    let guarded = Guarded { plane, namespace: plane.namespace("guarded").await? };
    let namespace = guarded.namespace.clone();
    let object = server(&json!({ "hostNetwork": true })).to_string();
    plane.kubectl_with_input(&["create", "-n", &namespace, "-f", "-"], &object).await?.success()?;
    guarded.install().await?;
    let patch = async |patch: &str| {
        plane.kubectl(&["patch", "mcpserver", "s", "-n", &namespace, "--type=merge", "-p", patch]).await?.success()
    };
    patch(r#"{"metadata":{"finalizers":["mcpserver.toolhive.stacklok.dev/finalizer"]}}"#).await?;
    patch(r#"{"metadata":{"finalizers":[]}}"#).await?;
    let error = patch(r#"{"spec":{"image":"j"}}"#).await.unwrap_err().to_string();
    assert!(error.contains(NAMESPACES), "{error}");
    patch(r#"{"spec":{"podTemplateSpec":null}}"#).await?;
    Ok(())
}

/// A finalizer that cannot be removed would keep the object, and its namespace, for ever.
#[tokio::test]
async fn an_object_without_a_spec_passes_and_can_be_handled() -> Result<()> {
    let plane = plane().await?;
    let guarded = Guarded { plane, namespace: plane.namespace("guarded").await? };
    let mut object = resource(KindName::EmbeddingServer, &json!({}));
    object.as_object_mut().unwrap().remove("spec");
    let arguments = ["create", "-n", &guarded.namespace, "-f", "-"];
    plane.kubectl_with_input(&arguments, &object.to_string()).await?.success()?;
    guarded.install().await?;
    assert_eq!(guarded.apply(&object).await?, None);
    object["metadata"]["name"] = json!("later");
    plane.kubectl_with_input(&arguments, &object.to_string()).await?.success()?;
    for name in ["s", "later"] {
        for patch in [
            r#"{"metadata":{"finalizers":["embeddingserver.toolhive.stacklok.dev/finalizer"]}}"#,
            r#"{"metadata":{"finalizers":[]}}"#,
            r#"{"spec":{"port":81}}"#,
        ] {
            let namespace = guarded.namespace.as_str();
            let arguments = ["patch", "embeddingserver", name, "-n", namespace, "--type=merge", "-p", patch];
            plane.kubectl(&arguments).await?.success()?;
        }
    }
    // A spec that comes later is validated.
    let arguments = ["patch", "embeddingserver", "s", "-n", &guarded.namespace, "--type=merge", "-p"];
    let patch = r#"{"spec":{"podTemplateSpec":{"spec":{"hostPID":true}}}}"#;
    let error = plane.kubectl(&[&arguments[..], &[patch]].concat()).await?.success().unwrap_err().to_string();
    assert!(error.contains(NAMESPACES), "{error}");
    Ok(())
}
