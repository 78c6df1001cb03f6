//! The objects of a server, finished.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use skep_api::annotation::GENERATION_ENV;
use skep_api::kinds::{MCPServer, PermissionProfileSource, Transport};
use skep_api::resource::Resource;
use skep_api::workload::MetadataOverrides;
use skep_runconfig::RunConfig;

use super::{Inputs, advice, document};
use crate::account::{account, account_with};
use crate::canonical;
use crate::child::{Child, ChildKind};
use crate::inputs::digest_of_inputs;
use crate::overrides::{DroppedOverrides, PROXY_DEPLOYMENT, PROXY_PODS, PROXY_SERVICE};
use crate::pod::{
    self, CHECKSUM, CONSUMED, Env, GENERATION, INPUTS, Template, container_security, pod_security, probe, pull_secrets,
    workload_labels,
};
use crate::proxy::{
    Volumes, check_override_env, external_auth_env, inline_authz, oidc_env, override_env, run_config_map, service,
    with_overrides,
};
use crate::refusal::Refusal;
use crate::text::{is_newer, is_timestamp};
use crate::webhook::{Webhooks, webhooks};
use crate::world::{LiveWorkload, World};
use crate::{grants, names, run_config, support};

/// Builds everything; fails only with what is wrong in the spec.
pub(super) fn build(
    me: &Resource,
    object: &MCPServer,
    inputs: &Inputs<'_>,
    world: &World<'_>,
    dropped: &mut DroppedOverrides,
) -> Result<Vec<Child>, Refusal> {
    let (name, spec) = (me.name(), &object.spec);
    check_override_env(spec.resource_overrides.as_ref())?;
    let deployment = spec.resource_overrides.as_ref().and_then(|overrides| overrides.proxy_deployment.as_ref());
    let pull =
        pull_secrets(deployment.map(|one| one.image_pull_secrets.as_slice()).unwrap_or_default(), world.settings);
    let hooks = inputs.webhooks.map(webhooks).unwrap_or_default();
    let config = document::build(me, object, inputs, &hooks, world)?;
    dropped.compare_entries("spec.env", &wanted_env(object), serde_json::to_value(&config.env_vars).ok().as_ref());
    report_backend_stamps(object, dropped);
    support::check(&config, world.settings)?;

    let mut children = account_with(me, &names::server_runner(name), &grants::SERVER_PROXY, &pull);
    if spec.service_account.as_deref().unwrap_or_default().is_empty() {
        children.push(account(me, &names::server_account(name), &pull));
    }
    children.extend(inline_authz(me, spec.authz_config.as_ref()));
    let service_overrides = spec.resource_overrides.as_ref().and_then(|overrides| overrides.proxy_service.as_ref());
    let service = service(me, &names::server_service(name), spec.proxy_port, spec.session_affinity, service_overrides);
    dropped.compare(PROXY_SERVICE, service_overrides, service.metadata());
    children.push(service);

    // What the pods consume, but for the generation itself: as long as it is the same, so is the generation.
    let mut template = |generation: i64, checksum: &str| {
        template(me, object, inputs, &hooks, &pull, world, generation, checksum, dropped)
    };
    let consumed = consumed(&config, &template(0, "")?.into_value());
    let known = world.live.workload.as_ref();
    let generation = known
        .filter(|known| known.consumed.as_deref() == Some(&consumed))
        .and_then(|known| known.generation_stamp)
        .unwrap_or_else(|| me.generation());
    let mut config = config;
    config.mcpserver_generation = generation;
    let (map, checksum) = run_config_map(me, "mcp-server", config);
    children.push(map);

    let labels = workload_labels(me);
    let mut body =
        json!({ "selector": { "matchLabels": labels }, "template": template(generation, &checksum)?.into_value() });
    if let Some(replicas) = replicas(object, known)
        && let Some(body) = body.as_object_mut()
    {
        body.insert("replicas".into(), json!(replicas));
    }
    let metadata =
        deployment.map(|one| MetadataOverrides { labels: one.labels.clone(), annotations: one.annotations.clone() });
    let (labels, mut annotations) = with_overrides(&labels, metadata.as_ref());
    annotations.insert(CONSUMED.to_owned(), json!(consumed));
    let (labels, annotations) = (Value::Object(labels), Value::Object(annotations));
    let child = Child::new(me, ChildKind::Deployment, name, labels, annotations, json!({ "spec": body }));
    dropped.compare(PROXY_DEPLOYMENT, metadata.as_ref(), child.metadata());
    children.push(child);
    Ok(children)
}

