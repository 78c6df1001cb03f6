//! What a RunConfig asks to count and to trace, and where that goes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use skep_net::proxies::Proxies;
use skep_net::tls::{Roots, Trust};
use skep_net::{Addresses, Client};
use skep_runconfig::run_config::TelemetryConfig;
use skep_runconfig::{Field as _, RunConfig, parameters};
use skep_telemetry::audit::AuditLog;
use skep_telemetry::otlp::{Bounds, Collector, Endpoint, ExportedMetrics, ResourceFacts, Traces};

use super::Tasks;
use super::diagnostics::Diagnostics;
use crate::instruments::Instruments;
use crate::metrics::{Metrics, RATE_LIMIT_SECONDS, SECONDS};
use crate::observe::Observer;
use crate::traced::RequestTracer;

/// The part of traces that is kept when nothing else is said.
const SAMPLING: f64 = 0.05;
/// The variables with the times after which spans and metrics are sent, in milliseconds, and what they are otherwise.
const SPAN_DELAY: (&str, Duration) = ("OTEL_BSP_SCHEDULE_DELAY", Duration::from_secs(5));
const METRIC_INTERVAL: (&str, Duration) = ("OTEL_METRIC_EXPORT_INTERVAL", Duration::from_mins(1));

/// Why telemetry is not set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A member of the configuration.
    #[error("telemetry_config: {0}")]
    Configuration(String),
    /// The parameters in the list of middleware.
    #[error("middleware `telemetry`: {0}")]
    Listed(String),
    /// The exporter.
    #[error("telemetry_config: the exporter cannot be set up: {0}")]
    Exporter(String),
}

/// What is counted and traced.
#[derive(Debug, Default)]
pub(super) struct Telemetry {
    /// What is counted, if anything is.
    pub(super) metrics: Option<Arc<Metrics>>,
    /// Where that is shown, if it is.
    pub(super) diagnostics: Option<Diagnostics>,
    tracer: Option<Arc<RequestTracer>>,
    exports: Exports,
}

/// What goes to a collector.
#[derive(Clone, Debug, Default)]
pub(super) struct Exports {
    traces: Option<Traces>,
    metrics: Option<Arc<ExportedMetrics>>,
}

// === impl Telemetry ===

impl Telemetry {
    /// What a RunConfig asks for. Its tasks run until the proxy ends.
    pub(super) fn new(
        config: &RunConfig,
        environment: &BTreeMap<String, String>,
        addresses: Addresses,
        instruments: Option<&dyn Instruments>,
        tasks: &mut Tasks,
    ) -> Result<Self, TelemetryError> {
        let Some(asked) = asked(config)? else { return Ok(Self::default()) };
        let collector = collector(&asked, config, environment, addresses)?;
        let exports = match &collector {
            Some(collector) => Exports::new(collector, &asked, environment, tasks)?,
            None => Exports::default(),
        };
        let is_counted = asked.enable_prometheus_metrics_path || exports.metrics.is_some();
        let metrics = is_counted.then(|| {
            let metrics = Metrics::new(&config.name, &config.transport).exported_to(exports.metrics.clone());
            let metrics = if config.optimizer { metrics.with_optimizer() } else { metrics };
            Arc::new(metrics.with(|registry| instruments.into_iter().for_each(|one| one.register(registry))))
        });
        let diagnostics = metrics.clone().and_then(|metrics| Diagnostics::of(&asked, metrics));
        let tracer = exports.traces.clone().map(|traces| {
            let variable = |name: &String| Some((name.clone(), environment.get(name)?.clone()));
            Arc::new(RequestTracer {
                traces,
                server: config.name.clone(),
                transport: config.transport.clone(),
                with_legacy: asked.use_legacy_attributes,
                environment: asked.environment_variables.iter().filter_map(variable).collect(),
            })
        });
        Ok(Self { metrics, diagnostics, tracer, exports })
    }

    /// What sees requests.
    pub(super) fn observers(&self) -> Vec<Arc<dyn Observer>> {
        let metrics = self.metrics.clone().map(|metrics| metrics as Arc<dyn Observer>);
        metrics.into_iter().chain(self.tracer.clone().map(|tracer| tracer as Arc<dyn Observer>)).collect()
    }

    /// What goes to a collector, which is flushed when the proxy ends.
    pub(super) fn exports(&self) -> Exports {
        self.exports.clone()
    }
}

