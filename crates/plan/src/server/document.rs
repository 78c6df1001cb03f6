//! The RunConfig of a server: the members that only a server has.

use std::fmt::Display;

use skep_api::kinds::{MCPServer, PermissionProfileSource, ProxyMode, Transport};
use skep_bounds::CONFIG_MAP_VALUES;
use skep_runconfig::run_config::{InboundPermissions, NetworkPermissions, OutboundPermissions, PermissionProfile};
use skep_runconfig::{Json, Members, RunConfig};

use super::transport;
use crate::error::{MissingKey, PlanError};
use crate::key::ObjectKind;
use crate::proxy::{ProxyContext, add_shared};
use crate::world::{ConfigMapValue, World};
use crate::{rate_limits, run_config};

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
        rate_limits::check(limits)?;
        config.rate_limit_config = Some(rate_limits::document(limits));
        me.namespace().clone_into(&mut config.rate_limit_namespace);
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
            MissingKey::check(field, (ObjectKind::ConfigMap, name, key), namespace, world)
                .map_err(PlanError::MissingKey)?;
            let text = world.config_map(namespace, name).and_then(|data| data.get(key));
            let text = text.and_then(ConfigMapValue::text).unwrap_or_default();
            config.permission_profile_name_or_path = format!("/etc/toolhive/profiles/{key}");
            skep_bounds::json(text).map_err(|error| invalid(&error))?;
            skep_bounds::json_values(text, CONFIG_MAP_VALUES).map_err(|error| invalid(&error))?;
            let json = Json::from_slice(text.as_bytes()).map_err(|error| invalid(&error))?;
            known_members(skep_runconfig::Field::read(json).map_err(|error| invalid(&error))?)
        }
    });
    Ok(())
}

/// A profile without the members that no proxy reads: a user may write any number of them into a ConfigMap.
fn known_members(mut profile: PermissionProfile) -> PermissionProfile {
    profile.other = Members::default();
    if let Some(network) = &mut profile.network {
        network.other = Members::default();
        network.outbound.iter_mut().for_each(|outbound| outbound.other = Members::default());
        network.inbound.iter_mut().for_each(|inbound| inbound.other = Members::default());
    }
    profile
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skep_api::resource::KindName;

    use crate::key::{Key, ObjectKind};
    use crate::plan::{Plan, Verdict, plan};
    use crate::validate::testing::{Surroundings, resource};
    use crate::world::Found;

    fn planned(spec: &Value, text: String) -> Plan {
        let mut surroundings = Surroundings::default();
        let key = Key { kind: ObjectKind::ConfigMap, namespace: "ns".into(), name: "c".into() };
        surroundings.found.insert(key, Found::config_map([("k".to_owned(), text)].into()));
        plan(&resource(KindName::MCPServer, "s", spec), &surroundings.world())
    }

    fn with_profile(text: String) -> Plan {
        let profile = json!({ "type": "configmap", "name": "c", "key": "k" });
        planned(&json!({ "image": "i", "permissionProfile": profile }), text)
    }

    fn refusal(plan: &Plan) -> &str {
        let Verdict::Refuse(why) = &plan.verdict else { panic!("{:?}", plan.verdict) };
        why
    }

    #[test]
    fn a_profile_has_so_many_values() {
        for many in [r#"{"a":0},"#.repeat(12_000), "[],".repeat(20_000), "0,".repeat(20_000)] {
            let plan = with_profile(format!(r#"{{"name":"a","x":[{many}0]}}"#));
            assert!(refusal(&plan).contains("it has more than 20000 values"), "{}", refusal(&plan));
        }
    }

    #[test]
    fn of_a_profile_only_what_a_proxy_reads_is_taken_over() {
        let text = json!({
            "name": "a", "read": ["/r"], "unknown": [1],
            "network": { "unknown": 1, "outbound": { "allow_host": ["h"], "unknown": 1 }, "inbound": { "unknown": 1 } },
        });
        let run_config = with_profile(text.to_string()).proxy.unwrap().run_config.to_json_compact();
        assert!(
            run_config.contains(r#""read":["/r"]"#) && run_config.contains(r#""allow_host":["h"]"#),
            "{run_config}"
        );
        assert!(!run_config.contains("unknown"), "{run_config}");
    }

    #[test]
    fn of_policies_in_a_config_map_only_what_a_proxy_reads_is_taken_over() {
        let spec =
            json!({ "image": "i", "authzConfig": { "type": "configMap", "configMap": { "name": "c", "key": "k" } } });
        let policies =
            json!({ "version": "1.0", "type": "cedarv1", "cedar": { "policies": ["p"] }, "unknown": [1], "pdp": {} });
        let run_config = planned(&spec, policies.to_string()).proxy.unwrap().run_config;
        let expected = json!({ "cedar": { "policies": ["p"] }, "type": "cedarv1", "version": "1.0" });
        assert_eq!(run_config.authz_config.decode::<Value>().unwrap(), expected);
        let many = format!("{{type: cedarv1, cedar: {{policies: [p]}}, x: [{}]}}", "{},".repeat(20_000));
        let plan = planned(&spec, many);
        assert!(refusal(&plan).contains("is too large; split it"), "{}", refusal(&plan));
    }

    #[test]
    fn a_run_config_fits_into_a_config_map() {
        let plan = with_profile(json!({ "name": "a", "read": vec!["x".repeat(99); 10_000] }).to_string());
        assert!(refusal(&plan).contains("RunConfig: it has 1"), "{}", refusal(&plan));
        assert!(plan.children.is_empty());
    }
}
