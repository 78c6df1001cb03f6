//! The objects of a remote proxy, finished.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skep_api::kinds::MCPRemoteProxy;
use skep_api::resource::Resource;
use skep_api::workload::{MetadataOverrides, RemoteTransport};
use skep_runconfig::run_config::{HeaderForward, ScalingConfig};
use skep_runconfig::{Json, RunConfig};

use super::{Inputs, base_url};
use crate::account::account_with;
use crate::child::{Child, ChildKind};
use crate::inputs::{digest_of_inputs, redis_env, telemetry_env};
use crate::overrides::{DroppedOverrides, PROXY_DEPLOYMENT, PROXY_PODS, PROXY_SERVICE};
use crate::pod::{
    self, CHECKSUM, Env, INPUTS, TEMPLATE_HASH, Template, container_security, pod_security, probe, pull_secrets,
    workload_labels,
};
use crate::proxy::{
    Volumes, check_override_env, external_auth_env, inline_authz, oidc_env, override_env, run_config_map, service,
    with_overrides,
};
use crate::refusal::Refusal;
use crate::text::sanitise;
use crate::world::World;
use crate::{canonical, grants, names, run_config, support};

/// The container of the proxy; a user's pod template reaches it by this name.
const CONTAINER: &str = "toolhive";

/// Builds everything; fails only with what is wrong in the spec.
pub(super) fn build(
    me: &Resource,
    object: &MCPRemoteProxy,
    inputs: &Inputs<'_>,
    world: &World<'_>,
    dropped: &mut DroppedOverrides,
) -> Result<Vec<Child>, Refusal> {
    let (name, spec) = (me.name(), &object.spec);
    check_override_env(spec.resource_overrides.as_ref())?;
    let deployment = spec.resource_overrides.as_ref().and_then(|overrides| overrides.proxy_deployment.as_ref());
    let pull =
        pull_secrets(deployment.map(|one| one.image_pull_secrets.as_slice()).unwrap_or_default(), world.settings);
    let account = spec.service_account.clone().filter(|account| !account.is_empty());
    let mut children = Vec::new();
    if account.is_none() {
        children.extend(account_with(me, &names::remote_proxy_runner(name), &grants::REMOTE_PROXY, &pull));
    }
    children.extend(inline_authz(me, spec.authz_config.as_ref()));
    let config = document(me, object, inputs, world)?;
    support::check(&config, world.settings)?;
    let (map, checksum) = run_config_map(me, "mcp-remote-proxy", config);
    children.push(map);
    let service_overrides = spec.resource_overrides.as_ref().and_then(|overrides| overrides.proxy_service.as_ref());
    let service_name = names::remote_proxy_service(name);
    let service = service(me, &service_name, spec.proxy_port, spec.session_affinity, service_overrides);
    dropped.compare(PROXY_SERVICE, service_overrides, service.metadata());
    children.push(service);

    let account = account.unwrap_or_else(|| names::remote_proxy_runner(name));
    let template = template(me, object, inputs, world, &account, &pull, &checksum, dropped)?;
    let labels = workload_labels(me);
    let mut body = json!({ "selector": { "matchLabels": labels }, "template": template.into_value() });
    if let (Some(replicas), Some(body)) = (spec.replicas, body.as_object_mut()) {
        body.insert("replicas".into(), json!(replicas));
    }
    let metadata =
        deployment.map(|one| MetadataOverrides { labels: one.labels.clone(), annotations: one.annotations.clone() });
    let (labels, mut annotations) = with_overrides(&labels, metadata.as_ref());
    if let Some(template) = &spec.pod_template_spec {
        annotations.insert(TEMPLATE_HASH.to_owned(), json!(canonical::value_hash(&Value::Object(template.0.clone()))));
    }
    let (labels, annotations) = (Value::Object(labels), Value::Object(annotations));
    let child = Child::new(me, ChildKind::Deployment, name, labels, annotations, json!({ "spec": body }));
    dropped.compare(PROXY_DEPLOYMENT, metadata.as_ref(), child.metadata());
    children.push(child);
    Ok(children)
}

fn document(
    me: &Resource,
    object: &MCPRemoteProxy,
    inputs: &Inputs<'_>,
    world: &World<'_>,
) -> Result<RunConfig, String> {
    let spec = &object.spec;
    let transport = match spec.transport {
        RemoteTransport::Sse => "sse",
        RemoteTransport::StreamableHttp => "streamable-http",
    };
    let mut config = run_config::base(me.name(), transport, transport, spec.proxy_port, world.settings);
    config.permission_profile = Some(run_config::open_profile());
    config.remote_url.clone_from(&spec.remote_url);
    config.allow_private_endpoint = spec.allow_private_endpoint;
    config.trust_proxy_headers = spec.trust_proxy_headers;
    config.endpoint_prefix = spec.endpoint_prefix.clone().unwrap_or_default();
    if let (Some(reference), Some(oidc)) = (&spec.oidc_config_ref, inputs.oidc) {
        run_config::oidc(&mut config, reference, oidc, &base_url(me, object));
    }
    if let Some(tools) = inputs.tools {
        run_config::tools(&mut config, tools);
    }
    if let (Some(reference), Some(telemetry)) = (&spec.telemetry_config_ref, inputs.telemetry) {
        run_config::telemetry(&mut config, reference, telemetry, me.name());
    }
    if let Some(external) = inputs.external_auth {
        run_config::external_auth(&mut config, external);
    }
    config.authz_config = match (inputs.authz, &spec.authz_config) {
        (Some(shared), _) => run_config::shared_authz(shared),
        (None, Some(authz)) => crate::authz::in_place(authz, me.namespace(), world)?,
        (None, None) => Json::Null,
    };
    if spec.audit.as_ref().is_some_and(|audit| audit.enabled) {
        config.audit_config = Some(run_config::audit());
    }
    if let Some(headers) = &spec.header_forward {
        let from_secret = headers.add_headers_from_secret.iter();
        config.header_forward = Some(HeaderForward {
            add_plaintext_headers: headers.add_plaintext_headers.clone(),
            add_headers_from_secret: from_secret
                .map(|one| (one.header_name.clone(), header_identifier(me, &one.header_name)))
                .collect(),
            ..HeaderForward::default()
        });
    }
    let session_redis = run_config::session_redis(spec.session_storage.as_ref(), world.settings);
    if session_redis.is_some() {
        config.scaling_config = Some(ScalingConfig { session_redis, ..ScalingConfig::default() });
    }
    if let Some(server) = inputs.auth_server {
        let oidc = config.oidc_config.as_mut();
        let oidc = oidc.ok_or(
            "an embedded authorization server needs oidcConfigRef: set it, with audience equal to resourceUrl",
        )?;
        config.embedded_auth_server_config =
            Some(crate::auth_server::document(server, oidc, me.namespace(), me.name())?);
    }
    Ok(config)
}

