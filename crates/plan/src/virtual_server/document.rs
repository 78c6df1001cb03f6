//! `config.yaml`: what people wrote under `spec.config`, completed with what the references come to.

use std::collections::BTreeMap;

use serde::Serialize;
use skep_api::kinds::{CompositeTool, MCPTelemetryConfigSpec, MCPToolConfigSpec, VirtualMCPServer};
use skep_api::reference::TelemetryConfigRef;
use skep_api::resource::Resource;
use skep_api::virtual_config::{
    Aggregation, CircuitBreaker, ConflictResolutionConfig, EmbeddingProvider, FailureHandling, LogLevel, Operational,
    Optimizer, PartialFailureMode, ResolvedSessionStorage, ResolvedTelemetry, StaticBackend, Timeouts, VirtualConfig,
};
use skep_api::workload::StorageProvider;
use skep_runconfig::{RunConfig, VirtualDocument};

use super::Inputs;
use crate::error::PlanError;
use crate::run_config::{self, normal_duration};
use crate::validate::in_one_line;
use crate::virtual_config::{self, VirtualConfigError};
use crate::world::Settings;

/// The configuration as it is written: as people write it, but for the members that the original writes otherwise.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    config: &'a VirtualConfig,
    operational: WrittenOperational,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenOperational {
    #[serde(skip_serializing_if = "Option::is_none")]
    log_level: Option<LogLevel>,
    timeouts: Timeouts,
    failure_handling: WrittenFailureHandling,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenFailureHandling {
    health_check_interval: String,
    unhealthy_threshold: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    health_check_timeout: Option<String>,
    status_reporting_interval: String,
    partial_failure_mode: PartialFailureMode,
    circuit_breaker: WrittenCircuitBreaker,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenCircuitBreaker {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    enabled: bool,
    failure_threshold: i64,
    timeout: String,
}

/// The text of `config.yaml`; or what is wrong with the spec.
pub(super) fn build(
    me: &Resource,
    object: &VirtualMCPServer,
    inputs: &Inputs<'_>,
    settings: &Settings,
) -> Result<String, PlanError> {
    let spec = &object.spec;
    let mut config = spec.config.clone().unwrap_or_default();
    config.name = Some(me.name().to_owned());
    config.group_ref = Some(spec.group_ref.name.clone());
    config.backends = backends(config.backends, &inputs.backends);
    config.incoming_auth = Some(inputs.incoming.clone());
    config.outgoing_auth = Some(inputs.outgoing.document.clone());
    config.aggregation = Some(aggregation(config.aggregation.take(), &inputs.tools));
    config.composite_tools.extend(inputs.composite_tools.iter().map(|tool| (*tool).clone()));
    config.composite_tools.iter_mut().for_each(normalise);
    // They stand among the tools now.
    config.composite_tool_refs = Vec::new();
    if !spec.passthrough_headers.is_empty() {
        config.passthrough_headers.clone_from(&spec.passthrough_headers);
    }
    config.telemetry = spec
        .telemetry_config_ref
        .as_ref()
        .zip(inputs.telemetry)
        .and_then(|(reference, telemetry)| self::telemetry(reference, telemetry, me.name()));
    config.webhooks = inputs.webhooks.resolved();
    // The section itself turns the log on.
    config.audit = config.audit.filter(|audit| audit.enabled);
    if let Some(audit) = &mut config.audit {
        let named = audit.component.take().filter(|component| !component.is_empty());
        audit.component = Some(named.unwrap_or_else(|| me.name().to_owned()));
    }
    if let Some(url) = &inputs.embedding_service {
        let optimizer = config.optimizer.get_or_insert_with(default_optimizer);
        optimizer.embedding_service = Some(url.clone());
    }
    if let Some(optimizer) = &mut config.optimizer {
        normal(&mut optimizer.embedding_service_timeout);
    }
    if let Some(code) = &mut config.code_mode {
        normal(&mut code.tool_call_timeout);
    }
    if spec.session_storage.is_some() || config.session_storage.is_none() {
        config.session_storage = session_storage(object, settings);
    }
    let operational = operational(config.operational.take());
    let document = VirtualDocument::of(&Written { config: &config, operational });
    let document = document.map_err(|error| PlanError::field("spec.config", error))?;
    // The process would refuse it with the same words, in pods that crash.
    match virtual_config::read(&document) {
        // An image that is not Skep's may be newer than this operator, and know more.
        Err(VirtualConfigError::UnknownMembers(_)) if settings.unsupported_by_vmcp.is_none() => {}
        Err(error) => return Err(refused(error)),
        Ok(_) => {}
    }
    Ok(document.to_yaml())
}

fn refused(error: VirtualConfigError) -> PlanError {
    let problem = match error {
        VirtualConfigError::Syntax(problem) => problem,
        VirtualConfigError::UnknownMembers(members) => {
            let named: Vec<String> = members.iter().map(|member| format!("unknown field `{member}`")).collect();
            in_one_line(&named)
        }
        VirtualConfigError::Invalid(problems) => in_one_line(&problems),
    };
    PlanError::field("spec.config", problem)
}

/// The servers that are named here, and the members of the group; of one name, the one that is named here counts.
fn backends(named: Vec<StaticBackend>, members: &[StaticBackend]) -> Vec<StaticBackend> {
    let mut all: BTreeMap<String, StaticBackend> =
        members.iter().map(|backend| (backend.name.clone(), backend.clone())).collect();
    all.extend(named.into_iter().map(|backend| (backend.name.clone(), backend)));
    all.into_values().collect()
}

fn aggregation(written: Option<Aggregation>, configs: &BTreeMap<String, &MCPToolConfigSpec>) -> Aggregation {
    let mut aggregation = written.unwrap_or_default();
    aggregation.conflict_resolution_config.get_or_insert_with(ConflictResolutionConfig::default);
    for tools in &mut aggregation.tools {
        let Some(config) = tools.tool_config_ref.take().and_then(|reference| configs.get(&reference.name)) else {
            continue;
        };
        if tools.filter.is_empty() {
            tools.filter.clone_from(&config.tools_filter);
        }
        for (tool, seen) in &config.tools_override {
            tools.overrides.entry(tool.clone()).or_insert_with(|| seen.clone());
        }
    }
    aggregation
}

/// Durations of a composite tool, as they are written on.
fn normalise(tool: &mut CompositeTool) {
    tool.timeout.iter_mut().for_each(normal);
    for step in &mut tool.steps {
        step.timeout.iter_mut().for_each(normal);
        step.on_error.iter_mut().filter_map(|on_error| on_error.retry_delay.as_mut()).for_each(normal);
    }
}

fn normal(text: &mut String) {
    *text = normal_duration(text);
}

/// As a proxy's document says it, from which ours is taken: one place says what a configuration comes to.
fn telemetry(reference: &TelemetryConfigRef, spec: &MCPTelemetryConfigSpec, name: &str) -> Option<ResolvedTelemetry> {
    let mut scratch = RunConfig::default();
    run_config::telemetry(&mut scratch, reference, spec, name);
    let reported = scratch.telemetry_config?;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    Some(ResolvedTelemetry {
        endpoint: some(reported.endpoint),
        service_name: some(reported.service_name),
        service_version: None,
        tracing_enabled: reported.tracing_enabled,
        metrics_enabled: reported.metrics_enabled,
        sampling_rate: some(reported.sampling_rate).unwrap_or_else(|| "0.05".to_owned()),
        headers: reported.headers,
        insecure: reported.insecure,
        enable_prometheus_metrics_path: reported.enable_prometheus_metrics_path,
        metrics_on_transport_port: None,
        prometheus_port: None,
        environment_variables: Vec::new(),
        custom_attributes: reported.custom_attributes,
        use_legacy_attributes: reported.use_legacy_attributes,
        ca_cert_path: some(reported.ca_cert_path),
    })
}

fn session_storage(object: &VirtualMCPServer, settings: &Settings) -> Option<ResolvedSessionStorage> {
    let redis = run_config::session_redis(object.spec.session_storage.as_ref(), settings)?;
    Some(ResolvedSessionStorage {
        provider: StorageProvider::Redis,
        address: Some(redis.address),
        db: redis.db,
        key_prefix: Some(redis.key_prefix).filter(|prefix| !prefix.is_empty()),
    })
}

/// Every setting has a default of its own.
fn default_optimizer() -> Optimizer {
    Optimizer {
        embedding_provider: EmbeddingProvider::default(),
        embedding_service: None,
        embedding_model: None,
        embedding_headers: BTreeMap::new(),
        embedding_service_timeout: "30s".to_owned(),
        max_tools_to_return: None,
        hybrid_search_semantic_ratio: None,
        semantic_distance_threshold: None,
    }
}

fn operational(written: Option<Operational>) -> WrittenOperational {
    let Operational { log_level, timeouts, failure_handling } = written.unwrap_or_default();
    let mut timeouts =
        timeouts.unwrap_or_else(|| Timeouts { default: "30s".to_owned(), per_workload: BTreeMap::new() });
    normal(&mut timeouts.default);
    timeouts.per_workload.values_mut().for_each(normal);
    WrittenOperational { log_level, timeouts, failure_handling: failures(failure_handling) }
}

fn failures(written: Option<FailureHandling>) -> WrittenFailureHandling {
    let breaker = written.as_ref().and_then(|handling| handling.circuit_breaker.clone());
    let breaker =
        breaker.unwrap_or_else(|| CircuitBreaker { enabled: false, failure_threshold: 5, timeout: "1m".to_owned() });
    let circuit_breaker = WrittenCircuitBreaker {
        enabled: breaker.enabled,
        failure_threshold: breaker.failure_threshold,
        timeout: normal_duration(&breaker.timeout),
    };
    match written {
        Some(handling) => WrittenFailureHandling {
            health_check_interval: normal_duration(&handling.health_check_interval),
            unhealthy_threshold: handling.unhealthy_threshold,
            health_check_timeout: Some(normal_duration(&handling.health_check_timeout)),
            status_reporting_interval: normal_duration(&handling.status_reporting_interval),
            partial_failure_mode: handling.partial_failure_mode,
            circuit_breaker,
        },
        None => WrittenFailureHandling {
            health_check_interval: "30s".to_owned(),
            unhealthy_threshold: 3,
            health_check_timeout: None,
            status_reporting_interval: "30s".to_owned(),
            partial_failure_mode: PartialFailureMode::default(),
            circuit_breaker,
        },
    }
}
