//! The configuration of a virtual server: `config.yaml`, as the operator writes it or people do.
//!
//! ```text
//!   text ─▶ size and depth ─▶ YAML ─▶ the judgement of the planner ─▶ what this version supports ─▶ Config
//! ```
//!
//! It is strict: a member that is not known is an error, and so nothing that is configured is silently not in force.

mod backends;
mod found;
mod run_config;

use std::collections::BTreeMap;
use std::time::Duration;

use skep_api::virtual_config::{FailureHandling, VirtualConfig};
use skep_plan::virtual_config::{self, VirtualConfigError, duration};
use skep_proxy::unsupported::UNSUPPORTED;
use skep_runconfig::VirtualDocument;
use skep_runconfig::feature::Feature;

pub use self::backends::{BackendConfigError, Where};
pub use self::found::Values;
pub use self::run_config::RunConfigError;
use crate::aggregate::Rules;
use crate::backend::TIMEOUT;
use crate::composite::{CompositeTools, DefinitionError};
use crate::health::{BreakerSettings, MonitorSettings};

/// The largest configuration that is read, in bytes.
const BYTES: usize = 4 * 1024 * 1024;

/// A configuration that can be served.
#[derive(Clone, Debug)]
pub struct Config {
    document: VirtualConfig,
}

/// Why a configuration cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It is too large.
    #[error("the configuration has {0} bytes; at most {BYTES} are read")]
    TooLarge(usize),
    /// It is no YAML.
    #[error("failed to parse YAML: {0}")]
    Syntax(String),
    /// What the operator would refuse as well.
    #[error(transparent)]
    Refused(#[from] VirtualConfigError),
    /// It requests what this version does not have.
    #[error("{}", lines(.0))]
    Unsupported(Vec<(Feature, &'static str)>),
}

fn lines(missing: &[(Feature, &'static str)]) -> String {
    let one = |(feature, member): &(Feature, &str)| {
        format!("{member}: {feature} is not supported by this version; remove it")
    };
    missing.iter().map(one).collect::<Vec<_>>().join("\n")
}

// === impl Config ===

impl Config {
    /// Reads and validates `config.yaml`.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigError> {
        if text.len() > BYTES {
            return Err(ConfigError::TooLarge(text.len()));
        }
        let document = VirtualDocument::from_yaml(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        Self::supported(virtual_config::read(&document)?)
    }

    /// A configuration that was put together in another way.
    pub fn new(document: VirtualConfig) -> Result<Self, ConfigError> {
        virtual_config::check(&document)?;
        Self::supported(document)
    }

    fn supported(document: VirtualConfig) -> Result<Self, ConfigError> {
        let mut missing = virtual_config::needed(&document);
        missing.retain(|(feature, _)| UNSUPPORTED.contains(feature));
        if missing.is_empty() { Ok(Self { document }) } else { Err(ConfigError::Unsupported(missing)) }
    }

    /// The document.
    pub fn document(&self) -> &VirtualConfig {
        &self.document
    }

    /// The name of the virtual server.
    pub fn name(&self) -> &str {
        self.document.name.as_deref().unwrap_or_default()
    }

    /// The group whose members are its backends.
    pub fn group(&self) -> &str {
        self.document.group_ref.as_deref().unwrap_or_default()
    }

    /// How the backends become one.
    pub fn rules(&self) -> Rules {
        self.document.aggregation.as_ref().map(Rules::of).unwrap_or_default()
    }

    /// How long a backend may be silent.
    pub fn timeout(&self, backend: &str) -> Duration {
        let timeouts = self.document.operational.as_ref().and_then(|operational| operational.timeouts.as_ref());
        let text = timeouts.map(|timeouts| timeouts.per_workload.get(backend).unwrap_or(&timeouts.default));
        text.and_then(|text| duration(text)).unwrap_or(TIMEOUT)
    }

    /// The longest time that any backend may be silent.
    pub fn longest_timeout(&self) -> Duration {
        let timeouts = self.document.operational.as_ref().and_then(|operational| operational.timeouts.as_ref());
        let named = timeouts.into_iter().flat_map(|timeouts| timeouts.per_workload.keys());
        named.map(|name| self.timeout(name)).max().unwrap_or_default().max(self.timeout(""))
    }

    /// How often the state of the backends is reported.
    pub fn reporting_interval(&self) -> Duration {
        let operational = self.document.operational.as_ref();
        let handling = operational.and_then(|operational| operational.failure_handling.as_ref());
        let interval = handling.and_then(|handling| duration(&handling.status_reporting_interval));
        interval.unwrap_or(Duration::from_secs(30))
    }

    /// How backends are checked. They always are: a configuration that does not say how has the defaults.
    pub fn monitor(&self) -> MonitorSettings {
        let operational = self.document.operational.as_ref();
        let handling = operational.and_then(|operational| operational.failure_handling.as_ref());
        let time = |of: fn(&FailureHandling) -> &String| handling.and_then(|handling| duration(of(handling)));
        let breaker = handling.and_then(|handling| handling.circuit_breaker.as_ref()).filter(|breaker| breaker.enabled);
        MonitorSettings {
            interval: time(|handling| &handling.health_check_interval).unwrap_or(Duration::from_secs(30)),
            timeout: time(|handling| &handling.health_check_timeout).unwrap_or(Duration::from_secs(10)),
            threshold: handling.and_then(|handling| u32::try_from(handling.unhealthy_threshold).ok()).unwrap_or(3),
            breaker: breaker.map(|breaker| BreakerSettings {
                failures: u32::try_from(breaker.failure_threshold).unwrap_or(5),
                timeout: duration(&breaker.timeout).unwrap_or(Duration::from_mins(1)),
            }),
        }
    }

    /// The headers of clients that backends get.
    pub fn passthrough(&self) -> Vec<http::HeaderName> {
        self.document.passthrough_headers.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// The composite tools, ready to run.
    pub fn composite_tools(&self) -> Result<CompositeTools, DefinitionError> {
        CompositeTools::new(&self.document.composite_tools)
    }

    /// A summary for people: what it is, and how many of each there are.
    pub fn summary(&self) -> BTreeMap<&'static str, String> {
        let document = &self.document;
        let aggregation = document.aggregation.as_ref().map(|aggregation| aggregation.conflict_resolution);
        let incoming = document.incoming_auth.as_ref().map(|auth| auth.method.clone());
        let outgoing = document.outgoing_auth.as_ref().map(|auth| auth.source.clone());
        BTreeMap::from([
            ("Name", self.name().to_owned()),
            ("Group", self.group().to_owned()),
            ("Incoming Auth", incoming.unwrap_or_default()),
            ("Outgoing Auth", outgoing.unwrap_or_default()),
            (
                "Conflict Resolution",
                serde_json::to_value(aggregation.unwrap_or_default())
                    .ok()
                    .and_then(|value| value.as_str().map(str::to_owned))
                    .unwrap_or_default(),
            ),
            ("Composite Tools", document.composite_tools.len().to_string()),
        ])
    }
}

#[cfg(test)]
mod tests;