#[expect(clippy::too_many_arguments, reason = "everything that a pod is made of, in one place")]
fn template(
    me: &Resource,
    object: &MCPRemoteProxy,
    inputs: &Inputs<'_>,
    world: &World<'_>,
    account: &str,
    pull: &[Value],
    checksum: &str,
    dropped: &mut DroppedOverrides,
) -> Result<pod::Stamped, String> {
    let (spec, settings) = (&object.spec, world.settings);
    let mut volumes = Volumes::default();
    volumes.run_config(me).authz(me, spec.authz_config.as_ref());
    volumes.telemetry_ca(inputs.telemetry)?.oidc_ca(inputs.oidc)?.auth_server(inputs.auth_server);
    let env = environment(me, object, inputs, world);
    dropped.extend(env.dropped());
    let container = json!({
        "name": CONTAINER,
        "image": settings.runner_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["skep", "proxy"],
        "args": ["run", "--foreground=true", "placeholder-for-remote-proxy"],
        "ports": [{ "name": "http", "containerPort": spec.proxy_port, "protocol": "TCP" }],
        "env": env.list(),
        "resources": pod::resources(spec.resources.as_ref())?,
        "startupProbe": probe("/health", json!("http"), 0, 5, 3, 18),
        "livenessProbe": probe("/health", json!("http"), 30, 10, 5, 3),
        "readinessProbe": probe("/health", json!("http"), 15, 5, 3, 3),
        "securityContext": container_security(settings),
        "volumeMounts": volumes.mounts,
    });
    let mut pod = json!({
        "serviceAccountName": account,
        "securityContext": pod_security(settings),
        "containers": [container],
        "volumes": volumes.volumes,
    });
    if let Some(pod) = pod.as_object_mut().filter(|_| !pull.is_empty()) {
        pod.insert("imagePullSecrets".into(), json!(pull));
    }
    let labels: BTreeMap<String, String> = workload_labels(me);
    let overrides = spec.resource_overrides.as_ref().and_then(|overrides| overrides.proxy_deployment.as_ref());
    let overrides = overrides.and_then(|deployment| deployment.pod_template_metadata_overrides.as_ref());
    let patch = spec.pod_template_spec.as_ref().map(|template| Value::Object(template.0.clone()));
    let overridden = Template::new(&labels, pod)
        .reserving(CONTAINER, &env)
        .overridden(PROXY_PODS, overrides, patch.as_ref())
        .map_err(|error| format!("spec.podTemplateSpec: {error}"))?;
    let mut stamps = vec![(CHECKSUM, checksum.to_owned())];
    stamps.extend(digest_of_inputs(me, world).map(|digest| (INPUTS, digest)));
    Ok(overridden.stamp(&labels, &stamps, dropped))
}

fn environment(me: &Resource, object: &MCPRemoteProxy, inputs: &Inputs<'_>, world: &World<'_>) -> Env {
    let spec = &object.spec;
    let mut env = Env::new();
    oidc_env(&mut env, inputs.oidc);
    external_auth_env(&mut env, inputs.external_auth);
    let headers: Vec<_> = spec.header_forward.iter().flat_map(|headers| &headers.add_headers_from_secret).collect();
    if !headers.is_empty() {
        env.value("TOOLHIVE_SECRETS_PROVIDER", "environment");
    }
    for header in headers {
        let variable = format!("TOOLHIVE_SECRET_{}", header_identifier(me, &header.header_name));
        env.secret(&variable, &header.value_secret_ref.name, &header.value_secret_ref.key);
    }
    if let (Some(reference), Some(telemetry)) = (&spec.telemetry_config_ref, inputs.telemetry) {
        telemetry_env(&mut env, run_config::service_name(reference, me.name()), me.namespace(), telemetry);
    }
    override_env(&mut env, spec.resource_overrides.as_ref());
    redis_env(&mut env, spec.session_storage.as_ref(), world.settings);
    if let Some(server) = inputs.auth_server {
        crate::auth_server::environment(&mut env, server);
    }
    env.required();
    env
}

/// The name under which the proxy finds the value of a header.
fn header_identifier(me: &Resource, header: &str) -> String {
    sanitise(&format!("HEADER_FORWARD_{header}_{}", me.name()))
}
