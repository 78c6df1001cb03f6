//! What is wrong with a virtual server's spec beyond what a schema can say: all of it at once, each with its place.

use std::collections::BTreeSet;

use skep_api::kinds::{BackendAuthType, IncomingAuthType, VirtualMCPServerSpec};
use skep_api::reference::{NameRef, RequiredNameRef};
use skep_api::virtual_config::{
    Aggregation, BackendOrigin, CodeMode, ConflictResolution, EmbeddingProvider, FailureHandling, Operational,
    Optimizer, ToolVisibility, VirtualConfig,
};
use skep_bounds::BACKENDS;
use skep_runconfig::GoDuration;

use crate::composite;
use crate::error::PlanError;
use crate::rate_limits;
use crate::text::{Name, check_passthrough_header};
use crate::validate::Problems;

/// Refuses more entries than are checked: there is a condition for each backend, and a document of many tools takes hundreds of times
/// their size.
pub(super) fn count(spec: &VirtualMCPServerSpec) -> Result<(), PlanError> {
    let backends = spec.outgoing_auth.as_ref().map_or(0, |outgoing| outgoing.backends.len());
    if backends > BACKENDS {
        let problem = format_args!("there are {backends} entries; write at most {BACKENDS}");
        return Err(PlanError::field("spec.outgoingAuth.backends", problem));
    }
    let Some(config) = &spec.config else { return Ok(()) };
    let steps = config.composite_tools.iter().map(|tool| tool.steps.len()).sum();
    composite::check_count("spec.config.compositeTools", config.composite_tools.len(), steps)?;
    composite::check_count("spec.config.compositeToolRefs", config.composite_tool_refs.len(), 0)
}

/// Validates a spec.
pub(super) fn problems(spec: &VirtualMCPServerSpec) -> Problems {
    let mut problems = Problems::default();
    let RequiredNameRef { name } = &spec.group_ref;
    problems.filled("spec.groupRef.name", name, "name the MCPGroup whose members are served");
    if let Some(NameRef { name }) = &spec.embedding_server_ref {
        problems.filled("spec.embeddingServerRef.name", name, "name an EmbeddingServer");
    }
    for header in &spec.passthrough_headers {
        problems.check("spec.passthroughHeaders", check_passthrough_header(header));
    }
    let incoming = &spec.incoming_auth;
    let named = incoming.method == IncomingAuthType::Anonymous || incoming.oidc_config_ref.is_some();
    problems.unless(named, "spec.incomingAuth.oidcConfigRef", "it is missing; type oidc needs it");
    let one = incoming.authz_config.is_none() || incoming.authz_config_ref.is_none();
    problems.unless(one, "spec.incomingAuth", "authzConfig and authzConfigRef exclude each other; keep one of them");
    outgoing(&mut problems, spec);
    if let Some(config) = &spec.config {
        problems.under("spec.config.", of_config(config));
    }
    let optimizer = spec.config.as_ref().and_then(|config| config.optimizer.as_ref());
    if let (Some(optimizer), None) = (optimizer, &spec.embedding_server_ref) {
        let service = optimizer.embedding_service.as_deref().unwrap_or_default();
        let problem = "it is missing; set spec.embeddingServerRef, or write the URL of an embedding service";
        problems.unless(!service.is_empty(), "spec.config.optimizer.embeddingService", problem);
    }
    problems
}

fn outgoing(problems: &mut Problems, spec: &VirtualMCPServerSpec) {
    let Some(outgoing) = &spec.outgoing_auth else { return };
    let default = outgoing.default.iter().map(|auth| ("spec.outgoingAuth.default".to_owned(), auth));
    let backends = outgoing.backends.iter().map(|(name, auth)| (format!("spec.outgoingAuth.backends[{name}]"), auth));
    for (place, auth) in default.chain(backends) {
        let name = auth.external_auth_config_ref.as_ref().map(|reference| reference.name.as_str()).unwrap_or_default();
        match auth.method {
            BackendAuthType::ExternalAuthConfigRef => {
                problems.filled(
                    format_args!("{place}.externalAuthConfigRef.name"),
                    name,
                    "name an MCPExternalAuthConfig",
                );
            }
            BackendAuthType::Discovered => {
                let problem = "it says nothing with type discovered; remove it, or change type";
                problems.unless(
                    auth.external_auth_config_ref.is_none(),
                    format_args!("{place}.externalAuthConfigRef"),
                    problem,
                );
            }
        }
    }
    for name in outgoing.backends.keys() {
        problems.check("spec.outgoingAuth.backends", Name::subdomain(name).map(drop));
    }
}

