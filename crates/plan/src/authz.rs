//! Authorization that stands in a workload's own spec: policies written in place, or in a ConfigMap.

use std::fmt::Display;

use serde_json::Value;
use skep_api::authz::AuthzConfig;
use skep_api::manifest;
use skep_runconfig::Json;

use crate::error::PlanError;
use crate::run_config::{authz_key, config_map_authz, inline_authz};
use crate::world::{ConfigMapValue, World};

/// The proxy's document, validated by the engine that will read it.
pub(crate) fn in_place(authz: &AuthzConfig, namespace: &str, world: &World<'_>) -> Result<Json, PlanError> {
    if let Some(document) = inline_authz(authz) {
        let cedar: Value = document.get("cedar").and_then(|cedar| cedar.decode().ok()).unwrap_or_default();
        let checked = world.policies.check("cedarv1", &cedar);
        checked.map_err(|problem| PlanError::InvalidPolicies(format!("spec.authzConfig.inline: {problem}")))?;
        return Ok(document);
    }
    let Some(map) = &authz.config_map else {
        let problem = "spec.authzConfig says neither inline nor configMap: set one of them";
        return Err(PlanError::InvalidPolicies(problem.to_owned()));
    };
    let place = format!("spec.authzConfig: key `{}` of ConfigMap `{}`", map.key, map.name);
    let data = world.config_map(namespace, &map.name);
    let data = data.ok_or_else(|| {
        PlanError::MissingPolicyMap(format!("spec.authzConfig: ConfigMap `{}` not found; create it", map.name))
    })?;
    let invalid = |problem: &dyn Display| PlanError::InvalidPolicyMap(format!("{place}: {problem}"));
    let text = data
        .get(&map.key)
        .and_then(ConfigMapValue::text)
        .ok_or_else(|| PlanError::InvalidPolicyMap(format!("{place} is missing")))?;
    let document = manifest::parse_one(text).map_err(|error| invalid(&error))?;
    let engine = document.get("type").and_then(Value::as_str).unwrap_or_default();
    let config = document.get(authz_key(engine)).unwrap_or(&Value::Null);
    world.policies.check(engine, config).map_err(|problem| invalid(&problem))?;
    Ok(config_map_authz(authz, document))
}
