//! The RunConfig of a server.

use skep_api::kinds::{MCPServer, PermissionProfileSource, Transport};
use skep_api::resource::Resource;
use skep_runconfig::run_config::{
    InboundPermissions, NetworkPermissions, OutboundPermissions, PermissionProfile, ScalingConfig,
};
use skep_runconfig::{Json, RunConfig};

use super::{Inputs, base_url, transport};
use crate::run_config;
use crate::webhook::Webhooks;
use crate::world::World;

/// The port of a server that names none.
const DEFAULT_TARGET_PORT: i32 = 8080;

/// Builds the document; the generation and the chain of middleware are put on by the caller, last.
pub(super) fn build(
    me: &Resource,
    object: &MCPServer,
    inputs: &Inputs<'_>,
    webhooks: &Webhooks,
    world: &World<'_>,
) -> Result<RunConfig, String> {
    let spec = &object.spec;
    let transport = transport(spec.transport);
    let mode = match spec.proxy_mode {
        skep_api::kinds::ProxyMode::Sse => "sse",
        skep_api::kinds::ProxyMode::StreamableHttp => "streamable-http",
    };
    let mut config = run_config::base(me.name(), transport, mode, spec.proxy_port, world.settings);
    config.image.clone_from(&spec.image);
    config.cmd_args.clone_from(&spec.args);
    let target = spec.mcp_port.unwrap_or(DEFAULT_TARGET_PORT);
    config.target_port = target.into();
    environment(&mut config, object, target)?;
    config.volumes = spec
        .volumes
        .iter()
        .map(|volume| {
            let mode = if volume.read_only { ":ro" } else { "" };
            format!("{}:{}{mode}", volume.host_path, volume.mount_path)
        })
        .collect();
    permissions(&mut config, object, world)?;
    if let Some(profile) = &mut config.permission_profile {
        for volume in &spec.volumes {
            let list = if volume.read_only { &mut profile.read } else { &mut profile.write };
            list.push(format!("{}:{}", volume.host_path, volume.mount_path));
        }
    }
    config.trust_proxy_headers = spec.trust_proxy_headers;
    config.endpoint_prefix = spec.endpoint_prefix.clone().unwrap_or_default();
    if let (Some(reference), Some(oidc)) = (&spec.oidc_config_ref, inputs.oidc) {
        run_config::oidc(&mut config, reference, oidc, &base_url(me, spec));
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
    config.authz_config = authz(me, object, inputs, world)?;
    config.mutating_webhooks.clone_from(&webhooks.mutating);
    config.validating_webhooks.clone_from(&webhooks.validating);
    if spec.audit.as_ref().is_some_and(|audit| audit.enabled) {
        config.audit_config = Some(run_config::audit());
    }
    if let Some(limits) = &spec.rate_limiting {
        run_config::rate_limits(&mut config, limits, me.namespace());
    }
    let session_redis = run_config::session_redis(spec.session_storage.as_ref(), world.settings);
    if spec.backend_replicas.is_some() || session_redis.is_some() {
        let backend_replicas = spec.backend_replicas;
        config.scaling_config = Some(ScalingConfig { backend_replicas, session_redis, ..ScalingConfig::default() });
    }
    if let Some(server) = inputs.auth_server {
        let oidc = config.oidc_config.as_mut().ok_or(
            "an embedded authorization server needs oidcConfigRef: set it, with audience equal to resourceUrl",
        )?;
        config.embedded_auth_server_config =
            Some(crate::auth_server::document(server, oidc, me.namespace(), me.name())?);
    }
    Ok(config)
}

fn environment(config: &mut RunConfig, object: &MCPServer, target: i32) -> Result<(), String> {
    for variable in &object.spec.env {
        if variable.name.is_empty() || variable.name.contains(['=', '\r', '\n', '\0']) {
            return Err(format!(
                "spec.env: `{}` is not a name of a variable; use letters, digits and `_`",
                variable.name
            ));
        }
        // What the proxy and its server agree on cannot be changed by hand.
        config.env_vars.entry(variable.name.clone()).or_insert_with(|| variable.value.clone());
    }
    if object.spec.transport != Transport::Stdio {
        for name in ["MCP_PORT", "FASTMCP_PORT"] {
            config.env_vars.insert(name.to_owned(), target.to_string());
        }
    }
    Ok(())
}

fn permissions(config: &mut RunConfig, object: &MCPServer, world: &World<'_>) -> Result<(), String> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let Some(profile) = &object.spec.permission_profile else {
        config.permission_profile = Some(run_config::open_profile());
        return Ok(());
    };
    let field = "spec.permissionProfile";
    config.permission_profile = Some(match (profile.source, profile.name.as_str()) {
        (PermissionProfileSource::Builtin, "network") => {
            config.permission_profile_name_or_path = "network".into();
            run_config::open_profile()
        }
        (PermissionProfileSource::Builtin, "none") => {
            config.permission_profile_name_or_path = "none".into();
            PermissionProfile {
                name: "none".into(),
                network: Some(NetworkPermissions {
                    outbound: Some(OutboundPermissions::default()),
                    inbound: Some(InboundPermissions::default()),
                    ..NetworkPermissions::default()
                }),
                ..PermissionProfile::default()
            }
        }
        (PermissionProfileSource::Builtin, other) => {
            return Err(format!(
                "{field}.name: `{other}` is not a built-in profile; use none or network, or type configmap"
            ));
        }
        (PermissionProfileSource::ConfigMap, name) => {
            let key = profile.key.as_deref().filter(|key| !key.is_empty());
            let key = key.ok_or_else(|| {
                format!("{field}.key is missing: name the key of ConfigMap `{name}` that holds the profile")
            })?;
            let data = world
                .config_map(namespace, name)
                .ok_or_else(|| format!("{field}: ConfigMap `{name}` not found; create it"))?;
            let text = data.get(key).ok_or_else(|| format!("{field}: ConfigMap `{name}` has no key `{key}`"))?;
            config.permission_profile_name_or_path = format!("/etc/toolhive/profiles/{key}");
            skep_bounds::json(text).map_err(|error| format!("{field}: key `{key}` of ConfigMap `{name}`: {error}"))?;
            let json = Json::from_slice(text.as_bytes())
                .map_err(|error| format!("{field}: key `{key}` of ConfigMap `{name}`: {error}"))?;
            skep_runconfig::Field::read(json)
                .map_err(|error| format!("{field}: key `{key}` of ConfigMap `{name}`: {error}"))?
        }
    });
    Ok(())
}

/// What callers may do: written in place, in a ConfigMap, or shared.
fn authz(me: &Resource, object: &MCPServer, inputs: &Inputs<'_>, world: &World<'_>) -> Result<Json, String> {
    if let Some(shared) = inputs.authz {
        return Ok(run_config::shared_authz(shared));
    }
    let Some(authz) = &object.spec.authz_config else { return Ok(Json::Null) };
    crate::authz::in_place(authz, me.namespace(), world)
}