/// Places are relative to `spec.config`.
fn of_config(config: &VirtualConfig) -> Problems {
    let mut problems = Problems::default();
    for header in &config.passthrough_headers {
        problems.check("passthroughHeaders", check_passthrough_header(header));
    }
    backends(&mut problems, config);
    if let Some(settings) = &config.aggregation {
        aggregation(&mut problems, settings);
    }
    let mut names = BTreeSet::new();
    for (index, tool) in config.composite_tools.iter().enumerate() {
        problems.under(format_args!("compositeTools[{index}]."), composite::problems_of(tool));
        let problem = format_args!("`{}` is an earlier tool's too; give each its own", tool.name);
        problems.unless(names.insert(&tool.name), format_args!("compositeTools[{index}].name"), problem);
    }
    if let Some(settings) = &config.operational {
        operational(&mut problems, settings);
    }
    if let Some(settings) = &config.optimizer {
        optimizer(&mut problems, settings);
    }
    if let Some(CodeMode { tool_call_timeout, .. }) = &config.code_mode {
        problems.some_time("codeMode.toolCallTimeout", Some(tool_call_timeout));
    }
    // They would be replaced by those of the reference, and not be in force.
    problems.unless(config.webhooks.is_none(), "webhooks", "name an MCPWebhookConfig in spec.webhookConfigRef instead");
    if let Some(limits) = &config.rate_limiting {
        rate_limits::add_problems(&mut problems, limits);
    }
    problems
}

fn backends(problems: &mut Problems, config: &VirtualConfig) {
    let mut names = BTreeSet::new();
    for (index, backend) in config.backends.iter().enumerate() {
        let place = format!("backends[{index}]");
        problems.filled(format_args!("{place}.name"), &backend.name, "give the server a name");
        let problem = format_args!("`{}` is an earlier server's too; give each its own", backend.name);
        problems.unless(names.insert(&backend.name), format_args!("{place}.name"), problem);
        let bundle = backend.ca_bundle_path.is_none() || backend.origin == Some(BackendOrigin::Entry);
        problems.unless(
            bundle,
            format_args!("{place}.caBundlePath"),
            "it goes with type entry only; set that, or remove it",
        );
    }
}

fn aggregation(problems: &mut Problems, settings: &Aggregation) {
    let order = settings.conflict_resolution_config.as_ref().map(|config| config.priority_order.as_slice());
    let order = order.unwrap_or_default();
    match settings.conflict_resolution {
        ConflictResolution::Priority => {
            let place = "aggregation.conflictResolutionConfig.priorityOrder";
            problems.unless(!order.is_empty(), place, "it is empty; name the servers, the most important one first");
        }
        ConflictResolution::Prefix | ConflictResolution::PrefixOnConflict => {
            let format = settings.conflict_resolution_config.as_ref().map(|config| config.prefix_format.as_str());
            let place = "aggregation.conflictResolutionConfig.prefixFormat";
            problems.filled(
                place,
                format.unwrap_or("{workload}_"),
                "write what stands in front of a name, such as `{workload}_`",
            );
        }
        ConflictResolution::Manual => {}
    }
    let mut workloads = BTreeSet::new();
    for (index, tools) in settings.tools.iter().enumerate() {
        let place = format!("aggregation.tools[{index}]");
        problems.filled(format_args!("{place}.workload"), &tools.workload, "name a server");
        let problem = format_args!("`{}` has an earlier entry too; put them together", tools.workload);
        problems.unless(workloads.insert(&tools.workload), format_args!("{place}.workload"), problem);
        if let Some(NameRef { name }) = &tools.tool_config_ref {
            problems.filled(format_args!("{place}.toolConfigRef.name"), name, "name an MCPToolConfig");
        }
        for (tool, seen) in &tools.overrides {
            let says = seen.name.is_some() || seen.description.is_some() || seen.annotations.is_some();
            let place = format_args!("{place}.overrides[{tool}]");
            problems.unless(says, place, "it changes nothing; give a name or a description, or remove it");
        }
    }
    if settings.default_tool_visibility == Some(ToolVisibility::Deny)
        && settings.conflict_resolution == ConflictResolution::Priority
    {
        for name in order.iter().filter(|name| !workloads.contains(name)) {
            let problem =
                format_args!("no tool of `{name}` would be seen; add an entry for it, or take it out of priorityOrder");
            problems.add("aggregation.tools", problem);
        }
    }
}

