//! The objects of a virtual server, finished.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use skep_api::kinds::VirtualMCPServer;
use skep_api::resource::Resource;
use skep_api::virtual_config::LogLevel;
use skep_bounds::CONFIG_MAP_BYTES;

use super::members::Member;
use super::outgoing::is_inline;
use super::{Inputs, PORT, document, incoming};
use crate::account::account_with;
use crate::child::{Child, ChildKind, MANAGED_LABEL};
use crate::error::PlanError;
use crate::inputs::{digest_with, redis_env, telemetry_env};
use crate::overrides::{DroppedOverrides, POD_TEMPLATE};
use crate::plan::{GeneratedSecret, VirtualServerPlan};
use crate::pod::{
    CHECKSUM, Env, Files, INPUTS, TEMPLATE_HASH, Template, container_security, pod_security, probe, pull_secrets,
    workload_labels,
};
use crate::proxy::{SecretFile, oidc_ca, telemetry_ca};
use crate::world::World;
use crate::{auth_server, canonical, grants, names, run_config};

/// The container of the virtual server; a user's pod template reaches it by this name.
const CONTAINER: &str = "vmcp";
/// Digest of the Secrets with which images are pulled, on the Deployment.
const PULL_SECRETS_HASH: &str = "toolhive.stacklok.io/imagepullsecrets-hash";
/// The key of the Secret that binds sessions.
const SESSION_KEY: &str = "hmac-secret";
/// How many bytes it has.
const SESSION_KEY_BYTES: usize = 32;
/// Where the configuration is mounted.
const CONFIG: &str = "/etc/vmcp-config";

/// Builds everything; fails only with what is wrong in the spec.
pub(super) fn build(
    me: &Resource,
    object: &VirtualMCPServer,
    inputs: &Inputs<'_>,
    world: &World<'_>,
    dropped: &mut DroppedOverrides,
) -> Result<(Vec<Child>, VirtualServerPlan), PlanError> {
    let spec = &object.spec;
    let pull = pull_secrets(&spec.image_pull_secrets, world.settings);
    let mut children = Vec::new();
    if own_account(object).is_none() {
        let role = if is_inline(spec) { &grants::VIRTUAL_SERVER_INLINE } else { &grants::VIRTUAL_SERVER_DISCOVERED };
        children.extend(account_with(me, &names::virtual_account(me.name()), role, &pull));
    }
    let config = document::build(me, object, inputs, world.settings)?;
    let env = environment(me, object, inputs, world);
    let files = files(me, object, inputs)?;
    let process = VirtualServerPlan {
        config: config.clone(),
        env: env.variables().cloned().collect(),
        files: files.mounts().iter().filter_map(SecretFile::of).collect(),
    };
    let (map, checksum) = config_map(me, config, inputs)?;
    children.push(map);
    children.push(service(me, object));
    children.push(deployment(me, object, inputs, (&pull, &env, &files), &checksum, world, dropped)?);
    Ok((children, process))
}

/// The Secret with the key that binds sessions to the identity that opened them.
pub(crate) fn session_key(me: &Resource) -> GeneratedSecret {
    let text = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    GeneratedSecret {
        name: names::virtual_session_key(me.name()),
        key: SESSION_KEY.to_owned(),
        bytes: SESSION_KEY_BYTES,
        labels: text(&[
            ("app.kubernetes.io/name", "virtualmcpserver"),
            ("app.kubernetes.io/instance", me.name()),
            ("app.kubernetes.io/component", "session-security"),
            ("app.kubernetes.io/managed-by", "toolhive-operator"),
        ]),
        annotations: text(&[("toolhive.stacklok.dev/purpose", "hmac-secret-for-session-token-binding")]),
    }
}

fn own_account(object: &VirtualMCPServer) -> Option<&str> {
    object.spec.service_account.as_deref().filter(|account| !account.is_empty())
}

