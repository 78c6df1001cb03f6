//! The RunConfig of a server: the members that only a server has.

use std::fmt::Display;

use skep_api::kinds::{MCPServer, PermissionProfileSource, ProxyMode, Transport};
use skep_runconfig::run_config::{InboundPermissions, NetworkPermissions, OutboundPermissions, PermissionProfile};
use skep_runconfig::{Json, RunConfig};

use super::transport;
use crate::error::{MissingKey, PlanError};
use crate::proxy::{ProxyContext, add_shared};
use crate::run_config;
use crate::world::World;

/// The port of a server that names none.
const DEFAULT_TARGET_PORT: i32 = 8080;

/// Builds the document, but for the generation and the middleware list.
pub(super) fn build(context: &ProxyContext<'_>, object: &MCPServer) -> Result<RunConfig, PlanError> {
    let (me, spec, world) = (context.me, &object.spec, context.world);
    let mode = match spec.proxy_mode {
        ProxyMode::Sse => "sse",
        ProxyMode::StreamableHttp => "streamable-http",
    };
    let mut config = run_config::base(me.name(), transport(spec.transport), mode, spec.proxy_port, world.settings);
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
    add_shared(&mut config, context)?;
    if let Some(limits) = &spec.rate_limiting {
        run_config::rate_limits(&mut config, limits, me.namespace());
    }
    if spec.backend_replicas.is_some() {
        config.scaling_config.get_or_insert_default().backend_replicas = spec.backend_replicas;
    }
    Ok(config)
}

fn environment(config: &mut RunConfig, object: &MCPServer, target: i32) -> Result<(), PlanError> {
    for variable in &object.spec.env {
        if variable.name.is_empty() || variable.name.contains(['=', '\r', '\n', '\0']) {
            let name = &variable.name;
            let problem = format_args!("`{name}` is not a name of a variable; use letters, digits and `_`");
            return Err(PlanError::field("spec.env", problem));
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

fn permissions(config: &mut RunConfig, object: &MCPServer, world: &World<'_>) -> Result<(), PlanError> {
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
            let problem = format_args!("`{other}` is not a built-in profile; use none or network, or type configmap");
            return Err(PlanError::field(format_args!("{field}.name"), problem));
        }
        (PermissionProfileSource::ConfigMap, name) => {
            let key = profile.key.as_deref().filter(|key| !key.is_empty());
            let key = key.ok_or_else(|| {
                let advice = format!("name the key of ConfigMap `{name}` that holds the profile");
                PlanError::InvalidSpec(format!("{field}.key is missing: {advice}"))
            })?;
            let invalid = |problem: &dyn Display| {
                PlanError::field(field, format_args!("key `{key}` of ConfigMap `{name}`: {problem}"))
            };
            MissingKey::in_config_map(field, name, key, namespace, world).map_err(PlanError::MissingKey)?;
            let text = world.config_map(namespace, name).and_then(|data| data.get(key)).map_or("", String::as_str);
            config.permission_profile_name_or_path = format!("/etc/toolhive/profiles/{key}");
            skep_bounds::json(text).map_err(|error| invalid(&error))?;
            let json = Json::from_slice(text.as_bytes()).map_err(|error| invalid(&error))?;
            skep_runconfig::Field::read(json).map_err(|error| invalid(&error))?
        }
    });
    Ok(())
}