fn operational(problems: &mut Problems, settings: &Operational) {
    if let Some(timeouts) = &settings.timeouts {
        problems.some_time("operational.timeouts.default", Some(&timeouts.default));
        for (name, text) in &timeouts.per_workload {
            problems.some_time(format_args!("operational.timeouts.perWorkload[{name}]"), Some(text));
        }
    }
    if let Some(handling) = &settings.failure_handling {
        failure_handling(problems, handling);
    }
}

fn failure_handling(problems: &mut Problems, handling: &FailureHandling) {
    let place = "operational.failureHandling";
    for (field, text) in [
        ("healthCheckInterval", &handling.health_check_interval),
        ("healthCheckTimeout", &handling.health_check_timeout),
        ("statusReportingInterval", &handling.status_reporting_interval),
    ] {
        problems.some_time(format_args!("{place}.{field}"), Some(text));
    }
    let both =
        (handling.health_check_timeout.parse::<GoDuration>(), handling.health_check_interval.parse::<GoDuration>());
    if let (Ok(timeout), Ok(interval)) = both {
        let problem = format_args!("`{timeout}` must be shorter than healthCheckInterval, `{interval}`");
        problems.unless(timeout < interval, format_args!("{place}.healthCheckTimeout"), problem);
    }
    let threshold = handling.unhealthy_threshold;
    problems.unless(
        threshold > 0,
        format_args!("{place}.unhealthyThreshold"),
        format_args!("`{threshold}` is too few; write 1 or more"),
    );
    if let Some(breaker) = &handling.circuit_breaker {
        let (threshold, place) = (breaker.failure_threshold, format!("{place}.circuitBreaker"));
        problems.unless(
            threshold >= 1,
            format_args!("{place}.failureThreshold"),
            format_args!("`{threshold}` is too few; write 1 or more"),
        );
        match breaker.timeout.parse::<GoDuration>() {
            Err(problem) => problems.add(format_args!("{place}.timeout"), problem),
            Ok(timeout) => {
                let problem = format_args!("`{timeout}` is too short; write `1s` or more");
                problems.unless(timeout >= GoDuration::from_seconds(1), format_args!("{place}.timeout"), problem);
            }
        }
    }
}

fn optimizer(problems: &mut Problems, settings: &Optimizer) {
    problems.some_time("optimizer.embeddingServiceTimeout", Some(&settings.embedding_service_timeout));
    if settings.embedding_provider == EmbeddingProvider::OpenAi {
        let model = settings.embedding_model.as_deref().unwrap_or_default();
        problems.filled("optimizer.embeddingModel", model, "name the model to ask for: provider openai needs it");
    }
    for (field, text, most) in [
        ("hybridSearchSemanticRatio", &settings.hybrid_search_semantic_ratio, 1.0),
        ("semanticDistanceThreshold", &settings.semantic_distance_threshold, 2.0),
    ] {
        let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else { continue };
        let within = text.parse::<f64>().is_ok_and(|number| (0.0..=most).contains(&number));
        problems.unless(
            within,
            format_args!("optimizer.{field}"),
            format_args!("`{text}` is out of bounds; choose from 0 to {most}"),
        );
    }
}