/// The last restart: the one that is asked for, if it is a time and newer than the one that was done before; else that one. To take the
/// annotation away, or to write nonsense into it, restarts nothing.
pub(super) fn restart_stamp(object: &MCPServer) -> Option<String> {
    let annotations = object.metadata.annotations.as_ref()?;
    let last = annotations.get(advice::LAST_RESTART).filter(|text| is_timestamp(text));
    let asked = annotations.get(advice::RESTARTED_AT);
    let asked = asked.filter(|asked| is_newer(asked, last.map(String::as_str)).unwrap_or(false));
    asked.or(last).cloned()
}

#[expect(clippy::too_many_arguments, reason = "everything that a pod is made of, in one place")]
fn template(
    me: &Resource,
    object: &MCPServer,
    inputs: &Inputs<'_>,
    hooks: &Webhooks,
    pull: &[Value],
    world: &World<'_>,
    generation: i64,
    checksum: &str,
    dropped: &mut DroppedOverrides,
) -> Result<pod::Stamped, String> {
    let (name, spec, settings) = (me.name(), &object.spec, world.settings);
    let volumes = volumes(me, object, inputs, hooks)?;
    let env = environment(me, object, inputs, world);
    dropped.extend(env.dropped());
    let container = json!({
        "name": "toolhive",
        "image": settings.runner_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["skep", "proxy"],
        "args": arguments(me, object),
        "ports": [{ "name": "http", "containerPort": spec.proxy_port, "protocol": "TCP" }],
        "env": env.list(),
        "resources": pod::resources(spec.resources.as_ref())?,
        "startupProbe": probe("/health", json!("http"), 0, 5, 3, 18),
        "livenessProbe": probe("/health", json!("http"), 30, 10, 5, 3),
        "readinessProbe": probe("/health", json!("http"), 5, 5, 3, 3),
        "securityContext": container_security(settings),
        "volumeMounts": volumes.mounts,
    });
    let mut pod = json!({
        "serviceAccountName": names::server_runner(name),
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security(settings),
        "containers": [container],
        "volumes": volumes.volumes,
    });
    if !pull.is_empty()
        && let Some(pod) = pod.as_object_mut()
    {
        pod.insert("imagePullSecrets".into(), json!(pull));
    }
    let labels = workload_labels(me);
    let overrides = spec.resource_overrides.as_ref().and_then(|overrides| overrides.proxy_deployment.as_ref());
    let overrides = overrides.and_then(|deployment| deployment.pod_template_metadata_overrides.as_ref());
    let template = Template::new(&labels, pod).overridden(PROXY_PODS, overrides, None);
    let overridden = template.map_err(|error| error.to_string())?;
    let mut stamps = vec![(CHECKSUM, checksum.to_owned()), (GENERATION, generation.to_string())];
    stamps.extend(digest_of_inputs(me, world).map(|digest| (INPUTS, digest)));
    stamps.extend(restart_stamp(object).map(|at| (advice::RESTARTED_AT, at)));
    Ok(overridden.stamp(&labels, &stamps, dropped))
}

fn arguments(me: &Resource, object: &MCPServer) -> Vec<String> {
    let patch = canonical::to_string(&backend_patch(me, object));
    vec!["run".to_owned(), format!("--k8s-pod-patch={patch}"), object.spec.image.clone()]
}

