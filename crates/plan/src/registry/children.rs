//! The objects of a registry, finished.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use skep_api::kinds::MCPRegistrySpec;
use skep_api::resource::Resource;
use skep_api::workload::MetadataOverrides;

use super::fill;
use crate::canonical;
use crate::child::{Child, ChildKind, MANAGED_LABEL};
use crate::error::PlanError;
use crate::grants::REGISTRY_API;
use crate::inputs::digest_of_inputs;
use crate::names;
use crate::overrides::DroppedOverrides;
use crate::pod::{
    CONFIG_HASH, INPUTS, POD_TEMPLATE_METADATA, REGISTRY_COMPONENT, Template, probe, pull_secrets, texts,
};
use crate::validate::config_hash;
use crate::world::World;

/// Where the API is served.
pub(super) const PORT: i32 = 8080;
/// The container that serves it; a user's pod template reaches it by this name.
pub(super) const CONTAINER: &str = REGISTRY_COMPONENT;
/// The volume with the server's configuration.
pub(super) const CONFIG_VOLUME: &str = "registry-server-config";
/// Where that volume is mounted.
pub(super) const CONFIG_PATH: &str = "/config";
/// The volume with the Secret of the password file.
pub(super) const PASSWORD_SOURCE: &str = "pgpass-secret";
/// The volume with the password file as the server wants it: owned by its user, and readable by no other.
pub(super) const PASSWORD_VOLUME: &str = "pgpass";
/// The init container that copies the one to the other.
pub(super) const PASSWORD_INIT: &str = "setup-pgpass";
/// Where the server finds the password file.
pub(super) const PASSWORD_PATH: &str = "/home/appuser/.pgpass";

/// Where health is asked.
const HEALTH_PORT: i32 = 8081;
/// An image with a shell, for the init container.
const SHELL_IMAGE: &str = "cgr.dev/chainguard/busybox:latest";

/// Builds everything; fails only with what is wrong in the spec.
pub(super) fn build(
    me: &Resource,
    spec: &MCPRegistrySpec,
    template: Option<&Value>,
    world: &World<'_>,
    dropped: &mut DroppedOverrides,
) -> Result<Vec<Child>, PlanError> {
    let pull = pull_secrets(&spec.image_pull_secrets, world.settings);
    let mut children = account(me, &pull);
    children.extend([config_map(me, spec), service(me), deployment(me, spec, template, &pull, world, dropped)?]);
    Ok(children)
}

/// ServiceAccount, Role and RoleBinding.
fn account(me: &Resource, pull: &[Value]) -> Vec<Child> {
    let name = names::registry_account(me.name());
    let child = |kind: ChildKind, body: Value| Child::new(me, kind, &name, json!(labels(me, &name)), json!({}), body);
    // An empty list is not sent: others put Secrets of their own on an account.
    let secrets = if pull.is_empty() { json!({}) } else { json!({ "imagePullSecrets": pull }) };
    let binding = json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": me.namespace() }],
    });
    vec![
        child(ChildKind::ServiceAccount, secrets),
        child(ChildKind::Role, json!({ "rules": REGISTRY_API.rules() })),
        child(ChildKind::RoleBinding, binding),
    ]
}

fn config_map(me: &Resource, spec: &MCPRegistrySpec) -> Child {
    let data = BTreeMap::from([("config.yaml".to_owned(), spec.config_yaml.clone())]);
    let labels = BTreeMap::from([(MANAGED_LABEL.0.to_owned(), MANAGED_LABEL.1.to_owned())]);
    let checksum = canonical::content_checksum(&data, &labels, &BTreeMap::new());
    let annotations = json!({ canonical::CONTENT_CHECKSUM: checksum });
    Child::new(
        me,
        ChildKind::ConfigMap,
        &names::registry_config(me.name()),
        json!(labels),
        annotations,
        json!({ "data": data }),
    )
}

fn service(me: &Resource) -> Child {
    let name = names::registry_api(me.name());
    let body = json!({ "spec": {
        "type": "ClusterIP",
        "selector": selector(me),
        "ports": [{ "name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP" }],
    }});
    Child::new(me, ChildKind::Service, &name, json!(labels(me, &name)), json!({}), body)
}