// === impl Exports ===

impl Exports {
    fn new(
        collector: &Collector,
        asked: &TelemetryConfig,
        environment: &BTreeMap<String, String>,
        tasks: &mut Tasks,
    ) -> Result<Self, TelemetryError> {
        let failed = |error: &dyn std::fmt::Display| TelemetryError::Exporter(error.to_string());
        let mut exports = Self::default();
        if asked.tracing_enabled {
            let delay = time(environment, SPAN_DELAY);
            let (traces, task) =
                Traces::new(collector, sampling(&asked.sampling_rate)?, delay).map_err(|error| failed(&error))?;
            tasks.spawn(task.run());
            exports.traces = Some(traces);
        }
        if asked.metrics_enabled {
            let interval = time(environment, METRIC_INTERVAL);
            let bounds = Bounds { requests: &SECONDS, rate_limits: &RATE_LIMIT_SECONDS };
            let (metrics, task) = ExportedMetrics::new(collector, bounds, interval).map_err(|error| failed(&error))?;
            tasks.spawn(task.run());
            exports.metrics = Some(Arc::new(metrics));
        }
        Ok(exports)
    }

    /// The traces, whose spans may be dropped.
    pub(super) fn traces(&self) -> Option<&Traces> {
        self.traces.as_ref()
    }

    /// Sends how many events an audit log dropped as well.
    pub(super) fn watch(&self, audit_log: Option<&AuditLog>) {
        if let (Some(metrics), Some(log)) = (&self.metrics, audit_log.cloned()) {
            metrics.observe("skep_audit_events_dropped", "Audit events that were not written", move || log.dropped());
        }
    }

    /// Sends what was not sent yet, for a bounded time.
    pub(super) async fn flush(&self) {
        let traces = async {
            if let Some(traces) = &self.traces {
                traces.flush().await;
            }
        };
        let metrics = async {
            if let Some(metrics) = &self.metrics {
                metrics.flush().await;
            }
        };
        tokio::join!(traces, metrics);
    }
}

/// The configuration, wherever it stands.
fn asked(config: &RunConfig) -> Result<Option<TelemetryConfig>, TelemetryError> {
    let mut asked = config.telemetry_config.clone();
    for entry in config.middleware_configs.iter().filter(|one| one.kind == "telemetry") {
        let listed = parameters::Telemetry::read(entry.parameters.clone());
        let listed = listed.map_err(|error| TelemetryError::Listed(error.to_string()))?;
        asked = asked.or(listed.config);
    }
    Ok(asked)
}

/// The collector, if something goes to one.
fn collector(
    asked: &TelemetryConfig,
    config: &RunConfig,
    environment: &BTreeMap<String, String>,
    addresses: Addresses,
) -> Result<Option<Collector>, TelemetryError> {
    let wrong = |problem: String| TelemetryError::Configuration(problem);
    let is_used = asked.tracing_enabled || asked.metrics_enabled;
    if asked.endpoint.is_empty() {
        if asked.tracing_enabled {
            tracing::warn!("traces not exported: telemetry_config has no endpoint");
        }
        return Ok(None);
    }
    if !is_used {
        let problem = "endpoint: nothing is sent there; set tracingEnabled or metricsEnabled, or remove it";
        return Err(wrong(problem.to_owned()));
    }
    let endpoint = Endpoint::parse(&asked.endpoint, asked.insecure).map_err(|error| wrong(error.to_string()))?;
    let trust = match asked.ca_cert_path.as_str() {
        "" => Trust::System,
        path => Trust::Roots(roots(path).map_err(wrong)?),
    };
    let proxies = Proxies::from_variables(environment).map_err(|error| wrong(error.to_string()))?;
    let client = Client::new(skep_net::client::Options { addresses, trust, proxies, ..Default::default() });
    let text = |name: &str| environment.get(name).map(String::as_str).unwrap_or_default();
    let or = |given: &'_ str, other: &'_ str| if given.is_empty() { other.to_owned() } else { given.to_owned() };
    let (name, version) =
        (or(&asked.service_name, &config.name), or(&asked.service_version, env!("CARGO_PKG_VERSION")));
    let resource = ResourceFacts {
        service_name: &name,
        service_version: &version,
        attributes: asked.custom_attributes.clone(),
        variable: text("OTEL_RESOURCE_ATTRIBUTES"),
        host: text("HOSTNAME"),
    };
    Ok(Some(Collector::new(endpoint, &asked.headers, environment, &resource, client)))
}