/// The user's pod template for the server, with what the spec says about it: account, secrets, volumes, restart.
fn backend_patch(me: &Resource, object: &MCPServer) -> Value {
    let spec = &object.spec;
    let mut patch =
        spec.pod_template_spec.as_ref().map_or_else(|| json!({}), |template| Value::Object(template.0.clone()));
    let account = spec.service_account.clone().filter(|account| !account.is_empty());
    let pod = object_at(object_of(&mut patch), "spec");
    pod.insert("serviceAccountName".into(), json!(account.unwrap_or_else(|| names::server_account(me.name()))));
    let env: Vec<Value> = spec
        .secrets
        .iter()
        .map(|secret| {
            let variable = secret.target_env_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&secret.key);
            json!({ "name": variable, "valueFrom": { "secretKeyRef": { "name": secret.name, "key": secret.key } } })
        })
        .collect();
    let mounts: Vec<Value> = spec
        .volumes
        .iter()
        .map(|volume| json!({ "name": volume.name, "mountPath": volume.mount_path, "readOnly": volume.read_only }))
        .collect();
    let volumes: Vec<Value> = spec
        .volumes
        .iter()
        .map(|volume| json!({ "name": volume.name, "hostPath": { "path": volume.host_path } }))
        .collect();
    append(pod, "volumes", volumes);
    let containers = list_at(pod, "containers");
    if !env.is_empty() || !mounts.is_empty() {
        if !containers.iter().any(|container| container.get("name").is_some_and(|name| name == "mcp")) {
            containers.push(json!({ "name": "mcp", "resources": {} }));
        }
        let server = containers.iter_mut().find(|container| container.get("name").is_some_and(|name| name == "mcp"));
        if let Some(server) = server {
            let server = object_of(server);
            if let Some(Value::Array(theirs)) = server.get_mut("env") {
                // An apply with the same name twice would be refused; what comes later counts.
                let name = |one: &Value| one.get("name").and_then(Value::as_str).map(str::to_owned);
                let ours: BTreeSet<String> = env.iter().filter_map(name).collect();
                theirs.retain(|one| name(one).is_none_or(|name| !ours.contains(&name)));
            }
            append(server, "env", env);
            append(server, "volumeMounts", mounts);
        }
    }
    let metadata = object_at(object_of(&mut patch), "metadata");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        // The proxy stamps its own generation on the backend; a user's would close the gate to it.
        annotations.remove(GENERATION);
    }
    if let Some(at) = restart_stamp(object) {
        object_at(metadata, "annotations").insert(advice::RESTARTED_AT.to_owned(), json!(at));
    }
    patch
}

/// The variables that the user sets for the server; of several of one name the first.
fn wanted_env(object: &MCPServer) -> BTreeMap<String, String> {
    object.spec.env.iter().rev().map(|variable| (variable.name.clone(), variable.value.clone())).collect()
}

/// Reports annotations of the user's pod template that [`backend_patch`] leaves out or replaces.
fn report_backend_stamps(object: &MCPServer, dropped: &mut DroppedOverrides) {
    let template = object.spec.pod_template_spec.as_ref().map(|template| Value::Object(template.0.clone()));
    let annotations = template.map(|template| pod::texts(&template, "annotations")).unwrap_or_default();
    let restart = restart_stamp(object);
    for (name, value) in &annotations {
        let is_restart = name == advice::RESTARTED_AT && restart.as_ref().is_some_and(|stamp| stamp != value);
        if name == GENERATION || is_restart {
            dropped.add(&format!("{}.annotations", pod::POD_TEMPLATE_METADATA), name);
        }
    }
}