/// Replicas are not ours: left out, one runs, and the manager that scales the Deployment keeps what it set.
fn deployment(
    me: &Resource,
    spec: &MCPRegistrySpec,
    template: Option<&Value>,
    pull: &[Value],
    world: &World<'_>,
    dropped: &mut DroppedOverrides,
) -> Result<Child, PlanError> {
    let name = names::registry_api(me.name());
    let ours = pod(me, spec, pull, world);
    let pod = match template.and_then(|template| template.get("spec")) {
        Some(user) => fill::pod(user, &ours),
        None => ours,
    };
    let mut pod_labels = labels(me, &name);
    let user = template.map(|template| MetadataOverrides {
        labels: texts(template, "labels"),
        annotations: texts(template, "annotations"),
    });
    pod_labels.extend(user.iter().flat_map(|user| user.labels.clone()));
    let mut stamps = vec![(CONFIG_HASH, config_hash(me))];
    stamps.extend(digest_of_inputs(me, world).map(|digest| (INPUTS, digest)));
    let pods = Template::new(&pod_labels, pod)
        .overridden(POD_TEMPLATE_METADATA, user.as_ref(), None)
        .map_err(PlanError::template)?
        .stamp(&selector(me), &stamps, dropped);
    let body = json!({ "spec": { "selector": { "matchLabels": selector(me) }, "template": pods.into_value() } });
    Ok(Child::new(me, ChildKind::Deployment, &name, json!(labels(me, &name)), json!({}), body))
}

fn pod(me: &Resource, spec: &MCPRegistrySpec, pull: &[Value], world: &World<'_>) -> Value {
    let mut volumes =
        vec![json!({ "name": CONFIG_VOLUME, "configMap": { "name": names::registry_config(me.name()) } })];
    let mut mounts = vec![json!({ "name": CONFIG_VOLUME, "mountPath": CONFIG_PATH, "readOnly": true })];
    volumes.extend(spec.volumes.iter().map(|volume| volume.0.clone()));
    mounts.extend(spec.volume_mounts.iter().map(|mount| mount.0.clone()));
    let mut container = Map::new();
    let mut pod = Map::new();
    if let Some(secret) = &spec.pgpass_secret_ref {
        let items = json!([{ "key": secret.key, "path": ".pgpass" }]);
        volumes.push(json!({ "name": PASSWORD_SOURCE, "secret": { "secretName": secret.name, "items": items } }));
        volumes.push(json!({ "name": PASSWORD_VOLUME, "emptyDir": {} }));
        mounts.push(
            json!({ "name": PASSWORD_VOLUME, "mountPath": PASSWORD_PATH, "subPath": ".pgpass", "readOnly": true }),
        );
        container.insert("env".to_owned(), json!([{ "name": "PGPASSFILE", "value": PASSWORD_PATH }]));
        pod.insert("initContainers".to_owned(), json!([password_container()]));
    }
    container.extend([
        ("name".to_owned(), json!(CONTAINER)),
        ("image".to_owned(), json!(world.settings.registry_image)),
        ("args".to_owned(), json!(["serve", format!("--config={CONFIG_PATH}/config.yaml")])),
        ("ports".to_owned(), json!([{ "name": "http", "containerPort": PORT, "protocol": "TCP" }])),
        ("livenessProbe".to_owned(), probe("/health", json!(HEALTH_PORT), 30, 10, 0, 0)),
        ("readinessProbe".to_owned(), probe("/readiness", json!(HEALTH_PORT), 5, 5, 0, 0)),
        (
            "resources".to_owned(),
            json!({ "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "cpu": "500m", "memory": "512Mi" } }),
        ),
        ("volumeMounts".to_owned(), Value::Array(mounts)),
    ]);
    pod.extend([
        ("serviceAccountName".to_owned(), json!(names::registry_account(me.name()))),
        ("containers".to_owned(), json!([container])),
        ("volumes".to_owned(), Value::Array(volumes)),
    ]);
    if !pull.is_empty() {
        pod.insert("imagePullSecrets".to_owned(), json!(pull));
    }
    Value::Object(pod)
}

/// A file from a Secret belongs to root, and the database's client reads a password file only if it is its own.
fn password_container() -> Value {
    json!({
        "name": PASSWORD_INIT,
        "image": SHELL_IMAGE,
        "command": ["sh", "-c", "cp /secret/.pgpass /pgpass/.pgpass && chmod 0600 /pgpass/.pgpass"],
        "securityContext": {
            "runAsNonRoot": true,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
        "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "cpu": "50m", "memory": "32Mi" } },
        "volumeMounts": [
            { "name": PASSWORD_SOURCE, "mountPath": "/secret", "readOnly": true },
            { "name": PASSWORD_VOLUME, "mountPath": "/pgpass" },
        ],
    })
}

/// The labels of a child called `name`.
fn labels(me: &Resource, name: &str) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", name),
        ("app.kubernetes.io/component", REGISTRY_COMPONENT),
        ("app.kubernetes.io/managed-by", "toolhive-operator"),
        ("toolhive.stacklok.io/registry-name", me.name()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// The labels by which the pods are selected.
fn selector(me: &Resource) -> BTreeMap<String, String> {
    let name = names::registry_api(me.name());
    [("app.kubernetes.io/name", name.as_str()), ("app.kubernetes.io/component", REGISTRY_COMPONENT)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}