/// The ConfigMap with the documents, and its checksum.
fn config_map(me: &Resource, config: String, inputs: &Inputs<'_>) -> Result<(Child, String), PlanError> {
    skep_bounds::size(&config, CONFIG_MAP_BYTES).map_err(|error| PlanError::field("config.yaml", error))?;
    let mut data = BTreeMap::from([("config.yaml".to_owned(), config)]);
    data.extend(inputs.auth_server.as_ref().map(|server| ("authserver-config.yaml".to_owned(), server.to_yaml())));
    let labels = BTreeMap::from(
        [
            ("toolhive.stacklok.io/component", "vmcp-config"),
            ("toolhive.stacklok.io/virtual-mcp-server", me.name()),
            MANAGED_LABEL,
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let checksum = canonical::content_checksum(&data, &labels, &BTreeMap::new());
    let annotations = json!({ canonical::CONTENT_CHECKSUM: checksum });
    let name = names::virtual_config(me.name());
    let map = Child::new(me, ChildKind::ConfigMap, &name, json!(labels), annotations, json!({ "data": data }));
    Ok((map, checksum))
}

fn service(me: &Resource, object: &VirtualMCPServer) -> Child {
    let (spec, labels) = (&object.spec, workload_labels(me));
    let body = json!({ "spec": {
        "type": spec.service_type,
        "selector": labels,
        "sessionAffinity": spec.session_affinity,
        "ports": [{ "name": "http", "port": PORT, "targetPort": PORT, "protocol": "TCP" }],
    }});
    Child::new(me, ChildKind::Service, &names::virtual_service(me.name()), json!(labels), json!({}), body)
}

fn deployment(
    me: &Resource,
    object: &VirtualMCPServer,
    inputs: &Inputs<'_>,
    (pull, env, files): (&[Value], &Env, &Files),
    checksum: &str,
    world: &World<'_>,
    dropped: &mut DroppedOverrides,
) -> Result<Child, PlanError> {
    let (spec, labels) = (&object.spec, workload_labels(me));
    let patch = spec.pod_template_spec.as_ref().map(|template| Value::Object(template.0.clone()));
    let template = Template::new(&labels, pod(me, object, (pull, env, files), world));
    let template = template.reserving(CONTAINER, env);
    let overridden = template.overridden(POD_TEMPLATE, None, patch.as_ref()).map_err(PlanError::template)?;
    let mut stamps = vec![(CHECKSUM, checksum.to_owned())];
    stamps.extend(digest_with(me, inputs.read.clone(), world).map(|digest| (INPUTS, digest)));
    let template = overridden.stamp(&labels, &stamps, dropped);

    let mut body = json!({ "selector": { "matchLabels": labels }, "template": template.into_value() });
    if let (Some(replicas), Some(body)) = (spec.replicas, body.as_object_mut()) {
        body.insert("replicas".into(), json!(replicas));
    }
    let mut annotations = Map::new();
    annotations.extend(patch.map(|patch| (TEMPLATE_HASH.to_owned(), json!(canonical::value_hash(&patch)))));
    if !pull.is_empty() {
        let mut sorted = pull.to_vec();
        sorted.sort_by_key(|secret| secret.get("name").and_then(Value::as_str).map(str::to_owned));
        annotations.insert(PULL_SECRETS_HASH.to_owned(), json!(canonical::value_hash(&Value::Array(sorted))));
    }
    let (labels, body) = (json!(labels), json!({ "spec": body }));
    Ok(Child::new(me, ChildKind::Deployment, me.name(), labels, Value::Object(annotations), body))
}

fn pod(
    me: &Resource,
    object: &VirtualMCPServer,
    (pull, env, files): (&[Value], &Env, &Files),
    world: &World<'_>,
) -> Value {
    let settings = world.settings;
    let container = json!({
        "name": CONTAINER,
        "image": settings.vmcp_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["skep", "vmcp"],
        "args": arguments(object),
        "ports": [{ "name": "http", "containerPort": PORT, "protocol": "TCP" }],
        "env": env.list(),
        "resources": {
            "limits": { "cpu": "500m", "memory": "512Mi" },
            "requests": { "cpu": "100m", "memory": "128Mi" },
        },
        "livenessProbe": probe("/health", json!("http"), 30, 10, 5, 3),
        "readinessProbe": probe("/readyz", json!("http"), 15, 5, 3, 3),
        "securityContext": container_security(settings),
        "volumeMounts": files.mount_list(),
    });
    let account = own_account(object).map_or_else(|| names::virtual_account(me.name()), str::to_owned);
    let mut pod = json!({
        "serviceAccountName": account,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security(settings),
        "containers": [container],
        "volumes": files.volume_list(),
    });
    if let (false, Some(pod)) = (pull.is_empty(), pod.as_object_mut()) {
        pod.insert("imagePullSecrets".into(), json!(pull));
    }
    pod
}

fn arguments(object: &VirtualMCPServer) -> Vec<String> {
    let mut arguments = vec![
        "serve".to_owned(),
        format!("--config={CONFIG}/config.yaml"),
        "--host=0.0.0.0".to_owned(),
        format!("--port={PORT}"),
    ];
    let operational = object.spec.config.as_ref().and_then(|config| config.operational.as_ref());
    if operational.and_then(|operational| operational.log_level) == Some(LogLevel::Debug) {
        arguments.push("--debug".to_owned());
    }
    arguments
}

/// The order is part of the contract.
fn environment(me: &Resource, object: &VirtualMCPServer, inputs: &Inputs<'_>, world: &World<'_>) -> Env {
    let spec = &object.spec;
    let mut env = Env::new();
    env.value("VMCP_NAME", me.name()).value("VMCP_NAMESPACE", me.namespace());
    let inline = inputs.oidc.and_then(|oidc| oidc.inline.as_ref());
    if let Some(secret) = inline.and_then(|inline| inline.client_secret_ref.as_ref()) {
        env.secret(incoming::CLIENT_SECRET, &secret.name, &secret.key);
    }
    for (variable, secret) in &inputs.outgoing.secrets {
        env.secret(variable, &secret.name, &secret.key);
    }
    for (name, variable) in &inputs.headers {
        variable.add(name, &mut env);
    }
    env.secret("VMCP_SESSION_HMAC_SECRET", &names::virtual_session_key(me.name()), SESSION_KEY);
    redis_env(&mut env, spec.session_storage.as_ref(), world.settings);
    if let (Some(reference), Some(telemetry)) = (&spec.telemetry_config_ref, inputs.telemetry) {
        telemetry_env(&mut env, run_config::service_name(reference, me.name()), me.namespace(), telemetry);
    }
    if let Some(server) = &spec.auth_server_config {
        auth_server::environment(&mut env, server);
    }
    env.required();
    env
}

fn files(me: &Resource, object: &VirtualMCPServer, inputs: &Inputs<'_>) -> Result<Files, PlanError> {
    let mut files = Files::default();
    files.config_map("vmcp-config", &names::virtual_config(me.name()), None, CONFIG);
    files.extend(oidc_ca(inputs.oidc)?);
    files.extend(inputs.served.iter().filter_map(Member::ca_bundle_mount));
    files.extend(telemetry_ca(inputs.telemetry)?);
    files.extend(inputs.webhooks.files.iter().cloned());
    files.extend(object.spec.auth_server_config.iter().flat_map(auth_server::files));
    Ok(files)
}