fn roots(path: &str) -> Result<Roots, String> {
    let pem = skep_auth::read_ca_bundle(Path::new(path))
        .map_err(|error| format!("caCertPath: cannot read `{path}`: {error}"))?;
    Roots::from_pem(&pem).map_err(|error| format!("caCertPath: `{path}` is not a CA bundle: {error}"))
}

/// The part of traces that is kept.
fn sampling(text: &str) -> Result<f64, TelemetryError> {
    if text.is_empty() {
        return Ok(SAMPLING);
    }
    let ratio = text.trim().parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| {
        let problem =
            format!("samplingRate: `{}` is not a number from 0 to 1", text.chars().take(64).collect::<String>());
        TelemetryError::Configuration(problem)
    })
}

/// A time in milliseconds of a variable. One that cannot be meant is not used.
fn time(environment: &BTreeMap<String, String>, (name, otherwise): (&str, Duration)) -> Duration {
    let given =
        environment.get(name).and_then(|text| text.trim().parse().ok()).filter(|time| (1..=3_600_000).contains(time));
    given.map_or(otherwise, Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_traces_is_a_number_from_0_to_1() {
        for (text, ratio) in [("", SAMPLING), ("0", 0.0), ("1.0", 1.0), (" 0.25 ", 0.25)] {
            assert!((sampling(text).unwrap() - ratio).abs() < f64::EPSILON, "{text}");
        }
        for text in ["-0.1", "1.5", "NaN", "inf", "half"] {
            let error = sampling(text).unwrap_err().to_string();
            assert_eq!(error, format!("telemetry_config: samplingRate: `{text}` is not a number from 0 to 1"));
        }
    }

    #[test]
    fn times_have_defaults_and_bounds() {
        let environment = |value: &str| BTreeMap::from([("OTEL_BSP_SCHEDULE_DELAY".to_owned(), value.to_owned())]);
        assert_eq!(time(&environment("50"), SPAN_DELAY), Duration::from_millis(50));
        for value in ["", "0", "-1", "x", "99999999999"] {
            assert_eq!(time(&environment(value), SPAN_DELAY), SPAN_DELAY.1, "{value}");
        }
    }

    #[tokio::test]
    async fn a_configuration_that_cannot_be_meant_stops_the_start() {
        let start = |text: &str| {
            let config = RunConfig::from_slice(format!(r#"{{"telemetry_config":{text}}}"#).as_bytes()).unwrap();
            Telemetry::new(&config, &BTreeMap::new(), Addresses::Machine, None, &mut Tasks::new()).map(|_| ())
        };
        for (text, part) in [
            (r#"{"endpoint":"a:1"}"#, "endpoint: nothing is sent there"),
            (r#"{"endpoint":"ftp://a","tracingEnabled":true}"#, "`ftp://a` is not the address of a collector"),
            (r#"{"endpoint":"a:1","tracingEnabled":true,"samplingRate":"2"}"#, "samplingRate: `2`"),
            (
                r#"{"endpoint":"a:1","metricsEnabled":true,"caCertPath":"/no/such"}"#,
                "caCertPath: cannot read `/no/such`",
            ),
        ] {
            let error = start(text).unwrap_err().to_string();
            assert!(error.starts_with("telemetry_config: ") && error.contains(part), "{text}: {error}");
        }
        for parameters in
            [r#"{"config":"off"}"#, r#"{"config":{"tracingEnabled":"yes"}}"#, r#"{"server_name":7}"#, "[]"]
        {
            let text = format!(
                r#"{{"telemetry_config":{{}},"middleware_configs":[{{"type":"telemetry","parameters":{parameters}}}]}}"#
            );
            let config = RunConfig::from_slice(text.as_bytes()).unwrap();
            let started = Telemetry::new(&config, &BTreeMap::new(), Addresses::Machine, None, &mut Tasks::new());
            let error = started.unwrap_err().to_string();
            assert!(error.starts_with("middleware `telemetry`: "), "{parameters}: {error}");
        }
        for text in
            ["{}", r#"{"tracingEnabled":true}"#, r#"{"endpoint":"a:1","tracingEnabled":true,"metricsEnabled":true}"#]
        {
            start(text).unwrap();
        }
    }
}
