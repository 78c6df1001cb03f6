//! What does not fit together in a configuration. The messages are those of the original, which scripts may read.

use std::collections::BTreeSet;

use skep_api::virtual_config::{Aggregation, ConflictResolution, ToolVisibility, VirtualConfig};

use super::duration;
use crate::text::{check_passthrough_header, is_absolute};
use crate::validate::webhook_problems;

/// Everything that is wrong with a configuration; nothing for one that can be served.
pub(super) fn problems(config: &VirtualConfig) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |is_right: bool, problem: &str| {
        if !is_right {
            problems.push(problem.to_owned());
        }
    };
    let is_filled = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    check(is_filled(&config.name), "name is required");
    check(is_filled(&config.group_ref), "group reference is required");
    problems.extend(incoming(config));
    match &config.outgoing_auth {
        None => problems.push("outgoingAuth is required".to_owned()),
        Some(auth) if !matches!(auth.source.as_str(), "inline" | "discovered") => {
            problems.push("outgoingAuth.source must be one of: inline, discovered".to_owned());
        }
        Some(_) => {}
    }
    match &config.aggregation {
        None => problems.push("aggregation is required".to_owned()),
        Some(settings) => aggregation(settings, &mut problems),
    }
    backends(config, &mut problems);
    let mut names = BTreeSet::new();
    for (index, tool) in config.composite_tools.iter().enumerate() {
        let wrong = crate::composite::problems(tool).into_iter();
        problems.extend(wrong.map(|problem| format!("compositeTools[{index}]: {problem}")));
        if !names.insert(&tool.name) {
            problems.push(format!("compositeTools[{index}].name: `{}` is another composite tool's too", tool.name));
        }
    }
    operational(config, &mut problems);
    headers(config, &mut problems);
    problems.extend(config.optimizer.iter().flat_map(super::optimizer::problems));
    problems.extend(config.webhooks.iter().flat_map(|webhooks| webhook_problems(webhooks).list()));
    problems
}

fn incoming(config: &VirtualConfig) -> Vec<String> {
    let Some(auth) = &config.incoming_auth else { return vec!["incomingAuth is required".to_owned()] };
    let mut problems = Vec::new();
    if !matches!(auth.method.as_str(), "oidc" | "local" | "anonymous") {
        problems.push("incomingAuth.type must be one of: oidc, local, anonymous".to_owned());
    }
    if auth.method == "oidc" {
        let oidc = auth.oidc.clone().unwrap_or_default();
        for (text, name) in [(&oidc.issuer, "issuer"), (&oidc.audience, "audience")] {
            if text.is_empty() {
                problems.push(format!("incomingAuth.oidc.{name} is required"));
            }
        }
        if oidc.ca_bundle_path.as_ref().is_some_and(|path| !is_absolute(path)) {
            problems.push("incomingAuth.oidc.caBundlePath must be an absolute path".to_owned());
        }
    }
    match auth.authz.as_ref().map(|authz| (authz.engine.as_str(), authz.policies.is_empty())) {
        None | Some(("none", _) | ("cedar", false)) => {}
        Some(("cedar", true)) => problems.push("policies are required when type is 'cedar'".to_owned()),
        Some(_) => problems.push("incomingAuth.authz: type must be one of: cedar, none".to_owned()),
    }
    problems
}

fn aggregation(settings: &Aggregation, problems: &mut Vec<String>) {
    let config = settings.conflict_resolution_config.as_ref();
    let order = config.map(|config| config.priority_order.as_slice()).unwrap_or_default();
    match settings.conflict_resolution {
        ConflictResolution::Prefix | ConflictResolution::PrefixOnConflict
            if config.is_some_and(|config| config.prefix_format.is_empty()) =>
        {
            problems.push("prefixFormat is required for prefix strategy".to_owned());
        }
        ConflictResolution::Priority if order.is_empty() => {
            problems.push("priorityOrder is required for priority strategy".to_owned());
        }
        _ => {}
    }
    let mut workloads = BTreeSet::new();
    for (index, tools) in settings.tools.iter().enumerate() {
        if tools.workload.is_empty() {
            problems.push(format!("tools[{index}].workload is required"));
        } else if !workloads.insert(&tools.workload) {
            problems.push(format!("duplicate workload configuration: {}", tools.workload));
        }
        for (tool, seen) in &tools.overrides {
            if seen.name.is_none() && seen.description.is_none() && seen.annotations.is_none() {
                let problem = "at least one of name or description must be specified";
                problems.push(format!("tools[{index}].overrides.{tool}: {problem}"));
            }
        }
    }
    if settings.default_tool_visibility == Some(ToolVisibility::Deny) {
        for name in order.iter().filter(|name| !workloads.contains(name)) {
            problems.push(format!("priorityOrder names `{name}`, none of whose tools would be seen; add it to tools"));
        }
    }
}

fn backends(config: &VirtualConfig, problems: &mut Vec<String>) {
    let mut names = BTreeSet::new();
    for (index, backend) in config.backends.iter().enumerate() {
        if backend.name.is_empty() {
            problems.push(format!("backends[{index}].name is required"));
        } else if !names.insert(&backend.name) {
            problems.push(format!("backends[{index}].name: `{}` is another backend's too", backend.name));
        }
        if !backend.url.starts_with("http://") && !backend.url.starts_with("https://") {
            problems.push(format!("backends[{index}].url must begin with http:// or https://"));
        }
        if backend.ca_bundle_path.as_ref().is_some_and(|path| !is_absolute(path)) {
            problems.push(format!("backends[{index}].caBundlePath must be an absolute path"));
        }
    }
}

fn operational(config: &VirtualConfig, problems: &mut Vec<String>) {
    let Some(operational) = &config.operational else { return };
    if let Some(timeouts) = &operational.timeouts {
        let all = [("default", &timeouts.default)].into_iter();
        let all = all.chain(timeouts.per_workload.iter().map(|(name, text)| (name.as_str(), text)));
        for (name, _) in all.filter(|(_, text)| duration(text).is_none()) {
            problems.push(format!("operational.timeouts: `{name}` must be a time such as 30s, and more than 0"));
        }
    }
    let Some(handling) = &operational.failure_handling else { return };
    let (interval, timeout) = (duration(&handling.health_check_interval), duration(&handling.health_check_timeout));
    if interval.is_none() {
        problems.push("healthCheckInterval must be a time such as 30s, and more than 0".to_owned());
    }
    if timeout.is_none() || timeout >= interval {
        problems.push("healthCheckTimeout must be less than healthCheckInterval".to_owned());
    }
    if handling.unhealthy_threshold <= 0 {
        problems.push("unhealthyThreshold must be greater than 0".to_owned());
    }
    if let Some(breaker) = handling.circuit_breaker.as_ref().filter(|breaker| breaker.enabled) {
        if breaker.failure_threshold < 1 {
            problems.push("circuitBreaker.failureThreshold must be at least 1".to_owned());
        }
        if duration(&breaker.timeout).is_none_or(|timeout| timeout.as_secs() < 1) {
            problems.push("circuitBreaker.timeout must be at least 1s".to_owned());
        }
    }
}

fn headers(config: &VirtualConfig, problems: &mut Vec<String>) {
    for name in &config.passthrough_headers {
        if check_passthrough_header(name).is_err() {
            problems.push(format!("passthroughHeaders: `{name}` cannot be passed through; remove it"));
        }
    }
}