fn environment(me: &Resource, object: &MCPServer, inputs: &Inputs<'_>, world: &World<'_>) -> Env {
    let spec = &object.spec;
    let mut env = Env::new();
    if let (Some(reference), Some(telemetry)) = (&spec.telemetry_config_ref, inputs.telemetry) {
        let service = run_config::service_name(reference, me.name());
        crate::inputs::telemetry_env(&mut env, service, me.namespace(), telemetry);
    }
    external_auth_env(&mut env, inputs.external_auth);
    oidc_env(&mut env, inputs.oidc);
    override_env(&mut env, spec.resource_overrides.as_ref());
    crate::inputs::redis_env(&mut env, spec.session_storage.as_ref(), world.settings);
    env.field(GENERATION_ENV, &format!("metadata.annotations['{GENERATION}']"));
    if let Some(server) = inputs.auth_server {
        crate::auth_server::environment(&mut env, server);
    }
    env.required();
    env
}

fn volumes(me: &Resource, object: &MCPServer, inputs: &Inputs<'_>, hooks: &Webhooks) -> Result<Volumes, String> {
    let spec = &object.spec;
    let mut all = Volumes::default();
    all.run_config(me);
    all.volumes.extend(hooks.volumes.iter().cloned());
    all.mounts.extend(hooks.mounts.iter().cloned());
    if let Some(profile) =
        spec.permission_profile.as_ref().filter(|profile| profile.source == PermissionProfileSource::ConfigMap)
    {
        all.config_map("permission-profile", &profile.name, None, "/etc/toolhive/profiles");
    }
    all.authz(me, spec.authz_config.as_ref());
    all.oidc_ca(inputs.oidc)?.telemetry_ca(inputs.telemetry)?.auth_server(inputs.auth_server);
    Ok(all)
}

/// How many proxies run, where the spec says so. A stdio server has one at most, whoever scaled it.
fn replicas(object: &MCPServer, known: Option<&LiveWorkload>) -> Option<i32> {
    if object.spec.transport != Transport::Stdio {
        return object.spec.replicas;
    }
    let live = known.map(|known| known.replicas).filter(|replicas| *replicas > 1);
    object.spec.replicas.or(live).map(|replicas| replicas.min(1))
}

/// Digest of everything that the proxy or its server consumes: the RunConfig, and the pod template.
fn consumed(config: &RunConfig, template: &Value) -> String {
    let mut config = config.clone();
    config.mcpserver_generation = 0;
    let text = format!("{}\n{}", config.to_json_compact(), canonical::to_string(template));
    canonical::sha256_hex(text.as_bytes())
}

fn object_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().unwrap_or_else(|| unreachable!("it was made an object just now"))
}

fn object_at<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    object_of(object.entry(name).or_insert_with(|| json!({})))
}

fn list_at<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let list = object.entry(name).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    list.as_array_mut().unwrap_or_else(|| unreachable!("it was made a list just now"))
}

fn append(object: &mut Map<String, Value>, name: &str, entries: Vec<Value>) {
    if !entries.is_empty() {
        list_at(object, name).extend(entries);
    }
}

#[cfg(test)]
mod tests {
    use skep_api::resource::KindName;

    use super::*;
    use crate::validate::testing::resource;

    #[test]
    fn a_secret_takes_the_place_of_a_variable_of_the_same_name_in_the_pod_template() {
        let env = json!([{ "name": "TOKEN", "value": "in the open" }, { "name": "OTHER", "value": "o" }]);
        let spec = json!({
            "image": "i",
            "secrets": [{ "name": "s", "key": "token", "targetEnvName": "TOKEN" }],
            "podTemplateSpec": { "spec": { "containers": [{ "name": "mcp", "env": env }] } },
        });
        let me = resource(KindName::MCPServer, "s", &spec);
        let Resource::MCPServer(object) = &me else { unreachable!("it was made one") };
        let wanted = json!([
            { "name": "OTHER", "value": "o" },
            { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "s", "key": "token" } } },
        ]);
        assert_eq!(backend_patch(&me, object)["spec"]["containers"][0]["env"], wanted);
    }
}
